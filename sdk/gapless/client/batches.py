"""Batches: events of one pubend, decoded when somebody looks at them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from gapless.core.events import Event
from gapless.core.ticks import PubendId, Tick
from gapless.core.tokens import CheckpointToken
from gapless.errors import RemoteProtocolError

if TYPE_CHECKING:
    from gapless.core.client import Delivery


class Batch(Sequence[Event]):
    """Events of one pubend in order: a sequence, with `token`, the position behind the last of them.

    The events are decoded together when the first of them is looked at. Picklable.
    """

    __slots__ = ("_delivery", "_events", "_origin", "_positions", "_token", "pubend")

    def __init__(self, pubend: PubendId, events: list[Event], token: CheckpointToken) -> None:
        """For gapless itself, and for tests of applications."""
        self.pubend = pubend
        self._events: list[Event] | None = events
        self._delivery: Delivery | None = None
        self._token: CheckpointToken | None = token
        self._origin: CheckpointToken = token
        self._positions: Mapping[PubendId, Tick] = {}

    @classmethod
    def of(cls, delivery: Delivery, origin: CheckpointToken, positions: Mapping[PubendId, Tick]) -> Batch:
        """A batch that is not decoded yet, behind which the position is `positions`."""
        batch = cls.__new__(cls)
        batch.pubend = delivery.pubend
        batch._events = None
        batch._delivery = delivery
        batch._token = None
        batch._origin = origin
        batch._positions = positions
        return batch

    @property
    def token(self) -> CheckpointToken:
        """The position behind this batch: to be stored with its effects."""
        if self._token is None:
            self._token = self._origin.advance(self._positions)
        return self._token

    def __len__(self) -> int:
        return self._delivery.count if self._delivery is not None else len(self._decoded())

    @overload
    def __getitem__(self, index: int) -> Event: ...
    @overload
    def __getitem__(self, index: slice) -> list[Event]: ...
    def __getitem__(self, index: int | slice) -> Event | list[Event]:
        return self._decoded()[index]

    def __iter__(self) -> Iterator[Event]:
        return iter(self._decoded())

    def __repr__(self) -> str:
        return f"<Batch of {len(self)} events of {self.pubend}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Batch):
            return NotImplemented
        return self.pubend == other.pubend and self._decoded() == other._decoded()

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return Batch, (self.pubend, self._decoded(), self.token)

    def _decoded(self) -> list[Event]:
        if self._events is None:
            assert self._delivery is not None
            self._events = decode(self._delivery)
        return self._events


def decode(delivery: Delivery) -> list[Event]:
    """The events of a delivery. Raises RemoteProtocolError if one is malformed."""
    try:
        return delivery.events()
    except ValueError as error:
        raise RemoteProtocolError(f"the broker delivered what is no event: {error}") from error
