"""Receipts: a publication with a receipt is logged, once, for ever."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gapless.core.gauges import values_by
from gapless.errors import PublishRejectedError
from gapless_phb.core import gauges
from gapless_sim.oracles.judge import Judge

if TYPE_CHECKING:
    from gapless.core.stream.ticks import PubendId, Tick
    from gapless.errors import GaplessError
    from gapless_sim.recording.accounts import Logged
    from gapless_sim.recording.model import Model
    from gapless_sim.world.broker import SimBroker
    from gapless_sim.world.producer import Producer, Publication


LEASE_MAX = 5.0
"""Seconds: a longer time nobody waits for."""


class I7Publish(Judge):
    """A receipt means that the event is logged under that tick, for this sending alone; a refusal, that it is not.

    No publication is logged twice; of one that is sent often there are no more events than sendings.
    """

    name = "I7"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._places: dict[int, Logged] = {}
        self._receipted: dict[str, dict[int, None]] = {}
        """By outbox: how many publications have receipts."""
        self._refused: dict[int, str] = {}
        self._hands: dict[int, Producer] = {}
        """Who published a publication first."""
        self._shared: dict[int, None] = {}
        """Publications that more than one producer published."""
        self._active: dict[str, dict[Producer, int]] = {}
        """By name: when each producer published something last, or had a receipt."""
        self._claimed: dict[int, str] = {}
        """Publications that are said to be logged, and were not seen in a log yet."""
        self._tellers: dict[tuple[PubendId, Tick], Producer] = {}
        """Who has the receipt of an event."""
        self._sent: Counter[int] = Counter()
        """How often a publication was sent that is sent often, and was not refused."""
        self._copies: Counter[int] = Counter()
        """How often it is logged."""
        model.listeners.append(self.logged)

    def published(self, producer: Producer, publications: Sequence[Publication]) -> None:
        """Whoever publishes a refused publication once more has changed his mind."""
        for publication in publications:
            if publication.often:
                self._sent[publication.key] += 1
            elif self._hands.setdefault(publication.key, producer) is not producer:
                self._shared[publication.key] = None
        self._active.setdefault(producer.name, {})[producer] = self.world.now
        if self._refused:
            for publication in publications:
                self._refused.pop(publication.key, None)

    def logged(self, event: Logged) -> None:
        """Each publication is in one place of one log."""
        key, histories = event.publication.key, self.model.histories
        before = self._places.get(key)
        self._places[key] = event
        self._claimed.pop(key, None)
        if not histories[event.pubend].sound:
            return
        if event.publication.often:
            self._copies[key] += 1
            self._count(key)
            return
        if before is not None and histories[before.pubend].sound and not self.model.given_up_at(before):
            places = f"at {before.tick} of {before.pubend} and at {event.tick} of {event.pubend}"
            self.fail(f"publication {key} is logged twice: {places}")
        if key in self._refused:
            self.fail(
                f"publication {key} is logged at {event.tick} of {event.pubend}, and was refused: {self._refused[key]}"
            )

    def receipted(
        self, producer: Producer, publication: Publication, pubend: PubendId, tick: Tick, *, durable: bool
    ) -> None:
        """What it says is so."""
        outbox = producer.outbox.name
        self._active.setdefault(producer.name, {})[producer] = self.world.now
        self._receipted.setdefault(outbox, {})[publication.key] = None
        history = self.model.histories.get(pubend)
        expected = history is None or self.world.brokers[history.broker].durable
        if durable != expected:
            self.fail(
                f"{producer.name}: the receipt of publication {publication.key} says of {pubend} that it is "
                f"{'' if durable else 'not '}durable, and the volume of its broker says something else"
            )
        if history is not None and not history.sound:
            return
        if tick:
            other = self._tellers.get((pubend, tick))
            if other is not None:
                self.fail(
                    f"{producer.name} of {producer.client.name} has a receipt for {tick} of {pubend}, for which "
                    f"{other.name} of {other.client.name} has one of another sending"
                )
            self._tellers[pubend, tick] = producer
            event = None if history is None else history.events.get(tick)
            if event is None or event.publication is not publication:
                found = "nothing" if event is None else f"publication {event.publication.key}"
                self.fail(
                    f"{producer.name}: publication {publication.key} has a receipt for {tick} of {pubend}, "
                    f"where {found} is"
                )
        elif publication.key not in self.model.places:
            self._claimed[publication.key] = f"a receipt without a tick of {pubend}"

    def not_published(self, producer: Producer, publications: Sequence[Publication], error: GaplessError) -> None:
        """A refusal says that nothing was logged."""
        if isinstance(error, PublishRejectedError):
            for publication in publications:
                if publication.often:
                    self._sent[publication.key] -= 1
                    self._count(publication.key)
                    continue
                if publication.key in self._shared:
                    continue  # another process published it too, and the log does not show whose batch was logged
                if (
                    publication.key in self.model.places
                    and self.model.histories[self.model.places[publication.key].pubend].sound
                ):
                    place = self.model.places[publication.key]
                    self.fail(
                        f"publication {publication.key} was refused ({error}), "
                        f"and is logged at {place.tick} of {place.pubend}"
                    )
                self._refused[publication.key] = str(error)

    def ready(self, producer: Producer, sequence: int) -> None:
        """A named publisher that comes back learns how many of its publications are logged: the first so many."""
        if not producer.named or producer.outbox.common or self.model.has_lost_disks:
            return
        active = self._active.get(producer.name, {}).items()
        if any(other is not producer and (other.alive or last >= producer.asked_at) for other, last in active):
            return  # another process: what it receives may be as old as its last pause
        publications, places = producer.outbox.publications, self.model.places
        receipted = len(self._receipted.get(producer.outbox.name, ()))
        lost = sum(publication.key in self.model.given_up for publication in publications)
        if sequence < receipted - lost:
            self.fail(
                f"{producer.name} has logged {sequence}, it is told, and has {receipted} receipts, "
                f"of which an operator gave up {lost}"
            )
        if lost:
            return  # what it has sent since follows what was left, so its publications have other numbers
        for publication in publications[:sequence]:
            if publication.key not in places:
                self._claimed[publication.key] = f"the first {sequence} of {producer.name}"
        if sequence < len(publications):
            following = publications[sequence]
            if following.key in places:
                self.fail(
                    f"{producer.name} has logged {sequence}, it is told, and publication "
                    f"{following.key}, the next, is too"
                )

    def ended(self) -> None:
        """By now every log was read to its end."""
        if self._claimed and not self.model.has_lost_disks:
            key, why = next(iter(self._claimed.items()))
            self.fail(f"publication {key} is logged, it was said ({why}), and no log has it")

    def _count(self, key: int) -> None:
        """Refusals come behind what was logged: so whatever is there was sent, and not refused."""
        if self._copies[key] > self._sent[key] and not self.model.has_lost_disks:
            self.fail(f"publication {key} is logged {self._copies[key]} times, and was sent {self._sent[key]} times")

    def refused(self, broker: SimBroker, error: BaseException) -> None:
        """A volume that nobody touched opens."""
        if broker.name not in {**self.model.damaged_brokers, **self.model.wiped_brokers}:
            self.fail(f"{broker.name} does not open its own volume: {error}")


class V3LiveForgetting(Judge):
    """In the end a pubend knows of publishers without a name those that live."""

    name = "V3"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._unnamed: dict[Producer, None] = {}

    def ready(self, producer: Producer, sequence: int) -> None:
        """Somebody is known from now on."""
        if not producer.named:
            self._unnamed[producer] = None

    def settled(self) -> bool:
        """Whether nobody is known who is gone: as soon as they expire, where they are short.

        Where frames get lost between brokers, a PHB may never learn that a session has ended.
        """
        options = self.world.options
        if any(history.has_hole for history in self.model.histories.values()):
            return True  # nothing is written of publishers until an operator comes
        if options.router != "local" or options.publisher_expiry_seconds > LEASE_MAX:
            return True
        return sum(self._known()) <= self._alive()

    def unsettled(self) -> str:
        """Who knows how many."""
        return f"pubends know {list(self._known())} publishers without a name; {self._alive()} live"

    def _alive(self) -> int:
        return sum(producer.alive and producer.client.running for producer in self._unnamed)

    def _known(self) -> Iterator[float]:
        for broker in self.world.brokers.values():
            yield from values_by(broker.gauges(), gauges.UNNAMED_PUBLISHERS, "pubend").values()
