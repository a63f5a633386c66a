"""The whole of a node but its I/O: client sessions, a router and roles, turn by turn, as one pure machine.

Everything that happens in one iteration of the event loop (frames, completed syncs, reads, the timer) is
noted and fed to the parts in a single turn right after; then they run against each other until none has
anything left to say, and what they want of the world is carried out in order. So one turn makes one write,
one send per link and one timer, whatever the load. There is no task, future or log line per message.

What a part says passes one function, `_pass`, once: that is where it is counted, and where a simulator listens.

There is no clock, loop or thread in here: those are the `Shell`'s. In production it is `gapless.node.shell`,
in the simulator a process under virtual time, so what is tested there is what runs here.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast, get_args

from gapless.core.alarms import Alarm, AlarmCode, Note, RaisedAlarm, Subject
from gapless.core.gauges import Gauge, TellsInParts
from gapless.core.network import facts as routing
from gapless.core.network.incarnations import started
from gapless.core.network.seam import Effect, Router, RouterContext
from gapless.core.ports import (
    Append,
    Appended,
    AskRoom,
    Authenticator,
    Authorizer,
    ClientSession,
    Delete,
    EndSession,
    LogAnswer,
    LogQuestion,
    Operation,
    Read,
    ReadResult,
    RequestHandler,
    Role,
    RulesHold,
    RulesReplaced,
    SessionEnded,
    Set,
    Tell,
    Transmit,
    Write,
)
from gapless.core.principals import PeerInfo
from gapless.core.server import BrokerIdentity, SessionLimits, Sessions
from gapless.core.server.answering import SESSIONS_FROM
from gapless.core.server.audit import Audit, AuditLine, of_rules
from gapless.core.server.authority import Authority
from gapless.core.server.budgets import Budgets
from gapless.core.server.inquiries import Inquiries
from gapless.core.server.reception import Reception
from gapless.core.server.users import REQUESTS as USER_REQUESTS
from gapless.core.server.users import EndSessionsOf, UserEffect, Users
from gapless.core.traces import Logged, Matched
from gapless.core.wire.messages import AskStatus, ServerMessage
from gapless.core.wire.messages.asking import status_parts
from gapless.node.commit import read_records
from gapless.node.dispatch import Dispatch
from gapless.node.gauges import FACTS, RULES, SESSIONS
from gapless.node.link_owner import LinkOwner, Traffic
from gapless.security.binding import end_point

if TYPE_CHECKING:
    from gapless.spi import Link, LogVolume

Cookie: TypeAlias = "tuple[int, Hashable]"
"""Who asked (a role's position, or ROUTER), and what it called it; or its answer, where that is an `Appended`."""
ROUTER: Final = -1
SESSIONS_PART: Final = -2
NODE: Final = -3
"""Who says something, where it is none of the roles. The node itself: a link to a broker, a write that is durable."""
ROUTER_TABLE: Final = "router"
"""Where a router's `Save` goes."""

ROUNDS_MAX: Final = 1000
"""Effects of effects of effects … end long before this many rounds; more is a loop without an end."""
HOLD: Final = "hold: nothing that they forbid goes on here"
"""What becomes known of rules when all that was allowed before them is judged."""
STATUS_PART_BYTES: Final = 65_536
"""So much of a status goes into one frame."""

Network: TypeAlias = routing.SendFrame | routing.Dial | routing.Undial | routing.Hangup

Tap: TypeAlias = "Callable[[str, object], None]"
"""Hears of everything that a part says, before anybody acts on it: who ("router", "sessions", "node", or the name
of a role), and what. What the router does not say, and takes, it is about to be told."""


class Shell(Protocol):
    """The world around a machine."""

    @property
    def clock(self) -> Callable[[], tuple[int, int]]:
        """Tells monotonic nanoseconds, and milliseconds since 1970."""

    @property
    def taps(self) -> Sequence[Tap]:
        """Who listens; asked once."""

    def schedule(self) -> None:
        """Call `Machine.turn` soon, after what else happens now. Not asked for again before that turn."""

    def commit(self, operations: Sequence[Operation], cookies: Sequence[Cookie]) -> None:
        """Write all of it as one batch, see to its sync, then call `Machine.on_durable` in that order.

        Raises what the volume's `write` raises.
        """

    def carry_out_reads(self) -> None:
        """Call `Machine.read_one` for the reads that wait: now as many as there is time for, the rest later."""

    def arm(self, now: int, due: int) -> None:
        """Call `Machine.turn` at `due` or earlier."""

    def to_network(self, effect: Network) -> None:
        """Something for a link to another broker."""

    def to_log(self, source: int, question: LogQuestion) -> None:
        """A role's question to a numbered log; answers are for `Machine.on_log_answer`, with the same `source`."""

    def alarm(self, alarm: Alarm) -> None:
        """Tell the operator."""

    def note(self, note: Note) -> None:
        """Put it into the operator's log."""

    def audit_room(self) -> int:
        """How many lines of the audit can be taken until requests have to wait. Asked only where one is wanted.

        When there is room again, call `Machine.on_audit_room`.
        """

    def audit(self, lines: Sequence[AuditLine]) -> None:
        """Write these lines; the sequence is the shell's from now on."""

    def trace(self, traced: Logged | Matched, turn: int) -> None:
        """Make spans of it. `turn`: when the turn began in which a role tells it."""

    def status(self) -> Iterable[Gauge | RaisedAlarm]:
        """The shell's own figures, and the alarms: what belongs to the node's status beside the machine's figures."""

    def on_last_link_closed(self) -> None:
        """No client is connected any more."""

    def on_failed(self, error: BaseException) -> None:
        """The machine cannot go on: the storage failed, or the code. Called once."""


class Machine:
    """One node's sessions, router and roles over one volume, until they are abandoned or fail.

    `on_…` says what happened, at any time; it is taken in by the next `turn`. A turn wants of the world, in this order:
    all operations as one atomic write, which is then synced (if that fails, nothing more of this machine may leave: it
    is thrown away, and another one recovered); sends, and what else concerns a client's link; questions to numbered
    logs; then reads, which see the operations of this and all earlier turns.
    """

    def __init__(
        self,
        broker: BrokerIdentity,
        limits: SessionLimits,
        receptions: Sequence[Reception],
        users: Users,
        authority: Authority,
        router: Router,
        roles: Sequence[Role],
        volume: LogVolume,
        audit: Audit,
        budgets: Budgets,
        shell: Shell,
    ) -> None:
        """Raises ConfigurationError when two roles claim the same message, or a fact that concerns no pubend."""
        self._users = users
        self._authority = authority
        self._router = router
        self._roles = tuple(roles)
        self._volume = volume
        self._audit = audit
        self._shell = shell
        self._dispatch = Dispatch(roles)
        inquired = self._dispatch.inquired
        inquired[AskStatus] = {NODE: self._on_ask_status}
        self._inquiries = Inquiries(broker, authority, inquired, self._tell_session, audit)
        self._dispatch.take_node_mail(self._inquiries.on_posted)
        self._dispatch.of_sessions[SessionEnded].append(self._inquiries.on_session_ended)
        requests = self._request_handlers()
        self.sessions = Sessions(broker, limits, receptions, authority, requests, audit, budgets)
        self._receptions = tuple(receptions)
        self._status_part_bytes = min(STATUS_PART_BYTES, limits.frame_bytes // 2)
        self._to_router = router.handlers()
        self._from_roles = self._role_effects()
        self._from_router = self._router_effects()
        self._to_roles = {kind: to for kind, to in self._dispatch.facts.items() if kind not in self._from_router}
        self.alive = True
        """Whether it has neither failed nor been abandoned."""
        self.scheduled = False
        """Whether a turn is due."""
        self.reads: deque[tuple[int, Read]] = deque()
        """What waits to be read, and which role asked."""
        self.links: dict[int, LinkOwner] = {}
        """The clients' links, by number."""
        self.traffic = Traffic()
        self._link_count = 0
        self.links_closed = 0
        """How many of them are over."""
        self._broker_links: set[int] = set()
        """The links to other brokers."""
        self._needs_network = False
        """Whether all pubends are at other nodes."""
        self._broker_pending: dict[int, int] = {}
        """How many bytes wait on each link to another broker, as was last said."""
        self._events: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        """What happened, to be taken in by the next turn."""
        self._due: int | None = None
        self._role_dues: list[int | None] = [None] * len(self._roles)
        """The deadline of each role, as it was when the role was last asked what it wants."""
        self._now, self._wall = 0, 0
        self._names = {ROUTER: "router", SESSIONS_PART: "sessions", NODE: "node"} | {
            source: role.name for source, role in enumerate(roles)
        }
        self._taps = tuple(shell.taps)
        self._counts: dict[int, dict[type, int]] = {source: defaultdict(int) for source in self._names}
        self._queue: list[Effect] = []
        """Effects of the router that have not been carried out."""
        self._operations: list[Operation] = []
        self._cookies: list[Cookie] = []
        self._alarms: list[Alarm] = []
        self._network: list[Network] = []
        self._questions: list[tuple[int, LogQuestion]] = []
        """To numbered logs, and which role asks each."""

    # Getters.

    def gauges(self) -> Iterator[Gauge]:
        """The figures of the sessions, of the router, of each role, and of what they say to each other."""
        return chain.from_iterable(self.parts())

    def parts(self) -> Iterator[Iterable[Gauge]]:
        """The same, part by part: each is to be read at once, but between two of them there may be turns."""
        yield [SESSIONS.gauge(self.sessions.count), *self.sessions.gauges(), *self.traffic.gauges()]
        if self._authority.asks:
            yield [RULES.gauge(self._authority.holds, self._authority.name)]
        yield self._router.gauges()
        for role in self._roles:
            yield from role.parts() if isinstance(role, TellsInParts) else (role.gauges(),)
        rows = ((source, kind, count) for source, counts in self._counts.items() for kind, count in counts.items())
        yield (FACTS.gauge(count, self._names[source], kind.__name__) for source, kind, count in rows)

    def authenticators(self) -> Iterator[Authenticator]:
        """Those of one listener after the other."""
        for reception in self._receptions:
            yield from reception.authenticators

    # What happened.

    def start(self, now: int, wall: int, context: RouterContext) -> None:
        """The first call: the router starts, then each role says what there is."""
        self._now, self._wall = now, wall
        self._authority.begin()
        self._inquiries.start(context.network)
        nodes = context.network.nodes
        self._needs_network = len(nodes) > 1 and nodes[context.broker].roles == {"shb"}
        self._count_broker_links()
        self._tell_router(context, NODE)
        for source, role in enumerate(self._roles):
            role.start(now, wall)
            self._dispatch.touched.add(source)

    def accept(self, link: Link, listener: int) -> LinkOwner:
        """A client connected through the listener with this number; the owner hears its link."""
        self._link_count += 1
        number = self._link_count
        owner = self.links[number] = LinkOwner(self, number, link)
        binding = end_point(link.shown) if link.shown else b""
        peer = PeerInfo(link.peer, link.certificate, link.secure, self._receptions[listener].is_local, binding)
        self._happened(self._take_link, number, peer, listener)
        return owner

    def on_frames(self, number: int, payloads: Sequence[bytes]) -> None:
        """Frames arrived on a client's link."""
        self._happened(self._take_frames, number, payloads)

    def on_broken(self, number: int, reason: str) -> None:
        """What came on a client's link breaks the framing, or is too much: nothing more is read there."""
        self._happened(self._take_broken, number, reason)

    def on_drained(self, number: int) -> None:
        """Little is pending on a link on which much was."""
        owner = self.links.get(number)
        if owner is not None:
            owner.pending = owner.link.pending
            self._happened(self._take_pending, number, owner.pending)

    def on_closed(self, number: int) -> None:
        """A client's link is over."""
        self.links.pop(number, None)
        self.links_closed += 1
        if not self.links:
            self._shell.on_last_link_closed()
        self._happened(self._take_closed, number)

    def on_durable(self, cookies: Sequence[Cookie]) -> None:
        """The writes with these cookies are on disk."""
        self._happened(self._take_durable, cookies)

    def on_space(self, *, low: bool) -> None:
        """The disk is nearly full, or no longer."""
        self._happened(self._take_space, low)

    def on_broker_link(self, number: int, peer: str, peer_roles: frozenset[str], incarnation: int) -> None:
        """A link to another broker is there."""
        self._broker_links.add(number)
        self._happened(self._count_broker_links)
        self._happened(self._tell_router, routing.LinkUp(number, peer, peer_roles, incarnation), NODE)

    def on_broker_frame(self, number: int, frame: bytes) -> None:
        """A frame of another broker arrived."""
        self._happened(self._take_broker_frame, number, frame)

    def on_broker_pending(self, number: int, pending: int) -> None:
        """So many bytes have not left for a link to another broker: said after each send, and as they leave."""
        before = self._broker_pending.get(number, 0)
        self._broker_pending[number] = pending
        if routing.told_of_room(before, pending):
            self._happened(self._tell_router, routing.LinkRoom(number, pending), NODE)

    def on_broker_link_closed(self, number: int) -> None:
        """A link to another broker is gone."""
        self._broker_pending.pop(number, None)
        self._broker_links.discard(number)
        self._happened(self._count_broker_links)
        self._happened(self._tell_router, routing.LinkDown(number), NODE)

    def on_ran_twice(self, ran: routing.RanTwice) -> None:
        """A neighbour has shut out an earlier process of this node, which ran beside this one."""
        self._happened(self._take_ran_twice, ran)

    def on_authorizer(self, authorizer: Authorizer) -> None:
        """Another authorizer is to decide who may do what."""
        self._happened(self._take_authorizer, authorizer)

    def on_audit_room(self) -> None:
        """Lines of the audit were written: requests that wait for that go on in the next turn."""
        self._happened(lambda: None)

    def on_log_answer(self, source: int, answer: LogAnswer) -> None:
        """A numbered log answers the role at this position."""
        self._happened(self._take_log_answer, source, answer)

    def on_credentials_over(self, name: str, reason: str) -> None:
        """An authenticator has found that the credentials of this principal count no more (`AuthContext.end`)."""
        self._happened(self._say_of_users, [EndSessionsOf(name, reason, 0)])

    # Commands.

    def close(self, reason: str) -> None:
        """Ends all sessions in order, and refuses new ones."""
        self._happened(self._close_sessions, reason)

    def read_one(self) -> None:
        """Carries out the read that waits longest; its answer is taken in by the next turn."""
        source, read = self.reads.popleft()
        self._happened(self._roles_on_read, source, read_records(self._volume, read))

    def fail(self, error: BaseException) -> None:
        """Nothing is carried out any more, because of this."""
        if self.alive:
            self.alive = False
            lines, self._audit.lines = self._audit.lines, []
            self._shell.audit(lines)  # of what was tried, whatever has become of it
            self._shell.on_failed(error)

    def abandon(self) -> dict[int, LinkOwner]:
        """Nothing is carried out any more. Returns the links, which are the caller's now."""
        self.alive = False
        links, self.links = self.links, {}
        self._events.clear()
        self.reads.clear()
        return links

    # The turn.

    def turn(self) -> None:
        """Takes in all that happened, and carries out what follows from it."""
        self.scheduled = False
        if not self.alive:
            return
        try:
            now, wall = self._now, self._wall = self._shell.clock()
            if self._audit.is_wanted:
                self._audit.begin_turn(wall, self._shell.audit_room())
            self.sessions.begin_turn(now)
            events, self._events = self._events, []
            for take, arguments in events:
                take(*arguments)
            if self._due is not None and self._due <= now:
                self._on_deadline(now, wall)
            if self.sessions.is_behind:
                self._happened(self._take_late_frames)
            self._run()
            self._carry_out()
            if self.reads:
                self._shell.carry_out_reads()
            self._due = self.deadline()
            if self._due is not None:
                self._shell.arm(now, self._due)
        except Exception as error:  # noqa: BLE001 - whatever it is, this machine cannot go on
            self.fail(error)

    def deadline(self) -> int | None:
        """When there is something to do although nothing happens (monotonic nanoseconds), or None."""
        due = self.sessions.deadline()
        wake = self._router.next_wake()
        if wake is not None and (due is None or wake < due):
            due = wake
        wake = self._inquiries.deadline()
        if wake is not None and (due is None or wake < due):
            due = wake
        for wake in self._role_dues:
            if wake is not None and (due is None or wake < due):
                due = wake
        return due

    def _happened(self, take: Callable[..., None], *arguments: Any) -> None:
        if self.alive:
            self._events.append((take, arguments))
            if not self.scheduled:
                self.scheduled = True
                self._shell.schedule()

    # What happened, in the turn that takes it in.

    def _take_link(self, number: int, peer: PeerInfo, listener: int) -> None:
        self.sessions.on_link(number, peer, listener, self._now)

    def _take_frames(self, number: int, payloads: Sequence[bytes]) -> None:
        self.sessions.on_frames(number, payloads, self._now, self._wall)
        if self.sessions.effects:
            self._take_from_sessions()

    def _take_late_frames(self) -> None:
        self.sessions.take_late(self._now, self._wall)
        if self.sessions.effects:
            self._take_from_sessions()

    def _take_broken(self, number: int, reason: str) -> None:
        self.sessions.on_broken(number, reason, self._now)
        if self.sessions.effects:
            self._take_from_sessions()

    def _take_closed(self, number: int) -> None:
        self.sessions.on_link_closed(number)
        if self.sessions.effects:
            self._take_from_sessions()

    def _take_pending(self, number: int, pending: int) -> None:
        self.sessions.on_pending(number, pending, self._now)
        if self.sessions.effects:
            self._take_from_sessions()

    def _take_broker_frame(self, number: int, frame: bytes) -> None:
        self._tell_router(routing.FrameArrived(number, frame, self._wall), NODE)

    def _take_durable(self, cookies: Iterable[Cookie]) -> None:
        now, wall = self._now, self._wall
        for source, cookie in cookies:
            if source == ROUTER:
                self._tell_router(routing.Saved(cookie), NODE)
                continue
            if source == NODE:
                self._say_of_users(self._users.on_durable(cast("int", cookie)))
                continue
            self._dispatch.touched.add(source)
            if type(cookie) is Appended:
                self._dispatch.log_answers[source][Appended](cookie, now, wall)
            else:
                self._roles[source].on_durable(cookie, now, wall)

    def _say_of_users(self, said: Iterable[UserEffect]) -> None:
        for effect in said:
            self._from_roles[type(effect)](effect, NODE)
        if self.sessions.effects:
            self._take_from_sessions()

    def _roles_on_read(self, source: int, result: ReadResult) -> None:
        self._dispatch.touched.add(source)
        self._roles[source].on_read(result, self._now, self._wall)

    def _take_log_answer(self, source: int, answer: LogAnswer) -> None:
        self._dispatch.log_answers[source][type(answer)](answer, self._now, self._wall)

    def _take_ran_twice(self, ran: routing.RanTwice) -> None:
        text = (
            f"another process of node {self.sessions.node!r}, started {started(ran.other)}, ran beside one on this"
            " volume, perhaps on a copy of it. This process counts; events that only that one has logged are lost, and"
            " subscriptions that were not sent them get a gap"
        )
        self._alarm(Alarm(AlarmCode.NODE_TWICE, text, self.sessions.node), NODE)
        self._pass(NODE, ran)
        for handler in self._dispatch.of_node[type(ran)]:
            handler(ran, self._now, self._wall)

    def _take_authorizer(self, authorizer: Authorizer) -> None:
        authority, told = self._authority, self._dispatch.of_node[RulesReplaced]
        authority.replace(authorizer, self._dispatch.judges)
        replaced = RulesReplaced(authority.version)
        self._pass(NODE, replaced)
        self._tell_of_rules("count for what is asked from now on")
        for handler in told:
            handler(replaced, self._now, self._wall)
        if authority.holds:
            self._tell_of_rules(HOLD)

    def _on_rules_hold(self, held: RulesHold, source: int) -> None:
        self._pass(source, held)
        if self._authority.on_held(source, held.version):
            self._tell_of_rules(HOLD)

    def _tell_of_rules(self, what: str) -> None:
        name = self._authority.name or f"of the version {self._authority.version}"
        self._note(Note(Subject.RULES, f"the rules {name} {what}"), NODE)
        if self._audit.is_wanted:
            self._on_audit_line(of_rules(name, what), NODE)

    def _count_broker_links(self) -> None:
        if self._needs_network:
            self.sessions.on_network(len(self._broker_links), self._now)

    def _take_space(self, low: bool) -> None:  # noqa: FBT001 - an event's arguments have no names
        for source, role in enumerate(self._roles):
            self._dispatch.touched.add(source)
            role.on_space(self._now, self._wall, low=low)

    def _close_sessions(self, reason: str) -> None:
        self.sessions.close(reason)
        if self.sessions.effects:
            self._take_from_sessions()

    def _on_deadline(self, now: int, wall: int) -> None:
        self.sessions.on_deadline(now)
        if self.sessions.effects:
            self._take_from_sessions()
        wake = self._router.next_wake()
        if wake is not None and wake <= now:
            self._tell_router(routing.Wake(), NODE)
        wake = self._inquiries.deadline()
        if wake is not None and wake <= now:
            self._inquiries.on_deadline(now, wall)
        for source, due in enumerate(self._role_dues):
            if due is not None and due <= now:
                self._dispatch.touched.add(source)
                self._roles[source].on_deadline(now, wall)

    # The parts against each other: what the router said, then what each role says to it, until all are silent.

    def _run(self) -> None:
        """A part to which nothing happened is not asked: what a role wants changes when it is called, and only then."""
        now, wall, touched = self._now, self._wall, self._dispatch.touched
        rounds = 0
        posts = self._inquiries.posts
        while self._queue or touched or posts:
            rounds += 1
            if rounds > ROUNDS_MAX:
                raise AssertionError(f"the node's parts still talk after {ROUNDS_MAX} rounds: {self._queue[:3]}")
            if self._queue:
                self._take_from_router(now, wall)
            if touched:
                asked = sorted(touched) if len(touched) > 1 else tuple(touched)
                touched.clear()
                for source in asked:
                    role = self._roles[source]
                    for said in role.take_effects(now, wall):
                        self._from_roles[type(said)](said, source)
                    self._role_dues[source] = role.deadline()
            if self.sessions.effects:
                self._take_from_sessions()
            if posts:
                for post in posts:
                    self._tell_router(post, NODE)
                posts.clear()

    def _take_from_router(self, now: int, wall: int) -> None:
        """What is no role's comes first: a publisher's receipt leaves before its event is cut for all who want it."""
        queue, self._queue = self._queue, []
        to_roles = self._to_roles
        for_roles = []
        for effect in queue:
            if type(effect) in to_roles:
                for_roles.append(effect)
            else:
                self._from_router[type(effect)](effect)
        if for_roles and self.sessions.has_receipts:
            self._serve_links()
        for effect in for_roles:
            to_roles[type(effect)](effect, now, wall)

    def _take_from_sessions(self) -> None:
        """At once, so that no role hears of a later session before it knows that an earlier one is over."""
        for effect in self.sessions.take_effects():
            if type(effect) in (routing.Submit, routing.SubmitOpen):
                self._tell_router(effect, SESSIONS_PART)
            elif type(effect) is Alarm:
                self._alarm(effect, SESSIONS_PART)
            elif type(effect) is Note:
                self._note(effect, SESSIONS_PART)
            else:
                self._pass(SESSIONS_PART, effect)
                for handler in self._dispatch.of_sessions[type(effect)]:
                    handler(effect, self._now, self._wall)

    def _pass(self, source: int, said: object) -> None:
        """The one tap: everything that a part says passes here once, before anybody acts on it."""
        self._counts[source][type(said)] += 1
        for hear in self._taps:
            hear(self._names[source], said)

    def _tell_router(self, fact: object, source: int) -> None:
        self._pass(source, fact)
        said = self._to_router[type(fact)](self._now, fact)
        if said:
            for effect in said:
                self._pass(ROUTER, effect)
            self._queue += said

    # What each effect and each request means.

    def _request_handlers(self) -> dict[type, RequestHandler]:
        return {
            **self._dispatch.requests,
            **dict.fromkeys(self._dispatch.inquired, self._inquiries.on_request),
            **dict.fromkeys(USER_REQUESTS, self._on_user_request),
        }

    def _role_effects(self) -> dict[type, Callable[[Any, int], None]]:
        return {
            **dict.fromkeys(self._to_router, self._tell_router),
            **dict.fromkeys(get_args(LogQuestion), self._ask_log),
            routing.Opened: self._on_opened,
            routing.Post: self._on_post,
            Write: self._write,
            Read: self._read,
            Tell: self._tell,
            Transmit: self._transmit,
            AskRoom: self._ask_room,
            EndSession: self._end_session,
            EndSessionsOf: self._end_sessions_of,
            Alarm: self._alarm,
            Note: self._note,
            AuditLine: self._on_audit_line,
            RulesHold: self._on_rules_hold,
            **dict.fromkeys((Logged, Matched), self._trace),
        }

    def _router_effects(self) -> dict[type, Callable[[Any], None]]:
        return {
            routing.Submitted: self._on_submitted,
            routing.Save: self._save,
            **dict.fromkeys(get_args(Network), self._to_network),
            Alarm: self._on_router_alarm,
        }

    def _on_submitted(self, placed: routing.Submitted) -> None:
        if type(placed.reply_to) is routing.RoleAsks:
            self._dispatch.on_answered(placed.reply_to, placed, self._now, self._wall)
        else:
            self.sessions.on_placed(placed)

    def _to_network(self, effect: Network) -> None:
        self._network.append(effect)

    def _on_router_alarm(self, alarm: Alarm) -> None:
        self._alarms.append(alarm)

    def _on_opened(self, opened: routing.Opened, source: int) -> None:
        self._dispatch.on_opened(opened, source)
        self._tell_router(opened, source)

    def _on_post(self, post: routing.Post, source: int) -> None:
        if len(post.data) > routing.MAIL_BYTES_MAX:
            raise ValueError(f"mail to {post.role} of {post.to_node!r} has {len(post.data):,} bytes")
        self._tell_router(post, source)

    def _tell(self, tell: Tell, source: int) -> None:
        self._pass(source, tell)
        if tell.session > SESSIONS_FROM:
            self._inquiries.on_told(tell, source, self._now, self._wall)
        else:
            self.sessions.tell(tell.session, tell.message)

    def _tell_session(self, session: int, message: ServerMessage) -> None:
        self.sessions.tell(session, message)

    def _transmit(self, transmit: Transmit, source: int) -> None:
        self._pass(source, transmit)
        self.sessions.transmit(transmit.session, transmit.payloads)

    def _ask_room(self, ask: AskRoom, source: int) -> None:
        self._pass(source, ask)
        self.sessions.ask_room(ask.session, ask.upto)

    def _end_session(self, end: EndSession, source: int) -> None:
        self._pass(source, end)
        self.sessions.end(end.session, end.reason)

    def _end_sessions_of(self, end: EndSessionsOf, source: int) -> None:
        self._pass(source, end)
        self.sessions.end_sessions_of(end.name, end.reason, end.but)

    def _alarm(self, alarm: Alarm, source: int) -> None:
        self._pass(source, alarm)
        self._alarms.append(alarm)

    def _note(self, note: Note, source: int) -> None:
        self._pass(source, note)
        self._shell.note(note)

    def _trace(self, traced: Logged | Matched, source: int) -> None:
        self._pass(source, traced)
        self._shell.trace(traced, self._now)

    def _on_audit_line(self, line: AuditLine, source: int) -> None:
        self._pass(source, line)
        self._audit.on_told(line, self.sessions.address_of(line.session))

    def _write(self, write: Write, source: int) -> None:
        """A log of the volume takes each index as it is proposed: its answer waits for the sync alone."""
        self._pass(source, write)
        self._operations.extend(write.operations)
        for operation in write.operations:
            if type(operation) is Append:
                assert operation.indices is not None, f"the log {operation.log} of the volume numbers nothing itself"
                self._cookies.append((source, Appended(operation.cookie, operation.indices)))
        if write.cookie is not None:
            self._cookies.append((source, write.cookie))

    def _ask_log(self, question: LogQuestion, source: int) -> None:
        self._pass(source, question)
        self._questions.append((source, question))

    def _read(self, read: Read, source: int) -> None:
        self._pass(source, read)
        self.reads.append((source, read))

    def _save(self, save: routing.Save) -> None:
        key = save.key.encode()
        self._operations.append(Delete(ROUTER_TABLE, key) if save.value is None else Set(ROUTER_TABLE, key, save.value))
        if save.cookie is not None:
            self._cookies.append((ROUTER, save.cookie))

    def _on_ask_status(self, client: ClientSession, request: AskStatus, _now: int, _wall: int) -> None:
        for part in status_parts(request.request, [*self.gauges(), *self._shell.status()], self._status_part_bytes):
            self._inquiries.on_told(Tell(client.number, part), NODE, self._now, self._wall)

    def _on_user_request(self, client: ClientSession, request: Any, _now: int, wall: int) -> None:
        is_local = self.sessions.is_local(client.number)
        for effect in self._users.on_request(client, request, wall, is_local=is_local):
            self._from_roles[type(effect)](effect, NODE)

    # Carrying it out.

    def _carry_out(self) -> None:
        if self._operations or self._cookies:
            operations, self._operations = self._operations, []
            cookies, self._cookies = self._cookies, []
            self._shell.commit(operations, cookies)
        self._serve_links()
        if self._alarms:
            alarms, self._alarms = self._alarms, []
            for alarm in alarms:
                self._shell.alarm(alarm)
        if self._audit.lines:
            self._shell.audit(self._audit.lines)
            self._audit.lines = []
        if self._network:
            network, self._network = self._network, []
            for effect in network:
                self._shell.to_network(effect)
        if self._questions:
            questions, self._questions = self._questions, []
            for source, question in questions:
                self._shell.to_log(source, question)

    def _serve_links(self) -> None:
        served = self.sessions.take_links(self._now)
        for number, work in served.items():
            owner = self.links.get(number)
            if owner is not None:
                owner.serve(work, self._now)
        if served and self.sessions.has_more:  # a link was judged by what waits on it
            self._happened(self._take_from_sessions)
