"""The client processes of one measurement, as the process that runs the race sees them."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.peers.system import RaceError, last_words


class Client:
    """One client process, see `bench.peers.client`."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log

    def tell(self, **order: Any) -> None:
        """Gives it an order."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise RaceError(self._fate()) from None

    def answer(self) -> dict[str, Any]:
        """Waits for what it says next."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RaceError(self._fate())
        said: dict[str, Any] = json.loads(line)
        return said

    def _fate(self) -> str:
        status = self._process.wait()
        return "took too long" if status == -signal.SIGKILL else f"a client failed: {last_words(self._log)}"


class Crew:
    """Starts clients of one system on one topic."""

    def __init__(self, system: str, address: str, topic: str, directory: Path) -> None:
        self._where = (system, address, topic)
        self.directory = directory
        self.processes: list[subprocess.Popen[str]] = []

    def publisher(self) -> Client:
        """A process with one open publisher."""
        client = self._spawn("publish", *self._where)
        client.answer()
        return client

    def subscribers(self, total: int, wanted: str, processes: int = 2) -> list[Client]:
        """That many subscribers in that many processes."""
        clients = []
        for first in range(processes):
            mine = json.dumps({"total": total, "wanted": wanted, "first": first, "step": processes})
            clients.append(self._spawn("receive", *self._where, mine))
        for client in clients:
            client.answer()
        return clients

    def kill(self) -> None:
        """Stops all of them."""
        for process in self.processes:
            process.kill()

    def _spawn(self, *arguments: str) -> Client:
        log = self.directory / f"client-{len(self.processes)}.log"
        with log.open("wb") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "bench.peers.client", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.processes.append(process)
        return Client(process, log)


@contextlib.contextmanager
def crew(system: str, address: str, topic: str, directory: Path, seconds: float) -> Iterator[Crew]:
    """A crew that is gone when the block ends, and is stopped when it takes longer than this."""
    hands = Crew(system, address, topic, directory)
    watchdog = threading.Timer(seconds, hands.kill)
    watchdog.start()
    try:
        yield hands
    finally:
        watchdog.cancel()
        hands.kill()
        for process in hands.processes:
            process.communicate()
