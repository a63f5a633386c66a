"""Properties as Arrow columns: a map of texts, or single properties.

Most events that arrive together have the same properties in the same order. Then each property is a column, mostly of
one type, and becomes texts without a Python step per event. The map is made of these columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, chain, repeat
from operator import is_
from typing import Any, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

Properties: TypeAlias = dict[str, Any]


class PropertyColumns(Protocol):
    """The properties of some events."""

    def one(self, name: str) -> Any:
        """Returns the texts of one property; null for an event without it."""

    def maps(self) -> Any:
        """Returns all properties: a map from names to texts for each event."""


def columns_of(properties: Sequence[Properties]) -> PropertyColumns:
    """Returns the columns of some events' properties."""
    names = list(chain.from_iterable(properties))
    values: list[Any] = list(chain.from_iterable(map(dict.values, properties)))
    first = tuple(properties[0]) if properties else ()
    if {*map(len, properties)} == {len(first)} and names == [*first] * len(properties):
        return _Alike(first, values, len(properties))
    return _Mixed(properties, names, values)


class _Alike:
    """The properties of events that all have the same names in the same order."""

    def __init__(self, names: tuple[str, ...], values: Sequence[Any], count: int) -> None:
        self._names = names
        self._values = values
        self._count = count
        self._texts: dict[int, Any] = {}

    def one(self, name: str) -> Any:
        """See `PropertyColumns`."""
        if name not in self._names:
            return pa.nulls(self._count, pa.string())
        return self._column(self._names.index(name))

    def maps(self) -> Any:
        """See `PropertyColumns`."""
        width, count = len(self._names), self._count
        layout = _layout(self._names, 1 << count.bit_length())
        offsets = layout.offsets.slice(0, count + 1)
        if not width:
            return pa.MapArray.from_arrays(offsets, layout.names, layout.names)
        events, places = layout.events.slice(0, width * count), layout.places.slice(0, width * count)
        columns = pa.concat_arrays([self._column(at) for at in range(width)])
        values = columns.take(pc.add(pc.multiply(places, pa.scalar(count, pa.int32())), events))
        return pa.MapArray.from_arrays(offsets, layout.names.slice(0, width * count), values)

    def _column(self, at: int) -> Any:
        if at not in self._texts:
            self._texts[at] = texts(self._values[at :: len(self._names)])
        return self._texts[at]


class _Mixed:
    """The properties of events that differ in their names."""

    def __init__(self, properties: Sequence[Properties], names: Sequence[str], values: Sequence[Any]) -> None:
        self._properties = properties
        self._names = names
        self._values = values

    def one(self, name: str) -> Any:
        """See `PropertyColumns`."""
        values = list(map(dict.get, self._properties, repeat(name)))
        absent = pa.array(list(map(is_, values, repeat(None))), pa.bool_())
        return pc.if_else(absent, pa.scalar(None, pa.string()), texts(values))

    def maps(self) -> Any:
        """See `PropertyColumns`."""
        offsets = pa.array(list(accumulate(map(len, self._properties), initial=0)), pa.int32())
        return pa.MapArray.from_arrays(offsets, pa.array(self._names, pa.string()), texts(self._values))


def texts(values: Sequence[Any]) -> Any:
    """Returns values of properties as texts: numbers as Python writes them; `true` and `false`."""
    kinds = {*map(type, values)}
    if kinds <= {str}:
        return pa.array(values, pa.string())
    if kinds == {int}:
        return pa.array(values, pa.int64()).cast(pa.string())
    found = pa.array(list(map(str, values)), pa.string())
    if bool in kinds:
        are_flags = pa.array(list(map(isinstance, values, repeat(bool))), pa.bool_())
        found = pc.if_else(are_flags, pc.utf8_lower(found), found)
    return found


@dataclass(frozen=True)
class _Layout:
    """The layout of maps with the same names, for so many events; fewer events use its beginning."""

    offsets: Any
    names: Any
    events: Any
    """For each entry, the number of its event."""
    places: Any
    """For each entry, its place in its event."""


@lru_cache(maxsize=8)
def _layout(names: tuple[str, ...], count: int) -> _Layout:
    width = len(names)
    return _Layout(
        pa.array((width * number for number in range(count + 1)), pa.int32()),
        pa.array([*names] * count, pa.string()),
        pa.array((number for number in range(count) for _ in names), pa.int32()),
        pa.array([*range(width)] * count, pa.int32()),
    )
