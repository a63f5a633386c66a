"""What may have been handed out while a subscription had another filter is recognised by that filter (J1, J5)."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from gapless.core.client.consuming.committing import Committing
from gapless.core.client.consuming.earlier import EarlierMarks
from gapless.core.client.consuming.items import Delivery
from gapless.core.stream.events import Event
from gapless.core.wire import messages as m

P = "p@1"


def delivery_of(events: Sequence[Event]) -> Delivery:
    """A delivery of events that are decoded already."""
    columns: Any = SimpleNamespace(size=1, events=lambda _pubend: list(events))
    return Delivery(P, [columns], [event.tick for event in events])


def event(tick: int) -> Event:
    return Event.make("t", properties={"n": tick, "odd": tick % 2 == 1}, tick=tick)


def odd(**told: object) -> m.Earlier:
    return m.Earlier(7, ("t",), "odd = TRUE", **told)  # type: ignore[arg-type]


def attached(*earlier: m.Earlier, gathers: bool = False) -> Committing:
    committing = Committing(gathers)
    committing.on_attached(m.Subscribed(1, 1, 1, b"", False, [], epoch=3, earlier=earlier), again=False)
    return committing


def unit(committing: Committing, *ticks: int) -> m.Unit:
    return committing.unit(P, ticks, lambda: [event(tick) for tick in ticks])


def test_the_first_event_of_the_earlier_filter_is_handed_out_alone_and_resolves_it() -> None:
    committing = attached(odd(firsts=(m.Position(P, 9),)))

    assert unit(committing, 2, 3, 4) == m.Unit(P, 2, 2)
    assert unit(committing, 3, 4, 5) == m.Unit(P, 3, 3, counted=True, resolves=(7,))


def test_only_the_first_event_of_the_earlier_filter_is_marked() -> None:
    marks = EarlierMarks([odd(firsts=(m.Position(P, 9),))])

    assert marks.hand_out(P, [event(tick) for tick in (2, 3, 4, 5)]) == {3}
    assert marks.hand_out(P, [event(7)]) == set()


def test_what_was_not_sent_yet_is_not_marked() -> None:
    marks = EarlierMarks([odd(firsts=(m.Position(P, 4),), units=(m.Position(P, 6),))])

    assert not marks.concerns(P, 7)
    assert marks.hand_out(P, [event(tick) for tick in (5, 6, 7)]) == {5}


def test_of_a_batch_that_was_announced_only_what_the_earlier_filter_selects_is_marked() -> None:
    committing = attached(odd(units=(m.Position(P, 5),)))
    events = [event(tick) for tick in (2, 3, 4, 5, 6, 7)]

    delivery = committing.hand_out(m.Unit(P, 2, 7), delivery_of(events))

    assert [each.tick for each in delivery.events() if each.redelivered] == [3, 5]


def test_an_attempt_is_counted_on_although_it_is_not_the_first_event() -> None:
    committing = attached(odd(attempts=(m.Attempts(P, 3, 4),)))
    committing.hand_out(unit(committing, 2), delivery_of([event(2)]))
    counted = unit(committing, 3, 4)
    assert counted == m.Unit(P, 3, 3, counted=True)

    (again,) = committing.hand_out(counted, delivery_of([event(3)])).events()

    assert (again.redelivered, again.delivery_count) == (True, 5)


def test_where_units_gather_it_is_announced_alone_too() -> None:
    committing = attached(odd(firsts=(m.Position(P, 9),)), gathers=True)
    committing.hand_out(unit(committing, 2), delivery_of([event(2)]))
    counted = unit(committing, 3, 4)
    assert committing.allowed(counted) is None

    commit = committing.ask([], counted)
    committing.on_committed(commit.number)

    assert commit.unit == counted
    assert committing.allowed(counted) == 3


def test_a_filter_that_is_not_understood_marks_everything() -> None:
    marks = EarlierMarks([m.Earlier(7, ("t",), "odd IS OF ANOTHER TIME", units=(m.Position(P, 3),))])

    assert marks.hand_out(P, [event(tick) for tick in (2, 3, 4)]) == {2, 3}
