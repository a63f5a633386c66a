"""How logs end, and how they do not."""

from __future__ import annotations

from gapless.core.ports import LogEnded, LogRead, LogsFound
from gapless_testing.log.harness import LogHarness, SuitePart, need
from gapless_testing.log.host import one_log, opened
from gapless_testing.running import bounded


class EndTests(SuitePart):
    """How logs end, and how they do not."""

    @bounded
    async def test_a_log_that_is_deleted_ends(self, harness: LogHarness) -> None:
        """Nothing is said of it any more; what is asked of it is answered."""
        need(harness, "delete")
        async with one_log(harness) as (host, log):
            first = host.logs[log].first
            host.follow(log, first)
            await host.put(log, b"a")
            await host.gets(log, [b"a"])
            await harness.delete()
            await host.ends(log)
            read = await host.read(log, first, first + 1)

            assert isinstance(read, LogRead)
            assert read.error, "the log is gone, and a read has no error"

    @bounded
    async def test_a_log_that_is_made_anew_is_another_one(self, harness: LogHarness) -> None:
        """However alike they look."""
        need(harness, "delete")
        async with one_log(harness) as (host, log):
            host.follow(log, host.logs[log].first)
            await host.put(log, b"old")
            await host.gets(log, [b"old"])
            await harness.delete()
            await harness.make()
            await host.ends(log)
            (new,) = await host.found()
            assert new.log != log, f"a log made anew is called {log} again"
            host.follow(new.log, new.first)
            await host.put(new.log, b"new")
            await host.gets(new.log, [b"new"])

            assert [each.log for each in host.all_of(LogEnded)] == [log]
            assert new.topic == host.logs[log].topic

    @bounded
    async def test_a_log_that_some_do_not_know_has_not_ended(self, harness: LogHarness) -> None:
        """Never on a guess: an end is final, and costs everybody who was behind a gap."""
        need(harness, "hide")
        async with one_log(harness) as (host, log):
            host.follow(log, host.logs[log].first)
            await host.put(log, b"a")
            await host.gets(log, [b"a"])
            await harness.hide(hidden=True)
            await host.still()
            assert host.ended == {}, f"the log is there, and has ended: {host.ended}"
            await harness.hide(hidden=False)
            await host.put(log, b"b")
            await host.gets(log, [b"a", b"b"])

            assert len({found.log for each in host.all_of(LogsFound) for found in each.logs}) == 1

    @bounded
    async def test_a_log_that_went_while_nobody_looked_has_ended(self, harness: LogHarness) -> None:
        """Whether another of its name was made meanwhile, or none."""
        need(harness, "delete")
        async with one_log(harness) as (host, log):
            known = {log: host.logs[log].family}
        await harness.delete()
        async with opened(harness, known=known) as later:
            await later.ends(log)
            assert later.logs == {}
        await harness.make()
        async with opened(harness, known=known) as later:
            await later.ends(log)
            (new,) = await later.found()

            assert new.log != log

    @bounded
    async def test_a_log_that_was_known_and_is_there_has_not_ended(self, harness: LogHarness) -> None:
        """It is found like any other."""
        async with one_log(harness) as (host, log):
            known = {log: host.logs[log].family}
            async with opened(harness, beside=host, known=known) as later:
                (found,) = await later.found()
                await later.still()

            assert found.log == log
            assert later.ended == {}, f"the log is there, and has ended: {later.ended}"
