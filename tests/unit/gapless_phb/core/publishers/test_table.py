"""What is known of publishers (protocol: publishers)."""

from __future__ import annotations

import msgspec
import pytest

from gapless.core.stream.columns import EventColumns
from gapless.core.stream.ticks import STEP
from gapless_phb.core import rows
from gapless_phb.core.publishers.table import (
    OWNERS,
    WINDOW,
    LoggedBatch,
    PendingBatch,
    PublisherState,
    PublisherTable,
    runs_of,
    term_of,
)
from gapless_phb.core.rows import PublisherRow
from unit.gapless_phb.harness import at, columns, epoch, spell_epoch


def table() -> PublisherTable:
    return PublisherTable({}, 0)


def opened(one: PublisherTable, name: str = "ann", *, instance: str = "instance") -> PublisherState:
    return one.open(name, instance, 1, 0, at(1000))


def append(publisher: PublisherState, count: int = 1, ms: int = 1000) -> PendingBatch:
    events: EventColumns = columns([b"x"] * count)
    before = publisher.pending[-1].last_tick if publisher.pending else publisher.tick
    tick = max(at(ms), before + STEP)
    batch = PendingBatch(publisher, publisher.epoch, publisher.assigned + 1, tick, events, (), 99, "reply", 0)
    publisher.pending.append(batch)
    return batch


def test_each_opening_is_a_new_epoch() -> None:
    one = table()

    assert [spell_epoch(opened(one, name).epoch) for name in ("ann", "ann", "bob", "ann")] == ["1", "1.1", "2", "1.2"]
    assert spell_epoch(opened(one, instance="another").epoch) == "3"


def test_an_opening_that_is_not_newer_is_the_same_opening() -> None:
    publisher = table().open("ann", "a", 5, 0, at(1000))

    assert publisher.is_same_opening("a", 5)
    assert publisher.is_same_opening("a", 4)
    assert not publisher.is_same_opening("a", 6)
    assert not publisher.is_same_opening("b", 5)


def test_t44_a_row_holds_durable_sequences_only() -> None:
    """A pending batch may fail; a row that counted it would make its retry look like a duplicate."""
    one = table()
    publisher = opened(one)
    first, second = append(publisher, 3), append(publisher, 2, ms=1001)
    one.on_durable(first)

    assert (publisher.assigned, publisher.sequence) == (5, 3)
    assert publisher.row.sequence == 3
    assert publisher.row.tick == at(1000, 2)
    again = PublisherState.restored("ann", publisher.row)
    assert (again.find_logged(1), again.find_logged(4)) == (LoggedBatch(1, at(1000), 3, 99), None)
    one.on_durable(second)
    assert publisher.row.sequence == 5


def test_batches_are_found_by_their_first_sequence() -> None:
    one = table()
    publisher = opened(one)
    first, second = append(publisher, 3), append(publisher, 2, ms=1001)
    one.on_durable(first)

    assert publisher.find_logged(1) == LoggedBatch(1, at(1000), 3, 99)
    assert publisher.find_logged(2) is None
    assert publisher.find_pending(4) is second
    assert [(run.first, run.step, run.count) for run in runs_of(second)] == [(at(1001), STEP, 2)]


def test_the_window_is_bounded() -> None:
    one = table()
    publisher = opened(one)
    for _ in range(WINDOW + 10):
        one.on_durable(append(publisher))

    assert publisher.known_from == 11
    assert publisher.find_logged(10) is None
    assert publisher.find_logged(11) is not None


def test_a_table_comes_back_from_its_rows() -> None:
    one = table()
    publisher = opened(one)
    one.on_durable(append(publisher, 3))
    saved = {name: one_row.row for name in ("ann",) if (one_row := one.get(name))}

    again = PublisherTable(saved, epochs=epoch(40))

    back = again.get("ann")
    assert back is not None
    assert back.row == publisher.row
    assert opened(again, "bob").epoch == epoch(41)


