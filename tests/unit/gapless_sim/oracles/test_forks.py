"""N2: what two processes of a PHB have logged is delivered, or told."""

from __future__ import annotations

from types import SimpleNamespace

from gapless.core.network.facts import Know, Progress, PubendMeta, Seen
from gapless.core.stream.ticks import tick_at
from gapless.core.wire.messages import GapReason
from gapless_shb.core.state.gauges import HEAD
from gapless_sim.oracles.delivery import I1Match, I3Gapless
from gapless_sim.oracles.forks import N2Again, N2Told
from gapless_sim.world.clocks import WALL_BEGIN
from unit.gapless_sim.oracles.model_fixture import SHB, ModelFixture, P, violates

AT = tick_at(WALL_BEGIN)
HOST = SimpleNamespace(name="phb9", roles=frozenset({"phb"}))
"""A PHB, and nothing else; subscriptions are at another node."""
TWICE = GapReason.TWICE.value


def forked() -> tuple[ModelFixture, N2Told]:
    fixture = ModelFixture(I1Match, I3Gapless, N2Told)
    fixture.say(AT, AT + 20, (AT + 10, 1), (AT + 20, 2), broker=HOST.name)
    fixture.observe.copied(HOST)
    judge = fixture.oracles[N2Told]
    assert isinstance(judge, N2Told)
    return fixture, judge


def test_what_comes_to_light_below_a_gap_that_was_told_is_told() -> None:
    fixture, judge = forked()
    reader = fixture.attach(fixture.row(), p=AT + 20)
    fixture.gap(reader, AT + 20, AT + 50, reason=TWICE)
    fixture.receipt(3, AT + 30)
    assert judge.settled()

    fixture.silence(reader, AT + 50, AT + 70)
    fixture.receipt(4, AT + 60)
    assert not judge.settled()


def test_a_gap_for_another_reason_tells_nothing() -> None:
    fixture, judge = forked()
    reader = fixture.attach(fixture.row(), p=AT + 5)
    fixture.silence(reader, AT + 5, AT + 40)
    fixture.gap(reader, AT + 40, AT + 50, reason="damaged")

    assert not judge.settled()


def test_at_a_tick_at_which_both_have_logged_something_either_is_right() -> None:
    fixture, _ = forked()
    fixture.observe.known_beside(HOST.name, fixture.knowledge(AT + 10, AT + 20, [(AT + 20, 3)]))
    fixture.hand_out(fixture.attach(fixture.row(), p=AT + 10), (AT + 20, 2))
    fixture.hand_out(fixture.attach(fixture.row(), sid=2, p=AT + 10), (AT + 20, 3))

    with violates("I1"):
        fixture.hand_out(fixture.attach(fixture.row(), sid=3, p=AT + 10), (AT + 20, 4))


class Again:
    """An SHB at a node of its own, which stands at AT + 10 and hears of a fork there."""

    def __init__(self) -> None:
        self.fixture = ModelFixture(N2Again, second_hosts=0.1)
        self.fixture.say(AT, AT + 20, broker=HOST.name)
        judge = self.fixture.oracles[N2Again]
        assert isinstance(judge, N2Again)
        self.judge = judge
        self.node = SimpleNamespace(name="node2", gauges=lambda: [HEAD.gauge(AT + 10, P)])
        self.fixture.world.brokers[self.node.name] = self.node  # type: ignore[assignment]
        self.see()
        self.see((AT + 5, AT + 40))

    def see(self, *forks: tuple[int, int]) -> None:
        """It is told what its pubend is."""
        self.judge.said(self.node.name, 0, Seen(PubendMeta(P, HOST.name, forks=forks), AT))

    def passes(self, upto: int) -> None:
        """It has passed everything up to there."""
        self.judge.informed(self.node.name, 0, Progress(SHB, P, AT, upto))


def test_what_an_shb_was_told_before_it_heard_of_a_fork_is_told_again_before_it_passes_it() -> None:
    again = Again()
    again.passes(AT + 10)
    again.judge.said(again.node.name, 1, Know(again.fixture.knowledge(AT + 10, AT + 30)))
    again.passes(AT + 30)

    with violates("N2"):
        again.passes(AT + 31)


def test_another_shb_on_an_empty_disk_passes_what_lies_below_the_tick_from_which_it_counts() -> None:
    again = Again()
    again.judge.wiped(again.node)  # type: ignore[arg-type]
    again.see((AT + 5, AT + 40))
    again.passes(AT + 60)
