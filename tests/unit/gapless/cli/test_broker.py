"""`gapless broker`: what can be said without one that serves; the rest is in tests/integration/test_cli.py."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from unit.gapless.cli.conftest import Gapless


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("node = 7", "node"),
        ("[node]\nnmae = 'x'", "there is no key 'node.nmae' (did you mean 'name'?)"),
        ("[storage]\nplugin = 'paper'", "no storage plugin is called 'paper'"),
        ("[[listen]]\naddress = '0.0.0.0:0'", "'0.0.0.0:0' can be reached from other machines"),
        ("not toml", "is not TOML"),
    ],
)
def test_a_wrong_configuration_starts_nothing(gapless: Gapless, tmp_path: Path, content: str, reason: str) -> None:
    path = tmp_path / "gapless.toml"
    path.write_text(content, "utf-8")

    result = gapless("broker", "--config", path, status=2)

    assert reason in result.stderr
    assert [entry.name for entry in tmp_path.iterdir()] == ["gapless.toml"]


def test_a_configuration_that_is_not_there_is_named(gapless: Gapless, tmp_path: Path) -> None:
    result = gapless("broker", "--config", tmp_path / "nothing.toml", status=2)

    assert "nothing.toml: cannot be read" in result.stderr


def test_it_ends_in_order_when_its_input_does() -> None:
    program = (
        "import signal, time; from gapless.cli.broker import stop_when_stdin_closes\n"
        "signal.signal(signal.SIGTERM, lambda *_: print('told to stop') or exit(0))\n"
        "stop_when_stdin_closes(); print('runs', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=-1, stdout=-1, text=True, env=os.environ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "runs\n"
        process.stdin.close()
        assert process.stdout.read() == "told to stop\n"
    assert process.returncode == 0


@pytest.mark.parametrize("given", ["--config", "--data"])
def test_the_hint_to_create_repeats_what_names_the_volume(gapless: Gapless, tmp_path: Path, given: str) -> None:
    volume = tmp_path / "a volume"
    volume.mkdir()
    file = tmp_path / "gapless.toml"
    file.write_text(f"[storage]\npath = '{volume}'\n[[listen]]\naddress = '127.0.0.1:0'\n", "utf-8")
    named = file if given == "--config" else volume

    said = gapless("broker", given, named, status=1).stderr

    assert f"`gapless broker {given} {shlex.quote(str(named))} --create`" in said
