"""A volume that is open in another process, and can be killed there."""

from __future__ import annotations

import atexit
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

from gapless import errors
from gapless.errors import RecordsDamagedError
from gapless.spi import StorageCapabilities, VolumeIdentity
from gapless_testing.storage.child import Channel, ChannelClosedError

PATIENCE = 5.0
"""Seconds that a call of a volume may take."""
STARTING = 30.0
"""Seconds for starting Python and importing what the harness stands on, once."""

_START = "import sys; sys.path[:] = sys.argv[2].split('\\n'); import gapless_testing.storage.child as child; \
child.serve(int(sys.argv[1]))"


class ProcessEndedError(Exception):
    """The process that has the volume open has ended, as it was told to or not."""


class Factory:
    """A process that forks into those that have volumes open."""

    def __init__(self, library: Path | None) -> None:
        """`library`: what is preloaded into it."""
        ours, theirs = socket.socketpair()
        environment = os.environ | ({"LD_PRELOAD": str(library)} if library else {})
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 — our own interpreter, with our own code
                [sys.executable, "-c", _START, str(theirs.fileno()), "\n".join(sys.path)],
                env=environment,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        ours.settimeout(STARTING)
        self._socket = ours
        self._channel = Channel(ours)
        self._lock = threading.Lock()
        atexit.register(self.close)

    def fork(self, harness: dict[str, Any], root: Path, copies: Path | None) -> RemoteProcess:
        """One more process. `copies`: where is kept what is synced below `root`."""
        ours, theirs = socket.socketpair()
        with self._lock, theirs:
            order = {"harness": harness, "root": str(root), "copies": str(copies or "")}
            self._channel.send(order, theirs.fileno())
            answer, _ = self._channel.receive()
        if "error" in answer:
            ours.close()
            raise AssertionError(f"another process cannot make this harness:\n{answer['error']}")
        return RemoteProcess(answer["process"], ours)

    def close(self) -> None:
        """Ends it."""
        self._channel.close()
        self._process.wait(PATIENCE)


class RemoteProcess:
    """A process that has a volume open, or will have."""

    def __init__(self, number: int, end: socket.socket) -> None:
        self.number = number
        self._main = threading.get_ident()
        self._ends = [end]
        self._local = threading.local()
        end.settimeout(PATIENCE)
        self._first = Channel(end)
        self._lock = threading.Lock()
        self.ended = False

    def ask(self, part: str, name: str, method: str, *arguments: Any) -> Any:
        """Calls something there. Raises what it raises there, and ProcessEndedError."""
        what = f"{method}() of the {part} {name!r}" if name else f"{method}() of the {part}"
        channel = self._channel()
        try:
            with self._lock if channel is self._first else nullcontext():
                channel.send([part, name, method, arguments])
            answer, _ = channel.receive()
        except ChannelClosedError:
            self.ended = True
            raise ProcessEndedError(f"the process that had the volume open ended within {what}") from None
        except TimeoutError:
            raise AssertionError(f"{what} had not returned after {PATIENCE:.0f} s") from None
        if "error" in answer:
            raise _error(answer)
        return answer["value"]

    def kill(self) -> None:
        """Ends it as `kill -9` does, and waits until it is gone."""
        if not self.ended:
            with suppress(ProcessLookupError):
                os.kill(self.number, signal.SIGKILL)
            with suppress(ChannelClosedError):
                while True:
                    self._first.receive()
            self.ended = True
        self.close()

    def close(self) -> None:
        """Lets go of it: it ends, if it has not."""
        self.ended = True
        for end in self._ends:
            end.close()

    def _channel(self) -> Channel:
        """Each thread has its own, so that one may wait for a sync while others go on."""
        if threading.get_ident() == self._main:
            return self._first
        if not hasattr(self._local, "channel"):
            ours, theirs = socket.socketpair()
            ours.settimeout(PATIENCE)
            with self._lock, theirs:
                try:
                    self._first.send(None, theirs.fileno())
                except ChannelClosedError:
                    raise ProcessEndedError("the process that had the volume open has ended") from None
                self._ends.append(ours)
            self._local.channel = Channel(ours)
        channel: Channel = self._local.channel
        return channel


def _error(answer: dict[str, Any]) -> Exception:
    if "damaged" in answer:
        after, upto, given_up = answer["damaged"]
        return RecordsDamagedError(answer["text"], after, upto, given_up=given_up)
    kind = getattr(errors, answer["error"], None) or {"ValueError": ValueError}.get(answer["error"])
    if kind is None:
        return AssertionError(f"{answer['error']} in the process that has the volume open:\n{answer['traceback']}")
    error: Exception = kind(answer["text"])
    return error


