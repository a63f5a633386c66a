"""The roster of a shared subscription, and the ceiling of its delivery numbers."""

from __future__ import annotations

from gapless.core.ports import Set
from gapless.core.wire.messages import Holds
from gapless_shb.core.shared.settling import (
    AHEAD,
    NUMBERS_AHEAD,
    ROSTER_MAX,
    ROSTER_MS,
    Ceiling,
    Repeated,
    Roster,
    SharedRow,
    holds_of,
    read_shared,
    shared_row,
    split_roster_key,
)

LOST = (Holds("p@1", (5,), (1,)),)


def stored(roster: Roster) -> Roster:
    """The same, from its rows."""
    operations, entered = roster.rows(7)
    rows = [(split_roster_key(each.key)[1], each.value) for each in operations if isinstance(each, Set)]
    roster.written(entered)
    return Roster.restored(rows)


def test_a_settlement_is_answered_as_it_was() -> None:
    roster = Roster()
    roster.enter("one", 1)
    assert roster.repeated("one", 1) is None
    roster.note("one", 1, LOST)
    roster.note("one", 2, ())
    back = stored(roster)

    assert [back.repeated("one", number) for number in (1, 2, 3)] == [Repeated(LOST), Repeated(), None]
    assert back.repeated("two", 1) is None


def test_of_what_is_too_long_ago_nothing_is_known() -> None:
    roster = Roster()
    roster.enter("one", 1)
    for number in range(1, 101):
        roster.note("one", number, LOST if number % 2 else ())

    assert roster.repeated("one", 36) == Repeated(uncertain=True)
    assert roster.repeated("one", 37) == Repeated(LOST)


def test_who_is_new_is_durable_when_that_is_written() -> None:
    roster = Roster()
    roster.enter("one", 1)
    assert not roster.is_durable("one")
    _, entered = roster.rows(7)
    assert entered == ["one"]
    roster.leave("one")
    roster.enter("one", 2)
    roster.written(entered[:0])
    assert not roster.is_durable("one"), "it has said goodbye meanwhile: its new row is another one"


def test_nobody_waits_for_whose_unclean_end_was_counted() -> None:
    roster = Roster()
    for name in ("one", "two", "three"):
        roster.enter(name, 1)
    roster.mark_gone("one")
    roster.leave("two")
    back = stored(roster)

    assert back.awaited == {"three"}
    assert back.repeated("one", 1) is None
    back.enter("one", 5)
    assert back.awaited == {"one", "three"}


def test_rows_of_those_who_do_not_come_back_go_after_a_day() -> None:
    roster = Roster()
    roster.enter("old", 0)
    roster.enter("here", 0)
    roster.enter("new", ROSTER_MS - 5)
    roster.prune(ROSTER_MS + 1, ["here"])
    assert sorted(roster) == ["here", "new"]


def test_a_roster_has_so_many_rows() -> None:
    roster = Roster()
    for at in range(ROSTER_MAX + 3):
        roster.enter(f"{at}", at)
    roster.prune(ROSTER_MAX + 3, ["0"])
    assert len(roster) == ROSTER_MAX
    assert "0" in roster
    assert "1" not in roster


def test_numbers_go_on_over_all_lives_and_below_what_is_durable() -> None:
    """TS28."""
    ceiling = Ceiling()
    assert ceiling.room("p@1", 10) == 0
    assert ceiling.is_wanted
    assert ceiling.ask_open(True)
    assert ceiling.raise_ahead([("p@1", 10, 1)])
    ceiling.written(ceiling.asked, ceiling.asked_sent, ceiling.changes)

    assert ceiling.room("p@1", 10) == NUMBERS_AHEAD
    assert ceiling.room("p@1", 10 + AHEAD) == NUMBERS_AHEAD
    assert ceiling.room("p@1", 11 + AHEAD) == 0
    assert ceiling.take(3) == 1
    assert ceiling.take(1) == 4
    _, row = read_shared(*_pair(SharedRow(ceiling.asked, ceiling.asked_sent, is_open=True)))
    again = Ceiling.restored(row)
    assert again.number == again.before == NUMBERS_AHEAD
    assert again.take(0) == NUMBERS_AHEAD + 1


def _pair(row: SharedRow) -> tuple[bytes, bytes]:
    written = shared_row(7, row)
    return written.key, written.value


def test_what_was_asked_before_it_was_closed_opens_nothing() -> None:
    """Nothing is delivered between a row that says that nobody is there and the next one (TS2)."""
    ceiling = Ceiling()
    ceiling.ask_open(True)
    opened = ceiling.changes
    ceiling.written(5, {}, opened)
    assert is_open(ceiling)
    ceiling.ask_open(False)
    closed = ceiling.changes
    ceiling.ask_open(True)
    assert not is_open(ceiling)
    ceiling.written(5, {}, closed)
    assert not is_open(ceiling)
    ceiling.written(5, {}, ceiling.changes)
    assert is_open(ceiling)


def is_open(ceiling: Ceiling) -> bool:
    return ceiling.is_open


def test_events_are_named_pubend_by_pubend_in_order() -> None:
    assert holds_of([("a", 9, 1), ("b", 2, 2), ("a", 3, 7)]) == (Holds("a", (3, 9), (7, 1)), Holds("b", (2,), (2,)))
