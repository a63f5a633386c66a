"""The whole of a node but its I/O: client sessions, a router and roles, composed into one pure machine.

Whoever drives it (the asyncio driver in production, the simulator in tests) says what happened with
`on_*`, any number of times, and then takes one `Output`: what the whole step wants of the world. Taking
it runs the parts against each other until none has anything left to say, so everything that happened in
one turn of the loop meets in one group of writes and in one send per link.

Rules of this module: as for the cores (`gapless.core`): no clock, no I/O, no task, no randomness.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias, cast, get_args

from msgspec import Struct
from msgspec.structs import replace

from gapless.core.alarms import Alarm, RaisedAlarm
from gapless.core.gauges import Gauge
from gapless.core.network import facts as routing
from gapless.core.network.seam import Effect, Router, RouterContext
from gapless.core.ports import (
    Append,
    Appended,
    Authorizer,
    ClientSession,
    Delete,
    EndSession,
    Handler,
    Operation,
    Read,
    ReadResult,
    RequestHandler,
    Role,
    SessionEnded,
    Set,
    Tell,
    Transmit,
    Write,
)
from gapless.core.server import BrokerIdentity, LinkOutput, SessionLimits, Sessions
from gapless.core.stream.ticks import PubendId
from gapless.core.wire.messages import AskStatus
from gapless.core.wire.messages.asking import status_parts
from gapless.errors import ConfigurationError
from gapless.node.gauges import SESSIONS
from gapless.node.merging import MERGES, MergedRequests
from gapless.selectors.topics import topic_matches

if TYPE_CHECKING:
    from gapless.spi import Authenticator

Cookie: TypeAlias = "tuple[int, Hashable]"
"""Who asked (a role's position, or ROUTER), and what it called it; or its answer, where that is an `Appended`."""
ROUTER = -1
ROUTER_TABLE = "router"
"""Where a router's `Save` goes."""

ROUNDS_MAX = 1000
"""Effects of effects of effects … end long before this many rounds; more is a loop without an end."""

STATUS_PART_BYTES = 65_536
"""So much of a status goes into one frame."""

Network: TypeAlias = routing.SendFrame | routing.Dial | routing.Hangup


PUBEND_OF: dict[type, Callable[[Any], PubendId]] = {
    routing.AskPubend: attrgetter("want.pubend"),
    routing.Enrol: attrgetter("pubend"),
    routing.Hold: attrgetter("pubend"),
    routing.Released: attrgetter("pubend"),
    routing.SubmitOpen: attrgetter("request.pubend"),
    routing.Submit: attrgetter("pub.pubend"),
}
"""What concerns a pubend goes to whoever hosts it: two roles may take the same of these, no other fact."""


class Output(Struct):
    """What a step wants of the world, to be done in this order.

    1. `operations`: all of them as one atomic write, then synced; then `on_durable(cookies)`. If it fails,
       nothing more of this machine may leave: it is thrown away, and another one recovered.
    2. `links`: sends, and what else concerns a client's link.
    3. `reads`: each answered by `on_read`; they see the operations of this and all earlier outputs.
    """

    operations: list[Operation] = []
    cookies: list[Cookie] = []
    links: dict[int, LinkOutput] = {}
    reads: list[Read] = []
    network: list[Network] = []
    """For links to other brokers."""
    alarms: list[Alarm] = []

    def __bool__(self) -> bool:
        return bool(self.operations or self.cookies or self.links or self.reads or self.network or self.alarms)


class Machine:
    """One node's sessions, router and roles."""

    def __init__(
        self,
        broker: BrokerIdentity,
        limits: SessionLimits,
        authenticator: Authenticator,
        authorizer: Authorizer,
        router: Router,
        roles: Sequence[Role],
    ) -> None:
        """Raises ConfigurationError when two roles claim the same message, or a fact that concerns no pubend."""
        self._router = router
        self._roles = tuple(roles)
        self._merged = MergedRequests()
        """What clients asked and several roles answer."""
        requests = {**requests_of(roles, self._merged), AskStatus: self._on_ask_status}
        self.sessions = Sessions(broker, limits, authenticator, authorizer, requests)
        self._status_part_bytes = min(STATUS_PART_BYTES, limits.frame_bytes // 2)
        self.around: Callable[[], Iterable[Gauge | RaisedAlarm]] = tuple
        """What else belongs to the status: the figures and the alarms of whatever drives this machine."""
        self._to_router = router.handlers()
        self._to_roles = handlers_of(roles)
        self._hosted: dict[PubendId, tuple[int, routing.PubendMeta]] = {}
        """The pubends of this node: whose each is, by the role's position, and what was last said of it."""
        handlers = [role.handlers() for role in roles]
        self._mailboxes = {
            role.name: table[routing.Posted]
            for role, table in zip(roles, handlers, strict=True)
            if routing.Posted in table
        }
        self._session_ended = [table[SessionEnded] for table in handlers if SessionEnded in table]
        self._session_ended.append(self._merged.on_session_ended)
        self._appended = [table.get(Appended, _nobody) for table in handlers]
        self._from_roles = self._role_effects()
        self._from_router = self._router_effects()
        self._queue: list[Effect] = []
        """Effects of the router that have not been carried out."""
        self._output = Output()
        self._now = 0
        self._wall = 0

    # What happened.

    def start(self, now: int, wall: int, context: RouterContext) -> None:
        """The first call: the router starts, then each role says what there is."""
        self._at(now, wall)
        self._tell_router(context)
        for role in self._roles:
            role.start(now, wall)

    def on_link(self, link: int, peer: str, now: int, wall: int) -> None:
        """A client connected; `link` is a number that was never used before."""
        self._at(now, wall)
        self.sessions.on_link(link, peer, now)

    def on_frames(self, link: int, payloads: Sequence[bytes], now: int, wall: int) -> None:
        """Frames arrived on a client's link."""
        self._at(now, wall)
        self.sessions.on_frames(link, payloads, now, wall)
        self._take_from_sessions()

    def on_link_broken(self, link: int, reason: str, now: int, wall: int) -> None:
        """What came on a client's link breaks the framing, or is too much: nothing more is read there."""
        self._at(now, wall)
        self.sessions.on_broken(link, reason, now)
        self._take_from_sessions()

    def on_link_closed(self, link: int, now: int, wall: int) -> None:
        """A client's link is gone."""
        self._at(now, wall)
        self.sessions.on_link_closed(link)
        self._take_from_sessions()

    def on_pending(self, link: int, pending: int, now: int, wall: int) -> None:
        """So many bytes have not left for a client's link: said after each send, and when it has drained."""
        self._at(now, wall)
        self.sessions.on_pending(link, pending, now)
        self._take_from_sessions()

    def on_durable(self, cookies: Iterable[Cookie], now: int, wall: int) -> None:
        """The operations of the outputs that held these cookies are on disk. In the order of the outputs."""
        self._at(now, wall)
        for source, cookie in cookies:
            if source == ROUTER:
                self._tell_router(routing.Saved(cookie))
            elif type(cookie) is Appended:
                self._appended[source](cookie, now, wall)
            else:
                self._roles[source].on_durable(cookie, now, wall)

    def on_read(self, result: ReadResult, now: int, wall: int) -> None:
        """A read is answered; its cookie is the one that the output gave it."""
        self._at(now, wall)
        source, cookie = cast("Cookie", result.cookie)
        self._roles[source].on_read(replace(result, cookie=cookie), now, wall)

    def on_space(self, now: int, wall: int, *, low: bool) -> None:
        """The disk is nearly full, or no longer."""
        self._at(now, wall)
        for role in self._roles:
            role.on_space(now, wall, low=low)

    def on_deadline(self, now: int, wall: int) -> None:
        """The time of `deadline()` has come."""
        self._at(now, wall)
        self.sessions.on_deadline(now)
        self._take_from_sessions()
        wake = self._router.next_wake()
        if wake is not None and wake <= now:
            self._tell_router(routing.Wake())
        for role in self._roles:
            due = role.deadline()
            if due is not None and due <= now:
                role.on_deadline(now, wall)

    def on_broker_link(
        self, link: int, peer: str, peer_roles: frozenset[str], incarnation: int, now: int, wall: int
    ) -> None:
        """A link to another broker is there."""
        self._at(now, wall)
        self._tell_router(routing.LinkUp(link, peer, peer_roles, incarnation))

    def on_broker_frame(self, link: int, frame: bytes, now: int, wall: int) -> None:
        """A frame of another broker arrived."""
        self._at(now, wall)
        self._tell_router(routing.FrameArrived(link, frame))

    def on_broker_link_closed(self, link: int, now: int, wall: int) -> None:
        """A link to another broker is gone."""
        self._at(now, wall)
        self._tell_router(routing.LinkDown(link))

    # Commands.

    def close(self, reason: str, now: int, wall: int) -> None:
        """Ends all sessions in order, and refuses new ones."""
        self._at(now, wall)
        self.sessions.close(reason)
        self._take_from_sessions()

    # What to do.

    def take_output(self) -> Output:
        """Runs until nothing is left to say, and returns what the step wants; emptied by the call."""
        for _ in range(ROUNDS_MAX):
            if not self._run_round():
                break
        else:
            raise AssertionError(f"the node's parts still talk after {ROUNDS_MAX} rounds: {self._queue[:3]}")
        output = self._output
        self._output = Output()
        output.links = self.sessions.take_links(self._now)
        return output

    def deadline(self) -> int | None:
        """When `on_deadline` wants to be called (monotonic nanoseconds), or None."""
        wakes = [self.sessions.deadline(), self._router.next_wake(), *[role.deadline() for role in self._roles]]
        return min([wake for wake in wakes if wake is not None], default=None)

    def role(self, name: str) -> Role | None:
        """The role of that name, if this node hosts it: for an operator's commands."""
        return next((role for role in self._roles if role.name == name), None)

    def gauges(self) -> Iterator[Gauge]:
        """The figures of the sessions, of the router and of each role."""
        yield SESSIONS.gauge(self.sessions.count)
        yield from self._router.gauges()
        for role in self._roles:
            yield from role.gauges()

    def _on_ask_status(self, client: ClientSession, request: AskStatus, _now: int, _wall: int) -> None:
        for part in status_parts(request.request, [*self.gauges(), *self.around()], self._status_part_bytes):
            self.sessions.tell(client.number, part)

    # One round: what the router said, then what each role says to it.

    def _run_round(self) -> bool:
        """Returns whether anybody said something in it that somebody may have an answer to."""
        queue, self._queue = self._queue, []
        from_router, from_roles = self._from_router, self._from_roles
        for effect in queue:
            from_router[type(effect)](effect)
        busy = False
        for source, role in enumerate(self._roles):
            for said in role.take_effects():
                from_roles[type(said)](said, source)
                busy = True
        return self._take_from_sessions() or busy or bool(self._queue)

    def _take_from_sessions(self) -> bool:
        """At once, so that no role hears of a later session before it knows that an earlier one is over.

        Returns whether there was anything.
        """
        effects = self.sessions.take_effects()
        for effect in effects:
            if type(effect) in (routing.Submit, routing.SubmitOpen):
                self._tell_router(effect)
            elif type(effect) is Alarm:
                self._output.alarms.append(effect)
            else:
                for handler in self._session_ended:
                    handler(effect, self._now, self._wall)
        return bool(effects)

    def _tell_router(self, fact: object, _source: int = ROUTER) -> None:
        self._queue.extend(self._to_router[type(fact)](self._now, fact))

    def _at(self, now: int, wall: int) -> None:
        self._now = now
        self._wall = wall

    # What each effect means.

    def _role_effects(self) -> dict[type, Callable[[Any, int], None]]:
        transmit, end = self.sessions.transmit, self.sessions.end
        return {
            **dict.fromkeys(self._to_router, self._tell_router),
            routing.Opened: self._on_opened,
            routing.Post: self._on_post,
            Write: self._write,
            Read: self._read,
            Tell: self._tell_client,
            Transmit: lambda effect, _: transmit(effect.session, effect.payloads),
            EndSession: lambda effect, _: end(effect.session, effect.reason),
            Alarm: self._on_alarm,
        }

    def _router_effects(self) -> dict[type, Callable[[Any], None]]:
        return {
            **{kind: self._to_roles_of(kind, takers) for kind, takers in self._to_roles.items()},
            routing.Submitted: self.sessions.on_placed,
            routing.Save: self._save,
            routing.Posted: self._on_posted,
            routing.SendFrame: self._to_network,
            routing.Dial: self._to_network,
            routing.Hangup: self._to_network,
            Alarm: self._on_alarm,
        }

    def _to_roles_of(self, kind: type, takers: Mapping[int, Handler]) -> Callable[[Any], None]:
        if len(takers) > 1:
            return lambda effect: self._to_host(kind, takers, effect)
        handler = next(iter(takers.values()), _nobody)
        return lambda effect: handler(effect, self._now, self._wall)

    def _to_host(self, kind: type, takers: Mapping[int, Handler], effect: Any) -> None:
        """Of several roles, the one that hosts the pubend; of a pubend that nobody hosts, the first has to say so."""
        pubend = PUBEND_OF[kind](effect)
        if not pubend and kind is routing.SubmitOpen:
            pubend = self._pubend_for(effect.request.topic)
        source = self._hosted[pubend][0] if pubend in self._hosted else next(iter(takers))
        takers.get(source, _nobody)(effect, self._now, self._wall)

    def _pubend_for(self, topic: str | None) -> PubendId:
        """A pubend of the host that a publisher is to be opened at: of the first one that carries its topic."""
        for _, meta in sorted(self._hosted.values(), key=itemgetter(0)):
            if not meta.sealed and (topic is None or any(topic_matches(pattern, topic) for pattern in meta.topics)):
                return meta.pubend
        return ""

    def _on_opened(self, opened: routing.Opened, source: int) -> None:
        """A role hosts a pubend: that is how it registers for what concerns it."""
        host, _ = self._hosted.setdefault(opened.meta.pubend, (source, opened.meta))
        if host != source:
            names = self._roles[host].name, self._roles[source].name
            raise ConfigurationError(f"the roles {names[0]!r} and {names[1]!r} both host {opened.meta.pubend}")
        self._hosted[opened.meta.pubend] = source, opened.meta
        self._tell_router(opened)

    def _on_post(self, post: routing.Post, _source: int) -> None:
        if len(post.data) > routing.MAIL_BYTES_MAX:
            raise ValueError(f"mail to {post.role} of {post.to_node!r} has {len(post.data):,} bytes")
        self._tell_router(post)

    def _on_posted(self, posted: routing.Posted) -> None:
        """Only the role that it is for gets it. Any role may take mail."""
        handler = self._mailboxes.get(posted.role, _nobody)
        handler(posted, self._now, self._wall)

    def _on_alarm(self, alarm: Alarm, _source: int = ROUTER) -> None:
        self._output.alarms.append(alarm)

    def _to_network(self, effect: Network) -> None:
        self._output.network.append(effect)

    def _write(self, write: Write, source: int) -> None:
        """A log of the volume takes each index as it is proposed: its answer waits for the sync alone."""
        self._output.operations.extend(write.operations)
        for operation in write.operations:
            if type(operation) is Append:
                assert operation.indices is not None, f"the log {operation.log} of the volume numbers nothing itself"
                self._output.cookies.append((source, Appended(operation.cookie, operation.indices)))
        if write.cookie is not None:
            self._output.cookies.append((source, write.cookie))

    def _tell_client(self, told: Tell, source: int) -> None:
        answer = self._merged.answer(told, source)
        if answer is not None:
            self.sessions.tell(answer.session, answer.message)

    def _read(self, read: Read, source: int) -> None:
        self._output.reads.append(replace(read, cookie=(source, read.cookie)))

    def _save(self, save: routing.Save) -> None:
        key = save.key.encode()
        operation = Delete(ROUTER_TABLE, key) if save.value is None else Set(ROUTER_TABLE, key, save.value)
        self._write(Write([operation], save.cookie), ROUTER)


def handlers_of(roles: Sequence[Role]) -> dict[type, dict[int, Handler]]:
    """Who takes each fact that a router may say to a core, by position. Nobody may: the seam is lossy."""
    claimed: dict[type, str] = {}
    handlers: dict[type, dict[int, Handler]] = {kind: {} for kind in get_args(Effect)}
    for source, role in enumerate(roles):
        for kind, handler in role.handlers().items():
            if kind in (SessionEnded, routing.Posted, Appended):  # for every role that takes it, or for who asked
                continue
            if kind not in PUBEND_OF:
                _claim(claimed, kind, role)
            handlers.setdefault(kind, {})[source] = handler
    return handlers


def requests_of(roles: Sequence[Role], merged: MergedRequests) -> dict[type, RequestHandler]:
    """The handler of each client message that a role answers; several roles may answer what can be merged."""
    claimed: dict[type, str] = {}
    takers: dict[type, dict[int, RequestHandler]] = {}
    for source, role in enumerate(roles):
        for kind, handler in role.requests().items():
            if kind not in MERGES:
                _claim(claimed, kind, role)
            takers.setdefault(kind, {})[source] = handler
    return {
        kind: next(iter(found.values())) if len(found) == 1 else merged.handler(kind, found)
        for kind, found in takers.items()
    }


def _claim(claimed: dict[type, str], kind: type, role: Role) -> None:
    if kind in claimed:
        raise ConfigurationError(f"the roles {claimed[kind]!r} and {role.name!r} both answer {kind.__name__}")
    claimed[kind] = role.name


def _nobody(_message: Any, _now: int, _wall: int) -> None:
    """The node has no such role."""
