"""How logs are closed: at any time, soon, and then nothing comes."""

# ruff: noqa: D102 — a test says with its name what it claims
from __future__ import annotations

import asyncio

from gapless.core.ports import LogStart
from gapless_testing.log.following import filled
from gapless_testing.log.harness import LogHarness, SuitePart
from gapless_testing.log.host import Host, one_log, opened
from gapless_testing.running import bounded


def ask_much(host: Host, log: str) -> None:
    """Asks for all kinds of things at once."""
    found = host.logs[log]
    host.follow(log, found.first)
    for at in LogStart:
        host.send_locate(log, at)
    for _ in range(30):
        host.send_read(log, found.first, found.first + 100)
    if not found.refuses and not found.capabilities.alone:  # there may be another host
        _, record = host.encoded(log, b"late")
        host.send_append(log, record, 1)


class CloseTests(SuitePart):
    """The runner notices each task and thread that is left, the host each answer that comes then."""

    @bounded
    async def test_closing_before_anything_is_found(self, harness: LogHarness) -> None:
        await harness.make()
        async with opened(harness) as host:
            await host.close()

    @bounded
    async def test_closing_at_every_moment_of_the_beginning(self, harness: LogHarness) -> None:
        await harness.make()
        for turns in (1, 2, 4, 8, 16, 32, 64):
            async with opened(harness) as host:
                for _ in range(turns):
                    await asyncio.sleep(0)
                await host.close()

    @bounded
    async def test_closing_in_the_midst_of_everything(self, harness: LogHarness) -> None:
        async with one_log(harness) as (host, log):
            await filled(host, log, 3)
            ask_much(host, log)
            await asyncio.sleep(0)
            await host.close()

    @bounded
    async def test_closing_while_nothing_happens(self, harness: LogHarness) -> None:
        """A plugin that waits for something to come waits no more."""
        async with one_log(harness) as (host, log):
            host.follow(log, host.logs[log].first)
            await host.still()
            await host.close()

    @bounded
    async def test_a_closing_that_is_cancelled_has_closed_all_the_same(self, harness: LogHarness) -> None:
        """The node does not wait for ever."""
        async with one_log(harness) as (host, log):
            await filled(host, log, 3)
            ask_much(host, log)
            await asyncio.sleep(0)
            await host.close_cancelled()

    @bounded
    async def test_who_closes_does_not_disturb_another_node(self, harness: LogHarness) -> None:
        async with one_log(harness) as (host, log):
            host.follow(log, host.logs[log].first)
            async with opened(harness, beside=host) as other:
                await other.found()
                ask_much(other, log)
                await other.close()
            await host.put(log, b"a")
            await host.until(
                lambda: b"a" in [body for _, body in host.events(log)] or None, lambda: "an event did not come"
            )
