"""The process that has a volume open so that it can be killed: what it runs, and what it is told.

`serve` is its entry. It first waits, without a volume, for orders to fork: imports are made once, and each volume
has a process of its own all the same. A fork opens what its harness opens, and then does what it is told to.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.util
import os
import signal
import socket
import struct
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from gapless.errors import RecordsDamagedError
from gapless.spi import LogVolume, VolumeIdentity

_LENGTH = struct.Struct("<I")
_PATH = "path: "
_TEXT = "text: "


class ChannelClosedError(Exception):
    """The other end is gone."""


class Channel:
    """Messages through a socket, one after the other, each with or without a descriptor."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def send(self, message: Any, descriptor: int | None = None) -> None:
        """Sends one. Raises ChannelClosedError."""
        content = msgspec.msgpack.encode(message)
        try:
            socket.send_fds(self._end, [_LENGTH.pack(len(content))], [] if descriptor is None else [descriptor])
            self._end.sendall(content)
        except TimeoutError:
            raise
        except OSError as error:
            raise ChannelClosedError from error

    def receive(self) -> tuple[Any, int | None]:
        """The next one. Raises ChannelClosedError, and TimeoutError after the socket's timeout."""
        try:
            head, descriptors, *_ = socket.recv_fds(self._end, _LENGTH.size, 1)
            head += self._exactly(_LENGTH.size - len(head))
            (length,) = _LENGTH.unpack(head)
            content = self._exactly(length)
        except TimeoutError:
            raise
        except OSError as error:
            raise ChannelClosedError from error
        return msgspec.msgpack.decode(content), descriptors[0] if descriptors else None

    def close(self) -> None:
        """The other end is told."""
        self._end.close()

    def _exactly(self, count: int) -> bytes:
        parts = []
        while count:
            part = self._end.recv(min(count, 1 << 20))
            if not part:
                raise ChannelClosedError
            parts.append(part)
            count -= len(part)
        return b"".join(parts)


# ---------------------------------------------------------------------------------------- a harness, sent


def packed(value: Any, what: str) -> Any:
    """A field of a harness as a message holds it. Raises ValueError if it is more than plain values and paths."""
    if isinstance(value, Path):
        return _PATH + str(value)
    if isinstance(value, str):
        return _TEXT + value
    if value is None or isinstance(value, (bool, int, float, bytes)):
        return value
    if isinstance(value, (list, tuple)):
        return [packed(part, what) for part in value]
    if isinstance(value, dict):
        return {packed(key, what): packed(part, what) for key, part in value.items()}
    raise ValueError(f"its field {what!r} is a {type(value).__name__}")


def unpacked(value: Any) -> Any:
    """The field that was packed."""
    if isinstance(value, str):
        return Path(value.removeprefix(_PATH)) if value.startswith(_PATH) else value.removeprefix(_TEXT)
    if isinstance(value, list):
        return [unpacked(part) for part in value]
    if isinstance(value, dict):
        return {unpacked(key): unpacked(part) for key, part in value.items()}
    return value


def described(harness: Any) -> dict[str, Any]:
    """How another process makes the same harness. Raises ValueError when it could not."""
    kind = type(harness)
    if "<locals>" in kind.__qualname__:
        raise ValueError("its class is not at the top of a module")
    file = getattr(sys.modules[kind.__module__], "__file__", None)
    if file is None:
        raise ValueError(f"its module {kind.__module__} is in no file")
    fields = {name: packed(value, name) for name, value in vars(harness).items()}
    return {"module": kind.__module__, "file": file, "kind": kind.__qualname__, "fields": fields}


def remade(description: dict[str, Any]) -> Any:
    """The harness that was described."""
    part: Any = _module(description["module"], description["file"])
    for name in description["kind"].split("."):
        part = getattr(part, name)
    harness = part.__new__(part)
    vars(harness).update({name: unpacked(value) for name, value in description["fields"].items()})
    return harness


