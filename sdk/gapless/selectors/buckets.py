"""Filters of one topic pattern, or of one constant: a few are asked one by one, many are filed in a `SelectorGroup`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from gapless.selectors.columns import ColumnBatch
from gapless.selectors.compile import MaskNode
from gapless.selectors.predicates import Values

if TYPE_CHECKING:
    from gapless.selectors.group import SelectorGroup

FEW_MAX: Final = 16
"""So many filters are asked one by one sooner than they are looked up."""


class Entry:
    """A distinct filter, and the keys of those who have it."""

    __slots__ = ("_many", "keys", "node", "patterns")

    def __init__(self, patterns: tuple[str, ...], node: MaskNode | None) -> None:
        self.patterns = patterns
        self.node = node
        """What must hold; None for nothing."""
        self._many: dict[int, None] | None = None
        self.keys: Collection[int] = ()
        """In the order in which they came; good until the next change."""

    def add(self, key: int) -> None:
        """Takes a key in. Most filters have one, and no table for it."""
        if self._many is not None:
            self._many[key] = None
        elif not self.keys:
            self.keys = (key,)
        else:
            self._many = dict.fromkeys((*self.keys, key))
            self.keys = self._many.keys()

    def remove(self, key: int) -> None:
        """Forgets a key."""
        if self._many is None:
            self.keys = ()
        else:
            del self._many[key]


class Filed(NamedTuple):
    """An entry, and what must hold where it is filed: one object in all places where that is the same."""

    entry: Entry
    rest: MaskNode | None


class Bucket:
    """Entries, and what must hold for each of them to select an event that has come so far."""

    __slots__ = ("_few", "_many", "_narrowed")

    def __init__(self, narrowed: tuple[str, ...] = ()) -> None:
        self._few: tuple[Filed, ...] = ()
        self._many: SelectorGroup | None = None
        self._narrowed = narrowed
        """The names whose spans have been looked at on the way here."""

    def __len__(self) -> int:
        return len(self._few) if self._many is None else len(self._many)

    def add(self, filed: Filed) -> None:
        """Takes an entry in."""
        if self._many is not None:
            self._many.add(filed)
            return
        self._few += (filed,)
        if len(self._few) > FEW_MAX:
            self._file()

    def remove(self, entry: Entry) -> None:
        """Forgets an entry."""
        if self._many is not None:
            self._many.remove(entry)
        else:
            self._few = tuple(filed for filed in self._few if filed.entry is not entry)

    def match(self, batch: ColumnBatch, mask: int, found: dict[Entry, int]) -> int:
        """Adds to `found` which of the events in `mask` each entry selects; how many pairs of both there are."""
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
        from gapless.selectors.group import SelectorGroup  # a group is made of buckets

        few, self._few = self._few, ()
        self._many = SelectorGroup(self._narrowed)
        for filed in few:
            self._many.add(filed)


def collect(
    entries: Iterable[tuple[Entry, MaskNode | None]], batch: ColumnBatch, mask: int, found: dict[Entry, int]
) -> int:
    """Adds to `found` which of the events in `mask` each entry selects, each asked by itself."""
    finds = 0
    # One event alone is asked directly, for a mask is of the whole batch.
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
