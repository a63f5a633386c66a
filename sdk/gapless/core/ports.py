"""The pure seams in one place: what a core asks for, what a role is, and who decides about clients and releases.

Durability is a conversation (as etcd/raft's `Ready`):

1. A core asks for a `Write` and names it with a cookie.
2. The node applies all writes of a turn as one atomic batch, in the order in which they were asked for, and syncs it
   off the loop.
3. Only then it calls `on_durable(cookie)`. What must not leave before the write is durable, the core sends now.

A `Read` is answered by `on_read` in a later step, and sees every write that was asked for before it.

A log is a conversation, too. A pubend's host asks for an `Append`; the log answers with `Appended`, under which indices
the records are durable. This answer comes before `on_durable` of the write around it. A log of the node's own volume
takes the proposed indices. A log that numbers its records itself, and that others append to as well, answers with its
own. `LogCapabilities` shows the kind, so that a host that needs the one is never given the other.

A numbered log (a partition of a Kafka topic) is no part of the node's volume. A log plugin does its I/O. The host asks
with `OpenLogs`, and from then on it learns what there is from the plugin's answers:

1. `LogsFound` describes the logs. It comes before every record that lies behind a change of what it describes.
2. `Follow` asks for all that is in a log from some tick on. `Grown` brings it, piece by piece, without a hole.
3. `ReadLog`, `Locate`, `Trim` and an `Append` of its own (no operation of a `Write`) ask for one thing each.
4. `LogTrouble` explains why a log stands still. `LogEnded` is final: this log is gone, and will never come back. That
   may be a log that only a former life of the host has found (`OpenLogs.known`).

The ticks of such a log are its own. What they are made of, and how its records become events, only its `LogFormat` and
its plugin know.

A role is a factory of one pure core that the node hosts (PHB, SHB, or a third party's). The node keeps one table from
message types to handlers. What a router sends to cores (`Know`, `Seen`, …), and what clients ask (`Subscribe`,
`ListPubends`, …), goes to the role that declares it. Several roles may declare messages about a pubend (`AskPubend`,
`Submit`, …): these go to the role that hosts the pubend, which it announced with `Opened`.

A release policy decides how far a pubend may forget events that some subscription still needs (protocol: release).
It is asked when the release timer of a pubend expires, never per event. It is pure: its answer follows from the
`PubendState` that it is given and from its options, so one policy may serve many pubends. Its answer is a wish. The PHB
core grants only what is delivered to every SHB that counts (`t ≤ T_d`), and nothing while the wall clock cannot be
believed. A subscription that still needed these events meets a gap.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Literal, Protocol, TypeAlias

from msgspec import Struct

from gapless.core.gauges import Gauge
from gapless.core.network.facts import BrokerId, OrderedGroup
from gapless.core.principal_limits import NO_LIMITS, PrincipalLimits
from gapless.core.principals import Judgement, PeerInfo, Principal
from gapless.core.resources import Resource
from gapless.core.stream.columns import EventBatch, EventColumns
from gapless.core.stream.ticks import PubendId, Tick
from gapless.core.wire.messages import ServerMessage
from gapless.selectors.parser import SelectorLimits

# ------------------------------------------------------------------------------ what a core asks for


class Append(Struct, frozen=True, gc=False):
    """Append these records to a log, all of them or none, in this order.

    The answer is `Appended`, `Refused` or `Uncertain`. As an operation of a `Write` it is applied, and becomes durable,
    with the rest of the write; its answer comes before the write's.
    """

    log: str
    cookie: Hashable
    records: Sequence[bytes]
    indices: Sequence[int] | None
    """The index proposed for each record, rising; None: the log numbers the records itself."""


class Put(Struct, frozen=True, gc=False):
    """Put `record` into a stream under `index`. It is for a role's own notes: no log numbers or answers them."""

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
    """Apply these operations atomically; if there is a cookie, `on_durable(cookie)` answers.

    A write that fails gets no answer: the node ends, and recovers every role of the process.
    """

    operations: Sequence[Operation]
    cookie: Hashable = None


class Read(Struct, frozen=True, gc=False):
    """Read the records of a stream that overlap (after, upto]; `on_read(ReadResult)` answers."""

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
    """Why the read failed; then nothing is known about the range. "" if it did not."""
    damaged_upto: int = 0
    """After this index there is a readable record, or no record at all; 0 if that is not known."""


