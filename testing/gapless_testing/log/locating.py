"""Where places are."""

# ruff: noqa: D102 — a test says with its name what it claims
from __future__ import annotations

from gapless.core.ports import Located, LogStart
from gapless_testing.log.harness import LogHarness, SuitePart, need
from gapless_testing.log.host import one_log
from gapless_testing.running import bounded

BEGIN = 1_700_000_000_000
"""The time of the first event, where events have given times."""


class LocateTests(SuitePart):
    """Where places are."""

    @bounded
    async def test_places_with_names(self, harness: LogHarness) -> None:
        async with one_log(harness) as (host, log):
            first = host.logs[log].first
            for _ in range(3):
                await host.put(log, b"a", b"b")
            host.follow(log, first)
            ticks = await host.gets(log, [b"a", b"b"] * 3)
            places = {at: await host.locate(log, at) for at in LogStart}

            assert places[LogStart.EARLIEST] == first
            assert places[LogStart.DECIDED] >= ticks[-1], f"the last event is at {ticks[-1]}: {places}"
            assert places[LogStart.LATEST] >= places[LogStart.DECIDED]

    @bounded
    async def test_the_place_before_a_time(self, harness: LogHarness) -> None:
        """Everything up to it is older; if nothing is that late, it is the end of what is decided."""
        need(harness, "append_at")
        async with one_log(harness) as (host, log):
            first = host.logs[log].first
            seconds = (0, 1, 1, 4)
            for number, second in enumerate(seconds):
                await harness.append_at(log, BEGIN + second * 1000, b"%d" % number)
            host.follow(log, first)
            ticks = await host.gets(log, [b"%d" % number for number in range(4)])
            for wall, place in ((-1, 0), (0, 0), (1, 1), (1000, 1), (1001, 3), (4000, 3)):
                found = await host.locate(log, BEGIN + wall)

                behind = [number for number, tick in enumerate(ticks) if tick > found]
                wanted = list(range(place, 4))
                assert behind == wanted, f"behind the time {wall} ms lie the events {behind} instead of {wanted}"
            end = await host.locate(log, LogStart.DECIDED)
            assert await host.locate(log, BEGIN + 4001) == end, "nothing is that late, and another place is the end"

    @bounded
    async def test_the_end_of_everything_lies_behind_what_is_not_decided(self, harness: LogHarness) -> None:
        """Who waits until it was told up to there has met every event that is in the log now."""
        need(harness, "begin")
        async with one_log(harness) as (host, log):
            first = host.logs[log].first
            await host.put(log, b"a")
            end = await harness.begin(log, [b"b"])
            await host.put(log, b"c")
            latest, decided = await host.locate(log, LogStart.LATEST), await host.locate(log, LogStart.DECIDED)
            assert latest > decided
            await end(True)
            host.follow(log, first)
            await host.reaches(log, latest)

            await host.gets(log, [b"a", b"b", b"c"])

    @bounded
    async def test_places_that_are_asked_for_side_by_side(self, harness: LogHarness) -> None:
        async with one_log(harness) as (host, log):
            await host.put(log, b"a")
            for _ in range(5):
                for at in LogStart:
                    host.send_locate(log, at)
            await host.until(
                lambda: len(host.all_of(Located)) == 15 or None,
                lambda: f"15 places were asked for, and {len(host.all_of(Located))} were found",
            )

            assert len({located.tick for located in host.all_of(Located)}) == 2
