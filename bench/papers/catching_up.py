"""001, figures 5 and 6: subscribers that are away for 5 s now and then, and how fast everything advances meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from bench.papers.experiment import DURABLE, VIRTUAL, Bar, Curve, Experiment, Outcome, Panel, Row, Sizes
from bench.papers.virtual import Setup, Stage, Subscriber, names_on_each, play, quantile
from gapless_sim.options import SECOND

PUBENDS = 4
RATE = 10.0
"""Events a second that each subscriber gets, and of each of the four pubends: a twentieth of the paper's 200."""
FASTER = 1.9
"""A subscriber takes at most so many times its normal rate: what comes of the paper's 5 to 6 s for 1,000 events."""
AWAY = 5.0
SHOULD = AWAY / (FASTER - 1)
"""Seconds until it has caught up with what it missed and with what came meanwhile, if only it needed time for that."""
FIRST = 5.0
"""Seconds in which nobody is away."""


@dataclass(frozen=True, slots=True)
class Return:
    """A subscriber came back."""

    at: int
    seconds: float
    """Until it was handed everything as fresh as before it left."""


def run(sizes: Sizes) -> Outcome:
    """Subscribers leave in turn."""
    subscribers, seconds, every = sizes.count(20, 2), sizes.pick(180, 12), sizes.pick(60, 12)
    came_back: list[tuple[Subscriber, int]] = []

    def prepare(stage: Stage) -> None:
        for name in names_on_each(PUBENDS, "phb1"):
            stage.publisher(name, "phb1", RATE, values=PUBENDS)
        stage.subscriber("watcher", "shb1", value=0)
        for number in range(subscribers):
            pace = round(SECOND / (FASTER * RATE))
            stage.subscriber(f"c{number}", "shb1", value=number % PUBENDS, pace=pace, window=round(FASTER * RATE))

    def act(stage: Stage) -> None:
        def leave(subscriber: Subscriber) -> None:
            subscriber.leave()
            stage.later(AWAY, lambda: come_back(subscriber))

        def come_back(subscriber: Subscriber) -> None:
            subscriber.attach()
            came_back.append((subscriber, stage.now))

        stage.start_publishing()
        stage.wait(FIRST)
        for number, subscriber in enumerate(stage.subscribers[1:]):
            for absence in range(int(seconds // every)):
                stage.later((absence + number / subscribers) * every, lambda each=subscriber: leave(each))  # type: ignore[misc]
        stage.wait(seconds + AWAY + 3 * SHOULD)

    stage = play(Setup("phb1:phb shb1:shb<phb1", pubends=PUBENDS), prepare, act)
    return _outcome(stage, [_returned(stage, *each) for each in came_back], seconds)


def _returned(stage: Stage, subscriber: Subscriber, at: int) -> Return:
    """How long it took: until the last event that was late."""
    before = subscriber.latencies(stage.began, stage.began + round(FIRST * SECOND))
    late = 2 * max(before)
    behind = [each.handed for each in subscriber.handed if at <= each.handed < at + 12 * SECOND and each.latency > late]
    return Return(at, (max(behind, default=at) - at) / SECOND)


def _outcome(stage: Stage, returns: list[Return], seconds: float) -> Outcome:
    begin, end = stage.began + round(FIRST * SECOND), stage.began + round((FIRST + seconds) * SECOND)
    moves = next(moves for (_, pubend), moves in sorted(stage.moves.items()) if pubend.startswith("phb1-0"))
    delivered, released = moves.rates("delivered", begin, end), moves.rates("released", begin, end)
    durations = [each.seconds for each in returns]
    early, late = (median(each.seconds for each in half) for half in (returns[::2], returns[1::2]))
    watcher = stage.subscribers[0]
    p99 = quantile(watcher.latencies(begin, end), 0.99) / quantile(watcher.latencies(stage.began, begin), 0.99)
    took, least = median(durations), min(delivered)
    rows = [
        Row("absences", "absences of 5 s", len(returns)),
        Row("catchup_median_s", "catch-up, median, s", took, "5–6 s"),
        Row("catchup_p95_s", "catch-up, 95 % quantile, s", quantile(durations, 0.95), "5–6 s"),
        Row(
            "ratio_catchup_to_should",
            f"over missed/(c-r), {SHOULD:.2f} s",
            took / SHOULD,
            "0.9–1.1",
            Bar(0.85, 1.15),
        ),
        Row("ratio_second_half_to_first", "every second one over the others", late / early, "flat", Bar(0.9, 1.1)),
        Row("delivered_mean_tick_ms_per_s", "latestDelivered, tick ms/s, mean", _mean(delivered), "≈ 1000"),
        Row("delivered_least_tick_ms_per_s", "latestDelivered, least", least, "700 (garbage collection)"),
        Row("ratio_delivered_to_time", "latestDelivered over time", _mean(delivered) / 1000, "≈ 1", Bar(0.99, 1.01)),
        Row("ratio_least_to_mean", "its least over its mean", least / _mean(delivered), "≈ 0.7", Bar(least=0.7)),
        Row("released_mean_tick_ms_per_s", "released, tick ms/s, mean", _mean(released), "varies much"),
        Row("released_most_tick_ms_per_s", "released, most", max(released), "varies much"),
        Row("released_seconds_standing_share", "released, share of seconds in which it stands", standing(released)),
        Row("ratio_watcher_p99", "p99 of who is never away, over when nobody is", p99, "unaffected", Bar(most=1.05)),
    ]
    axis = list(range(len(delivered)))
    return Outcome(
        rows,
        [
            Panel(
                "catch-up after 5 s away",
                "s",
                "catch-up, s",
                [Curve("", [(each.at - begin) / SECOND for each in returns], durations)],
                [Curve("usually between", [0, 250], [5, 5]), Curve("and", [0, 250], [6, 6])],
                kind="points",
            ),
            Panel(
                "advance of one pubend",
                "s",
                "tick ms per s",
                [Curve("latestDelivered", axis, delivered), Curve("released", axis, released)],
                [Curve("latestDelivered", [0, 120, 120, 121, 121, 250], [1000, 1000, 700, 700, 1000, 1000])],
            ),
        ],
    )


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def standing(rates: list[float]) -> float:
    """In which share of all seconds nothing moved."""
    return sum(rate < 1 for rate in rates) / len(rates)


CATCHUP = Experiment(
    "catchup",
    DURABLE,
    "figures 5 and 6",
    "subscribers that are away for 5 s now and then",
    VIRTUAL,
    "1 PHB, 1 SHB, 4 pubends; 20 subscribers, and one that only watches. Each gets 10 events/s (the paper: 88, "
    f"200 events/s), is away for 5 s a minute (in 300 s) and takes {FASTER} times its rate at most.",
    run,
)
