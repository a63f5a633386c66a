"""Cutting and joining knowledge: nothing is said that was not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gapless.core.stream.knowledge import Knowledge, KnowledgeStream
from gapless.core.stream.stamps import RAW, Stamp
from gapless_sim.hostile.pieces import joined, part
from unit.gapless_sim.hostile.parts import P, events, knowledge

stamps = st.none() | st.dictionaries(st.sampled_from(("a", "b")), st.integers(0, 3))


@st.composite
def pieces(draw: st.DrawFn) -> tuple[Knowledge, Knowledge]:
    """Two that touch; all that one calls lost lies at its beginning, or before it."""
    lo, middle, hi = sorted(draw(st.sets(st.integers(0, 30), min_size=3, max_size=3)))

    def piece(lo: int, hi: int) -> Knowledge:
        count = draw(st.integers(0, hi - lo))
        return Knowledge(P, lo, hi, events(*"a" * count, first=lo + 1), draw(st.integers(0, hi)), draw(stamps))

    return piece(lo, middle), piece(middle, hi)


def meaning(*said: Knowledge) -> dict[tuple[int, str], str]:
    """What each tick is to whoever needs no filter, and to whoever needs some."""
    found: dict[tuple[int, str], str] = {}
    needs: dict[str, Stamp] = {"raw": RAW, "a": {"a": 2}, "b": {"b": 1}, "none": {}}
    for one in said:
        for name, need in needs.items():
            known = KnowledgeStream(P)
            known.accumulate(one)
            for tick in range(one.lo + 1, one.hi + 1):
                kind = "D" if tick in one.data.ticks else "L" if known.lost_in(tick - 1, tick, need) else "S"
                unknown = known.unknown(tick - 1, tick, need)
                found[tick, name] = "Q" if unknown else kind
    return found


@given(pieces())
def test_joined_is_never_more_than_both(two: tuple[Knowledge, Knowledge]) -> None:
    whole = joined(*two)
    if whole is None:
        assert two[1].lost > two[1].lo
        return
    assert (whole.lo, whole.hi) == (two[0].lo, two[1].hi)
    said = meaning(*two)
    for place, kind in meaning(whole).items():
        assert kind in (said[place], "Q")


@given(pieces(), st.data())
def test_parts_say_what_the_whole_says(two: tuple[Knowledge, Knowledge], data: st.DataObject) -> None:
    whole = two[0]
    cut = data.draw(st.integers(whole.lo, whole.hi))
    parts = [part(whole, lo, hi) for lo, hi in ((whole.lo, cut), (cut, whole.hi)) if lo < hi]

    assert meaning(*parts) == meaning(whole)


@pytest.mark.parametrize(
    "second",
    [
        knowledge(21, 30),
        replace(knowledge(20, 30), reply=True),
        replace(knowledge(20, 30), pubend="q@1"),
        replace(knowledge(20, 30), lost=25),
    ],
    ids=["a hole", "an answer", "another pubend", "lost ticks of its own"],
)
def test_what_is_not_joined(second: Knowledge) -> None:
    assert joined(knowledge(10, 20), knowledge(20, 30)) is not None
    assert joined(knowledge(10, 20), second) is None
