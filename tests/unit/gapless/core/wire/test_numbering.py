"""Frames that are lost, repeated or put behind others are noticed by their numbers."""

from __future__ import annotations

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.core.wire.codec import encode
from gapless.core.wire.messages import BrokerHeartbeat
from gapless.core.wire.numbering import Received, Sent, is_unnumbered
from gapless.errors import RemoteProtocolError

LAST = (1 << 31) - 1
PAYLOAD = encode(7, BrokerHeartbeat())


def frames(sent: Sent, lanes: str) -> list[bytes]:
    """A frame for each letter: `u` is urgent."""
    return [sent.stamp(PAYLOAD, urgent=lane == "u") for lane in lanes]


def at(number: int) -> Sent:
    """One end that has sent so many frames in each lane."""
    sent = Sent()
    sent._ordinary = sent._urgent = number
    return sent


def after(number: int) -> Received:
    """One end that has received so many frames in each lane."""
    received = Received()
    received._ordinary = received._urgent = number
    return received


def overtaken(sent: list[bytes], lanes: str, jumps: list[int]) -> list[tuple[str, bytes]]:
    """The frames with each urgent one put in front of some ordinary ones, as a slow link does."""
    order: list[tuple[str, bytes]] = []
    for lane, frame, jump in zip(lanes, sent, jumps, strict=True):
        place, least = len(order), len(order) - jump
        while lane == "u" and place > max(least, 0) and order[place - 1][0] == "o":
            place -= 1
        order.insert(place, (lane, frame))
    return order


LANES = st.text("ou", min_size=1, max_size=30)
STARTS = st.sampled_from([0, 5, LAST - 3, LAST])


@given(LANES, STARTS, st.data())
def test_whatever_a_link_may_do_with_its_lanes_is_accepted(lanes: str, start: int, data: st.DataObject) -> None:
    jumps = data.draw(st.lists(st.integers(0, 5), min_size=len(lanes), max_size=len(lanes)))
    received = after(start)

    assert all(received.is_new(frame) for _, frame in overtaken(frames(at(start), lanes), lanes, jumps))


@given(LANES, STARTS, st.data())
def test_a_lost_frame_is_noticed_with_the_next_ordinary_one(lanes: str, start: int, data: st.DataObject) -> None:
    sent = frames(at(start), lanes + "o")
    lost = data.draw(st.integers(0, len(lanes) - 1))
    received = after(start)

    with pytest.raises(RemoteProtocolError, match="frames were lost on the way: 1 before this one"):
        for number, frame in enumerate(sent):
            if number != lost:
                assert received.is_new(frame)


@given(LANES, STARTS, st.data())
def test_a_frame_that_comes_again_is_not_taken_again(lanes: str, start: int, data: st.DataObject) -> None:
    sent = frames(at(start), lanes)
    received = after(start)
    for number, frame in enumerate(sent):
        assert received.is_new(frame)
        again = data.draw(st.integers(0, number))

        assert not received.is_new(sent[again])


def test_a_frame_that_is_put_behind_another_is_a_loss() -> None:
    first, second = frames(Sent(), "oo")
    received = Received()

    with pytest.raises(RemoteProtocolError, match="lost"):
        received.is_new(second)
    assert received.is_new(first), "nothing has changed"


def test_shared_payloads_are_numbered_as_any_other() -> None:
    one, other = Sent(), Sent()
    frames(one, "uo")
    frames(other, "uo")

    pairs = one.stamp_pairs([(PAYLOAD, b"a"), (PAYLOAD, b"b")])

    assert pairs == [(head, rest) for head, rest in zip(frames(other, "oo"), (b"a", b"b"), strict=True)]
    assert one.stamp(PAYLOAD, urgent=False) == frames(other, "o")[0]


@pytest.mark.parametrize("numbers", [(0, 0), (1 << 31, 0), (0, 1)])
def test_a_frame_without_a_number_is_an_error(numbers: tuple[int, int]) -> None:
    received = after(LAST)

    with pytest.raises(RemoteProtocolError, match="no number"):
        received.is_new(PAYLOAD[:8] + pack("<II", *numbers) + PAYLOAD[16:])


@pytest.mark.parametrize("length", range(8, 16))
def test_a_frame_that_ends_within_its_numbers_is_an_error(length: int) -> None:
    with pytest.raises(RemoteProtocolError, match="too short"):
        Received().is_new(PAYLOAD[:length])


def test_who_has_no_number_to_give_gives_none() -> None:
    assert is_unnumbered(PAYLOAD)
    assert not is_unnumbered(Sent().stamp(PAYLOAD, urgent=True))