class RemoteStream:
    """A stream of a volume that is open in another process."""

    def __init__(self, process: RemoteProcess, name: str) -> None:
        self.name = name
        self._process = process

    def _ask(self, method: str, *arguments: Any) -> Any:
        return self._process.ask("stream", self.name, method, *arguments)

    @property
    def first(self) -> int:
        """The chop point."""
        return int(self._ask("first"))

    @property
    def last(self) -> int:
        """The highest index."""
        return int(self._ask("last"))

    @property
    def size(self) -> int:
        """Bytes."""
        return int(self._ask("size"))

    @property
    def given_up(self) -> Sequence[tuple[int, int]]:
        """What was given up."""
        return [(after, upto) for after, upto in self._ask("given_up")]

    def put(self, index: int, record: bytes) -> None:
        """Stages a record."""
        if not 0 <= index < 2**64:  # no message can hold it, so the volume would not be asked
            raise ValueError(f"index {index}")
        self._ask("put", index, record)

    def read(self, after: int, upto: int, max_bytes: int = 1 << 20) -> Sequence[tuple[int, bytes]]:
        """Records."""
        return [(index, record) for index, record in self._ask("read", after, upto, max_bytes)]

    def chop(self, upto: int) -> None:
        """Stages a chop."""
        self._ask("chop", upto)

    def give_up(self, after: int, upto: int) -> None:
        """Stages that records are given up."""
        self._ask("give_up", after, upto)


class RemoteTable:
    """A table of a volume that is open in another process."""

    def __init__(self, process: RemoteProcess, name: str) -> None:
        self.name = name
        self._process = process

    def _ask(self, method: str, *arguments: Any) -> Any:
        return self._process.ask("table", self.name, method, *arguments)

    def get(self, key: bytes) -> bytes | None:
        """A value."""
        value: bytes | None = self._ask("get", key)
        return value

    def put(self, key: bytes, value: bytes) -> None:
        """Stages a row."""
        self._ask("put", key, value)

    def delete(self, key: bytes) -> None:
        """Stages a removal."""
        self._ask("delete", key)

    def scan(self, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Rows."""
        return iter([(key, value) for key, value in self._ask("scan", prefix)])


class RemoteVolume:
    """A volume that is open in another process; see `gapless.spi.LogVolume`."""

    def __init__(self, process: RemoteProcess, method: str, *identity: VolumeIdentity) -> None:
        """Opens it there, by this method of the harness. Raises what that raises."""
        self.process = process
        arguments = [[part.network, part.node] for part in identity]
        found = process.ask("harness", "", method, *arguments)
        self.identity = VolumeIdentity(*found["identity"])
        self.capabilities = StorageCapabilities(*found["capabilities"])
        self.created: bool = found["created"]
        self.has_synced = False
        """Whether a sync has returned that had something to do."""
        self._has_written = False
        self._streams: dict[str, RemoteStream] = {}
        self._tables: dict[str, RemoteTable] = {}

    def _ask(self, method: str, *arguments: Any) -> Any:
        return self.process.ask("volume", "", method, *arguments)

    def stream(self, name: str) -> RemoteStream:
        """The stream of that name."""
        if name not in self._streams:
            self._streams[name] = RemoteStream(self.process, name)
        return self._streams[name]

    def table(self, name: str) -> RemoteTable:
        """The table of that name."""
        if name not in self._tables:
            self._tables[name] = RemoteTable(self.process, name)
        return self._tables[name]

    def stream_names(self) -> Sequence[str]:
        """All streams."""
        return list(self._ask("stream_names"))

    def table_names(self) -> Sequence[str]:
        """All tables."""
        return list(self._ask("table_names"))

    def write(self) -> None:
        """Writes."""
        self._ask("write")
        self._has_written = True

    def sync(self) -> None:
        """Syncs."""
        self._ask("sync")
        self.has_synced = self._has_written

    def tend(self) -> None:
        """Tends."""
        self._ask("tend")

    def reclaim(self) -> int:
        """Reclaims."""
        return int(self._ask("reclaim"))

    @property
    def reclaimable(self) -> int:
        """What `reclaim` would give back."""
        return int(self._ask("reclaimable"))

    @property
    def free_bytes(self) -> int | None:
        """What is left on the disk."""
        free: int | None = self._ask("free_bytes")
        return free

    @property
    def damage(self) -> str:
        """What cannot be read."""
        return str(self._ask("damage"))

    def excise(self) -> str:
        """Removes what cannot be read."""
        return str(self._ask("excise"))

    def close(self) -> None:
        """Closes it there, and ends the process."""
        if not self.process.ended:
            self._ask("close")
            self.process.close()
