"""What an application holds of a shared subscription, and what it has said of it.

Events that are handed out together share a `Hold`: each event alone, in a batch all of them. Nothing else refers to a
hold. So it goes when nobody refers any more to the batch or to one of its events, and what was not settled by then is
retried: nobody else can settle it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias
from weakref import ref

from gapless.client.batches import Events, no_event
from gapless.core.client import Gap
from gapless.core.client.consuming.held import HeldDelivery, HeldEvent, HeldGap
from gapless.core.stream.events import Event
from gapless.core.wire.messages import Kind
from gapless.errors import HoldLostError, SettlementUncertainError, SubscriptionError

if TYPE_CHECKING:
    import asyncio

    from gapless.core.client import Delivery
    from gapless.core.stream.ticks import PubendId

SettleT: TypeAlias = "Event | Gap | HeldBatch | Iterable[Event | Gap | HeldBatch]"
"""What may be settled in one call: a `HeldEvent`, a gap, a batch, or several of them."""


UNCERTAIN: Final = (-1,)
"""In the place of settlements: nobody knows what became of them."""


class Hold:
    """What was handed out together. For gapless itself."""

    __slots__ = ("__weakref__", "owner", "said")

    def __init__(self, owner: object) -> None:
        """`owner`: the subscription that has handed it out."""
        self.owner = owner
        self.said: dict[int, tuple[int, ...]] = {}
        """What was settled of it, by delivery number: the settlements by which it is acknowledged; empty: it was given
        back, or was lost, and nothing more can be said of it; or UNCERTAIN."""


class HoldWatch(ref[Hold]):
    """Is told that a hold has gone, and knows what was held by it. Made as any weak reference is."""

    __slots__ = ("kind", "numbers")

    kind: Kind
    """What is to be said of what was not settled."""
    numbers: Sequence[int]
    """The delivery numbers."""


class HeldBatch(Events[HeldEvent]):
    """Events of one pubend that a shared subscription has handed out together: a sequence.

    They are decoded together, when the first of them is needed; a batch can be settled without that. A pickle of it is
    a list of plain events, which cannot be settled.
    """

    __slots__ = ("hold", "numbers")

    def __init__(
        self, pubend: PubendId, content: list[HeldEvent] | HeldDelivery, numbers: Sequence[int], hold: Hold
    ) -> None:
        """For gapless itself."""
        super().__init__(pubend, content)
        self.numbers = numbers
        """The delivery numbers."""
        self.hold = hold

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (self._decoded(),)

    def _decode(self, delivery: Delivery) -> list[HeldEvent]:
        assert isinstance(delivery, HeldDelivery)
        return decode_held(delivery, self.hold)


def decode_held(delivery: HeldDelivery, hold: Hold) -> list[HeldEvent]:
    """Returns the events of a delivery. Raises RemoteProtocolError if one is malformed."""
    try:
        return delivery.events(hold)
    except ValueError as error:
        raise no_event(error) from error


class Verdicts:
    """What an application has said in one call, until everything is answered."""

    __slots__ = ("_items", "answer", "lost", "unanswered", "uncertain")

    def __init__(self, answer: asyncio.Future[None]) -> None:
        self.answer = answer
        """Gets None, or the error of the call."""
        self.unanswered: dict[int, None] = {}
        """The numbers of its settlements."""
        self.lost: dict[int, None] = {}
        """The delivery numbers of what was not held."""
        self.uncertain = False
        self._items: dict[int, HeldEvent | HeldGap | HeldBatch] = {}

    def add(self, held: Held) -> Sequence[int]:
        """The call says something of these deliveries. Returns those of which it had not said anything."""
        said, numbers = self._items, dict.fromkeys(held.numbers)
        fresh = list(numbers) if said.keys().isdisjoint(numbers) else [each for each in numbers if each not in said]
        said.update(zip(held.numbers, held.items))  # noqa: B905 - a batch is repeated without an end
        return fresh

    def lose(self, number: int) -> None:
        """This was not held any more, so nothing that is said of it counts."""
        self.lost[number] = None
        self._items[number].hold.said[number] = ()

    def wait_for(self, settlements: Iterable[int]) -> None:
        """The call is answered when these settlements are."""
        self.unanswered.update(dict.fromkeys(settlements))

    def on_answer(self, settlement: int, lost: Iterable[int], *, uncertain: bool) -> bool:
        """A settlement is answered. Returns whether the call is answered by that."""
        self.unanswered.pop(settlement, None)
        for number in lost:
            if number in self._items:
                self.lose(number)
        self.uncertain = self.uncertain or uncertain
        return not self.unanswered

    def outcome(self) -> HoldLostError | SettlementUncertainError | None:
        """Returns the error of the call, now that it is answered; None: all of it took effect."""
        if self.uncertain:
            for number, item in self._items.items():
                item.hold.said[number] = UNCERTAIN
            return self.doubt("the broker does not know any more what became of this settlement")
        if not self.lost:
            return None
        events = self._events(self.lost)
        return HoldLostError(f"{shown(events)} not held any more: another consumer has it, or will get it", events)

    def doubt(self, reason: str) -> SettlementUncertainError:
        """Returns the error of a call that was not answered, for this reason."""
        events = self._events(self._items)
        return SettlementUncertainError(f"{reason}: {shown(events)} settled, or will come again", events)

    def _events(self, numbers: Iterable[int]) -> tuple[HeldEvent | HeldGap, ...]:
        found: list[HeldEvent | HeldGap] = []
        for number in numbers:
            item = self._items[number]
            found.append(item[item.numbers.index(number)] if isinstance(item, HeldBatch) else item)
        return tuple(found)


def shown(events: Sequence[HeldEvent | HeldGap]) -> str:
    """Returns a text that names events, with the verb that belongs to it."""
    if len(events) != 1:
        return f"{len(events)} events, the first of them {id_of(events[0])}, are" if events else "nothing is"
    return f"{id_of(events[0])} is"


def id_of(item: HeldEvent | HeldGap) -> str:
    """Returns how a person finds an event, or a gap, in a log."""
    return item.message_id if isinstance(item, HeldEvent) else f"the gap at {item.pubend}:{item.end}"


class Held(NamedTuple):
    """Something that is to be settled, of what was handed out together."""

    hold: Hold
    numbers: Sequence[int]
    """The delivery numbers."""
    items: Iterable[HeldEvent | HeldGap | HeldBatch]
    """What each of them is of, in the same order."""


def held_in(items: Any, owner: object) -> list[Held]:
    """Returns what is to be settled.

    Raises SubscriptionError if something of it was never handed out by the owner, in this process.
    """
    if isinstance(items, (HeldEvent, HeldGap, HeldBatch)):
        return [_held(items, owner)]
    if isinstance(items, (Event, Gap)) or not isinstance(items, Iterable):
        raise SubscriptionError(
            f"only what a shared subscription has handed out in this process is settled, and no {type(items).__name__}"
        )
    found: list[Held] = []
    hold, numbers, together = None, [], []
    for item in items:
        if type(item) is HeldEvent and item.hold is hold is not None:  # of one batch with those before
            numbers.append(item.delivery_number)
            together.append(item)
        elif isinstance(item, (HeldEvent, HeldGap, HeldBatch)):
            found.append(_held(item, owner))
            hold = None
            if not isinstance(item, HeldBatch):
                hold, numbers, together = item.hold, [item.delivery_number], [item]
                found[-1] = Held(hold, numbers, together)
        else:
            raise SubscriptionError(f"events, gaps and batches are settled, and no {type(item).__name__} of them")
    return found


def _held(item: HeldEvent | HeldGap | HeldBatch, owner: object) -> Held:
    if item.hold is None or item.hold.owner is not owner:
        raise SubscriptionError("an event is settled by the subscription that has handed it out")
    if isinstance(item, HeldBatch):
        return Held(item.hold, item.numbers, repeat(item))
    return Held(item.hold, (item.delivery_number,), (item,))
