"""Who takes part in a shared subscription, what was settled, and what of that is durable (TS16, TS22, TS26, TS28).

    attach ──▶ roster row (durable before the first delivery) ──Settle──▶ last settlement, losers among its last 64
           ──goodbye──▶ no row          ──unclean end, its deaths are counted──▶ gone: nobody waits for it
                                        ──24 hours, or 10,000 others later──▶ no row

A settlement whose number is not above the roster's is repeated: it is answered as it was. Any other verdict counts only
if it comes from whoever holds the event under that delivery number. Delivery numbers go on over all lives of a broker:
they lie below a ceiling, which is durable, and raised ahead. What lies above its ticks was never sent to anybody.

After an unclean end of the broker what is in doubt waits for those of the roster who are not gone: they may work on it
still. When all have come back, or said goodbye, or after the quarantine, it goes to whoever takes part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Final

import msgspec

from gapless.core.ports import Delete, Operation, Set
from gapless.core.stream.ticks import PubendId, Tick
from gapless.core.wire.messages import Holds
from gapless.core.wire.messages.sharing import UNANSWERED_MAX

ROSTER: Final = "shb/shared-roster"
"""Subscription id, instance → RosterRow."""
SHARED: Final = "shb/shared"
"""Subscription id → SharedRow."""
AHEAD: Final = 1024
"""So far the ceiling of a pubend is raised ahead, in its grains: after a crash what lies below is in doubt."""
NUMBERS_AHEAD: Final = 16_384
"""So many delivery numbers are there to be given: for several windows, so that no delivery waits for a sync."""
ROSTER_MAX: Final = 10_000
"""So many rows a roster has at most; whoever was heard of longest ago goes first."""
ROSTER_MS: Final = 24 * 3_600_000
"""For so long the row of somebody who has gone is kept."""
PRUNED_AFTER: Final = 64
"""After so many have come, those are looked for who have been away for too long."""
QUARANTINE: Final = 15_000_000_000
"""So many nanoseconds after a start at the latest, what is in doubt goes to others: three heartbeats."""
_SID = Struct(">Q")


class RosterRow(msgspec.Struct, array_like=True):
    """Somebody who takes part, or did."""

    last: int = 0
    """The number of its last settlement."""
    losers: dict[int, tuple[Holds, ...]] = {}
    """Of the last settlements those in which something was not held any more."""
    heard: int = 0
    """When it attached last, in milliseconds since 1970."""
    gone: bool = False
    """Whether its unclean end was counted: nobody waits for it."""


class KeptRun(msgspec.Struct, array_like=True, frozen=True):
    """Events that somebody holds whose link is lost, with consecutive delivery numbers."""

    pubend: PubendId
    first: int
    ticks: tuple[Tick, ...]
    taken: tuple[Tick, ...] = ()


class SharedRow(msgspec.Struct, array_like=True):
    """What is durable of a subscription beside windows and roster."""

    ceiling: int = 0
    """No higher delivery number was given to anything."""
    sent: dict[PubendId, Tick] = {}
    """Nothing above these ticks was delivered."""
    is_open: bool = False
    """Whether somebody may have been sent something since. If not, only what is `kept` can be in anybody's hands."""
    kept: dict[str, tuple[int, tuple[KeptRun, ...]]] = {}
    """What each instance held when the last link was lost, and for how many milliseconds that is kept for it."""
    doubted: dict[PubendId, Tick] = {}
    """If nobody was there: up to where what was not read again may have been handed out."""


_encode = msgspec.msgpack.Encoder().encode
_decode_roster = msgspec.msgpack.Decoder(RosterRow).decode
_decode_shared = msgspec.msgpack.Decoder(SharedRow).decode


def roster_key(sid: int, instance: str) -> bytes:
    """Returns the key of somebody's row."""
    return _SID.pack(sid) + instance.encode()


def split_roster_key(key: bytes) -> tuple[int, str]:
    """Returns the subscription and the instance of a row."""
    return _SID.unpack(key[:8])[0], key[8:].decode()


@dataclass(frozen=True, slots=True)
class Repeated:
    """How a settlement that was made before was answered."""

    lost: tuple[Holds, ...] = ()
    uncertain: bool = False


