"""The window of a shared subscription: what is settled, where floor and frontier are, and which rows there are."""

from __future__ import annotations

from random import Random

import pytest
from msgspec.msgpack import encode

from gapless.core.ports import Delete, Operation, Set
from gapless.core.stream.columns import EventBatch
from gapless.core.stream.events import encode_event
from gapless.core.wire.messages import GapReason
from gapless_shb.core.shared.window import (
    CHUNK,
    CHUNKS,
    SMALL,
    SPARSE_CHUNKS,
    WINDOWS,
    Chunk,
    Run,
    Window,
    WindowRow,
    split_chunk_key,
)
from gapless_shb.core.state.segments import GapSegment

PUBEND = "p@1"


def batch(*ticks: int, priority: int = 4, size: int = 10) -> EventBatch:
    from gapless.core.stream.events import Extras

    extras = None if priority == 4 else Extras(priority=priority)
    events = [encode_event("t", {"n": tick}, extras, b"x" * size) for tick in ticks]
    return EventBatch(list(ticks), events, [size] * len(ticks))


def filled(count: int, step: int = 10) -> Window:
    """A window with so many events."""
    window = Window(PUBEND, 5)
    window.put(batch(*range(10, 10 + step * count, step)))
    return window


def settle(window: Window, *ticks: int) -> None:
    """Events that somebody holds are settled."""
    for tick in ticks:
        found = window.find(tick)
        assert found is not None
        chunk, place = found
        window.hold(chunk, 1 << place)
        window.settle(chunk, 1 << place)


def unsettled(window: Window) -> list[int]:
    return [tick for chunk in window for at, tick in enumerate(chunk.ticks) if chunk.unsettled >> at & 1]


class Rows:
    """What is durable of a window."""

    def __init__(self) -> None:
        self.chunks: dict[int, bytes] = {}
        self.window: bytes = b""

    def apply(self, operations: list[Operation]) -> None:
        for operation in operations:
            assert isinstance(operation, Set | Delete)
            if operation.table == WINDOWS:
                assert isinstance(operation, Set)
                self.window = operation.value
                continue
            sid, first, pubend = split_chunk_key(operation.key)
            assert (operation.table, sid, pubend) == (CHUNKS, 7, PUBEND)
            if isinstance(operation, Set):
                self.chunks[first] = operation.value
            else:
                del self.chunks[first]

    def restored(self) -> Window:
        if not self.window:
            return Window(PUBEND, 5)
        return Window.restored(PUBEND, self.window, sorted(self.chunks.items()))


def test_what_is_put_in_is_ready_and_the_floor_stays_below_it() -> None:
    window = filled(300)

    assert (window.count, window.frontier, window.floor) == (300, 3000, 5)
    assert [len(chunk.ticks) for chunk in window] == [CHUNK, 300 - CHUNK]
    found = window.next_ready(hidden=False)
    assert found is not None
    chunk, mask = found
    assert chunk.ticks[0] == 10
    assert mask == (1 << CHUNK) - 1
    assert list(chunk.batch(0b101).ticks) == [10, 30]


def test_the_floor_follows_what_is_settled_without_a_hole() -> None:
    window = filled(300)

    settle(window, 20, 30)
    assert window.floor == 5
    settle(window, 10)
    assert window.floor == 30
    settle(window, *range(50, 2600, 10))
    assert window.floor == 30
    settle(window, 40)
    assert window.floor == 2590
    settle(window, *range(2600, 3010, 10))
    assert (window.count, window.size, window.floor) == (0, 0, 3000)


def test_a_chunk_in_which_all_is_settled_has_no_row() -> None:
    """One stuck event of many keeps one row (TS24)."""
    rows, window = Rows(), Window(PUBEND, 5)
    for start in range(40):
        ticks = range(10 + start * 1000, 10 + start * 1000 + 1000, 10)
        window.put(batch(*ticks))
        settle(window, *(tick for tick in ticks if tick != 10))
        rows.apply(window.rows(7))

    assert unsettled(window) == [10]
    assert len(rows.chunks) == 1
    assert unsettled(rows.restored()) == [10]
    settle(window, 10)
    rows.apply(window.rows(7))
    assert not rows.chunks
    assert rows.restored().frontier == window.frontier


def test_what_was_passed_by_the_frontier_has_a_row() -> None:
    """Else no row would mean that it is settled (TS25)."""
    rows, window = Rows(), filled(3 * CHUNK)

    settle(window, 10 + 10 * 2 * CHUNK)
    rows.apply(window.rows(7))

    assert len(rows.chunks) == 3
    assert unsettled(rows.restored()) == unsettled(window)


