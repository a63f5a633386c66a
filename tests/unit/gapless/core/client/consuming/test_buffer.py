"""One pubend of one subscription, against a model that keeps every tick (protocol: delivery)."""

from __future__ import annotations

from random import Random

import pytest

from gapless.core.client.consuming.buffer import PubendBuffer
from gapless.core.client.consuming.items import Delivery, Gap, Silence
from gapless.core.stream.columns import EventBatch
from gapless.core.stream.events import encode_event
from gapless.core.wire.delivered import DeliveredColumns
from gapless.errors import RemoteProtocolError


def delivered(*ticks: int) -> DeliveredColumns:
    events = [encode_event("t", {}, None, b"%d" % tick) for tick in ticks]
    batch = EventBatch(list(ticks), events, [len(b"%d" % tick) for tick in ticks])
    return DeliveredColumns.parse(batch.payload((1 << len(ticks)) - 1), 0)


def buffered(start: int = 0, *, wants_silence: bool = False) -> PubendBuffer:
    return PubendBuffer("p", start, 0, wants_silence=wants_silence)


def test_events_out_of_order_are_refused_and_change_nothing() -> None:
    one = buffered()
    one.on_events(delivered(5, 6))
    for ticks in ((8, 7), (7, 7), (3, 9, 8)):
        with pytest.raises(RemoteProtocolError):
            one.on_events(delivered(*ticks))

    assert (one.received, one.position, len(one)) == (6, 0, 1)


def test_only_what_is_new_is_taken() -> None:
    one = buffered(5)
    assert one.on_events(delivered(3, 5)) is None
    new = one.on_events(delivered(4, 5, 6, 8))
    assert new is not None
    assert new.ticks() == [6, 8]
    item = one.take(None, 1000)
    assert isinstance(item, Delivery)
    assert [event.body for event in item.events()] == [b"6", b"8"]


def test_events_one_by_one_are_those_of_the_delivery() -> None:
    """They are decoded together, some at a time; a batch between them takes up where the last one ended."""
    one = buffered()
    one.on_events(delivered(*range(1, 101)))
    bodies: list[bytes] = []
    while len(one):
        item = one.take(7 if len(bodies) in {3, 40} else 1, 1000)
        assert isinstance(item, Delivery)
        assert item.bodies() == [event.body for event in item.events()]
        assert [event.tick for event in item.events()] == list(item.ticks)
        bodies += item.bodies()
        one.advance()

    assert bodies == [b"%d" % tick for tick in range(1, 101)]


def test_a_malformed_event_does_not_spoil_those_before_it() -> None:
    events = [encode_event("t", {}, None, b"1"), b"\xc1\xc1"]
    batch = EventBatch([1, 2], events, [1, 1])
    one = buffered()
    one.on_events(DeliveredColumns.parse(batch.payload(0b11), 0))
    first = one.take(1, 1000)
    one.advance()
    second = one.take(1, 1000)

    assert isinstance(first, Delivery)
    assert [event.body for event in first.events()] == [b"1"]
    assert isinstance(second, Delivery)
    with pytest.raises(ValueError, match="malformed"):
        second.events()


def test_a_delivery_is_cut_and_joined_as_asked() -> None:
    one = buffered()
    one.on_events(delivered(*range(1, 8)))
    one.on_events(delivered(8, 9))
    one.on_silence(20, joins=True)
    sizes = []
    while len(one):
        item = one.take(4, 1000)
        assert isinstance(item, Delivery)
        assert [event.tick for event in item.events()] == list(item.ticks)
        sizes.append(item.count)
        one.advance()

    assert sizes == [4, 4, 1]
    assert one.position == 20


def test_the_last_event_below_a_position() -> None:
    one = buffered(100)
    one.on_events(delivered(110, 120))
    one.on_silence(150, joins=True)
    one.take(None, 1000)
    assert [one.last_event(tick) for tick in (100, 110, 119, 120, 150)] == [0, 110, 110, 120, 120]
    assert one.last_event(151) == 151, "beyond what was handed out anything may lie"

    one.advance()
    one.on_gap(150, 200, "")
    one.take(None, 1000)
    assert one.last_event(210) == 210
    assert one.last_event(200) == 200, "an older token must meet the gap, not silence"


