"""002: what happens while there is no way at all: the only IB cannot be reached, or the PHB restarts."""

from __future__ import annotations

from bench.papers.experiment import FIGURE_LOST, GRAPH, VIRTUAL, Bar, Curve, Experiment, Figure, Outcome, Panel, Sizes
from bench.papers.failures import REPAIR, Fault, experiment, over
from bench.papers.virtual import Stage
from gapless.core.stream.ticks import SECOND as TICK_SECOND
from gapless_sim.world.options import SECOND

FEW, MANY = 2, 8
"""So many SHBs."""


def _cells(shbs: int) -> str:
    """A PHB, a single IB, and SHBs."""
    return "phb1:phb ib1<phb1 " + " ".join(f"shb{number + 1}:shb<ib1" for number in range(shbs))


def outage(sizes: Sizes) -> Outcome:
    """The only way from the PHB carries nothing for a while; once with few SHBs behind it, once with many."""
    seconds = sizes.pick(10, 1)

    def strike(stage: Stage) -> None:
        stage.cut("phb1", "ib1")
        stage.later(seconds, lambda: stage.heal("phb1", "ib1"))

    few, many = (Fault(sizes, strike, 2 * seconds, _cells(count)) for count in (FEW, MANY))
    moves = many.stage.moves_of("phb1-0")
    healed = many.struck_at + round(seconds * SECOND)
    asked = [fault.questions(to=("phb1",)) for fault in (few, many)]
    again = [fault.sent_again() for fault in (few, many)]
    values = {
        "flat_advance_tick_ms": moves.advance("delivered", many.struck_at + SECOND // 2, healed),
        "late_events": len(many.late),
        "worst_delay_s": many.worst() / SECOND,
        "ratio_worst_to_outage": many.worst() / (seconds * SECOND),
        "ratio_slope": moves.slope(healed),
        "questions_to_phb": asked[1],
        "ratio_questions": over(asked[1], asked[0]),
        "ratio_sent_again_to_late": over(again[1], len(many.late)),
        "ratio_sent_again": over(again[1], again[0]),
    }
    begin = many.struck_at - 2 * SECOND
    shown = [each for each in zip(moves.at, moves.delivered, strict=True) if begin <= each[0] <= many.ends_at]
    x = [(at - many.struck_at) / SECOND for at, _ in shown]
    y = [(tick - shown[0][1]) / TICK_SECOND for _, tick in shown]
    horizon = Panel(
        "latestDelivered of one pubend", "s since the fault", "tick s", [Curve("", x, y)], states=REPAIR, kind="steps"
    )
    return Outcome(values, [horizon, many.panel("latency at one SHB", ("shb1",), REPAIR)])


def phb_restart(sizes: Sizes) -> Outcome:
    """The PHB crashes and comes back; its publishers go on sending."""
    seconds = sizes.pick(10, 1)

    def strike(stage: Stage) -> None:
        stage.crash("phb1")
        stage.later(seconds, lambda: stage.boot("phb1"))

    fault = Fault(sizes, strike, 2 * seconds + sizes.pick(5, 2))
    stage = fault.stage
    published = [len(publisher.published) for publisher in stage.publishers]
    handed = [len(subscriber.handed) for subscriber in stage.subscribers]
    worst = [effect.worst - effect.normal for effect in fault.effects.values()]
    moves = stage.moves_of("phb1-0")
    stood = next(tick for at, tick in zip(moves.at, moves.delivered, strict=True) if at > fault.struck_at + SECOND // 2)
    moved = next(at for at, tick in zip(moves.at, moves.delivered, strict=True) if tick > stood)
    values = {
        "shbs_with_late_events": sum(bool(effect.late) for effect in fault.effects.values()),
        "standstill_s": (moved - fault.struck_at) / SECOND,
        "ratio_standstill_to_outage": (moved - fault.struck_at) / (seconds * SECOND),
        "worst_delay_s": max(worst) / SECOND,
        "ratio_worst_of_shbs": max(worst) / min(worst),
        "published_events": sum(published),
        "ratio_least_handed_to_published": min(handed) / sum(published),
        "ratio_most_handed_to_published": max(handed) / sum(published),
    }
    return Outcome(values, [fault.panel("latency at two SHBs", ("shb1", "shb5"), REPAIR)])


OUTAGE = Experiment(
    "outage",
    GRAPH,
    FIGURE_LOST,
    "the only way carries nothing for 10 s",
    VIRTUAL,
    f"1 PHB with 4 pubends, 160 events/s in all; one IB, and {FEW} or {MANY} SHBs below it; each link takes 20 ms. "
    "Nothing gets through between PHB and IB for 10 s; what is sent there is lost, and nobody is told.",
    {
        "flat_advance_tick_ms": Figure("latestDelivered during the outage, tick ms", bar=Bar(0, 0)),
        "late_events": Figure("events that were late"),
        "worst_delay_s": Figure("latest of them, s above usual"),
        "ratio_worst_to_outage": Figure("over the outage", "rapid recovery", Bar(most=1.2)),
        "ratio_slope": Figure("latestDelivered when it is healed, over normal", "rapid recovery", Bar(least=2)),
        "questions_to_phb": Figure(f"questions that the PHB hears, {MANY} SHBs", "no explosion"),
        "ratio_questions": Figure(f"over those with {FEW} SHBs", "consolidated", Bar(most=1.5)),
        "ratio_sent_again_to_late": Figure(f"events sent again to {MANY} SHBs, over late", bar=Bar(most=1.2)),
        "ratio_sent_again": Figure(f"over those with {FEW} SHBs", "consolidated", Bar(most=1.2)),
    },
    outage,
)
PHB_RESTART = experiment(
    "phb-restart",
    "the PHB crashes, and is back after 10 s",
    "The PHB loses its power for 10 s; publishers go on, and send what is not acknowledged again.",
    {
        "shbs_with_late_events": Figure("SHBs with late events, of 5", "all", Bar(5, 5)),
        "standstill_s": Figure("latestDelivered stands, s"),
        "ratio_standstill_to_outage": Figure("over the time that it was down", "rapid recovery", Bar(most=1.2)),
        "worst_delay_s": Figure("latest event, s above usual: its publisher has to connect again"),
        "ratio_worst_of_shbs": Figure("latest event of the SHBs, highest over lowest", "all equally", Bar(most=1.1)),
        "published_events": Figure("published events"),
        "ratio_least_handed_to_published": Figure(
            "handed to a subscriber, least, over published", "exactly once", Bar(1, 1)
        ),
        "ratio_most_handed_to_published": Figure(
            "handed to a subscriber, most, over published", "exactly once", Bar(1, 1)
        ),
    },
    phb_restart,
)
