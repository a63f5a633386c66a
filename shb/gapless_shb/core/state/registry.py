"""The subscriptions of an SHB: their records, and the version of the interest (protocol: subscribing)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from functools import lru_cache
from struct import Struct
from typing import NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from gapless.core.network.interest import digest
from gapless.core.ports import Delete, Operation, Set
from gapless.core.resources import Durable
from gapless.core.stream.ticks import SECOND, PubendId, ShbId, Tick, wall_at
from gapless.selectors.filters import Filter, leaving_out
from gapless.selectors.lexer import canonical
from gapless_shb.core.state.subscription import PREPARING, Phase, Subscription

SUBSCRIPTIONS = "shb/subscriptions"
META = "shb/meta"
Shared = TypeVar("Shared", bound=Hashable)
_KEY = Struct(">Q")
SKEW = 60 * SECOND
"""How far clocks may differ. On a pubend found later, so much before the creation is owed, too
(protocol: late-pubends)."""


class Shares(msgspec.Struct, array_like=True, frozen=True):
    """What was said of a shared subscription when it was created."""

    window: int
    """How many events may be unsettled."""
    durable: bool
    """Whether it lives on without consumers."""


class SubscriptionRecord(msgspec.Struct, array_like=True):
    """The record of one subscription. A `sid` is never used again."""

    sid: int
    client_id: str
    name: str
    """The name; empty if the subscription is not durable."""
    generation: int
    topics: tuple[str, ...]
    selector: str
    """As whoever created or changed it wrote it; compare `terms`."""
    version: int
    """The interest version from which on the subscription is part of the SHB's interest."""
    late_start: Tick
    """Where it starts on pubends that are found later, unless they were created after that."""
    start: dict[PubendId, Tick]
    """Where it starts on each pubend that was known at its creation, or named by its token; and on one that was found
    later, and has said where the time is that it asked to begin at.

    Must not be changed in place:
    other subscriptions with the same start share it."""
    begun: bool = False
    """Whether `start` is final. Events that go from the log afterwards are a gap; before, they only move the start."""
    origin: tuple[int, int, int] | None = None
    """The token that it was created with: id and generation of its subscription, and a checksum of its positions."""
    group: str = ""
    """The group of which it gets the events in total order; "": the pubends are independent."""
    home: ShbId = ""
    """The SHB that keeps it, if that is another one: here it is a guest, and in no table (protocol: roaming)."""
    not_from: str = ""
    """The JMSXAppID of the events that it leaves out, with `no_local`; "": none are left out."""
    unnamed: tuple[PubendId, ...] = ()
    """The pubends in `start` that the token of its creation did not name. Position 0 is one as well: before all."""
    principal: str = ""
    """The name of the principal that created it; "": the process itself, or that was not noted yet."""
    groups: tuple[str, ...] = ()
    """The groups that this principal had then, in order."""
    start_wall: int = 0
    """The wall time, in milliseconds, that it asked to begin at; 0: it did not, or that was not noted yet."""
    shared: Shares | None = None
    """How its consumers share it; None: it has one consumer at a time."""

    @property
    def late_wall(self) -> int:
        """What `late_start` is as a wall time, for a pubend whose ticks are no times."""
        return wall_at(self.late_start + 1)

    def names(self, pubend: PubendId) -> bool:
        """Whether the token that it was created with named a pubend."""
        return self.origin is not None and pubend in self.start and pubend not in self.unnamed

    @property
    def durable(self) -> bool:
        """Whether it outlives its session here."""
        return bool(self.name) and not self.home

    @property
    def called(self) -> str:
        """Names it, for people."""
        return str(Durable(self.client_id, self.name))

    @property
    def filter(self) -> Filter:
        """The filter of its events."""
        return Filter.known(self.topics, leaving_out(self.selector, self.not_from))

    @property
    def terms(self) -> Terms:
        """What it selects, to be compared with what a request asks for."""
        return terms_of(self.topics, self.selector, self.not_from)

    @property
    def wants(self) -> int:
        """A number for the filter, to be compared: it is above 0, and another filter has another one."""
        return _number_of(Filter.known(self.topics, leaving_out(canonical(self.selector), self.not_from)))

    @property
    def wants_as_written(self) -> int:
        """The number that brokers gave which told selectors with other blanks apart."""
        return _number_of(self.filter)


class Terms(NamedTuple):
    """What a subscription selects, in the one spelling in which two are compared: a blank makes no difference."""

    topics: tuple[str, ...]
    selector: str
    """In its canonical text, which is never stored: a record keeps the text as it was written."""
    not_from: str


def terms_of(topics: Iterable[str], selector: str, not_from: str) -> Terms:
    """Returns the terms of a subscription or a request. Raises InvalidSelectorError."""
    return Terms(tuple(topics), canonical(selector), not_from)


def _number_of(wanted: Filter) -> int:
    return digest({0: wanted}) >> 1 or 1


@lru_cache(maxsize=1024)
def _shared(value: Shared) -> Shared:
    """Returns an equal object that was seen lately, or the object itself."""
    return value


LEAP = 1 << 32
"""More versions of the interest than another process of an SHB has announced."""


class _Meta(msgspec.Struct, array_like=True):
    last_sid: int = 0
    version: int = 0
    beside: int = 0
    """The incarnation of the last process that ran beside one on this volume."""


_encode = msgspec.msgpack.Encoder().encode
_decode_subscription = msgspec.msgpack.Decoder(SubscriptionRecord).decode
_decode_meta = msgspec.msgpack.Decoder(_Meta).decode


