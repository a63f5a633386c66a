"""001, figures 7 and 8: an SHB is down for 25 s, and all its subscribers come back at once."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from statistics import mean, pstdev

from bench.papers.experiment import DURABLE, VIRTUAL, Bar, Curve, Experiment, Figure, Outcome, Panel, Sizes
from bench.papers.virtual import Moves, Setup, Stage, names_on_each, play
from gapless.core.stream.ticks import MILLISECOND
from gapless_sim.world.options import MILLISECOND as NANOS_PER_MS
from gapless_sim.world.options import SECOND

PUBENDS = 4
RATE = 10.0
"""Events a second that each subscriber gets, and of each of the four pubends: a twentieth of the paper's 200."""
DOWN = 25.0
AWAY = 37.5
"""Seconds from the crash until the subscribers come back, the mean of the paper's."""
FASTER = 10.6 / 8
"""A subscriber takes at most so many times its normal rate, as the paper's SHB could: 10.6 K, not 8 K events/s."""
SHOULD = AWAY / (FASTER - 1)
BEFORE = 10.0
AFTER = 5.0


def run(sizes: Sizes) -> Outcome:
    """Crash, restart, and return."""
    subscribers, scale = sizes.count(20, 4), sizes.pick(1, 0.06)
    down, away, should = DOWN * scale, AWAY * scale, SHOULD * scale
    looks: dict[str, int] = {}

    def prepare(stage: Stage) -> None:
        for name in names_on_each(PUBENDS, "phb1"):
            stage.publisher(name, "phb1", RATE, values=PUBENDS)
        for number in range(subscribers):
            pace = round(SECOND / (FASTER * RATE))
            stage.subscriber(f"c{number}", "shb1", value=number % PUBENDS, pace=pace, window=round(FASTER * RATE))

    def act(stage: Stage) -> None:
        stage.start_publishing()
        stage.wait(BEFORE)
        looks["crash"] = stage.now
        stage.crash("shb1")
        for subscriber in stage.subscribers:
            subscriber.leave()
        stage.wait(down)
        looks["boot"] = stage.now
        stage.boot("shb1")
        stage.wait(away - down)
        looks["back"] = stage.now
        for subscriber in stage.subscribers:
            subscriber.attach()
        stage.wait(1.2 * should + AFTER)

    stage = play(Setup("phb1:phb shb1:shb<phb1", pubends=PUBENDS), prepare, act)
    return _outcome(stage, looks["crash"], looks["boot"], looks["back"], should)


