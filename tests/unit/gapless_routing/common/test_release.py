"""Minima of progress: never more than every SHB has really done (protocol: minima; C4, T20, T48)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gapless.core.network.facts import Progress
from gapless.core.network.release import Minima
from gapless_routing.common.release import ReleaseTable

SHBS = ("a", "b", "c")


def progress(shb: str, released: int, delivered: int) -> Progress:
    return Progress(shb, "p@1", released, delivered)


# --------------------------------------------------------------------------------------- at the pubend

rows = st.tuples(st.sampled_from(SHBS), st.integers(0, 9), st.integers(0, 9))
steps = st.lists(
    st.one_of(
        rows.map(lambda row: ("report", row)),
        st.sampled_from(SHBS).map(lambda shb: ("enrol", shb)),
        st.sets(st.sampled_from(SHBS)).map(lambda shbs: ("members", tuple(sorted(shbs)))),
        st.just(("take", None)),
    ),
    max_size=25,
)


@given(steps)
def test_the_minima_are_over_all_members_and_never_fall(steps: list[tuple[str, object]]) -> None:
    table = ReleaseTable()
    heard: dict[str, list[Minima]] = {}
    said = [Minima(-1, -1)]
    for step, what in steps:
        match step, what:
            case "report", (str(shb), int(released), int(further)):
                table.report(progress(shb, released, released + further))
                if shb in heard:
                    heard[shb].append(Minima(released, released + further))
            case "enrol", str(shb):
                table.enrol(shb)
                heard[shb] = []
            case "members", tuple(members):
                table.replace_members(members)
                heard = {shb: [] for shb in members}
            case "take", _:
                risen = table.take_risen()
                if risen is not None:
                    assert risen == table.minima() != said[-1]
                    assert (risen.released, risen.delivered) >= said[-1]
                    assert risen.delivered >= said[-1].delivered
                    said.append(risen)

                assert table.take_risen() is None, "what was said is not said again"

        complete = bool(heard) and all(heard.values())
        assert set(table.members) == set(heard)
        assert (table.minima() is not None) == complete
        if complete:
            assert table.minima() == Minima(
                min(max(row.released for row in rows) for rows in heard.values()),
                min(max(row.delivered for row in rows) for rows in heard.values()),
            )


def test_nothing_is_said_before_every_member_was_heard() -> None:
    table = ReleaseTable(["a", "b"])
    table.report(progress("a", 5, 7))

    assert table.take_risen() is None

    table.report(progress("b", 3, 9))

    assert table.take_risen() == Minima(3, 7)
    assert table.take_risen() is None


def test_a_retired_shb_no_longer_holds_the_others_back() -> None:
    """T10."""
    table = ReleaseTable(["a", "b"])
    table.report(progress("a", 50, 70))
    table.report(progress("b", 3, 9))
    table.replace_members(["a"])
    table.report(progress("a", 50, 70))

    assert table.take_risen() == Minima(50, 70)


def test_what_was_said_never_falls() -> None:
    """An SHB that comes back after it was retired is behind what was released without it (T10)."""
    table = ReleaseTable(["a"])
    table.report(progress("a", 50, 70))

    assert table.take_risen() == Minima(50, 70)

    table.enrol("b")
    table.report(progress("b", 3, 90))

    assert table.minima() == Minima(3, 70)
    assert table.take_risen() is None

    table.report(progress("a", 60, 95))
    table.report(progress("b", 49, 95))

    assert table.take_risen() is None, "neither half of it may fall"

    table.report(progress("b", 50, 95))

    assert table.take_risen() == Minima(50, 95)


def test_without_members_nothing_is_released() -> None:
    assert ReleaseTable().minima() is None
