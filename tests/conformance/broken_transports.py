"""Transports that break one promise each, to see that the suite notices.

Each is one of our transports with one thing done wrong, patched in for one test.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import re
import socket
import tempfile
import threading
import warnings
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from conformance.transports import MemoryHarness, TlsHarness, write_certificates
from gapless.core.alarms import Alarm, AlarmCode
from gapless.core.wire.framing import FrameDecoder
from gapless.spi import Certificate, Link, LinkHandler
from gapless_testing import running
from gapless_testing.transport import TransportHarness
from gapless_transport.links import BaseLink, LinkState, SendQueue
from gapless_transport.memory import MemoryListener, MemoryTransport
from gapless_transport.memory_link import MemoryLink, Payload
from gapless_transport.tcp import TcpTransport
from gapless_transport.tcp_listener import TcpListener
from gapless_transport.tls_files import TlsFiles, TlsVersion

BREACH_SECONDS_MAX = 0.4
"""How long a test of the suite may wait for what a broken transport never does."""
CLOSING = 2.0
"""The same where a sound transport would take the time that a close may take."""


@dataclass(frozen=True)
class Breach:
    """One thing done wrong, and a test of the suite that has to fail then."""

    owner: type | ModuleType
    name: str
    replacement: Any
    test: Callable[..., object]
    harness: Callable[[str], TransportHarness] = MemoryHarness
    says: str = ""
    """What has to be in the message: it names what was expected and what came."""
    seconds: float = BREACH_SECONDS_MAX

    def __str__(self) -> str:
        what = getattr(self.replacement, "__name__", "property")
        return f"{self.owner.__name__.rpartition('.')[2]}.{self.name}-{what}-{self.test.__name__}"

    def check(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The test passes without the breach and fails with it."""
        assert complaint_of_a_sound_one(self.test, self.harness) is None
        monkeypatch.setattr(self.owner, self.name, self.replacement)
        monkeypatch.setattr(running, "WAIT_SECONDS_MAX", self.seconds)
        monkeypatch.setattr(running, "TEST_SECONDS_MAX", self.seconds + BREACH_SECONDS_MAX)
        monkeypatch.setattr(running, "LEFT_SECONDS_MAX", BREACH_SECONDS_MAX)
        message = complaint(self.test, self.harness)
        assert message is not None
        assert re.search(self.says, message), message


def complaint(test: Callable[..., object], harness: Callable[[str], TransportHarness]) -> str | None:
    """With what message a test of the suite fails on a transport, as it is patched now; None: it passes."""
    gc.freeze()  # so that only what the test made is looked through
    with warnings.catch_warnings():
        # A test that fails half-way leaves sockets behind; they go here, and not in somebody else's test.
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            test(None, harness("asyncio"))
        except (
            AssertionError,
            pytest.fail.Exception,
            OSError,
            LookupError,
            RuntimeError,
            ValueError,
            TypeError,
        ) as error:
            return str(error)
        finally:
            gc.collect()
            gc.unfreeze()
    return None


@cache
def complaint_of_a_sound_one(test: Callable[..., object], harness: Callable[[str], TransportHarness]) -> str | None:
    """The same before anything is patched, asked once for all breaches that one test is to notice."""
    return complaint(test, harness)


def covers(breaches: Sequence[Breach], *suites: type) -> None:
    """Fails unless every test of the suites is seen to fail at least once."""
    tests = {name for suite in suites for name, _ in inspect.getmembers(suite) if name.startswith("test_")}

    assert {breach.test.__name__ for breach in breaches} == tests


def tell(link: BaseLink[Any], event: str, *arguments: Any) -> None:
    """Calls the handler of a link, if it has one."""
    if link._handler is not None:
        link._tell(getattr(link._handler, event), *arguments)


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
    tell(link, "on_drained")


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
        tell(link, "on_frames", [payload])


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


# ---------------------------------------------------------------------------- calls within calls, and the loop


def send_and_drain(link: MemoryLink, payloads: Sequence[Payload], *, urgent: bool = False) -> None:
    send(link, payloads, urgent=urgent)
    tell(link, "on_drained")


def close_and_tell(link: MemoryLink, reason: str = "") -> None:
    close(link, reason)
    link._leave(reason)