class Roster:
    """Everybody who takes part in a subscription, and those whose settlements may still be repeated."""

    def __init__(self, rows: Mapping[str, RosterRow] | None = None) -> None:
        self._rows: dict[str, RosterRow] = dict(rows or {})
        self._durable: set[str] = set(self._rows)
        """Those that are durable in this roster."""
        self._changed: dict[str, None] = {}
        self._unpruned = PRUNED_AFTER - 1

    @classmethod
    def restored(cls, rows: Iterable[tuple[str, bytes]]) -> Roster:
        """Returns a roster as it is durable."""
        return cls({instance: _decode_roster(row) for instance, row in rows})

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __contains__(self, instance: object) -> bool:
        return instance in self._rows

    @property
    def awaited(self) -> set[str]:
        """Those who may come back."""
        return {instance for instance, row in self._rows.items() if not row.gone}

    @property
    def is_changed(self) -> bool:
        """Whether rows have to be written."""
        return bool(self._changed)

    def is_durable(self, instance: str) -> bool:
        """Whether somebody stands in the roster durably."""
        return instance in self._durable

    def enter(self, instance: str, wall: int) -> None:
        """Somebody takes part, for the first time or again."""
        row = self._rows.setdefault(instance, RosterRow())
        row.heard, row.gone = wall, False
        self._changed[instance] = None

    def leave(self, instance: str) -> None:
        """Somebody says goodbye."""
        if self._rows.pop(instance, None) is not None:
            self._changed[instance] = None
            self._durable.discard(instance)

    def mark_gone(self, instance: str) -> None:
        """The deaths of somebody's unclean end are counted."""
        row = self._rows.get(instance)
        if row is not None and not row.gone:
            row.gone = True
            self._changed[instance] = None

    def repeated(self, instance: str, number: int) -> Repeated | None:
        """Returns how a settlement was answered, if it was made before; else None."""
        row = self._rows.get(instance)
        if row is None or number > row.last:
            return None
        if number <= row.last - UNANSWERED_MAX:
            return Repeated(uncertain=True)
        return Repeated(row.losers.get(number, ()))

    def note(self, instance: str, number: int, lost: tuple[Holds, ...]) -> None:
        """A settlement was made."""
        row = self._rows.get(instance)
        if row is None:
            return
        row.last = number
        row.losers = {each: holds for each, holds in row.losers.items() if each > number - UNANSWERED_MAX}
        if lost:
            row.losers[number] = lost
        self._changed[instance] = None

    def prune(self, wall: int, present: Iterable[str]) -> None:
        """Forgets those who have not been here for too long, and the first of them where there are too many.

        That is looked for now and then, for there may be many.
        """
        self._unpruned += 1
        if len(self._rows) <= ROSTER_MAX and self._unpruned % PRUNED_AFTER:
            return
        here = set(present)
        absent = sorted((row.heard, instance) for instance, row in self._rows.items() if instance not in here)
        most = max(0, len(self._rows) - ROSTER_MAX)
        for at, (heard, instance) in enumerate(absent):
            if at >= most and heard > wall - ROSTER_MS:
                return
            self.leave(instance)

    def rows(self, sid: int) -> tuple[list[Operation], list[str]]:
        """Returns what is to be written, and who stands in the roster when that is durable."""
        operations: list[Operation] = []
        entered: list[str] = []
        for instance in self._changed:
            row = self._rows.get(instance)
            if row is None:
                operations.append(Delete(ROSTER, roster_key(sid, instance)))
            else:
                operations.append(Set(ROSTER, roster_key(sid, instance), _encode(row)))
                if instance not in self._durable:
                    entered.append(instance)
        self._changed.clear()
        return operations, entered

    def written(self, entered: Iterable[str]) -> None:
        """These rows are durable."""
        self._durable.update(instance for instance in entered if instance in self._rows)

    def delete(self, sid: int) -> list[Operation]:
        """Returns the removal of all rows."""
        return [
            Delete(ROSTER, roster_key(sid, instance)) for instance in {**dict.fromkeys(self._rows), **self._changed}
        ]


