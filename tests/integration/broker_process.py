"""A real broker process: started, killed with SIGKILL, started again on the same volume and port."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from typing_extensions import Self

from gapless_testing.ports import free_ports

PATIENCE = 20.0
"""Seconds for whatever a broker does: it needs less than one, on a machine that has time for it."""

CLI = ("-m", "gapless.cli")

Value = TypeVar("Value")


@dataclass(frozen=True)
class Ended:
    """How a process ended."""

    status: int
    out: str
    error: str


class BrokerProcess:
    """A broker that keeps everything in `directory`. As a block it is started, and killed at the end."""

    def __init__(
        self,
        directory: Path,
        *,
        environment: Mapping[str, str] | None = None,
        program: Sequence[str] = CLI,
        **sections: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    ) -> None:
        """`program`: what Python is to run; `sections`: of the configuration, also between two starts."""
        self.patience = PATIENCE
        """Seconds that it has to start, and to end."""
        self.directory = directory
        self.volume = directory / "volume"
        self.environment = dict(environment or {})
        self.sections: dict[str, Mapping[str, Any] | Sequence[Mapping[str, Any]]] = dict(sections)
        self.url = self.observe = ""
        """Where clients connect; where it tells figures over HTTP, if it does."""
        self._program = program
        self._address = f"127.0.0.1:{free_ports(1)[0]}"
        self._log = directory / "broker.log"
        self._process: Process | None = None
        self._made = False
        directory.mkdir(parents=True, exist_ok=True)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()

    @property
    def log(self) -> str:
        """What all its processes have written to their standard error output."""
        return self._log.read_text("utf-8", "replace")

    @property
    def pid(self) -> int:
        """The id of the process that runs."""
        assert self._process is not None
        return self._process.pid

    @property
    def runs(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.returncode is None

    def lose_volume(self) -> None:
        """Its disk is replaced by an empty one, and its operator says so: the next start makes a volume."""
        shutil.rmtree(self.volume)
        self._made = False

    async def start(self) -> None:
        """Starts it, and waits until it serves: on the same port whenever."""
        assert self._process is None
        config = self.directory / "gapless.toml"
        config.write_text(self._configuration(), "utf-8")
        arguments = [*self._program, "broker", "--config", str(config), "--json", "--until-stdin-closes"]
        if not self._made:  # a volume that goes missing between two starts is not to be made anew
            arguments.append("--create")
            self._made = True
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *arguments,
                cwd=self.directory,
                env=clean_environment() | self.environment,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
        try:
            assert self._process.stdout is not None
            line = await asyncio.wait_for(self._process.stdout.readline(), self.patience)
            assert line, f"the broker did not start:\n{self.log}"
        except BaseException:
            await self.kill()
            raise
        told = json.loads(line)
        self.url, self.observe = told["url"], told.get("observe", "")

    async def kill(self) -> None:
        """SIGKILL; nothing if it does not run."""
        if self.runs:
            with contextlib.suppress(ProcessLookupError):  # Process.kill would look first, and so may reap it
                os.kill(self.pid, signal.SIGKILL)
        await self._reap()

    async def stop(self) -> int:
        """SIGTERM; waits until it has ended in order, and returns its exit status."""
        os.kill(self.pid, signal.SIGTERM)
        return await self.wait()

    async def wait(self) -> int:
        """Waits until it has ended by itself, and returns its exit status."""
        assert self._process is not None
        try:
            return await asyncio.wait_for(self._process.wait(), self.patience)
        finally:
            await self.kill()

    async def restart(self) -> None:
        """SIGKILL, and a start on the same volume and port."""
        await self.kill()
        await self.start()

    async def until_logged(self, pattern: str, times: int = 1) -> None:
        """Waits until its log has so many lines that match."""
        await until(lambda: len(re.findall(pattern, self.log)) >= times, f"{pattern!r} in the broker's log")

    async def _reap(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        await process.wait()
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            if isinstance(stream, asyncio.StreamReader):
                await stream.read()
            else:
                stream.close()

    def _configuration(self) -> str:
        sections: dict[str, Any] = {
            "storage": {"path": str(self.volume)},
            "listen": [{"address": self._address}],
            **self.sections,
        }
        return to_toml(sections)


async def until(holds: Callable[[], object], what: str, patience: float = PATIENCE) -> None:
    """Waits until something holds; fails when it does not come to that."""
    for _ in range(int(patience * 100)):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"waited {patience:g} s in vain for {what}")


async def bounded(waiting: Awaitable[Value], patience: float = PATIENCE) -> Value:
    """What is waited for, within bounds."""
    return await asyncio.wait_for(waiting, patience)


def run_broker(directory: Path, configuration: Mapping[str, Any] | str, *options: str) -> Ended:
    """Runs a broker that is expected not to start, and waits until it has ended. `options`: `--create`, for one."""
    directory.mkdir(parents=True, exist_ok=True)
    config = directory / "gapless.toml"
    config.write_text(configuration if isinstance(configuration, str) else to_toml(configuration), "utf-8")
    done = subprocess.run(
        [sys.executable, *CLI, "broker", "--config", "gapless.toml", *options],
        cwd=directory,
        env=clean_environment(),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=PATIENCE,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def clean_environment() -> dict[str, str]:
    """This process's environment without what would configure a broker."""
    return {name: value for name, value in os.environ.items() if not name.startswith("GAPLESS_")}


def to_toml(sections: Mapping[str, Any]) -> str:
    """A configuration file with these sections: tables, and arrays of tables, of plain values."""
    lines: list[str] = []
    for name, section in sections.items():
        tables = section if isinstance(section, list) else [section]
        for table in tables:
            lines.append(f"[[{name}]]" if isinstance(section, list) else f"[{name}]")
            lines += [f"{key} = {_value(value)}" for key, value in table.items()]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_value(part)}" for key, part in value.items()) + "}"
    return json.dumps(value)  # strings, numbers and booleans are written alike
