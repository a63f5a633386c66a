"""The routing seam: the only thing a routing plugin sees (algorithms.md 8).

A router is a pure core: every method returns effects, time is an argument. It owns paths, in-network
filters, caches, the consolidation of wants across SHBs, release minima and the placing of publishes. It
is soft: any of its state may vanish. It may lose, repeat, reorder and overlap knowledge; it must never
assert silence that `know` did not (C1 to C9 of algorithms.md 8.2).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct, field

from gapless.core.columns import EMPTY, EventBatch, EventColumns
from gapless.core.messages import TickRun
from gapless.core.ticks import PubendId, ShbId, Tick
from gapless.selectors.filters import Filter

BrokerId: TypeAlias = str
LinkId: TypeAlias = int
Ranges: TypeAlias = tuple[tuple[Tick, Tick], ...]
"""Half-open intervals (lo, hi], sorted, disjoint."""
Stamp: TypeAlias = "Mapping[ShbId, int] | None"
"""Which version of each SHB's interest was honoured when silence was computed; absent = 0. None = RAW:
nothing was filtered, nothing was published there."""
RAW: Stamp = None


# --------------------------------------------------------------------------------------- what flows


class Knowledge(Struct, frozen=True, gc=False):
    """Every tick of (lo, hi] is D (an event in `data`), L (<= lost), or silence under `stamp`."""

    pubend: PubendId
    lo: Tick
    hi: Tick
    data: EventBatch = EMPTY
    lost: Tick = 0
    stamp: Stamp = RAW
    reply: bool = False
    """An answer to a want: it goes only where it was asked for (T37)."""
    damaged: bool = False
    """All of (lo, hi] is lost: it could not be read, and an operator has given it up. There is no data."""

    @classmethod
    def of_damage(cls, pubend: PubendId, lo: Tick, hi: Tick, lost: Tick) -> Knowledge:
        """The answer to a want for what an operator has given up."""
        return cls(pubend, lo, hi, EMPTY, lost, RAW, reply=True, damaged=True)


class Want(Struct, frozen=True, gc=False):
    """An SHB needs these ranges. `need` RAW: only unfiltered silence will do."""

    pubend: PubendId
    ranges: Ranges
    need: Stamp
    shb: ShbId


class Interest(Struct, frozen=True, gc=False):
    """What an SHB's subscriptions match: a change from version `base` to `version`, or all of it."""

    shb: ShbId
    base: int
    version: int
    add: Mapping[int, Filter]
    drop: frozenset[int] = frozenset()
    full: bool = False


class Progress(Struct, frozen=True, gc=False):
    """What an SHB is done with. Both are durable there, and released <= delivered."""

    shb: ShbId
    pubend: PubendId
    released: Tick
    delivered: Tick


class HoldRow(Struct, frozen=True, gc=False):
    """From where an SHB needs a pubend kept although it reported more: the whole row of (SHB, pubend).

    `at` maps the SHB's subscription ids to a tick; 0 asks for the earliest there is.
    """

    shb: ShbId
    pubend: PubendId
    version: int
    at: Mapping[int, Tick]


class PubendMeta(Struct, frozen=True, gc=False):
    """What is known of a pubend."""

    pubend: PubendId
    broker: BrokerId
    topics: tuple[str, ...] = ("#",)
    """Patterns of the topics it may carry."""
    group: str | None = None
    created: Tick = 0
    sealed: bool = False
    voids: Ranges = ()
    """Ticks that were never assigned because the PHB was down: an event in one comes from lost data."""
    stable: Tick = 0
    """How far it was decided when this was said."""
    residue: int | None = None
    """Its events stand only at ticks that have this remainder modulo STEP; None: at any."""


class Ending(str, Enum):
    """How a publisher's last opening is over."""

    CLOSED = "closed"
    """The publisher is over: nothing more comes from it."""
    LEFT = "left"
    """Its session has ended: its client may open it again in another one."""


class OpenRequest(Struct, frozen=True, gc=False):
    """A publisher is opened (algorithms.md 1.4 `open`); with `ending`, that opening of it is over.

    Both are placed by `Router.open`, so that an ending cannot overtake its opening.
    """

    publisher: str
    instance: str
    attempt: int
    topic: str | None
    pubend: PubendId = ""
    """Where it was opened before; "" the first time."""
    epoch: int = 0
    """The epoch it had there last; 0 the first time."""
    ending: Ending | None = None
    """How that opening is over; None: it is opened. The OK of an ending says nothing."""


