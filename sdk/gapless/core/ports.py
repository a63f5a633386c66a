"""The pure seams in one place: what a core asks of the world, what a role is, and who decides what is released.

Durability is a conversation (etcd/raft's `Ready`): a core asks for a `Write` and names it with a cookie;
the node applies all writes of a turn as one atomic batch in the order asked, syncs it off the loop, and
only then says `on_durable(cookie)`. What must not leave before the write is durable, the core sends then.
A `Read` is answered by `on_read` in a later step, and sees every write asked for before it.

A log is a conversation, too: a pubend's host asks for an `Append`, and hears from the log what became of it, under
which indices (`Appended`), before it hears that the write around it is durable. A log of the node's own volume takes
the indices that are proposed. One that numbers its records itself, and that others append to, answers with its own:
`LogCapabilities` says which it is, so that whoever stands on the one is never put on the other.

A role is a factory of one pure core that the node hosts (PHB, SHB, or a third party's). The node keeps one
table from message types to handlers: what a router says to cores (`Know`, `Seen`, …) and what clients ask
(`Subscribe`, `ListPubends`, …) goes to the role that declares it. What concerns a pubend (`AskPubend`, `Submit`, …)
several roles may declare: it goes to the one that hosts the pubend, and said so with `Opened`.

A release policy decides how far a pubend may forget what somebody still needs (protocol: release).
It is asked when the release timer of a pubend has come, never per event. It is pure: what it answers follows
from the `PubendState` that it is given and from its options, so one policy may serve many pubends. What it
answers is a wish. The PHB core grants of it only what is delivered to every SHB that counts (`t ≤ T_d`), and
nothing while the wall clock cannot be believed; whoever still needed it meets a gap.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Literal, Protocol, TypeAlias

from msgspec import Struct

from gapless.core.gauges import Gauge
from gapless.core.network.facts import BrokerId
from gapless.core.stream.ticks import PubendId, Tick
from gapless.core.wire.messages import ServerMessage

# ------------------------------------------------------------------------------ what a core asks for


class Append(Struct, frozen=True, gc=False):
    """Append these records to a log, all of them or none, in this order.

    Answered by `Appended`, `Refused` or `Uncertain`. As an operation of a `Write` it is applied and becomes durable
    with the rest of that, and is answered before it.
    """

    log: str
    cookie: Hashable
    records: Sequence[bytes]
    indices: Sequence[int] | None
    """The index proposed for each record, rising; None: the log numbers them itself."""


class Put(Struct, frozen=True, gc=False):
    """Put `record` into a stream under `index`: of a role's own notes, which nobody else numbers or needs answered."""

    stream: str
    index: int
    record: bytes


class Chop(Struct, frozen=True, gc=False):
    """Remove every record of a log stream with an index <= `upto`."""

    stream: str
    upto: int


class Set(Struct, frozen=True, gc=False):
    """Set `key` of a table."""

    table: str
    key: bytes
    value: bytes


class Delete(Struct, frozen=True, gc=False):
    """Remove `key` from a table."""

    table: str
    key: bytes


Operation: TypeAlias = Append | Put | Chop | Set | Delete


class Write(Struct, frozen=True, gc=False):
    """Apply these operations atomically; answered by `on_durable(cookie)` when a cookie is given.

    A failed write is answered by nothing: the node ends and recovers every role of the process.
    """

    operations: Sequence[Operation]
    cookie: Hashable = None


class Read(Struct, frozen=True, gc=False):
    """Read the records of a stream that overlap (after, upto]; answered by `on_read(ReadResult)`."""

    stream: str
    after: int
    upto: int
    cookie: Hashable
    max_bytes: int = 1 << 20


class ReadResult(Struct, frozen=True, gc=False):
    """The answer to a `Read`. `first` is the chop point, sampled after the read (T43)."""

    cookie: Hashable
    records: Sequence[tuple[int, bytes]]
    first: int
    error: str = ""
    """Why the read failed; then nothing is known about the range."""
    damaged_upto: int = 0
    """Behind this index there is a record that can be read, or none at all; 0 when that is not known."""


class Tell(Struct, frozen=True, gc=False):
    """Send a message to a client's session; ignored when the session is over."""

    session: int
    message: ServerMessage


class Transmit(Struct, frozen=True, gc=False):
    """Send encoded data payloads to a client's session: pairs of a head and a part that others share."""

    session: int
    payloads: Sequence[tuple[bytes, bytes]] = ()


class EndSession(Struct, frozen=True, gc=False):
    """Close a client's session, with a reason for people."""

    session: int
    reason: str


# ------------------------------------------------------------------------------------ what a log says


@dataclass(frozen=True, slots=True)
class LogCapabilities:
    """What kind of log it is, and so who may stand on it."""

    numbers: Literal["own", "log"]
    """Whose business the indices are: the host's own, whose proposals are taken as they are, or the log's."""
    alone: bool
    """Nobody but its host appends to it."""
    atomic: bool
    """An `Append` may share a `Write` with tables: both are durable, or neither."""
    timed: bool
    """Indices may be ticks that are times (`MILLISECOND` of them make a millisecond)."""
    trims: bool
    """Its host decides what is removed from its beginning."""
    record_max: int | None
    """The largest record that it takes, in bytes; None: it has no limit of its own."""


VOLUME_LOG: Final = LogCapabilities("own", alone=True, atomic=True, timed=True, trims=True, record_max=None)
"""Every log of a node's own volume."""


@dataclass(frozen=True, slots=True)
class LogFacts:
    """What there is of a log when its host starts."""

    log: str
    first: int
    """The chop point: what had an index at or below it is gone."""
    decided: int
    """The highest index that it ever took, or 0."""
    capabilities: LogCapabilities


