"""The routing seam: the only thing a routing plugin sees (protocol: owners, facts).

A router is a pure core: it answers every fact with effects, time is an argument. It owns paths, in-network
filters, caches, the consolidation of wants across SHBs, release minima and the placing of publishes. It
is soft: any of its state may vanish. It may lose, repeat, reorder and overlap knowledge; it must never
assert silence that `know` did not (protocol: contract; C1 to C10).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct, field

from gapless.core.alarms import Alarm
from gapless.core.gauges import Gauge
from gapless.core.network.facts import (
    AskInterest,
    AskPubend,
    BrokerId,
    Dial,
    Enrol,
    Enrolled,
    FrameArrived,
    Hangup,
    Held,
    Hold,
    Interest,
    Know,
    LinkDown,
    LinkRoom,
    LinkUp,
    NetworkMap,
    Opened,
    Post,
    Posted,
    Probe,
    Progress,
    Released,
    Save,
    Saved,
    Seen,
    SendFrame,
    Submit,
    SubmitOpen,
    Submitted,
    Undial,
    Wake,
    Want,
)
from gapless.core.network.frames import Private


class RouterContext(Struct, frozen=True, gc=False):
    """What a router is given when it starts. It may draw randomness from `seed` alone."""

    broker: BrokerId
    seed: int
    network: NetworkMap
    """The same for every router of the network; this broker is in it too."""
    config: Mapping[str, Any] = field(default_factory=dict)
    saved: Mapping[str, bytes] = field(default_factory=dict)
    """What it had saved, by key."""


Effect: TypeAlias = (
    SendFrame
    | Dial
    | Undial
    | Hangup
    | Know
    | Seen
    | Probe
    | Held
    | AskInterest
    | AskPubend
    | Enrol
    | Hold
    | Released
    | SubmitOpen
    | Submit
    | Save
    | Submitted
    | Posted
    | Alarm
)
Effects: TypeAlias = Iterable[Effect]
"""What a router answers with."""

Told: TypeAlias = (
    RouterContext
    | Wake
    | LinkUp
    | LinkDown
    | FrameArrived
    | LinkRoom
    | Opened
    | Know
    | Probe
    | Enrolled
    | Held
    | Submitted
    | Interest
    | Hold
    | Want
    | Progress
    | SubmitOpen
    | Submit
    | Post
    | Saved
)
"""What a router is told. The first is a RouterContext."""

RouterHandler: TypeAlias = "Callable[[int, Any], Effects]"
"""(now, what the router is told) → what it wants."""


@runtime_checkable
class Router(Protocol):
    """A routing plugin: sans-IO, deterministic in its context and in what it is told (C6)."""

    name: str
    networks: str
    """In which networks it is tried, as `RouterBase.networks` says."""

    def next_wake(self) -> int | None:
        """When it wants to be told `Wake`: monotonic nanoseconds, or None."""

    def handlers(self) -> Mapping[type, RouterHandler]:
        """What takes each kind of fact that a router is told (`Told`). Asked for once, before the first."""

    def gauges(self) -> Iterable[Gauge]:
        """The figures of this router, computed when they are asked for."""


class RouterBase:
    """For authors of routers: a method for each kind of fact, by the name of what it means. None wants anything yet."""

    name = ""
    networks = "nodes"
    """The networks for which it is made, and which the simulator draws for it.

    `one`: one node alone; `mesh`: a link between any two nodes; `cells`: a tree of cells, in each of which any node
    does the work of the others; `nodes`: a tree of single nodes, of which any two may have a link.
    """

    def handlers(self) -> Mapping[type, RouterHandler]:
        """The methods below, by what they take."""
        return {
            RouterContext: self.start,
            Wake: self.wake,
            LinkUp: self.link_up,
            LinkDown: self.link_down,
            FrameArrived: self.frame,
            LinkRoom: self.room,
            Opened: self.pubend,
            Know: self.know,
            Probe: self.probe,
            Enrolled: self.enrolled,
            Held: self.held,
            Submitted: self.submitted,
            Interest: self.interest,
            Hold: self.hold,
            Want: self.want,
            Progress: self.progress,
            SubmitOpen: self.open,
            Submit: self.place,
            Post: self.post,
            Saved: self.saved,
        }

    def explain(self, said: Private) -> str:
        """What a frame of its own kind says, for whoever reads a trace; "": nothing but its size. It may be missing."""
        return ""

    def gauges(self) -> Iterable[Gauge]:
        """Its figures, for operators: nothing is counted or kept for them but what it keeps anyway."""
        return ()

    def start(self, now: int, context: RouterContext) -> Effects:
        """The first call."""
        return ()

    def next_wake(self) -> int | None:
        """When `wake` wants to be called: monotonic nanoseconds, or None."""
        return None

    def wake(self, now: int, _: Wake) -> Effects:
        """The time of `next_wake` has come."""
        return ()

    # The network.
    def link_up(self, now: int, up: LinkUp) -> Effects:
        """A link to another broker is there."""
        return ()

    def link_down(self, now: int, down: LinkDown) -> Effects:
        """A link is gone."""
        return ()

    def frame(self, now: int, arrived: FrameArrived) -> Effects:
        """A frame arrived."""
        return ()

    def room(self, now: int, room: LinkRoom) -> Effects:
        """A link has become full, or has room again; in between, what can wait is not said there (C8)."""
        return ()

    # The local PHB core.
    def pubend(self, now: int, opened: Opened) -> Effects:
        """A pubend is open here, or read-only; its durable membership. May be said again, and replaces it."""
        return ()

    def know(self, now: int, said: Know) -> Effects:
        """Committed facts, RAW; with `reply_to`, the answer to an AskPubend."""
        return ()

    def probe(self, now: int, probe: Probe) -> Effects:
        """An acknowledgement up to here is overdue."""
        return ()

    def enrolled(self, now: int, enrolled: Enrolled) -> Effects:
        """The membership is durable."""
        return ()

    def held(self, now: int, held: Held) -> Effects:
        """A row of holds is durable."""
        return ()

    def submitted(self, now: int, submitted: Submitted) -> Effects:
        """How a SubmitOpen or a Submit ended."""
        return ()

    # The local SHB core.
    def interest(self, now: int, interest: Interest) -> Effects:
        """The SHB's interest changed, or is said again."""
        return ()

    def hold(self, now: int, row: Hold) -> Effects:
        """Fire once; the core repeats until held."""
        return ()

    def want(self, now: int, want: Want) -> Effects:
        """Fire once; the core repeats."""
        return ()

    def progress(self, now: int, progress: Progress) -> Effects:
        """The SHB's durable progress; repeated now and then."""
        return ()

    # Local clients and storage.
    def open(self, now: int, opening: SubmitOpen) -> Effects:
        """Place a publisher; ends in exactly one Submitted.

        Openings of one name are submitted in the order in which they were placed at a broker: one that comes
        behind a later one, from a process that is over, fences the process which took its place.
        """
        return ()

    def place(self, now: int, batch: Submit) -> Effects:
        """Place a batch; ends in exactly one Submitted."""
        return ()

    def post(self, now: int, mail: Post) -> Effects:
        """Mail for a role, here or elsewhere: what is repeated for ever has to arrive, unchanged, and nowhere else."""
        return ()

    def saved(self, now: int, saved: Saved) -> Effects:
        """A Save is durable."""
        return ()