def _module(name: str, file: str) -> Any:
    """As pytest has imported it: by its name if that leads to the file, else from the file, under that name."""
    if (module := sys.modules.get(name)) is not None:
        return module
    with contextlib.suppress(ImportError, ValueError):
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None and Path(spec.origin).resolve() == Path(file).resolve():
            return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ------------------------------------------------------------------------------------------ the process


def serve(descriptor: int) -> None:
    """Forks whenever it is told to, until nobody is there to tell."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who is interrupted closes the channel
    orders = Channel(socket.socket(fileno=descriptor))
    while True:
        try:
            order, end = orders.receive()
        except ChannelClosedError:
            return
        finally:
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:  # those that have ended meanwhile
                    pass
        assert end is not None
        try:
            remade(order["harness"])  # imports what the forks need, once
            answer = None
        except Exception:  # noqa: BLE001 — told to whoever gave the order
            answer = {"error": traceback.format_exc()}
        process = os.fork() if answer is None else 0
        if answer is None and process == 0:
            orders.close()
            _work(Channel(socket.socket(fileno=end)), order)
        os.close(end)
        orders.send(answer or {"process": process})


def _work(channel: Channel, order: dict[str, Any]) -> None:
    status = 1
    try:
        if order["copies"]:
            os.environ["GAPLESS_POWER_ROOT"], os.environ["GAPLESS_POWER_COPIES"] = order["root"], order["copies"]
            ctypes.CDLL(None).gapless_power_begin(order["root"].encode(), order["copies"].encode())
        _Server(channel, remade(order["harness"])).run()
        status = 0
    except ChannelClosedError:
        status = 0
    finally:
        os._exit(status)  # nothing of whom it was forked from is to be ended here


class _Server:
    """Does what it is told to: one thread for each channel, so that a sync may run beside all else."""

    def __init__(self, channel: Channel, harness: Any) -> None:
        self._channel = channel
        self._harness = harness
        self._volume: Any = None

    def run(self) -> None:
        """Until the channel is closed."""
        self._serve(self._channel)

    def _serve(self, channel: Channel) -> None:
        while True:
            message, descriptor = channel.receive()
            if descriptor is not None:
                other = Channel(socket.socket(fileno=descriptor))
                threading.Thread(target=self._serve_beside, args=(other,), daemon=True).start()
                continue
            channel.send(self._answer(message))

    def _serve_beside(self, channel: Channel) -> None:
        with contextlib.suppress(ChannelClosedError):
            self._serve(channel)

    def _answer(self, message: list[Any]) -> dict[str, Any]:
        try:
            return {"value": self._do(*message)}
        except Exception as error:  # noqa: BLE001 — raised where it was asked for
            answer: dict[str, Any] = {
                "error": type(error).__name__,
                "text": str(error),
                "traceback": traceback.format_exc(),
            }
            if isinstance(error, RecordsDamagedError):
                answer["damaged"] = [error.after, error.upto, error.given_up]
            return answer

    def _do(self, part: str, name: str, method: str, arguments: list[Any]) -> Any:
        if part == "harness":
            return self._open(method, arguments)
        if part == "shim":
            return getattr(ctypes.CDLL(None), f"gapless_power_{method}")(*arguments)
        target = self._volume if part == "volume" else getattr(self._volume, part)(name)
        found = getattr(target, method)
        value = found(*arguments) if callable(found) else found
        return list(value) if isinstance(value, Iterator) else value

    def _open(self, method: str, arguments: list[Any]) -> dict[str, Any]:
        identity = [VolumeIdentity(*part) for part in arguments]
        volume: LogVolume = getattr(self._harness, method)(*identity)
        self._volume = volume
        return {
            "identity": [volume.identity.network, volume.identity.node],
            "capabilities": [volume.capabilities.durable, volume.capabilities.atomic],
            "created": volume.created,
        }