def test_replay_takes_what_follows_skips_what_is_known_and_sees_what_is_missing() -> None:
    one = table()
    opened(one)

    assert one.replay("ann", epoch(1), LoggedBatch(1, at(1000), 3, 5), with_holes=False)
    assert one.replay("ann", epoch(1), LoggedBatch(1, at(1000), 3, 5), with_holes=False)
    assert not one.replay("ann", epoch(1), LoggedBatch(5, at(1001), 1, 5), with_holes=False)
    assert one.replay("ann", epoch(1), LoggedBatch(4, at(1001), 1, 5), with_holes=False)
    assert not one.replay("bob", epoch(1), LoggedBatch(2, at(1002), 1, 5), with_holes=False)


def test_where_the_log_has_holes_replay_goes_on_behind_what_is_missing() -> None:
    one = table()
    opened(one)
    assert one.replay("ann", epoch(1), LoggedBatch(1, at(1000), 3, 5), with_holes=False)

    assert one.replay("ann", epoch(1), LoggedBatch(7, at(1001), 2, 5), with_holes=True)

    ann = one.get("ann")
    assert ann is not None
    assert (ann.sequence, ann.known_from) == (8, 7)


def test_what_was_in_a_hole_belongs_to_whoever_logged_behind_it() -> None:
    """Who sends it again is told that it was logged, and not that another instance has taken its context."""
    one = table()
    assert one.replay("ann", epoch(1), LoggedBatch(7, at(1001), 2, 5), with_holes=True)

    ann = one.get("ann")
    assert ann is not None
    assert [ann.owner(sequence) for sequence in (1, 6, 7, 8)] == [term_of(epoch(1))] * 4


def test_changed_rows_are_taken_oldest_first_and_once() -> None:
    one = table()
    for name in ("ann", "bob", "cid"):
        one.on_durable(append(opened(one, name)))

    assert [publisher.name for publisher in one.take_changed(2)] == ["ann", "bob"]
    assert one.changed == 1
    assert [publisher.name for publisher in one.take_changed(9)] == ["cid"]


class TestOwners:
    """Which instance has logged what: only that one can repeat it."""

    def test_each_event_has_the_term_of_the_instance_that_published_it(self) -> None:
        one = table()
        publisher = opened(one)
        one.on_durable(append(publisher, 3))
        publisher = opened(one, instance="another")
        append(publisher, 2)

        assert [publisher.owner(sequence) for sequence in range(7)] == [None, 1, 1, 1, 2, 2, None]
        one.on_durable(publisher.pending[0])
        assert [publisher.owner(sequence) for sequence in range(7)] == [None, 1, 1, 1, 2, 2, None]
        assert publisher.row.owners == ((1, 1), (4, 2))

    def test_a_batch_is_known_to_its_own_instance_alone(self) -> None:
        one = table()
        publisher = opened(one)
        one.on_durable(append(publisher))
        assert publisher.knows(epoch(1), 1, 1, 99)
        opened(one)  # the same instance, in another session
        assert publisher.knows(epoch(1, 1), 1, 1, 99)

        opened(one, instance="another")

        assert publisher.knows(epoch(1), 1, 1, 99)
        assert not publisher.knows(epoch(2), 1, 1, 99)

    def test_so_many_instances_are_known(self) -> None:
        one = table()
        for number in range(OWNERS + 1):
            one.on_durable(append(opened(one, instance=f"i{number}")))

        publisher = opened(one)
        assert len(publisher.owners) == OWNERS
        assert [publisher.owner(1), publisher.owner(2), publisher.owner(OWNERS + 1)] == [None, 2, OWNERS + 1]

    def test_a_row_of_version_0_1_0_does_not_say(self) -> None:
        """Its epochs had no term: whoever opens the name now is another instance."""
        old = rows.encode(PublisherRow(7, "instance", 1, at(1000), 5, at(1000, 4), b""))
        volume = msgspec.msgpack.encode(msgspec.msgpack.decode(old)[:7])
        one = PublisherTable({"ann": msgspec.msgpack.decode(volume, type=PublisherRow)}, 9)

        publisher = opened(one)

        assert (publisher.epoch, publisher.sequence, publisher.owner(5)) == (epoch(1), 5, None)
        one.on_durable(append(publisher))
        assert [publisher.owner(5), publisher.owner(6)] == [None, 1]


