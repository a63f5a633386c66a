"""Which event an acknowledgement names: never one too low (protocol: acknowledging)."""

from __future__ import annotations

from random import Random

import pytest

from gapless.core.client.consuming import acknowledging
from gapless.core.client.consuming.acknowledging import Acknowledging, History
from gapless.core.wire.messages import Acknowledged


def test_before_anything_is_handed_out_there_is_no_news() -> None:
    """The broker resumed at its own position: it knows better."""
    assert History(100, 0).last_event(150) == 0


def test_a_position_that_came_with_a_token_is_named_itself() -> None:
    """What was consumed below it in an earlier life is not known here."""
    assert History(100, 100).last_event(150) == 100


@pytest.mark.parametrize("seed", range(50))
def test_the_named_event_is_exact_or_too_high_never_too_low(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    monkeypatch.setattr(acknowledging, "HISTORY_EVENTS", 10)
    history = History(0, 0)
    events: list[int] = []
    acknowledged = end = 0
    for _ in range(60):
        ticks = sorted(random.sample(range(end + 1, end + 30), random.randrange(1, 5)))
        end = ticks[-1]
        events += ticks
        history.add(ticks)
        tick = random.randrange(acknowledged, end + 5)
        true = max((event for event in events if event <= tick), default=0)
        named = history.last_event(tick)
        assert true <= named <= tick
        recent = sum(event > tick for event in events) < 6
        if recent:
            assert named == true
        if random.random() < 0.3:
            acknowledged = tick
            history.forget(tick)


def test_one_large_delivery_is_remembered_whole() -> None:
    history = History(0, 0)
    ticks = range(1, 3 * acknowledging.HISTORY_EVENTS)
    history.add(ticks)

    assert history.last_event(7) == 7
    history.add([10**6])
    assert history.last_event(10**6 - 1) == ticks[-1]


def test_any_tick_of_a_gap_may_be_an_event() -> None:
    """An archive may have filled it: whoever comes back to a place within must not find silence there."""
    history = History(0, 0)
    history.add([10, 20])
    history.add_gap(30, 1 << 62)
    history.add([(1 << 62) + 5])
    assert [history.last_event(tick) for tick in (25, 30, 31, 1 << 40, 1 << 62)] == [20, 20, 31, 1 << 40, 1 << 62]
    assert history.last_event((1 << 62) + 7) == (1 << 62) + 5

    history.forget(1 << 40)
    assert history.last_event(1 << 41) == 1 << 41
    history.forget((1 << 62) + 1)
    assert history.last_event((1 << 62) + 2) == 1 << 62


def test_a_gap_takes_up_no_more_than_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acknowledging, "HISTORY_EVENTS", 3)
    history = History(0, 0)
    history.add([10, 20])
    history.add_gap(30, 1 << 62)
    assert history.last_event(15) == 10, "nothing had to be forgotten"
    history.add([(1 << 62) + 5])
    assert history.last_event(15) == 15


def test_acknowledgements_are_cumulative_and_repeated_for_a_new_session() -> None:
    one = Acknowledging()
    one.start("p", 50)
    assert not one.is_news("p", 50)
    assert one.is_news("p", 51)
    assert one.is_news("q", 0)
    one.acknowledge("p", 60, 55)
    assert not one.is_news("p", 60)
    assert one.take_unsent() == [Acknowledged("p", 60, 55)]
    assert one.take_unsent() == []
    one.acknowledge("p", 70, 65)
    one.acknowledge("q", 5, 5)
    assert one.repeat() == [Acknowledged("p", 70, 65), Acknowledged("q", 5, 5)]
    assert one.take_unsent() == []


def test_events_are_handed_out_in_tick_order() -> None:
    history = History(10, 0)
    history.add([11, 12])

    for ticks in ([12], [5, 20]):
        with pytest.raises(AssertionError):
            history.add(ticks)


def test_an_acknowledgement_never_falls_and_names_no_event_above_it() -> None:
    known = Acknowledging()
    known.acknowledge("p", 20, 15)

    for tick, event in ((20, 20), (19, 15), (30, 31)):
        with pytest.raises(AssertionError):
            known.acknowledge("p", tick, event)
    assert known.repeat()[0].tick == 20
