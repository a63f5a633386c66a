"""What is published through the plugin."""

# ruff: noqa: D102 — a test says with its name what it claims
from __future__ import annotations

import pytest

from gapless.core.ports import Appended, LogStart, Refused, Trim, Uncertain
from gapless_testing.log.harness import LogHarness, SuitePart, need, overrides
from gapless_testing.log.host import Host, one_log, opened
from gapless_testing.running import bounded


def must_take(host: Host, log: str) -> None:
    """Skips the test if nothing can be published here."""
    if why := host.logs[log].refuses:
        pytest.skip(f"nothing can be published: {why}")


class AppendTests(SuitePart):
    """Whole or not at all; and one answer for each, which is true."""

    @bounded
    async def test_what_is_appended_comes_at_the_ticks_of_the_answer(self, harness: LogHarness) -> None:
        """Each index is the tick of a record's last event."""
        async with one_log(harness) as (host, log):
            must_take(host, log)
            host.follow(log, host.logs[log].first)
            records = [host.encoded(log, b"a")[1], host.encoded(log, b"b", b"c", b"d")[1]]
            answer = await host.append(log, *records, counts=[1, 3])
            ticks = await host.gets(log, [b"a", b"b", b"c", b"d"])

            assert isinstance(answer, Appended), answer
            assert list(answer.indices) == [ticks[0], ticks[3]]

    @bounded
    async def test_nothing_stands_between_the_events_of_an_append(self, harness: LogHarness) -> None:
        """Whatever others append meanwhile; and the ticks of a batch are neighbours."""
        async with one_log(harness) as (host, log):
            must_take(host, log)
            host.follow(log, host.logs[log].first)
            bodies: list[bytes] = []
            for number in range(5):
                mine = [b"%d.%d" % (number, each) for each in range(4)]
                _, record = host.encoded(log, *mine)
                cookie = host.send_append(log, record, 4)
                while overrides(harness, "append") and not host.has_answer(cookie):
                    bodies.append(b"other %d" % len(bodies))
                    await harness.append(log, bodies[-1:])
                await host.answered(cookie)
                bodies += mine
            await host.until(lambda: len(host.events(log)) == len(bodies) or None, lambda: "not all of it came")

            events = host.events(log)
            assert sorted(body for _, body in events) == sorted(bodies)
            for number in range(5):
                places = [place for place, (_, body) in enumerate(events) if body.startswith(b"%d." % number)]
                assert places == list(range(places[0], places[0] + 4)), f"batch {number} was torn apart: {events}"
                ticks = [events[place][0] for place in places]
                if host.logs[log].capabilities.numbers == "log":
                    assert ticks == list(range(ticks[0], ticks[0] + 4)), f"a batch has the ticks {ticks}"

    @bounded
    async def test_appends_are_logged_in_the_order_of_the_questions(self, harness: LogHarness) -> None:
        async with one_log(harness) as (host, log):
            must_take(host, log)
            host.follow(log, host.logs[log].first)
            bodies = [b"%d" % number for number in range(10)]
            for body in bodies:
                _, record = host.encoded(log, body)
                host.send_append(log, record, 1)
            ticks = await host.gets(log, bodies)
            await host.until(
                lambda: len(host.all_of(Appended)) == 10 or None,
                lambda: f"10 appends, and {len(host.all_of(Appended))} answers",
            )

            assert [index for answer in host.all_of(Appended) for index in answer.indices] == ticks

    @bounded
    async def test_what_is_too_large_is_refused_and_never_logged(self, harness: LogHarness) -> None:
        async with one_log(harness) as (host, log):
            must_take(host, log)
            record_max = host.logs[log].capabilities.record_max
            if record_max is None:
                pytest.skip("nothing is too large: record_max is None")
            host.follow(log, host.logs[log].first)
            _, record = host.encoded(log, bytes(2 * record_max))
            answer = await host.append(log, record)
            await host.put(log, b"behind it")
            await host.gets(log, [b"behind it"])

            assert isinstance(answer, Refused), f"{len(record)} bytes were appended, {record_max} are taken: {answer}"
            assert answer.why

    @bounded
    async def test_the_largest_record_is_taken(self, harness: LogHarness) -> None:
        async with one_log(harness) as (host, log):
            must_take(host, log)
            record_max = host.logs[log].capabilities.record_max or 4 << 20
            host.follow(log, host.logs[log].first, window=2 * record_max)
            body = bytes(record_max - 1000)
            _, record = host.encoded(log, body)
            answer = await host.append(log, record)

            assert len(record) <= record_max
            assert isinstance(answer, Appended), f"{len(record)} bytes of {record_max} are not taken: {answer}"
            await host.gets(log, [body])

    @bounded
    async def test_an_append_whose_answer_is_lost_is_uncertain(self, harness: LogHarness) -> None:
        """Never refused, for it is there; and it is not appended again from here."""
        need(harness, "lose_answer")
        async with one_log(harness) as (host, log):
            must_take(host, log)
            host.follow(log, host.logs[log].first)
            await host.append(log, host.encoded(log, b"before")[1])
            await harness.lose_answer()
            answer = await host.append(log, host.encoded(log, b"lost")[1])
            await host.put(log, b"behind it")
            await host.gets(log, [b"before", b"lost", b"behind it"])

            assert isinstance(answer, Uncertain), f"the answer was lost, and {answer} is given"
            assert answer.why

    @bounded
    async def test_a_second_node_reads_what_a_first_has_appended(self, harness: LogHarness) -> None:
        async with one_log(harness) as (host, log), opened(harness, beside=host) as other:
            must_take(host, log)
            (found,) = await other.found()
            other.follow(log, found.first)
            mark, record = host.encoded(log, b"a", b"b")
            await host.append(log, record, counts=[2])
            ticks = await other.gets(log, [b"a", b"b"])
            pieces = [piece for grown in other.following[log].grown for piece in grown.pieces if piece.raw is not None]
            marks = [pair for piece in pieces for pair in found.format.decode(piece, found.rules)[1]]

            assert marks == [(ticks[0], mark)]

    @bounded
    async def test_trimming_removes_no_more_than_was_asked_for(self, harness: LogHarness) -> None:
        """`first` shows what came of it."""
        async with one_log(harness) as (host, log):
            if not host.logs[log].capabilities.trims:
                pytest.skip("its host does not decide what is removed: trims is False")
            first = host.logs[log].first
            for number in range(6):
                await host.put(log, b"%d" % number)
            host.follow(log, first)
            ticks = await host.gets(log, [b"%d" % number for number in range(6)])
            host.trim(log, ticks[2])
            await host.until(lambda: host.first[log] > first or None, lambda: "nothing was removed")
            assert host.first[log] <= ticks[2], f"{ticks[2]} was asked for, and all up to {host.first[log]} is removed"
            kept = await host.read_all(log, host.first[log], ticks[-1])
            assert kept[-3:] == [(tick, b"%d" % number) for number, tick in enumerate(ticks)][3:]
            assert await host.locate(log, LogStart.EARLIEST) == host.first[log]
            host.ask(Trim(log, ticks[0]))  # of what is gone already
            host.follow(log, host.first[log])

            await host.gets(log, [body for _, body in kept])

    @bounded
    async def test_every_append_is_answered_once(self, harness: LogHarness) -> None:
        """Taken and refused ones side by side; the host notices a second answer."""
        async with one_log(harness) as (host, log):
            must_take(host, log)
            limit = host.logs[log].capabilities.record_max
            records = [host.encoded(log, b"%d" % number)[1] for number in range(4)]
            if limit is not None:
                records.insert(2, host.encoded(log, bytes(2 * limit))[1])
            for record in records:
                await host.answered(host.send_append(log, record, 1))
            await host.still()

            answers = [*host.all_of(Appended), *host.all_of(Refused), *host.all_of(Uncertain)]
            assert len(answers) == len(records)
