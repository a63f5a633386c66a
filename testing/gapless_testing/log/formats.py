"""How records become events."""

# ruff: noqa: D102 — a test says with its name what it claims
from __future__ import annotations

import threading

import pytest
from msgspec.structs import replace

from gapless.core.ports import LogMark, LogPiece, LogStart
from gapless.core.stream.columns import EventBatch, EventColumns
from gapless.core.stream.events import Extras, Properties, encode_event
from gapless.errors import VolumeCorruptError
from gapless_testing.log.appending import must_take
from gapless_testing.log.harness import LogHarness, SuitePart, need
from gapless_testing.log.host import Host, one_log, opened
from gapless_testing.log.locating import BEGIN
from gapless_testing.log.truth import events_of
from gapless_testing.running import bounded


async def pieces_of(host: Host, log: str) -> list[LogPiece]:
    """The pieces of a log with events in them."""
    end = await host.locate(log, LogStart.DECIDED)
    pieces: list[LogPiece] = []
    at = host.logs[log].first
    while at < end:
        read = await host.read(log, at, end)
        assert read.hi > at
        pieces += read.pieces
        at = read.hi
    return [piece for piece in pieces if piece.raw is not None]


class FormatTests(SuitePart):
    """How records become events, and batches records: a pure function, the same everywhere and for ever."""

    @bounded
    async def test_a_piece_is_always_the_same_events(self, harness: LogHarness) -> None:
        """Decoded by the format of another node, in another thread, without a loop, after everything is closed."""
        async with one_log(harness) as (host, log), opened(harness, beside=host) as other:
            for number in range(3):
                await host.put(log, *(b"%d.%d" % (number, each) for each in range(number + 1)))
            await other.found()
            pieces = await pieces_of(host, log)
            mine, others = host.logs[log], other.logs[log]
        expected = [mine.format.decode(piece, mine.rules) for piece in pieces]
        found: list[tuple[EventBatch, object]] = []

        def decode() -> None:
            found.extend(others.format.decode(piece, mine.rules) for piece in reversed(pieces))

        thread = threading.Thread(target=decode)
        thread.start()
        thread.join()

        assert [(list(batch.ticks), batch.events, list(marks)) for batch, marks in reversed(found)] == [  # type: ignore[call-overload]
            (list(batch.ticks), batch.events, list(marks)) for batch, marks in expected
        ]

    @bounded
    async def test_every_event_has_the_topic(self, harness: LogHarness) -> None:
        async with one_log(harness) as (host, log):
            await host.put(log, b"a", b"b")
            found = host.logs[log]
            events = [event for piece in await pieces_of(host, log) for event in events_of(found, piece)]

            assert {event.topic for event in events} == {found.topic}

    @bounded
    async def test_an_event_bears_its_time(self, harness: LogHarness) -> None:
        """Its tick is none: so the format puts it into the extras."""
        need(harness, "append_at")
        async with one_log(harness) as (host, log):
            for number in range(3):
                await harness.append_at(log, BEGIN + number, b"%d" % number)
            events = [event for piece in await pieces_of(host, log) for event in events_of(host.logs[log], piece)]

            assert [event.extras and event.extras.timestamp for event in events] == [BEGIN, BEGIN + 1, BEGIN + 2]

    @bounded
    async def test_a_batch_comes_back_as_it_was_published(self, harness: LogHarness) -> None:
        async with one_log(harness) as (host, log):
            must_take(host, log)
            properties: Properties = {
                "text": "ä",
                "empty": "",
                "n": -(1 << 63),
                "x": 1.5,
                "yes": True,
                "no": False,
                "key": "k",
            }
            extras = Extras(priority=7, correlation_id="c", reply_to="r", type="t")
            mark, record = host.encoded(log, b"", bytes(range(256)), properties=properties, extras=extras)
            await host.append(log, record, counts=[2])
            found = host.logs[log]
            pieces = await pieces_of(host, log)
            events = [event for piece in pieces for event in events_of(found, piece)]
            marks = [pair for piece in pieces for pair in found.format.decode(piece, found.rules)[1]]

            assert [event.body for event in events] == [b"", bytes(range(256))]
            assert [dict(event.properties) for event in events] == [properties] * 2
            assert [replace(event.extras or Extras(), timestamp=0) for event in events] == [extras] * 2
            assert marks == [(events[0].tick, mark)]

    @bounded
    async def test_every_mark_comes_back(self, harness: LogHarness) -> None:
        """With tokens and without, keyed or not."""
        async with one_log(harness) as (host, log):
            must_take(host, log)
            found = host.logs[log]
            marks = [
                LogMark("p", 1, 1, 1, 0, 0, b"", keyed=False, tag=0, begins=True),
                LogMark("ä" * 50, (1 << 63) - 1, 1 << 40, 1, (1 << 32) - 1, 5, b"t" * 200, False, (1 << 64) - 1, False),
                LogMark("p", 3, 7, 1, 1, 5, b"", keyed=True, tag=7, begins=False),
            ]
            columns = EventColumns.of([encode_event(found.topic, {}, None, b"a")], [1])
            await host.append(log, *(found.format.encode(mark, columns) for mark in marks))
            met = [
                mark for piece in await pieces_of(host, log) for _, mark in found.format.decode(piece, found.rules)[1]
            ]

            assert met == marks

    @bounded
    async def test_an_event_that_the_log_cannot_contain_is_a_value_error(self, harness: LogHarness) -> None:
        async with one_log(harness) as (host, log):
            must_take(host, log)
            found = host.logs[log]
            mark = LogMark("p", 1, 1, 1, 0, 0, b"", keyed=False, tag=0, begins=True)
            event = encode_event("some.other.topic", {}, None, b"a")

            with pytest.raises(ValueError, match=r"some\.other\.topic"):
                found.format.encode(mark, EventColumns.of([event], [1]))

    @bounded
    async def test_what_is_no_record_is_a_corrupt_volume(self, harness: LogHarness) -> None:
        """And no other error: the host goes on behind it."""
        async with one_log(harness) as (host, log):
            await host.put(log, b"a" * 50, b"b" * 50)
            found = host.logs[log]
            (piece,) = await pieces_of(host, log)
            raw = piece.raw or b""
            for wrong in (b"", b"\x00", b"no record at all" * 20, raw[: len(raw) // 2], raw[:-1]):
                with pytest.raises(VolumeCorruptError):
                    found.format.decode(LogPiece(piece.first, piece.last, wrong), found.rules)
            for place in range(0, len(raw), 7):
                turned = raw[:place] + bytes([raw[place] ^ 0x55]) + raw[place + 1 :]
                try:
                    found.format.decode(LogPiece(piece.first, piece.last, turned), found.rules)
                except VolumeCorruptError:
                    continue
