"""002: links that lose frames, and on which frames overtake each other."""

from __future__ import annotations

from statistics import mean

from bench.papers.experiment import FIGURE_LOST, GRAPH, VIRTUAL, Bar, Curve, Experiment, Figure, Outcome, Panel, Sizes
from bench.papers.failures import over
from bench.papers.virtual import Setup, Stage, play
from bench.processes import quantile
from gapless_sim.world.options import MILLISECOND

CELLS = "phb1:phb ib1+ib2<phb1 shb1:shb<ib1 shb2:shb<ib1"
HOPS = 2
"""Links between the PHB and an SHB."""
RATE = 40.0
LOSSES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2)
LOW, HIGH = 0.02, 0.1
"""Between these the events that are sent again must grow like the losses."""


class Point:
    """What comes of one loss rate."""

    def __init__(self, loss: float, seeds: int, seconds: float) -> None:
        published = again = 0
        latencies: list[int] = []
        for seed in range(seeds):
            setup = Setup(CELLS, link=5 * MILLISECOND, jitter=5 * MILLISECOND, loss=loss, seed=seed + 1)
            stage = play(setup, _prepare, lambda stage: _act(stage, seconds))
            published += sum(len(publisher.published) for publisher in stage.publishers)
            again += sum(each.events for each in stage.said if each.reply and each.target.startswith("shb"))
            for subscriber in stage.subscribers:
                latencies += [each.latency for each in subscriber.handed]
        self.loss = loss
        self.again = over(again, published * len(stage.subscribers))
        """Events in answers to SHBs, over events that they should get."""
        self.should = 1 - (1 - loss) ** HOPS
        """How many of the events are lost on the way."""
        self.p50, self.p99 = (quantile(latencies, share) / MILLISECOND for share in (0.5, 0.99))
        self.mean = mean(latencies) / MILLISECOND


def _prepare(stage: Stage) -> None:
    stage.publisher("p", "phb1", RATE)
    for shb in ("shb1", "shb2"):
        stage.subscriber(f"at-{shb}", shb)


def _act(stage: Stage, seconds: float) -> None:
    stage.start_publishing()
    stage.wait(seconds)


def run(sizes: Sizes) -> Outcome:
    """Each loss rate with several seeds."""
    losses = (0.0, LOW, HIGH) if sizes.quick else LOSSES
    points = {loss: Point(loss, sizes.count(3, 1), sizes.pick(15, 2)) for loss in losses}
    low, high, none, most = points[LOW], points[HIGH], points[0.0], points[losses[-1]]
    values = {
        "events_again_share_without_loss": none.again,
        "events_again_share_low": low.again,
        "events_again_share_high": high.again,
        "ratio_again_to_lost_high": over(high.again, high.should),
        "ratio_growth_to_losses": over(over(high.again, low.again), high.should / low.should),
        "latency_p50_ms_without_loss": none.p50,
        "ratio_latency_p50_most": most.p50 / none.p50,
        "latency_p99_ms_low": low.p99,
        "latency_p99_ms_most": most.p99,
    }
    percent = [100 * loss for loss in losses]
    again = [
        Curve("sent again", percent, [100 * point.again for point in points.values()]),
        Curve("lost on the way", percent, [100 * point.should for point in points.values()]),
    ]
    latency = [
        Curve("p50", percent, [point.p50 for point in points.values()]),
        Curve("p99", percent, [point.p99 for point in points.values()]),
    ]
    return Outcome(
        values,
        [
            Panel("events sent again", "loss per link, %", "% of the events", again, states=STATES),
            Panel("latency", "loss per link, %", "ms", latency, states=STATES),
        ],
    )


STATES = "tolerant of message drops, message reorderings, node failures, and link failures"

LOSS = Experiment(
    "loss",
    GRAPH,
    FIGURE_LOST,
    "links that lose up to 20 % of the frames, and reorder them",
    VIRTUAL,
    "1 PHB with 40 events/s, a cell of two IBs, 2 SHBs with a subscriber each; each link takes 5 ms and some more, "
    "5 ms on average, for each frame by itself, and loses 0 to 20 % of the frames; 3 seeds of 15 s for each rate.",
    {
        "events_again_share_without_loss": Figure("events in answers over events wanted, no loss"),
        "events_again_share_low": Figure(f"the same with {LOW:.0%} lost on each link"),
        "events_again_share_high": Figure(f"the same with {HIGH:.0%}"),
        "ratio_again_to_lost_high": Figure("over what is lost on the two links", "tolerant", Bar(0.5, 2)),
        "ratio_growth_to_losses": Figure("how it grows between these two, over how losses grow", bar=Bar(0.5, 2)),
        "latency_p50_ms_without_loss": Figure("latency p50 without loss, ms"),
        "ratio_latency_p50_most": Figure("latency p50 with the most, over that"),
        "latency_p99_ms_low": Figure(f"latency p99 with {LOW:.0%}, ms"),
        "latency_p99_ms_most": Figure("latency p99 with the most, ms"),
    },
    run,
)
