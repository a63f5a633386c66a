"""The role seam: a role is a factory of one pure core that the node hosts (PHB, SHB, or a third party's).

The node keeps one table from message types to handlers: what a router says to cores (`Deliver`,
`AskPubend`, …) and what clients ask (`Subscribe`, `ListPubends`, …) goes to the role that declares it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from gapless.core.effects import ReadResult
from gapless.core.routing import BrokerId

Handler: TypeAlias = "Callable[[Any, int, int], None]"
"""(message, now, wall)."""
RequestHandler: TypeAlias = "Callable[[ClientSession, Any, int, int], None]"
"""(session, message, now, wall)."""


@dataclass(frozen=True, slots=True)
class ClientSession:
    """A client's session at this broker, as roles see it."""

    number: int
    client_id: str
    instance: str
    principal: str


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """Said to every role that declares it: a client's session is over."""

    session: ClientSession


class RecoveryReader(Protocol):
    """What a role may read while it is made: everything the volume holds. Nothing may be written."""

    def scan(self, table: str, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """All pairs of a table whose key starts with `prefix`, in key order."""

    def records(self, stream: str, after: int = 0) -> Iterator[tuple[int, bytes]]:
        """All records of a stream with an index > after, in order.

        Raises RecordsDamagedError where one cannot be read; go on behind it, if you can.
        """

    def given_up(self, stream: str) -> Sequence[tuple[int, int]]:
        """The ranges (after, upto] of a stream that an operator has given up."""

    def first(self, stream: str) -> int:
        """A stream's chop point."""

    def last(self, stream: str) -> int:
        """A stream's highest index ever put, or 0."""

    def size(self, stream: str) -> int:
        """About how many bytes a stream's records take."""


@dataclass(frozen=True, slots=True)
class RoleContext:
    """What a role is made from."""

    broker: BrokerId
    network: str
    storage_id: str
    """Unique to this volume: another volume under the same node name has another."""
    reader: RecoveryReader
    now: int
    wall: int
    secret: bytes
    """Known to this network's brokers alone: seals tokens."""
    max_event_bytes: int = 1 << 20
    """The largest event that clients are told they may publish ([limits] of the configuration)."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """The role's own section of the configuration, unchecked."""
    roles: frozenset[str] = frozenset()
    """All roles of the node, this one too."""


class Role(Protocol):
    """One pure core. The node calls `start` once, then whatever happens, and takes effects after each call."""

    name: str

    def handlers(self) -> Mapping[type, Handler]:
        """Which routing effects, and SessionEnded, this role takes."""

    def requests(self) -> Mapping[type, RequestHandler]:
        """Which client messages this role answers."""

    def start(self, now: int, wall: int) -> None:
        """All roles are made and the router has started: say what there is."""

    def on_durable(self, cookie: Any, now: int, wall: int) -> None:
        """The write with this cookie is durable."""

    def on_read(self, result: ReadResult, now: int, wall: int) -> None:
        """A read is answered."""

    def on_space(self, now: int, wall: int, *, low: bool) -> None:
        """The disk is nearly full, or no longer."""

    def deadline(self) -> int | None:
        """When `on_deadline` wants to be called (monotonic nanoseconds), or None."""

    def on_deadline(self, now: int, wall: int) -> None:
        """The deadline has come."""

    def take_effects(self) -> Sequence[object]:
        """What to do, in order; emptied by the call."""

    def status(self) -> Mapping[str, object]:
        """What `gapless doctor` shows of this role."""
