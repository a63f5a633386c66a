"""The home's side: this SHB's subscriptions that are consumed at another SHB (protocol: roaming).

To the other parts of the SHB, a consumer elsewhere is a consumer like any other. It has a session of its own, with a
negative number, and messages to that session go by mail. It is not served, and so is never live here; the PFS
goes on noting what matches. Its attachment ends when no renewal of it has arrived for `ATTACHMENT_LIFE`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from gapless.core.network.facts import BrokerId
from gapless.core.ports import ClientSession, RequestHandler, SessionEnded
from gapless.core.principals import Principal
from gapless.core.server.audit import line_of
from gapless.core.server.permissions import refusal_of
from gapless.core.stream.ticks import ShbId
from gapless.core.wire.messages import (
    Attach,
    Code,
    Detached,
    Done,
    InUse,
    RequestFailed,
    ServerMessage,
    Subscribe,
    Subscribed,
    Unsubscribe,
)
from gapless.core.wire.messages.users import NOBODY_IN_PARTICULAR
from gapless_shb.core.hosting import MOVED, Hosting
from gapless_shb.core.roaming import mail
from gapless_shb.core.roaming.mail import (
    Answer,
    Ask,
    CommitAtHome,
    CommittedAtHome,
    Ended,
    MailHandler,
    Matched,
    Renew,
    Renewed,
    Row,
    Standing,
    Withdraw,
    Working,
)
from gapless_shb.core.roaming.matches import Matches
from gapless_shb.core.state.consumers import Consumer
from gapless_shb.core.state.refusals import RefusedError
from gapless_shb.core.state.registry import SubscriptionRecord
from gapless_shb.core.state.subscription import Phase
from gapless_shb.core.state.takers import Taker
from gapless_shb.core.subscriptions.checks import check_may_have, elsewhere
from gapless_shb.core.subscriptions.commits import CommitRecords
from gapless_shb.core.subscriptions.expiry import Expiry
from gapless_shb.core.subscriptions.holders import Holders
from gapless_shb.core.subscriptions.takeovers import Takeovers, taken_over_by

SECOND: Final = 1_000_000_000
ATTACHMENT_LIFE: Final = 20 * SECOND
"""How long a consumer elsewhere may be silent: four renewals."""
FORGET: Final = 60 * SECOND
"""How long a question is remembered after it last arrived, once it is answered."""


@dataclass(slots=True)
class GuestRequest:
    """A request from another SHB."""

    node: BrokerId
    ask: Ask
    session: ClientSession
    heard_at: int
    answer: Answer | None = None


@dataclass(slots=True)
class Attachment:
    """A subscription's consumer at another SHB."""

    node: BrokerId
    sender: ShbId
    life: int
    attachment: int
    session: ClientSession
    heard_at: int

    def is_of(self, renew: Renew | CommitAtHome) -> bool:
        """Whether a message comes from the attachment that has this attachment."""
        return (self.sender, self.life, self.attachment) == (renew.sender, renew.life, renew.attachment)


@dataclass(slots=True)
class GuestHost:
    """Another SHB, and the questions of its present process."""

    life: int = 0
    floor: int = 0
    questions: dict[int, GuestRequest] = field(default_factory=dict)


