"""The whole of a node but its I/O: client sessions, a router and roles, composed into one pure machine.

Whoever drives it (the asyncio driver in production, the simulator in tests) says what happened with
`on_*`, any number of times, and then takes one `Output`: what the whole step wants of the world. Taking
it runs the parts against each other until none has anything left to say, so everything that happened in
one turn of the loop meets in one group of writes and in one send per link.

Rules of this module: as for the cores (`gapless.core`): no clock, no I/O, no task, no randomness.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from msgspec import Struct
from msgspec.structs import replace

from gapless.core import routing
from gapless.core.effects import (
    Alarm,
    Delete,
    EndSession,
    Operation,
    Read,
    ReadResult,
    Set,
    Tell,
    Transmit,
    Write,
)
from gapless.core.roles import Handler, RequestHandler, Role, SessionEnded
from gapless.core.sessions import BrokerIdentity, Limits, LinkOutput, PlaceBatch, PlaceOpening, Sessions
from gapless.errors import ConfigurationError

if TYPE_CHECKING:
    from gapless.spi import Authenticator

Cookie: TypeAlias = "tuple[int, Hashable]"
"""Who asked (a role's position, or ROUTER), and what it called it."""
ROUTER = -1
ROUTER_TABLE = "router"
"""Where a router's `Save` goes."""

ROUNDS_MAX = 1000
"""Effects of effects of effects … end long before this many rounds; more is a loop without an end."""

Network: TypeAlias = routing.SendFrame | routing.Dial | routing.Hangup


RouterCall: TypeAlias = "Callable[[routing.Router, int, Any], routing.Effects]"

TO_ROUTER: dict[type, RouterCall] = {
    routing.Opened: lambda router, now, said: router.pubend(now, said.meta, said.members),
    routing.Know: lambda router, now, said: router.know(now, said.knowledge, said.reply_to),
    routing.Probe: lambda router, now, said: router.probe(now, said.pubend, said.upto),
    routing.Enrolled: lambda router, now, said: router.enrolled(now, said.pubend, said.shb, said.at),
    routing.HeldRow: lambda router, now, said: router.held(now, said.shb, said.held),
    routing.Submitted: lambda router, now, said: router.submitted(now, said.reply_to, said.pubend, said.outcome),
    routing.Announce: lambda router, now, said: router.interest(now, said.interest),
    routing.AskHold: lambda router, now, said: router.hold(now, said.row),
    routing.Ask: lambda router, now, said: router.want(now, said.want),
    routing.Report: lambda router, now, said: router.progress(now, said.progress),
}
"""What cores say to the router."""

ROLE_MESSAGES = (
    routing.Deliver,
    routing.Seen,
    routing.Probed,
    routing.Held,
    routing.AskInterest,
    routing.AskPubend,
    routing.Enrol,
    routing.Hold,
    routing.Released,
    routing.SubmitOpen,
    routing.Submit,
)
"""What a router says to cores. On a node without the role it is for, it goes nowhere (the seam is lossy)."""


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
    alarms: list[str] = []

    def __bool__(self) -> bool:
        return bool(self.operations or self.cookies or self.links or self.reads or self.network or self.alarms)


class Machine:
    """One node's sessions, router and roles."""

    def __init__(
        self,
        broker: BrokerIdentity,
        limits: Limits,
        authenticator: Authenticator,
        router: routing.Router,
        roles: Sequence[Role],
    ) -> None:
        """Raises ConfigurationError when two roles claim the same message."""
        self._router = router
        self._roles = tuple(roles)
        self.sessions = Sessions(broker, limits, authenticator, requests_of(roles))
        self._to_roles = handlers_of(roles)
        handlers = [role.handlers() for role in roles]
        self._session_ended = [table[SessionEnded] for table in handlers if SessionEnded in table]
        self._from_roles = self._role_effects()
        self._from_router = self._router_effects()
        self._queue: list[routing.Effect] = []
        """Effects of the router that have not been carried out."""
        self._output = Output()
        self._now = 0
        self._wall = 0

    # What happened.

    def start(self, now: int, wall: int, context: routing.RouterContext) -> None:
        """The first call: the router starts, then each role says what there is."""
        self._at(now, wall)
        self._route(self._router.start(now, context))
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
                self._route(self._router.saved(now, cookie))
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
            self._route(self._router.wake(now))
        for role in self._roles:
            due = role.deadline()
            if due is not None and due <= now:
                role.on_deadline(now, wall)

    def on_broker_link(
        self, link: int, peer: str, peer_roles: frozenset[str], incarnation: int, now: int, wall: int
    ) -> None:
        """A link to another broker is there."""
        self._at(now, wall)
        self._route(self._router.link_up(now, link, peer, peer_roles, incarnation))

    def on_broker_frame(self, link: int, frame: bytes, now: int, wall: int) -> None:
        """A frame of another broker arrived."""
        self._at(now, wall)
        self._route(self._router.frame(now, link, frame))

    def on_broker_link_closed(self, link: int, now: int, wall: int) -> None:
        """A link to another broker is gone."""
        self._at(now, wall)
        self._route(self._router.link_down(now, link))

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

    def status(self) -> dict[str, Mapping[str, object]]:
        """What `gapless doctor` shows of each role, by its name."""
        return {role.name: role.status() for role in self._roles}

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
            if type(effect) is PlaceBatch:
                self._route(self._router.place(self._now, effect.pub, effect.reply_to))
            elif type(effect) is PlaceOpening:
                self._route(self._router.open(self._now, effect.request, effect.reply_to))
            elif type(effect) is Alarm:
                self._output.alarms.append(effect.text)
            else:
                for handler in self._session_ended:
                    handler(effect, self._now, self._wall)
        return bool(effects)

    def _route(self, effects: routing.Effects) -> None:
        self._queue.extend(effects)

    def _at(self, now: int, wall: int) -> None:
        self._now = now
        self._wall = wall

    # What each effect means.

    def _role_effects(self) -> dict[type, Callable[[Any, int], None]]:
        tell, transmit, end = self.sessions.tell, self.sessions.transmit, self.sessions.end
        return {
            **{kind: self._to_router(call) for kind, call in TO_ROUTER.items()},
            Write: self._write,
            Read: self._read,
            Tell: lambda effect, _: tell(effect.session, effect.message),
            Transmit: lambda effect, _: transmit(effect.session, effect.payloads),
            EndSession: lambda effect, _: end(effect.session, effect.reason),
            Alarm: lambda effect, _: self._output.alarms.append(effect.text),
        }

    def _router_effects(self) -> dict[type, Callable[[Any], None]]:
        return {
            **{kind: self._to_role(handler) for kind, handler in self._to_roles.items()},
            routing.Placed: self.sessions.on_placed,
            routing.Save: self._save,
            routing.SendFrame: self._to_network,
            routing.Dial: self._to_network,
            routing.Hangup: self._to_network,
        }

    def _to_router(self, call: RouterCall) -> Callable[[Any, int], None]:
        return lambda effect, _: self._queue.extend(call(self._router, self._now, effect))

    def _to_role(self, handler: Handler) -> Callable[[Any], None]:
        return lambda effect: handler(effect, self._now, self._wall)

    def _to_network(self, effect: Network) -> None:
        self._output.network.append(effect)

    def _write(self, write: Write, source: int) -> None:
        self._output.operations.extend(write.operations)
        if write.cookie is not None:
            self._output.cookies.append((source, write.cookie))

    def _read(self, read: Read, source: int) -> None:
        self._output.reads.append(replace(read, cookie=(source, read.cookie)))

    def _save(self, save: routing.Save) -> None:
        key = save.key.encode()
        operation = Delete(ROUTER_TABLE, key) if save.value is None else Set(ROUTER_TABLE, key, save.value)
        self._write(Write([operation], save.cookie), ROUTER)


def handlers_of(roles: Sequence[Role]) -> dict[type, Handler]:
    """The handler of each message that a router may send to a core."""
    claimed: dict[type, str] = {}
    handlers: dict[type, Handler] = dict.fromkeys(ROLE_MESSAGES, _nobody)
    for role in roles:
        for kind, handler in role.handlers().items():
            if kind is SessionEnded:
                continue
            _claim(claimed, kind, role)
            handlers[kind] = handler
    return handlers


def requests_of(roles: Sequence[Role]) -> dict[type, RequestHandler]:
    """The handler of each client message that a role answers."""
    claimed: dict[type, str] = {}
    requests: dict[type, RequestHandler] = {}
    for role in roles:
        for kind, handler in role.requests().items():
            _claim(claimed, kind, role)
            requests[kind] = handler
    return requests


def _claim(claimed: dict[type, str], kind: type, role: Role) -> None:
    if kind in claimed:
        raise ConfigurationError(f"the roles {claimed[kind]!r} and {role.name!r} both answer {kind.__name__}")
    claimed[kind] = role.name


def _nobody(_message: Any, _now: int, _wall: int) -> None:
    """The node has no such role."""
