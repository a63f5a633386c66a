"""Room for frames that have begun, shared by all links of a listener."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from gapless.core.wire.framing import encode_frame
from gapless_testing.transport.ends import End
from gapless_transport.room import Room
from gapless_transport.tcp_link import TcpLink
from gapless_transport.tcp_options import TcpOptions
from unit.gapless_transport.test_tcp_link import FakeTransport


class Occupant:
    """Someone who claims room."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def go_on(self) -> None:
        self.told.append("go on")

    def give_up(self, reason: str) -> None:
        self.told.append(reason)


def room(size: int = 100, patience: float = 60.0) -> Room:
    return Room("here:1", size, patience)


async def test_who_fits_has_room_at_once_and_the_others_wait_in_their_order() -> None:
    guests = [Occupant() for _ in range(4)]
    there = room()

    granted = [there.claim(occupant, 50, 1) for occupant in guests]
    assert granted == [True, True, False, False]
    there.leave(guests[0])

    assert [occupant.told for occupant in guests] == [[], [], ["go on"], []]
    there.leave(guests[1])
    assert guests[3].told == ["go on"]


async def test_a_small_frame_does_not_overtake_a_large_one_that_waits() -> None:
    """Or the large one would wait for ever."""
    first, large, small = Occupant(), Occupant(), Occupant()
    there = room()
    assert there.claim(first, 60, 1)

    assert not there.claim(large, 90, 1)
    assert not there.claim(small, 10, 1)
    there.leave(first)

    assert (large.told, small.told) == (["go on"], ["go on"])


async def test_a_frame_larger_than_the_room_has_it_alone() -> None:
    first, huge = Occupant(), Occupant()
    there = room()
    assert there.claim(first, 10, 1)
    assert not there.claim(huge, 1000, 1)
    there.leave(first)

    assert huge.told == ["go on"]


async def test_what_those_who_wait_have_sent_is_bounded_too() -> None:
    guests = [Occupant() for _ in range(4)]
    there = room()
    assert there.claim(guests[0], 100, 1)
    for occupant in guests[1:]:
        assert not there.claim(occupant, 90, 40)

    assert [occupant.told for occupant in guests[:3]] == [[], [], []]
    assert guests[3].told == ["unfinished frames of all connections take 220 bytes already"]
    there.leave(guests[0])
    assert guests[1].told == ["go on"]


async def test_who_does_not_finish_while_others_wait_is_ended() -> None:
    idle, waiting = Occupant(), Occupant()
    there = room(patience=0.02)
    assert there.claim(idle, 100, 1)
    await asyncio.sleep(0.1)
    assert idle.told == [], "nobody waited"
    assert not there.claim(waiting, 10, 1)
    await asyncio.sleep(0.1)

    assert idle.told == ["a frame of 100 bytes was not finished within 0.02 s, and others wait"]
    assert waiting.told == ["go on"]


async def test_the_operator_is_told_once_in_a_while(caplog: Any) -> None:
    caplog.set_level(logging.WARNING)
    there = room()
    there.claim(Occupant(), 100, 1)
    for _ in range(5):
        there.claim(Occupant(), 100, 1)

    assert [record.getMessage() for record in caplog.records] == [
        "here:1: unfinished frames take 100 bytes of the 100 that they may take; further ones wait"
    ]


def linked(shared: Room) -> tuple[TcpLink, FakeTransport, End]:
    end = End()
    link = TcpLink(end.accept, TcpOptions(), lambda _: None, peer="peer", secure=False, room=shared)
    transport = FakeTransport(link, 1 << 20)
    link.connection_made(transport)
    return link, transport, end


async def test_a_link_without_room_is_not_read_until_there_is_some() -> None:
    shared = room(size=1500)
    (one, _, _), (other, transport, end) = linked(shared), linked(shared)
    frame = encode_frame(b"x" * 1000)
    one.data_received(frame[:500])
    other.data_received(frame[:500])
    waits = transport.paused
    one.data_received(frame[500:])
    other.data_received(frame[500:])

    assert (waits, transport.paused) == (True, False)
    assert end.received == [b"x" * 1000]
    for link in (one, other):
        link.connection_lost(None)


@pytest.mark.parametrize("how", ["lost", "closed", "broken"])
async def test_the_end_of_a_link_leaves_its_room(how: str) -> None:
    shared = room(size=1500)
    (one, _, _), (other, transport, _) = linked(shared), linked(shared)
    frame = encode_frame(b"x" * 1000)
    one.data_received(frame[:500])
    other.data_received(frame[:500])
    if how == "lost":
        one.connection_lost(None)
    elif how == "closed":
        one.close()
    else:
        one.data_received(frame[501:] + b"z" * 1000)

    assert not transport.paused
    for link in (one, other):
        link.connection_lost(None)
