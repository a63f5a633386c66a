"""Groups of many filters, organised so that an event is tested against few of them.

*Gates.* A filter with an equality is filed under its constants. A filter with both bounds of a number is filed under
the cells of its interval. These are its *gate*: a filter is looked at only if an event opens its gate, however many
others there are. A gate leads to a bucket: a few filters that are tested one by one, or a group again if there are
more.

*Open filters* have no gate. They are matched in one of two ways:

- By event masks: each distinct predicate is evaluated for the whole batch, and each filter is an AND of the results.
  This is best for many events and few filters.
- By slots: each event is matched against all open filters at once (`slots`). This is best for many filters.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sized
from functools import partial
from math import floor, frexp
from typing import Final, Generic, NamedTuple, TypeVar

from gapless.selectors.columns import ColumnBatch
from gapless.selectors.compile import AllMasks, MaskNode, SharedPredicate
from gapless.selectors.headers import HEADER_KINDS
from gapless.selectors.masks import select
from gapless.selectors.normal import ALWAYS
from gapless.selectors.predicates import BoundPredicate, OneOf, Values
from gapless.selectors.slots import SlotIndex
from gapless.selectors.values import Value

B = TypeVar("B", bound=Sized)

LIMIT_MAX: Final = 2.0**52
"""Bounds beyond this are not filed: up there, floats are further apart than whole numbers."""

FINEST: Final = -30
"""The power of two of the smallest cells; narrower intervals lie in these."""


FEW_MAX: Final = 16
"""So many filters are tested one by one, because that is faster than looking them up."""

GATE_CONSTANTS_MAX: Final = 16
"""An equality with more constants than this excludes too few events to be a gate."""

SLOTS_ALWAYS: Final = 256
"""With so many open filters their slots are kept ready. With fewer they are made when they are first needed."""

SLOTS_MAX: Final = 4096
"""How many filters share an index of slots. A change costs as much as one index, an event as much as all indexes."""

MASK_COST: Final = 1200
ASK_COST: Final = 500
"""About how many nanoseconds a filter takes by event masks, for a batch of any size; and for a test of one event."""

SLOTS_COST: Final = 3000
FIND_COST: Final = 250
"""About how many nanoseconds an event takes by slots, at the least; and each filter found for it."""


class Entry:
    """A distinct filter, and the keys that have it."""

    __slots__ = ("_many", "keys", "node", "patterns")

    def __init__(self, patterns: tuple[str, ...], node: MaskNode | None) -> None:
        self.patterns = patterns
        self.node = node
        """The condition; None if there is none."""
        self._many: dict[int, None] | None = None
        self.keys: Collection[int] = ()
        """The keys in the order in which they came; valid until the next change."""

    def add(self, key: int) -> None:
        """Adds a key. Most filters have one key, and then no table."""
        if self._many is not None:
            self._many[key] = None
        elif not self.keys:
            self.keys = (key,)
        else:
            self._many = dict.fromkeys((*self.keys, key))
            self.keys = self._many.keys()

    def remove(self, key: int) -> None:
        """Removes a key."""
        if self._many is None:
            self.keys = ()
        else:
            del self._many[key]


class Filed(NamedTuple):
    """An entry, and the condition that remains where it is filed. Places with the same condition share one object."""

    entry: Entry
    rest: MaskNode | None


class Bucket:
    """Entries, each with the condition that remains for an event that has come to this bucket."""

    __slots__ = ("_few", "_many", "_narrowed")

    def __init__(self, narrowed: tuple[str, ...] = ()) -> None:
        self._few: tuple[Filed, ...] = ()
        self._many: SelectorGroup | None = None
        self._narrowed = narrowed
        """The names whose spans were passed on the way to this bucket."""

    def __len__(self) -> int:
        return len(self._few) if self._many is None else len(self._many)

    def add(self, filed: Filed) -> None:
        """Adds an entry."""
        if self._many is not None:
            self._many.add(filed)
            return
        self._few += (filed,)
        if len(self._few) > FEW_MAX:
            self._file()

    def remove(self, entry: Entry) -> None:
        """Removes an entry."""
        if self._many is not None:
            self._many.remove(entry)
        else:
            self._few = tuple(filed for filed in self._few if filed.entry is not entry)

    def match(self, batch: ColumnBatch, mask: int, found: dict[Entry, int]) -> int:
        """Adds to `found` which events in `mask` each entry selects. Returns the number of pairs of event and entry."""
        if self._many is not None:
            return self._many.match(batch, mask, found)
        return collect(self._few, batch, mask, found)

    def find(self, properties: Values, headers: Values, found: list[Entry]) -> None:
        """Adds the entries that select an event."""
        if self._many is not None:
            self._many.find(properties, headers, found)
            return
        for entry, rest in self._few:
            if rest is None or rest.holds(properties, headers):
                found.append(entry)

    def _file(self) -> None:
        few, self._few = self._few, ()
        self._many = SelectorGroup(self._narrowed)
        for filed in few:
            self._many.add(filed)


def collect(
    entries: Iterable[tuple[Entry, MaskNode | None]], batch: ColumnBatch, mask: int, found: dict[Entry, int]
) -> int:
    """Adds to `found` which events in `mask` each entry selects, testing each entry by itself."""
    finds = 0
    # A single event is tested directly, because a mask would be computed for the whole batch.
    event = mask.bit_length() - 1 if mask & (mask - 1) == 0 else None
    for entry, rest in entries:
        if rest is None:
            selected = mask
        elif event is None:
            selected = mask & rest.mask(batch)
        else:
            selected = mask if rest.holds(batch.properties[event], batch.headers[event]) else 0
        if selected:
            finds += selected.bit_count()
            found[entry] = found.get(entry, 0) | selected
    return finds


class Interval(NamedTuple):
    """Both bounds of a number in a filter. They are tested again behind the gate."""

    name: str
    low: float
    high: float


class SelectorGroup:
    """More than a few entries, each with its remaining condition."""

    __slots__ = ("_finds_per_event", "_gated", "_gates", "_narrowed", "_open", "_slot_of", "_slots", "_spans")

    def __init__(self, narrowed: tuple[str, ...] = ()) -> None:
        self._narrowed = narrowed
        self._open: dict[Entry, MaskNode | None] = {}
        self._gated: dict[Entry, OneOf] = {}
        """The entries behind an equality. The interval of another entry is computed again, to save memory."""
        self._gates: dict[str, dict[Value, Bucket]] = {}
        self._spans: dict[str, Spans[Bucket]] = {}
        self._slots: list[SlotIndex[Entry]] | None = None
        self._slot_of: dict[Entry, SlotIndex[Entry]] = {}
        self._finds_per_event = 0

    def __len__(self) -> int:
        return len(self._open) + len(self._gated) + sum(len(spans) for spans in self._spans.values())

    def add(self, filed: Filed) -> None:
        """Adds an entry."""
        entry, rest = filed
        gate, behind = self._gate_of(rest)
        if gate is None:
            self._add_open(entry, rest)
            return
        if isinstance(gate, OneOf):
            self._gated[entry] = gate
        behind_gate = filed if behind is rest else Filed(entry, behind)
        for bucket in self._buckets_for(gate):
            bucket.add(behind_gate)

    def remove(self, entry: Entry) -> None:
        """Removes an entry."""
        if entry in self._open:
            self._remove_open(entry)
        elif (gate := self._gated.pop(entry, None)) is not None:
            self._leave_gate(gate, entry)
        else:
            interval = self._interval_in(_parts(entry.node))
            assert interval is not None, "gates that it waits behind already have no bounds, so this is what it had"
            self._leave_span(interval, entry)

    def match(self, batch: ColumnBatch, mask: int, found: dict[Entry, int]) -> int:
        """Adds to `found` which events in `mask` each entry selects. Returns the number of pairs of event and entry."""
        finds = self._match_open(batch, mask, found)
        for name, constants in self._gates.items():
            groups = batch.column(name).groups
            fewer, more = (groups, constants) if len(groups) < len(constants) else (constants, groups)
            for value in fewer:
                if value in more and (gated := mask & groups[value]):
                    finds += constants[value].match(batch, gated, found)
        for name, spans in self._spans.items():
            for value, having in batch.column(name).groups.items():
                if (gated := mask & having) and isinstance(value, (int, float)):
                    for bucket in spans.around(value):
                        finds += bucket.match(batch, gated, found)
        return finds

    def find(self, properties: Values, headers: Values, found: list[Entry]) -> None:
        """Adds the entries that select an event."""
        self._find_open(properties, headers, found)
        for name, constants in self._gates.items():
            value = _value(name, properties, headers)
            if value is not None and (bucket := constants.get(value)) is not None:
                bucket.find(properties, headers, found)
        for name, spans in self._spans.items():
            value = _value(name, properties, headers)
            if isinstance(value, (int, float)):
                for bucket in spans.around(value):
                    bucket.find(properties, headers, found)

    # ------------------------------------------------------------------------------------- gates

    def _gate_of(self, node: MaskNode | None) -> tuple[OneOf | Interval | None, MaskNode | None]:
        """Returns the gate of an entry (the least crowded equality, or an interval), and the condition behind it."""
        parts = _parts(node)
        gates = [part for part in parts if isinstance(part, SharedPredicate) and _is_gate(part)]
        if not gates:
            return self._interval_in(parts), node
        gate = min(gates, key=self._crowd)
        assert isinstance(gate.predicate, OneOf)
        behind = tuple(part for part in parts if part is not gate)
        return gate.predicate, None if not behind else behind[0] if len(behind) == 1 else AllMasks(behind)

    def _interval_in(self, parts: tuple[MaskNode, ...]) -> Interval | None:
        lows: dict[str, float] = {}
        highs: dict[str, float] = {}
        for part in parts:
            bound = part.normal
            if (
                not isinstance(bound, BoundPredicate)
                or not abs(bound.limit) <= LIMIT_MAX
                or bound.name in self._narrowed
            ):
                continue
            if bound.operator in (">", ">="):
                lows[bound.name] = max(bound.limit, lows.get(bound.name, bound.limit))
            else:
                highs[bound.name] = min(bound.limit, highs.get(bound.name, bound.limit))
        return next((Interval(name, lows[name], highs[name]) for name in lows if name in highs), None)

    def _crowd(self, gate: MaskNode) -> int:
        predicate = gate.normal
        assert isinstance(predicate, OneOf)
        constants = self._gates.get(predicate.name, {})
        return sum(len(constants.get(constant, ())) for constant in predicate.constants)

    def _buckets_for(self, gate: OneOf | Interval) -> list[Bucket]:
        if isinstance(gate, Interval):
            narrowed = (*self._narrowed, gate.name)
            return self._spans.setdefault(gate.name, Spans(partial(Bucket, narrowed))).take(gate.low, gate.high)
        constants = self._gates.setdefault(gate.name, {})
        return [constants.setdefault(constant, Bucket(self._narrowed)) for constant in gate.constants]

    def _leave_gate(self, gate: OneOf, entry: Entry) -> None:
        constants = self._gates[gate.name]
        for constant in gate.constants:
            constants[constant].remove(entry)
            if not len(constants[constant]):
                del constants[constant]
        if not constants:
            del self._gates[gate.name]

    def _leave_span(self, gate: Interval, entry: Entry) -> None:
        spans = self._spans[gate.name]
        for bucket in spans.give(gate.low, gate.high):
            bucket.remove(entry)
        if not len(spans):
            del self._spans[gate.name]

    # ------------------------------------------------------------------------------------- without a gate

    def _add_open(self, entry: Entry, rest: MaskNode | None) -> None:
        self._open[entry] = rest
        if self._slots is not None:
            self._give_slot(self._slots, entry, rest)
        elif len(self._open) >= SLOTS_ALWAYS:
            self._slot_indexes()

    def _remove_open(self, entry: Entry) -> None:
        del self._open[entry]
        index = self._slot_of.pop(entry, None)
        if index is not None:
            index.remove(entry)
            if not len(index) and self._slots is not None:
                self._slots.remove(index)

    def _match_open(self, batch: ColumnBatch, mask: int, found: dict[Entry, int]) -> int:
        events = mask.bit_count()
        if self._prefers_slots(events):
            finds = self.match_open_by_slots(batch, mask, found)
        else:
            finds = collect(self._open.items(), batch, mask, found)
        self._finds_per_event = finds // events
        return finds

    def match_open_by_slots(self, batch: ColumnBatch, mask: int, found: dict[Entry, int]) -> int:
        """Adds to `found` which events in `mask` each open entry selects, event by event."""
        indexes = self._slot_indexes()
        finds = 0
        for event in select(range(len(batch.properties)), mask):
            bit = batch.bits[event]
            for index in indexes:
                entries = index.match(batch.properties[event], batch.headers[event])
                finds += len(entries)
                for entry in entries:
                    found[entry] = found.get(entry, 0) | bit
        return finds

    def _find_open(self, properties: Values, headers: Values, found: list[Entry]) -> None:
        if self._prefers_slots(1):
            for index in self._slot_indexes():
                found += index.match(properties, headers)
            return
        for entry, rest in self._open.items():
            if rest is None or rest.holds(properties, headers):
                found.append(entry)

    def _slot_indexes(self) -> list[SlotIndex[Entry]]:
        if self._slots is None:
            self._slots = []
            for entry, rest in self._open.items():
                self._give_slot(self._slots, entry, rest)
        return self._slots

    def _give_slot(self, indexes: list[SlotIndex[Entry]], entry: Entry, rest: MaskNode | None) -> None:
        """Puts an entry into the last index; if that is full, into the emptiest, or a new one if all are half full."""
        if not indexes or len(indexes[-1]) >= SLOTS_MAX:
            emptiest = min(indexes, key=len, default=None)
            if emptiest is None or len(emptiest) > SLOTS_MAX // 2:
                indexes.append(SlotIndex())
            else:
                indexes.remove(emptiest)
                indexes.append(emptiest)
        indexes[-1].add(entry, ALWAYS if rest is None else rest.normal)
        self._slot_of[entry] = indexes[-1]

    def _prefers_slots(self, events: int) -> bool:
        """Whether slots are faster for so many events, if these find as many entries as the last ones."""
        if len(self._open) <= FEW_MAX:
            return False
        each = ASK_COST if events == 1 else MASK_COST // events
        affordable = each * len(self._open) - FIND_COST * self._finds_per_event
        return affordable > SLOTS_COST and affordable > self._slots_cost()

    def _slots_cost(self) -> int:
        indexes = self._slot_indexes()
        return indexes[0].cost() * len(indexes)


def _parts(node: MaskNode | None) -> tuple[MaskNode, ...]:
    """Returns the parts of a condition, all of which must hold."""
    return node.parts if isinstance(node, AllMasks) else () if node is None else (node,)


def _is_gate(shared: SharedPredicate) -> bool:
    return isinstance(shared.predicate, OneOf) and len(shared.predicate.constants) <= GATE_CONSTANTS_MAX


def _value(name: str, properties: Values, headers: Values) -> Value:
    """Returns an event's value of a name; None for booleans, which are neither numbers nor strings here."""
    value = headers.get(name) if name in HEADER_KINDS else properties.get(name)
    return None if value is True or value is False else value


