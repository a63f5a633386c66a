"""Batches: events of one pubend, decoded when needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from gapless.core.stream.events import Event
from gapless.core.stream.ticks import PubendId, Tick
from gapless.core.wire.tokens import CheckpointToken
from gapless.errors import RemoteProtocolError

if TYPE_CHECKING:
    from gapless.core.client import Delivery


class Batch(Sequence[Event]):
    """Events of one pubend in order: a sequence, with `token`, the position after the last event.

    The events are decoded together, when the first of them is needed. Picklable.
    """

    __slots__ = ("_content", "_count", "_events", "_origin", "_positions", "_token", "pubend")

    def __init__(
        self,
        pubend: PubendId,
        content: list[Event] | Delivery,
        origin: CheckpointToken,
        positions: Mapping[PubendId, Tick] | None = None,
    ) -> None:
        """For gapless itself, and for tests of applications: `Batch(pubend, events, token)`."""
        self.pubend = pubend
        self._content = content
        self._events = content if isinstance(content, list) else None
        self._count = len(content) if isinstance(content, list) else content.count
        self._origin = origin
        self._positions = positions
        self._token = origin if positions is None else None

    @property
    def token(self) -> CheckpointToken:
        """The position after this batch. Store it with the effects of the batch."""
        if self._token is None:
            self._token = self._origin.advance(self._positions or {})
        return self._token

    @property
    def bodies(self) -> list[bytes]:
        """The bodies of the events, in order. Nothing else of them is decoded: for half of the processor time."""
        if self._events is not None:
            return [event.body for event in self._events]
        assert not isinstance(self._content, list)
        try:
            return self._content.bodies()
        except ValueError as error:
            raise _no_event(error) from error

    def __len__(self) -> int:
        return self._count

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
            assert not isinstance(self._content, list)
            self._events = decode(self._content)
        return self._events


def decode(delivery: Delivery) -> list[Event]:
    """Returns the events of a delivery. Raises RemoteProtocolError if one is malformed."""
    try:
        return delivery.events()
    except ValueError as error:
        raise _no_event(error) from error


def _no_event(error: ValueError) -> RemoteProtocolError:
    return RemoteProtocolError(f"the broker delivered what is no event: {error}")
