"""The tools of the suite themselves fail when they should."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from conformance.transports import MemoryHarness
from gapless_testing import running
from gapless_testing.running import bounded
from gapless_testing.transport import TransportHarness
from gapless_testing.transport.connections import connected
from gapless_testing.transport.ends import End, Ends, SuitePart, numbered
from gapless_testing.transport.raw import bounded_on_bytes


class Part(SuitePart):
    """A suite whose tests go wrong in every way."""

    @bounded
    async def passes(self, harness: TransportHarness) -> None:
        async with connected(harness) as connection:
            connection.near.link.send([b"x"])
            assert await connection.far.frames(1) == [b"x"]

    @bounded
    async def fails(self, harness: TransportHarness) -> None:
        async with connected(harness):
            raise AssertionError("this one")

    @bounded
    async def waits_for_ever(self, harness: TransportHarness) -> None:
        async with connected(harness) as connection:
            await connection.far.frames(1)

    @bounded
    async def hangs(self, harness: TransportHarness) -> None:
        await asyncio.Event().wait()

    @bounded
    async def lets_a_callback_raise(self, harness: TransportHarness) -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 // 0)
        await asyncio.sleep(0.001)

    @bounded_on_bytes
    async def needs_bytes(self, harness: TransportHarness) -> None:
        raise AssertionError("not reached")


@pytest.fixture
def harness() -> TransportHarness:
    return MemoryHarness("asyncio")


def test_a_good_test_passes(harness: TransportHarness) -> None:
    Part().passes(harness)


@pytest.mark.parametrize(
    ("test", "complaint"),
    [
        (Part().fails, "this one"),
        (Part().waits_for_ever, r"expected 1 frames, and 0 came within 0.2 s"),
        (Part().hangs, r"still waiting after 0.2 s: .*hangs"),
        (Part().lets_a_callback_raise, "Exception in callback"),
    ],
    ids=["fails", "waits", "hangs", "callback"],
)
def test_a_bad_test_fails(
    harness: TransportHarness,
    monkeypatch: pytest.MonkeyPatch,
    test: Callable[[TransportHarness], None],
    complaint: str,
) -> None:
    monkeypatch.setattr(running, "WAIT_SECONDS_MAX", 0.2)
    monkeypatch.setattr(running, "TEST_SECONDS_MAX", 0.2 if test.__name__ == "hangs" else 5)

    with pytest.raises((AssertionError, pytest.fail.Exception), match=complaint):
        test(harness)


def test_a_test_of_bytes_is_skipped_where_there_are_none(harness: TransportHarness) -> None:
    with pytest.raises(pytest.skip.Exception):
        Part().needs_bytes(harness)


def test_a_suite_without_a_harness_says_so() -> None:
    with pytest.raises(NotImplementedError, match="fixture `harness`"):
        SuitePart.harness.__wrapped__(SuitePart())  # type: ignore[attr-defined]


async def test_an_end_that_closes_too_early_says_what_came() -> None:
    end = End()
    end.on_frames([b"one"])
    end.on_closed("the reason")

    with pytest.raises(
        AssertionError, match=r"expected 2 frames, and 1 came before the link was closed \('the reason'\)"
    ):
        await end.frames(2)
    assert await end.end() == "the reason"


@pytest.mark.parametrize("calls", [[], ["", ""]], ids=["never", "twice"])
def test_an_end_ends_exactly_once(calls: list[str]) -> None:
    end = End()
    for reason in calls:
        end.on_closed(reason)

    with pytest.raises(AssertionError, match=f"{len(calls)} times"):
        end.check_end()


@pytest.mark.parametrize(
    "late", [lambda end: end.on_frames([b"x"]), lambda end: end.on_drained()], ids=["frames", "drained"]
)
def test_nothing_comes_after_the_end(late: Callable[[End], None]) -> None:
    breaches: list[str] = []
    end = End(breaches)
    end.on_closed("")
    end.check_end()
    assert breaches == []
    late(end)

    assert [breach.partition(" came ")[2] for breach in breaches] == ["after on_closed"]


async def test_ends_are_waited_for() -> None:
    waiting = Ends()
    task = asyncio.ensure_future(waiting.get(0))
    await asyncio.sleep(0)
    assert not task.done()
    made = waiting.accept(object())  # type: ignore[arg-type]

    assert await task is made


def test_numbered_payloads_differ() -> None:
    assert len({*numbered(0, 300, size=4), *numbered(300, 300, size=4)}) == 600
