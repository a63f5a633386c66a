"""What pubend hosts, routers, subscriber hosts and clients' sessions say: each fact once (protocol: facts).

A fact is the same class wherever it is said: by a core to its router, by a router to a core, and in a frame from
one broker to another (`gapless.core.network.frames`). Those that travel as they are have a tag.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Final, TypeAlias

from msgspec import Meta, Struct

from gapless.core.principals import SentPrincipal
from gapless.core.stream.columns import EventColumns
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.ticks import FOREVER, MILLISECOND, STEP, PubendId, ShbId, Tick
from gapless.core.wire.messages import TickRun
from gapless.selectors.filters import Filter

BrokerId: TypeAlias = str
LinkId: TypeAlias = int
MAIL_BYTES_MAX: Final = 1 << 16
Real: TypeAlias = Annotated[int, Meta(ge=0, le=FOREVER)]
"""A tick, a version or a number that there can be: another one does not parse where a frame brings it."""
Grain: TypeAlias = Annotated[int, Meta(ge=1, le=FOREVER)]
"""A number of ticks that one can divide by."""
RealRanges: TypeAlias = tuple[tuple[Real, Real], ...]
"""`Ranges` that a frame may bring."""


# ------------------------------------------------------------------------------- who there is


class NetworkNode(Struct, frozen=True, gc=False):
    """A node, as the map has it."""

    roles: frozenset[str] = frozenset()
    """What it hosts. With none of them it only stands between others."""
    place: str = ""
    """Where it stands, as its kind of router needs it: a cell, an address, or nothing."""


class NetworkMap(Struct, frozen=True, gc=False):
    """Which nodes there are, what each hosts, and which links they should have: the same for every router."""

    nodes: Mapping[BrokerId, NetworkNode]
    links: tuple[tuple[BrokerId, BrokerId], ...] = ()

    def with_role(self, role: str) -> list[BrokerId]:
        """The nodes that host a role, in an order that is the same everywhere."""
        return sorted(broker for broker, node in self.nodes.items() if role in node.roles)


# --------------------------------------------------------------------------------------- what flows


class Want(Struct, array_like=True, frozen=True, gc=False, tag=2):
    """An SHB needs these ranges. `need` RAW: only unfiltered silence will do."""

    pubend: PubendId
    ranges: RealRanges
    need: Mapping[ShbId, Real] | None
    shb: ShbId
    """Which SHB; "": a broker on the way asks once more for what had come when it had no room for it."""
    again: bool
    """All of it was asked for before with this need, and no answer has come: one that is on its way will do."""


class Interest(Struct, frozen=True, gc=False):
    """What an SHB's subscriptions match: a change from version `base` to `version`, or all of it.

    From one broker to another it travels in parts (`gapless.core.network.frames.InterestPart`).
    """

    shb: ShbId
    base: int
    version: int
    add: Mapping[int, Filter]
    drop: frozenset[int] = frozenset()
    full: bool = False


class Progress(Struct, array_like=True, frozen=True, gc=False):
    """What an SHB is done with. Both are durable there, and released <= delivered."""

    shb: ShbId
    pubend: PubendId
    released: Real
    delivered: Real


class Hold(Struct, array_like=True, frozen=True, gc=False, tag=8):
    """From where an SHB needs a pubend kept although it reported more: the whole row of (SHB, pubend).

    `at` maps the SHB's subscription ids to a tick; 0 asks for the earliest there is.
    """

    shb: ShbId
    pubend: PubendId
    version: Real
    at: Mapping[Real, Real]
    times: Mapping[Real, Real] = {}
    """Of some of these, the wall time in milliseconds since 1970 from which the subscription needs events.

    Only the host of a pubend whose ticks are no times can find the tick for it."""


class Know(Struct, frozen=True, gc=False):
    """Knowledge of a pubend: from its PHB committed facts, RAW; to an SHB, for its istream.

    `reply_to` is that of the AskPubend which the PHB answers, and nothing otherwise.
    """

    knowledge: Knowledge
    reply_to: Hashable = None


class Probe(Struct, array_like=True, frozen=True, gc=False, tag=11):
    """An acknowledgement up to here is expected."""

    pubend: PubendId
    upto: Real


UNNAMED: Final = "~"
"""The first character of the names that an SDK draws at random for publishers without a name."""


def is_unnamed(publisher: str) -> bool:
    """Whether a publisher's name was drawn at random. Only the instance that drew such a name can open it again."""
    return publisher.startswith(UNNAMED)


