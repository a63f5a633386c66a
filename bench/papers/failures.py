"""002: a link fails or stalls, an intermediate broker crashes, and there is another way; or there is none.

The network is that of the paper's own description: a PHB, a cell of two IBs below it, a second cell of two below that,
and SHBs at both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bench.papers.experiment import (
    FIGURE_LOST,
    GRAPH,
    VIRTUAL,
    Bar,
    Curve,
    Experiment,
    Figure,
    Outcome,
    Panel,
    Run,
    Sizes,
)
from bench.papers.virtual import Setup, Stage, Subscriber, names_on_each, play
from bench.processes import quantile
from gapless_sim.faults.link_faults import SILENCE_MOST
from gapless_sim.world.options import MILLISECOND, SECOND

CELLS = "phb1:phb ib1+ib2<phb1 ib3+ib4<ib1 shb1:shb<ib1 shb2:shb<ib1 shb3:shb<ib3 shb4:shb<ib3 shb5:shb<ib3"
SHBS = ("shb1", "shb2", "shb3", "shb4", "shb5")
LINK = 20 * MILLISECOND
"""Each link takes so long."""
PUBENDS = 4
RATE = 40.0
"""Events a second of each pubend, and each subscriber wants all of them."""
RTT = 2 * LINK
"""Of one link."""
GCT = 200 * MILLISECOND
"""So long an SHB waits before it asks for what is missing between known ticks."""
LATE = 1.5
"""An event is late whose latency is more than so many times the highest before."""
BEFORE = 5.0
NETWORK = (
    "1 PHB with 4 pubends, 160 events/s in all; a cell of two IBs, and another one below it; 2 SHBs at the first and 3 "
    "at the second, with one subscriber of everything each; each link takes 20 ms."
)
ALTERNATE = (
    "localized effects of failures without “nack explosions,” and rapid recovery using alternate paths, when available"
)
REPAIR = "rapid recovery […] after repair of the failures"


@dataclass(frozen=True, slots=True)
class Effect:
    """What a fault did to one subscriber."""

    normal: int
    """Its highest latency before, in nanoseconds."""
    worst: int
    """Its highest afterwards."""
    late: frozenset[int]
    """When the events that were late were published."""
    p99_ratio: float
    """The 99 % quantile of its latency afterwards, over that of before."""


class Fault:
    """A run with a fault, and what came of it."""

    def __init__(self, sizes: Sizes, strike: Callable[[Stage], None], seconds: float, cells: str = CELLS) -> None:
        """`strike` is called after a while, and `seconds` of it are looked at."""
        self.struck_at = 0
        before = sizes.pick(BEFORE, 2)
        shbs = [node.partition(":")[0] for node in cells.split() if ":shb" in node]
        rate = sizes.pick(RATE, RATE / 4)

        def prepare(stage: Stage) -> None:
            for name in names_on_each(PUBENDS, "phb1"):
                stage.publisher(name, "phb1", rate)
            for shb in shbs:
                stage.subscriber(f"at-{shb}", shb)

        def act(stage: Stage) -> None:
            stage.start_publishing()
            stage.wait(before)
            self.struck_at = stage.now
            strike(stage)
            stage.wait(seconds)

        self.stage = play(Setup(cells, link=LINK, pubends=PUBENDS), prepare, act)
        self.ends_at = self.struck_at + round(seconds * SECOND)
        self.effects = {shb: self._effect(each) for shb, each in zip(shbs, self.stage.subscribers, strict=True)}

    def _effect(self, subscriber: Subscriber) -> Effect:
        before = subscriber.latencies(self.stage.began, self.struck_at - SECOND)
        after = [each for each in subscriber.handed if self.struck_at - SECOND <= each.published < self.ends_at]
        normal = max(before)
        late = frozenset(each.published for each in after if each.latency > LATE * normal)
        worst = max(each.latency for each in after)
        p99 = quantile([each.latency for each in after], 0.99) / quantile(before, 0.99)
        return Effect(normal, worst, late, p99)

    @property
    def late(self) -> frozenset[int]:
        """When the events that were late for somebody were published."""
        return frozenset().union(*(effect.late for effect in self.effects.values()))

    def worst(self) -> float:
        """How much later than usual an event was at most, in nanoseconds."""
        return max(effect.worst - effect.normal for effect in self.effects.values())

    def questions(self, to: Sequence[str] = (), by: Sequence[str] = ()) -> int:
        """How often since the fault one of `by` asked one of `to`; none of them: whoever, whomever."""
        return sum(
            bool(each.asked) and (not to or each.target in to) and (not by or each.source in by)
            for each in self.stage.said
            if each.at >= self.struck_at
        )

    def sent_again(self) -> int:
        """How many events the PHB sent in answers since the fault."""
        answers = (each for each in self.stage.said if each.source == "phb1" and each.reply)
        return sum(each.events for each in answers if each.at >= self.struck_at)

    def curves(self, names: Sequence[str]) -> list[Curve]:
        """The latency of each event at some SHBs."""
        begin = self.struck_at - 2 * SECOND
        curves = []
        for name, subscriber in zip(self.effects, self.stage.subscribers, strict=True):
            if name in names:
                shown = [each for each in subscriber.handed if begin <= each.published < self.ends_at]
                shown.sort(key=lambda each: each.published)
                x = [(each.published - self.struck_at) / SECOND for each in shown]
                curves.append(Curve(name, x, [each.latency / MILLISECOND for each in shown]))
        return curves

    def panel(self, title: str, names: Sequence[str], states: str) -> Panel:
        """A diagram of that."""
        return Panel(title, "published, s since the fault", "latency, ms", self.curves(names), states=states)


# ----------------------------------------------------------------------------------- with another way


def over(count: float, of: float) -> float:
    """A ratio; 0 where there is nothing."""
    return count / of if of else 0.0


def _one_link(sizes: Sizes, strike: Callable[[Stage], None], allowed: int) -> Outcome:
    """A link towards one SHB does not carry anything any more; how much later than usual an event may be."""
    fault = Fault(sizes, strike, sizes.pick(10, 3))
    hit = fault.effects["shb1"]
    worst = hit.worst - hit.normal
    values = {
        "shbs_with_late_events": sum(bool(effect.late) for effect in fault.effects.values()),
        "ratio_others_p99": max(effect.p99_ratio for name, effect in fault.effects.items() if name != "shb1"),
        "late_events": len(hit.late),
        "worst_delay_ms": worst / MILLISECOND,
        "ratio_worst_to_allowed": worst / allowed,
        "questions": fault.questions(by=SHBS),
        "questions_to_phb": fault.questions(to=("phb1",)),
        "ratio_sent_again_to_late": over(fault.sent_again(), len(hit.late)),
    }
    return Outcome(values, [fault.panel("latency at two SHBs", ("shb1", "shb2"), ALTERNATE)])


def _figures_of_a_link(allowed: str) -> dict[str, Figure]:
    return {
        "shbs_with_late_events": Figure("SHBs with late events, of 5", "localized", Bar(most=1)),
        "ratio_others_p99": Figure("p99 of all others, over before, highest", "localized", Bar(most=1.05)),
        "late_events": Figure("events that were late at the SHB behind the link"),
        "worst_delay_ms": Figure("latest of them, ms above usual"),
        "ratio_worst_to_allowed": Figure(f"over {allowed}", "rapid", Bar(most=1)),
        "questions": Figure("questions of all SHBs", "no explosion"),
        "questions_to_phb": Figure("questions that the PHB hears", "no explosion", Bar(most=2 * PUBENDS)),
        "ratio_sent_again_to_late": Figure("events that the PHB sends again, over late", bar=Bar(most=1)),
    }


def link_failure(sizes: Sizes) -> Outcome:
    """A link breaks, and both ends notice at once."""

    def strike(stage: Stage) -> None:
        stage.break_link("ib1", "shb1")
        stage.later(5, lambda: stage.heal("ib1", "shb1"))

    return _one_link(sizes, strike, GCT + 4 * RTT)


def link_stall(sizes: Sizes) -> Outcome:
    """A link carries nothing any more, and nobody is told."""

    def strike(stage: Stage) -> None:
        stage.cut("ib1", "shb1")
        stage.later(5, lambda: stage.heal("ib1", "shb1"))

    return _one_link(sizes, strike, SILENCE_MOST + GCT + 4 * RTT)


def ib_crash(sizes: Sizes) -> Outcome:
    """One of two IBs crashes, and comes back after a while."""
    outage = sizes.pick(8, 1)

    def strike(stage: Stage) -> None:
        stage.crash("ib1")
        stage.later(outage, lambda: stage.boot("ib1"))

    fault = Fault(sizes, strike, sizes.pick(15, 2))
    asked, heard = fault.questions(by=SHBS), fault.questions(to=("phb1",))
    values = {
        "shbs_with_late_events": sum(bool(effect.late) for effect in fault.effects.values()),
        "late_events": len(fault.late),
        "worst_delay_ms": fault.worst() / MILLISECOND,
        "ratio_worst_to_allowed": fault.worst() / (GCT + 4 * 2 * RTT),
        "ratio_worst_to_outage": fault.worst() / (outage * SECOND),
        "questions": asked,
        "questions_to_phb": heard,
        "ratio_questions_to_phb": over(heard, asked),
        "ratio_sent_again_to_late": over(fault.sent_again(), len(fault.late)),
    }
    return Outcome(values, [fault.panel("latency at two SHBs", ("shb1", "shb3"), ALTERNATE)])


def experiment(name: str, title: str, setup: str, figures: Mapping[str, Figure], run: Run) -> Experiment:
    """One in this network."""
    return Experiment(name, GRAPH, FIGURE_LOST, title, VIRTUAL, f"{NETWORK} {setup}", figures, run)


LINK_FAILURE = experiment(
    "link-failure",
    "a link breaks, and there is another one",
    "The link between one IB and one SHB breaks for 5 s, which both notice at once.",
    _figures_of_a_link("GCT + 4 RTT of the link"),
    link_failure,
)
LINK_STALL = experiment(
    "link-stall",
    "a link carries nothing any more, and there is another one",
    "Nothing gets through between one IB and one SHB for 5 s; what is sent there is lost, and nobody is told.",
    _figures_of_a_link("3 heartbeats + GCT + 4 RTT of the link"),
    link_stall,
)
IB_CRASH = experiment(
    "ib-crash",
    "an intermediate broker crashes, and there is another one",
    "The process of one of the IBs next to the PHB dies, which its neighbours notice at once, and is back after 8 s.",
    {
        "shbs_with_late_events": Figure("SHBs with late events, of 5"),
        "late_events": Figure("events that were late for somebody"),
        "worst_delay_ms": Figure("latest of them, ms above usual"),
        "ratio_worst_to_allowed": Figure("over GCT + 4 RTT from the SHB to the PHB", "rapid", Bar(most=1)),
        "ratio_worst_to_outage": Figure("over the time that it was down", "rapid", Bar(most=0.2)),
        "questions": Figure("questions of all SHBs", "no explosion"),
        "questions_to_phb": Figure("questions that the PHB hears", "no explosion"),
        "ratio_questions_to_phb": Figure("over those of all SHBs", "consolidated", Bar(most=0.6)),
        "ratio_sent_again_to_late": Figure("events that the PHB sends again, over late", bar=Bar(most=2)),
    },
    ib_crash,
)
