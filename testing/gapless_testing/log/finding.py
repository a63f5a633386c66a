"""How logs are described."""

# ruff: noqa: D102 — a test says with its name what it claims
from __future__ import annotations

from gapless.core.ports import Grown, LogsFound, LogStart
from gapless_testing.log.harness import LogHarness, SuitePart, need
from gapless_testing.log.host import one_log, opened
from gapless_testing.running import bounded


class FindTests(SuitePart):
    """How logs are described."""

    @bounded
    async def test_an_empty_log_is_found(self, harness: LogHarness) -> None:
        async with one_log(harness) as (host, log):
            found = host.logs[log]

            assert found.decided == found.first, f"it is empty, and decided from {found.first} to {found.decided}"
            assert found.capabilities.numbers in ("own", "log")
            assert await host.locate(log, LogStart.LATEST) == found.decided

    @bounded
    async def test_what_is_there_already_is_below_what_is_decided(self, harness: LogHarness) -> None:
        """`decided` is where a subscription of now begins."""
        async with one_log(harness) as (host, log):
            await host.put(log, b"a", b"b")
            host.follow(log, host.logs[log].first)
            ticks = await host.gets(log, [b"a", b"b"])
            async with opened(harness, beside=host) as later:
                (found,) = await later.found()

            assert found.first < ticks[0], f"the event at {ticks[0]} is said to be removed up to {found.first}"
            assert found.decided >= ticks[-1], f"the event at {ticks[-1]} is decided, and only {found.decided} is told"

    @bounded
    async def test_two_nodes_are_told_the_same(self, harness: LogHarness) -> None:
        """Identity, ticks, events and rules follow from the log, and not from who reads it."""
        async with one_log(harness) as (host, log), opened(harness, beside=host) as other:
            (found,) = await other.found()
            assert found.log == log, f"one is told of {log}, and the other of {found.log}"
            mine = host.logs[log]
            assert (mine.family, mine.topic, mine.rules) == (found.family, found.topic, found.rules)
            for each in (host, other):
                each.follow(log, found.first)
            for number in range(5):
                await host.put(log, b"%d" % number, b"%d'" % number)
            bodies = [b"%d%s" % (number, mark) for number in range(5) for mark in (b"", b"'")]
            ticks = await host.gets(log, bodies)

            assert await other.gets(log, bodies) == ticks

    @bounded
    async def test_who_opens_a_log_later_is_told_the_same(self, harness: LogHarness) -> None:
        async with one_log(harness) as (host, log):
            host.follow(log, host.logs[log].first)
            for number in range(5):
                await host.put(log, b"%d" % number)
            ticks = await host.gets(log, [b"%d" % number for number in range(5)])
            async with opened(harness, beside=host) as later:
                (found,) = await later.found()
                pairs = await later.read_all(log, found.first, ticks[-1])

            assert [tick for tick, _ in pairs] == ticks

    @bounded
    async def test_a_log_that_nobody_follows_says_nothing(self, harness: LogHarness) -> None:
        async with one_log(harness) as (host, log):
            await host.put(log, b"a")
            await host.still()

            assert host.all_of(Grown) == []

    @bounded
    async def test_a_log_that_is_not_there_is_found_when_it_is_made(self, harness: LogHarness) -> None:
        async with opened(harness) as host:
            await host.still()
            assert host.all_of(LogsFound) == [], "logs were found before there are any"
            await harness.make()
            await host.found()

    @bounded
    async def test_a_log_that_is_added_is_found(self, harness: LogHarness) -> None:
        """It is of the same family, and another log."""
        need(harness, "add")
        async with one_log(harness) as (host, log):
            await harness.add()
            first, second = await host.found(2)
            await host.put(first.log, b"a")
            await host.put(second.log, b"b")
            for each in (first, second):
                host.follow(each.log, each.first)
            await host.gets(first.log, [b"a"])
            await host.gets(second.log, [b"b"])

            assert second.log != log
            assert second.family == first.family

    @bounded
    async def test_logs_of_a_family_that_are_there_come_in_one_message(self, harness: LogHarness) -> None:
        """A host that gets to know one after the other would take the last ones for new."""
        need(harness, "add")
        async with one_log(harness) as (host, _):
            await harness.add()
            await host.found(2)
            async with opened(harness, beside=host) as later:
                await later.found(1)

            counts = [len(found.logs) for found in later.all_of(LogsFound)]
            assert counts[0] == 2, f"there are 2 logs, and they come in messages of {counts}"