class PubendMeta(Struct, array_like=True, frozen=True, gc=False):
    """What is known of a pubend."""

    pubend: PubendId
    broker: BrokerId
    topics: tuple[str, ...] = ("#",)
    """Patterns of the topics it may carry."""
    group: str | None = None
    created: Real = 0
    read_only: bool = False
    voids: RealRanges = ()
    """Ticks that were never assigned because the PHB was down: an event in one comes from lost data."""
    stable: Real = 0
    """How far it was decided when this was said."""
    residue: Real | None = None
    """Its events stand only at ticks that have this remainder modulo STEP; None: at any."""
    grain: Grain = MILLISECOND
    """How many ticks make a unit of distance: MILLISECOND where ticks are times, 1 where a log numbers its records.

    Whoever measures a distance of ticks does it in grains, and reads a tick as a time only where it is `timed`.
    """
    volume: str = ""
    """The storage id of its host's volume, which holds its log: of two volumes of one node the earlier is lost.

    "" where its host does not say so: it is of an earlier version, or the log is not in the volume."""
    forks: RealRanges = ()
    """Ticks at which another process of its broker may have logged events that this one has not (`RanTwice`): they are
    lost, and what was known of silence there is to be asked for again."""
    reach: Real = 0
    """How far it had come when its host said this; 0 where its host is of an earlier version, or it has come nowhere.

    Whoever else says a tick far beyond that is wrong (`gapless.core.network.reach`)."""
    publishers: tuple[str, ...] = ("*",)
    """The names of new publishers that it takes; a name that ends in `*` stands for all that begin with it."""
    places: Real | None = None
    """Where a new publisher may be at its host: at so many pubends of its own, or topics of logs that number records.

    Whoever knows fewer of them cannot tell whom that host takes. None: its host does not say how many there are."""

    @property
    def member(self) -> str:
        """How a group's configuration names it: by its node and its own name, whichever incarnation it is."""
        return f"{self.broker}/{self.pubend.rpartition('@')[0]}"

    @property
    def timed(self) -> bool:
        """Whether its ticks are times."""
        return self.grain == MILLISECOND

    @property
    def spacing(self) -> Tick:
        """How far the places of neighbouring events are apart at least."""
        return min(STEP, self.grain)


@dataclass(frozen=True, slots=True)
class OrderedGroup:
    """Pubends whose events subscribers get in one order, if they ask for that (protocol: groups)."""

    name: str
    members: tuple[str, ...]
    """As in `PubendMeta.member`. They are the same at every node."""
    silence_seconds: float = 0.02
    """How soon each of them says that it is silent."""


class Ending(str, Enum):
    """How a publisher's last opening is over."""

    CLOSED = "closed"
    """The publisher is over: nothing more comes from it."""
    LEFT = "left"
    """Its session has ended: its client may open it again in another one."""


class ByPrincipal(Struct, frozen=True, gc=False, kw_only=True):
    """What somebody asks of a pubend's host, which judges whether he may."""

    principal: SentPrincipal
    """Who asks, as the broker knows him that he is connected to."""


class OpenRequest(ByPrincipal, array_like=True, frozen=True, gc=False, tag=13):
    """A publisher is opened (protocol: publishers); with `ending`, that opening of it is over.

    Both are placed by `Router.open`, so that an ending cannot overtake its opening.
    """

    publisher: str
    instance: str
    attempt: Real
    topic: str | None
    pubend: PubendId = ""
    """Where it was opened before; "" the first time."""
    epoch: Real = 0
    """The epoch it had there last; 0 the first time."""
    ending: Ending | None = None
    """How that opening is over; None: it is opened. The OK of an ending says nothing."""
    keyed: bool = False
    """Whether `publisher` is a producer of keyed batches (see `Pub`): a publisher of that name is another one. Then
    nothing is opened, it is only asked where the producer belongs."""
    claims: bool = False
    """Whether `publisher` is the key of a subscription, which its home claims at `pubend` under `epoch`; `instance` is
    the seal of its tokens. With `ending` it is forgotten there."""
    node: BrokerId = ""
    """The node where the pubend was, as the client knows it; "" if it does not. A router that has not heard of the
    pubend asks there: only that node can tell that the pubend is gone."""