class TestForgetting:
    """Only publishers without a name of their own, and only when nobody is to come back to them."""

    def test_the_longest_gone_go_first_and_named_ones_never(self) -> None:
        one = table()
        opened(one)
        for now, name in enumerate(["~a", "~ann", "~b", "~c"]):
            one.leave(opened(one, name), now)
        opened(one, "~ann")
        one.leave(opened(one, "~a"), 9)

        assert one.forget_gone(1, 10) == []
        assert one.forget_gone(2, 10) == ["~b"]
        assert one.first_gone == 3
        assert one.forget_gone(9, 10) == ["~c", "~a"]
        assert one.get("ann") is not None
        assert len(one) == 2
        assert one.first_gone is None

    def test_some_at_a_time(self) -> None:
        one = table()
        for name in ("~a", "~b", "~c"):
            one.leave(opened(one, name), 0)

        assert one.forget_gone(9, 2) == ["~a", "~b"]
        assert one.forget_gone(9, 2) == ["~c"]

    def test_one_with_a_session_stays(self) -> None:
        one = table()
        one.leave(opened(one, "~a"), 0)
        opened(one, "~a")

        assert one.forget_gone(1 << 60, 10) == []

    def test_after_a_start_no_session_is_left(self) -> None:
        publisher = opened(table(), "~a")
        one = PublisherTable({"~a": publisher.row, "ann": publisher.row}, 0)
        one.begin(5)

        assert one.forget_gone(4, 10) == []
        assert one.forget_gone(5, 10) == ["~a"]

    def test_one_with_a_pending_batch_stays(self) -> None:
        one = table()
        publisher = opened(one, "~a")
        append(publisher)
        one.leave(publisher, 0)

        assert one.forget_gone(1, 10) == []
        one.on_durable(publisher.pending[0])
        assert one.forget_gone(1, 10) == ["~a"]

    def test_who_is_longest_gone_gives_way_and_nobody_else(self) -> None:
        one = table()
        for now, name in enumerate(["~live", "ann", "~a", "~b"]):
            publisher = opened(one, name)
            if name in {"~a", "~b"}:
                one.leave(publisher, now)

        assert one.unnamed == 3
        assert [one.give_way() for _ in range(3)] == ["~a", "~b", None]
        assert (len(one), one.unnamed) == (2, 1)

    def test_one_that_is_forgotten_and_comes_back_gets_an_epoch_of_its_own(self) -> None:
        """A rival that slept through all this still has the old epoch, and is fenced."""
        one = table()
        publisher = opened(one, "~a")
        assert one.forget(publisher)

        assert term_of(opened(one, "~a").epoch) > term_of(publisher.epoch)

    def test_its_records_without_its_row_are_passed_over(self) -> None:
        """T21: the row is durable before the first batch, so where there is none it was deleted."""
        one = table()

        assert one.replay("~a", epoch(7), LoggedBatch(5, at(1000), 3, 5), with_holes=False)
        assert (one.get("~a"), len(one), one.changed) == (None, 0, 0)
        assert opened(one).epoch == epoch(8)

    def test_nor_do_they_belong_to_one_that_came_back_under_its_name(self) -> None:
        """T21: it began anew, and its sequences with it."""
        publisher = opened(table(), "~a")
        one = PublisherTable({"~a": publisher.row}, epoch(9))
        publisher = opened(one, "~a", instance="another")
        one = PublisherTable({"~a": publisher.row}, epoch(10))

        assert one.replay("~a", epoch(1), LoggedBatch(7, at(1000), 3, 5), with_holes=False)
        assert one.replay("~a", publisher.epoch, LoggedBatch(1, at(1001), 3, 5), with_holes=False)
        back = one.get("~a")
        assert back is not None
        assert (back.sequence, back.owner(1)) == (3, 10)


def test_a_batch_below_the_last_one_of_its_publisher_is_noticed() -> None:
    one = table()
    publisher = opened(one)
    one.on_durable(append(publisher, ms=2000))

    with pytest.raises(AssertionError, match="ticks ascend"):
        publisher.log(publisher.epoch, LoggedBatch(2, at(1000), 1, 99))
