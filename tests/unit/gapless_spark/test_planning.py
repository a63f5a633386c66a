"""Which task reads what."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gapless_spark.planning import Range, plan

POSITIONS = st.dictionaries(st.sampled_from(["a@1", "b@1", "c@1"]), st.integers(0, 1 << 62))


def test_one_task_for_each_pubend_with_anything_new() -> None:
    ends = {"b@1": 9, "a@1": 5, "c@1": 3, "new@1": 8, "later@1": 2}

    assert plan({"a@1": 1, "b@1": 2, "c@1": 3}, ends, {"new@1": 6}) == [
        Range("a@1", 1, 5),
        Range("b@1", 2, 9),
        Range("later@1", 0, 2),
        Range("new@1", 6, 8),
    ]


def test_tasks_are_shared_by_how_wide_ranges_are() -> None:
    assert plan({"a@1": 0, "b@1": 0}, {"a@1": 300, "b@1": 100}, {}, 4) == [
        Range("a@1", 0, 100),
        Range("a@1", 100, 200),
        Range("a@1", 200, 300),
        Range("b@1", 0, 100),
    ]


def test_nothing_between_is_no_task() -> None:
    assert plan({"a@1": 5}, {"a@1": 5}, {}, 4) == []
    assert plan({}, {}, {}) == []


@given(POSITIONS, POSITIONS, st.integers(0, 40))
def test_all_of_it_is_read_once(start: dict[str, int], end: dict[str, int], tasks: int) -> None:
    ranges = plan(start, end, {}, tasks)

    assert ranges == plan(dict(reversed(start.items())), dict(reversed(end.items())), {}, tasks), "it is not pure"
    for pubend, tick in end.items():
        at = begin = start.get(pubend, 0)
        for part in [part for part in ranges if part.pubend == pubend]:
            assert part.start == at < part.end
            at = part.end
        assert at == max(begin, tick)
    assert len(ranges) <= tasks + 2 * len(end)
