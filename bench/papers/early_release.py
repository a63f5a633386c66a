"""001, section 3, not plotted there: early release, and one subscriber that is away for longer than events are kept."""

from __future__ import annotations

from bench.papers.experiment import DURABLE, VIRTUAL, Bar, Curve, Experiment, Figure, Outcome, Panel, Sizes
from bench.papers.virtual import Setup, Stage, play
from gapless.core.stream.ticks import MILLISECOND
from gapless_sim.world.options import SECOND

RATE = 20.0
OTHERS = 5
BEFORE = 5.0
RESTART = 3.0
"""Seconds that nodes have for a restart before it comes back."""
RETAIN = 10.0
"""Seconds after which an event goes, whoever still needs it."""


def run(sizes: Sizes) -> Outcome:
    """With early release, without, and with nodes that have in memory what the log gave up."""
    seconds = sizes.pick(60, 12)
    bounded, sampled = _play(seconds, RETAIN, restart=True)
    unbounded, kept = _play(seconds, None, restart=True)
    remembering, _ = _play(seconds, RETAIN, restart=False)
    away, others = bounded.subscribers[0], bounded.subscribers[1:]
    gaps = away.gaps
    lost = sum(gap.end - gap.start for gap in gaps) / MILLISECOND / 1000
    after = sum(each.handed > bounded.began + round((BEFORE + seconds) * SECOND) for each in away.handed)
    every = [subscriber for subscriber in unbounded.subscribers if not subscriber.gaps]
    half = len(sampled) // 2
    values = {
        "gaps_of_the_one_away": len(gaps),
        "gaps_of_the_others": sum(len(each.gaps) for each in others),
        "gap_s": lost,
        "ratio_gap_to_should": lost / (seconds + RESTART - RETAIN),
        "events_after_return": after,
        "log_largest_KiB": max(sampled) / 1024,
        "ratio_log_second_half_to_first": max(sampled[half:]) / max(sampled[:half]),
        "ratio_log_without": max(kept[half:]) / max(kept[:half]),
        "subscribers_without_gap_without_early_release": len(every),
        "gaps_with_memory": sum(len(each.gaps) for each in remembering.subscribers),
    }
    axis = list(range(len(sampled)))
    curves = [
        Curve("maxRetain 10 s", axis, [size / 1024 for size in sampled]),
        Curve("no early release", axis, [size / 1024 for size in kept]),
    ]
    states = (
        "reconnecting durable subscribers that may have missed some event due to early-release get an explicit gap "
        "notification"
    )
    return Outcome(values, [Panel("the log while one is away", "s away", "log, KiB", curves, states=states)])


def _play(seconds: float, retain: float | None, *, restart: bool) -> tuple[Stage, list[int]]:
    """One subscriber is away for so long. Returns how large the log was in each second of it."""
    sampled: list[int] = []

    def prepare(stage: Stage) -> None:
        stage.publisher("p", "phb1", RATE)
        for number in range(1 + OTHERS):
            stage.subscriber(f"c{number}", "shb1")

    def act(stage: Stage) -> None:
        stage.start_publishing()
        stage.wait(BEFORE)
        stage.subscribers[0].leave()
        for _ in range(round(seconds)):
            stage.wait(1)
            sampled.append(stage.log_bytes("phb1"))
        if restart:
            for node in ("phb1", "shb1"):
                stage.crash(node)
                stage.boot(node)
            stage.wait(RESTART)
        stage.subscribers[0].attach()
        stage.wait(10)

    return play(Setup("phb1:phb shb1:shb<phb1", max_retain_seconds=retain), prepare, act), sampled


EARLY_RELEASE = Experiment(
    "early-release",
    DURABLE,
    "section 3, not plotted",
    "one subscriber is away for longer than events are kept",
    VIRTUAL,
    "1 PHB, 1 SHB, 20 events/s, 6 subscribers of all of them; one is away for 60 s, and maxRetain is 10 s. Both "
    "nodes are restarted before it comes back: else it gets what the log gave up from their memory.",
    {
        "gaps_of_the_one_away": Figure("gaps of the one that was away", "explicit", Bar(1, 1)),
        "gaps_of_the_others": Figure("gaps of the others", "never", Bar(0, 0)),
        "gap_s": Figure("length of its gap, s", "away − maxRetain"),
        "ratio_gap_to_should": Figure("its gap, over the time away behind maxRetain", "1", Bar(0.9, 1.1)),
        "events_after_return": Figure("events it is handed when it is back"),
        "log_largest_KiB": Figure("log, largest, KiB"),
        "ratio_log_second_half_to_first": Figure(
            "log in the second half of the absence, over the first", "bounded", Bar(most=1.1)
        ),
        "ratio_log_without": Figure("the same without early release", "grows with the absence", Bar(least=1.5)),
        "subscribers_without_gap_without_early_release": Figure(
            "subscribers without a gap, without early release", "all", Bar(OTHERS + 1, OTHERS + 1)
        ),
        "gaps_with_memory": Figure(
            "gaps where no node was restarted: what the log gave up is in their memory", "–", Bar(0, 0)
        ),
    },
    run,
)
