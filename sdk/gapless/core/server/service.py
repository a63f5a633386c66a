"""All client sessions of a node: handshake, heartbeats, limits, and the dispatch of messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any, Final, cast

from gapless.core.alarms import Alarm, AlarmCode, Note, Subject
from gapless.core.gauges import Gauge
from gapless.core.network.facts import Ending, Submitted
from gapless.core.ports import ClientSession, LinkHasRoom, RequestHandler, SessionEnded
from gapless.core.principals import NOBODY, Admission, Judgement, Later, PeerInfo, Refusal
from gapless.core.server.audit import Audit, AuditOutcome, makes_a_line
from gapless.core.server.authority import Authority
from gapless.core.server.budgets import Budgets
from gapless.core.server.complaints import Complaints, host_of
from gapless.core.server.gauges import OPENED
from gapless.core.server.handshake import NOT_VALID, Admitted, Postponed, Refused, welcome
from gapless.core.server.limits import CONNECTIONS, BrokerIdentity, SessionLimits
from gapless.core.server.link_session import LinkSession
from gapless.core.server.outbox import LinkOutput, LinkOutputs
from gapless.core.server.permissions import NEEDS, refusal_of
from gapless.core.server.publishing import KeyedBatches, KeyedReply, Publishing, ReplyTo
from gapless.core.server.reception import Reception
from gapless.core.server.suspects import OUTSIDE, SECOND, HandlerFailedError, Suspects
from gapless.core.wire.codec import carries_events, decode_client, encode, session_head, session_of
from gapless.core.wire.messages import (
    Attach,
    BrokerHeartbeat,
    Challenge,
    ClosePublisher,
    Closing,
    Code,
    Goodbye,
    Heartbeat,
    Hello,
    HelloRefused,
    OpenPublisher,
    Publish,
    PublishKeyed,
    PublishRefused,
    Renew,
    Renewed,
    RequestFailed,
    ServerMessage,
    Subscribe,
    Unsubscribe,
    Waiting,
)
from gapless.core.wire.messages.base import NUMBER_MAX
from gapless.core.wire.messages.checks import CHECKS, Problem, problem_of
from gapless.core.wire.numbering import FramesLostError
from gapless.errors import RemoteProtocolError

_COUNTER_BITS = 32
MILLISECOND: Final = 1_000_000
TAKES_LONG = (Subscribe, Unsubscribe, Attach)
"""Requests of which each takes about as long as a thousand others: a selector is parsed, and rows are written."""
PORTION = 8
"""How many of those are taken in one turn; beyond them one of each link. What follows it on its link waits."""
LATE_MAX = 4096
"""A link with more waiting frames is not read for a while."""
ROOM_AGAIN = 0.9
"""The operator hears that connections are taken again when no more than this share of the limit is there."""
_JUDGED = CHECKS.keys() | NEEDS.keys()
"""The messages that may be refused. The others need no permission, and a wrong one of them does not decode."""

ADVICE: Final = "connect to a node that has one; those with the role 'shb' serve subscriptions"
"""For the client whose request no role of the node answers."""


class Sessions:
    """The broker's side of the client protocol (protocol: session), for all links of a node.

    A client that breaks the protocol loses its link, with a reason; nothing else changes. Requests go straight to the
    role that declared them. A handler may raise RemoteProtocolError, having changed nothing, if a message makes no
    sense.
    """

    def __init__(
        self,
        broker: BrokerIdentity,
        limits: SessionLimits,
        receptions: Sequence[Reception],
        authority: Authority,
        requests: Mapping[type, RequestHandler],
        audit: Audit,
        budgets: Budgets,
    ) -> None:
        """`receptions`: of each listener that clients come through."""
        self._budgets = budgets
        self._audit = audit
        self._broker = broker
        self._limits = limits
        self._receptions = tuple(receptions)
        self._authority = authority
        self._handlers: dict[type, RequestHandler] = {
            **requests,
            Publish: self._on_publish,
            PublishKeyed: self._on_publish_keyed,
            OpenPublisher: self._on_open_publisher,
            ClosePublisher: self._on_close_publisher,
            Heartbeat: self._on_heartbeat,
            Goodbye: self._on_goodbye,
            Hello: self._on_second_hello,
            Renew: self._on_renew,
        }
        self.effects: list[object] = []
        """The effects so far, as `take_effects` returns them. Others may look at them, but not change them."""
        self._outbox = LinkOutputs()
        self._publishing = Publishing(limits, self._outbox, self.effects, audit, authority)
        self._keyed = KeyedBatches(self._outbox, self.effects, audit)
        self._links: dict[int, LinkSession] = {}
        self._postponed = 0
        """How many clients wait for a verdict that was postponed."""
        self._full = False
        """Whether the operator was told that no more connections are taken."""
        self._portion = PORTION
        """How many more of the requests in `TAKES_LONG` are taken in this turn."""
        self._late: dict[int, None] = {}
        """The links of which frames wait for the next turn, in the order in which they have their turn."""
        self._held: dict[int, None] = {}
        """The links of which frames wait until the audit has room for what becomes of them."""
        self._evens: list[tuple[int, int]] = []
        """A heap of (time, link): when the budget is even of whom it keeps waiting."""
        self._sessions: dict[int, LinkSession] = {}
        self._instances: dict[tuple[str, str, str], LinkSession] = {}
        self._due: list[tuple[int, int]] = []
        """A heap of (time, link), with what each link is scheduled for. A time may be too early, but never too late."""
        self._suspects = Suspects()
        self._complaints = Complaints()
        self._now = 0
        """When the turn has begun."""
        self._counter = 0
        self._closing = ""
        self._alone_since: int | None = None
        """Since when there is no link to other brokers; None: there is one, or none is needed."""
        self._cut_off = ""
        """The reason that clients are sent when that has lasted for too long; else ""."""

    # Getters.

    @property
    def node(self) -> str:
        """The name of the node."""
        return self._broker.node

    @property
    def count(self) -> int:
        """How many sessions there are."""
        return len(self._sessions)

    @property
    def has_more(self) -> bool:
        """Whether `take_effects` or `take_links` would return something."""
        return bool(self.effects or self._outbox.links)

    @property
    def has_receipts(self) -> bool:
        """Whether `take_links` would return receipts for batches."""
        return bool(self._publishing.answered)

    def farewells(self, reason: str) -> Iterator[tuple[int, bytes]]:
        """Yields for every session its link, and the payload that ends it. Changes nothing.

        These payloads have no numbers: a machine that has failed does not know which of its numbered frames were sent.
        """
        for session, connection in self._sessions.items():
            yield connection.link, encode(session, Closing(reason))

    def remember(self, suspects: Suspects) -> None:
        """Takes over the suspects from earlier machines of this node; called before anything else."""
        self._suspects = suspects

    def is_local(self, session: int) -> bool:
        """Whether only this machine can reach the listener through which a session came that is not over."""
        return self._sessions[session].peer.is_local

    def address_of(self, session: int) -> str:
        """Where the client of a session connects from; "" if that is over."""
        connection = self._sessions.get(session)
        return "" if connection is None else connection.peer.address

    def gauges(self) -> Iterator[Gauge]:
        """Yields how many sessions were opened, and how many links were refused or ended."""
        yield OPENED.gauge(self._counter)
        yield from self._outbox.gauges()

    # What happened.

    def on_link(self, link: int, peer: PeerInfo, listener: int, now: int) -> None:
        """A client has connected. `link` is a number that was never used before; `listener`: through which."""
        if self._closing:
            self._outbox.refuse(link, HelloRefused(Code.RETRY, self._closing))
        elif len(self._links) >= self._limits.links:
            reason = f"this broker takes {self._limits.links} connections ({CONNECTIONS})"
            self._outbox.refuse(link, HelloRefused(Code.RETRY, reason))
            if not self._full:
                self._full = True
                text = (
                    f"{self._limits.links} connections are there, which is all that this broker takes"
                    " (limits.connections, and what the limit of open files leaves): the next ones are refused"
                )
                self.effects.append(Alarm(AlarmCode.CONNECTIONS_FULL, text))
        else:
            connection = self._links[link] = LinkSession(link, peer, self._receptions[listener], now)
            self._schedule(connection)

    def on_frames(self, link: int, payloads: Sequence[bytes], now: int, wall: int) -> None:
        """Frames have arrived on a link. They are ignored if the link was closed here.

        Raises HandlerFailedError if a handler fails: then the state of the cores is unknown.
        """
        connection = self._links.get(link)
        if connection is None:
            return
        connection.heard = now
        if connection.late:
            connection.late += payloads
            self._look_at_late(connection)
        else:
            self._take_frames(connection, payloads, now, wall)

    def begin_turn(self, now: int) -> None:
        """A turn begins: another `PORTION` of requests that take long may be taken."""
        self._now = now
        self._portion = PORTION
        if self._held and self._audit.has_room:
            self._late |= self._held
            self._held.clear()

    @property
    def is_behind(self) -> bool:
        """Whether frames have arrived that wait for the next turn."""
        return bool(self._late)

    def take_late(self, now: int, wall: int) -> None:
        """Takes frames that had to wait, link by link, as far as the portion of this turn goes."""
        links = list(self._late)
        self._late.clear()
        for link in links[1:] + links[:1]:
            connection = self._links.get(link)
            if connection is None:
                continue
            late, connection.late = connection.late, []
            connection.heard = now
            self._take_frames(connection, late, now, wall)
            self._look_at_late(connection)
            if connection.is_gone and not connection.late and self._links.get(link) is connection:
                self._over(connection)

    def _take_frames(self, connection: LinkSession, payloads: Sequence[bytes], now: int, wall: int) -> None:
        link = connection.link
        try:
            for index, payload in enumerate(payloads):
                if self._links.get(link) is not connection:
                    return
                if self._audit.is_wanted and not self._audit.has_room and makes_a_line(payload):
                    self._held[link] = None
                    connection.late += payloads[index:]
                    self._look_at_late(connection)
                    return
                if self._has_to_wait(connection, payload, now):
                    connection.late += payloads[index:]
                    return
                client, before = connection.client, self._portion
                if client is None:
                    self._on_first_frame(connection, payload, now, wall)
                else:
                    self._on_frame(connection, client, payload, now, wall)
                if self._portion < before and self._portion <= 0 and index + 1 < len(payloads):
                    connection.late += payloads[index + 1 :]
                    self._look_at_late(connection)
                    return
        except FramesLostError as error:
            self._on_violation(connection, str(error), now)
        except RemoteProtocolError as error:
            self._on_violation(connection, f"protocol violation: {error}", now)

    def _has_to_wait(self, connection: LinkSession, payload: bytes, now: int) -> bool:
        """Whether a frame has events, and its principal has sent too much: then its link is not read for a while."""
        budget = connection.budget
        if budget is None or not budget.rates_in or not carries_events(payload) or (at := budget.in_at(now)) <= now:
            return False
        connection.throttled = True
        self._wait_until_even(connection, at)
        self._set_paused(connection)
        return True

    def _wait_until_even(self, connection: LinkSession, at: int) -> None:
        if connection.even_at is None or at < connection.even_at:
            connection.even_at = at
            heappush(self._evens, (at, connection.link))

    def _take_even(self, now: int) -> None:
        """Those go on who had to wait for their budget. If others of the same principal were quicker, they wait on."""
        while self._evens and self._evens[0][0] <= now:
            at, link = heappop(self._evens)
            connection = self._links.get(link)
            if connection is None or connection.even_at != at:
                continue
            connection.even_at = None
            if connection.throttled:
                connection.throttled = False
                connection.heard = now
                self._set_paused(connection)
                self._look_at_late(connection)
            self._tell_room(connection, now)

    def _look_at_late(self, connection: LinkSession) -> None:
        """Stops reading a link while many of its frames wait, so that no client costs memory without a bound."""
        behind = len(connection.late) > (LATE_MAX // 2 if connection.behind else LATE_MAX)
        if connection.late and connection.link not in self._held and not connection.throttled:
            self._late[connection.link] = None
        if behind != connection.behind and self._links.get(connection.link) is connection:
            connection.behind = behind
            self._set_paused(connection)

    def on_broken(self, link: int, reason: str, now: int) -> None:
        """The bytes on a link break the framing, or are too many. A client that is not admitted yet gets no answer."""
        connection = self._links.get(link)
        if connection is None:
            return
        self._complain(connection, reason, now)
        if connection.client is not None:
            self._close(connection, reason)
        else:
            self._tell_not_admitted(connection, reason)
            self._forget(connection, Ending.LEFT)
            self._outbox.close(link, Code.PROTOCOL_VERSION, reason)

    def on_link_closed(self, link: int) -> None:
        """A link is gone: nothing more can be sent on it."""
        connection = self._links.get(link)
        if connection is None:
            return
        if connection.late:
            connection.is_gone = True  # the frames that a client sent before it left count
        else:
            self._over(connection)

    def _over(self, connection: LinkSession) -> None:
        self._forget(connection, Ending.LEFT)
        self._outbox.end_session(connection.link)

    def on_pending(self, link: int, pending: int, now: int) -> None:
        """The driver reports how many bytes wait on a link, after each send, and when all have left."""
        connection = self._links.get(link)
        if connection is None:
            return
        connection.on_pending(pending, now)
        if pending > self._limits.pending_bytes_max:
            reason = f"{pending} bytes wait for the client; it may let {self._limits.pending_bytes_max} wait"
            self._close(connection, reason)
        elif pending > self._limits.pending_bytes and not connection.paused:
            connection.paused = True
            self._set_paused(connection)
        elif pending <= self._limits.pending_bytes // 2 and connection.paused:
            # While the link was not read, its silence was not the client's fault: the time counts from now.
            connection.heard = now
            connection.paused = False
            self._set_paused(connection)
        self._tell_room(connection, now)

    def _tell_room(self, connection: LinkSession, now: int) -> None:
        """Whoever wants to know is told that there is room on a link: when its principal may be sent more."""
        if connection.asked is None or connection.pending > connection.asked or connection.client is None:
            return
        if connection.budget is not None and (at := connection.budget.out_at(now)) > now:
            self._wait_until_even(connection, at)
            return
        connection.asked = None
        self.effects.append(LinkHasRoom(connection.client, connection.pending))

    def on_placed(self, placed: Submitted) -> None:
        """The router has answered an opening or a batch. It is dropped if the session is over."""
        reply_to = cast("ReplyTo | KeyedReply", placed.reply_to)
        connection = self._sessions.get(reply_to.session)
        if connection is None:
            return
        if isinstance(reply_to, KeyedReply):
            self._keyed.on_placed(connection, reply_to, placed)
        else:
            self._publishing.on_placed(reply_to, placed)

    def on_network(self, links: int, now: int) -> None:
        """The number of links to other brokers has changed. Only for nodes without pubends of their own."""
        if not links:
            self._alone_since = now if self._alone_since is None else self._alone_since
            return
        self._alone_since = None
        if self._cut_off:
            self._tell_cut_off("", now)

    def on_deadline(self, now: int) -> None:
        """Sends heartbeats that are due, and ends connections that are overdue."""
        if self._alone_since is not None and not self._cut_off and now >= self._alone_since + self._limits.cut_off:
            self._tell_cut_off("it has no link to any other node of its network", now)
        self._take_even(now)
        if self._budgets.due is not None:
            self._budgets.purge(now)
        due = self._due
        while due and due[0][0] <= now:
            at, link = heappop(due)
            connection = self._links.get(link)
            if connection is None or at != connection.scheduled:
                continue
            connection.scheduled = None
            if connection.postponed is not None and now >= connection.postponed[0]:
                self._on_postponed(connection, now)
                if link not in self._links:
                    continue
            if reason := connection.lateness(self._limits, now):
                if self._audit.is_wanted and connection.has_expired(now):
                    assert connection.client is not None, "nothing else expires"
                    self._audit.on_sign_in(connection, "expiry", "ok", reason, connection.client.principal)
                self._close(connection, reason)
                continue
            if connection.client is None and connection.late:
                connection.opened = now  # it is not the client that keeps its first frame waiting
            if connection.client is not None and now >= connection.said + self._limits.heartbeat:
                self._outbox.tell(link, connection.client.number, BrokerHeartbeat(self._cut_off))
                connection.said = now
            self._schedule(connection)

    def _schedule(self, connection: LinkSession) -> None:
        """Sees to it that a link is looked at when it is due; it has one entry that counts."""
        due = connection.due(self._limits)
        if connection.scheduled is None or due < connection.scheduled:
            connection.scheduled = due
            heappush(self._due, (due, connection.link))

    def _tell_cut_off(self, reason: str, now: int) -> None:
        """Sends all clients a heartbeat with the reason, or with "" when the broker is no longer cut off."""
        self._cut_off = reason
        for number, connection in self._sessions.items():
            self._outbox.tell(connection.link, number, BrokerHeartbeat(reason))
            connection.said = now

    # Commands.

    def tell(self, session: int, message: ServerMessage) -> None:
        """Sends a message to a session; ignored if the session is over."""
        connection = self._sessions.get(session)
        if connection is not None:
            if self._audit.is_wanted:
                self._audit.on_answer(session, message)
            self._outbox.tell(connection.link, session, message)

    def transmit(self, session: int, payloads: Sequence[tuple[bytes, bytes]]) -> None:
        """Sends encoded data to a session; ignored if the session is over."""
        connection = self._sessions.get(session)
        if connection is not None:
            budget = connection.budget
            if budget is not None and budget.rates_out:
                budget.charge_out(payloads, self._now)
            self._outbox.transmit(connection.link, payloads)

    def ask_room(self, session: int, upto: int) -> None:
        """Asks for `LinkHasRoom` when at most `upto` bytes wait on the session's link; ignored if the session is over.

        It does not come before the link is read again: otherwise requests of the client would wait until all is sent.
        """
        connection = self._sessions.get(session)
        if connection is not None:
            connection.asked = min(upto, self._limits.pending_bytes // 2)
            self._outbox.link(connection.link).reports = True

    def end(self, session: int, reason: str) -> None:
        """Ends a session, with a reason for people; ignored if the session is over."""
        connection = self._sessions.get(session)
        if connection is not None:
            self._close(connection, reason)

    def end_sessions_of(self, name: str, reason: str, but: int) -> None:
        """Ends all sessions of a principal, who is told why; except the one with the number `but`, or 0."""
        for number, connection in list(self._sessions.items()):
            if number != but and connection.client is not None and connection.client.principal.name == name:
                self._close(connection, reason)

    def close(self, reason: str) -> None:
        """Ends all sessions in order, and refuses new ones."""
        self._closing = reason
        for connection in list(self._links.values()):
            self._close(connection, reason)

    # What to do.

    def take_effects(self) -> list[object]:
        """Returns the effects for the router (`SubmitOpen`, `Submit`), for roles, and the operator (`Alarm`, `Note`).

        The call removes them.
        """
        effects = self.effects.copy()
        self.effects.clear()
        return effects

    def take_links(self, now: int) -> dict[int, LinkOutput]:
        """Returns what to send on each link, and whether to close it; the call empties that."""
        if self._publishing.answered:
            self._publishing.send_published()
        outputs = self._outbox.take()
        for link, output in outputs.items():
            connection = self._links.get(link)
            if connection is None:
                self._outbox.end_session(link)
            elif output.ordinary:
                connection.said = now
        return outputs

    def deadline(self) -> int | None:
        """When `on_deadline` has to be called."""
        due = self._due
        # Closed links leave their entries in the heap.
        while due and due[0][1] not in self._links:
            heappop(due)
        heads = (heap[0][0] for heap in (due, self._evens) if heap)
        first = min((at for at in (*heads, self._budgets.due) if at is not None), default=None)
        if self._alone_since is None or self._cut_off:
            return first
        cut_off_at = self._alone_since + self._limits.cut_off
        return cut_off_at if first is None else min(first, cut_off_at)

    # The first frames.

    def _on_first_frame(self, connection: LinkSession, payload: bytes, now: int, wall: int) -> None:
        if connection.postponed is not None:
            raise RemoteProtocolError("a frame before the answer to the one before it")
        handshake = connection.handshake
        try:
            verdict = handshake.on_frame(payload, connection.peer, self._broker, connection.reception)
        except RemoteProtocolError:
            raise
        except Exception as error:  # noqa: BLE001 - an authenticator is foreign code, and nothing has changed yet
            self._complain(connection, f"the broker failed to judge its Hello: {type(error).__name__}", now)
            reason = "the broker failed to judge the Hello; its log says how"
            verdict = Refused(HelloRefused(Code.RETRY, reason), reason)
        if not isinstance(verdict, Postponed):
            self._tell_verdict(connection, verdict, now, wall)
        elif self._postponed >= self._limits.postponed:
            self._tell_verdict(connection, Refused.of(Code.RETRY, "too many clients wait here"), now, wall)
        else:
            self._postponed += 1
            connection.postponed = now + verdict.wait, verdict.then, wall - now // MILLISECOND
            connection.opened += verdict.wait
            self._outbox.tell(connection.link, 0, Waiting(-(-verdict.wait // MILLISECOND)))
            self._schedule(connection)

    def _on_postponed(self, connection: LinkSession, now: int) -> None:
        """A client has waited long enough."""
        assert connection.postponed is not None
        _, verdict, wall_less_now = connection.postponed
        connection.postponed = None
        connection.heard = now  # it had nothing to say meanwhile
        self._postponed -= 1
        self._tell_verdict(connection, verdict, now, wall_less_now + now // MILLISECOND)

    def _tell_verdict(
        self, connection: LinkSession, verdict: Admitted | Challenge | Refused, now: int, wall: int
    ) -> None:
        if isinstance(verdict, Challenge):
            self._outbox.tell(connection.link, 0, verdict)
            return
        if isinstance(verdict, Refused):
            if self._audit.is_wanted:
                outcome: AuditOutcome = "refused" if verdict.answer.code is Code.UNAUTHORIZED else "failed"
                self._audit.on_sign_in(connection, "admission", outcome, verdict.reason, verdict.principal)
            if verdict.answer.code is not Code.RETRY:
                self._complain(connection, f"its Hello was refused: {verdict.reason}", now)
            self._forget(connection, Ending.LEFT)
            self._outbox.refuse(connection.link, verdict.answer)
            return
        if verdict.until is not None and verdict.until <= wall:
            refused = HelloRefused(Code.UNAUTHORIZED, NOT_VALID)
            expired = Refused(refused, "its credentials have expired", verdict.principal)
            self._tell_verdict(connection, expired, now, wall)
            return
        if self._suspects.is_outside(verdict.principal.name, verdict.client_id, verdict.instance, now):
            reason = f"the broker failed of a message of this client, which stays outside for {OUTSIDE // SECOND} s"
            outside = Refused(HelloRefused(Code.RETRY, reason), reason, verdict.principal)
            self._tell_verdict(connection, outside, now, wall)
            return
        self._admit(connection, verdict, now, wall)

    def _admit(self, connection: LinkSession, admitted: Admitted, now: int, wall: int) -> None:
        key = (admitted.principal.name, admitted.client_id, admitted.instance)
        earlier = self._instances.get(key)
        if earlier is not None:
            self._close(earlier, "the same client has connected again")
        budget = self._budgets.of(admitted.principal, now)
        if budget is not None:
            if reason := budget.refuses_connection(admitted.principal):
                refused = Refused(HelloRefused(Code.RETRY, reason), reason, admitted.principal)
                self._tell_verdict(connection, refused, now, wall)
                return
            budget.connections += 1
            connection.budget = budget
        self._counter += 1
        assert self._counter >> _COUNTER_BITS == 0
        session = self._broker.start << _COUNTER_BITS | self._counter
        connection.client = ClientSession(session, admitted.client_id, admitted.instance, admitted.principal)
        connection.head = session_head(session)
        connection.instance_key = key
        connection.said = connection.moved = now
        self._instances[key] = connection
        self._sessions[session] = connection
        self._schedule(connection)  # until now it was due when the time for its handshake would be over
        who = f", as {admitted.principal}" if admitted.principal.name else ""
        text = f"client {admitted.client_id!r} has connected from {connection.peer.address}{who}"
        self.effects.append(Note(Subject.CLIENT, text, client_id=admitted.client_id, principal=admitted.principal.name))
        if self._audit.is_wanted:
            self._audit.on_sign_in(connection, "admission", "ok", "", admitted.principal)
        self._outbox.begin_session(connection.link)
        self._outbox.link(connection.link).limit = self._limits.frame_bytes
        expires_ms = self._set_expiry(connection, admitted.until, now, wall)
        self._outbox.tell(connection.link, 0, welcome(session, self._broker, self._limits, expires_ms))

    def _set_expiry(self, connection: LinkSession, until: int | None, now: int, wall: int) -> int:
        """The credentials of a session are valid until then. Returns for how many milliseconds; 0: for ever."""
        if until is None:
            connection.expires = None
            return 0
        left = max(1, until - wall)
        connection.expires = now + left * MILLISECOND
        self._schedule(connection)
        return left

    # Later frames.

    def _on_frame(self, connection: LinkSession, client: ClientSession, payload: bytes, now: int, wall: int) -> None:
        if not payload.startswith(connection.head):
            if session_of(payload) == 0:
                raise RemoteProtocolError("a second Hello, or a frame without a session")
            return  # of an earlier session
        if not connection.received.is_new(payload):
            return  # a repeated frame
        try:
            message = decode_client(payload)
            is_judged = type(message) in _JUDGED
            problem = problem_of(message) if is_judged else None
        except RemoteProtocolError:
            raise
        except Exception as error:  # nothing has changed yet, so only this session has to end
            raise RemoteProtocolError(f"the broker failed to decode a frame: {error!r}") from error
        if self._audit.is_wanted:
            self._audit.on_request(connection, client, message)
        if problem is not None:
            self._refuse_message(client, message, problem)
            return
        if is_judged and (refusal := refusal_of(message, client, self._authority)):
            self._refuse_message(client, message, Problem(Code.FORBIDDEN, refusal))
            return
        handler = self._handlers.get(type(message))
        if handler is None:
            self._on_unserved(client, message)
            return
        if self._suspects.has_seen(payload):
            raise RemoteProtocolError("the broker failed of this very message before; its log says how")
        if type(message) in TAKES_LONG:
            self._portion -= 1
        try:
            handler(client, message, now, wall)
        except RemoteProtocolError:
            raise
        except Exception as error:
            raise HandlerFailedError(client, connection.peer.address, type(message).__name__, payload) from error

    def _on_publish(self, client: ClientSession, message: Publish, now: int, _wall: int) -> None:
        self._publishing.on_publish(self._charged(client, message, now), client, message)

    def _on_publish_keyed(self, client: ClientSession, message: PublishKeyed, now: int, _wall: int) -> None:
        self._keyed.on_publish(self._charged(client, message, now), client, message)

    def _charged(self, client: ClientSession, message: Publish | PublishKeyed, now: int) -> LinkSession:
        """The link of a client, whose principal has sent these events."""
        connection = self._sessions[client.number]
        if connection.budget is not None:
            connection.budget.charge_in(message.events.count, message.events.size, now)
        return connection

    def _on_open_publisher(self, client: ClientSession, message: OpenPublisher, _now: int, _wall: int) -> None:
        self._publishing.on_open(self._sessions[client.number], client, message)

    def _on_close_publisher(self, client: ClientSession, message: ClosePublisher, _now: int, _wall: int) -> None:
        self._publishing.on_close(client.number, message)

    def _on_heartbeat(self, _client: ClientSession, _message: Heartbeat, _now: int, _wall: int) -> None:
        """Does nothing: every frame counts as a sign of life already."""

    def _on_goodbye(self, client: ClientSession, _message: Goodbye, _now: int, _wall: int) -> None:
        """A client has ended its session, and its publishers with it: nothing of them will be resumed."""
        connection = self._sessions[client.number]
        self._forget(connection, Ending.CLOSED)
        self._outbox.link(connection.link).close = ""

    def _on_renew(self, client: ClientSession, message: Renew, now: int, wall: int) -> None:
        """New credentials have to be of the same client; with others it has to connect again."""
        connection = self._sessions[client.number]
        authentication = connection.reception.begin(message.mechanism, client.client_id, connection.peer)
        judged: Judgement | None = None
        try:
            judged = None if authentication is None else authentication.answer(message.credentials)
        except Exception as error:  # noqa: BLE001 - an authenticator is foreign code, and nothing has changed yet
            self._complain(connection, f"the broker failed to judge its new credentials: {type(error).__name__}", now)
        if isinstance(judged, Later):  # nobody waits here, and no guess is to be told sooner than at the door
            judged = Refusal("the answer would have to wait")
        if isinstance(judged, Admission) and judged.principal == client.principal:
            if self._audit.is_wanted:
                self._audit.on_sign_in(connection, "renewal", "ok", "", client.principal)
            expires_ms = self._set_expiry(connection, judged.until, now, wall)
            self.tell(client.number, Renewed(message.request, expires_ms))
            return
        reason = NOT_VALID
        if isinstance(judged, Admission):
            reason = "the new credentials say something else of the client than those before; connect again with them"
        if self._audit.is_wanted:
            why = judged.reason if isinstance(judged, Refusal) else reason
            self._audit.on_sign_in(connection, "renewal", "refused", why, client.principal)
        if isinstance(judged, Refusal):
            self._complain(connection, f"its new credentials were refused: {judged.reason}", now)
        self.tell(client.number, RequestFailed(message.request, Code.UNAUTHORIZED, reason))

    def _on_second_hello(self, _client: ClientSession, _message: Hello, _now: int, _wall: int) -> None:
        raise RemoteProtocolError("a second Hello")

    def _refuse_message(self, client: ClientSession, message: Any, problem: Problem) -> None:
        """Answers a request that fails its checks with the reason. Raises RemoteProtocolError for any other message."""
        if isinstance(message, OpenPublisher):
            self.tell(client.number, PublishRefused(message.publisher, 0, problem.code, problem.reason))
        elif (request := getattr(message, "request", None)) is not None and request <= NUMBER_MAX:
            self.tell(client.number, RequestFailed(request, *problem))
        else:
            raise RemoteProtocolError(problem.reason)

    def _on_unserved(self, client: ClientSession, message: Any) -> None:
        """Answers a request that no role of this node serves. Any other message is dropped."""
        request = getattr(message, "request", None)
        if request is not None:
            reason = f"no role of node {self._broker.node!r} answers {type(message).__name__}: {ADVICE}"
            self.tell(client.number, RequestFailed(request, Code.CONFIGURATION, reason))

    def _complain(self, connection: LinkSession, reason: str, now: int) -> None:
        """Raises an alarm about a client that breaks the protocol, but not too often."""
        client_id = None if connection.client is None else connection.client.client_id
        text = self._complaints.text(connection.peer.address, client_id, reason, now)
        if text is not None:
            self.effects.append(Alarm(AlarmCode.CLIENT_REFUSED, text, host_of(connection.peer.address)))

    def _tell_not_admitted(self, connection: LinkSession, reason: str) -> None:
        if self._audit.is_wanted:
            self._audit.on_sign_in(connection, "admission", "failed", reason, NOBODY)

    def _on_violation(self, connection: LinkSession, reason: str, now: int) -> None:
        self._complain(connection, reason, now)
        if connection.client is None:
            self._tell_not_admitted(connection, reason)
            self._forget(connection, Ending.LEFT)
            self._outbox.refuse(connection.link, HelloRefused(Code.PROTOCOL_VERSION, reason))
        else:
            self._close(connection, reason)

    # The end of a link.

    def _close(self, connection: LinkSession, reason: str) -> None:
        """Ends a connection from this side, and sends the reason to the client."""
        client = connection.client
        self._forget(connection, Ending.LEFT)
        if client is None:
            self._outbox.refuse(connection.link, HelloRefused(Code.RETRY, reason))
            return
        self._outbox.end(connection.link, client.number, reason)

    def _forget(self, connection: LinkSession, ending: Ending) -> None:
        """Forgets a link. The roles are informed that its session is over."""
        del self._links[connection.link]
        self._held.pop(connection.link, None)
        connection.late.clear()
        if connection.postponed is not None:
            connection.postponed = None
            self._postponed -= 1
        if self._full and len(self._links) <= self._limits.links * ROOM_AGAIN:
            self._full = False
            self.effects.append(Alarm(AlarmCode.CONNECTIONS_FULL, "connections are taken again", over=True))
        client = connection.client
        if client is None:
            return
        connection.client = None
        del self._sessions[client.number]
        del self._instances[connection.instance_key]
        self._publishing.on_session_over(client.number, ending)
        self._keyed.on_session_over(client.number)
        if connection.budget is not None:
            self._budgets.leave(connection.budget)
        if self._audit.is_wanted:
            self._audit.on_session_over(client.number)
        self.effects.append(SessionEnded(client))

    def _set_paused(self, connection: LinkSession) -> None:
        self._outbox.link(connection.link).paused = not connection.is_read