class Tell(Struct, frozen=True, gc=False):
    """Send a message to a client's session; ignored if the session is over."""

    session: int
    message: ServerMessage


class Transmit(Struct, frozen=True, gc=False):
    """Send encoded data payloads to a client's session: pairs of a head, and a part that sessions share."""

    session: int
    payloads: Sequence[tuple[bytes, bytes]] = ()


class AskRoom(Struct, frozen=True, gc=False):
    """Report when the link of a session has room: when at most `upto` bytes wait there, of all that was sent before.

    The answer is `LinkHasRoom`, or `SessionEnded`.
    """

    session: int
    upto: int


class EndSession(Struct, frozen=True, gc=False):
    """Close a client's session, with a reason for people."""

    session: int
    reason: str


# ----------------------------------------------------------------------------------- what a log answers


@dataclass(frozen=True, slots=True)
class LogCapabilities:
    """The kind of a log, which decides what may be built on it."""

    numbers: Literal["own", "log"]
    """Who numbers the records: the host, whose proposed indices are taken as they are, or the log."""
    alone: bool
    """Whether only its host appends to it."""
    atomic: bool
    """Whether an `Append` may share a `Write` with tables: both become durable, or neither."""
    timed: bool
    """Whether indices may be ticks that are times (`MILLISECOND` of them make a millisecond)."""
    trims: bool
    """Whether its host decides what is removed from its beginning."""
    record_max: int | None
    """The largest record that it takes, in bytes; None if it has no limit of its own."""
    durable: bool = True
    """Whether a logged record survives the end of the process that keeps it, and a loss of power: receipts say it."""


VOLUME_LOG: Final = LogCapabilities("own", alone=True, atomic=True, timed=True, trims=True, record_max=None)
"""The capabilities of every log of a node's own volume."""


@dataclass(frozen=True, slots=True)
class LogFacts:
    """What a log contains when its host starts."""

    log: str
    first: int
    """The chop point: records with an index at or below it are gone."""
    decided: int
    """The highest index that the log ever took, or 0."""
    capabilities: LogCapabilities


class Appended(Struct, frozen=True, gc=False):
    """The records of an `Append` are durable under these indices. Answers come in the order of the questions.

    Where a record has several events, its index is the tick of the last one.
    """

    cookie: Hashable
    indices: Sequence[int]


class Refused(Struct, frozen=True, gc=False):
    """Nothing of an `Append` was logged, nor ever will be. A log of the volume never answers this: its write fails."""

    cookie: Hashable
    why: str


class Uncertain(Struct, frozen=True, gc=False):
    """It is not known whether the records of an `Append` were logged; they may still turn up.

    A log of the volume never answers this: its write fails, and the host is recovered from what is really there.
    """

    cookie: Hashable
    why: str


# ------------------------------------------------------------------------------------ numbered logs


@dataclass(frozen=True, slots=True)
class LogPiece:
    """A part of a numbered log that was read whole: it covers the ticks (first - 1, last]."""

    first: Tick
    last: Tick
    raw: bytes | None
    """Its bytes, for the `LogFormat`; None: there is no event in it (a marker, or records that were aborted)."""


@dataclass(frozen=True, slots=True)
class LogMark:
    """How a batch that was published through gapless is marked in a numbered log.

    `after`: everything up to here had been read when the batch was handed over. So if a duplicate of it is in the log,
    and was not met before that, it lies above `after` (protocol: numbered-logs).
    """

    publisher: str
    epoch: int
    first: int
    """The publisher's sequence of the first event."""
    count: int
    crc: int
    """Of the content, as `gapless_phb.core.records.checksum` computes it."""
    after: Tick
    tokens: bytes
    """The tokens that are stored with it (`gapless.core.wire.tokens.join_tokens`), or b""."""
    keyed: bool
    """Whether its producer numbers its events itself: then `epoch` and `first` are the key of the first one."""
    tag: int
    """Of network and log (`gapless_phb.core.records.tag_of`). A batch that was copied here from another log has the tag
    of that one, and counts as a stranger's."""
    begins: bool
    """Whether it is not known yet that a batch of this epoch is in the log.

    Then an earlier epoch may have logged the same sequences just before it. Otherwise whatever is there of an earlier
    epoch, and was not met, is fenced."""