class Appended(Struct, frozen=True, gc=False):
    """The records of an `Append` are durable, under these indices. Told to whoever asked, in the order asked."""

    cookie: Hashable
    indices: Sequence[int]


class Refused(Struct, frozen=True, gc=False):
    """Of an `Append` nothing was logged, and nothing will be. A log of the volume never says so: its write fails."""

    cookie: Hashable
    why: str


class Uncertain(Struct, frozen=True, gc=False):
    """Whether the records of an `Append` were logged is not known; they may still turn up.

    A log of the volume never says so: its write fails, and the host is recovered from what is really there.
    """

    cookie: Hashable
    why: str


# ------------------------------------------------------------------------------------------ roles

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

    def facts(self, log: str) -> LogFacts:
        """Where a log, or another stream of the volume, begins and ends, and what it can do."""

    def size(self, stream: str) -> int:
        """About how many bytes a stream's records take."""


@dataclass(frozen=True, slots=True)
class RoleContext:
    """What a role is made from."""

    role: str
    """Under which name the node hosts it: no other role of the node is called so."""
    broker: BrokerId
    network: str
    storage_id: str
    """Unique to this volume: another volume under the same node name has another."""
    reader: RecoveryReader
    now: int
    wall: int
    secret: bytes
    """Known to this network's brokers alone: seals tokens."""
    authorizer: Authorizer
    """Who may do what: a role asks it about what only it knows of."""
    max_event_bytes: int = 1 << 20
    """The largest event that clients are told they may publish ([limits] of the configuration)."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """The role's own section of the configuration, unchecked."""
    roles: frozenset[str] = frozenset()
    """All roles of the node, this one too."""


class Role(Protocol):
    """One pure core. The node calls `start` once, then whatever happens, and takes its effects at the end of the turn.

    What it wants may change by being called, and by nothing else: a role that was not called is not asked.
    """

    name: str

    def handlers(self) -> Mapping[type, Handler]:
        """Which routing effects this role takes; SessionEnded, Posted, and, if it appends, Appended."""

    def requests(self) -> Mapping[type, RequestHandler]:
        """Which client messages this role answers."""

    def start(self, now: int, wall: int) -> None:
        """All roles are made and the router has started: say what there is."""

    def on_durable(self, cookie: Hashable, now: int, wall: int) -> None:
        """The write with this cookie is durable."""

    def on_read(self, result: ReadResult, now: int, wall: int) -> None:
        """A read is answered."""

    def on_space(self, now: int, wall: int, *, low: bool) -> None:
        """The disk is nearly full, or no longer."""

    def deadline(self) -> int | None:
        """When `on_deadline` wants to be called (monotonic nanoseconds), or None."""

    def on_deadline(self, now: int, wall: int) -> None:
        """The deadline has come."""

    def take_effects(self, now: int, wall: int) -> Sequence[object]:
        """What to do, in order; emptied by the call. Asked once after all calls of a turn, and `deadline` after it."""

    def gauges(self) -> Iterable[Gauge]:
        """The figures of this role, computed when they are asked for."""


# ------------------------------------------------------------------------------------ authorization


class Action(str, Enum):
    """What somebody may be allowed to do, and to what."""

    PUBLISH = "publish"
    """To a topic."""
    SUBSCRIBE = "subscribe"
    """To a pattern of topics."""
    UNSUBSCRIBE = "unsubscribe"
    """Of a durable subscription of another client, which has this id."""
    LIST = "list"
    """"subscriptions", "pubends" or "status"."""
    RETIRE = "retire"
    """An SHB of this name."""


class Authorizer(Protocol):
    """Decides who may do what. Pure and quick: asked once per request, and per batch for each of its topics."""

    asks: bool
    """Whether there is anything to be asked: False where everybody may do everything."""

    def refusal(self, principal: str, action: Action, resource: str) -> str:
        """Why not, for people; "": it is allowed."""


class AllowAll:
    """Everybody may do everything."""

    asks = False

    def refusal(self, principal: str, action: Action, resource: str) -> str:
        """Nothing is refused."""
        return ""


# ------------------------------------------------------------------------------- release policies


class LogBytes(Protocol):
    """How many bytes of a log lie where: about, and always on the safe side."""

    @property
    def size(self) -> int:
        """About how many bytes are in the log."""

    def above(self, tick: Tick) -> int:
        """About how many bytes lie above `tick`, rounded up."""

    def covered(self, least: int) -> Tick:
        """The highest tick known to have more than `least` bytes above it; 0 when there is none."""


@dataclass(frozen=True, slots=True)
class PubendState:
    """A pubend, as a policy sees it. `delivered` is the limit of what any policy is granted.

    It has no counts of events, which nobody keeps, and no topics: a pubend names the policy for its topics, and what
    else it should know are options. `lost <= released` need not be so, for what was given up early is lost, too.
    """

    pubend: PubendId
    time: Tick
    """The present that events grow old by: `gapless.core.stream.ticks.wall_at` tells the wall time, a difference of
    ticks an age. It does not follow a wall clock that leaps, so an event may be stamped later than that."""
    lost: Tick
    """Everything up to here is given up already."""
    newest: Tick
    """The newest event, or 0."""
    released: Tick
    """Everybody is done with everything up to here, holds included: that goes without any policy."""
    delivered: Tick
    """Every SHB that counts has noted up to here which events are for whom: no policy goes beyond."""
    log: LogBytes


class ReleasePolicy(Protocol):
    """Decides what is given up although somebody may still need it (`gapless_testing.release` is its suite)."""

    def release(self, state: PubendState) -> Tick:
        """Up to which tick the log may go now; 0, or less: only what everybody is done with. Must not raise."""
