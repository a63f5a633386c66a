"""Which subscriptions have expired, as their SHBs write it down."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec.msgpack import decode

from gapless.core.ports import Set
from gapless.core.wire.messages import StartAt, Subscribe

if TYPE_CHECKING:
    from gapless.core.ports import Operation

LAPSED = "shb/lapsed"
"""The table in which an SHB writes them down."""


def lapses(operations: Sequence[Operation]) -> Iterator[tuple[int, str, str]]:
    """Which subscriptions a write says have lapsed: their ids, clients and names."""
    for operation in operations:
        if type(operation) is Set and operation.table == LAPSED:
            sid, client_id, name, *_ = decode(operation.value)
            yield sid, client_id, name


class Lapses:
    """Those that have lapsed, and were not made anew since."""

    def __init__(self) -> None:
        self._sids: dict[tuple[str, int], bool] = {}
        """Whether each was itself made anew in place of one that lapsed, and no application has read that yet."""
        self._names: dict[tuple[str, str, str], None] = {}
        self._moved: dict[tuple[str, str], None] = {}

    def note(self, broker: str, operations: Sequence[Operation]) -> list[int]:
        """What a broker writes; returns the ids of those that lapse."""
        found = list(lapses(operations))
        for sid, client_id, name in found:
            self._sids[broker, sid] = (broker, client_id, name) in self._names
            # Else nobody has had what was made anew before; and whose name it is that a request names is not known.
            if not any((where, other) == (broker, name) for where, _, other in self._names):
                self._moved.pop((broker, name), None)
            self._names[broker, client_id, name] = None
        return [sid for sid, _, _ in found]

    def received(self, broker: str, request: Subscribe) -> None:
        """A request to subscribe: one with a token says itself where what it makes anew begins."""
        if request.name and not request.sid and request.start is StartAt.TOKEN:
            self._moved[broker, request.name] = None

    def is_moved(self, broker: str, name: str | None) -> bool:
        """Whether one of this name may have been made anew at somebody's token since it lapsed."""
        return (broker, name or "") in self._moved

    def given(self, broker: str, sid: int) -> None:
        """A session gets this one: if it has lapsed, a crash took that back."""
        self._sids.pop((broker, sid), None)

    def has(self, broker: str, sid: int) -> bool:
        """Whether the one of this id has lapsed."""
        return (broker, sid) in self._sids

    def take(self, broker: str, client_id: str, name: str | None, sid: int) -> bool:
        """An application reads that it has a subscription of this name: whether an earlier one had lapsed.

        It may read late, when its own has lapsed, too. What is noted of the name is then for the next one.
        """
        if (broker, sid) in self._sids:
            return self._sids[broker, sid]
        key = broker, client_id, name or ""
        return key in self._names and self._names.pop(key) is None

    def forget(self, broker: str) -> None:
        """The broker's disk is another one, and its ids are used again."""
        self._sids = {key: resumed for key, resumed in self._sids.items() if key[0] != broker}
        self._names = {key: None for key in self._names if key[0] != broker}
