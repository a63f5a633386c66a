"""Matches one event against many filters at once, by masks over filters.

A selector is a list of alternatives; each alternative is a set of predicates that must all hold. Every alternative has
a *slot*, a bit in the masks of this module. For each name that predicates read, the event's value determines which
slots *fail*:

- equality, by hash;
- bounds, by bisection over prepared unions in their order;
- all others, by testing each distinct predicate once.

A slot that fails nowhere matches. Failures are joined, and not successes, because a slot with several predicates fails
as soon as one of them fails.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from itertools import chain, product
from math import prod
from typing import Final, Generic, TypeAlias, TypeVar

from gapless.selectors.compile import event_test
from gapless.selectors.headers import HEADER_KINDS
from gapless.selectors.masks import select
from gapless.selectors.normal import AllOf, Normal
from gapless.selectors.predicates import Absent, BoundPredicate, EventTest, OneOf, Predicate, Unary, Values, ValueTest
from gapless.selectors.values import Value, ValueKind, kind_of

ALTERNATIVES_MAX: Final = 8
"""A selector with more alternatives than this is tested as a whole, event by event."""

BLOCK_MAX: Final = 32
"""How many limits may lie between two prepared unions. With fewer a change costs more, with more an event."""

Alternative: TypeAlias = tuple[Predicate, ...]
"""Predicates that must all hold."""

Key = TypeVar("Key")
Entry = TypeVar("Entry")
Test = TypeVar("Test")
Asked = TypeVar("Asked", bound=Predicate)


class SlotIndex(Generic[Key]):
    """Selectors under keys; it finds those that hold for an event."""

    def __init__(self) -> None:
        self._live = 0
        # The key of each slot; for a free slot, its last key.
        self._owners: list[Key] = []
        self._free: list[int] = []
        self._names: dict[str, _NameSlots] = {}
        self._computed: dict[Predicate, _Tested[EventTest]] = {}
        self._placed: dict[Key, list[tuple[int, Alternative]]] = {}
        self._with_several_slots = 0
        self._whole: dict[Key, EventTest] = {}

    def __len__(self) -> int:
        return len(self._placed) + len(self._whole)

    def add(self, key: Key, normal: Normal) -> None:
        """Adds a selector, under a key that is not there yet."""
        found = alternatives(normal)
        if found is None:
            self._whole[key] = event_test(normal)
        else:
            self._placed[key] = [(self._take_slot(key, predicates), predicates) for predicates in found]
            self._with_several_slots += len(found) > 1

    def remove(self, key: Key) -> None:
        """Removes a key and its selector."""
        if key in self._whole:
            del self._whole[key]
            return
        placed = self._placed.pop(key)
        self._with_several_slots -= len(placed) > 1
        for slot, predicates in placed:
            self._give_slot(slot, predicates)

    def match(self, properties: Values, headers: Values) -> list[Key]:
        """Returns the keys whose selectors hold for an event, each once."""
        alive = self._live
        for name, slots in self._names.items():
            source = headers if name in HEADER_KINDS else properties
            alive ^= alive & slots.failing(source.get(name))
            if not alive:
                break
        for tested in self._computed.values():
            if alive & tested.slots and not tested.test(properties, headers):
                alive ^= alive & tested.slots
        found = select(self._owners, alive)
        if self._with_several_slots:
            found = list(dict.fromkeys(found))
        if self._whole:
            found += [key for key, holds in self._whole.items() if holds(properties, headers)]
        return found

    def cost(self) -> int:
        """Returns about how many nanoseconds one `match` takes, without what it finds."""
        operation = 400 + len(self._owners) // 32
        names = sum(slots.cost(operation) for slots in self._names.values())
        return 1500 + names + 1500 * (len(self._computed) + len(self._whole))

    def _take_slot(self, key: Key, predicates: Alternative) -> int:
        if self._free:
            slot = self._free.pop()
            self._owners[slot] = key
        else:
            slot = len(self._owners)
            self._owners.append(key)
        bit = 1 << slot
        self._live |= bit
        for predicate in predicates:
            if isinstance(predicate, Unary):
                self._names.setdefault(predicate.name, _NameSlots()).add(predicate, bit)
            else:
                self._computed.setdefault(predicate, _Tested(predicate.event_test())).slots |= bit
        return slot

    def _give_slot(self, slot: int, predicates: Alternative) -> None:
        bit = 1 << slot
        self._live &= ~bit
        self._free.append(slot)
        for predicate in predicates:
            if not isinstance(predicate, Unary):
                _clear_tested(self._computed, predicate, bit)
            # Already gone if another predicate of this slot was the last one on this name.
            elif slots := self._names.get(predicate.name):
                slots.remove(predicate, bit)
                if slots.is_empty():
                    del self._names[predicate.name]


class _Tested(Generic[Test]):
    """A test, and the slots that fail if it does not hold."""

    __slots__ = ("slots", "test")

    def __init__(self, test: Test) -> None:
        self.test = test
        self.slots = 0


class _NameSlots:
    """The predicates of all slots on the value of one name."""

    def __init__(self) -> None:
        self._required = 0
        self._absent = 0
        self._equal: dict[Value, int] = {}
        self._equal_all = 0
        self._bounds: dict[str, _Bounds] = {}
        self._tested: dict[Unary, _Tested[ValueTest]] = {}

    def is_empty(self) -> bool:
        """Whether no slot has a predicate here."""
        return not self._required | self._absent

    def failing(self, value: Value) -> int:
        """Returns the slots that fail for this value."""
        if value is None:
            return self._required
        failing = self._absent
        kind = kind_of(value)
        if self._equal_all:
            holding = 0 if kind is ValueKind.BOOLEAN else self._equal.get(value, 0)
            failing |= self._equal_all ^ holding
        for bounds in self._bounds.values():
            failing |= bounds.failing(value) if kind is ValueKind.NUMBER else bounds.all  # type: ignore[arg-type]
        for tested in self._tested.values():
            if not tested.test(value):
                failing |= tested.slots
        return failing

    def add(self, predicate: Unary, bit: int) -> None:
        """Adds a predicate of a slot."""
        if isinstance(predicate, Absent):
            self._absent |= bit
            return
        self._required |= bit
        if isinstance(predicate, OneOf) and not self._equal_all & bit:
            self._equal_all |= bit
            for constant in predicate.constants:
                self._equal[constant] = self._equal.get(constant, 0) | bit
        elif isinstance(predicate, BoundPredicate):
            self._bounds.setdefault(predicate.operator, _Bounds(predicate.operator)).add(predicate.limit, bit)
        else:
            # Also the second equality of a slot: both must hold, but the hash can hold only one of them.
            self._tested.setdefault(predicate, _Tested(predicate.test())).slots |= bit

    def remove(self, predicate: Unary, bit: int) -> None:
        """Removes a predicate of a slot. All predicates of a slot are removed together."""
        self._absent &= ~bit
        self._required &= ~bit
        self._equal_all &= ~bit
        if isinstance(predicate, OneOf):
            for constant in predicate.constants:
                _clear(self._equal, constant, bit)
        if isinstance(predicate, BoundPredicate) and (bounds := self._bounds.get(predicate.operator)):
            bounds.remove(predicate.limit, bit)
            if not bounds.all:
                del self._bounds[predicate.operator]
        _clear_tested(self._tested, predicate, bit)

    def cost(self, operation: int) -> int:
        """Returns about how many nanoseconds `failing` takes, if an operation on masks takes `operation`."""
        return operation * (2 + 2 * len(self._bounds)) + 200 * len(self._tested)


class _Bounds:
    """The limits of one operator, ordered so that the limits that a value fails come first; > and >= are kept negated.

    The limits lie in blocks, in order. For each block there is the union of the slots of all blocks before it. So a
    change touches one bit of these unions; and a value needs one union, and the limits that it passes in one block.
    """

    def __init__(self, operator: str) -> None:
        self.all = 0
        self._sign = -1 if operator in (">", ">=") else 1
        self._bisect = bisect_right if operator in ("<", ">") else bisect_left
        self._slots: dict[float, tuple[int, ...]] = {}
        self._blocks: list[list[float]] = []
        self._firsts: list[float] = []
        self._before: list[int] = []

    def add(self, limit: float, bit: int) -> None:
        """Adds the limit of a slot."""
        key, slot = self._sign * limit, bit.bit_length() - 1
        self.all |= bit
        block = self._block_of(key)
        if key not in self._slots:
            insort(self._blocks[block], key)
            self._firsts[block] = self._blocks[block][0]
        self._slots[key] = (*self._slots.get(key, ()), slot)
        for later in range(block + 1, len(self._before)):
            self._before[later] |= bit
        if len(self._blocks[block]) > BLOCK_MAX:
            self._split(block)

    def remove(self, limit: float, bit: int) -> None:
        """Removes the limit of a slot."""
        key, slot = self._sign * limit, bit.bit_length() - 1
        if slot not in self._slots.get(key, ()):
            return
        self.all &= ~bit
        block = self._block_of(key)
        for later in range(block + 1, len(self._before)):
            self._before[later] &= ~bit
        self._slots[key] = tuple(other for other in self._slots[key] if other != slot)
        if not self._slots[key]:
            del self._slots[key]
            self._take_out(block, key)

    def failing(self, value: float) -> int:
        """Returns the slots whose limit this number fails."""
        key = self._sign * value
        block = self._bisect(self._firsts, key) - 1
        if block < 0:
            return 0
        limits, failing = self._blocks[block], self._before[block]
        for limit in limits[: self._bisect(limits, key)]:
            for slot in self._slots[limit]:
                failing |= 1 << slot
        return failing

    def _block_of(self, key: float) -> int:
        if not self._blocks:
            self._blocks.append([])
            self._firsts.append(key)
            self._before.append(0)
        return max(bisect_right(self._firsts, key) - 1, 0)

    def _split(self, block: int) -> None:
        limits = self._blocks[block]
        left, right = limits[: len(limits) // 2], limits[len(limits) // 2 :]
        before = self._before[block]
        for limit in left:
            for slot in self._slots[limit]:
                before |= 1 << slot
        self._blocks[block : block + 1] = left, right
        self._firsts.insert(block + 1, right[0])
        self._before.insert(block + 1, before)

    def _take_out(self, block: int, key: float) -> None:
        limits = self._blocks[block]
        del limits[bisect_left(limits, key)]
        if limits:
            self._firsts[block] = limits[0]
        else:
            del self._blocks[block], self._firsts[block], self._before[block]


def alternatives(normal: Normal) -> list[Alternative] | None:
    """Returns the alternatives of a normal form, of which one must hold as a whole; None if there are too many."""
    if isinstance(normal, Predicate):
        return [(normal,)]
    parts: list[list[Alternative]] = []
    for part in normal.parts:
        found = alternatives(part)
        if found is None:
            return None
        parts.append(found)
    count = prod(map(len, parts)) if isinstance(normal, AllOf) else sum(map(len, parts))
    if count > ALTERNATIVES_MAX:
        return None
    if isinstance(normal, AllOf):
        return [tuple(dict.fromkeys(chain(*choice))) for choice in product(*parts)]
    return list(chain(*parts))


def _clear(masks: dict[Entry, int], key: Entry, bit: int) -> None:
    left = masks.get(key, 0) & ~bit
    if left:
        masks[key] = left
    else:
        masks.pop(key, None)


def _clear_tested(tested: dict[Asked, _Tested[Test]], predicate: Asked, bit: int) -> None:
    if predicate in tested:
        tested[predicate].slots &= ~bit
        if not tested[predicate].slots:
            del tested[predicate]
