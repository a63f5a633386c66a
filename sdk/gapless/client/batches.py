"""Batches: events of one pubend, decoded when needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from gapless.core.stream.events import Event
from gapless.core.stream.ticks import PubendId, Tick
from gapless.core.wire.tokens import CheckpointToken
from gapless.errors import RemoteProtocolError

if TYPE_CHECKING:
    from gapless.core.client import Delivery


EventT = TypeVar("EventT", bound=Event)


class Events(Sequence[EventT]):
    """Events of one pubend in order: a sequence. They are decoded together, when the first of them is needed."""

    __slots__ = ("_content", "_count", "_events", "pubend")

    def __init__(self, pubend: PubendId, content: list[EventT] | Delivery) -> None:
        self.pubend = pubend
        self._content = content
        self._events = content if isinstance(content, list) else None
        self._count = len(content) if isinstance(content, list) else content.count

    @property
    def bodies(self) -> list[bytes]:
        """The bodies of the events, in order. Nothing else of them is decoded: for half of the processor time."""
        if self._events is not None:
            return [event.body for event in self._events]
        assert not isinstance(self._content, list)
        try:
            return self._content.bodies()
        except ValueError as error:
            raise no_event(error) from error

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> EventT: ...
    @overload
    def __getitem__(self, index: slice) -> list[EventT]: ...
    def __getitem__(self, index: int | slice) -> EventT | list[EventT]:
        return self._decoded()[index]

    def __iter__(self) -> Iterator[EventT]:
        return iter(self._decoded())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self)} events of {self.pubend}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Events):
            return NotImplemented
        return self.pubend == other.pubend and self._decoded() == other._decoded()

    __hash__ = None  # type: ignore[assignment]

    def _decoded(self) -> list[EventT]:
        if self._events is None:
            assert not isinstance(self._content, list)
            self._events = self._decode(self._content)
        return self._events

    def _decode(self, delivery: Delivery) -> list[EventT]:
        """Returns the events of a delivery. Raises RemoteProtocolError if one is malformed."""
        raise NotImplementedError


class Batch(Events[Event]):
    """Events of one pubend in order: a sequence, with `token`, the position after the last event.

    The events are decoded together, when the first of them is needed. Picklable.
    """

    __slots__ = ("_origin", "_positions", "_token")

    def __init__(
        self,
        pubend: PubendId,
        content: list[Event] | Delivery,
        origin: CheckpointToken,
        positions: Mapping[PubendId, Tick] | None = None,
    ) -> None:
        """For gapless itself, and for tests of applications: `Batch(pubend, events, token)`."""
        super().__init__(pubend, content)
        self._origin = origin
        self._positions = positions
        self._token = origin if positions is None else None

    @property
    def token(self) -> CheckpointToken:
        """The position after this batch. Store it with the effects of the batch."""
        if self._token is None:
            self._token = self._origin.advance(self._positions or {})
        return self._token

    def __reduce__(self) -> tuple[Any, ...]:
        return Batch, (self.pubend, self._decoded(), self.token)

    def _decode(self, delivery: Delivery) -> list[Event]:
        return decode(delivery)


def decode(delivery: Delivery) -> list[Event]:
    """Returns the events of a delivery. Raises RemoteProtocolError if one is malformed."""
    try:
        return delivery.events()
    except ValueError as error:
        raise no_event(error) from error


def no_event(error: ValueError) -> RemoteProtocolError:
    """Returns the error for events that cannot be decoded."""
    return RemoteProtocolError(f"the broker delivered what is no event: {error}")
