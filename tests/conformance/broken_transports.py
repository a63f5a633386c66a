"""Transports that break one promise each, to see that the suite notices.

Each is one of our transports with one thing done wrong, patched in for one test.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest

from conformance.transports import MemoryHarness
from gapless.core.wire.framing import FrameDecoder
from gapless.spi import Link, LinkHandler
from gapless_testing.transport import TransportHarness, ends
from gapless_transport.links import BaseLink, LinkState, SendQueue
from gapless_transport.memory import MemoryListener, MemoryTransport
from gapless_transport.memory_link import MemoryLink, Payload
from gapless_transport.tcp import TcpTransport

BREACH_SECONDS_MAX = 0.4
"""How long a test of the suite may wait for what a broken transport never does."""


@dataclass(frozen=True)
class Breach:
    """One thing done wrong, and a test of the suite that has to fail then."""

    owner: type | ModuleType
    name: str
    replacement: Any
    test: Callable[..., object]
    harness: type[TransportHarness] = MemoryHarness

    def __str__(self) -> str:
        what = getattr(self.replacement, "__name__", "property")
        return f"{self.owner.__name__.rpartition('.')[2]}.{self.name}-{what}-{self.test.__name__}"

    def check(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The test passes without the breach and fails with it."""
        assert not notices(self.test, self.harness)
        monkeypatch.setattr(self.owner, self.name, self.replacement)
        monkeypatch.setattr(ends, "TEST_SECONDS_MAX", BREACH_SECONDS_MAX)
        assert notices(self.test, self.harness)


def notices(test: Callable[..., object], harness: type[TransportHarness]) -> bool:
    """Whether a test of the suite fails on a transport, as it is patched now."""
    with warnings.catch_warnings():
        # A test that fails half-way leaves sockets behind; they go here, and not in somebody else's test.
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            test(None, harness("asyncio"))  # type: ignore[call-arg]
        except (AssertionError, pytest.fail.Exception, OSError, LookupError, RuntimeError, ValueError, TypeError):
            return True
        finally:
            gc.collect()
    return False


def covers(breaches: Sequence[Breach], *suites: type) -> None:
    """Fails unless every test of the suites is seen to fail at least once."""
    tests = {name for suite in suites for name, _ in inspect.getmembers(suite) if name.startswith("test_")}

    assert {breach.test.__name__ for breach in breaches} == tests


def nothing(*_: object, **__: object) -> None:
    """In place of anything that should be done."""


# -------------------------------------------------------------------------------------------- frames


def whole_cut(payload: Payload) -> bytes:
    whole = b"".join(payload) if isinstance(payload, tuple) else payload
    return whole[:1000]


def whole_as_bytearray(payload: Payload) -> Any:
    return bytearray(b"".join(payload) if isinstance(payload, tuple) else payload)


def whole_first(payload: Payload) -> bytes:
    return payload[0] or payload[1] if isinstance(payload, tuple) else payload


def whole_backwards(payload: Payload) -> bytes:
    return bytes(whole_as_bytearray(payload)[::-1])


def whole_blank(payload: Payload) -> bytes:
    return bytes(size_unchecked(payload))


def put_first(outbox: SendQueue[Any], item: object, size: int, *, urgent: bool = False) -> None:
    outbox._data.appendleft((item, size))
    outbox.size += size


def put_behind(outbox: SendQueue[Any], item: object, size: int, *, urgent: bool = False) -> None:
    outbox._data.append((item, size))
    outbox.size += size


send = MemoryLink.send


def send_nothing_urgent(link: MemoryLink, payloads: Sequence[Payload], *, urgent: bool = False) -> None:
    send(link, [] if urgent else payloads)


def send_once_accepted(link: MemoryLink, payloads: Sequence[Payload], *, urgent: bool = False) -> None:
    if link._handler is not None:
        send(link, payloads, urgent=urgent)


def size_unchecked(payload: Payload) -> int:
    return len(b"".join(payload)) if isinstance(payload, tuple) else len(payload)


def within_any_limit(link: MemoryLink) -> list[bytes]:
    payloads = list(link._inbox)
    link._inbox.clear()
    return payloads


within_limit = MemoryLink._within_limit


def within_limit_or_none(link: MemoryLink) -> list[bytes]:
    if any(len(payload) > link._limit for payload in link._inbox):
        while len(link._inbox[0]) <= link._limit:
            link._inbox.popleft()
    return within_limit(link)


def raise_limit_far(link: MemoryLink, limit: int) -> None:
    link._limit = 1 << 40


def pending_something(_: MemoryLink) -> int:
    return 1


# ---------------------------------------------------------------------------------------------- flow


def hand_over_while_paused(link: MemoryLink) -> None:
    while link._inbox and link._handler is not None:
        link._tell(link._handler.on_frames, [link._inbox.popleft()])


