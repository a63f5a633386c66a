"""Transforms: what they have published is what follows from their input, each once, in order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from gapless.core.client import Delivery, Gap
from gapless.core.ports import Put, Set
from gapless.core.wire.tokens import CheckpointToken, Tokens, merge_tokens, split_tokens
from gapless.errors import StaleTokenError
from gapless_phb.core import rows
from gapless_phb.core.records import decode_record
from gapless_sim.oracles.judge import Judge
from gapless_sim.oracles.reachability import Reach
from gapless_sim.recording.pubend_logs import LOG, records_apart
from gapless_sim.world.transform import InputConsumer, Recipe, Transform, input_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.core.client import Item
    from gapless.core.ports import Operation
    from gapless.core.stream.ticks import PubendId, Tick
    from gapless.errors import GaplessError
    from gapless_sim.recording.model import Model
    from gapless_sim.world.broker import SimBroker
    from gapless_sim.world.consumer import Consumer
    from gapless_sim.world.producer import Producer, Publication

SHOWN = 5
_TAG = slice(8, 16)
"""Where a record of a log has the tag of its pubend."""
_decode_row = msgspec.msgpack.Decoder(rows.PublisherRow).decode


@dataclass(slots=True, eq=False)
class Work:
    """What became of one recipe."""

    recipe: Recipe
    owner: Transform
    """Who opened it last, as far as any process was told."""
    inputs: dict[PubendId, dict[Tick, int]] = field(default_factory=dict)
    """The keys of all inputs that any process was handed, by their places."""
    told: Tokens = ()
    """What is stored, as processes were told."""


class J3Transforms(Judge):
    """The log of a transform's outputs is what follows from its inputs up to the stored token, each once, in order.

    No owner meets a gap where it has begun, but for what a pubend let go of before it counted the broker; nor is one
    told that its token is stale. What is told to be stored is, and no input is acknowledged beyond that. An owner whose
    input was taken over by a former one takes it back.
    """

    name = "J3"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._reach = Reach(model)
        self._works: dict[int, Work] = {}
        self._written: dict[str, Tokens] = {}
        """What pubends have ever written, by the publishers' names."""

    def ready(self, producer: Producer, sequence: int) -> None:
        """Another process owns a recipe."""
        if isinstance(producer, Transform):
            work = self._works.get(producer.recipe.number)
            if work is None:
                self._works[producer.recipe.number] = Work(producer.recipe, producer)
            else:
                work.owner = producer

    def stored(self, producer: Transform, token: CheckpointToken) -> None:
        """A process was told that a position is durable."""
        self._check_stored(producer, token.ticks, "is told that it has stored")
        work = self._works[producer.recipe.number]
        work.told = merge_tokens(work.told, (token,))

    def handed_out(self, consumer: Consumer, item: Item) -> None:
        """A process has an input; no gap, unless it was taken over and does not know yet."""
        if not isinstance(consumer, InputConsumer):
            return
        work = self._works.get(consumer.transform.recipe.number)
        if work is None:
            return
        if isinstance(item, Delivery):
            keys = zip(item.ticks, self.model.keys(item), strict=True)
            work.inputs.setdefault(item.pubend, {}).update(keys)
        elif isinstance(item, Gap) and work.owner is consumer.transform and _has_begun(work, item.pubend):
            shb = self.model.accounts[consumer.row.number].shb
            if item.start >= self.model.members.get(item.pubend, {}).get(shb, 0):
                self.fail(f"{consumer.lane}, which owns its name, meets {item}")

    def written(self, broker: SimBroker, operations: Sequence[Operation]) -> None:
        """A pubend has stored tokens, if it does not crash before the sync."""
        for operation in records_apart(operations):
            if type(operation) is Put and operation.stream.startswith(LOG):
                tag = int.from_bytes(operation.record[_TAG], "little")
                record = decode_record(tag, operation.index, operation.record)
                if record.tokens:
                    self._note(record.publisher, split_tokens(record.tokens))
            elif type(operation) is Set and operation.table.endswith(".publishers"):
                name = operation.key[len(rows.key(0)) :].decode()
                self._note(name, tuple(map(CheckpointToken.parse, _decode_row(operation.value).tokens)))

    def failed_to_write(self, broker: SimBroker, operations: Sequence[Operation]) -> None:
        """They may be there all the same: then the batch is answered when it comes again."""
        self.written(broker, operations)

    def acknowledged(self, consumer: Consumer, positions: Mapping[PubendId, Tick]) -> None:
        """What is acknowledged may be released: the next process must not have to read it again."""
        if isinstance(consumer, InputConsumer):
            self._check_stored(consumer.transform, positions, "acknowledges")

    def not_published(self, producer: Producer, publications: Sequence[Publication], error: GaplessError) -> None:
        """Who was fenced is told that, whatever its token is; and no owner goes back."""
        if isinstance(producer, Transform) and isinstance(error, StaleTokenError):
            self.fail(f"{producer.name} of {producer.client.name} is told: {error}")

    def settled(self) -> bool:
        """Whether every owner has its input."""
        return not self.unsettled()

    def unsettled(self) -> str:
        """Which owner has not, although all brokers can be reached."""
        return "; ".join(
            f"{work.owner.name} of {work.owner.client.name} does not take its input back"
            for work in self._works.values()
            if self._lacks_input(work.owner)
        )

    def ended(self) -> None:
        """By now every log was read to its end."""
        for work in self._works.values():
            self._judge(work)

    def _lacks_input(self, owner: Transform) -> bool:
        consumer = owner.consumer
        if not owner.alive or not owner.client.running or consumer is None or not consumer.over:
            return False
        account = self.model.accounts[consumer.row.number]
        pubends = [history for history in self.model.histories.values() if history.broker]
        return self._reach.is_served(consumer) and all(self._reach.is_heard(each, account) for each in pubends)

    def _check_stored(self, transform: Transform, positions: Mapping[PubendId, Tick], what: str) -> None:
        stored: dict[PubendId, Tick] = {}
        for token in self._written.get(transform.name, ()):
            stored.update({pubend: max(tick, stored.get(pubend, 0)) for pubend, tick in token.ticks.items()})
        for pubend, tick in positions.items():
            if tick > stored.get(pubend, 0):
                who = f"{transform.name} of {transform.client.name}"
                self.fail(f"{who} {what} {pubend} up to {tick}, and stored is {stored.get(pubend, 0)}")

    def _note(self, name: str, tokens: Tokens) -> None:
        self._written[name] = merge_tokens(self._written.get(name, ()), tokens)

    def _judge(self, work: Work) -> None:
        name = work.recipe.outbox.name
        logged = self._logged(work.recipe)
        for pubend, inputs in work.inputs.items():
            upto = max((token.ticks.get(pubend, 0) for token in work.told), default=0)
            due = [
                (tick, index)
                for tick in sorted(inputs)
                if tick <= upto
                for index in range(len(work.recipe.outputs(inputs[tick])))
            ]
            found = [place for place in logged.get(pubend, ()) if place[0] <= upto]
            if found != due:
                wrong = [place for place in due if place not in found] or [place for place in found if place not in due]
                self.fail(
                    f"{name} has stored {pubend} up to {upto}: {len(due)} outputs are due, {len(found)} are logged; "
                    f"{wrong[:SHOWN] or 'they are in another order'}"
                )

    def _logged(self, recipe: Recipe) -> Mapping[PubendId, Sequence[tuple[Tick, int]]]:
        """The outputs in the order of the log, by the pubends of their inputs: each as the input's tick, and which."""
        found: dict[PubendId, list[tuple[Tick, int]]] = {}
        for key in self._keys():
            of = input_of(key)
            if of is None or of[0] != recipe.number:
                continue
            event = self.model.places[of[1]]
            found.setdefault(event.pubend, []).append((event.tick, of[2]))
        return found

    def _keys(self) -> Iterable[int]:
        for history in self.model.histories.values():
            for tick in history.ticks:
                yield history.events[tick].publication.key


def _has_begun(work: Work, pubend: PubendId) -> bool:
    """Whether a position on a pubend was stored, or an input taken.

    Before, the subscription may not have been counted there: its broker found the pubend after it was created.
    """
    return pubend in work.inputs or any(pubend in token.ticks for token in work.told)