def pause_with_a_last_frame(link: MemoryLink) -> None:
    tell(link, "on_frames", [b"one more"])
    link._paused = True


def resume_at_once(link: MemoryLink) -> None:
    link._paused = False
    link._read_again()
    link.other._pump()


def pause_from_the_next_frame(link: MemoryLink) -> None:
    if link._inbox or link.other._queue or link._handler is None:
        link._paused = True
    else:
        link._loop.call_later(0.003, setattr, link, "_paused", True)


def tell_on_a_thread(link: BaseLink[Any], callback: Callable[..., None], *arguments: Any) -> None:
    thread = threading.Thread(target=callback, args=arguments)
    thread.start()
    thread.join()


def send_and_wait(link: MemoryLink, payloads: Sequence[Payload], *, urgent: bool = False) -> None:
    send(link, payloads, urgent=urgent)
    threading.Event().wait(60)


def close_and_wait(link: MemoryLink, reason: str = "") -> None:
    close(link, reason)
    threading.Event().wait(60)


async def dial_and_block(transport: MemoryTransport, address: str, accept: Callable[[Link], LinkHandler]) -> Link:
    threading.Event().wait(60)
    return await dial(transport, address, accept)


# -------------------------------------------------------------------------------------- more of frames and flow


def raise_limit_to_two_mebibytes(link: MemoryLink, limit: int) -> None:
    link._limit = min(limit, 2 << 20)


def whole_without_its_end(payload: Payload) -> bytes:
    whole = b"".join(payload) if isinstance(payload, tuple) else payload
    return whole if len(whole) < 4 << 20 else whole[:-1] + b"!"


memory_take = MemoryLink.take


def take_without_the_200th(link: MemoryLink, payloads: list[bytes]) -> None:
    kept = []
    for payload in payloads:
        link.taken = getattr(link, "taken", 0) + 1  # type: ignore[attr-defined]
        if link.taken % 200:  # type: ignore[attr-defined]
            kept.append(payload)
    memory_take(link, kept)


def take_the_first_twice(link: MemoryLink, payloads: list[bytes]) -> None:
    memory_take(link, [*payloads[:1], *payloads])


def refuse_in_silence(link: MemoryLink, reason: str) -> None:
    link.fail(reason)


def refuse_and_stay(link: MemoryLink, reason: str) -> None:
    link._is_broken = True
    link._inbox.clear()
    tell(link, "on_broken", reason)


def refuse_and_hang_up(link: MemoryLink, reason: str) -> None:
    tell(link, "on_broken", reason)
    link.fail(reason)


pump_soon = MemoryLink.pump_soon


def pump_soon_and_tell(link: MemoryLink) -> None:
    """Says that all is sent when it is only about to be."""
    if link._was_high and link._handler is not None and not link.other.is_stalled():
        link._was_high = False
        link._loop.call_soon(link._tell, link._handler.on_drained)
    pump_soon(link)


note_sent = BaseLink._note_sent


def note_sent_once(link: MemoryLink) -> None:
    link._was_high = link._was_high and not getattr(link, "told", False)
    before = link._was_high
    note_sent(link)
    if before and not link._was_high:
        link.told = True  # type: ignore[attr-defined]


note_pending = BaseLink._note_pending


def note_pending_early(link: MemoryLink, pending: int) -> None:
    note_pending(link, pending)
    link._was_high |= pending > link._options.high_water // 2


def send_urgent_without_limit(link: MemoryLink, payloads: Sequence[Payload], *, urgent: bool = False) -> None:
    if not urgent:
        send(link, payloads)
    elif link._phase is LinkState.OPEN:
        for payload in payloads:
            link._queue.put(payload, size_unchecked(payload), urgent=True)
        link.pump_soon()


def vanish_with_a_goodbye(link: MemoryLink) -> None:
    link._leave("")
    link.other.be_cut_off("", at_once=True)


class SilentLogger:
    """Logs nothing."""

    error = exception = nothing


# -------------------------------------------------------------------------------------------- certificates

begin = BaseLink.begin


def begin_and_learn_later(link: BaseLink[Any], public: Link, accept: Callable[[Link], LinkHandler]) -> None:
    shown, link.shown = link.shown, b""
    begin(link, public, accept)
    link.shown = shown