class Registry:
    """All subscriptions of an SHB, by id and by name, and the version of its interest."""

    def __init__(self) -> None:
        self._by_sid: dict[int, Subscription] = {}
        self._by_name: dict[tuple[str, str], SubscriptionRecord] = {}
        self.moved: dict[int, None] = {}
        """The subscriptions that have gone over to another phase since somebody took this."""
        self.durable_sids: set[int] = set()
        self._counts: dict[str, int] = {}
        """How many subscriptions each principal has created that are there."""
        """The subscriptions that outlive their sessions. Only these are in the PFS."""
        self._last_start: dict[PubendId, Tick] = {}
        self._meta = _Meta()

    @classmethod
    def recover(cls, meta: bytes | None, records: Iterator[tuple[bytes, bytes]]) -> Registry:
        """Restores the registry from its rows."""
        registry = cls()
        if meta is not None:
            registry._meta = _decode_meta(meta)
        for _, value in records:
            registry._insert(_decode_subscription(value), Phase.FREE)
        return registry

    def __len__(self) -> int:
        return len(self._by_sid)

    def __iter__(self) -> Iterator[SubscriptionRecord]:
        return (subscription.record for subscription in self._by_sid.values())

    @property
    def version(self) -> int:
        """The current version of the interest."""
        return self._meta.version

    def get(self, sid: int) -> SubscriptionRecord | None:
        """Returns the record of the subscription with this id."""
        subscription = self._by_sid.get(sid)
        return None if subscription is None else subscription.record

    def count_of(self, principal: str) -> int:
        """Returns how many subscriptions a principal has created that are there."""
        return self._counts.get(principal, 0)

    def phase(self, sid: int) -> Phase:
        """Returns what the subscription with this id is doing."""
        subscription = self._by_sid.get(sid)
        return Phase.REMOVED if subscription is None else subscription.phase

    def is_preparing(self, sid: int) -> bool:
        """Whether a subscription is being created, or gets another filter."""
        return self.phase(sid) in PREPARING

    def become(self, sid: int, phase: Phase) -> None:
        """A subscription goes over to another phase."""
        self._by_sid[sid].become(phase)
        self.moved[sid] = None

    def find(self, client_id: str, name: str) -> SubscriptionRecord | None:
        """Returns the durable subscription with this client id and name."""
        return self._by_name.get((client_id, name))

    def create(self, subscription: SubscriptionRecord, phase: Phase) -> list[Operation]:
        """Gives a new subscription its id and the next version. Returns the writes that precede its announcement."""
        self._meta.last_sid += 1
        operations = self.next_version()
        subscription.sid, subscription.version = self._meta.last_sid, self.version
        self._insert(subscription, phase)
        return [*operations, *self.save(subscription)]

    def save(self, subscription: SubscriptionRecord) -> list[Operation]:
        """Returns the write of a durable subscription's record."""
        if not subscription.durable:
            return []
        return [Set(SUBSCRIPTIONS, _KEY.pack(subscription.sid), _encode(subscription))]

    def remove(self, subscription: SubscriptionRecord) -> list[Operation]:
        """Removes a subscription, under the next version. Returns the writes."""
        self._by_sid.pop(subscription.sid).become(Phase.REMOVED)
        self._count(subscription, -1)
        if subscription.durable:
            del self._by_name[subscription.client_id, subscription.name]
            self.durable_sids.remove(subscription.sid)
        return [*self.next_version(), Delete(SUBSCRIPTIONS, _KEY.pack(subscription.sid))]

    def change(
        self, subscription: SubscriptionRecord, topics: tuple[str, ...], selector: str, not_from: str
    ) -> tuple[SubscriptionRecord, list[Operation]]:
        """Gives a subscription another filter, under the next version.

        Returns what it was before, with the writes that precede the announcement.
        """
        former = replace(subscription)
        operations = self.next_version()
        subscription.topics, subscription.selector, subscription.not_from = _shared(topics), selector, not_from
        subscription.version = self.version
        return former, [*operations, *self.save(subscription)]

    def next_version(self) -> list[Operation]:
        """Begins the next version of the interest. Returns its write."""
        self._meta.version += 1
        return [Set(META, b"registry", _encode(self._meta))]

    def leap(self, other: int) -> list[Operation] | None:
        """Another process of this SHB has announced versions of its own: all subscriptions get one above all of them.

        Returns the writes; None if that was done for this process (its incarnation) before.
        """
        if other == self._meta.beside:
            return None
        self._meta.beside = other
        self._meta.version += LEAP - 1
        operations = self.next_version()
        for subscription in self:
            subscription.version = self.version
            operations += self.save(subscription)
        return operations

    def _count(self, subscription: SubscriptionRecord, more: int) -> None:
        """Guests are counted at their home."""
        if not subscription.home:
            count = self._counts.pop(subscription.principal, 0) + more
            assert count >= 0, "each is counted once"
            if count:
                self._counts[subscription.principal] = count

    def _insert(self, subscription: SubscriptionRecord, phase: Phase) -> None:
        # Saves memory: there may be very many subscriptions, but few clients and topics, and many with the same start.
        subscription.client_id = _shared(subscription.client_id)
        subscription.topics = _shared(subscription.topics)
        if subscription.start == self._last_start:
            subscription.start = self._last_start
        self._last_start = subscription.start
        assert 0 < subscription.sid <= self._meta.last_sid, "ids are given once, and counted durably"
        assert subscription.sid not in self._by_sid, "ids are given once"
        assert subscription.version <= self.version, "no filter is newer than the interest that has it"
        self._by_sid[subscription.sid] = Subscription(subscription, phase)
        subscription.principal = _shared(subscription.principal)
        subscription.groups = _shared(subscription.groups)
        self._count(subscription, 1)
        if subscription.durable:
            assert self.find(subscription.client_id, subscription.name) is None, "a client has a name once"
            self._by_name[subscription.client_id, subscription.name] = subscription
            self.durable_sids.add(subscription.sid)