class Spans(Generic[B]):
    """The intervals of one name, filed so that those around a number are found without looking at the others.

    An interval lies in one or two cells of a grid whose cells are about as wide as the interval. So an interval with
    the number in one of its cells contains the number, or nearly does. There is a grid for each size, by powers of two.
    Adding and removing an interval touches only its own cells; each cell has a bucket.
    """

    __slots__ = ("_cells", "_grids", "_make")

    def __init__(self, make: Callable[[], B]) -> None:
        """`make` makes an empty bucket."""
        self._cells: dict[tuple[int, int], B] = {}
        self._grids: dict[int, int] = {}
        """How many intervals each grid has, by the power of two of its cells' width."""
        self._make = make

    def __len__(self) -> int:
        return sum(self._grids.values())

    def take(self, low: float, high: float) -> list[B]:
        """Returns the buckets into which an interval has to be put."""
        grid = grid_of(low, high)
        self._grids[grid] = self._grids.get(grid, 0) + 1
        return [self._cells.setdefault(cell, self._make()) for cell in cells_of(grid, low, high)]

    def give(self, low: float, high: float) -> Iterator[B]:
        """Yields the buckets with an interval. After the caller has removed it from each, the interval is forgotten."""
        grid = grid_of(low, high)
        for cell in cells_of(grid, low, high):
            bucket = self._cells[cell]
            yield bucket
            if not len(bucket):
                del self._cells[cell]
        self._grids[grid] -= 1
        if not self._grids[grid]:
            del self._grids[grid]

    def around(self, value: float) -> Iterator[B]:
        """Yields the buckets of the intervals that may contain a number. No interval is in two of them."""
        if not -LIMIT_MAX <= value <= LIMIT_MAX:
            return
        for grid in self._grids:
            bucket = self._cells.get((grid, floor(value / 2.0**grid)))
            if bucket is not None:
                yield bucket


def grid_of(low: float, high: float) -> int:
    """Returns the grid of an interval: its cells are wider than the interval, but less than twice as wide."""
    return max(frexp(high - low)[1], FINEST) if low < high else FINEST


def cells_of(grid: int, low: float, high: float) -> list[tuple[int, int]]:
    """Returns the cells that an interval touches: one or two; none if it is empty."""
    width = 2.0**grid
    return [(grid, cell) for cell in range(floor(low / width), floor(high / width) + 1)] if low <= high else []
