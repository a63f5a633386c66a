"""A release waits for every member, and is never above what each reported."""

from __future__ import annotations

import pytest

from gapless.core.network.facts import Enrolled, FrameArrived, Opened, Wake
from gapless_testing.routing.breaches import Clause
from unit.gapless_testing.routing.seam import PUBEND, Seam, breaks


@pytest.fixture
def seam() -> Seam:
    """A pubend that counts s and t."""
    seam = Seam()
    seam.open({"s": 0, "t": 0})
    return seam


@pytest.mark.parametrize(("released", "delivered"), [(6, 7), (5, 8), (9, 9)])
def test_above_the_minima(seam: Seam, released: int, delivered: int) -> None:
    seam.report("s", 5, 8)
    seam.report("t", 6, 7)

    with breaks(Clause.MINIMA, "reported no more than"):
        seam.release(released, delivered)


def test_below_what_was_said_before(seam: Seam) -> None:
    seam.report("s", 5, 8)
    seam.report("t", 6, 7)
    seam.release(5, 7)

    for released, delivered in ((4, 7), (5, 6)):
        with breaks(Clause.MINIMA, "falls below"):
            seam.release(released, delivered)


def test_before_everybody_was_heard(seam: Seam) -> None:
    seam.report("s", 5, 8)

    with breaks(Clause.MINIMA, "before t was heard"):
        seam.release(5, 8)


def test_before_anything_arrived(seam: Seam) -> None:
    seam.report("s", 5, 8, arrives=False)
    seam.report("t", 5, 8, arrives=False)

    with breaks(Clause.MINIMA, "was heard"):
        seam.release(5, 8)


def test_minima_over_fewer_than_are_members_now(seam: Seam) -> None:
    """S alone had 500; t comes back with 5: a maximum would remember the 500."""
    seam.open({"s": 0})
    seam.report("s", 500, 500)
    seam.release(500, 500)
    seam.call("p", Enrolled(PUBEND, "t", 5))
    with breaks(Clause.MINIMA, "before t was heard"):
        seam.release(500, 500)
    seam.report("t", 5, 5)

    with breaks(Clause.MINIMA, "t reported no more"):
        seam.release(500, 500)


def test_in_the_call_that_hands_the_membership_over(seam: Seam) -> None:
    seam.report("s", 5, 5)
    seam.report("t", 5, 5)
    seam.open({"s": 0, "t": 0})
    with breaks(Clause.MINIMA, "was heard since"):
        seam.release(5, 5)

    seam.report("s", 5, 5)
    seam.release(5, 5)


def test_somebody_new_has_to_be_heard_after_the_call_in_which_it_is_counted(seam: Seam) -> None:
    seam.open({"s": 0})
    seam.report("s", 5, 5)
    seam.report("t", 5, 5)
    seam.call("p", Enrolled(PUBEND, "t", 5))
    with breaks(Clause.MINIMA, "before t was heard"):
        seam.release(5, 5)

    seam.call("p", Enrolled(PUBEND, "t", 5))
    seam.release(5, 5)


def test_nobody_is_no_reason_to_release(seam: Seam) -> None:
    seam.open({})
    seam.call("p", Wake())

    with breaks(Clause.MINIMA, "has no member"):
        seam.release(5, 5)


def test_a_member_at_the_brokers_own_shb_may_be_heard_from_elsewhere() -> None:
    """What its router was told before it was replaced comes back from who passed it on."""
    seam = Seam()
    seam.open({"p": 0})
    seam.report("p", 5, 5, arrives=False)
    seam.contract.vanished("p")
    seam.open({"p": 0})
    with breaks(Clause.MINIMA, "before p was heard"):
        seam.release(5, 5)

    seam.call("p", FrameArrived(1, b"", 0))
    seam.release(5, 5)


def test_a_pubend_that_moves_is_released_where_it_is(seam: Seam) -> None:
    seam.report("s", 5, 5)
    seam.report("t", 5, 5)
    seam.release(5, 5)
    meta = seam.open({"s": 0, "t": 0})
    seam.call("q", Opened(meta, {"s": 0, "t": 0}))
    seam.call("q", FrameArrived(1, b"", 0))

    with breaks(Clause.MINIMA, "was not given"):
        seam.release(5, 5)
