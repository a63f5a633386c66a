"""What `Follow` brings."""

# ruff: noqa: D102 — a test says with its name what it claims
from __future__ import annotations

from gapless.core.ports import Grown, LogStart, Taken
from gapless_testing.log.harness import LogHarness, SuitePart, need
from gapless_testing.log.host import Host, one_log
from gapless_testing.running import bounded

LARGE = 10_000
"""The size of an event of those that fill a window."""


def large(count: int) -> list[bytes]:
    """Large events."""
    return [b"%04d" % number + bytes(LARGE) for number in range(count)]


async def filled(host: Host, log: str, count: int) -> list[bytes]:
    """Puts so many large events, each a piece of its own."""
    bodies = large(count)
    for body in bodies:
        await host.put(log, body)
    return bodies


class FollowTests(SuitePart):
    """Contiguous, in order, once, within the window; the host notices each hole and each overlap."""

    @bounded
    async def test_everything_comes_once_and_in_order(self, harness: LogHarness) -> None:
        """What is there already, and what comes then."""
        async with one_log(harness) as (host, log):
            await host.put(log, b"a")
            await host.put(log, b"b", b"c", b"d")
            host.follow(log, host.logs[log].first)
            await host.gets(log, [b"a", b"b", b"c", b"d"])
            await host.put(log, b"e")
            await host.put(log, b"f", b"g")

            ticks = await host.gets(log, [b"a", b"b", b"c", b"d", b"e", b"f", b"g"])
            assert ticks == sorted(set(ticks)), f"ticks do not rise: {ticks}"

    @bounded
    async def test_what_comes_fast_comes_in_order(self, harness: LogHarness) -> None:
        async with one_log(harness) as (host, log):
            host.follow(log, host.logs[log].first)
            bodies = [b"%d" % number for number in range(100)]
            for start in range(0, 100, 5):
                await host.put(log, *bodies[start : start + 5])

            await host.gets(log, bodies)

    @bounded
    async def test_it_begins_behind_any_tick(self, harness: LogHarness) -> None:
        """In the middle of a piece, too; and each `Follow` replaces the one before it."""
        async with one_log(harness) as (host, log):
            first = host.logs[log].first
            host.follow(log, first)
            bodies = [b"%d" % number for number in range(7)]
            for start, stop in ((0, 1), (1, 5), (5, 7)):
                await host.put(log, *bodies[start:stop])
            ticks = [first, *await host.gets(log, bodies)]
            for number, after in enumerate(ticks):
                host.follow(log, after)
                await host.gets(log, bodies[number:])
            await host.put(log, b"last")

            await host.gets(log, [b"last"])

    @bounded
    async def test_behind_what_is_decided_only_new_events_come(self, harness: LogHarness) -> None:
        async with one_log(harness) as (host, log):
            await host.put(log, b"old")
            host.follow(log, await host.locate(log, LogStart.DECIDED))
            await host.still()
            await host.put(log, b"new")

            await host.gets(log, [b"new"])

    @bounded
    async def test_the_window_is_kept(self, harness: LogHarness) -> None:
        """Until it is given back; meanwhile everything else is answered."""
        async with one_log(harness) as (host, log):
            bodies = await filled(host, log, 8)
            host.takes = False
            host.follow(log, host.logs[log].first, window=3 * LARGE)
            await host.until(lambda: len(host.events(log)) or None, lambda: "nothing came")
            await host.still()
            came = len(host.events(log))
            assert came < len(bodies), "the window is full, and everything came"
            end = await host.locate(log, LogStart.DECIDED)
            assert len(await host.read_all(log, host.logs[log].first, end)) == len(bodies)
            host.ask(Taken(log, host.following[log].grown[0].size))
            host.following[log].untaken -= host.following[log].grown[0].size
            await host.until(
                lambda: len(host.events(log)) > came or None, lambda: "a part of the window was given back in vain"
            )
            host.take_all(log)
            host.takes = True

            await host.gets(log, bodies)

    @bounded
    async def test_a_piece_that_is_larger_than_the_window_comes_all_the_same(self, harness: LogHarness) -> None:
        """Else nothing would ever come."""
        async with one_log(harness) as (host, log):
            bodies = await filled(host, log, 3)
            host.follow(log, host.logs[log].first, window=10)

            await host.gets(log, bodies)

    @bounded
    async def test_a_follow_has_its_own_window(self, harness: LogHarness) -> None:
        """What was not taken of the one before it does not count."""
        async with one_log(harness) as (host, log):
            bodies = await filled(host, log, 4)
            host.takes = False
            host.follow(log, host.logs[log].first, window=1)
            await host.until(lambda: len(host.events(log)) or None, lambda: "nothing came")
            host.takes = True
            host.follow(log, host.logs[log].first, window=1)

            await host.gets(log, bodies)

    @bounded
    async def test_a_log_with_a_full_window_does_not_hold_up_others(self, harness: LogHarness) -> None:
        need(harness, "add")
        async with one_log(harness) as (host, log):
            await harness.add()
            _, other = await host.found(2)
            await filled(host, log, 4)
            host.takes = False
            host.follow(log, host.logs[log].first, window=1)
            await host.still()
            host.follow(other.log, other.first)
            bodies = large(6)
            for body in bodies:
                await host.put(other.log, body)

            await host.gets(other.log, bodies)

    @bounded
    async def test_what_is_not_decided_waits(self, harness: LogHarness) -> None:
        """And everything behind it; when it is aborted, its ticks are silence."""
        need(harness, "begin")
        async with one_log(harness) as (host, log):
            host.follow(log, host.logs[log].first)
            await host.put(log, b"a")
            await host.gets(log, [b"a"])
            for commits, bodies in ((True, [b"a", b"in it", b"b"]), (False, [b"a", b"in it", b"b", b"c"])):
                end = await harness.begin(log, [b"in it" if commits else b"not in it"])
                await host.put(log, bodies[-1])
                await host.still()
                assert len(host.events(log)) < len(bodies) - 1 + (not commits), "what is not decided was told"
                await end(commits)
                await host.gets(log, bodies)
            decided = await host.locate(log, LogStart.DECIDED)

            await host.reaches(log, decided)

    @bounded
    async def test_what_was_aborted_does_not_hold_up_the_end(self, harness: LogHarness) -> None:
        """Although no event comes: whoever waits for the end of the log must get there."""
        need(harness, "begin")
        async with one_log(harness) as (host, log):
            host.follow(log, host.logs[log].first)
            end = await harness.begin(log, [b"no"])
            latest = await host.locate(log, LogStart.LATEST)
            await end(False)

            await host.reaches(log, latest)
            await host.gets(log, [])

    @bounded
    async def test_connections_that_break_cost_nothing(self, harness: LogHarness) -> None:
        need(harness, "disconnect")
        async with one_log(harness) as (host, log):
            host.follow(log, host.logs[log].first)
            bodies = [b"%d" % number for number in range(6)]
            for number, body in enumerate(bodies):
                await host.put(log, body)
                if number % 2:
                    await harness.disconnect()
            await host.gets(log, bodies)
            await host.still()

            assert [grown.hi for grown in host.all_of(Grown)][-1] == host.following[log].reached
            await host.gets(log, bodies)