class LogFormat(Protocol):
    """How the records of a numbered log become events, and batches its records. It is pure, and comes with the plugin.

    `rules` are the plugin's own: how a record's parts become topic, properties and body. The host stores them with the
    tick from which they hold, for a record that was once delivered as an event must always be the same event.
    """

    def decode(self, piece: LogPiece, rules: bytes) -> tuple[EventBatch, Sequence[tuple[Tick, LogMark]]]:
        """Returns the events of a piece, and the marks of gapless batches in it, each with its first event's tick.

        The events of a batch stand at neighbouring ticks: none lies between them. When a record was logged is in the
        extras of its event (`gapless.core.stream.events.Extras.timestamp`). A batch that begins below the piece and
        reaches into it has its mark returned, too: whether the rest of it is a duplicate depends on that.

        Raises VolumeCorruptError if the bytes are not what such a log contains.
        """

    def encode(self, mark: LogMark, events: EventColumns) -> bytes:
        """Returns a batch in the form in which `Append` takes it as one record.

        Raises ValueError if such a log cannot contain one of the events.
        """


@dataclass(frozen=True, slots=True)
class NumberedLog:
    """What a log plugin knows of one log; sent when the log is opened, and whenever something of it has changed."""

    log: str
    """Its identity, which is the id of its pubend: `topic.partition@id`. A log made anew has another one."""
    family: str
    """Logs of one family belong together, as the partitions of a topic do. They may become more.

    It shows where they are, too: a plugin that is configured for another place says nothing of them."""
    topic: str
    """The topic of its events."""
    first: Tick
    """Everything at or below it was removed by retention."""
    decided: Tick
    """How far it is decided which records are in the log, as far as is known."""
    voids: Sequence[tuple[Tick, Tick]]
    """Intervals (lo, hi], rising, at whose ticks no record is or ever will be; what was there once is lost."""
    capabilities: LogCapabilities
    format: LogFormat
    rules: bytes
    """The rules of today's configuration."""
    refuses: str
    """Why nothing can be published to it through this node; "" if it can."""
    warnings: Sequence[str]
    """What an operator should know: how its log is less safe than a durable receipt promises."""
    place: Callable[[Tick], str] = "tick {}".format
    """Says to people where in the log a tick is."""


class LogStart(Enum):
    """A place in a numbered log that has a name."""

    EARLIEST = "behind everything that retention removed"
    DECIDED = "the end of what is decided"
    LATEST = "the end of all that is in the log, decided or not"


class OpenLogs(Struct, frozen=True, gc=False):
    """Open the logs that these options describe, with the log plugin of this name. Answers come until the node ends."""

    plugin: str
    options: Mapping[str, Any]
    topics: tuple[str, ...]
    """The topics of all their events, found or not: no other log of the host takes such an event."""
    known: Mapping[str, str]
    """The logs that the host had found in former lives, each with its family.

    Those that are gone meanwhile for good are named by `LogEnded`; the others by `LogsFound` as soon as they are found.
    """


class Follow(Struct, frozen=True, gc=False):
    """Send what is in a log above `after`, as it is decided; at most `window` bytes that are not taken yet.

    It replaces the `Follow` before, and has a window of its own. A piece comes whole, so the last one may go beyond.
    The answers are `Grown`.
    """

    log: str
    after: Tick
    window: int


class Taken(Struct, frozen=True, gc=False):
    """So many bytes of what `Follow` brought are done with; as many more may come."""

    log: str
    size: int


class ReadLog(Struct, frozen=True, gc=False):
    """Read the pieces of a numbered log that overlap (after, upto]; `LogRead` answers.

    The first piece comes whole, and no further one once `max_bytes` are reached.
    """

    log: str
    after: Tick
    upto: Tick
    cookie: Hashable
    max_bytes: int = 1 << 20


class Locate(Struct, frozen=True, gc=False):
    """Find a place in a log: one with a name, or, for a wall time in milliseconds, that before its first later record.

    `Located` answers.
    """

    log: str
    at: LogStart | int
    cookie: Hashable


class Trim(Struct, frozen=True, gc=False):
    """Remove every record of a log up to a tick. Nothing answers; `first` will show what came of it."""

    log: str
    upto: Tick


