"""Many SHBs behind two IBs miss the same events at once: the PHB hears of it about as often as if it were one SHB.

In virtual time. The links between the IBs and all SHBs break, and come back when 1,000 events have been published.
Once the IBs have been there all the time, and have everything; once both were started again before the links came
back, and know nothing of what is missing, so that the PHB has to be asked; once the PHB as well, whose log has to be
read then. A restart of IBs by itself reads no disk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.network.proof import Proof, add_options
from bench.papers.experiment import Bar, Figure, Sizes
from bench.papers.virtual import Setup, Stage, play

__all__ = ["PROOF", "add_options", "run"]

IBS = ("ib1", "ib2")
SHBS = 40
MISSED = 1_000
RATE = 100.0
"""Events a second."""
SETTLING = 8.0
"""Seconds: more than one census."""
CASES: Mapping[str, tuple[str, Sequence[str]]] = {
    "ibs_remember": ("IBs that have it", ()),
    "ibs_forgot": ("IBs started again", IBS),
    "all_forgot": ("IBs and PHB started again", ("phb1", *IBS)),
}
"""How figures of a case begin, for programs and for people; and who is started again before the links are back."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What came to the PHB and went out from it while the SHBs caught up."""

    questions: int
    ticks_asked: int
    """Over how many ticks these questions reached, those that were asked about twice counted twice."""
    sent_again: int
    """Events in answers."""
    shbs_asking: int
    """How many questions the SHBs asked."""
    reads: int
    """How often the PHB's disk was read."""


def missing(shbs: int, missed: int, settling: float, restarted: Sequence[str]) -> Heard:
    """So many SHBs miss so many events; these nodes are started again before they ask."""
    names = [f"shb{number + 1}" for number in range(shbs)]
    pairs = [(ib, shb) for ib in IBS for shb in names]
    mark: list[tuple[int, int]] = []

    def prepare(stage: Stage) -> None:
        stage.publisher("p", "phb1", RATE)
        for name in names:
            stage.subscriber(f"at-{name}", name)

    def act(stage: Stage) -> None:
        stage.start_publishing()
        stage.wait(settling)
        for pair in pairs:
            stage.break_link(*pair)
        stage.wait(missed / RATE)
        if restarted:
            restart(stage, restarted)
            stage.wait(settling)
        mark.append((stage.now, stage.broker("phb1").reads))
        for pair in pairs:
            stage.heal(*pair)
        stage.wait(settling)

    stage = play(Setup(cells_of(names)), prepare, act)
    since, reads = mark[0]
    said = [each for each in stage.said if each.at >= since]
    questions = [each for each in said if each.asked and each.target == "phb1"]
    return Heard(
        len(questions),
        sum(hi - lo for each in questions for lo, hi in each.asked if hi < 1 << 62),
        sum(each.events for each in said if each.source == "phb1" and each.reply),
        sum(bool(each.asked) and each.source in names for each in said),
        stage.broker("phb1").reads - reads,
    )


def reads_of_restarts(shbs: int, settling: float) -> dict[str, int]:
    """How often disks are read because of IBs that start again under publishing: one, and both at once."""
    names = [f"shb{number + 1}" for number in range(shbs)]
    reads: dict[str, int] = {}

    def prepare(stage: Stage) -> None:
        stage.publisher("p", "phb1", RATE)
        for name in names:
            stage.subscriber(f"at-{name}", name)

    def act(stage: Stage) -> None:
        stage.start_publishing()
        stage.wait(settling)
        for what, which in (("one", IBS[:1]), ("both", IBS)):
            before = sum(broker.reads for broker in stage.world.brokers.values())
            restart(stage, which)
            stage.wait(settling)
            reads[what] = sum(broker.reads for broker in stage.world.brokers.values()) - before

    play(Setup(cells_of(names)), prepare, act)
    return reads


def cells_of(shbs: Sequence[str]) -> str:
    """A PHB, two IBs, and the SHBs behind them."""
    return " ".join(("phb1:phb", f"{'+'.join(IBS)}<phb1", *(f"{name}:shb<{IBS[0]}" for name in shbs)))


def restart(stage: Stage, names: Sequence[str]) -> None:
    """Nodes lose their power, and are back after a second."""
    for name in names:
        stage.crash(name)
    stage.wait(1)
    for name in names:
        stage.boot(name)


def _play(sizes: Sizes) -> Mapping[str, float]:
    shbs, missed, settling = sizes.count(SHBS, 3), sizes.count(MISSED, 50), sizes.pick(SETTLING, 1)
    values: dict[str, float] = {}
    for prefix, (_, restarted) in CASES.items():
        one, many = (missing(count, missed, settling, restarted) for count in (1, shbs))
        values |= {
            f"{prefix}_questions_of_shbs": many.shbs_asking,
            f"{prefix}_questions_to_phb": many.questions,
            f"{prefix}_questions_to_phb_of_one": one.questions,
            f"{prefix}_ratio_questions": many.questions / max(1, one.questions),
            f"{prefix}_sent_again": many.sent_again,
            f"{prefix}_sent_again_of_one": one.sent_again,
            f"{prefix}_ratio_sent_again": many.sent_again / max(1, one.sent_again),
            f"{prefix}_ratio_ticks_asked": many.ticks_asked / max(1, one.ticks_asked),
            f"{prefix}_reads": many.reads,
            f"{prefix}_reads_of_one": one.reads,
        }
    restarts = reads_of_restarts(sizes.count(4, 1), settling)
    return values | {f"reads_restart_of_{what}": count for what, count in restarts.items()}


def _figures() -> dict[str, Figure]:
    figures: dict[str, Figure] = {}
    for prefix, (how, _) in CASES.items():
        figures |= {
            f"{prefix}_questions_of_shbs": Figure(f"{how}: questions of all SHBs"),
            f"{prefix}_questions_to_phb": Figure(f"{how}: questions that the PHB hears"),
            f"{prefix}_questions_to_phb_of_one": Figure(f"{how}: the same with one SHB"),
            f"{prefix}_ratio_questions": Figure(f"{how}: over those with one SHB", bar=Bar(most=2)),
            f"{prefix}_sent_again": Figure(f"{how}: events that the PHB sends again"),
            f"{prefix}_sent_again_of_one": Figure(f"{how}: the same with one SHB"),
            f"{prefix}_ratio_sent_again": Figure(f"{how}: over those with one SHB", bar=Bar(most=2)),
            f"{prefix}_ratio_ticks_asked": Figure(f"{how}: ticks that the PHB is asked about, over", bar=Bar(most=2)),
            f"{prefix}_reads": Figure(f"{how}: reads of the PHB's disk meanwhile"),
            f"{prefix}_reads_of_one": Figure(f"{how}: the same with one SHB"),
        }
    return figures | {
        "reads_restart_of_one": Figure("reads of all disks when one IB starts again", bar=Bar(0, 0)),
        "reads_restart_of_both": Figure("reads of all disks when both IBs start again at once", bar=Bar(0, 0)),
    }


PROOF = Proof(
    "consolidation: many SHBs miss the same events",
    "1 PHB, a cell of two IBs, 40 SHBs with one subscriber of everything each; 100 events/s. The links between IBs and "
    "SHBs are down for 1,000 events. “Started again”: they lose what they have in memory before the links come back.",
    _figures(),
    _play,
)


def run(*, json: bool, quick: bool) -> dict[str, object]:
    """All of it."""
    return PROOF.run(json=json, quick=quick)