def resume_as_often_as_paused(link: MemoryLink) -> None:
    link.pauses = getattr(link, "pauses", 0) + 1  # type: ignore[attr-defined]
    if link.pauses % 2 == 0:  # type: ignore[attr-defined]
        link._paused = False
        link._loop.call_soon(link._read_again)


def note_sent_always(link: MemoryLink) -> None:
    if link._handler is not None:
        link._tell(link._handler.on_drained)


def note_pending_without_limit(link: MemoryLink) -> None:
    link._was_high |= link.pending > link._options.high_water


take = SendQueue.take


def take_backwards(outbox: SendQueue[Any], room: int) -> list[Any]:
    return take(outbox, room)[::-1]


# ------------------------------------------------------------------------------------------- closing


def close_at_once(link: MemoryLink, reason: str = "") -> None:
    link.fail(reason)


def close_in_its_own_time(link: MemoryLink, reason: str = "") -> None:
    if link._phase is LinkState.OPEN:
        link._phase = LinkState.CLOSING
        link._reason = reason
        link.pump_soon()


close = MemoryLink.close


def close_with_the_last_reason(link: MemoryLink, reason: str = "") -> None:
    close(link, reason)
    link._reason = reason


def take_after_closing(link: MemoryLink, payloads: list[bytes]) -> None:
    for payload in payloads:
        if link._handler is not None:
            link._tell(link._handler.on_frames, [payload])


def break_in_silence(link: MemoryLink) -> None:
    link._leave("")


# ------------------------------------------------------------------------------------------ handlers


def tell_and_forgive(link: BaseLink[Any], callback: Callable[..., None], *arguments: Any) -> None:
    with contextlib.suppress(RuntimeError):
        callback(*arguments)


def tell_unguarded(link: BaseLink[Any], callback: Callable[..., None], *arguments: Any) -> None:
    callback(*arguments)


def begin_unguarded(link: BaseLink[Any], as_link: Link, accept: Callable[[Link], LinkHandler]) -> None:
    link._handler = accept(as_link)


def begin_in_silence(link: BaseLink[Any], as_link: Link, accept: Callable[[Link], LinkHandler]) -> None:
    try:
        link._handler = accept(as_link)
    except LookupError:
        link.fail("not accepted")


# ----------------------------------------------------------------------------------------- listening

dial = MemoryTransport.dial


async def dial_the_first(transport: MemoryTransport, address: str, accept: Callable[[Link], LinkHandler]) -> Link:
    return await dial(transport, next(iter(transport.network.listeners), address), accept)


async def close_once(listener: MemoryListener) -> None:
    del listener.transport.network.listeners[listener.address]


async def close_nothing(listener: MemoryListener) -> None:
    pass


async def listen_anyway(
    transport: MemoryTransport, address: str, accept: Callable[[Link], LinkHandler]
) -> MemoryListener:
    return MemoryListener(transport, address or transport.network.new_address(), accept)


def is_any_host(text: str) -> bool:
    return True


dial_tcp = TcpTransport.dial


async def dial_although_cancelled(transport: TcpTransport, address: str, accept: Callable[[Link], LinkHandler]) -> Link:
    return await asyncio.shield(dial_tcp(transport, address, accept))


def pair_of_strangers(transport: MemoryTransport, listener: MemoryListener) -> tuple[MemoryLink, MemoryLink]:
    near, far = pair(transport, listener)
    near.peer = far.peer = ""
    return near, far


pair = MemoryTransport._pair


# ----------------------------------------------------------------------------------------------- raw


def feed_without_memory(decoder: FrameDecoder, data: bytes) -> list[bytes]:
    decoder._rest, decoder._missing = b"", 0
    return decoder._cut(data, 0, [])


def header_backwards(payload: bytes, rest: bytes = b"") -> bytes:
    return bytes(8)


def cut_without_limit(decoder: FrameDecoder, data: bytes, start: int, payloads: list[bytes]) -> list[bytes]:
    """Takes any length and any checksum."""
    while len(data) - start >= 8:
        end = start + 8 + int.from_bytes(data[start : start + 4], "little")
        if end > len(data):
            break
        payloads.append(data[start + 8 : end])
        start = end
    decoder._rest = data[start:]
    return payloads


def collect_in_advance(decoder: FrameDecoder, piece: memoryview) -> None:
    decoder.reserved = bytearray(decoder._missing)  # type: ignore[attr-defined]
    decoder._missing -= len(piece)


def hold_nothing(decoder: FrameDecoder, data: bytes, start: int, payloads: list[bytes], message: str) -> list[bytes]:
    decoder._break(message)
    raise AssertionError


never_inside = property(lambda _: False)
