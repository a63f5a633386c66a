"""The seams: what gapless needs of storage, log, transport and authentication plugins.

A plugin is loaded by kind and name (`gapless.plugins`); its hook is a factory that is called once, at
start-up. What the factory returns is called directly. The routing seam is `gapless.core.network.seam`;
those of roles and of release policies are in `gapless.core.ports`: they are made of pure cores. Authenticators and
authorizers are defined there, too; their plugins import them from here.

A storage has plain blocking calls and no coroutine: the node alone decides what runs in which thread,
and the simulator runs the same calls as a conversation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from gapless.core.alarms import Alarm
from gapless.core.gauges import Gauge
from gapless.core.ports import Action, AuthContext, Authentication, Authenticator, Authorizer, LogAnswer, LogQuestion
from gapless.core.principals import Admission, Certificate, Judgement, Later, PeerInfo, Principal, Refusal
from gapless.core.resources import AnyTopic, Durable, Publisher, Resource
from gapless.core.stream.intervals import IntervalSet
from gapless.errors import RecordsDamagedError

if TYPE_CHECKING:
    from socket import socket
    from ssl import SSLContext

__all__ = [
    "Action",
    "Admission",
    "AnyTopic",
    "AuthContext",
    "Authentication",
    "Authenticator",
    "Authorizer",
    "Certificate",
    "Create",
    "Durable",
    "GivenUp",
    "HasSuccessor",
    "Judgement",
    "Later",
    "LendsSockets",
    "Link",
    "LinkHandler",
    "Listener",
    "LogPlugin",
    "LogStream",
    "LogVolume",
    "Logs",
    "PeerInfo",
    "Principal",
    "Publisher",
    "Refusal",
    "Resource",
    "StorageCapabilities",
    "Table",
    "TellsFigures",
    "TellsTroubles",
    "Transport",
    "VolumeIdentity",
]

# ------------------------------------------------------------------------------------------ storage


@dataclass(frozen=True, slots=True)
class VolumeIdentity:
    """Who a volume belongs to: written when the volume is created, checked at every later opening.

    `network` and `node` may be empty when opening: then whoever the volume belongs to is accepted.
    """

    network: str
    node: str


class Create(Enum):
    """Whether an opening may make a volume where there is none.

    An absent volume is not a new one: its disk may not be mounted, and what was receipted is on it.
    """

    NO = "no"
    WHERE_NOTHING_IS = "where nothing is, not even an empty directory: a mount that failed leaves that"
    YES = "yes"


@dataclass(frozen=True, slots=True)
class StorageCapabilities:
    """What a storage promises beyond the interface; conformance tests and the node read it."""

    durable: bool
    """What was synced survives the end of the process and of power. False: in memory."""
    atomic: bool = True
    """Streams and tables written in one `write()` become durable together or not at all."""


@runtime_checkable
class LogStream(Protocol):
    """A log of records, each under an index that the caller chooses and that strictly increases.

    `put` and `chop` are staged: they take effect, for readers too, with the volume's next `write()`.
    """

    name: str

    @property
    def first(self) -> int:
        """The chop point: every record with an index <= it is gone. 0 when nothing was chopped."""

    @property
    def last(self) -> int:
        """The highest index ever put, chopped or not; 0 when there is none."""

    @property
    def size(self) -> int:
        """About how many bytes the records above the chop point take."""

    def put(self, index: int, record: bytes) -> None:
        """Stages `record` under `index`, 0 < index < 2**63. Raises ValueError if index <= last."""

    @property
    def given_up(self) -> Sequence[tuple[int, int]]:
        """The ranges (after, upto] above the chop point that an operator has given up, in order."""

    def read(self, after: int, upto: int, max_bytes: int = 1 << 20) -> Sequence[tuple[int, bytes]]:
        """The records with index > after, in order, up to and including the first with index >= upto.

        So what is returned *overlaps* (after, upto] when a record covers the ticks up to its index.
        Ends early once `max_bytes` are reached, but never before the first record; and before a record that
        cannot be read, or was given up. When that is the first one, it raises RecordsDamagedError, which says
        behind which index there is one that can be read. A record is never left out.
        """

    def chop(self, upto: int) -> None:
        """Stages the removal of every record with index <= upto. Going back is ignored."""

    def give_up(self, after: int, upto: int) -> None:
        """Stages that an operator gives up the records in (after, upto], which cannot be read: they are lost.

        From then on nobody tries to read them, and a range that overlaps one given up before becomes one with it.
        """


class GivenUp:
    """The ranges (after, upto] of one stream that an operator has given up, in order, none touching: for storages.

    A range that was given up is a hole with an end on either side. It must never look like a range in which
    nothing was put: whoever reads is told where it is, once its own turn comes.
    """

    def __init__(self, name: str, ranges: Iterable[tuple[int, int]] = ()) -> None:
        """`name`: of the stream, for errors."""
        self._name = name
        self._ranges = IntervalSet(ranges)

    def above(self, first: int) -> Sequence[tuple[int, int]]:
        """Those of which anything is above the chop point."""
        return tuple((max(after, first), upto) for after, upto in self._ranges.ranges if upto > first)

    def add(self, after: int, upto: int) -> None:
        """One more."""
        self._ranges.add(after, upto)

    def read(
        self, after: int, upto: int, read: Callable[[int, int], Sequence[tuple[int, bytes]]]
    ) -> Sequence[tuple[int, bytes]]:
        """What `read` finds in (after, upto] before the next range; raises RecordsDamagedError if that is nothing.

        `read` is as `LogStream.read`, so it may find a record behind that range, and does not count then.
        """
        for low, high in self._ranges.ranges:
            if high <= after:
                continue
            before = read(after, min(upto, low)) if after < low else ()
            if found := [entry for entry in before if entry[0] <= low]:
                return found
            text = f"{self._name}: the records between {low} and {high} were given up: they could not be read"
            raise RecordsDamagedError(text, low, high, given_up=True)
        return read(after, upto)


@runtime_checkable
class Table(Protocol):
    """A small sorted map from bytes to bytes. `put` and `delete` are staged like a stream's."""

    name: str

    def get(self, key: bytes) -> bytes | None:
        """The value written under `key`, or None."""

    def put(self, key: bytes, value: bytes) -> None:
        """Stages `value` under `key`."""

    def delete(self, key: bytes) -> None:
        """Stages the removal of `key`; absent keys are no error."""

    def scan(self, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """All written pairs whose key starts with `prefix`, in key order, as of the call."""


@runtime_checkable
class LogVolume(Protocol):
    """Streams and tables under one identity, one atomic write and one sync.

    `stream` and `table` return the same object for the same name, and create it when it is new.
    Threads: everything is called from one thread, except `sync`, `tend` and `reclaim`, which may run in another
    thread at the same time as anything else, and `sync` also at the same time as another `sync`.
    """

    identity: VolumeIdentity
    capabilities: StorageCapabilities
    created: bool
    """Whether this opening created the volume."""

    def stream(self, name: str) -> LogStream:
        """The stream of that name."""

    def table(self, name: str) -> Table:
        """The table of that name."""

    def stream_names(self) -> Sequence[str]:
        """All streams that there are, in the order of their names."""

    def table_names(self) -> Sequence[str]:
        """All tables that there are, in the order of their names."""

    def write(self) -> None:
        """Applies all that is staged as one atomic batch: visible to readers, not yet durable. Short.

        Raises VolumeFailedError (sticky: every later write and sync raises too) and VolumeFullError.
        """

    def sync(self) -> None:
        """Blocks until everything written before the call is on disk, and a later opening will prove it.

        Raises VolumeFailedError (sticky), and VolumeAbsentError as `tend` does: what nobody will find again is
        not on disk.
        """

    def tend(self) -> None:
        """Looks after the volume: called about once a second, also when nothing is written. May block for a while.

        Raises VolumeAbsentError (sticky) when the volume was removed, replaced or unmounted since it was opened.
        """

    def reclaim(self) -> int:
        """Gives the space of chopped records back to the disk; returns about how many bytes. Blocking."""

    @property
    def reclaimable(self) -> int:
        """About how many bytes `reclaim` would give back."""

    @property
    def free_bytes(self) -> int | None:
        """Bytes left on the disk, or None where that means nothing. What the volume keeps aside is not left."""

    @property
    def damage(self) -> str:
        """What of it was found to be unreadable, and is still on the disk; "" when nothing was."""

    def excise(self) -> str:
        """Removes from the disk what cannot be read, all of which was given up; then the volume is closed.

        For `gapless repair`, while nobody else uses the volume. Blocking. A crash at any moment leaves a volume
        that opens, and on which it can be done again. Returns, for people, what it left behind, or "".
        Raises VolumeCorruptError, and changes nothing, when something cannot be read that was not given up.
        """

    def close(self) -> None:
        """Syncs if it can, and lets go of the volume. Idempotent; never raises after a failure."""


# ------------------------------------------------------------------------------------ numbered logs


class Logs(Protocol):
    """The numbered logs that one `OpenLogs` has opened, until they are closed.

    All calls are made on the event loop's thread, and none blocks. Whatever goes wrong behind it, the plugin tries
    again, and says so with `LogTrouble`: nothing but `close` ends it.
    """

    def ask(self, question: LogQuestion) -> None:
        """Takes a question about a log that `LogsFound` has named; `gapless.core.ports` says what is the answer.

        Questions about one log are taken in their order. The answer comes after this call has returned.
        """

    async def close(self) -> None:
        """Ends all tasks and connections. No answer comes any more. Raises nothing, and takes a few seconds at most."""


@runtime_checkable
class TellsFigures(Protocol):
    """What `Logs` may have beside: figures of their own."""

    def gauges(self) -> Iterable[Gauge]:
        """Returns them, each of a `gapless.core.gauges.Family`. It takes no time, and raises nothing."""


class LogPlugin(Protocol):
    """Opens numbered logs. The plugin's factory has checked its options, without any connection."""

    @property
    def topics(self) -> Sequence[str]:
        """The topics that the events of its logs will have."""

    def open(self, known: Mapping[str, str], answer: Callable[[LogAnswer], None]) -> Logs:
        """Begins to look for the logs, and returns at once, before the first answer.

        `known`: those that the host had found before, each with its family (`gapless.core.ports.OpenLogs`).
        `answer` takes each answer, on the event loop's thread, in the order in which the plugin gives them.
        """


# ---------------------------------------------------------------------------------------- transport


class Link(Protocol):
    """One end of a connection that carries whole frames, in order, until it is closed.

    All calls are made on the event loop's thread and none blocks. No call of a link calls its handler
    back before it returns. What it says of the other end is known before it asks for its handler, and does not change.

    What a link hands over was sent on this very connection. Where that cannot be had for ever (a message
    queue, a proxy that dials anew), the handshake at least must be this connection's: behind it, each frame
    says to which session it belongs, and one of an earlier session is ignored.
    """

    @property
    def peer(self) -> str:
        """The other end's address, for logs and messages."""

    @property
    def certificate(self) -> Certificate:
        """What the certificate says that the other end has shown and that was verified; an empty one without that."""

    @property
    def shown(self) -> bytes:
        """The certificate that the listener has shown on this link, as DER, the same at both ends; b"" without one.

        Both ends can bind to it what they prove to each other: who is between them has shown another one.
        """

    @property
    def secure(self) -> bool:
        """Whether the link is encrypted, or never leaves this process."""

    @property
    def pending(self) -> int:
        """Bytes accepted by `send` that have not left this process (with encryption: about as many)."""

    def send(self, payloads: Sequence[bytes | tuple[bytes, bytes]], *, urgent: bool = False) -> None:
        """Sends each payload as a frame. A pair is one payload in two parts; the second can be shared.

        Urgent payloads overtake the ones that have not left this process, and keep their order among
        themselves. After a close it does nothing. Raises LocalProtocolError, and sends nothing, when a
        payload is empty. A link whose `pending` exceeds the transport's hard limit is closed, never
        buffered without end: who sends much watches `pending` and `on_drained`.
        """

    def raise_limit(self, limit: int) -> None:
        """From now on accept frames of up to `limit` bytes (the first limit is the pre-authentication one).

        Called from `on_frames` it holds for the frame right behind the ones being handled. A frame above
        the limit, and any other breach of the framing, closes the link after the frames before it were
        handed over.
        """

    def pause(self) -> None:
        """Stop reading: no `on_frames` until `resume`; flow control slows the other end down."""

    def resume(self) -> None:
        """Read again."""

    def close(self, reason: str = "") -> None:
        """Sends what is pending, for a bounded time, then closes. Closing again does nothing.

        Nothing more is handed to `on_frames`. `LinkHandler.on_closed` is still called, once, with `reason`;
        the other end is told "" or why the connection broke, never this reason.
        """


class LinkHandler(Protocol):
    """What a link tells its owner; every call comes on the event loop's thread, one at a time.

    An exception in one of these is logged and closes this link; nothing else suffers.
    """

    def on_frames(self, payloads: Sequence[bytes]) -> None:
        """Frames arrived; each is one payload, checksum verified."""

    def on_broken(self, reason: str) -> None:
        """What came breaks the framing, or is more than is taken: nothing more is handed over. Say so, and close.

        A link whose handler does not close it is closed within the time that a close may take.
        """

    def on_drained(self) -> None:
        """`Link.pending` fell to the low-water mark after it had been above the high-water mark."""

    def on_closed(self, reason: str) -> None:
        """The link is over: no other call follows. `reason` is for people ("": the other end just closed).

        A connection that was lost is not "" where the transport can tell it from a goodbye.
        """


class Listener(Protocol):
    """An open port."""

    @property
    def address(self) -> str:
        """The address really bound, as a client would dial it (port 0 replaced by the real one)."""

    async def close(self) -> None:
        """Accepts no more; links that exist go on."""


class Transport(Protocol):
    """Makes links.

    The plugin's factory has checked its options: those of a listener are the further keys of its `[[listen]]`; a
    client's transport has none, but for the certificates of `gapless+tls://`.
    """

    scheme: str
    """The name of the plugin's entry point: `gapless+SCHEME://ADDRESS` dials through this transport."""
    encrypts: bool
    """Whether what `listen` accepts is `Link.secure`; known before anything is bound."""
    asks_certificates: bool
    """Whether whoever dials has to show a certificate that is verified: `Link.certificate` says who it is."""

    def is_loopback(self, address: str) -> bool:
        """Whether only this machine can reach a listener at `address`. In doubt it is not so.

        A listener that others can reach is refused without TLS: so neither `0.0.0.0` nor `::` is loopback, nor a name
        that has to be looked up. Raises ConfigurationError if the address is malformed.
        """

    async def listen(self, address: str, accept: Callable[[Link], LinkHandler]) -> Listener:
        """Binds `address`; `accept` is called for every new link and returns its handler.

        A connection that is no link yet, because its handshake is not done, is given up after a while.
        Raises ConfigurationError if it cannot. If `accept` raises, that is logged and the link is closed.
        """

    async def dial(self, address: str, accept: Callable[[Link], LinkHandler]) -> Link:
        """Connects to `address`; `accept` makes the handler, before `dial` returns.

        Raises OSError if nobody answers, or somebody who speaks something else, if the other end cannot prove who it
        is, or the way there is barred; ConfigurationError if the address is malformed, or a file that the transport's
        options name cannot be used any more; and whatever `accept` raises.
        It waits as long as the network does: cancel it.
        """


@runtime_checkable
class HasSuccessor(Protocol):
    """What an authorizer may have beside, where its rules may change while the node runs."""

    def successor(self) -> Authorizer | None:
        """Returns the authorizer that is to count in place of this one from now on; None: this one still counts.

        The node asks about every second, in a thread of its own, one call at a time, and only the authorizer that
        counts. What was allowed before is judged again by the successor. Raises ConfigurationError as long as there
        are other rules that cannot be used: this one goes on counting, and the operator is told.
        """


@runtime_checkable
class TellsTroubles(Protocol):
    """What a transport, or an authenticator, may have beside: it tells what its operator should do something about."""

    def troubles(self) -> Sequence[Alarm]:
        """Returns what is wrong now, at most one alarm of a code about one thing. Never blocks.

        The node asks every second, on the event loop's thread. What it hears for the first time, or with another text,
        it tells its operator; what it hears no more is over.
        """


@runtime_checkable
class LendsSockets(Protocol):
    """What a transport may have beside: it lends what a server of another protocol stands on, as `[observe]` does."""

    async def bind(self, address: str) -> tuple[Sequence[socket], str]:
        """Returns sockets that are bound and listen, and the address really bound. Raises ConfigurationError."""

    def tls(self) -> SSLContext | None:
        """Returns the context for the next connection, by the files as they are now. None: without TLS. Blocks.

        A client may show a certificate, which is then verified. It need not.
        """

    def certificate_of(self, told: Any) -> Certificate:
        """Returns what a certificate says that was verified: `told` is what `getpeercert` of `ssl` tells of it."""