@dataclass(slots=True)
class Ceiling:
    """The delivery numbers of a subscription, and up to where anything of each pubend was delivered."""

    number: int = 0
    """The last one that was given."""
    asked: int = 0
    """As it was written last, …"""
    durable: int = 0
    """… and as it is durable."""
    before: int = 0
    """The ceiling of the lives before this one: numbers up to here were given in them."""
    asked_sent: dict[PubendId, Tick] = field(default_factory=dict)
    sent: dict[PubendId, Tick] = field(default_factory=dict)
    """Up to where anything may be delivered, durably."""
    is_open: bool = False
    """Whether it is noted durably that somebody may have been sent something."""
    asked_open: bool = False
    """What was written last of that, …"""
    changes: int = 0
    """… and how often it was another one than before."""
    is_wanted: bool = False
    """Whether a delivery waits for it."""

    @classmethod
    def restored(cls, row: SharedRow) -> Ceiling:
        """Returns the ceiling of a life that begins. Numbers go on above it."""
        top = row.ceiling
        return cls(top, top, top, top, dict(row.sent), dict(row.sent), row.is_open, row.is_open)

    def room(self, pubend: PubendId, tick: Tick) -> int:
        """Returns how many events may be delivered of a pubend up to a tick, as far as that is durable."""
        room = self.durable - self.number if self.is_open and tick <= self.sent.get(pubend, 0) else 0
        self.is_wanted |= room <= 0
        return room

    def take(self, count: int) -> int:
        """Returns the first of so many new delivery numbers."""
        assert self.number + count <= self.durable, "no number is given that could be given again after a crash"
        self.number += count
        return self.number - count + 1

    def raise_ahead(self, frontiers: Iterable[tuple[PubendId, Tick, Tick]]) -> bool:
        """Raises what will be written. Returns whether it is to be written.

        `frontiers`: pubend, up to where it is read, and its grain.
        """
        raised = False
        if self.asked - self.number < NUMBERS_AHEAD // 2:
            self.asked = self.number + NUMBERS_AHEAD
            raised = True
        for pubend, frontier, grain in frontiers:
            if self.asked_sent.get(pubend, 0) < frontier + AHEAD // 2 * grain:
                self.asked_sent[pubend] = frontier + AHEAD * grain
                raised = True
        return raised

    def ask_open(self, is_open: bool) -> bool:  # noqa: FBT001 - it is what is asked
        """Somebody may be sent something from now on, or nobody. Returns whether that is to be written.

        Until it is durable nothing is delivered: a crash in between must not find what was written before (TS2).
        """
        if is_open is self.asked_open:
            return False
        self.asked_open, self.is_open = is_open, False
        self.changes += 1
        return True

    def written(self, number: int, sent: Mapping[PubendId, Tick], changes: int) -> None:
        """This is durable. `changes`: how often it was opened or closed before it was asked for."""
        self.durable = max(self.durable, number)
        for pubend, tick in sent.items():
            self.sent[pubend] = max(tick, self.sent.get(pubend, 0))
        if changes == self.changes:
            self.is_open = self.asked_open


def shared_row(sid: int, row: SharedRow) -> Set:
    """Returns the write of a subscription's row."""
    return Set(SHARED, _SID.pack(sid), _encode(row))


def delete_shared(sid: int) -> Delete:
    """Returns the removal of a subscription's row."""
    return Delete(SHARED, _SID.pack(sid))


def read_shared(key: bytes, value: bytes) -> tuple[int, SharedRow]:
    """Returns the subscription and the content of a row."""
    return _SID.unpack(key)[0], _decode_shared(value)


def holds_of(found: Sequence[tuple[PubendId, Tick, int]]) -> tuple[Holds, ...]:
    """Returns events as they are named on the wire: pubend by pubend, each in the order of its ticks."""
    by_pubend: dict[PubendId, list[tuple[Tick, int]]] = {}
    for pubend, tick, number in found:
        by_pubend.setdefault(pubend, []).append((tick, number))
    return tuple(
        Holds(pubend, tuple(tick for tick, _ in pairs), tuple(number for _, number in pairs))
        for pubend, pairs in ((pubend, sorted(pairs)) for pubend, pairs in by_pubend.items())
    )
