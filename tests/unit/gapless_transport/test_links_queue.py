from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gapless_transport.links import SendQueue

puts = st.lists(st.tuples(st.integers(1, 30), st.booleans()))


@given(puts, st.integers(1, 60))
def test_everything_leaves_in_order_urgent_first(items: list[tuple[int, bool]], room: int) -> None:
    outbox: SendQueue[tuple[int, int]] = SendQueue()
    for number, (size, urgent) in enumerate(items):
        outbox.put((number, size), size, urgent=urgent)
    left: list[list[tuple[int, int]]] = []
    while outbox:
        left.append(outbox.take(room))

    ordered = sorted(enumerate(items), key=lambda item: not item[1][1])
    assert [item for batch in left for item in batch] == [(number, size) for number, (size, _) in ordered]
    assert all(len(batch) == 1 or sum(size for _, size in batch) <= room for batch in left)
    assert outbox.size == 0
    assert outbox.take(room) == []


@given(puts, st.integers(1, 60))
def test_its_size_is_that_of_what_waits(items: list[tuple[int, bool]], room: int) -> None:
    outbox: SendQueue[int] = SendQueue()
    for size, urgent in items:
        outbox.put(size, size, urgent=urgent)
    total = sum(size for size, _ in items)

    assert outbox.size == total
    assert sum(outbox.take(room)) == total - outbox.size
    outbox.clear()
    assert (outbox.size, bool(outbox)) == (0, False)


def test_what_is_urgent_later_overtakes_what_waited() -> None:
    outbox: SendQueue[str] = SendQueue()
    for item in ("data 1", "data 2", "data 3"):
        outbox.put(item, 10)

    assert outbox.take(10) == ["data 1"]
    outbox.put("urgent", 10, urgent=True)
    assert outbox.take(20) == ["urgent", "data 2"]