class LogsFound(Struct, frozen=True, gc=False):
    """These logs there are, or something of them has changed. All logs of a family that are new come in one message."""

    logs: Sequence[NumberedLog]


class Grown(Struct, frozen=True, gc=False):
    """Here is what the log contains in (lo, hi]; `lo` is where the `Grown` before ended, or the `Follow` began.

    What no piece covers, and lies above `first`, is a void. If it is none, records are missing, and nothing is known
    of them.
    """

    log: str
    lo: Tick
    hi: Tick
    pieces: Sequence[LogPiece]
    first: Tick
    size: int
    """Bytes of the window that it takes, until `Taken` gives them back."""


class LogRead(Struct, frozen=True, gc=False):
    """The answer to a `ReadLog`: what the log contains in (lo, hi], which may be less than was asked for.

    `first` was found out with the read or after it (T43).
    """

    cookie: Hashable
    lo: Tick
    hi: Tick
    pieces: Sequence[LogPiece]
    first: Tick
    error: str
    """Why nothing could be read; "" if it could."""


class Located(Struct, frozen=True, gc=False):
    """The answer to a `Locate`: everything up to `tick` lies before the place. After an error the plugin asks again."""

    cookie: Hashable
    tick: Tick


class LogTrouble(Struct, frozen=True, gc=False):
    """A log stands still, or something is wrong with it: why; "" when that is over."""

    log: str
    """Its identity; or the topic of its events, as long as no log is found for that."""
    why: str


class LogEnded(Struct, frozen=True, gc=False):
    """The log of this identity is gone for good (deleted, or made anew under another identity). Never on a guess."""

    log: str
    why: str


LogQuestion: TypeAlias = OpenLogs | Follow | Taken | ReadLog | Locate | Trim | Append
"""What a host sends to a log plugin."""
LogAnswer: TypeAlias = LogsFound | Grown | LogRead | Located | Appended | Refused | Uncertain | LogTrouble | LogEnded
"""What a log plugin sends to a host."""


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
    principal: Principal

    @property
    def app_id(self) -> str:
        """The JMSXAppID of what the client publishes if it identifies itself."""
        return self.client_id or self.instance


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """A client's session is over. Every role that declares this message gets it."""

    session: ClientSession


@dataclass(frozen=True, slots=True)
class RulesReplaced:
    """Another authorizer decides who may do what, from now on. Every role that declares this message gets it.

    A role judges by it what it has allowed before and still goes on, a bounded part in each turn, and then answers with
    `RulesHold`. If yet another one follows before that, it begins anew.
    """

    version: int
    """Counts the authorizers of the process."""


class RulesHold(Struct, frozen=True, gc=False):
    """Nothing goes on at this role that the authorizer of that version forbids: the answer to `RulesReplaced`."""

    version: int


@dataclass(frozen=True, slots=True)
class LinkHasRoom:
    """What waited on the link of a client's session has left, as far as a role has asked for with `AskRoom`.

    Every role that declares this message gets it.
    """

    session: ClientSession
    left: int
    """How many bytes wait on the link still."""


