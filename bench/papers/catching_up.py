"""001, figures 5 and 6: subscribers that are away for 5 s now and then, and how fast everything advances meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from bench.papers.experiment import DURABLE, VIRTUAL, Bar, Curve, Experiment, Figure, Outcome, Panel, Sizes
from bench.papers.virtual import Setup, Stage, Subscriber, names_on_each, play
from bench.processes import quantile
from gapless_sim.world.options import SECOND

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
    """How long it took."""
    late = 2 * max(subscriber.latencies(stage.began, stage.began + round(FIRST * SECOND)))
    return Return(at, (subscriber.caught_up_at(at, at + 12 * SECOND, late) - at) / SECOND)


def _outcome(stage: Stage, returns: list[Return], seconds: float) -> Outcome:
    begin, end = stage.began + round(FIRST * SECOND), stage.began + round((FIRST + seconds) * SECOND)
    moves = stage.moves_of("phb1-0")
    delivered, released = moves.rates("delivered", begin, end), moves.rates("released", begin, end)
    durations = [each.seconds for each in returns]
    early, late = (median(each.seconds for each in half) for half in (returns[::2], returns[1::2]))
    watcher = stage.subscribers[0]
    p99 = quantile(watcher.latencies(begin, end), 0.99) / quantile(watcher.latencies(stage.began, begin), 0.99)
    took, least = median(durations), min(delivered)
    values = {
        "absences": len(returns),
        "catchup_median_s": took,
        "catchup_p95_s": quantile(durations, 0.95),
        "ratio_catchup_to_should": took / SHOULD,
        "ratio_second_half_to_first": late / early,
        "delivered_mean_tick_ms_per_s": _mean(delivered),
        "delivered_least_tick_ms_per_s": least,
        "ratio_delivered_to_time": _mean(delivered) / 1000,
        "ratio_least_to_mean": least / _mean(delivered),
        "released_mean_tick_ms_per_s": _mean(released),
        "released_most_tick_ms_per_s": max(released),
        "released_seconds_standing_share": standing(released),
        "ratio_watcher_p99": p99,
    }
    axis = list(range(len(delivered)))
    return Outcome(
        values,
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
    {
        "absences": Figure("absences of 5 s"),
        "catchup_median_s": Figure("catch-up, median, s", "5–6 s"),
        "catchup_p95_s": Figure("catch-up, 95 % quantile, s", "5–6 s"),
        "ratio_catchup_to_should": Figure(f"over missed/(c-r), {SHOULD:.2f} s", "0.9–1.1", Bar(0.85, 1.15)),
        "ratio_second_half_to_first": Figure("every second one over the others", "flat", Bar(0.9, 1.1)),
        "delivered_mean_tick_ms_per_s": Figure("latestDelivered, tick ms/s, mean", "≈ 1000"),
        "delivered_least_tick_ms_per_s": Figure("latestDelivered, least", "700 (garbage collection)"),
        "ratio_delivered_to_time": Figure("latestDelivered over time", "≈ 1", Bar(0.99, 1.01)),
        "ratio_least_to_mean": Figure("its least over its mean", "≈ 0.7", Bar(least=0.7)),
        "released_mean_tick_ms_per_s": Figure("released, tick ms/s, mean", "varies much"),
        "released_most_tick_ms_per_s": Figure("released, most", "varies much"),
        "released_seconds_standing_share": Figure("released, share of seconds in which it stands"),
        "ratio_watcher_p99": Figure("p99 of who is never away, over when nobody is", "unaffected", Bar(most=1.05)),
    },
    run,
)
