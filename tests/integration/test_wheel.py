"""What `pip install gapless` gives, in an environment that has nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import gapless
from architecture.project import ROOT

pytestmark = pytest.mark.timeout(600)  # pip makes two environments, and the machine may be busy

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


@pytest.mark.long
def test_what_is_installed_has_this_version_and_works(tmp_path: Path) -> None:
    """One test: workers share no fixture, and to build and to install takes long."""
    dist, environment = tmp_path / "dist", tmp_path / "venv"
    run(sys.executable, "-m", "build", "--outdir", dist, ROOT, directory=tmp_path)
    wheel, sdist = sorted(dist.iterdir(), key=lambda path: path.suffix, reverse=True)
    run(sys.executable, "-m", "venv", environment, directory=tmp_path)
    scripts = environment / ("Scripts" if os.name == "nt" else "bin")
    run(scripts / "python", "-m", "pip", "install", "--quiet", wheel, directory=tmp_path)

    version = run(scripts / "gapless", "--version", directory=tmp_path)
    said = run(scripts / "python", "-c", PROGRAM, directory=tmp_path)

    assert wheel.name == f"gapless-{gapless.__version__}-py3-none-any.whl"
    assert sdist.name == f"gapless-{gapless.__version__}.tar.gz"
    assert version == f"gapless {gapless.__version__}\n"
    program_version, imported_from, body = said.strip().split(" ", 2)
    assert (program_version, body) == (gapless.__version__, "there and back")
    assert Path(imported_from).is_relative_to(environment)