class RecoveryReader(Protocol):
    """Reads the volume while a role is made; it sees everything that the volume holds. It cannot write."""

    def scan(self, table: str, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yields all pairs of a table whose key starts with `prefix`, in key order."""

    def records(self, stream: str, after: int = 0) -> Iterator[tuple[int, bytes]]:
        """Yields all records of a stream with an index > after, in order.

        Raises RecordsDamagedError at a record that cannot be read; the caller may go on behind it.
        """

    def given_up(self, stream: str) -> Sequence[tuple[int, int]]:
        """Returns the ranges (after, upto] of a stream that an operator has given up."""

    def facts(self, log: str) -> LogFacts:
        """Returns where a log, or another stream of the volume, begins and ends, and what it can do."""

    def size(self, stream: str) -> int:
        """Returns about how many bytes a stream's records take."""


@dataclass(frozen=True, slots=True)
class Roaming:
    """What the SHBs of a network have in common, so that a subscription of one can be consumed at another one."""

    shbs: tuple[BrokerId, ...]
    """All nodes of the network that host an SHB."""
    secret: bytes
    """The secret of the network, which seals tokens; b"": it has none, and subscriptions stay at their homes."""

    def __repr__(self) -> str:
        return f"Roaming({self.shbs!r})"  # never the secret


DELIVERY_HEAD_BYTES: Final = 512
"""More than stands before the events in the frame of a delivery."""


@dataclass(frozen=True, slots=True)
class RoleContext:
    """Everything from which a role is made."""

    role: str
    """The name under which the node hosts the role; no other role of the node has it."""
    broker: BrokerId
    network: str
    storage_id: str
    """The id of this volume: another volume under the same node name has another id."""
    reader: RecoveryReader
    now: int
    wall: int
    secret: bytes
    """A secret of this volume. It seals tokens where no network has a secret for that."""
    authorizer: Authorizer
    """Decides who may do what. A role asks it about resources that only the role knows."""
    max_event_bytes: int = 1 << 20
    """The largest event that clients may publish; they are informed of it ([limits] of the configuration)."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """The role's own section of the configuration, unchecked."""
    roles: frozenset[str] = frozenset()
    """All roles of the node, including this one."""
    groups: tuple[OrderedGroup, ...] = ()
    """The groups of pubends in total order: the same at every node of the network."""
    roaming: Roaming | None = None
    """None: the node is in no network."""
    selector_limits: SelectorLimits = field(default_factory=SelectorLimits)
    """How large a selector clients may subscribe with ([limits] of the configuration)."""
    max_frame_bytes: int = 4 << 20
    """The largest frame that clients take ([limits] of the configuration)."""
    boot: str = ""
    """In which run of the machine `now` counts: `now` of another process of the same run is of the same clock, so the
    time between is certain. "" if that is unknown."""
    audited: bool = False
    """Whether the node writes an audit: then a role tells what it makes and removes (`AuditLine`)."""
    limits: PrincipalLimits = NO_LIMITS
    """What each principal may have at this node."""
    traces: float = 0.0
    """Of which share of all batches a role tells what the node makes spans of (`gapless.core.traces`)."""

    @property
    def max_delivery_bytes(self) -> int:
        """The largest payload of events that fits into a frame, behind what stands before it."""
        return self.max_frame_bytes - DELIVERY_HEAD_BYTES


class Role(Protocol):
    """One pure core.

    The node calls `start` once, then a method for each event, and takes the effects at the turn's end.

    Effects and deadline change only through calls. So the node need not ask a role that was not called.
    """

    name: str

    def handlers(self) -> Mapping[type, Handler]:
        """Returns a handler for each message it takes: routing effects, SessionEnded, Posted, and Appended."""

    def requests(self) -> Mapping[type, RequestHandler]:
        """Returns a handler for each client message that this role answers."""

    def start(self, now: int, wall: int) -> None:
        """All roles are made, and the router has started: announce what there is."""

    def on_durable(self, cookie: Hashable, now: int, wall: int) -> None:
        """The write with this cookie is durable."""

    def on_read(self, result: ReadResult, now: int, wall: int) -> None:
        """A read is answered."""

    def on_space(self, now: int, wall: int, *, low: bool) -> None:
        """The disk is nearly full (`low`), or no longer."""

    def deadline(self) -> int | None:
        """When `on_deadline` has to be called (monotonic nanoseconds), or None."""

    def on_deadline(self, now: int, wall: int) -> None:
        """The deadline has come."""

    def take_effects(self, now: int, wall: int) -> Sequence[object]:
        """Returns what to do, in order; empty until the next call. The node asks once per turn, then for `deadline`."""

    def gauges(self) -> Iterable[Gauge]:
        """Returns the figures of this role, computed now."""


# ------------------------------------------------------------------------------------ authentication


class Authentication(Protocol):
    """A client proves who it is, on one link, in as many messages as that takes (SCRAM: three). Never blocks."""

    def answer(self, credentials: bytes) -> Judgement:
        """Judges what the client has sent: with its Hello first, then in answer to each challenge."""


class Authenticator(Protocol):
    """Decides who clients are."""

    mechanism: str
    """What the Hello of a client names that wants to be asked by this one; "": it needs nothing of the client."""
    trusted: bool
    """Whether it really checks something, so that a listener beyond loopback may rely on it."""
    needs_certificate: bool
    """Whether it is of no use at a listener that does not ask clients for certificates."""

    def begin(self, client_id: str, peer: PeerInfo) -> Authentication | None:
        """A client that calls itself so has connected. Never blocks.

        Returns None if that is nobody whom this one could know: then the next one with the same mechanism is asked.
        """


@dataclass(frozen=True, slots=True)
class AuthContext:
    """What an authenticator may use beside its options."""

    rows: Mapping[str, bytes]
    """The rows of the users of this node's volume, by their names, as they are now (`gapless.security.users`)."""
    secret: bytes
    """A secret of the network, where it has one, or else of the volume: the same in every process of this node."""
    wall: Callable[[], int]
    """Milliseconds since 1970."""
    now: Callable[[], int]
    """Monotonic nanoseconds."""
    end: Callable[[str, str], None]
    """Ends the sessions of the principal with this name, who is told why: its credentials count no more. It may be
    called while a client is judged, and from `gapless.spi.TellsTroubles.troubles`."""


# ------------------------------------------------------------------------------------ authorization


class Action(str, Enum):
    """An action that needs permission. The comment of each member names the resource."""

    PUBLISH = "publish"
    """The resource is a topic; or a `Publisher`, which whoever opens takes over. One without a name needs its topics
    alone: it takes nothing from anybody."""
    SUBSCRIBE = "subscribe"
    """The resource is a pattern of topics: allowed is only what may match nothing that is not allowed. Or it is
    `AnyTopic`, of whoever wants to know how far a log goes."""
    CONSUME = "consume"
    """The resource is a durable subscription. A client id is whatever a client says: so this alone keeps others off."""
    MANAGE = "manage"
    """The resource is the durable subscription of another client, "users", or "shb" and the name of an SHB."""
    OBSERVE = "observe"
    """The resource is a listing ("subscriptions", "pubends", "status"); or what stands in one: a durable subscription,
    or, of a pubend, "topic" and one of its patterns."""


class Authorizer(Protocol):
    """Decides who may do what. It is pure and quick: asked once per request, and once per batch for each topic.

    The same question always has the same answer, so that nobody has to ask twice: other rules are another authorizer
    (`gapless.spi.HasSuccessor`). Of any text, also of one that is no topic, it says something, and raises nothing.
    `gapless_testing.acl` is the suite that proves one.
    """

    asks: bool
    """Whether it has to be asked at all; False if everybody may do everything."""

    def refusal(self, principal: Principal, action: Action, resource: Resource) -> str:
        """Returns why the action is refused, for the principal; "" if it is allowed."""


# ------------------------------------------------------------------------------- release policies


class LogBytes(Protocol):
    """Estimates where the bytes of a log lie; errors are always on the safe side."""

    @property
    def size(self) -> int:
        """About how many bytes are in the log."""

    def above(self, tick: Tick) -> int:
        """Returns about how many bytes lie above `tick`, rounded up."""

    def covered(self, least: int) -> Tick:
        """Returns the highest tick known to have more than `least` bytes above it; 0 if there is none."""


@dataclass(frozen=True, slots=True)
class PubendState:
    """A pubend, as a policy sees it. `delivered` is the limit of what any policy is granted.

    It has no counts of events, which nobody keeps, and no topics: a pubend names the policy for its topics, and what
    else it should know are options. `lost <= released` need not be so, for what was given up early is lost, too.
    """

    pubend: PubendId
    time: Tick
    """The present by which events grow old.

    `gapless.core.stream.ticks.wall_at` returns its wall time; a difference of ticks
    is an age. It does not follow a wall clock that leaps, so an event may be stamped later than this."""
    lost: Tick
    """Everything up to here is given up already."""
    newest: Tick
    """The newest event, or 0."""
    released: Tick
    """Every subscription is done with everything up to here, holds included: that goes without any policy."""
    delivered: Tick
    """Every SHB that counts has noted up to here which events are for whom. No policy goes beyond it."""
    log: LogBytes


class ReleasePolicy(Protocol):
    """Decides which events are given up although a subscription may still need them.

    `gapless_testing.release` is the suite that proves a policy.
    """

    def release(self, state: PubendState) -> Tick:
        """Returns up to which tick the log may go now; 0, or less: only what nobody needs. Must not raise."""