def test_what_nobody_touched_is_not_written() -> None:
    rows, window = Rows(), filled(3 * CHUNK)

    assert window.rows(7) == []
    settle(window, 10)
    rows.apply(window.rows(7))

    assert len(rows.chunks) == 1
    back = rows.restored()
    assert back.frontier == 10 * CHUNK
    back.put(batch(*range(10 + 10 * CHUNK, 10 + 30 * CHUNK, 10)))
    assert unsettled(back) == unsettled(window)


def test_a_chunk_that_grows_after_it_was_written_is_written_again() -> None:
    rows, window = Rows(), filled(4)
    settle(window, 20)
    rows.apply(window.rows(7))
    window.put(batch(100, 110))
    settle(window, 110)
    rows.apply(window.rows(7))

    assert unsettled(rows.restored()) == unsettled(window) == [10, 30, 40, 100]


def test_what_a_chunk_with_a_row_has_got_since_is_not_put_in_again_after_a_crash() -> None:
    """The row of a chunk goes as far as the chunk does, so the frontier that is written with it has to as well."""
    rows, window = Rows(), filled(CHUNK + 2)
    rows.apply(window.rows(7, everything=True))
    grown = batch(10 * (CHUNK + 3), 10 * (CHUNK + 4))
    window.put(grown)
    settle(window, 20)
    rows.apply(window.rows(7))

    back = rows.restored()
    assert back.frontier == 10 * (CHUNK + 4)
    back.put(grown)
    assert unsettled(back) == unsettled(window)


def test_events_out_of_order_are_not_put_in() -> None:
    window = filled(3)
    window.frontier = 15

    with pytest.raises(AssertionError, match="in their order"):
        window.put(batch(20, 30))


@pytest.mark.parametrize(
    ("frontier", "chunks"),
    [(30, [Chunk(0, [10, 20, 20])]), (30, [Chunk(0, [10, 20]), Chunk(20, [20, 30])]), (20, [Chunk(0, [10, 20, 30])])],
)
def test_rows_that_cannot_be_are_not_read_back(frontier: int, chunks: list[Chunk]) -> None:
    row = encode(WindowRow(0, frontier))
    kept = [(chunk.ticks[0], chunk.row()) for chunk in chunks]

    with pytest.raises(AssertionError, match=r"ascend|frontier"):
        Window.restored(PUBEND, row, kept)


def test_attempts_and_deaths_are_durable() -> None:
    rows, window = Rows(), filled(3)
    chunk = next(iter(window))
    window.hold(chunk, 0b111)
    window.attempt(chunk, 0b011)
    window.attempt(chunk, 0b001)
    run = Run(None, window, chunk, 1, range(3), (10, 20, 30), 0b111, taken=0b011)
    window.free(run, 0b111, doubt=True, death=True, verdict=False)
    rows.apply(window.rows(7))

    [back] = list(rows.restored())
    assert back.attempts == {0: 2, 1: 1}
    assert (back.attempted, back.deaths) == (0b011, 0b011)
    assert chunk.ended == {0: 1, 1: 2, 2: 3}
    assert window.next_suspect(hidden=False) == (chunk, 0b001)
    found = window.next_ready(hidden=False)
    assert found == (chunk, 0b100), "what travels alone is not among the others"
    assert window.next_ready(hidden=True) is None


def test_what_is_restored_has_to_be_fetched_and_nothing_else_is_taken() -> None:
    rows, window = Rows(), filled(6)
    settle(window, 20, 50)
    rows.apply(window.rows(7))
    back = rows.restored()
    back.begin_in_doubt(30)

    assert back.next_ready(hidden=False) is None
    assert back.missing(0, 10) == [10, 30, 40, 60]
    assert back.missing(10, 2) == [30, 40]
    back.put(batch(10, 20, 30, 60, 70))
    assert back.missing(0, 10) == [40]
    assert unsettled(back) == [10, 30, 40, 60, 70]
    chunk = next(iter(back))
    assert list(chunk.batch(0b101).ticks) == [10, 30]
    assert chunk.doubt == 0b000101
    back.give_up(60)
    assert unsettled(back) == [10, 30, 60, 70], "it has expired meanwhile"


def test_what_is_put_in_below_the_doubt_is_in_doubt() -> None:
    window = Window(PUBEND, 5)
    window.begin_in_doubt(20)
    window.put(batch(10, 20, 30))
    window.put_gap(GapSegment(30, 40, GapReason.CUT))

    assert next(iter(window)).doubt == 0b011


