"""What is known of publishers (algorithms.md 1.4 pubtab)."""

from __future__ import annotations

import pytest

from gapless.core.columns import EventColumns
from gapless.core.ticks import STEP
from gapless_phb.core.publishers import WINDOW, Batch, Batched, Publisher, PublisherTable, runs_of
from unit.gapless_phb.harness import at, columns


def table() -> PublisherTable:
    return PublisherTable({}, 0)


def opened(one: PublisherTable, name: str = "ann", at_ms: int = 1000) -> Publisher:
    return one.open(name, "instance", 1, at(at_ms))


def append(publisher: Publisher, count: int = 1, ms: int = 1000) -> Batch:
    events: EventColumns = columns([b"x"] * count)
    batch = Batch(publisher, publisher.assigned + 1, at(ms), events, [], 99, "reply")
    publisher.pending.append(batch)
    return batch


def test_each_opening_is_a_new_epoch() -> None:
    one = table()

    assert [opened(one).epoch, opened(one).epoch, opened(one, "bob").epoch, opened(one).epoch] == [1, 2, 3, 4]


def test_an_opening_that_is_not_newer_is_the_same_opening() -> None:
    publisher = table().open("ann", "a", 5, at(1000))

    assert publisher.is_same_opening("a", 5)
    assert publisher.is_same_opening("a", 4)
    assert not publisher.is_same_opening("a", 6)
    assert not publisher.is_same_opening("b", 5)


def test_t44_a_row_holds_durable_sequences_only() -> None:
    """A pending batch may fail; a row that counted it would make its retry look like a duplicate."""
    one = table()
    publisher = opened(one)
    first, second = append(publisher, 3), append(publisher, 2, ms=1001)
    one.land(first)

    assert (publisher.assigned, publisher.sequence) == (5, 3)
    assert publisher.row.sequence == 3
    assert publisher.row.tick == at(1000, 2)
    again = Publisher.restored("ann", publisher.row)
    assert (again.find_logged(1), again.find_logged(4)) == (Batched(1, at(1000), 3, 99), None)
    one.land(second)
    assert publisher.row.sequence == 5


def test_batches_are_found_by_their_first_sequence() -> None:
    one = table()
    publisher = opened(one)
    first, second = append(publisher, 3), append(publisher, 2, ms=1001)
    one.land(first)

    assert publisher.find_logged(1) == Batched(1, at(1000), 3, 99)
    assert publisher.find_logged(2) is None
    assert publisher.find_pending(4) is second
    assert [(run.first, run.step, run.count) for run in runs_of(second)] == [(at(1001), STEP, 2)]


def test_the_window_is_bounded() -> None:
    one = table()
    publisher = opened(one)
    for _ in range(WINDOW + 10):
        one.land(append(publisher))

    assert publisher.known_from == 11
    assert publisher.find_logged(10) is None
    assert publisher.find_logged(11) is not None


def test_a_table_comes_back_from_its_rows() -> None:
    one = table()
    publisher = opened(one)
    one.land(append(publisher, 3))
    rows = {name: one_row.row for name in ("ann",) if (one_row := one.get(name))}

    again = PublisherTable(rows, epochs=40)

    back = again.get("ann")
    assert back is not None
    assert back.row == publisher.row
    assert opened(again, "bob").epoch == 41


def test_replay_takes_what_follows_skips_what_is_known_and_sees_what_is_missing() -> None:
    one = table()
    opened(one)

    assert one.replay("ann", 1, Batched(1, at(1000), 3, 5))
    assert one.replay("ann", 1, Batched(1, at(1000), 3, 5))
    assert not one.replay("ann", 1, Batched(5, at(1001), 1, 5))
    assert one.replay("ann", 1, Batched(4, at(1001), 1, 5))
    assert not one.replay("bob", 1, Batched(2, at(1002), 1, 5))


def test_changed_rows_are_taken_oldest_first_and_once() -> None:
    one = table()
    for name in ("ann", "bob", "cid"):
        one.land(append(opened(one, name)))

    assert [publisher.name for publisher in one.take_changed(2)] == ["ann", "bob"]
    assert one.changed == 1
    assert [publisher.name for publisher in one.take_changed(9)] == ["cid"]


class TestForgetting:
    """Only publishers without a name of their own, only long after their last use (T21)."""

    def test_the_longest_unused_go_first_and_named_ones_never(self) -> None:
        one = table()
        for ms, name in enumerate(["~a", "ann", "~b", "~c"], start=1000):
            opened(one, name, ms)
        opened(one, "~a", 1004)

        assert one.forget(at(1002), at(9999), 10) == ["~b"]
        assert one.forget(at(9999), at(9999), 10) == ["~c", "~a"]
        assert one.get("ann") is not None
        assert len(one) == 1

    def test_some_at_a_time(self) -> None:
        one = table()
        for name in ("~a", "~b", "~c"):
            opened(one, name)

        assert one.forget(at(9999), at(9999), 0) == []
        assert one.forget(at(9999), at(9999), 2) == ["~a", "~b"]

    def test_publishing_is_use(self) -> None:
        one = table()
        publisher = opened(one, "~a")
        opened(one, "~b", 1001)
        one.land(append(publisher, ms=2000))

        assert one.has_forgettable(at(1500))
        assert one.forget(at(1500), at(9999), 10) == ["~b"]
        assert not one.has_forgettable(at(1500))

    @pytest.mark.parametrize("covered", [at(999), at(1000)])
    def test_t21_a_publisher_stays_until_a_checkpoint_covers_its_records(self, covered: int) -> None:
        one = table()
        one.land(append(opened(one, "~a")))

        assert one.forget(at(9999), covered, 10) == (["~a"] if covered == at(1000) else [])

    def test_one_with_a_pending_batch_stays(self) -> None:
        one = table()
        append(opened(one, "~a"))

        assert one.forget(at(9999), at(9999), 10) == []

    def test_one_that_is_forgotten_and_comes_back_gets_an_epoch_of_its_own(self) -> None:
        """A twin that slept through all this still has the old epoch, and is fenced."""
        one = table()
        before = opened(one, "~a").epoch
        one.forget(at(9999), at(9999), 10)

        assert opened(one, "~a").epoch > before
