"""Which batches are unanswered, and under which sequences (protocol: publishing; T39)."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from gapless.core.client.publishing.batches import BatchQueue, QueuedBatch
from gapless.core.wire.tokens import CheckpointToken
from gapless.errors import RemoteProtocolError
from unit.gapless.core.client.harness import columns

MANY = 100
LARGE = 1 << 20


def queue(*counts: int) -> BatchQueue:
    """A batch for each number, with so many events."""
    batches = BatchQueue()
    for ticket, count in enumerate(counts, 1):
        batches.append(QueuedBatch(columns(*[b"x"] * count), (), ticket))
    return batches


def sent(*counts: int) -> BatchQueue:
    batches = queue(*counts)
    batches.send(MANY, LARGE, LARGE)
    return batches


def tickets(batches: Iterable[QueuedBatch]) -> list[int]:
    return [batch.ticket for batch in batches]


def firsts(batches: Iterable[QueuedBatch]) -> list[int]:
    return [batch.first for batch in batches]


def test_sequences_follow_from_the_place_in_the_queue() -> None:
    batches = queue(2, 1, 3)
    batches.follow(10)

    assert firsts(batches.send(2, LARGE, LARGE)) == [11, 13]
    assert batches.send(2, LARGE, LARGE) == []
    assert firsts(batches.send(3, LARGE, LARGE)) == [14]
    assert [batch.last for batch in batches] == [12, 13, 16]


def test_a_window_counts_bytes_but_lets_the_first_pass() -> None:
    batches = queue(5, 1, 1)
    size = next(iter(batches)).events.size

    assert tickets(batches.send(MANY, size - 1, LARGE)) == [1]
    assert batches.send(MANY, size - 1, LARGE) == []
    batches.take_logged(1)
    assert tickets(batches.send(MANY, size - 1, LARGE)) == [2, 3]


def test_a_link_with_any_room_takes_one_batch_at_least() -> None:
    batches = queue(1, 1, 1)
    size = next(iter(batches)).events.size

    assert batches.send(MANY, LARGE, 0) == []
    assert batches.has_unsent
    assert tickets(batches.send(MANY, LARGE, 1)) == [1]
    assert tickets(batches.send(MANY, LARGE, size + 1)) == [2, 3]
    assert not batches.has_unsent


def test_what_has_its_receipt_makes_room() -> None:
    batches = queue(1, 2, 1)
    batches.send(2, LARGE, LARGE)
    rest = batches.bytes

    taken = batches.take_logged(batches.count_up_to(3))

    assert tickets(taken) == [1, 2]
    assert (batches.logged, len(batches)) == (3, 1)
    assert batches.bytes == rest - sum(batch.events.size for batch in taken)
    assert firsts(batches.send(2, LARGE, LARGE)) == [4]


@pytest.mark.parametrize("sequence", [0, 1, 4, 9])
def test_a_receipt_ends_a_batch_that_was_sent(sequence: int) -> None:
    batches = queue(2, 1, 1)
    batches.send(2, LARGE, LARGE)

    with pytest.raises(RemoteProtocolError, match="ends no batch"):
        batches.count_up_to(sequence)


def test_what_is_sent_again_may_be_logged_and_keeps_its_sequences() -> None:
    batches = sent(1, 2, 1)
    batches.rewind(2)

    assert [batch.uncertain for batch in batches] == [True, True, True]
    assert batches.count_up_to(1) == 1
    assert firsts(batches.send(MANY, LARGE, LARGE)) == [2, 4]
    assert batches.count_up_to(3) == 2


def test_what_was_taken_back_is_not_on_its_way() -> None:
    batches = sent(1, 1, 1)
    batches.rewind(2)

    for ask in (batches.count_up_to, batches.rewind, batches.drop):
        with pytest.raises(RemoteProtocolError, match="no batch that was sent"):
            ask(3)


@pytest.mark.parametrize("sequence", [2, 6])
def test_a_refusal_names_where_a_batch_begins(sequence: int) -> None:
    with pytest.raises(RemoteProtocolError, match="begins no batch"):
        sent(2, 2).rewind(sequence)


def test_behind_a_batch_that_is_dropped_sequences_are_lost() -> None:
    batches = sent(1, 1, 1)

    assert batches.drop(2).ticket == 2

    assert [(batch.ticket, batch.first, batch.uncertain) for batch in batches] == [(1, 1, True), (3, 0, False)]
    assert batches.bytes == sum(batch.events.size for batch in batches)
    assert firsts(batches.send(MANY, LARGE, LARGE)) == [1, 2]


@pytest.mark.parametrize("sequence", [0, 3])
def test_only_a_batch_that_was_sent_is_dropped(sequence: int) -> None:
    batches = queue(1, 1, 1)
    batches.send(2, LARGE, LARGE)

    with pytest.raises(RemoteProtocolError, match="begins no batch"):
        batches.drop(sequence)
    assert len(batches) == 3


def test_what_a_session_took_with_it_is_uncertain_and_sent_in_the_next() -> None:
    batches = queue(1, 1)
    batches.send(1, LARGE, LARGE)
    batches.on_session_over()
    batches.on_session()

    assert [batch.uncertain for batch in batches] == [True, False]
    assert firsts(batches.send(MANY, LARGE, LARGE)) == [1, 2]


def test_nothing_is_left_when_the_publisher_is_over() -> None:
    batches = sent(1, 1)
    batches.clear()

    assert (len(batches), batches.bytes, batches.send(MANY, LARGE, LARGE)) == (0, 0, [])


TOKEN = CheckpointToken("net", {"p@1": 1}, 1, 1)


def test_nothing_is_sent_behind_a_batch_without_events() -> None:
    """No sequence would show the broker that it is missing, and it would take the later tokens first."""
    batches = queue(2)
    batches.append(QueuedBatch(columns(), (TOKEN,), 2))
    batches.append(QueuedBatch(columns(b"x"), (TOKEN,), 3))

    assert tickets(batches.send(MANY, LARGE, LARGE)) == [1, 2]
    assert batches.send(MANY, LARGE, LARGE) == []
    batches.take_logged(batches.count_up_to(2))
    assert batches.send(MANY, LARGE, LARGE) == []
    assert batches.take_stored().ticket == 2
    assert batches.logged == 2
    assert firsts(batches.send(MANY, LARGE, LARGE)) == [3]


def test_only_a_batch_without_events_is_stored() -> None:
    with pytest.raises(RemoteProtocolError):
        sent(1).take_stored()
    with pytest.raises(RemoteProtocolError):
        queue().take_stored()


def test_tokens_count_for_the_window() -> None:
    batches = BatchQueue()
    batches.append(QueuedBatch(columns(b"x"), (TOKEN,), 1))

    assert batches.bytes == columns(b"x").size + len(str(TOKEN))
    batches.send(MANY, LARGE, LARGE)
    batches.take_logged(1)
    assert batches.bytes == 0