@pytest.mark.parametrize("seed", range(200))
def test_a_lane_accounts_for_every_tick_once_in_order(seed: int) -> None:
    random = Random(seed)
    wants_silence = random.random() < 0.5
    one = buffered(wants_silence=wants_silence)
    truth: dict[int, str] = {}
    seen: dict[int, str] = {}
    end = 0
    position = 0
    for _ in range(random.randrange(5, 40)):
        kind = random.choice(["events", "silence", "gap", "take", "take", "again"])
        if kind == "events":
            ticks = sorted(random.sample(range(end + 1, end + 20), random.randrange(1, 6)))
            truth |= dict.fromkeys(range(end + 1, ticks[-1]), "silence") | dict.fromkeys(ticks, "event")
            end = ticks[-1]
            one.on_events(delivered(*ticks))
        elif kind == "silence":
            upto = end + random.randrange(1, 10)
            truth |= dict.fromkeys(range(end + 1, upto + 1), "silence")
            end = upto
            one.on_silence(upto, joins=True)
        elif kind == "gap":
            upto = end + random.randrange(1, 10)
            truth |= dict.fromkeys(range(end + 1, upto + 1), "gap")
            end = upto
            one.on_gap(max(0, end - 30), upto, "lost")
        elif kind == "again" and end > 1:
            one.on_silence(random.randrange(1, end + 1), joins=True)
            one.on_gap(0, random.randrange(1, end + 1), "old")
            one.on_events(delivered(random.randrange(1, end + 1)))
        elif kind == "take":
            one.advance()
            for tick in range(position + 1, one.position + 1):
                seen.setdefault(tick, "silence")
            position = one.position
            if len(one):
                item = one.take(random.choice([None, 1, 3]), 1000)
                if isinstance(item, Delivery):
                    assert all(tick not in seen for tick in item.ticks)
                    seen |= dict.fromkeys(item.ticks, "event")
                elif isinstance(item, Gap):
                    assert item.start >= position
                    seen |= dict.fromkeys(range(item.start + 1, item.end + 1), "gap")
                else:
                    assert isinstance(item, Silence)
                    assert wants_silence
                    assert item.start >= position
        assert one.received == end
        assert one.position <= one.end <= one.received
    while True:
        one.advance()
        if not len(one):
            break
        item = one.take(None, 1000)
        if isinstance(item, Delivery):
            seen |= dict.fromkeys(item.ticks, "event")
        elif isinstance(item, Gap):
            seen |= dict.fromkeys(range(item.start + 1, item.end + 1), "gap")
    assert one.position == end
    assert {tick: kind for tick, kind in truth.items() if kind != "silence"} == {
        tick: kind for tick, kind in seen.items() if kind != "silence"
    }


@pytest.mark.parametrize(("start", "end"), [(20, 20), (30, 20)])
def test_a_gap_in_which_nothing_can_be_is_refused_and_changes_nothing(start: int, end: int) -> None:
    one = buffered()
    one.on_events(delivered(5))

    with pytest.raises(RemoteProtocolError, match="is empty"):
        one.on_gap(start, end, "")

    assert (one.received, len(one)) == (5, 1)


class TestAssertions:
    """What no broker can bring about, only a mistake of ours, ends at once."""

    def test_a_position_never_falls(self) -> None:
        one = buffered()
        one.on_events(delivered(5))
        one.take(None, 1000)
        one.position = 6

        with pytest.raises(AssertionError):
            one.advance()

    def test_what_is_handed_out_was_received(self) -> None:
        one = buffered()
        one.on_events(delivered(5))
        one.take(None, 1000)
        one.received = 4

        with pytest.raises(AssertionError):
            one.advance()

    def test_what_arrives_comes_behind_what_arrived(self) -> None:
        one = buffered()
        one.position = 7

        with pytest.raises(AssertionError):
            one.on_events(delivered(5))
