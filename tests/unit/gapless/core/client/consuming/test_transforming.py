"""The positions of a transform (protocol: transforms)."""

from __future__ import annotations

from gapless.core.client.consuming.transforming import TransformPositions
from gapless.core.wire.tokens import CheckpointToken


def token(tick: int) -> CheckpointToken:
    return CheckpointToken("net", {"p@1": tick}, 1, 1)


def test_positions_are_acknowledged_in_order_when_their_batches_are_durable() -> None:
    positions = TransformPositions(token(0))
    positions.sent(token(1))
    positions.sent(token(2))

    assert (positions.token, len(positions)) == (token(2), 2)
    assert [positions.receipted(), positions.receipted()] == [token(1), token(2)]
    assert positions.owed() is None


def test_a_position_alone_is_sent_at_once_or_waits_until_nothing_is_on_its_way() -> None:
    positions = TransformPositions(token(0))
    assert positions.moved(token(1))
    positions.sent(token(1))

    assert not positions.moved(token(2))
    assert not positions.moved(token(3))
    assert positions.owed() is None
    positions.receipted()
    assert positions.owed() == token(3)


def test_the_next_batch_carries_a_position_that_waits() -> None:
    positions = TransformPositions(token(0))
    positions.sent(token(1))
    positions.moved(token(2))
    positions.sent(token(3))
    positions.receipted()
    positions.receipted()

    assert positions.owed() is None


def test_an_input_that_was_lost_is_taken_back_when_everything_is_answered() -> None:
    positions = TransformPositions(token(0))
    assert not positions.takes_back()

    assert positions.lost_input()  # with nothing on its way, the position is sent to be answered
    positions.sent(token(0))
    assert not positions.takes_back()
    positions.receipted()
    assert positions.takes_back()
    positions.took_back()
    assert not positions.takes_back()


def test_what_is_on_its_way_already_is_answer_enough() -> None:
    positions = TransformPositions(token(0))
    positions.sent(token(1))
    positions.moved(token(2))

    assert not positions.lost_input()
    positions.receipted()
    owed = positions.owed()
    assert owed == token(2)
    positions.sent(owed)  # before the input is asked for
    assert not positions.takes_back()
    positions.receipted()
    assert positions.takes_back()
