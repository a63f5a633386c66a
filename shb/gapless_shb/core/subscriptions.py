"""Subscriptions: who is interested in what, from where on, and how that is kept (protocol: subscribing)."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from functools import lru_cache
from struct import Struct
from typing import TypeVar

import msgspec

from gapless.core.ports import Delete, Operation, Set
from gapless.core.stream.ticks import SECOND, PubendId, Tick
from gapless.selectors.filters import Filter

SUBSCRIPTIONS = "shb/subscriptions"
META = "shb/meta"
Shared = TypeVar("Shared", bound=Hashable)
_KEY = Struct(">Q")
SKEW = 60 * SECOND
"""How far clocks may differ: of a pubend found later, so much before it is owed as well (protocol: late-pubends)."""


class SubscriptionRecord(msgspec.Struct, array_like=True):
    """One subscription. `sid` is never used again."""

    sid: int
    client_id: str
    name: str
    """Empty: not durable."""
    generation: int
    topics: tuple[str, ...]
    selector: str
    version: int
    """The interest version from which on it is part of what the SHB announces."""
    late_start: Tick
    """Where it begins on pubends that are found later, unless they were created after that."""
    start: dict[PubendId, Tick]
    """Where it begins on the pubends known when it was created, or named by the token it began with. Not to be
    changed: others that began there share it."""
    begun: bool = False
    """Whether `start` is final: what goes from the log afterwards is a gap, and no later beginning."""
    origin: tuple[int, int, int] | None = None
    """The token it began with: of which subscription (id and generation), and a checksum of its positions."""

    @property
    def durable(self) -> bool:
        """Whether it outlives its session."""
        return bool(self.name)

    @property
    def filter(self) -> Filter:
        """What it matches."""
        return Filter.known(self.topics, self.selector)


@lru_cache(maxsize=1024)
def _shared(value: Shared) -> Shared:
    """The same object for what is equal, and was heard lately."""
    return value


class _Meta(msgspec.Struct, array_like=True):
    last_sid: int = 0
    version: int = 0


_encode = msgspec.msgpack.Encoder().encode
_decode_subscription = msgspec.msgpack.Decoder(SubscriptionRecord).decode
_decode_meta = msgspec.msgpack.Decoder(_Meta).decode


class Registry:
    """All subscriptions of an SHB, by id and by name, and the version of its interest."""

    def __init__(self) -> None:
        self._by_sid: dict[int, SubscriptionRecord] = {}
        self._by_name: dict[tuple[str, str], SubscriptionRecord] = {}
        self.durable_sids: set[int] = set()
        """The subscriptions that outlive their sessions, and so have a place in the PFS."""
        self._last_start: dict[PubendId, Tick] = {}
        self._meta = _Meta()

    @classmethod
    def recover(cls, meta: bytes | None, records: Iterator[tuple[bytes, bytes]]) -> Registry:
        """The registry as it was persisted."""
        registry = cls()
        if meta is not None:
            registry._meta = _decode_meta(meta)
        for _, value in records:
            registry._insert(_decode_subscription(value))
        return registry

    def __len__(self) -> int:
        return len(self._by_sid)

    def __iter__(self) -> Iterator[SubscriptionRecord]:
        return iter(self._by_sid.values())

    @property
    def version(self) -> int:
        """The version of the interest."""
        return self._meta.version

    def get(self, sid: int) -> SubscriptionRecord | None:
        """The subscription with this id."""
        return self._by_sid.get(sid)

    def find(self, client_id: str, name: str) -> SubscriptionRecord | None:
        """The durable subscription of this client and name."""
        return self._by_name.get((client_id, name))

    def create(
        self,
        client_id: str,
        name: str,
        topics: tuple[str, ...],
        selector: str,
        late_start: Tick,
        start: dict[PubendId, Tick],
        *,
        begun: bool = True,
        origin: tuple[int, int, int] | None = None,
    ) -> tuple[SubscriptionRecord, list[Operation]]:
        """A new subscription under the next version, and what must be durable before it is announced.

        `begun`: no pubend has to be asked whether it still has what lies behind the start.
        """
        self._meta.last_sid += 1
        operations = self.next_version()
        subscription = SubscriptionRecord(
            self._meta.last_sid, client_id, name, 1, topics, selector, self.version, late_start, start, begun, origin
        )
        self._insert(subscription)
        return subscription, [*operations, *self.save(subscription)]

    def save(self, subscription: SubscriptionRecord) -> list[Operation]:
        """The write of a durable subscription's record."""
        if not subscription.durable:
            return []
        return [Set(SUBSCRIPTIONS, _KEY.pack(subscription.sid), _encode(subscription))]

    def remove(self, subscription: SubscriptionRecord) -> list[Operation]:
        """Removes it, under the next version."""
        del self._by_sid[subscription.sid]
        if subscription.durable:
            del self._by_name[subscription.client_id, subscription.name]
            self.durable_sids.remove(subscription.sid)
        return [*self.next_version(), Delete(SUBSCRIPTIONS, _KEY.pack(subscription.sid))]

    def next_version(self) -> list[Operation]:
        """The next version of the interest, and its write."""
        self._meta.version += 1
        return [Set(META, b"registry", _encode(self._meta))]

    def _insert(self, subscription: SubscriptionRecord) -> None:
        # There may be very many of them, of few clients, for few topics, and many that began together.
        subscription.client_id = _shared(subscription.client_id)
        subscription.topics = _shared(subscription.topics)
        if subscription.start == self._last_start:
            subscription.start = self._last_start
        self._last_start = subscription.start
        self._by_sid[subscription.sid] = subscription
        if subscription.durable:
            self._by_name[subscription.client_id, subscription.name] = subscription
            self.durable_sids.add(subscription.sid)