class Pub(ByPrincipal, frozen=True, gc=False):
    """A batch of one publisher: commits atomically, under consecutive sequences from `first` on.

    A keyed one is of a producer that numbers its events itself, and commits what of it is above the last key.
    """

    publisher: str
    epoch: int
    first: int
    events: EventColumns
    pubend: PubendId
    tokens: bytes
    """The positions of subscriptions that are stored in the same write (`gapless.core.wire.tokens.join_tokens`), or
    b"". Only with them a batch may be without events."""
    keyed: bool = False
    """Its producer numbers its events itself: (`epoch`, `first`) is the key of the first one, and there may be holes. A
    producer that repeats itself may cut its batches differently."""

    @property
    def identity(self) -> tuple[str, bool, int, int, int | bytes]:
        """What the copies of this batch have in common, and have with no other batch."""
        count = self.events.count
        rest = count if self.keyed else 0 if count else self.tokens
        return self.publisher, self.keyed, self.epoch, self.first, rest


class Verdict(str, Enum):
    """How an opening or a publish ended."""

    OK = "ok"
    REJECTED = "rejected"
    INVALID = "invalid"
    FORBIDDEN = "forbidden"
    FENCED = "fenced"
    STALE = "stale"
    RESUME = "resume"
    RETRY = "retry"
    UNCERTAIN = "uncertain"
    FORGOTTEN = "forgotten"
    ELSEWHERE = "elsewhere"


class Outcome(Struct, array_like=True, frozen=True, gc=False):
    """The end of an opening or a publish.

    OK of an opening: `epoch`, `sequence` and `tick` of the last event logged, `tokens` that are stored. OK of a claim:
    the subscription's one of `tokens`, if it has one. FENCED of a claim: `epoch` of the later one. OK of a
    publish: `ticks` of its events, `sequence` of its last, whether they are `durable`. RESUME and RETRY:
    `sequence` is the one to send next.
    STALE: a token of the batch stands before the stored one.
    FORGOTTEN: the publisher, which has no name of its own, was known once and is not known any more.
    ELSEWHERE, of an opening: no pubend of this broker takes that publisher with that topic, another broker's may.
    """

    verdict: Verdict
    reason: str = ""
    sequence: Real = 0
    epoch: Real = 0
    tick: Real = 0
    ticks: tuple[TickRun, ...] = ()
    tokens: tuple[str, ...] = ()
    durable: bool | None = None
    """Of an OK of a publish: `LogCapabilities.durable` of the pubend's log."""


class Post(Struct, frozen=True, gc=False):
    """Mail of a role to the role of that name on a node, this one or another. It may be lost, and so is repeated (C10).

    `data` has at most `MAIL_BYTES_MAX` bytes.
    """

    to_node: BrokerId
    role: str
    data: bytes


class Posted(Struct, array_like=True, frozen=True, gc=False, tag=17):
    """Mail that has come: once, more often, or later than what was posted after it (C10)."""

    from_node: BrokerId
    role: str
    data: Annotated[bytes, Meta(max_length=MAIL_BYTES_MAX)]


class SubmitOpen(Struct, frozen=True, gc=False):
    """Open a publisher: from a client's session to the router, and from there to a PHB. Answered by Submitted."""

    request: OpenRequest
    reply_to: Hashable


class RoleAsks(Struct, frozen=True, gc=False):
    """What a role gives as `reply_to` of `SubmitOpen`: it is answered, and no client's session."""

    role: str
    number: int


class Submit(Struct, frozen=True, gc=False):
    """Log a batch: from a client's session to the router, and from there to a PHB. Answered by Submitted."""

    pub: Pub
    reply_to: Hashable
    node: BrokerId = ""
    """To the router: the node that has answered the opening of its publisher, as in `OpenRequest.node`."""


class Submitted(Struct, frozen=True, gc=False):
    """How an opening or a batch ended: from the PHB to the router, and from there to who asked.

    That is a client's session, or the role of `RoleAsks`.
    """

    reply_to: Hashable
    pubend: PubendId
    outcome: Outcome
    node: BrokerId = ""
    """The broker that has decided; "": this one. A client may publish there without the way through this one."""


# ---------------------------------------------------------------------------- a router's effects


class SendFrame(Struct, frozen=True, gc=False):
    """Send on a link to another broker.

    A router stands it that a frame is lost, comes twice, or is overtaken: urgent ones overtake others on every link. It
    may come late, too: even on the next link between the two brokers, whose processes may be others by then.
    """

    link: LinkId
    frame: bytes
    urgent: bool = False


class Dial(Struct, frozen=True, gc=False):
    """Ask for a link to a broker: answered by `LinkUp`, or by nothing. A router waits by its own clock."""

    peer: BrokerId


