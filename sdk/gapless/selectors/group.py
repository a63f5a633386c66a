"""The filters of one topic pattern, and the two ways to match them against a batch.

*By event masks*: each distinct predicate answers for the whole batch, each filter is an AND of such answers.
Filters that begin with an equality are filed under its constants (their *gate*): only those are looked at
whose constant occurs in the batch. This is best while events are many and filters few, or gates narrow.

*By slots*: each event is matched against all filters at once (`slots`). This is best where filters are many
and none of them has a gate that keeps most of them out.
"""

from __future__ import annotations

from collections.abc import KeysView, Mapping
from typing import Final, TypeAlias

from gapless.selectors.columns import Batch
from gapless.selectors.compile import MaskCompiler, MaskNode
from gapless.selectors.masks import select
from gapless.selectors.normal import ALWAYS, AllOf, Normal
from gapless.selectors.predicates import OneOf, Values
from gapless.selectors.selector import Selector
from gapless.selectors.slots import SlotIndex
from gapless.selectors.values import Value

GATE_CONSTANTS_MAX: Final = 16
"""An equality with more constants than this keeps too few filters out to be a gate."""

SLOTS_FROM: Final = 8
"""With fewer filters than this, slots are never worth their while."""

MASK_COST: Final = 1200
"""Roughly how many nanoseconds a filter takes by event masks, whatever the size of the batch."""

SLOTS_COST: Final = 3000
FIND_COST: Final = 250
"""Roughly how many nanoseconds an event takes by slots, at the least; and each filter found for it."""


class Entry:
    """A distinct filter, and the keys of those who have it."""

    __slots__ = ("_keys", "keys", "patterns", "selector")

    def __init__(self, patterns: tuple[str, ...], selector: Selector) -> None:
        self.patterns = patterns
        self.selector = selector
        self._keys: dict[int, None] = {}
        self.keys: KeysView[int] = self._keys.keys()
        """A view, in the order in which they came."""

    def add(self, key: int) -> None:
        """Takes a key in."""
        self._keys[key] = None

    def remove(self, key: int) -> None:
        """Forgets a key."""
        del self._keys[key]


Rest: TypeAlias = MaskNode | None
"""What must hold behind a gate; None for nothing more."""


class Group:
    """The entries of one topic pattern."""

    def __init__(self, compiler: MaskCompiler) -> None:
        self._compiler = compiler
        self._open: dict[Entry, Rest] = {}
        self._gates: dict[str, dict[Value, dict[Entry, Rest]]] = {}
        self._placed: dict[Entry, tuple[OneOf | None, Rest]] = {}
        self._slots: SlotIndex[Entry] | None = None
        self._finds_per_event = 0

    def __len__(self) -> int:
        return len(self._placed)

    def add(self, entry: Entry) -> None:
        """Takes an entry in."""
        gate, behind = self._gate_of(entry.selector.normal)
        rest = None if behind == ALWAYS else self._compiler.acquire(behind)
        self._placed[entry] = gate, rest
        if gate is None:
            self._open[entry] = rest
        else:
            constants = self._gates.setdefault(gate.name, {})
            for constant in gate.constants:
                constants.setdefault(constant, {})[entry] = rest
        if self._slots is not None:
            self._slots.add(entry, entry.selector.normal)

    def remove(self, entry: Entry) -> None:
        """Forgets an entry."""
        gate, rest = self._placed.pop(entry)
        if rest is not None:
            self._compiler.release(rest)
        if gate is None:
            del self._open[entry]
        else:
            self._leave_gate(gate, entry)
        if self._slots is not None:
            self._slots.remove(entry)

    def match(self, batch: Batch, mask: int, found: dict[Entry, int]) -> None:
        """Adds to `found` which of the events in `mask` each entry selects, if any."""
        events = mask.bit_count()
        if self._prefers_slots(events):
            finds = self.match_by_slots(batch, mask, found)
        else:
            finds = self.match_by_masks(batch, mask, found)
        self._finds_per_event = finds // events

    def match_by_masks(self, batch: Batch, mask: int, found: dict[Entry, int]) -> int:
        """As `match`, by event masks. How many pairs of event and entry it found."""
        finds = _collect(self._open, batch, mask, found)
        for name, constants in self._gates.items():
            groups = batch.column(name).groups
            fewer, more = (groups, constants) if len(groups) < len(constants) else (constants, groups)
            for value in fewer:
                if value in more and (gated := mask & groups[value]):
                    finds += _collect(constants[value], batch, gated, found)
        return finds

    def match_by_slots(self, batch: Batch, mask: int, found: dict[Entry, int]) -> int:
        """As `match`, event by event. How many pairs of event and entry it found."""
        index = self._slot_index()
        finds = 0
        for event in select(range(len(batch.properties)), mask):
            bit = batch.bits[event]
            entries = index.match(batch.properties[event], batch.headers_of(event))
            finds += len(entries)
            for entry in entries:
                found[entry] = found.get(entry, 0) | bit
        return finds

    def match_one(self, properties: Values, headers: Values) -> list[Entry]:
        """The entries that select an event."""
        if len(self._placed) < SLOTS_FROM:
            return [entry for entry in self._placed if entry.selector.matches(properties, headers)]
        return self._slot_index().match(properties, headers)

    def _slot_index(self) -> SlotIndex[Entry]:
        """Made when first asked for: most groups are small and never do."""
        if self._slots is None:
            self._slots = SlotIndex()
            for entry in self._placed:
                self._slots.add(entry, entry.selector.normal)
        return self._slots

    def _prefers_slots(self, events: int) -> bool:
        """Whether slots match so many events sooner, if those find as many entries as the last ones."""
        if len(self._placed) < SLOTS_FROM:
            return False
        affordable = self._mask_cost(events) // events - FIND_COST * self._finds_per_event
        return affordable > SLOTS_COST and affordable > self._slot_index().cost()

    def _mask_cost(self, events: int) -> int:
        """Roughly how many nanoseconds `match_by_masks` takes, if values are spread evenly over the gates."""
        constants = sum(map(len, self._gates.values()))
        reached = min(constants, events * len(self._gates))
        gated = len(self._placed) - len(self._open)
        return MASK_COST * (len(self._open) + (gated * reached // constants if constants else 0))

    def _gate_of(self, normal: Normal) -> tuple[OneOf | None, Normal]:
        """The equality to file a selector under, and what else must hold: the least crowded one, if any."""
        parts = normal.parts if isinstance(normal, AllOf) else (normal,)
        gates = [part for part in parts if isinstance(part, OneOf) and len(part.constants) <= GATE_CONSTANTS_MAX]
        if not gates:
            return None, normal
        gate = min(gates, key=self._crowd)
        behind = tuple(part for part in parts if part is not gate)
        return gate, behind[0] if len(behind) == 1 else AllOf(behind)

    def _crowd(self, gate: OneOf) -> int:
        constants = self._gates.get(gate.name, {})
        return sum(len(constants.get(constant, ())) for constant in gate.constants)

    def _leave_gate(self, gate: OneOf, entry: Entry) -> None:
        constants = self._gates[gate.name]
        for constant in gate.constants:
            del constants[constant][entry]
            if not constants[constant]:
                del constants[constant]
        if not constants:
            del self._gates[gate.name]


def _collect(entries: Mapping[Entry, Rest], batch: Batch, mask: int, found: dict[Entry, int]) -> int:
    finds = 0
    for entry, rest in entries.items():
        selected = mask if rest is None else mask & rest.mask(batch)
        if selected:
            finds += selected.bit_count()
            found[entry] = found.get(entry, 0) | selected
    return finds
