"""Sessions watched at the SHB's side, and what it has heard from who had a subscription."""

from __future__ import annotations

from typing import Any

from gapless.core.wire.messages import Acknowledge, Acknowledged, Deliver, InUse, StartAt, Subscribe, Subscribed
from gapless_sim.recording.observation import Oracle
from gapless_sim.recording.session_tap import ReceivedAcknowledgements
from unit.gapless_sim.worlds import Small

P, NODE = "p@1", "node1"


class Listener(Oracle):
    """Keeps what is heard and said."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.heard_of: list[Any] = []
        self.said: list[Any] = []

    def received(self, broker: str, session: int, message: Any) -> None:
        self.heard_of.append(message)

    def sent(self, broker: str, session: int, message: Any) -> None:
        self.said.append(message)


def test_requests_answers_and_deliveries_are_seen() -> None:
    small = Small()
    listener = Listener(small.world)
    small.world.observe.add(listener)
    small.begin()
    small.publish(2, 1)
    small.rest(1)

    assert small.told == [0, 1, 2]
    assert {type(message) for message in listener.heard_of} == {Subscribe, Acknowledge}
    assert [message.sid for message in listener.said if isinstance(message, Subscribed)] == [1]
    delivered = [message for message in listener.said if isinstance(message, Deliver)]
    assert sum(message.columns.count for message in delivered) == 3


def subscribe(request: int, *acknowledged: int) -> Subscribe:
    said = [Acknowledged(P, tick, tick) for tick in acknowledged]
    return Subscribe(request, "s", ("#",), "", StartAt.TOKEN, 0, None, 0, 0, b"", said, InUse.ERROR, 1, 1, 1, 1)


def given(request: int, seal: bytes = b"seal") -> Subscribed:
    return Subscribed(request, 1, 1, seal, True, [])


def acknowledge(tick: int) -> Acknowledge:
    return Acknowledge(1, [Acknowledged(P, tick, tick)])


def test_the_holders_acknowledgements_count() -> None:
    hearing = ReceivedAcknowledgements()
    hearing.on_given(NODE, 5, given(1))
    hearing.on_request(NODE, 5, acknowledge(30))
    hearing.on_request(NODE, 5, acknowledge(20))

    assert hearing.upto(NODE, 1, P) == 30
    assert hearing.upto(NODE, 1, "q@1") == hearing.upto(NODE, 2, P) == 0


def test_who_lost_the_subscription_is_not() -> None:
    hearing = ReceivedAcknowledgements()
    hearing.on_given(NODE, 5, given(1))
    hearing.on_given(NODE, 6, given(1))
    hearing.on_request(NODE, 5, acknowledge(30))

    assert hearing.upto(NODE, 1, P) == 0


def test_what_is_said_with_a_request_counts_once_that_is_granted() -> None:
    hearing = ReceivedAcknowledgements()
    hearing.on_request(NODE, 5, subscribe(9, 30))
    assert hearing.upto(NODE, 1, P) == 0

    hearing.on_given(NODE, 5, given(9))
    assert hearing.upto(NODE, 1, P) == 30


def test_a_broker_with_another_disk_has_received_nothing() -> None:
    hearing = ReceivedAcknowledgements()
    for broker in (NODE, "node2"):
        hearing.on_given(broker, 5, given(1))
        hearing.on_request(broker, 5, acknowledge(30))
    hearing.forget(NODE)

    assert (hearing.upto(NODE, 1, P), hearing.upto("node2", 1, P)) == (0, 30)


def test_another_disk_gives_the_same_id_under_another_seal() -> None:
    """Hostile 701018: who reads late has the subscription of the old disk, although the new one gave its id again."""
    hearing = ReceivedAcknowledgements()
    hearing.on_given(NODE, 5, given(1, b"old"))
    hearing.forget(NODE)
    hearing.on_given(NODE, 6, given(1, b"new"))

    assert [hearing.has_given(NODE, seal) for seal in (b"old", b"new")] == [False, True]
