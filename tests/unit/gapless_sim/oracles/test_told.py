"""K3, C5 and K8: rows, stamps, and steps sideways."""

from __future__ import annotations

from gapless.core.network.facts import Posted, Progress
from gapless.core.network.frames import ProgressRows
from gapless_sim.oracles.told import FORGOTTEN_AFTER, REPEATED_WITHIN, K3Rows, K8Sideways
from gapless_sim.world.options import SECOND
from unit.gapless_sim.oracles.model_fixture import P, violates
from unit.gapless_sim.oracles.test_hops import Tree, want

FAR = "shb1@disk"

# ------------------------------------------------------------------------------------------------ K3


def rows(released: int, delivered: int, shb: str = FAR) -> ProgressRows:
    return ProgressRows((Progress(shb, P, released, delivered),))


def reporting(released: int = 5, delivered: int = 9) -> Tree:
    tree = Tree(K3Rows)
    tree.fixture.opens(broker="phb1")
    tree.fixture.model.shb_of["shb1"], tree.fixture.model.broker_of[FAR] = FAR, "shb1"
    tree.fixture.progress(released, delivered, shb=FAR)
    tree.after(10 * SECOND)
    return tree


def test_what_was_forgotten_may_come_back_lower() -> None:
    """Found by the simulator: an SHB was gone for good, and the rows of several brokers went round (K3)."""
    tree = reporting()
    tree.sends("ib1", "phb1", rows(5, 9))
    tree.after(FORGOTTEN_AFTER)

    tree.sends("ib1", "phb1", rows(5, 8))


def said_for_long(*to: str, without: str = "") -> Tree:
    """An SHB that says its row every two seconds, to these brokers."""
    tree = reporting()
    for _ in range(6):
        for broker in to:
            tree.sends("shb1", broker, want((0, 1)) if broker == without else rows(5, 9))
        tree.after(2 * SECOND)
    return tree


def test_a_broker_passes_on_what_it_hears_and_not_what_it_has_not_heard_for_long() -> None:
    tree = said_for_long("ib1", "ib2")
    tree.sends("ib1", "phb1", rows(5, 9))
    tree.after(REPEATED_WITHIN - SECOND)
    tree.sends("shb1", "ib1", rows(5, 9))
    tree.sends("shb1", "ib2", rows(5, 9))
    tree.after(2 * SECOND)

    with violates("K3"):
        tree.judge.settled()
    tree.after(REPEATED_WITHIN)
    tree.sends("shb1", "ib1", rows(5, 9))
    tree.breaks("ib1", "phb1")
    tree.sends("shb1", "ib2", rows(5, 9))
    assert tree.judge.settled()


def test_what_only_comes_back_is_forgotten() -> None:
    """Found by the simulator: an SHB was cut off, and what brokers had passed on came back to them for long (K3)."""
    tree = said_for_long("ib1", "ib2")
    tree.sends("ib1", "phb1", rows(5, 9))

    def comes_back(until: int) -> None:
        while tree.world.now < until:
            tree.after(4 * SECOND)
            tree.sends("phb1", "ib1", rows(5, 9))

    cut_off_at = tree.world.now
    comes_back(cut_off_at + FORGOTTEN_AFTER - 4 * SECOND)
    tree.breaks("shb1", "ib1")
    tree.breaks("shb1", "ib2")
    with violates("K3"):
        tree.judge.settled()
    comes_back(cut_off_at + FORGOTTEN_AFTER + SECOND)
    assert tree.judge.settled()


# ------------------------------------------------------------------------------------------------ K8


def test_mail_to_a_mate_may_come_over_another_one() -> None:
    tree = Tree(K8Sideways)
    mail = Posted("shb1", "node", b"?")
    tree.sends("ib1", "ib2", mail, ("ib1",))
    tree.sends("ib2", "ib1", mail, ("ib1",))
    tree.sends("ib1", "ib2", mail, ("phb1",))

    with violates("K8"):
        tree.sends("ib2", "ib1", mail, ("phb1",))


def test_a_row_only_rises_on_a_link() -> None:
    tree = reporting()
    tree.sends("ib1", "phb1", rows(5, 9))
    tree.sends("ib2", "phb1", rows(5, 8))

    with violates("K3"):
        tree.sends("ib1", "phb1", rows(5, 8))
