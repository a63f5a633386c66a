"""002, named in its introduction: total order waits for the slowest pubend, and each pubend's own order does not.

Four pubends of unequal rates are a group. Beside one another two subscribers want all events: one in total order, one
of each pubend in its own. The members say their silence each 20, 200 and 1,000 ms.
"""

from __future__ import annotations

from bench.papers.experiment import FIGURE_LOST, GRAPH, VIRTUAL, Bar, Curve, Experiment, Figure, Outcome, Panel, Sizes
from bench.papers.virtual import Setup, Stage, names_on_each, play
from bench.processes import quantile
from gapless.core.wire.messages import Order
from gapless_sim.world.options import MILLISECOND, SECOND

RATES = (50.0, 20.0, 5.0, 0.5)
"""Events a second of each pubend."""
PERIODS = (20, 200, 1000)
"""Milliseconds after which a member says that it is silent."""
SETTLED = 3.0


def run(sizes: Sizes) -> Outcome:
    """The same load with each period."""
    seconds, share = sizes.pick(60, 1), sizes.pick(1, 0.2)
    values: dict[str, float] = {}
    medians: dict[Order, list[float]] = {order: [] for order in Order}
    for period in PERIODS:
        own, total = _play(period, seconds, share)
        for order, latencies in ((Order.PUBEND, own), (Order.TOTAL, total)):
            medians[order].append(quantile(latencies, 0.5) / MILLISECOND)
            values[f"median_{order.value}_{period}_ms"] = medians[order][-1]
        waits = (quantile(total, 0.99) - quantile(own, 0.99)) / MILLISECOND
        values[f"ratio_p99_wait_to_period_{period}"] = waits / period
    values["ratio_pubend_order_slowest_to_fastest"] = max(medians[Order.PUBEND]) / min(medians[Order.PUBEND])
    curves = [
        Curve('order="total"', PERIODS, medians[Order.TOTAL]),
        Curve('order="pubend"', PERIODS, medians[Order.PUBEND]),
    ]
    panel = Panel("latency by the silence period", "silence period, ms", "median latency, ms", curves)
    return Outcome(values, [panel])


def _play(period: int, seconds: float, share: float) -> tuple[list[int], list[int]]:
    """Returns the latencies in pubend order and in total order, of events that were published meanwhile.

    `share`: of the rates.
    """
    found: list[list[int]] = []

    def prepare(stage: Stage) -> None:
        for name, rate in zip(names_on_each(len(RATES), "phb1"), RATES, strict=True):
            stage.publisher(name, "phb1", share * rate)
        stage.subscriber("own", "shb1")
        stage.subscriber("total", "shb1", order=Order.TOTAL)

    def act(stage: Stage) -> None:
        stage.start_publishing()
        stage.wait(SETTLED + seconds)
        begin = stage.began + round(SETTLED * SECOND)
        end = stage.now
        stage.wait(SETTLED)  # until the last of them is there
        found.extend(each.latencies(begin, end) for each in stage.subscribers)

    play(Setup("phb1:phb ib1<phb1 shb1:shb<ib1", pubends=len(RATES), group_silence_ms=period), prepare, act)
    own, total = found
    assert len(own) == len(total), "both get all events"
    return own, total


TOTAL_ORDER = Experiment(
    "total-order",
    GRAPH,
    FIGURE_LOST,
    "total order beside pubend order, by the silence period of the slowest pubend",
    VIRTUAL,
    "1 PHB, 1 IB, 1 SHB, links of 2 ms, 4 pubends with 50, 20, 5 and 0.5 events/s in a group, and one subscriber of "
    "all events in each order.",
    {
        **{
            f"median_{order.value}_{period}_ms": Figure(f"median latency, order {order.value}, silence {period} ms")
            for order in Order
            for period in PERIODS
        },
        **{
            f"ratio_p99_wait_to_period_{period}": Figure(
                f"p99 of what total order adds, over a period of {period} ms", "follows the slowest", Bar(0.5, 1.3)
            )
            for period in PERIODS
        },
        "ratio_pubend_order_slowest_to_fastest": Figure(
            "median of pubend order over the three periods, highest over lowest", "is not affected", Bar(most=1.05)
        ),
    },
    run,
)
