"""The columns of a batch: for each name, which events have which value.

A *mask* is an int whose bit i stands for event i of the batch. A column finds the mask of each distinct value once.
Every predicate on that name is then a few operations on masks, however many events there are.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from operator import or_
from typing import Any, Final, Protocol, TypeAlias

from gapless.selectors.headers import HEADER_KINDS, HeaderRows
from gapless.selectors.masks import bits_of_events, masks_of
from gapless.selectors.values import Value

_PLAIN_TYPES: Final = frozenset((str, int, float, bool, type(None)))


class _Foreign:
    """Stands for an object that cannot be a property: it is present, and equal to nothing else."""


_FOREIGN: Final = _Foreign()
_TRUE: Final = _Foreign()
_FALSE: Final = _Foreign()


Groups: TypeAlias = tuple[dict[str | int | float, int], int, int, int, bool]
"""What a column is made of: the groups, the masks of True, of False and of NULL, and whether any value is a float."""


def group_values(values: Sequence[Value]) -> Groups:
    """Returns which events have which value."""
    types = set(map(type, values))
    has_floats = float in types
    if not types <= _PLAIN_TYPES:
        values = [_plain(value) for value in values]
        has_floats = any(isinstance(value, float) for value in values)
    if bool not in types:
        groups: dict[Any, int] = masks_of(values)
        return groups, 0, 0, groups.pop(None, 0), has_floats
    # Python takes True for 1.
    groups = masks_of([_TRUE if value is True else _FALSE if value is False else value for value in values])
    return groups, groups.pop(_TRUE, 0), groups.pop(_FALSE, 0), groups.pop(None, 0), has_floats


class ValueColumn:
    """The values of one name in the events of a batch.

    `groups` maps each number and string to the mask of its events; 1 and 1.0 are one number in it. The booleans have
    masks of their own, because Python takes True for 1. `null` is the mask of the events without the name.
    """

    def __init__(self, groups: Groups, full: int) -> None:
        self.full = full
        self.groups: Mapping[Value, int]
        self.groups, self.true, self.false, self.null, self.has_floats = groups  # type: ignore[assignment]

    @property
    def present(self) -> int:
        """The mask of the events that have any value."""
        return self.full & ~self.null

    @cached_property
    def strings(self) -> int:
        """The mask of the events whose value is a string."""
        return self.one_of([value for value in self.groups if isinstance(value, str)])

    @cached_property
    def numbers(self) -> int:
        """The mask of the events whose value is a number."""
        return self._prefixes[-1]

    def one_of(self, constants: Iterable[Value]) -> int:
        """Returns the mask of the events whose value is among these strings and numbers."""
        groups = self.groups
        mask = 0
        for constant in constants:
            mask |= groups.get(constant, 0)
        return mask

    def below(self, limit: float) -> int:
        """Returns the mask of the events whose value is a number less than `limit`."""
        return self._prefixes[bisect_left(self._ranks, limit)]

    def at_most(self, limit: float) -> int:
        """Returns the mask of the events whose value is a number not greater than `limit`."""
        return self._prefixes[bisect_right(self._ranks, limit)]

    def above(self, limit: float) -> int:
        """Returns the mask of the events whose value is a number greater than `limit`."""
        prefixes = self._prefixes
        return prefixes[-1] ^ prefixes[bisect_right(self._ranks, limit)]

    def at_least(self, limit: float) -> int:
        """Returns the mask of the events whose value is a number not less than `limit`."""
        prefixes = self._prefixes
        return prefixes[-1] ^ prefixes[bisect_left(self._ranks, limit)]

    @cached_property
    def _ranks(self) -> list[int | float]:
        """The distinct numbers, in order."""
        return sorted([value for value in self.groups if isinstance(value, (int, float))])

    @cached_property
    def _prefixes(self) -> list[int]:
        """Entry i is the mask of the events with one of the i smallest numbers."""
        return list(accumulate(map(self.groups.__getitem__, self._ranks), or_, initial=0))

    def where(self, test: Callable[[Value], bool]) -> int:
        """Returns the mask of the events whose value passes a test, called once per distinct value, NULL included."""
        specials = ((None, self.null), (True, self.true), (False, self.false))
        mask = 0
        for value, group in (*specials, *self.groups.items()):
            if group and test(value):
                mask |= group
        return mask


class PropertyRows(Protocol):
    """The properties of the events of a batch, decoded when needed. A list of mappings is one, too."""

    def __len__(self) -> int: ...

    def __getitem__(self, event: int, /) -> Mapping[str, Value]:
        """Returns the properties of one event."""

    def column(self, name: str, bits: Sequence[int]) -> Groups:
        """Returns which events have which value of a property."""


class ColumnBatch:
    """The properties and headers of some events, and the columns that were used so far."""

    def __init__(
        self,
        properties: Sequence[Mapping[str, Value]] | PropertyRows,
        headers: HeaderRows,
    ) -> None:
        self.properties = properties
        self._headers = headers
        self._rows = headers if isinstance(headers, list) else None
        self.full = (1 << len(properties)) - 1
        self.masks: dict[object, int] = {}
        """The masks that shared predicates have computed for this batch; only they use it."""
        self._columns: dict[str, ValueColumn] = {}

    @cached_property
    def bits(self) -> Sequence[int]:
        """The mask of each event alone; there may be more of them than events."""
        return bits_of_events(len(self.properties))

    def column(self, name: str) -> ValueColumn:
        """Returns the values of a property, or of a header field if the name is that of one."""
        column = self._columns.get(name)
        if column is None:
            column = self._columns[name] = ValueColumn(self._groups(name), self.full)
        return column

    def _groups(self, name: str) -> Groups:
        if name in HEADER_KINDS:
            return group_values([fields.get(name) for fields in self.headers])
        if isinstance(self.properties, Sequence):
            return group_values([properties.get(name) for properties in self.properties])
        return self.properties.column(name, self.bits)

    @property
    def headers(self) -> Sequence[Mapping[str, Value]]:
        """The headers of each event."""
        rows = self._rows
        if rows is None:
            rows = self._rows = [self._headers[event] for event in range(len(self.properties))]
        return rows

    def where(self, test: Callable[[Mapping[str, Value], Mapping[str, Value]], bool]) -> int:
        """Returns the mask of the events that pass a test of their properties and headers."""
        mask = 0
        for event, (header, bit) in enumerate(zip(self.headers, self.bits)):  # noqa: B905  # more bits than events
            if test(self.properties[event], header):
                mask |= bit
        return mask


def _plain(value: object) -> Value:
    """Returns the plain value of an instance of a subclass, such as a member of a string enumeration."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    return None if value is None else _FOREIGN  # type: ignore[return-value]
