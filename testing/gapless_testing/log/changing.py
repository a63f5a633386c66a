"""What happens to a log: its beginning goes, its end is cut."""

# ruff: noqa: D102 — a test says with its name what it claims
from __future__ import annotations

from gapless.core.ports import Grown, LogsFound, LogStart
from gapless_testing.log.harness import LogHarness, SuitePart, need
from gapless_testing.log.host import one_log, opened
from gapless_testing.log.reading import seven_events
from gapless_testing.running import bounded


class ChangeTests(SuitePart):
    """What happens to a log: its beginning goes, its end is cut."""

    @bounded
    async def test_who_follows_is_told_that_the_beginning_is_gone(self, harness: LogHarness) -> None:
        """Although nothing comes."""
        need(harness, "remove")
        async with one_log(harness) as (host, log):
            _, events = await seven_events(host, log)
            await harness.remove(log, events[0][0])
            await host.until(
                lambda: host.logs[log].first >= events[0][0] or None,
                lambda: f"all up to {events[0][0]} was removed, and {host.logs[log].first} is told",
            )

            assert host.logs[log].first == events[0][0]

    @bounded
    async def test_who_stands_below_the_beginning_goes_on_there(self, harness: LogHarness) -> None:
        """`first` says so; nothing of what was removed comes, not even of a piece that is there whole."""
        need(harness, "remove")
        async with one_log(harness) as (host, log):
            first, events = await seven_events(host, log)
            gone = events[2][0]  # in the middle of a piece
            await harness.remove(log, gone)
            host.follow(log, first)
            await host.put(log, b"new")
            await host.gets(log, [*(body for tick, body in events if tick > gone), b"new"])

            assert max(grown.first for grown in host.following[log].grown) == gone

    @bounded
    async def test_what_was_removed_is_read_as_nothing(self, harness: LogHarness) -> None:
        """The answer says where the log begins, and was asked for that no earlier than for the records."""
        need(harness, "remove")
        async with one_log(harness) as (host, log):
            first, events = await seven_events(host, log)
            gone, end = events[2][0], events[-1][0]
            await harness.remove(log, gone)
            below = await host.read(log, first, events[1][0])
            found = await host.read_all(log, first, end)

            assert (list(below.pieces), below.first, below.hi) == ([], gone, events[1][0])
            assert found == [pair for pair in events if pair[0] > gone]

    @bounded
    async def test_earliest_is_behind_what_was_removed(self, harness: LogHarness) -> None:
        need(harness, "remove")
        async with one_log(harness) as (host, log):
            _, events = await seven_events(host, log)
            await harness.remove(log, events[3][0])

            assert await host.locate(log, LogStart.EARLIEST) == events[3][0]

    @bounded
    async def test_who_opens_it_later_is_told_where_it_begins(self, harness: LogHarness) -> None:
        need(harness, "remove")
        async with one_log(harness) as (host, log):
            _, events = await seven_events(host, log)
            await harness.remove(log, events[2][0])
            async with opened(harness, beside=host) as later:
                (found,) = await later.found()
                pairs = await later.read_all(log, found.first, events[-1][0])

            assert found.first == events[2][0]
            assert pairs == events[3:]

    @bounded
    async def test_a_log_that_was_removed_whole_goes_on(self, harness: LogHarness) -> None:
        need(harness, "remove")
        async with one_log(harness) as (host, log):
            first, events = await seven_events(host, log)
            end = await host.locate(log, LogStart.DECIDED)
            await harness.remove(log, end)
            assert await host.locate(log, LogStart.EARLIEST) == end
            host.follow(log, first)
            await host.put(log, b"new")
            ticks = await host.gets(log, [b"new"])

            assert ticks[0] > events[-1][0]

    @bounded
    async def test_what_was_cut_is_a_void_and_its_ticks_never_come_again(self, harness: LogHarness) -> None:
        """It is told before what lies above it; for who was there, who comes later, and who stands in the void.

        The host notices a record that comes where no void was told before, and a tick that was used before.
        """
        need(harness, "cut")
        async with one_log(harness) as (host, log):
            first = host.logs[log].first
            host.follow(log, first)
            old = [b"old %d" % number for number in range(6)]
            for body in old:
                await host.put(log, body)
            ticks = await host.gets(log, old)
            await harness.cut(log, ticks[2])
            new = [b"new %d" % number for number in range(9)]
            for body in new:
                await host.put(log, body)
            reached = (await host.gets(log, [*old, *new]))[-1]
            above = [tick for tick, _ in host.events(log)][6:]
            assert min(above) > max(ticks), f"new events are at {above}, old ones were at {ticks}"
            voids = host.logs[log].voids
            assert any(lo == ticks[2] and hi >= ticks[5] for lo, hi in voids), f"{ticks[3:]} are gone: {voids}"
            for after in (first, *ticks):
                kept = [body for tick, body in zip(ticks[:3], old[:3], strict=True) if tick > after]
                assert [body for _, body in await host.read_all(log, after, reached)] == [*kept, *new]
                host.follow(log, after)
                await host.gets(log, [*kept, *new])
            async with opened(harness, beside=host) as later:
                (found,) = await later.found()

            assert (found.log, list(found.voids)) == (log, list(voids))

    @bounded
    async def test_a_log_that_goes_on_elsewhere_loses_nothing(self, harness: LogHarness) -> None:
        """Where nothing was lost a void lies between the last old event and the first new one, or nothing does."""
        need(harness, "cut")
        async with one_log(harness) as (host, log):
            host.follow(log, host.logs[log].first)
            await host.put(log, b"a", b"b")
            ticks = await host.gets(log, [b"a", b"b"])
            await harness.cut(log, ticks[-1])
            await host.put(log, b"c")
            await host.gets(log, [b"a", b"b", b"c"])
            kinds = [type(each) for each in host.said if isinstance(each, Grown | LogsFound)]

            assert kinds[-2:] == [LogsFound, Grown], "the void is told before what lies above it"