def begin_with_a_certificate(link: BaseLink[Any], public: Link, accept: Callable[[Link], LinkHandler]) -> None:
    link.certificate = Certificate("somebody")
    begin(link, public, accept)


welcome = TcpListener._welcome


def welcome_without_a_word(listener: TcpListener, connection: socket.socket) -> None:
    before = set(listener._links)
    welcome(listener, connection)
    for link in listener._links - before:
        link.shown = b""


def troubles_twice(_: TcpTransport) -> Sequence[Alarm]:
    return [Alarm(AlarmCode.CERTIFICATE_EXPIRES, text, "a file") for text in ("soon", "very soon")]


def no_troubles(_: TcpTransport) -> Sequence[Alarm]:
    return []


look = TlsFiles.look


def look_and_despair(files: TlsFiles) -> TlsVersion:
    """Gives up what could be used, because there is something that cannot."""
    version = look(files)
    if files.trouble:
        raise OSError(files.trouble)
    return version


# ---------------------------------------------------------------------------------------- what links share

new_link = MemoryLink.__init__
new_tcp = TcpTransport.__init__
end = BaseLink._end

SHARED: SendQueue[Any] = SendQueue()


def new_link_with_a_shared_queue(link: MemoryLink, *arguments: Any) -> None:
    new_link(link, *arguments)
    link._queue = SHARED


def raise_limit_of_newcomers(link: MemoryLink, limit: int) -> None:
    link._limit = limit
    link._options.__dict__["frame_limit"] = limit


def end_with_the_reason_before(link: BaseLink[Any], reason: str) -> None:
    options = link._options.__dict__
    options["told"] = options.get("told") or link._reason
    end(link, options["told"] or reason)


def new_tcp_that_holds_no_link(transport: TcpTransport, *arguments: Any) -> None:
    new_tcp(transport, *arguments)
    transport._dialed = weakref.WeakSet()  # type: ignore[assignment]


new_listener = MemoryListener.__init__


def new_listener_with_a_task(listener: MemoryListener, *arguments: Any) -> None:
    async def look_after() -> None:
        await asyncio.Event().wait()

    new_listener(listener, *arguments)
    listener.task = asyncio.ensure_future(look_after())  # type: ignore[attr-defined]


def new_listener_with_a_thread(listener: MemoryListener, *arguments: Any) -> None:
    new_listener(listener, *arguments)
    # It ends by itself, long after the test was to notice it.
    threading.Thread(target=threading.Event().wait, args=(4 * BREACH_SECONDS_MAX,), name="looks-after").start()


# ----------------------------------------------------------------------------------------------- strangers


def is_loopback_everywhere(_: TcpTransport, address: str) -> bool:
    return True


def is_loopback_by_its_beginning(_: TcpTransport, address: str) -> bool:
    return address.startswith("127.")


def is_loopback_nowhere(_: TcpTransport, address: str) -> bool:
    return False


async def dial_and_despair(transport: TcpTransport, address: str, accept: Callable[[Link], LinkHandler]) -> Link:
    raise RuntimeError("this is not what I expected")


async def dial_and_keep(transport: TcpTransport, address: str, accept: Callable[[Link], LinkHandler]) -> Link:
    """Waits for a word of the other end; when it is cancelled, the connection stays."""
    host, _, port = address.rpartition(":")
    kept = await asyncio.open_connection(host, int(port))
    KEPT.append(kept)
    await kept[0].readexactly(1)
    return await dial_tcp(transport, address, accept)


KEPT: list[Any] = []

establish = TcpListener._establish


async def establish_in_its_own_time(listener: TcpListener, *arguments: Any) -> None:
    listener._options = listener._options.model_copy(update={"handshake_timeout": 60.0})
    await establish(listener, *arguments)


@cache
def _files() -> tuple[tempfile.TemporaryDirectory[str], dict[str, Path]]:
    directory = tempfile.TemporaryDirectory()
    return directory, write_certificates(Path(directory.name), "127.0.0.1")


def tls_harness(loop: str) -> TransportHarness:
    """A transport whose links begin with a handshake."""
    return TlsHarness(loop, _files()[1])
