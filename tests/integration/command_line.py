"""The command line in processes of its own, as a user has it in a shell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

COMMAND = [sys.executable, "-m", "gapless.cli"]
SECONDS_MAX = 60


class Shell:
    """Runs commands in a directory; ends at its end what it has started."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("GAPLESS_")}
        self.processes: list[subprocess.Popen[str]] = []

    def run(self, *arguments: str | Path, stdin: str = "", status: int = 0) -> subprocess.CompletedProcess[str]:
        """Runs `gapless ARGUMENTS…` to its end."""
        done = subprocess.run(
            [*COMMAND, *map(str, arguments)],
            cwd=self.directory,
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        assert done.returncode == status, done.stderr
        assert "Traceback" not in done.stderr
        return done

    def start(self, *arguments: str | Path) -> subprocess.Popen[str]:
        """Starts `gapless ARGUMENTS…`."""
        process = subprocess.Popen(
            [*COMMAND, *map(str, arguments)],
            cwd=self.directory,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process

    def start_broker(self) -> subprocess.Popen[str]:
        """Starts a broker on a free port; from then on every command of this shell goes to it."""
        (self.directory / "gapless.toml").write_text('[[listen]]\naddress = "127.0.0.1:0"\n', "utf-8")
        broker = self.start("broker", "--config", "gapless.toml", "--create", "--until-stdin-closes", "--json")
        self.environment["GAPLESS_URL"] = json.loads(line_of(broker))["url"]
        return broker

    def close(self) -> None:
        """Ends what still runs."""
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate(timeout=SECONDS_MAX)


def line_of(process: subprocess.Popen[str]) -> str:
    """The next line that a process prints."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate(timeout=SECONDS_MAX)[1]
    return line