class Home:
    """All consumers elsewhere, and the questions that other SHBs ask for their clients."""

    def __init__(
        self,
        hosting: Hosting,
        expiry: Expiry,
        handlers: dict[type, RequestHandler],
        end_consumption: Callable[[int, int, int], None],
        end_session: Callable[[SessionEnded, int, int], None],
        commit_records: CommitRecords,
        takeovers: Takeovers,
        holders: Holders,
    ) -> None:
        self._commit_records = commit_records
        self._takeovers = takeovers
        self._holders = holders
        self._matches = Matches(hosting)
        self._hosting = hosting
        self._expiry = expiry
        self._handlers = handlers
        self._end_consumption = end_consumption
        self._end_session = end_session
        self._askers: dict[ShbId, GuestHost] = {}
        self._asked_in: dict[int, GuestRequest] = {}
        """The questions that are not answered yet, by their session: each has one of its own."""
        self._attachments: dict[int, Attachment] = {}
        """By subscription."""
        self._sessions = 0
        hosting.tell_elsewhere = self._tell
        hosting.ended_elsewhere = self._on_consumption_ended
        hosting.asked_from = self._asked_from

    # ------------------------------------------------------------------------------- what guests' SHBs send

    def handlers(self) -> Mapping[type, MailHandler]:
        """Returns the handler of each message that a guest's SHB sends."""
        return {Ask: self.on_ask, Withdraw: self.on_withdraw, Renew: self.on_renew, CommitAtHome: self.on_commit}

    def on_ask(self, node: BrokerId, ask: Ask, now: int, wall: int) -> None:
        """Another SHB passes on a client's request. It is handled once, however often the mail arrives."""
        asker = self._askers.setdefault(ask.sender, GuestHost())
        if ask.life < asker.life or (ask.life == asker.life and ask.number < asker.floor):
            return  # too late: the client has its answer, or is gone
        if ask.life > asker.life:
            self._begin_life(ask.sender, asker, ask.life, now, wall)
        asker.floor = max(asker.floor, ask.floor)
        for number in [number for number in asker.questions if number < asker.floor]:
            self._drop(asker, number, now, wall)
        question = asker.questions.get(ask.number)
        if question is not None:
            question.heard_at = now
            repeated = question.answer or Working(self._hosting.shb, ask.life, ask.number)
            self._post(question.node, repeated)
            return
        session = self._new_session(ask.client_id, ask.instance, Principal.of(ask.principal))
        question = asker.questions[ask.number] = GuestRequest(node, ask, session, now)
        self._asked_in[session.number] = question
        # The other SHB has judged it by its rules; these are the rules of this one.
        refused = refusal_of(ask.request, session, self._hosting.authorizer)
        if refused:
            self._tell(session.number, RequestFailed(ask.request.request, Code.FORBIDDEN, refused))
        elif not ask.create and self._is_unknown(ask):
            unknown = RequestFailed(ask.request.request, Code.NOT_FOUND, "the subscription is not kept here")
            self._tell(session.number, unknown)
        elif isinstance(ask.request, Attach):
            refusal = elsewhere(self._hosting.places.broker, self._hosting)
            self._tell(session.number, refusal.answer(ask.request.request))
        else:
            self._handlers[type(ask.request)](session, ask.request, now, wall)
        if question.answer is None:
            self._post(node, Working(self._hosting.shb, ask.life, ask.number))

    def on_withdraw(self, _node: BrokerId, withdraw: Withdraw, now: int, wall: int) -> None:
        """The client of a question has gone: what it asked for is not done, unless it is answered already."""
        asker = self._askers.get(withdraw.sender)
        question = None if asker is None or asker.life != withdraw.life else asker.questions.get(withdraw.number)
        if question is None or question.answer is not None:
            return  # if it has the subscription, its SHB gives that back when it is answered
        ask, session = question.ask, question.session
        del self._asked_in[session.number]
        gone = RequestFailed(ask.request.request, Code.RETRY, "its client has gone")
        question.answer = Answer(self._hosting.shb, ask.life, ask.number, gone)  # if its mail comes once more
        self._end_session(SessionEnded(session), now, wall)

    def on_renew(self, node: BrokerId, renew: Renew, now: int, wall: int) -> None:
        """A consumer elsewhere renews its attachment, or gives it back. Takes its acknowledgements."""
        subscription = self._hosting.registry.get(renew.sid) if renew.home == self._hosting.shb else None
        if subscription is None or subscription.generation != renew.generation:
            self._end(node, renew, Code.UNSUBSCRIBED, "the subscription was removed, or its home has lost it")
            return
        attachment = self._attachments.get(renew.sid)
        if (attachment is None or not attachment.is_of(renew)) and renew.wants not in {
            0,  # of a broker that has not said
            subscription.wants,
            subscription.wants_as_written,
        }:
            # It came, or went on, while this SHB was not heard, and the subscription has changed since.
            self._end(node, renew, Code.MISMATCH, "the subscription was changed by another consumer meanwhile")
            return
        who = _principal_of(renew, subscription)
        if (attachment is None or not attachment.is_of(renew)) and not renew.leaves:
            # It is no consumer of this process yet, and may become one: before anybody makes way for it.
            try:
                check_may_have(self._hosting, who, subscription)
            except RefusedError as refused:
                self._end(node, renew, refused.code, str(refused))
                return
        self._make_way(renew, wall)
        attachment = self._attachments.get(renew.sid)
        is_free = self._hosting.registry.phase(renew.sid) in {Phase.FREE, Phase.RETURNING}
        is_overtaken = self._takeovers.is_overtaken(renew.sid, _taker_of(renew)._replace(again=True))  # it has had it
        if attachment is None and is_free and not is_overtaken and subscription.client_id == renew.client_id:
            # This process knows no attachment of the consumer, or the attachment has ended. Nobody else has the
            # subscription.
            attachment = self._adopt(node, subscription, renew, who, now, wall)
        if attachment is None or not attachment.is_of(renew):
            self._end_other(node, subscription, renew, is_overtaken=is_overtaken)
            return
        attachment.heard_at = now
        for acknowledged in renew.acknowledged:
            # The other SHB has judged the position. This SHB may be far behind, and judging again would cost questions.
            stream = self._hosting.streams.get(acknowledged.pubend)
            if stream is not None and renew.sid in stream.positions:
                stream.acknowledge(renew.sid, acknowledged.tick, acknowledged.event)
        for passed in renew.nothing_upto:
            stream = self._hosting.streams.get(passed.pubend)
            if stream is not None:
                stream.passed_elsewhere(renew.sid, passed.tick)
        self._hosting.unsaved = True
        if renew.leaves and self._commit_records.unknown_of(renew.acknowledged, now):
            return  # the renewal is repeated until this SHB knows that pubend, too, and can keep a position there
        if renew.leaves:
            self._commit_records.close(self._hosting.consumers[renew.sid], renew.handed, renew.cleared)
            if renew.handed is not None:  # otherwise it may have been its link that ended
                self._takeovers.left(renew.sid)
            self._end(node, renew, Code.CLOSED, "")
            self._end_attachment(renew.sid, now, wall)
            return
        self._matches.find(renew.sid, renew.doubts, partial(self._confirm, node, attachment, renew))

    def _confirm(self, node: BrokerId, attachment: Attachment, renew: Renew, matched: tuple[Matched, ...]) -> None:
        """Answers a renewal, if its consumer is still there."""
        subscription = self._hosting.registry.get(renew.sid)
        if self._attachments.get(renew.sid) is not attachment or subscription is None:
            return
        standing = self._standing(subscription)
        here, question = self._hosting.shb, renew.question
        self._post(node, Renewed(here, renew.life, question, renew.sid, renew.attachment, standing, matched))

    def on_commit(self, node: BrokerId, commit: CommitAtHome, now: int, _wall: int) -> None:
        """A consumer elsewhere commits. Without an attachment it gets no answer: its next renewal gets one, or ends."""
        attachment = self._attachments.get(commit.sid) if commit.home == self._hosting.shb else None
        if attachment is None or not attachment.is_of(commit):
            return
        if not self._commit_records.is_current(commit.sid, commit.epoch):
            # The consumer attached before this process began, and another one has had the subscription since.
            self._post_end(attachment, commit.sid, Code.TAKEN_OVER, "another consumer had the subscription meanwhile")
            return
        here = self._hosting.shb

        def durable(_now: int, _wall: int) -> None:
            self._post(node, CommittedAtHome(here, commit.life, commit.sid, commit.attachment, commit.number))

        self._commit_records.commit(
            self._hosting.consumers[commit.sid], commit.positions, commit.unit, commit.enlists, durable, now
        )

    def on_beat(self, now: int, wall: int) -> None:
        """Ends attachments of silent consumers, and forgets old questions. Called every few seconds."""
        for sid in [
            sid for sid, attachment in self._attachments.items() if now - attachment.heard_at >= ATTACHMENT_LIFE
        ]:
            self._end_attachment(sid, now, wall)
        for asker in self._askers.values():
            for number, question in list(asker.questions.items()):
                # An SHB whose client still waits repeats it every second: as silent as this, it has none any more.
                if now - question.heard_at >= (FORGET if question.answer else ATTACHMENT_LIFE):
                    self._drop(asker, number, now, wall)

    # ---------------------------------------------------------------------------------- what they are answered

    def _tell(self, session: int, message: ServerMessage) -> None:
        """Sends a message of this SHB to a session elsewhere, by mail."""
        question = self._asked_in.get(session)
        if isinstance(message, Detached):
            attachment = self._attachments.pop(message.sid, None)
            if attachment is not None and attachment.session.number == session:
                self._post_end(attachment, message.sid, message.code, message.reason)
            return
        if question is None or not isinstance(message, Subscribed | RequestFailed | Done):
            return
        del self._asked_in[session]
        ask = question.ask
        answer = Answer(self._hosting.shb, ask.life, ask.number, message)
        if isinstance(message, Subscribed):
            subscription = self._hosting.registry.get(message.sid)
            assert subscription is not None, "who is attached exists"
            answer = Answer(self._hosting.shb, ask.life, ask.number, message, self._standing(subscription))
            if mail.encode(answer) is None:
                self._hosting.detach(message.sid)
                reason = "the subscription stands on too many pubends to be consumed elsewhere than at its home"
                failed = RequestFailed(ask.request.request, Code.CONFIGURATION, reason)
                answer = Answer(self._hosting.shb, ask.life, ask.number, failed)
            else:
                node, heard_at = question.node, question.heard_at
                attachment = Attachment(node, ask.sender, ask.life, ask.number, question.session, heard_at)
                self._attachments[message.sid] = attachment
        question.answer = answer
        is_here = ask.create or not isinstance(message, RequestFailed) or message.code is not Code.NOT_FOUND
        if self._hosting.is_audited and is_here:
            line = line_of(ask.request, question.session, question.node, answer.message, 0)
            self._hosting.outbox.emit(line)
        self._post(question.node, answer)

    def _asked_from(self, session: int) -> BrokerId:
        question = self._asked_in.get(session)
        return "" if question is None else question.node

    def _on_consumption_ended(self, sid: int) -> None:
        """A subscription has lost its consumer elsewhere to another one of the same client instance."""
        attachment = self._attachments.pop(sid, None)
        if attachment is not None:
            self._post_end(attachment, sid, Code.RETRY, MOVED)

    # ----------------------------------------------------------------------------------------------- how it is done

    def _begin_life(self, sender: ShbId, asker: GuestHost, life: int, now: int, wall: int) -> None:
        """Another SHB has started anew: its former consumers and questions are gone."""
        for number in list(asker.questions):
            self._drop(asker, number, now, wall)
        asker.life, asker.floor = life, 0
        for sid, attachment in list(self._attachments.items()):
            if attachment.sender == sender and attachment.life < life:
                self._end_attachment(sid, now, wall)

    def _end_attachment(self, sid: int, now: int, wall: int) -> None:
        """A consumer elsewhere has gone."""
        attachment = self._attachments.pop(sid)
        self._end_consumption(sid, now, wall)
        self._hosting.channels.pop(attachment.session.number, None)

    def _drop(self, asker: GuestHost, number: int, now: int, wall: int) -> None:
        """Forgets a question, whose answer nobody waits for any more."""
        question = asker.questions.pop(number)
        if self._asked_in.pop(question.session.number, None) is not None:
            self._end_session(SessionEnded(question.session), now, wall)

    def _is_unknown(self, ask: Ask) -> bool:
        request = ask.request
        if isinstance(request, Unsubscribe) or (isinstance(request, Subscribe) and request.sid):
            return False
        name = request.name or ""
        return (
            self._hosting.registry.find(ask.client_id, name) is None
            and (ask.client_id, name) not in self._expiry.lapsed
        )

    def _make_way(self, renew: Renew, wall: int) -> None:
        """Lets a consumer take over now, that attached elsewhere while this SHB was out of reach."""
        holder = self._hosting.consumers.get(renew.sid)
        attachment = self._attachments.get(renew.sid)
        if (
            renew.leaves
            or renew.in_use is None
            or holder is None
            or (attachment is not None and attachment.is_of(renew))
        ):
            return
        taker = _taker_of(renew)
        if self._takeovers.is_overtaken(renew.sid, taker):
            return
        if holder.instance == renew.instance:
            self._holders.take_from(holder, None)
        elif self._takeovers.in_use(renew.sid, taker, renew.in_use) is InUse.TAKEOVER:
            self._holders.take_from(holder, taken_over_by(renew.client_id, taker, wall))

    def _adopt(
        self, node: BrokerId, subscription: SubscriptionRecord, renew: Renew, who: Principal, now: int, wall: int
    ) -> Attachment:
        hosting = self._hosting
        session = self._new_session(renew.client_id, renew.instance, who)
        hosting.outbox.write(
            [*self._expiry.forget(renew.sid), *self._commit_records.adopted(renew.sid, renew.instance)]
        )
        taker = _taker_of(renew)
        self._takeovers.taken(renew.sid, taker)
        hosting.take_consumer(hosting.new_consumer(subscription, session, taker, None, wall), Phase.CONSUMED)
        attachment = Attachment(node, renew.sender, renew.life, renew.attachment, session, now)
        self._attachments[renew.sid] = attachment
        return attachment

    def _end_other(self, node: BrokerId, subscription: SubscriptionRecord, renew: Renew, *, is_overtaken: bool) -> None:
        """Ends a consumer elsewhere while another one has the subscription.

        One that came while this SHB was not heard never had it from here: it learns only now that it was in use.
        """
        holder = self._hosting.consumers.get(renew.sid)
        in_use = self._holders.in_use(subscription, renew.instance)
        if holder is not None and holder.instance == renew.instance:
            self._end(node, renew, Code.RETRY, MOVED)
        elif in_use is not None and renew.in_use in {InUse.ERROR, InUse.WAIT} and not is_overtaken:
            self._end(node, renew, Code.IN_USE, in_use)
        else:
            self._end(node, renew, Code.TAKEN_OVER, _taken_over(holder, subscription))

    def _new_session(self, client_id: str, instance: str, principal: Principal) -> ClientSession:
        self._sessions -= 1
        return ClientSession(self._sessions, client_id, instance, principal)

    def _standing(self, subscription: SubscriptionRecord) -> Standing:
        rows = []
        for stream in self._hosting.streams.values():
            position = stream.positions[subscription.sid]
            if position.sought:
                continue
            acked_event, released = stream.silent(position)
            rows.append(
                Row(stream.pubend, position.start, position.acked, acked_event, released, position.nothing_upto)
            )
        return Standing(tuple(rows), subscription.late_start, subscription.start, subscription.start_wall)

    def _end(self, node: BrokerId, renew: Renew, code: Code, reason: str) -> None:
        self._post(node, Ended(self._hosting.shb, renew.life, renew.sid, renew.attachment, code, reason))

    def _post_end(self, attachment: Attachment, sid: int, code: Code, reason: str) -> None:
        self._hosting.channels.pop(attachment.session.number, None)
        self._post(attachment.node, Ended(self._hosting.shb, attachment.life, sid, attachment.attachment, code, reason))

    def _post(self, node: BrokerId, message: mail.Mail) -> None:
        mail.post(self._hosting.outbox, node, message)


def _taker_of(renew: Renew) -> Taker:
    return Taker(renew.instance, renew.process, renew.asked, renew.attempt, renew.again)


def _principal_of(renew: Renew, subscription: SubscriptionRecord) -> Principal:
    """As whom a consumer elsewhere is judged.

    An older SHB does not say it: then by the name in the subscription's row, with the groups that it had when it was
    created. An older home has not noted that either: then as somebody who has not said who he is, and not as the
    process itself, which may do everything.
    """
    if renew.principal is not None:
        return Principal.of(renew.principal)
    return Principal(subscription.principal or NOBODY_IN_PARTICULAR, frozenset(subscription.groups))


def _taken_over(holder: Consumer | None, subscription: SubscriptionRecord) -> str:
    """Returns who has a subscription, for the one that had it before."""
    if holder is None:
        return "another one uses it, who is no consumer"
    return taken_over_by(subscription.client_id, holder.taker, holder.since)
