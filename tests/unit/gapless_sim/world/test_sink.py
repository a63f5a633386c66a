"""A sink that repeats itself: the same publications under the same keys, cut differently, and nothing else."""

from __future__ import annotations

from collections import Counter, deque
from types import SimpleNamespace
from typing import Any

import pytest

from gapless.core.stream.columns import EventColumns
from gapless.core.wire.messages import KeyedPublished, TickRun
from gapless.errors import ConnectionClosedError, PublishRejectedError, SubscriptionNotFoundError
from gapless_sim.world.choices import Choices
from gapless_sim.world.producer import Publication, key_of
from gapless_sim.world.sink import Epochs, Sink


class Pubend:
    """In the place of a client and what is behind it: logs what is above the mark, and answers when it is told."""

    def __init__(self) -> None:
        self.mark = (-1, -1)
        self.logged: list[int] = []
        self.asked: list[tuple[int, int, list[int]]] = []
        self.waiting: deque[tuple[Any, Any, KeyedPublished]] = deque()
        self.published: list[list[int]] = []
        self.receipts: list[tuple[int, int]] = []
        self.hits: Counter[str] = Counter()
        self.later: deque[Any] = deque()
        self.core = SimpleNamespace(ranges=self)
        self.world = SimpleNamespace(now=0, observe=self, at=self._at)
        self.world.sometimes = lambda name: self.hits.update([name])
        self.paused_until, self.name, self.life = 0, "client1", None
        self.answer: Any = None

    def _at(self, *call: Any, life: Any) -> None:
        self.later.append(call[3])

    def monotonic(self) -> int:
        return 0

    def pump(self) -> None:
        """There is nothing to do."""

    def publish(self, producer: str, epoch: int, index: int, topic: str, events: EventColumns, now: int) -> int:
        batch = events.batch(range(events.count))
        keys = [key_of(e[len(e) - n :]) for e, n in zip(batch.events, batch.body_lengths, strict=True)]
        self.asked.append((epoch, index, keys))
        fresh = [key for at, key in enumerate(keys, index) if (epoch, at) > self.mark]
        self.mark = max(self.mark, (epoch, index + len(keys) - 1))
        runs = [TickRun(1024 * (len(self.logged) + 1), 1024, len(fresh))] if fresh else []
        self.logged += fresh
        self.answer = KeyedPublished(1, "p@1", runs)
        return 1

    def ask(self, number: int, answered: Any, failed: Any) -> None:
        self.waiting.append((answered, failed, self.answer))

    # As an oracle.

    def receipted(self, sink: Sink, publication: Publication, pubend: str, tick: int, *, durable: bool) -> None:
        self.receipts.append((publication.key, tick))


def sink(seed: int, epochs: Epochs | None = None) -> tuple[Pubend, Sink, Epochs]:
    """A sink that has begun."""
    pubend: Any = Pubend()
    pubend.world.observe = SimpleNamespace(
        published=lambda _, publications: pubend.published.append([publication.key for publication in publications]),
        receipted=pubend.receipted,
    )
    keys = iter(range(1, 10_000))
    epochs = epochs or Epochs("s", "a")
    begun = Sink(pubend, epochs, Choices(seed).stream("sink"), lambda topic: Publication(next(keys), topic, {}))
    return pubend, begun, epochs


def go_on(pubend: Pubend, times: int) -> None:
    """Answers come, and time passes."""
    for _ in range(times):
        if pubend.waiting:
            answered, _, answer = pubend.waiting.popleft()
            answered(answer)
        elif pubend.later:
            pubend.later.popleft()()


@pytest.mark.parametrize("seed", range(8))
def test_however_it_repeats_itself_its_keys_stand_for_the_same_publications(seed: int) -> None:
    pubend, _, _ = sink(seed)
    go_on(pubend, 400)
    by_key: dict[tuple[int, int], int] = {}
    for epoch, index, keys in pubend.asked:
        for at, key in enumerate(keys, index):
            assert by_key.setdefault((epoch, at), key) == key

    assert pubend.logged == sorted(set(pubend.logged))
    told = {(key, tick) for key, tick in pubend.receipts if tick}
    places = {(key, 1024 * at) for at, key in enumerate(pubend.logged, 1)}
    waiting = {
        run.first + 1024 * at for *_, answer in pubend.waiting for run in answer.ticks for at in range(run.count)
    }
    assert told == {(key, tick) for key, tick in places if tick not in waiting}
    assert pubend.hits["sink.epoch repeated"] > 0
    assert pubend.hits["sink.two attempts at once"] > 0


def test_oracles_are_told_of_every_tail_that_may_be_logged() -> None:
    pubend, _, _ = sink(3)
    _, _, keys = pubend.asked[0]

    assert pubend.published[: len(keys)] == [keys[at:] for at in range(len(keys))]


def test_an_epoch_that_was_not_done_is_repeated_by_the_next_process() -> None:
    _, _, epochs = sink(1)
    before = [publication.key for publication in epochs.publications]
    again, _, _ = sink(2, epochs)
    go_on(again, 2)

    assert again.asked[0][0] == 1
    assert again.asked[0][2] == before[: len(again.asked[0][2])]


def test_in_the_liveness_phase_no_new_epoch_begins() -> None:
    pubend, begun, epochs = sink(1)
    begun.in_liveness = True
    go_on(pubend, 400)

    assert epochs.publications == []
    assert epochs.epoch == 1
    assert not pubend.waiting


def test_one_whose_pubend_is_gone_is_over() -> None:
    _, begun, _ = sink(1)
    over = []
    for error in (ConnectionClosedError("the process ends"), PublishRejectedError("gone")):
        begun.fail(error)
        over.append(begun.over)
    assert over == [False, True]
    _, other, _ = sink(1)
    with pytest.raises(SubscriptionNotFoundError):
        other.fail(SubscriptionNotFoundError("what has that to do with it"))
