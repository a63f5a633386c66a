"""What `ReadLog` brings."""

# ruff: noqa: D102 — a test says with its name what it claims
from __future__ import annotations

from gapless.core.ports import LogRead, LogStart
from gapless.core.stream.ticks import Tick
from gapless_testing.log.following import LARGE, filled
from gapless_testing.log.harness import LogHarness, SuitePart, need
from gapless_testing.log.host import Host, one_log
from gapless_testing.running import bounded


async def seven_events(host: Host, log: str) -> tuple[Tick, list[tuple[Tick, bytes]]]:
    """Puts three pieces of one, four and two events. Returns the beginning, and the events with their ticks."""
    first = host.logs[log].first
    bodies = [b"%d" % number for number in range(7)]
    for start, stop in ((0, 1), (1, 5), (5, 7)):
        await host.put(log, *bodies[start:stop])
    host.follow(log, first)
    return first, list(zip(await host.gets(log, bodies), bodies, strict=True))


class ReadTests(SuitePart):
    """Ranges of a log; the host notices where more is covered than was read."""

    @bounded
    async def test_every_range_is_read(self, harness: LogHarness) -> None:
        """Wherever it begins and ends, in the middle of a piece, too."""
        async with one_log(harness) as (host, log):
            first, events = await seven_events(host, log)
            edges = [first, *(tick for tick, _ in events)]
            for number, after in enumerate(edges):
                for upto in edges[number + 1 :]:
                    found = await host.read_all(log, after, upto)

                    wanted = [(tick, body) for tick, body in events if after < tick <= upto]
                    assert found == wanted, f"({after}, {upto}] brings {found} instead of {wanted}"

    @bounded
    async def test_a_read_ends_once_max_bytes_are_reached(self, harness: LogHarness) -> None:
        """A piece comes whole, so the last one may go beyond; and one comes always."""
        async with one_log(harness) as (host, log):
            bodies = await filled(host, log, 5)
            first, end = host.logs[log].first, await host.locate(log, LogStart.DECIDED)
            for max_bytes in (1, LARGE, 3 * LARGE):
                at, found = first, list[bytes]()
                while at < end:
                    read = await host.read(log, at, end, max_bytes)
                    raws = [piece.raw for piece in read.pieces if piece.raw is not None]
                    before = sum(map(len, raws[:-1]))
                    assert before < max_bytes, f"{max_bytes} bytes were asked for, and one piece behind {before} came"
                    assert read.hi > at, f"a read from {at} on brings nothing"
                    found += [body for _, body in await host.read_all(log, at, read.hi, max_bytes)]
                    at = read.hi

                assert found == bodies

    @bounded
    async def test_nothing_is_said_above_what_is_decided(self, harness: LogHarness) -> None:
        """Whatever comes there later would have been called silence."""
        async with one_log(harness) as (host, log):
            await host.put(log, b"a")
            end = await host.locate(log, LogStart.DECIDED)
            read = await host.read(log, end, end + 1000)
            assert read.hi == end, f"everything up to {end} is decided, and a read covers all up to {read.hi}"
            whole = await host.read(log, host.logs[log].first, end + 1000)

            assert whole.hi <= end, f"everything up to {end} is decided, and a read covers all up to {whole.hi}"

    @bounded
    async def test_what_is_not_decided_is_not_read(self, harness: LogHarness) -> None:
        need(harness, "begin")
        async with one_log(harness) as (host, log):
            await host.put(log, b"a")
            end = await harness.begin(log, [b"open"])
            decided = await host.locate(log, LogStart.DECIDED)
            latest = await host.locate(log, LogStart.LATEST)
            read = await host.read(log, host.logs[log].first, latest)
            assert latest > decided
            assert read.hi <= decided, f"everything up to {decided} is decided, and a read covers all up to {read.hi}"
            await end(True)
            host.follow(log, host.logs[log].first)
            await host.reaches(log, latest)

            assert [body for _, body in await host.read_all(log, host.logs[log].first, latest)] == [b"a", b"open"]

    @bounded
    async def test_what_was_aborted_is_read_as_silence(self, harness: LogHarness) -> None:
        need(harness, "begin")
        async with one_log(harness) as (host, log):
            first = host.logs[log].first
            await host.put(log, b"a")
            await (await harness.begin(log, [b"no", b"no"]))(False)
            await (await harness.begin(log, [b"yes"]))(True)
            await host.put(log, b"b")
            host.follow(log, first)
            ticks = await host.gets(log, [b"a", b"yes", b"b"])
            for after in range(first, ticks[-1]):
                found = await host.read_all(log, after, ticks[-1])

                assert [tick for tick, _ in found] == [tick for tick in ticks if tick > after]

    @bounded
    async def test_reads_side_by_side_do_not_mix(self, harness: LogHarness) -> None:
        async with one_log(harness) as (host, log):
            first, events = await seven_events(host, log)
            cookies: dict[int, Tick] = {}
            for _ in range(5):
                for tick, _ in events:
                    cookies[host.send_read(log, first, tick)] = tick
            await host.until(
                lambda: len(host.all_of(LogRead)) == len(cookies) or None,
                lambda: f"{len(cookies)} reads were asked for, and {len(host.all_of(LogRead))} were answered",
            )

            for read in host.all_of(LogRead):
                assert read.hi <= cookies[read.cookie]  # type: ignore[index]

    @bounded
    async def test_reads_do_not_disturb_who_follows(self, harness: LogHarness) -> None:
        async with one_log(harness) as (host, log):
            first, events = await seven_events(host, log)
            bodies = [body for _, body in events]
            for number in range(5):
                await host.read(log, first, events[number][0])
                bodies.append(b"new %d" % number)
                await host.put(log, bodies[-1])

            await host.gets(log, bodies)

    @bounded
    async def test_records_that_are_missing_are_not_covered(self, harness: LogHarness) -> None:
        """What is not there, and was not removed from the beginning, is unknown: it is not silence."""
        need(harness, "thin")
        async with one_log(harness) as (host, log):
            first = host.logs[log].first
            for number in range(6):
                await host.put(log, b"%d" % number)
            host.follow(log, first)
            ticks = await host.gets(log, [b"%d" % number for number in range(6)])
            host.has_holes = True
            await harness.thin(log, ticks[1], ticks[3])
            read = await host.read(log, first, ticks[-1])
            while read.hi < ticks[-1]:
                more = await host.read(log, read.hi, ticks[-1])
                assert more.hi > read.hi, "behind records that are missing nothing is read"
                read = LogRead(0, read.lo, more.hi, [*read.pieces, *more.pieces], more.first, "")

            covered = [piece for piece in read.pieces if piece.last > ticks[1] and piece.first <= ticks[3]]
            assert covered == [], f"({ticks[1]}, {ticks[3]}] is missing, and is covered by {covered}"

    @bounded
    async def test_what_cannot_be_read_is_told_and_not_skipped(self, harness: LogHarness) -> None:
        need(harness, "spoil")
        async with one_log(harness) as (host, log):
            first = host.logs[log].first
            await host.put(log, b"a")
            end = await host.locate(log, LogStart.DECIDED)
            await harness.spoil(log, spoilt=True)
            read = await host.read(log, first, end)
            assert read.error, f"it cannot be read, and {read} has no error"
            assert read.hi == first, f"it cannot be read, and is covered up to {read.hi}"
            host.follow(log, first)
            await host.still()
            await host.gets(log, [])
            await harness.spoil(log, spoilt=False)

            await host.gets(log, [b"a"])
