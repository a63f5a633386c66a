"""Processes that hold a RocksDB volume and can be killed: a program, started by `disk_real`.

Importing takes long and forking does not: so one process imports, and forks another for each life of a
volume. It hands on the steps and the answers, and sees to it that who is killed is really gone.
"""

from __future__ import annotations

import gc
import logging
import os
import resource
import signal
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from gapless.spi import Create
from gapless_storage._rocksdb import opening, watchdog
from gapless_storage._rocksdb.wal import log_files
from gapless_storage.rocksdb import open_storage
from sim.disk_player import Outcome, Player, Step, said


class RocksdbPlayer(Player):
    """A process with a RocksDB volume, and with what can be done to the process itself."""

    def __init__(self, directory: str, options: dict[str, Any]) -> None:
        super().__init__(lambda identity: open_storage(directory, identity, options, Create.YES))
        self._database = Path(directory, "rocksdb")
        self._syncs: list[tuple[threading.Thread, list[object]]] = []

    def close(self) -> None:
        """Closes the volume, and ends what `limit` began."""
        super().close()
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    def limit(self, more: int) -> None:
        """Lets files grow to the log's size and so many bytes more: a write fails half done, in the kernel."""
        size = log_files(self._database)[-1].stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + more, resource.RLIM_INFINITY))

    def unwritable(self, step: Step) -> object:
        """A step during which the kernel refuses to write the log."""
        with self._log_open_for_reading():
            told, _ = self.play(step)
        return told

    @contextmanager
    def _log_open_for_reading(self) -> Iterator[None]:
        log = log_files(self._database)[-1]
        (descriptor,) = (int(link.name) for link in Path("/proc/self/fd").iterdir() if _leads_to(link, log))
        kept, reading = os.dup(descriptor), os.open(log, os.O_RDONLY)
        os.dup2(reading, descriptor)
        try:
            yield
        finally:
            os.dup2(kept, descriptor)
            os.close(kept)
            os.close(reading)

    def begin_sync(self) -> None:
        """A sync in a thread of its own."""
        answer: list[object] = []
        thread = threading.Thread(target=lambda: answer.append(said(self.the_volume.sync)), daemon=True)
        thread.start()
        self._syncs.append((thread, answer))

    def end_syncs(self) -> object:
        """What the syncs said, in the order in which they were begun."""
        for thread, _ in self._syncs:
            thread.join()
        told = [answer for _, (answer,) in self._syncs]
        self._syncs.clear()
        return told


def _leads_to(link: Path, target: Path) -> bool:
    try:
        return link.readlink() == target
    except OSError:  # of the directory that is being listed
        return False


def live(connection: Connection, directory: str, options: dict[str, Any]) -> None:
    """A process' life: plays what it is told, until it is told no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    player = RocksdbPlayer(directory, options)
    while (step := connection.recv()) is not None:
        try:
            answer: Outcome | str = player.play(step)
        except Exception:  # noqa: BLE001 — whoever plays the history wants to see it
            answer = traceback.format_exc()
        connection.send(answer)


class Nursery:
    """Forks processes, talks to them, ends them."""

    def __init__(self) -> None:
        self._lives: dict[int, Connection] = {}

    def begin(self, directory: str, options: dict[str, Any]) -> int:
        """A new process; returns its id."""
        ours, theirs = Pipe()
        process = os.fork()
        if process == 0:
            try:
                live(theirs, directory, options)
            finally:
                os._exit(0)
        theirs.close()
        self._lives[process] = ours
        return process

    def play(self, process: int, step: Step) -> object:
        """What a process answers."""
        self._lives[process].send(step)
        return self._lives[process].recv()

    def kill(self, process: int) -> None:
        """Ends a process as nobody can prevent it; then it holds no file and no lock any more."""
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        self._lives.pop(process).close()


def main() -> None:
    """Does what standard input says, until it ends."""
    commands = Connection(os.dup(0), writable=False)
    answers = Connection(os.dup(1), readable=False)
    logging.disable()
    os.dup2(2, 1)  # nothing else may come between the answers
    # An opening looks into the database in a process of its own, lest it hang; that is tested elsewhere, and
    # takes longer than all the rest.
    vars(opening)["inspect_within"] = lambda directory, _: watchdog._ask_ourselves(directory)
    gc.freeze()  # what children share stays shared
    nursery = Nursery()
    while True:
        try:
            name, *arguments = commands.recv()
        except EOFError:
            return
        answers.send(getattr(nursery, name)(*arguments))


if __name__ == "__main__":
    main()