class Undial(Struct, frozen=True, gc=False):
    """The wish for a link to a broker is over, also where none was ever up: it is not dialed any more.

    A link that is up stays as long as the peer's router wishes for it; when neither does, it is closed.
    """

    peer: BrokerId


class Hangup(Struct, frozen=True, gc=False):
    """Close a link, and with it this end's wish for it. Where the peer still wishes for it, it comes back."""

    link: LinkId


class Seen(Struct, array_like=True, frozen=True, gc=False, tag=10):
    """→ SHB core: the pubend exists (or is read-only); its PHB durably counts this SHB from `enrolled_at` on."""

    meta: PubendMeta
    enrolled_at: Real | None = None


class Held(Struct, array_like=True, frozen=True, gc=False, tag=9):
    """A row of holds is durable at the PHB; `at` holds what each entry was resolved or raised to.

    `stable` is how far the pubend was decided when this was said, and so when the PHB already had the row: nothing that
    anybody was told before the SHB asked under this version lies above it.
    """

    shb: ShbId
    pubend: PubendId
    version: Real
    at: Mapping[Real, Real]
    stable: Real = 0


class AskInterest(Struct, frozen=True, gc=False):
    """→ SHB core: send the interest in full."""

    link: LinkId = 0


class AskPubend(Struct, frozen=True, gc=False):
    """→ PHB core: answered by `know(…, reply_to)`."""

    want: Want
    reply_to: Hashable


class Enrol(Struct, array_like=True, frozen=True, gc=False, tag=12):
    """→ PHB core: persist the membership, then `enrolled()`."""

    pubend: PubendId
    shb: ShbId


class Released(Struct, frozen=True, gc=False):
    """→ PHB core: minima over all members."""

    pubend: PubendId
    released: Tick
    delivered: Tick


class Save(Struct, frozen=True, gc=False):
    """Persist something of the router's own; answered by `saved(cookie)` when a cookie is given."""

    key: str
    value: bytes | None
    cookie: Hashable = None


# ------------------------------------------------------------------- what only a router is told


class Opened(Struct, frozen=True, gc=False):
    """PHB core → router: a pubend is open here, or read-only; its durable membership, which replaces the one before."""

    meta: PubendMeta
    members: Mapping[ShbId, Tick]


class Enrolled(Struct, frozen=True, gc=False):
    """PHB core → router: the membership is durable."""

    pubend: PubendId
    shb: ShbId
    at: Tick


class Wake(Struct, frozen=True, gc=False):
    """The time of `next_wake` has come."""


class LinkUp(Struct, frozen=True, gc=False):
    """A link to another broker is there: something has come through it in both directions.

    A link that lets nothing through in one of them, later on, goes down: whether it lives is for the node to find out.
    """

    link: LinkId
    peer: BrokerId
    roles: frozenset[str]
    incarnation: int
    """Names the peer's process (`gapless.core.network.incarnations`): another one has another number."""


class LinkDown(Struct, frozen=True, gc=False):
    """A link is gone."""

    link: LinkId


class RanTwice(Struct, frozen=True, gc=False):
    """→ roles: another process of this node ran beside it, on a copy of its volume perhaps, and is shut out or gone.

    What that one told the network and its publishers, this node does not know.
    """

    other: int
    """Its incarnation."""


class ShutOut(Struct, frozen=True, gc=False):
    """→ the node: a later process of it runs, and counts; a neighbour has proof of both. This one has to stop."""

    later: int
    """The incarnation of that process."""
    peer: BrokerId
    """The neighbour that says so."""


LINK_HIGH: Final = 1 << 20
LINK_LOW: Final = 256 << 10


class LinkRoom(Struct, frozen=True, gc=False):
    """So many bytes wait on a link for its peer to read: they rose above `LINK_HIGH`, or fell to it or to `LINK_LOW`.

    Above `LINK_HIGH` a router says nothing more there that can wait, until the link is at `LINK_LOW` again: frames that
    pile up there only grow old, and what is not said is asked for (T57).
    """

    link: LinkId
    pending: int


def told_of_room(before: int, pending: int) -> bool:
    """Whether a router is told when what waits on a link changes from so many bytes to so many."""
    return (before > LINK_HIGH) != (pending > LINK_HIGH) or before > LINK_LOW >= pending


class FrameArrived(Struct, frozen=True, gc=False):
    """A frame arrived on a link."""

    link: LinkId
    frame: bytes
    wall: int
    """This node's wall clock then, in milliseconds since 1970: only to find ticks that cannot be."""


class Saved(Struct, frozen=True, gc=False):
    """A Save is durable."""

    cookie: Hashable