def _outcome(stage: Stage, crash: int, boot: int, back: int, should: float) -> Outcome:
    moves = stage.moves_of("phb1-0")
    late = 2 * max(max(subscriber.latencies(stage.began, crash - SECOND)) for subscriber in stage.subscribers)
    ends = [subscriber.caught_up_at(back, stage.now, late) for subscriber in stage.subscribers]
    durations = [(end - back) / SECOND for end in ends]
    took, end = mean(durations), round(mean(ends))
    published = sum(len(publisher.published) for publisher in stage.publishers) / (stage.now - stage.began)
    pushed = published * (end - back)
    sent = stage.events_said("phb1", back, end)
    wanted = sum(back <= each.handed < end for subscriber in stage.subscribers for each in subscriber.handed)
    rates = _rates(stage, stage.began, back + round((1.2 * should + AFTER) * SECOND))
    normal = rates[2 : int(BEFORE) - 1]
    first, last = int((back - stage.began) / SECOND) + 2, int((end - stage.began) / SECOND) - 1
    catching = rates[first:last]
    standing = moves.advance("delivered", crash, boot) + moves.advance("released", crash, back)
    values = {
        "stands_while_down_tick_ms": standing,
        "ratio_constream_slope": moves.slope(boot),
        "ratio_released_slope": moves.advance("released", back, end) / ((end - back) / NANOS_PER_MS),
        "released_halfway_share": moves.advance("released", back, (back + end) // 2)
        / moves.advance("released", back, end),
        "away_s": (back - crash) / SECOND,
        "catchup_mean_s": took,
        "ratio_catchup_to_should": took / should,
        "catchup_deviation_share": pstdev(durations) / took,
        "ratio_rate_catching_up": mean(catching) / mean(normal),
        "ratio_rate_deviation": pstdev(catching) / mean(catching),
        "ratio_phb_sent_to_published": sent / pushed,
        "ratio_phb_sent_to_delivered": sent / wanted,
    }
    return Outcome(
        values, _panels(moves, crash, (crash - stage.began) / SECOND, [rate / mean(normal) for rate in rates])
    )


def _panels(moves: Moves, crash: int, running: float, rates: Sequence[float]) -> list[Panel]:
    """Of one pubend, and of the rate over normal; it ran so many seconds before the crash."""
    seconds = [(at - crash) / SECOND for at in moves.at]
    origin = moves.delivered[bisect_right(moves.at, crash) - 1]

    def away(values: list[int]) -> list[float]:
        return [(value - origin) / MILLISECOND / 1000 for value in values]

    return [
        Panel(
            "one pubend",
            "s since the crash",
            "tick s",
            [
                Curve("latestDelivered", seconds, away(moves.delivered)),
                Curve("released", seconds, away(moves.released)),
            ],
            [
                Curve("latestDelivered", [-10, 0, 25, 31.25, 160], [-10, 0, 0, 31.25, 160]),
                Curve("released", [-10, 0, 37.5, 153.5, 160], [-10, 0, 0, 153.5, 160]),
            ],
            kind="steps",
        ),
        Panel(
            "events/s to all subscribers, over normal",
            "s since the crash",
            "over normal",
            [Curve("", [second - running for second in range(len(rates))], rates)],
            [Curve("", [-10, 0, 0, 37.5, 37.5, 153.5, 153.5, 160], [1, 1, 0, 0, FASTER, FASTER, 1, 1])],
        ),
    ]


def _rates(stage: Stage, begin: int, end: int) -> list[int]:
    """Events handed to all subscribers, in each second."""
    counted = Counter((each.handed - begin) // SECOND for subscriber in stage.subscribers for each in subscriber.handed)
    return [counted[second] for second in range((end - begin) // SECOND)]


SHB_CRASH = Experiment(
    "shb-crash",
    DURABLE,
    "figures 7 and 8",
    "an SHB is down for 25 s, and all its subscribers come back at once",
    VIRTUAL,
    "1 PHB, 1 SHB, 4 pubends; 20 subscribers, each gets 10 events/s (the paper: 40, 200 events/s), comes back 37.5 s "
    "after the crash and takes 1.325 times its rate at most, which is what the paper's SHB could do.",
    {
        "stands_while_down_tick_ms": Figure(
            "advance while it is down, and of released until all return", "none", Bar(0, 0)
        ),
        "ratio_constream_slope": Figure("latestDelivered behind the restart, over normal", "≈ 5", Bar(least=5)),
        "ratio_released_slope": Figure(
            "released while all catch up, over normal", "slightly above 1", Bar(1, 1.1 * FASTER)
        ),
        "released_halfway_share": Figure(
            "how far released is when half of the catch-up is over", "≈ half", Bar(0.4, 0.6)
        ),
        "away_s": Figure("away, s", "37.55"),
        "catchup_mean_s": Figure("catch-up of all at once, mean, s", "116"),
        "ratio_catchup_to_should": Figure("over missed/(c-r)", f"{116 / SHOULD:.2f}", Bar(0.9, 1.1)),
        "catchup_deviation_share": Figure("its standard deviation, over its mean", "–"),
        "ratio_rate_catching_up": Figure("events/s to all, catching up over normal", "above 1", Bar(least=1)),
        "ratio_rate_deviation": Figure("their deviation from second to second, over the mean", "large, shrinking"),
        "ratio_phb_sent_to_published": Figure(
            "events the PHB sends meanwhile, over published", "slightly above 1", Bar(1, 1.5)
        ),
        "ratio_phb_sent_to_delivered": Figure("the same, over deliveries", "≪ 1", Bar(0, 0.5)),
    },
    run,
)
