"""What a link in memory does beyond the conformance suite: faults, and ends that do not agree."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gapless_testing.running import settle
from gapless_testing.transport.ends import End, Ends
from gapless_transport import memory


async def linked(*, prepare: Callable[[End], None] = lambda _: None, **options: object) -> tuple[End, End]:
    """Both ends of a link, with these options in both directions."""
    near, ends = End(), Ends(prepare)
    transport = memory.open_transport(options={"close_timeout": 5.0, **options})
    listener = await transport.listen("", ends.accept)
    await transport.dial(listener.address, near.accept)
    await listener.close()
    return near, ends.all[0]


async def turns(count: int) -> None:
    """Lets the loop turn so often, and no longer."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_frames_of_a_turn_arrive_together() -> None:
    near, far = await linked()
    batches: list[int] = []
    far.on_frames_do = lambda payloads: batches.append(len(payloads))
    for index in range(10):
        near.link.send([bytes([index])] * 3)

    assert len(await far.frames(30)) == 30
    assert batches == [30]


async def test_much_is_handed_over_in_several_turns() -> None:
    near, far = await linked(prepare=lambda end: end.link.raise_limit(1 << 20))
    batches: list[int] = []
    far.on_frames_do = lambda payloads: batches.append(len(payloads))
    near.link.send([bytes(100 << 10)] * 8)
    await far.frames(8)

    assert batches == [2, 2, 2, 2]


async def test_what_is_under_way_is_pending() -> None:
    near, far = await linked(delay_min=0.05)
    near.link.send([b"four", (b"fi", b"ve!")])
    assert near.link.pending == 9
    await turns(3)
    assert (near.link.pending, far.received) == (9, [])

    assert await far.frames(2) == [b"four", b"five!"]
    assert near.link.pending == 0


async def test_what_is_under_way_counts_for_the_hard_limit() -> None:
    near, far = await linked(delay_min=10, high_water=100, low_water=10, pending_max=1000)
    for _ in range(3):
        near.link.send([bytes(400)])
        await settle()

    assert "1200 bytes" in await near.end()
    assert await far.end() == "the other end broke the link"


async def test_closing_waits_for_what_is_under_way() -> None:
    near, far = await linked(delay_min=0.05)
    near.link.send([b"slow"])
    near.link.close("done")
    await turns(3)
    assert far.closed == []

    assert await far.end() == ""
    assert far.received == [b"slow"]
    assert near.closed == ["done"]


async def test_closing_does_not_wait_for_what_is_lost() -> None:
    near, far = await linked(drop=1)
    near.link.send([b"lost"])
    near.link.close()

    assert (await far.end(), far.received) == ("", [])


async def test_a_reset_ends_both_ends_with_a_reason() -> None:
    near, far = await linked(reset=1)
    near.link.send([b"never"])

    assert await near.end() == "the link was reset"
    assert await far.end() == "the other end broke the link"
    assert far.received == []


async def test_a_reset_reaches_an_end_that_does_not_read() -> None:
    near, far = await linked(reset=1)
    far.link.send([b"too late"])
    near.link.pause()
    near.link.send([b"never"])

    assert await far.end() != ""


async def test_an_end_that_does_not_read_hears_of_a_close_after_what_came_before() -> None:
    near, far = await linked(prepare=lambda end: end.link.pause())
    near.link.send([b"before"])
    near.link.close()
    await settle()
    assert (far.received, far.closed) == ([], [])
    far.link.resume()

    assert await far.end() == ""
    assert far.received == [b"before"]


async def test_sending_to_an_end_that_is_gone_keeps_nothing() -> None:
    near, far = await linked()
    far.on_frames_do = lambda _: far.link.pause()
    near.link.send([b"read this"])
    await far.frames(1)
    near.link.send([b"not this"])
    await settle()
    far.link.close()
    await far.end()
    await near.end()

    assert near.link.pending == far.link.pending == 0