def test_a_gap_is_an_entry_like_an_event() -> None:
    window = filled(2)
    window.put_gap(GapSegment(25, 60, GapReason.RELEASED_EARLY))
    window.put(batch(70))
    assert unsettled(window) == [10, 20, 60, 70]

    settle(window, 10, 20)
    assert window.floor == 20
    settle(window, 60)
    assert window.floor == 60


def test_lost_events_below_the_frontier_become_gaps() -> None:
    rows, window = Rows(), filled(3)
    settle(window, 20)
    rows.apply(window.rows(7))
    back = rows.restored()

    back.put_gap(GapSegment(5, 30, GapReason.CUT))

    assert back.missing(0, 10) == []
    assert sorted(next(iter(back)).gaps) == [0, 2]


def test_expedited_events_go_first() -> None:
    window = filled(300)
    window.put(batch(5000, priority=9))

    found = window.next_ready(hidden=False)
    assert found is not None
    chunk, mask = found
    assert list(chunk.batch(mask).ticks) == [5000]
    window.hold(chunk, mask)
    found = window.next_ready(hidden=False)
    assert found is not None
    assert found[0].ticks[0] == 10


def test_delayed_events_are_not_ready_before_their_time() -> None:
    window = filled(2)
    chunk = next(iter(window))
    window.hold(chunk, 0b01)
    window.delay(chunk, 0b01)
    assert window.next_ready(hidden=False) == (chunk, 0b10)
    window.end_delay(chunk, 0b01)
    assert window.next_ready(hidden=False) == (chunk, 0b11)


def test_the_bytes_of_what_is_settled_are_let_go() -> None:
    """Not at once, for most chunks are settled soon; but of so many chunks at most they are kept."""
    chunks = SPARSE_CHUNKS + 8
    window = filled(chunks * CHUNK)
    settle(window, *(tick for tick in range(10, 10 + 10 * chunks * CHUNK, 10) if (tick - 10) % (10 * CHUNK)))

    first, *_, last = window
    assert first.kept == sum(len(events) for _, events in first.pieces) < 4
    assert list(first.batch(1).ticks) == [10]
    assert first.size > 0
    assert last.kept == CHUNK
    assert sum(chunk.kept == CHUNK for chunk in window) == SPARSE_CHUNKS
    assert window.size == sum(chunk.size for chunk in window)


def test_the_bytes_of_large_events_that_are_settled_are_let_go_at_once() -> None:
    window = Window(PUBEND, 0)
    window.put(batch(*range(1, CHUNK + 1), size=SMALL))
    settle(window, *range(2, CHUNK + 1))

    (chunk,) = window
    assert chunk.kept == sum(len(events) for _, events in chunk.pieces) < 4


@pytest.mark.parametrize("seed", range(40))
def test_whatever_is_written_nothing_settled_comes_again_and_nothing_is_lost(seed: int) -> None:
    """Writes become durable in order, and a crash keeps a prefix of them."""
    random, rows = Random(seed), Rows()
    most, made = 700, 0
    window = rows.restored()
    queue: list[tuple[list[Operation], set[int]]] = []
    settled: set[int] = set()
    durable: set[int] = set()
    log = [10 * (at + 1) for at in range(most)]
    for _ in range(500):
        chance = random.random()
        left = unsettled(window)
        if chance < 0.3 and len(left) < 400:
            more = [tick for tick in log if tick > window.frontier][: random.randint(1, 90)]
            if more:
                window.put(batch(*more))
                made = max(made, more[-1])
        elif chance < 0.55 and left:
            chosen = random.sample(left, min(len(left), random.randint(1, 120)))
            settle(window, *chosen)
            settled.update(chosen)
        elif chance < 0.75:
            queue.append((window.rows(7, everything=random.random() < 0.2), set(settled)))
        elif chance < 0.95 and queue:
            operations, which = queue.pop(0)
            rows.apply(operations)
            durable |= which
        elif chance > 0.97:
            for operations, which in queue[: random.randint(0, len(queue))]:
                rows.apply(operations)
                durable |= which
            queue.clear()
            window = rows.restored()
            settled = set(durable)
        ticks = [tick for chunk in window for tick in chunk.ticks]
        assert ticks == sorted(set(ticks)), "each is there once, in order"
        assert not durable & set(unsettled(window)), "it comes again"
        assert len(rows.chunks) <= max(1, len(log))
        known = {tick for tick in log if tick <= window.frontier}
        assert known <= settled | set(unsettled(window)), "it is lost"
    assert window.floor <= window.frontier


def test_a_row_holds_ticks_however_far_apart_they_are() -> None:
    chunk = Chunk(3, [5, 1 << 61, (1 << 62) - 1])
    back = Chunk.restored(5, chunk.row())
    assert (back.ticks, back.below, back.idle) == (chunk.ticks, 3, 0b111)
