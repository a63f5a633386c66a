"""Minima of progress: never more than every SHB has really done (protocol: minima; C4, T20, T48)."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapless.core.network.facts import Progress
from gapless.core.network.release import Minima, ReleaseTable

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


@settings(max_examples=300)
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


def test_a_new_member_is_waited_for_although_it_reported_before_it_was_one() -> None:
    """What it reported before it was counted may be of another life (T20)."""
    table = ReleaseTable(["a"])
    table.report(progress("a", 5, 7))
    table.report(progress("b", 9, 9))
    table.enrol("b")

    assert table.minima() is None


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


# ---------------------------------------------------- T48 as a whole: root, one broker, two SHBs that come and go


def released_too_much(seed: int, *, minima_on_the_way: bool = False) -> tuple[bool, bool]:
    """Whether the root ever released more than an SHB had, and whether it released anything.

    The broker on the way hands on the row of each SHB; or, as it was wrong, the minimum over those that it has heard.
    """
    random = Random(seed)
    done = {"h1": 0, "h2": 0}
    up = {"h1": True, "h2": random.random() < 0.5}
    middle: dict[str, int] = {}
    root, released = ReleaseTable(done), 0
    frames: list[tuple[int, int, Callable[[], None]]] = []

    def send(now: int, handler: Callable[[], None]) -> None:
        if random.random() >= 0.1:
            heapq.heappush(frames, (now + random.randint(1, 4), random.getrandbits(62), handler))

    def on_progress(now: int, shb: str, at: int) -> None:
        middle[shb] = max(at, middle.get(shb, 0))
        rows = dict.fromkeys(done, min(middle.values())) if minima_on_the_way else {shb: middle[shb]}
        for row in [progress(shb, at, at) for shb, at in rows.items()]:
            send(now, lambda row=row: root.report(row))  # type: ignore[misc]

    for now in range(300):
        while frames and frames[0][0] <= now:
            heapq.heappop(frames)[2]()
        for shb in ("h1", "h2"):
            up[shb] ^= random.random() < 0.02
            if up[shb]:
                done[shb] = min(now, done[shb] + (random.randint(0, 8) if random.random() < 0.3 else 0))
                if now % 5 == 0:
                    send(now, lambda shb=shb, at=done[shb], now=now: on_progress(now, shb, at))  # type: ignore[misc]
        if random.random() < 0.01:
            middle.clear()
        root = ReleaseTable(done) if random.random() < 0.01 else root
        if (known := root.minima()) is not None:
            released = max(released, known.released)
        if released > min(done.values()):
            return True, True
    return False, released > 0


@pytest.mark.parametrize("start", [0, 100, 200])
def test_nothing_is_released_that_an_shb_needs(start: int) -> None:
    runs = [released_too_much(seed) for seed in range(start, start + 100)]

    assert not any(wrong for wrong, _ in runs)
    assert sum(any_released for _, any_released in runs) > 50, "in most runs something is released at all"


def test_a_minimum_that_is_taken_on_the_way_releases_what_an_shb_needs() -> None:
    """Else the test above would see nothing."""
    assert any(released_too_much(seed, minima_on_the_way=True)[0] for seed in range(100))