class Pub(Struct, frozen=True, gc=False):
    """A batch of one publisher: commits atomically, under consecutive sequences from `first` on."""

    publisher: str
    epoch: int
    first: int
    events: EventColumns
    pubend: PubendId
    token: bytes | None = None
    """[later] a consumer's position to compare-and-set in the same write."""


class Verdict(str, Enum):
    """How an opening or a publish ended."""

    OK = "ok"
    REJECTED = "rejected"
    INVALID = "invalid"
    FENCED = "fenced"
    RESUME = "resume"
    RETRY = "retry"
    UNCERTAIN = "uncertain"
    FORGOTTEN = "forgotten"


class Outcome(Struct, frozen=True, gc=False):
    """The end of an opening or a publish.

    OK of an opening: `epoch`, `sequence` and `tick` of the last event logged. OK of a publish: `ticks`
    of its events, `sequence` of its last. RESUME and RETRY: `sequence` is the one to send next.
    FORGOTTEN: the publisher, which has no name of its own, was known once and is not known any more.
    """

    verdict: Verdict
    reason: str = ""
    sequence: int = 0
    epoch: int = 0
    tick: Tick = 0
    ticks: Sequence[TickRun] = ()


# ---------------------------------------------------------------------------- a router's effects


class SendFrame(Struct, frozen=True, gc=False):
    """Send on a link to another broker.

    A stream link loses only by going down. A datagram link loses anything, and a frame may come late on it: even
    on the next link between the two brokers, whose processes may be others by then.
    """

    link: LinkId
    frame: bytes
    urgent: bool = False


class Dial(Struct, frozen=True, gc=False):
    """Ask for a link to a broker; answered by `link_up`."""

    peer: BrokerId


class Hangup(Struct, frozen=True, gc=False):
    """Close a link."""

    link: LinkId


class Deliver(Struct, frozen=True, gc=False):
    """→ SHB core: knowledge for its istream."""

    knowledge: Knowledge


class Seen(Struct, frozen=True, gc=False):
    """→ SHB core: the pubend exists (or is sealed); its PHB durably counts this SHB from `enrolled_at` on."""

    meta: PubendMeta
    enrolled_at: Tick | None = None


class Probed(Struct, frozen=True, gc=False):
    """→ SHB core: an acknowledgement up to here is expected."""

    pubend: PubendId
    upto: Tick


class Held(Struct, frozen=True, gc=False):
    """→ SHB core: the row is durable at the PHB; `at` holds what each entry was resolved or raised to.

    `stable` is how far the pubend was decided when this was said, and so when the PHB already had the row: nothing that
    anybody was told before the SHB asked under this version lies above it.
    """

    pubend: PubendId
    version: int
    at: Mapping[int, Tick]
    stable: Tick = 0


class AskInterest(Struct, frozen=True, gc=False):
    """→ SHB core: send the interest in full."""

    link: LinkId = 0


class AskPubend(Struct, frozen=True, gc=False):
    """→ PHB core: answered by `know(…, reply_to)`."""

    want: Want
    reply_to: Hashable


class Enrol(Struct, frozen=True, gc=False):
    """→ PHB core: persist the membership, then `enrolled()`."""

    pubend: PubendId
    shb: ShbId


class Hold(Struct, frozen=True, gc=False):
    """→ PHB core: persist the whole row, then `held()`."""

    row: HoldRow


class Released(Struct, frozen=True, gc=False):
    """→ PHB core: minima over all members."""

    pubend: PubendId
    released: Tick
    delivered: Tick


class SubmitOpen(Struct, frozen=True, gc=False):
    """→ PHB core: open a publisher; answered by `submitted()`."""

    request: OpenRequest
    reply_to: Hashable


class Submit(Struct, frozen=True, gc=False):
    """→ PHB core: log a batch; answered by `submitted()`."""

    pub: Pub
    reply_to: Hashable


class Save(Struct, frozen=True, gc=False):
    """Persist something of the router's own; answered by `saved(cookie)` when a cookie is given."""

    key: str
    value: bytes | None
    cookie: Hashable = None


class Placed(Struct, frozen=True, gc=False):
    """→ the client's session: the result of `place` or `open`."""

    reply_to: Hashable
    pubend: PubendId
    outcome: Outcome


Effect: TypeAlias = (
    SendFrame
    | Dial
    | Hangup
    | Deliver
    | Seen
    | Probed
    | Held
    | AskInterest
    | AskPubend
    | Enrol
    | Hold
    | Released
    | SubmitOpen
    | Submit
    | Save
    | Placed
)
Effects: TypeAlias = Iterable[Effect]


# --------------------------------------------------------- what the cores say to the router (effects
# of the PHB's and the SHB's cores; the node calls the router's method of the same meaning)


