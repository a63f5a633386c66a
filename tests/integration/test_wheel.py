"""What `pip install gapless` gives, in an environment that has nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import gapless
from architecture.project import ROOT

pytestmark = pytest.mark.timeout(600)  # pip builds two environments, and the machine may be busy

PROGRAM = """
import asyncio
import gapless

async def main():
    async with gapless.connect("embedded:./data", client_id="c") as connection, connection.session() as session:
        async with session.subscribe("t", name="s") as subscription:
            await session.publisher("t").send(b"there and back")
            async for event in subscription:
                print(gapless.__version__, gapless.__file__, event.body.decode())
                return

asyncio.run(main())
"""


def run(*command: str | Path, directory: Path) -> str:
    """What a command prints that succeeds; nothing leads it to the checkout or to the packages of the tests."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "GAPLESS_"))}
    done = subprocess.run(
        [*map(str, command)], cwd=directory, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with the sdist, and the wheel that was built from it."""
    directory = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", directory, ROOT, directory=directory)
    return directory


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of a fresh environment into which the wheel was installed."""
    environment = tmp_path_factory.mktemp("fresh") / "venv"
    run(sys.executable, "-m", "venv", environment, directory=built)
    scripts = environment / ("Scripts" if os.name == "nt" else "bin")
    (wheel,) = built.glob("*.whl")
    run(scripts / "python", "-m", "pip", "install", "--quiet", wheel, directory=built)
    return scripts


def test_there_is_a_wheel_and_an_sdist_of_this_version(built: Path) -> None:
    names = {path.name for path in built.iterdir()}

    assert names == {f"gapless-{gapless.__version__}-py3-none-any.whl", f"gapless-{gapless.__version__}.tar.gz"}


def test_the_command_says_its_version(installed: Path, tmp_path: Path) -> None:
    assert run(installed / "gapless", "--version", directory=tmp_path) == f"gapless {gapless.__version__}\n"


def test_what_is_published_is_received(installed: Path, tmp_path: Path) -> None:
    said = run(installed / "python", "-c", PROGRAM, directory=tmp_path)
    version, imported_from, body = said.strip().split(" ", 2)

    assert (version, body) == (gapless.__version__, "there and back")
    assert Path(imported_from).is_relative_to(installed.parent)
