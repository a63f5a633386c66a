"""The links of one node to the others, pure: whom to dial and when, which of two links stays, and who is let in.

A router's `Dial` is a wish that lasts until its `Undial`, or until it hangs up: who is not there is dialed again after
a pause that grows, and so is one whose link went down. A link for which neither end wishes any more is closed. Two
nodes have one link at most. Where both dial at once, the dial of the one whose name comes first in the alphabet stays,
as soon as its peer has answered it; before that, whichever comes through is taken. A node that comes again is refused
until its older link is over, which beats find out. If it has come as another process, the older link is asked whether
its process lives; if so, two run under one name, and the earlier is shut out.

Time is monotonic nanoseconds; nonces and pauses are drawn from the seed that is given (protocol: crossing-dials).
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from gapless.core.alarms import Alarm, AlarmCode
from gapless.core.deadlines import Deadlines
from gapless.core.gauges import Family, Gauge
from gapless.core.network.facts import BrokerId, LinkDown, LinkId, LinkUp, RanTwice, ShutOut
from gapless.core.network.greeting import (
    NONCE_BYTES,
    Accepted,
    Bye,
    Control,
    LinkIdentity,
    NodeAnswer,
    NodeProof,
    NodeWish,
    RefusedPeerError,
)
from gapless.core.network.incarnations import Incarnations, Twice, started
from gapless.core.network.links import (
    BEAT,
    GREETING_TIME,
    SECOND,
    BrokerLink,
    Connect,
    DeadLinkError,
    EndLink,
    LinkPhase,
    LinkTraffic,
)
from gapless.errors import RemoteProtocolError

REDIAL_FIRST: Final = SECOND // 10
REDIAL_MOST: Final = 2 * SECOND
"""How long a peer is let be after a dial that failed: doubling, and up to half of it less, as drawn."""
REDIAL_REFUSED: Final = SECOND // 2
"""The same at most, where the dial was refused at once: that costs next to nothing, and may be over any moment."""
REFUSED_WITHIN: Final = SECOND // 2
"""A dial that fails so soon, without a word from the other end, was refused: nobody listens there, or all is closed."""
STEADY: Final = 5 * SECOND
"""A link that was up for so long has gone well, and earlier failures are forgotten."""
UNREACHABLE_AFTER: Final = 5 * SECOND
"""So long after a link was asked for, or lost, the operator is told."""
STRANGERS_MAX: Final = 64
"""So many may be on their way in at a time."""
COMPLAINT_PERIOD: Final = 60 * SECOND
"""So long the same trouble with the same node is not told again."""
DUPLICATE: Final = "there is another link between the two nodes"
UNWISHED: Final = "neither node wishes for it any more"
GIVEN_UP: Final = "the router does not wish for it any more"
OTHER_PROCESS: Final = "another process of that node has a link here, and is being asked whether it lives"

LINK_UP = Family("gapless_broker_link_up", "Whether there is a link to a node.", ("node",))
LINK_WAITING = Family("gapless_broker_link_waiting_bytes", "Bytes that wait on a link to a node.", ("node",))
LINK_BEHIND = Family(
    "gapless_broker_link_behind_seconds",
    "How long ago the oldest of what a node has not confirmed was sent; up to half a second is normal.",
    ("node",),
)
LINK_ROUND_TRIP = Family(
    "gapless_broker_link_round_trip_seconds",
    "How long a node took to answer when the link to it was made.",
    ("node",),
)
LINK_FRAMES = Family(
    "gapless_broker_link_frames_total",
    "Frames of routers that came from a node, and that were sent to it.",
    ("node", "direction"),
    counter=True,
)
LINK_BYTES = Family(
    "gapless_broker_link_bytes_total",
    "The size of these frames, and of the beats between the two nodes.",
    ("node", "direction"),
    counter=True,
)
NETWORK_MAP = Family(
    "gapless_network_map",
    "Always 1; the digest differs where a node was started with another network file.",
    ("digest",),
)
LINKS_ENDED = Family(
    "gapless_broker_links_ended_total",
    "Links to a node that went down, and dials that failed.",
    ("node",),
    counter=True,
)

Timer: TypeAlias = "tuple[str, LinkId | BrokerId]"


@dataclass(slots=True)
class Peer:
    """Another node of the map."""

    name: BrokerId
    address: str
    wanted: bool = False
    """Whether the router wishes for a link: it has asked for one, and neither let go of it nor hung up since."""
    link: LinkId | None = None
    """The one that is up."""
    dial: LinkId | None = None
    """The own dial that is under way."""
    dialed_at: int = 0
    """When the last one began."""
    failures: int = 0
    """In a row."""
    ended: int = 0
    reason: str = "nobody has answered yet"
    """Why the last link, or dial, is over."""
    missed: bool = False
    """Whether the operator was told that it is not there."""
    told: str = ""
    """For which reason that was."""
    differs: bool = False
    """Whether the operator was told that it has another map."""
    incarnations: Incarnations = field(default_factory=Incarnations)
    """Its processes."""
    traffic: LinkTraffic = field(default_factory=LinkTraffic)


class BrokerLinks:
    """All links of a node to other nodes.

    `on_…` says what happened; `take_effects` says what to do: what `gapless.core.network.links` asks for, and the
    facts and alarms that are the router's and the operator's.
    """

    def __init__(
        self, me: LinkIdentity, nodes: Mapping[BrokerId, frozenset[str]], addresses: Mapping[BrokerId, str], seed: bytes
    ) -> None:
        """`nodes`: of the map, each with its roles. `addresses`: of the nodes that can be dialed. `seed`: a secret."""
        self._me = me
        self._nodes = nodes
        self._peers = {name: Peer(name, addresses.get(name, "")) for name in nodes if name != me.node}
        self._draws = Draws(seed)
        self._links: dict[LinkId, BrokerLink] = {}
        self._last = 0
        self._count = 0
        """Of questions to peers and of their answers: what came later has a higher number."""
        self._earlier: dict[int, None] = {}
        """The earlier processes of this node that neighbours have told of."""
        self._timers: Deadlines[Timer] = Deadlines()
        self._effects: list[Any] = []
        self._touched: dict[LinkId, None] = {}
        """The links on which something is to be sent, or may be."""
        self._complaints = _Complaints()
        self._closed = False

    # Getters.

    def deadline(self) -> int | None:
        """When `on_deadline` wants to be called, or None."""
        return self._timers.next()

    @property
    def is_settled(self) -> bool:
        """Whether every peer that is wanted has taken this node, or could not be reached; none still has to decide."""
        return all(
            peer.link is not None or (peer.ended > 0 and peer.reason != OTHER_PROCESS)
            for peer in self._peers.values()
            if peer.wanted
        )

    def gauges(self) -> Iterator[Gauge]:
        """Which map there is, which nodes there are links to, and what waits there."""
        yield NETWORK_MAP.gauge(1, self._me.map_digest.hex())
        for name, peer in self._peers.items():
            if peer.wanted or peer.link is not None or peer.ended:
                yield LINK_UP.gauge(peer.link is not None, name)
                link = None if peer.link is None else self._links[peer.link]
                yield LINK_WAITING.gauge(0 if link is None else link.pending, name)
                yield LINK_BEHIND.gauge(0.0 if link is None else link.behind / SECOND, name)
                if link is not None and link.round_trip is not None:
                    yield LINK_ROUND_TRIP.gauge(link.round_trip / SECOND, name)
                yield LINK_FRAMES.gauge(peer.traffic.frames_in, name, "in")
                yield LINK_FRAMES.gauge(peer.traffic.frames_out, name, "out")
                yield LINK_BYTES.gauge(peer.traffic.bytes_in, name, "in")
                yield LINK_BYTES.gauge(peer.traffic.bytes_out, name, "out")
                yield LINKS_ENDED.gauge(peer.ended, name)

    def take_effects(self) -> Sequence[Any]:
        """What to do, in order; emptied by the call."""
        if self._touched:
            touched, self._touched = self._touched, {}
            for number in touched:
                link = self._links.get(number)
                if link is not None:
                    link.flush()
        if not self._effects:
            return ()
        effects, self._effects = self._effects, []
        return effects

    # What the router wants.

    def on_dial(self, name: BrokerId, now: int) -> None:
        """A link to a node is wished for."""
        peer = self._peers.get(name)
        if peer is None or not peer.address or self._closed:
            return
        if not peer.wanted:
            peer.wanted = True
            self._timers.set(("missed", name), now + UNREACHABLE_AFTER)
            self._say_wish(peer)
        if peer.link is None and peer.dial is None and ("dial", name) not in self._timers:
            self._dial(peer, now)

    def on_undial(self, name: BrokerId, now: int) -> None:
        """The wish for a link to a node is over. One that is up stays as long as the other end wishes for it."""
        peer = self._peers.get(name)
        if peer is None or self._closed:
            return
        peer.wanted = False
        self._timers.clear(("missed", name))
        if peer.missed:
            peer.missed = False
            text = f"no link to the node {name!r} is wished for any more"
            self._say_over(AlarmCode.NODE_UNREACHABLE, peer, text)
        if peer.dial is not None:
            self._end(self._links[peer.dial], GIVEN_UP, now)
            # Whoever wishes for it again at once waits as after a dial that failed: or a router could dial in a loop.
            self._timers.set(("dial", name), now + self._pause(peer.failures, REDIAL_MOST))
        self._close_if_unwished(peer, now)
        self._say_wish(peer)

    def on_hangup(self, number: LinkId, now: int) -> None:
        """A link is not wanted any more, nor another one to that node until it is asked for."""
        link = self._links.get(number)
        if link is not None and link.phase is LinkPhase.UP:
            self._peers[link.peer].wanted = False
            self._end(link, "the router has hung up", now)

    def on_send(self, number: LinkId, frame: bytes, *, urgent: bool, now: int) -> None:
        """A frame is to be sent. One for a link that is not up any more is lost."""
        link = self._links.get(number)
        if link is None or link.phase is not LinkPhase.UP or link.theirs is None:
            return
        if len(frame) > link.theirs.frame_bytes:
            limit = link.theirs.frame_bytes
            text = f"a frame of {len(frame):,} bytes was not sent to the node {link.peer!r}, which takes {limit:,}"
            self._complain(AlarmCode.ROUTING_IMPAIRED, link.peer, text, now)
            return
        link.send(frame, urgent=urgent)
        self._touched[number] = None

    # What the transport says.

    def on_connected(self, number: LinkId, certificate: str, now: int) -> bool:
        """A dial was answered, by whom the certificate names. False: nobody wants that link any more."""
        link = self._links.get(number)
        if link is None or link.phase is not LinkPhase.DIALING:
            return False
        link.on_connected(certificate)
        link.asked = now
        self._touched[number] = None
        return True

    def on_accepted(self, address: str, certificate: str, now: int) -> LinkId | None:
        """Somebody has connected: the number of his link, or None if there are too many, and he is to be sent away."""
        if self._closed or sum(link.phase is not LinkPhase.UP for link in self._links.values()) >= STRANGERS_MAX:
            self._complain(AlarmCode.NODE_REFUSED, "", f"too many are on their way in; the latest was {address}", now)
            return None
        return self._make(now, address=address, certificate=certificate).number

    def on_payloads(self, number: LinkId, payloads: Sequence[bytes], now: int) -> None:
        """Payloads arrived."""
        for payload in payloads:
            link = self._links.get(number)
            if link is None:
                return
            if link.asked is None:
                link.asked = now  # a listener asks who it is with its answer to the very first
            try:
                said = link.on_payload(payload)
                if said is not None:
                    self._on_control(link, said, now)
                elif link.is_answered:
                    link.is_answered = False
                    self._take_answer(link, now)
            except RemoteProtocolError as error:
                self._on_error(link, error, now)
        self._touched[number] = None

    def on_broken(self, number: LinkId, reason: str, now: int) -> None:
        """What came on a link breaks the framing, or is too much."""
        link = self._links.get(number)
        if link is not None:
            self._on_error(link, RemoteProtocolError(reason), now)

    def on_closed(self, number: LinkId, reason: str, now: int) -> None:
        """A link is gone, or a dial has failed."""
        link = self._links.get(number)
        if link is not None:
            self._end(link, reason or "the other end closed the link", now, told=None)

    def on_deadline(self, now: int) -> None:
        """The deadline has come."""
        for kind, about in self._timers.take_expired(now):
            if kind == "link":
                self._on_link_deadline(self._links[int(about)], now)
            elif kind == "dial":
                self._dial(self._peers[str(about)], now)
            else:
                self._on_missed(self._peers[str(about)])

    def close(self, reason: str, now: int) -> None:
        """Ends all links in order, and makes no more."""
        self._closed = True
        self._timers.clear_all()
        for link in list(self._links.values()):
            self._end(link, reason, now)

    # What both ends wish.

    def _say_wish(self, peer: Peer) -> None:
        if peer.link is not None:
            self._links[peer.link].say_wish(wanted=peer.wanted)
            self._touched[peer.link] = None

    def _close_if_unwished(self, peer: Peer, now: int) -> None:
        if peer.link is not None and not peer.wanted and not self._links[peer.link].is_wished_there:
            self._end(self._links[peer.link], UNWISHED, now)

    # One link.

    def _make(self, now: int, *, dialed: BrokerId = "", address: str = "", certificate: str = "") -> BrokerLink:
        self._last += 1
        self._count += 1
        link = BrokerLink(
            self._last,
            self._me,
            self._nodes,
            self._draws.draw()[:NONCE_BYTES],
            self._effects_append,
            dialed=dialed,
            address=address,
            certificate=certificate,
            drawn_at=self._count,
        )
        self._links[link.number] = link
        self._timers.set(("link", link.number), now + GREETING_TIME)
        return link

    def _effects_append(self, effect: Any) -> None:
        self._effects.append(effect)

    def _dial(self, peer: Peer, now: int) -> None:
        self._timers.clear(("dial", peer.name))
        if peer.wanted and peer.link is None and peer.dial is None:
            peer.dialed_at = now
            peer.dial = self._make(now, dialed=peer.name, address=peer.address).number
            self._effects.append(Connect(peer.dial, peer.name, peer.address))

    def _on_control(self, link: BrokerLink, said: Control, now: int) -> None:
        if type(said) is Bye:
            if said.later > self._me.incarnation and link.is_proven:
                self._effects.append(ShutOut(said.later, link.peer))
            reason = said.reason if said.duplicate else f"it closed the link: {said.reason}"
            self._end(link, reason, now, told=None)
        elif type(said) is NodeAnswer:
            self._on_answered(link, now)
        elif type(said) is Accepted:
            self._learn(said.shut_out)
            self._come_up(link, now)
        elif type(said) is NodeProof:
            self._on_proven(link, said, now)
        elif type(said) is NodeWish:
            link.is_wished_there = said.wanted
            self._close_if_unwished(self._peers[link.peer], now)

    def _on_answered(self, link: BrokerLink, now: int) -> None:
        """A peer that was dialed has proven who it is. One that is shut out is told so by who has proven it, too."""
        assert link.asked is not None
        link.round_trip = now - link.asked
        counts = self._take_answer(link, now)
        link.say_proof(self._shut_out_before(link))
        if not counts:
            self._shut_out(link, now)

    def _on_proven(self, link: BrokerLink, said: NodeProof, now: int) -> None:
        """A peer that has dialed is who it says: it comes in, unless another link between the two stays."""
        assert link.asked is not None
        link.round_trip = now - link.asked
        self._learn(said.shut_out)
        if not self._take_answer(link, now):
            self._shut_out(link, now)
            return
        peer = self._peers[link.peer]
        incarnation = link.theirs.incarnation if link.theirs else None
        for other in [self._links.get(number) for number in (peer.link, peer.dial) if number is not None]:
            if other is None or other.theirs is None:
                continue  # it has not answered yet
            if other.theirs.incarnation == incarnation:
                if other.phase is LinkPhase.UP or self._me.node < link.peer:
                    self._end(link, DUPLICATE, now, duplicate=True)
                    return
            elif other.phase is LinkPhase.UP:
                self._count += 1
                other.challenge(self._count)
                self._touched[other.number] = None
                self._end(link, OTHER_PROCESS, now, duplicate=True)
                return
        link.say_accepted(self._shut_out_before(link))
        self._come_up(link, now)

    # Which process of a node counts.

    def _take_answer(self, link: BrokerLink, now: int) -> bool:
        """A peer has answered a question that it cannot have foreseen. Returns whether its process counts."""
        assert link.theirs is not None
        self._count += 1
        peer, incarnation = self._peers[link.peer], link.theirs.incarnation
        pairs = peer.incarnations.answered(incarnation, link.asked_at, self._count)
        for twice in pairs:
            self._tell_twice(peer, twice, now)
        up = self._links.get(peer.link) if peer.link is not None else None
        if pairs and up is not None and up.theirs is not None:
            if peer.incarnations.later_than(up.theirs.incarnation):
                self._shut_out(up, now)
            else:
                self._end(up, "the node is to learn, when it comes again, that an earlier process ran beside it", now)
        return not peer.incarnations.later_than(incarnation)

    def _shut_out(self, link: BrokerLink, now: int) -> None:
        """Ends a link to a process that does not count, unless it is over, and says so."""
        assert link.theirs is not None
        if link.phase is not LinkPhase.OVER:
            peer = self._peers[link.peer]
            later = peer.incarnations.later_than(link.theirs.incarnation)
            self._tell_twice(peer, Twice(link.theirs.incarnation, later), now)
            reason = f"another process runs as node {link.peer!r}, started {started(later)}, and that one counts"
            self._end(link, reason, now, later=later)

    def _shut_out_before(self, link: BrokerLink) -> int:
        assert link.theirs is not None
        return self._peers[link.peer].incarnations.shut_out_before(link.theirs.incarnation)

    def _learn(self, earlier: int) -> None:
        """A neighbour says which earlier process of this node it has shut out; 0: none."""
        if 0 < earlier < self._me.incarnation and earlier not in self._earlier:
            self._earlier[earlier] = None
            self._effects.append(RanTwice(earlier))

    def _tell_twice(self, peer: Peer, twice: Twice, now: int) -> None:
        text = (
            f"two processes run as node {peer.name!r}: one started {started(twice.earlier)} is shut out, one started"
            f" {started(twice.later)} counts"
        )
        self._complain(AlarmCode.NODE_TWICE, peer.name, text, now)

    def _come_up(self, link: BrokerLink, now: int) -> None:
        theirs, peer = link.theirs, self._peers[link.peer]
        assert theirs is not None
        assert peer.link is None
        if peer.dial is not None and peer.dial != link.number:
            self._end(self._links[peer.dial], DUPLICATE, now, duplicate=True)
        peer.dial, peer.link = None, link.number
        self._timers.clear(("dial", peer.name))
        self._timers.clear(("missed", peer.name))
        self._timers.set(("link", link.number), now + BEAT)
        link.come_up(now, peer.traffic)
        self._touched[link.number] = None
        self._effects.append(LinkUp(link.number, link.peer, frozenset(theirs.roles), theirs.incarnation))
        if peer.missed:
            peer.missed = False
            self._say_over(AlarmCode.NODE_UNREACHABLE, peer, f"there is a link to the node {peer.name!r} again")
        self._compare_maps(peer, theirs.map_digest)

    def _compare_maps(self, peer: Peer, digest: bytes) -> None:
        differs = digest != self._me.map_digest
        if differs and not peer.differs:
            text = f"the node {peer.name!r} was started with another network file than this node"
            self._effects.append(Alarm(AlarmCode.MAPS_DIFFER, text, peer.name))
        elif peer.differs and not differs:
            self._say_over(AlarmCode.MAPS_DIFFER, peer, f"the node {peer.name!r} has the same network file")
        peer.differs = differs

    def _on_link_deadline(self, link: BrokerLink, now: int) -> None:
        if link.phase is not LinkPhase.UP:
            self._end(link, f"it did not say who it is within {GREETING_TIME // SECOND} s", now)
            return
        self._timers.set(("link", link.number), now + BEAT)
        self._touched[link.number] = None
        try:
            link.on_beat_due(now)
        except DeadLinkError as error:
            self._on_error(link, error, now)

    def _on_error(self, link: BrokerLink, error: RemoteProtocolError, now: int) -> None:
        reason = str(error)
        if not isinstance(error, DeadLinkError):
            # Who has not proven to be a node is complained of without its name: anybody may say one.
            known = link.dialed or link.phase is LinkPhase.UP
            who = f"the node {link.peer!r}" if known else "somebody"
            text = f"{who} at {link.address} was refused: {reason}"
            self._complain(AlarmCode.NODE_REFUSED, link.peer if known else "", text, now)
        told = error.told if isinstance(error, RefusedPeerError) else reason
        self._end(link, reason, now, told=told)

    def _end(
        self,
        link: BrokerLink,
        reason: str,
        now: int,
        *,
        told: str | None = "",
        duplicate: bool = False,
        later: int = 0,
    ) -> None:
        """A link is over. `told`: what the other end hears of it; "": the reason; None: nothing. `later`: see Bye."""
        was_up = link.phase is LinkPhase.UP
        is_unanswered = link.is_unanswered
        if told is not None:
            link.say_bye(told or reason, duplicate=duplicate, later=later)
            link.flush()
        link.phase = LinkPhase.OVER
        del self._links[link.number]
        self._timers.clear(("link", link.number))
        self._effects.append(EndLink(link.number, reason))
        peer = self._peers.get(link.peer)
        if peer is None or not (was_up or peer.dial == link.number):
            return  # whoever it was, it is no link of this peer's
        if was_up:
            peer.link = None
            self._effects.append(LinkDown(link.number))
        else:
            peer.dial = None
        if reason in {DUPLICATE, GIVEN_UP}:
            reason = peer.reason
        else:
            peer.ended += 1
        peer.reason = reason
        steady = link.began is not None and now - link.began >= STEADY
        peer.failures = 0 if steady else peer.failures + 1
        if peer.wanted and peer.link is None and peer.dial is None and not self._closed:
            refused = is_unanswered and now - peer.dialed_at < REFUSED_WITHIN
            most = REDIAL_REFUSED if refused else REDIAL_MOST
            self._timers.set(("dial", peer.name), now + self._pause(peer.failures, most))
            if not peer.missed:
                self._timers.set_earlier(("missed", peer.name), now + UNREACHABLE_AFTER)
            elif peer.reason != peer.told and self._complaints.may(AlarmCode.NODE_UNREACHABLE, peer.name, now):
                self._say_missed(peer)  # for another reason now

    def _pause(self, failures: int, most: int) -> int:
        pause = min(REDIAL_FIRST << min(failures, 16), most)
        return pause // 2 + int.from_bytes(self._draws.draw()[:8], "big") % (pause // 2 + 1)

    # What the operator hears.

    def _on_missed(self, peer: Peer) -> None:
        if peer.wanted and peer.link is None and not peer.missed:
            peer.missed = True
            self._say_missed(peer)

    def _say_missed(self, peer: Peer) -> None:
        peer.told = peer.reason
        text = f"there is no link to the node {peer.name!r} at {peer.address}: {peer.reason}"
        self._effects.append(Alarm(AlarmCode.NODE_UNREACHABLE, text, peer.name))

    def _complain(self, code: AlarmCode, about: BrokerId, text: str, now: int) -> None:
        if self._complaints.may(code, about, now):
            self._effects.append(Alarm(code, text, about))

    def _say_over(self, code: AlarmCode, peer: Peer, text: str) -> None:
        self._effects.append(Alarm(code, text, peer.name, over=True))


class _Complaints:
    """Lets a complaint of each code about each node through once in a period: strangers are one node."""

    def __init__(self) -> None:
        self._said: dict[tuple[AlarmCode, BrokerId], int] = {}

    def may(self, code: AlarmCode, about: BrokerId, now: int) -> bool:
        """Whether it may be said now."""
        before = self._said.get((code, about))
        if before is not None and now < before + COMPLAINT_PERIOD:
            return False
        self._said[code, about] = now
        return True


class Draws:
    """Bytes that nobody can foresee who does not know the seed."""

    def __init__(self, seed: bytes) -> None:
        self._seed = seed
        self._count = 0

    def draw(self) -> bytes:
        """32 more of them."""
        self._count += 1
        return hmac.digest(self._seed, self._count.to_bytes(8, "big"), "sha256")