class Opened(Struct, frozen=True, gc=False):
    """PHB core → `Router.pubend`."""

    meta: PubendMeta
    members: Mapping[ShbId, Tick]


class Know(Struct, frozen=True, gc=False):
    """PHB core → `Router.know`."""

    knowledge: Knowledge
    reply_to: Hashable = None


class Probe(Struct, frozen=True, gc=False):
    """PHB core → `Router.probe`."""

    pubend: PubendId
    upto: Tick


class Enrolled(Struct, frozen=True, gc=False):
    """PHB core → `Router.enrolled`."""

    pubend: PubendId
    shb: ShbId
    at: Tick


class HeldRow(Struct, frozen=True, gc=False):
    """PHB core → `Router.held`."""

    shb: ShbId
    held: Held


class Submitted(Struct, frozen=True, gc=False):
    """PHB core → `Router.submitted`."""

    reply_to: Hashable
    pubend: PubendId
    outcome: Outcome


class Announce(Struct, frozen=True, gc=False):
    """SHB core → `Router.interest`."""

    interest: Interest


class AskHold(Struct, frozen=True, gc=False):
    """SHB core → `Router.hold`."""

    row: HoldRow


class Ask(Struct, frozen=True, gc=False):
    """SHB core → `Router.want`."""

    want: Want


class Report(Struct, frozen=True, gc=False):
    """SHB core → `Router.progress`."""

    progress: Progress


# ---------------------------------------------------------------------------------------- the router


class RouterContext(Struct, frozen=True, gc=False):
    """What a router is given when it starts. It may draw randomness from `seed` alone."""

    broker: BrokerId
    seed: int
    config: Mapping[str, Any] = field(default_factory=dict)
    saved: Mapping[str, bytes] = field(default_factory=dict)
    """What it had saved, by key."""


@runtime_checkable
class Router(Protocol):
    """A routing plugin: sans-IO, deterministic in its context and its calls (C6)."""

    name: str
    needs_stream_links: bool

    def start(self, now: int, context: RouterContext) -> Effects:
        """The first call."""

    def next_wake(self) -> int | None:
        """When `wake` wants to be called: monotonic nanoseconds, or None."""

    def wake(self, now: int) -> Effects:
        """The time of `next_wake` has come."""

    # The network.
    def link_up(self, now: int, link: LinkId, peer: BrokerId, roles: frozenset[str], incarnation: int) -> Effects:
        """A link to another broker is there."""

    def link_down(self, now: int, link: LinkId) -> Effects:
        """A link is gone."""

    def frame(self, now: int, link: LinkId, frame: bytes) -> Effects:
        """A frame arrived."""

    # The local PHB core.
    def pubend(self, now: int, meta: PubendMeta, members: Mapping[ShbId, Tick]) -> Effects:
        """A pubend is open here, or sealed; its durable membership. May be called again, and replaces it."""

    def know(self, now: int, knowledge: Knowledge, reply_to: Hashable = None) -> Effects:
        """Committed facts, RAW; with `reply_to`, the answer to an AskPubend."""

    def probe(self, now: int, pubend: PubendId, upto: Tick) -> Effects:
        """An acknowledgement up to here is overdue."""

    def enrolled(self, now: int, pubend: PubendId, shb: ShbId, at: Tick) -> Effects:
        """The membership is durable."""

    def held(self, now: int, shb: ShbId, held: Held) -> Effects:
        """A row of holds is durable."""

    def submitted(self, now: int, reply_to: Hashable, pubend: PubendId, outcome: Outcome) -> Effects:
        """How a SubmitOpen or a Submit ended."""

    # The local SHB core.
    def interest(self, now: int, interest: Interest) -> Effects:
        """The SHB's interest changed, or is said again."""

    def hold(self, now: int, row: HoldRow) -> Effects:
        """Fire once; the core repeats until held."""

    def want(self, now: int, want: Want) -> Effects:
        """Fire once; the core repeats."""

    def progress(self, now: int, progress: Progress) -> Effects:
        """The SHB's durable progress; repeated now and then."""

    # Local clients and storage.
    def open(self, now: int, request: OpenRequest, reply_to: Hashable) -> Effects:
        """Place a publisher; ends in exactly one Placed.

        Openings of one name are submitted in the order in which they were placed at a broker: one that comes
        behind a later one, from a process that is over, fences the process which took its place.
        """

    def place(self, now: int, pub: Pub, reply_to: Hashable) -> Effects:
        """Place a batch; ends in exactly one Placed."""

    def saved(self, now: int, cookie: Hashable) -> Effects:
        """A Save is durable."""
