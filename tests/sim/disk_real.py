"""Plays histories on a real RocksDB volume, in real processes that are killed, and on files that are cut."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any

from conformance.storages import copy_at_rest
from integration.io_shim import Kind, Shim
from sim import disk_process
from sim.disk_cuts import Durable, cut, everything, synced
from sim.disk_player import Outcome, Step

PATIENCE = 30.0
"""Seconds for whatever a process does."""


class Processes:
    """What forks processes under the I/O shim (`disk_process.Nursery`), and a way to talk to it."""

    def __init__(self, library: Path, scratch: Path) -> None:
        self.root = scratch / "volumes"
        self.root.mkdir()
        self.shim = Shim(library, self.root, scratch)
        tests = str(Path(disk_process.__file__).parents[1])
        path = os.pathsep.join([tests, *filter(None, [os.environ.get("PYTHONPATH")])])
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", disk_process.__file__],
            env={**os.environ, **self.shim.environment, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._commands = Connection(os.dup(self._process.stdin.fileno()), readable=False)
        self._answers = Connection(os.dup(self._process.stdout.fileno()), writable=False)

    def ask(self, name: str, *arguments: object) -> Any:
        """Tells the nursery what to do; returns its answer."""
        self._commands.send((name, *arguments))
        assert self._answers.poll(PATIENCE), f"no process answers to {name} {arguments}"
        return self._answers.recv()

    def close(self) -> None:
        """Ends it."""
        self._commands.close()
        self._answers.close()
        self._process.communicate(timeout=PATIENCE)
        self.shim.close()


class RealDisk:
    """A directory with a volume, the process that has it open, and copies of the directory."""

    def __init__(self, processes: Processes, name: str, options: dict[str, Any]) -> None:
        self._processes = processes
        self._shim = processes.shim
        self._options = options
        self._prefix = f"{name}/volume/"
        self._directory = processes.root / name
        self._volume = self._directory / "volume"
        self._directory.mkdir()
        self._process: int | None = None
        self._durable = Durable()
        self._since_lie: Durable | None = None
        self._forget_calls()

    def play(self, step: Step) -> Outcome:
        """Plays a step: here if it is one for the disk or the process, else in the process."""
        name, *arguments = step
        act: Callable[..., Outcome] | None = getattr(self, f"_play_{name}", None)
        return act(*arguments) if act is not None else self._in_process(step)

    def close(self) -> None:
        """Ends whatever lives."""
        self._shim.reset()
        self._end()

    def _in_process(self, step: Step) -> Outcome:
        if self._process is None:
            self._process = self._processes.ask("begin", str(self._volume), self._options)
        return self._asked(self._process, step)

    def _asked(self, process: int, step: Step) -> Outcome:
        answer = self._processes.ask("play", process, step)
        assert isinstance(answer, tuple), f"{step}: {answer}"
        return answer[0], answer[1]

    def _end(self) -> None:
        if self._process is not None:
            self._processes.ask("kill", self._process)
            self._process = None
        self._shim.reset()

    # What goes wrong while a process lives.

    def _play_eio(self, file: str, step: Step) -> Outcome:
        """A step during which the next sync of that file fails."""
        self._shim.fail_syncs(1, file)
        try:
            return self.play(step)
        finally:
            self._shim.fail_syncs(0, "")

    def _play_fill(self) -> Outcome:
        self._shim.fill_disk(full=True)
        return "done", None

    def _play_room(self) -> Outcome:
        self._shim.fill_disk(full=False)
        return "done", None

    def _play_two_syncs(self, hold: str, fail: str, *steps: Step) -> Outcome:
        """A sync that waits at that file; steps, and another sync; then one at `fail` fails, if there is any left."""
        self._begin_sync(hold)
        for step in steps:
            self.play(step)
        if fail:
            self._shim.fail_syncs(1, fail)
        self._in_process(("begin_sync",))
        time.sleep(0.01)  # till it waits, too; should it not yet, the outcome is still one that may be
        self._shim.hold_syncs(hold=False)
        outcome = self._in_process(("end_syncs",))
        self._shim.fail_syncs(0, "")
        return outcome

    def _begin_sync(self, hold: str) -> None:
        self._shim.fail_syncs(0, hold)
        self._shim.hold_syncs(hold=True)
        self._in_process(("begin_sync",))
        deadline = time.monotonic() + PATIENCE
        while not self._shim.held:
            assert time.monotonic() < deadline, f"no sync of {hold}"
            time.sleep(0.001)

    # How a process ends.

    def _play_kill(self, during_sync_of: str = "") -> Outcome:
        """SIGKILL, maybe while a sync waits at a file."""
        if during_sync_of:
            self._begin_sync(during_sync_of)
        self._end()
        return "done", None

    def _play_power(self, how: str, seed: int, during_sync_of: str = "") -> Outcome:
        """The same, and the files are cut."""
        self._play_kill(during_sync_of)
        certain = self._certain()
        new_fence = None
        if self._since_lie is not None:
            sizes = {name: self._since_lie.sizes.get(name, 0) for name in certain.sizes}
            certain = replace(self._since_lie, sizes=sizes)
            new_fence = seed % 2 == 1
        self._since_lie = None
        cut(self._volume, certain, how, Random(seed), new_fence=new_fence)
        self._settle()
        return "done", None

    def _play_evict(self) -> Outcome:
        """The kernel has forgotten what it could not write: as after a power cut, and nobody has noticed one."""
        assert self._process is None or self._in_process(("seen",))[1] is None
        cut(self._volume, self._certain(), "least", Random(0))
        self._settle()
        return "done", None

    def _play_lie(self) -> Outcome:
        """From now on no sync counts, until the power is cut."""
        self._since_lie = self._certain()
        return "done", None

    # What becomes of the files.

    def _play_copy(self, name: str) -> Outcome:
        copy_at_rest(self._volume, self._directory / name)
        return "done", None

    def _play_beside(self, name: str, *steps: Step) -> Outcome:
        """Another process, on a copy."""
        process = self._processes.ask("begin", str(self._directory / name), self._options)
        outcomes = [self._asked(process, step) for step in steps]
        self._processes.ask("kill", process)
        return outcomes, None

    def _play_other(self) -> Outcome:
        """Another process, on the same volume."""
        process = self._processes.ask("begin", str(self._volume), self._options)
        told, _ = self._asked(process, ("open",))
        self._processes.ask("kill", process)
        return told, None

    def _play_restore(self, name: str, part: str) -> Outcome:
        for file in _FILES[part]:
            _remove(self._volume / file)
            source, target = self._directory / name / file, self._volume / file
            if source.is_dir():
                shutil.copytree(source, target)
            elif source.exists():
                target.parent.mkdir(exist_ok=True)
                shutil.copy2(source, target)
        self._settle()
        return "done", None

    def _play_wipe(self, part: str) -> Outcome:
        for file in _FILES[part]:
            _remove(self._volume / file)
        self._settle()
        return "done", None

    def _play_damage(self, stream: str, index: int) -> Outcome:
        """A byte of a record in a data file is another one."""
        content = b"%s %d %s %d " % (stream.encode(), index, stream.encode(), index)
        for path in (self._volume / "rocksdb").glob("*.sst"):
            data = bytearray(path.read_bytes())
            if (place := data.find(content)) >= 0:
                data[place] ^= 1
                path.write_bytes(data)
                self._settle()
                return "done", None
        raise AssertionError(f"record {index} of {stream} is in no data file")

    def _certain(self) -> Durable:
        return synced(self._volume, self._durable, self._calls())

    def _calls(self) -> list[Any]:
        return [
            replace(call, target=call.target.removeprefix(self._prefix))
            for call in self._shim.calls()
            if call.kind is not Kind.SEND and call.target.startswith(self._prefix)
        ]

    def _settle(self) -> None:
        """What we have left in the files is what is on the disk."""
        self._durable = everything(self._volume)
        self._forget_calls()

    def _forget_calls(self) -> None:
        os.truncate(self._shim._journal, 0)


_FILES = {
    "all": ("volume.json", "fence", "lock", "rocksdb", "seal", "reserve", "damaged"),
    "database": ("rocksdb", "seal"),
    "fence": ("fence",),
}


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
