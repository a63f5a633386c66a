"""What a disk in memory is made of: changes that can be taken back, in the opposite order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gapless_storage._memory import Content, Records, Rows, UndoLog

steps = st.lists(
    st.one_of(st.tuples(st.just("put"), st.integers(1, 9)), st.tuples(st.just("chop"), st.integers(0, 99)))
)


def take_back(batch: UndoLog) -> None:
    """Undoes a batch, the last change first."""
    for undo, value in reversed(batch.undos):
        undo(value)


@given(steps, steps)
def test_a_batch_that_is_taken_back_was_never_there(
    before: list[tuple[str, int]], after: list[tuple[str, int]]
) -> None:
    """Records, chop point, size and what could be reclaimed are as they were."""
    log = Records()

    def run(changes: list[tuple[str, int]], batch: UndoLog) -> None:
        for kind, value in changes:
            if kind == "put":
                log.put((log.last + value, b"x" * value), batch)
            else:
                log.chop(min(value, log.last), batch)

    def seen() -> tuple[object, ...]:
        return log.first, log.last, log.size, log.chopped_bytes, log.read(0, 10_000, 1 << 20)

    run(before, UndoLog())
    earlier = seen()
    batch = UndoLog()
    run(after, batch)
    take_back(batch)

    assert seen() == earlier


@given(st.lists(st.tuples(st.binary(max_size=2), st.none() | st.binary(max_size=2))))
def test_rows_are_a_sorted_map(changes: list[tuple[bytes, bytes | None]]) -> None:
    """Checked against a dict; and taken back they are empty again."""
    rows, model, batch = Rows(), dict[bytes, bytes](), UndoLog()
    for key, value in changes:
        rows.change((key, value), batch)
        model.pop(key, None)
        if value is not None:
            model[key] = value
        assert rows.scan(b"") == sorted(model.items())
        assert rows.scan(b"\0") == sorted((k, v) for k, v in model.items() if k.startswith(b"\0"))

    take_back(batch)

    assert rows.scan(b"") == []


def test_reclaiming_lets_go_of_what_is_durably_chopped_and_nothing_else() -> None:
    log = Records()
    for index in range(1, 11):
        log.put((index, b"x" * 10), UndoLog())
    log.chop(6, UndoLog())
    assert log.reclaim() == 0

    log.settled = 4

    assert log.reclaim() == 40
    assert [index for index, _ in log.read(0, 100, 1 << 20)] == [7, 8, 9, 10]


def test_what_happens_to_a_copy_does_not_happen_to_the_original() -> None:
    content = Content({"s": Records()}, {"t": Rows()})
    content.logs["s"].put((1, b"one"), UndoLog())
    content.rows["t"].change((b"key", b"value"), UndoLog())
    content.logs["s"].chop(1, UndoLog())
    copied = content.copy()
    copied.logs["s"].put((2, b"two"), UndoLog())
    copied.rows["t"].change((b"key", None), UndoLog())

    assert (content.logs["s"].last, content.rows["t"].scan(b"")) == (1, [(b"key", b"value")])
    assert (copied.logs["s"].first, copied.logs["s"].size, copied.rows["t"].scan(b"")) == (1, 3, [])
    assert copied.logs["s"].reclaim() == 3, "a copy is durable, and so is its chop point"
    assert content.logs["s"].reclaim() == 0
