"""I2 and I5 where an SHB sends, and P1, each with something that breaks it and something that nearly does."""

from __future__ import annotations

import pytest

from gapless.core.wire.codec import decode_server, deliver_head
from gapless.core.wire.messages import (
    Code,
    DeliverGap,
    DeliverSilence,
    Detached,
    Position,
    PubendNumber,
    RangeGap,
    ReadRange,
    Subscribed,
    Target,
)
from gapless_sim.oracles.judge import Judge
from gapless_sim.oracles.sessions import I2Served, I5InOnePiece, P1Protocol
from unit.gapless_sim.oracles.model_fixture import NODE, ModelFixture, P, violates

SESSION = 77


class Served:
    """A session to which subscription 1 was given behind tick 10."""

    def __init__(self, judge: type[Judge] = I2Served) -> None:
        self.fixture = ModelFixture(judge)
        self.say(PubendNumber(0, P), self.given())

    @staticmethod
    def given() -> Subscribed:
        return Subscribed(1, 1, 1, b"", True, [Position(P, 10)])

    def say(self, *messages: object) -> None:
        for message in messages:
            self.fixture.observe.sent(NODE, SESSION, message)

    def send(self, *ticks: int) -> None:
        batch = self.fixture.batch([(tick, tick) for tick in ticks])
        payload = batch.payload((1 << len(ticks)) - 1)
        self.say(decode_server(deliver_head(SESSION, 1, 0) + payload))


@pytest.mark.parametrize(
    "said",
    [DeliverSilence(0, 20, None), DeliverSilence(0, 20, [1]), DeliverGap(1, 0, 10, 20, "lost")],
    ids=["all", "one", "gap"],
)
def test_nothing_is_sent_behind_a_silence_or_a_gap(said: object) -> None:
    served = Served()
    served.say(said)

    with violates("I2"):
        served.send(20)


def test_one_that_was_taken_away_is_sent_nothing() -> None:
    served = Served()
    served.say(Detached(1, Code.TAKEN_OVER, ""))

    with violates("I2"):
        served.send(20)


def lost_upto(tick: int) -> Served:
    """A session with a subscription, and with a range that it reads; the pubend has lost what is up to here."""
    served = Served(I5InOnePiece)
    served.fixture.opens()
    served.fixture.chop(tick)
    served.fixture.observe.received(NODE, SESSION, ReadRange(5, Target("s"), P, 10, 90, 1, 1))
    return served


@pytest.mark.parametrize("start", [20, 30], ids=["at its end", "behind it"])
def test_what_was_lost_is_not_told_in_pieces(start: int) -> None:
    """Nothing is between the two but what is silence for the subscription."""
    served = lost_upto(90)
    served.say(DeliverGap(1, 0, 10, 20, "released early"), DeliverSilence(0, 25, [1]))

    with violates("I5"):
        served.say(DeliverGap(1, 0, start, 40, "released early"))


def test_a_range_is_not_told_in_pieces_either() -> None:
    served = lost_upto(90)
    served.say(RangeGap(5, 10, 20, "released early"))

    with violates("I5"):
        served.say(RangeGap(5, 20, 40, "released early"))


def test_a_session_that_ends_for_the_loss_of_frames_although_none_was_lost() -> None:
    fixture = ModelFixture(P1Protocol)
    client = fixture.world.clients["client1"]

    with violates("P1"):
        fixture.observe.disconnected(client, "frames were lost on the way: 1 before this one")
