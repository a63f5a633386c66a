"""Sessions watched at the SHB's side, and what it has heard from who had a subscription."""

from __future__ import annotations

from gapless.core.wire.messages import Acknowledge, Acknowledged, InUse, StartAt, Subscribe, Subscribed
from gapless_sim.recording.session_tap import ReceivedAcknowledgements

P, NODE = "p@1", "node1"


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


def test_another_disk_gives_the_same_id_under_another_seal() -> None:
    """Hostile 701018: who reads late has the subscription of the old disk, although the new one gave its id again."""
    hearing = ReceivedAcknowledgements()
    hearing.on_given(NODE, 5, given(1, b"old"))
    hearing.forget(NODE)
    hearing.on_given(NODE, 6, given(1, b"new"))

    assert [hearing.has_given(NODE, seal) for seal in (b"old", b"new")] == [False, True]
