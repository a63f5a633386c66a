"""The guest's side: consumers here whose subscriptions are at home at another SHB (protocol: roaming).

A guest is a subscription of this SHB for as long as its consumer is here. It is part of the interest, but in no table,
not in the PFS, and it holds no log back: its home does that. Its reader fetches everything unfiltered, until the
constream covers it.

The home is asked by mail before a consumer is attached. If the home is silent, a consumer with a token of an existing
subscription is attached all the same, because the token's seal proves what it is of. Nothing is created then.

Only the home knows which ticks the subscription is done with. So before a guest is told a gap, its home is asked; as
long as the home is silent, the consumer waits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec.structs import replace

from gapless.core.alarms import Alarm, AlarmCode
from gapless.core.network.facts import BrokerId
from gapless.core.network.timer_queue import TimerQueue
from gapless.core.ports import ClientSession, RequestHandler
from gapless.core.stream.intervals import IntervalSet
from gapless.core.stream.ticks import PubendId, ShbId, Tick
from gapless.core.wire.messages import (
    Acknowledged,
    Attach,
    Code,
    Commit,
    Committed,
    Delayed,
    Detach,
    Detached,
    InUse,
    Order,
    Position,
    RequestFailed,
    Subscribe,
    Subscribed,
    Unit,
    Unsubscribe,
)
from gapless_shb.core.hosting import Hosting
from gapless_shb.core.ranges.service import as_subscribe
from gapless_shb.core.roaming import mail
from gapless_shb.core.roaming.mail import (
    Answer,
    Ask,
    CommitAtHome,
    CommittedAtHome,
    Ended,
    LostRange,
    MailHandler,
    Matched,
    Renew,
    Renewed,
    Row,
    Standing,
    Withdraw,
    Working,
)
from gapless_shb.core.roaming.matches import DOUBTS_MOST
from gapless_shb.core.state.broker_state import ALL_IS_SAID, HomeSays
from gapless_shb.core.state.consumers import Consumer
from gapless_shb.core.state.places import node_of
from gapless_shb.core.state.refusals import RefusedError
from gapless_shb.core.state.registry import SubscriptionRecord
from gapless_shb.core.state.takers import Taker, taker_of
from gapless_shb.core.subscriptions.attach import Subscribing
from gapless_shb.core.subscriptions.checks import EXISTS, check_may_have, checked_filter, elsewhere, ticks_of, wanted
from gapless_shb.core.subscriptions.takeovers import taken_over_by
from gapless_shb.core.subscriptions.waiting import Reason, Waiting, WaitingRequest

MILLISECOND: Final = 1_000_000
SECOND: Final = 1_000_000_000
REPEAT: Final = 500 * MILLISECOND
"""How long a question waits before it is asked again."""
SILENT: Final = 3 * SECOND
"""How long a home may be silent before it counts as away."""
RENEW: Final = 5 * SECOND
"""How often an attachment is renewed."""
URGENT: Final = 250 * MILLISECOND
"""How soon acknowledgements are mailed."""
ROWS_MOST: Final = 256
"""How many positions go in one mail."""


@dataclass(slots=True)
class Question:
    """A client's request that a home is being asked about."""

    number: int
    waiting: WaitingRequest
    """The request; the question is over as soon as that waits no more."""
    places: list[BrokerId]
    """The brokers to ask, one after the other; the first is being asked now."""
    heard_at: int
    """When that broker last sent something about the question; before that, when the question was first sent."""

    @property
    def request(self) -> Subscribe | Unsubscribe | Attach:
        """What the client has asked for."""
        request: Subscribe | Unsubscribe | Attach = self.waiting.request
        return request


@dataclass(slots=True)
class LossInDoubt:
    """Lost ticks in (lo, hi], of which the home is asked which concern the subscription."""

    lo: Tick
    hi: Tick
    asked: int = 0
    """The number of the first renewal that asked; 0: none did."""
    said: HomeSays | None = None
    """The home's answer; None: it has not answered yet."""


@dataclass(slots=True)
class Guest:
    """A consumer here, with its subscription at its home."""

    consumer: Consumer
    home: ShbId
    home_sid: int
    generation: int
    attachment: int
    heard_at: int
    in_use: InUse | None
    """What the client wants if the subscription has another consumer; None once the home has decided."""
    question: int = 0
    """The number of the newest renewal."""
    answered: int = 0
    """The newest renewal that the home has answered."""
    confirmed: dict[PubendId, Row] = field(default_factory=dict)
    """The positions of the subscription, from the home's newest answer."""
    doubts: dict[PubendId, LossInDoubt] = field(default_factory=dict)
    """Per pubend the lost ticks that may be a gap."""
    complained: bool = False
    """Whether the consumer was told that it waits for its home."""
    commit: Commit | None = None
    """The newest commit of its consumer that the home has not answered."""
    handed: tuple[Unit, ...] | None = None
    """The units that the consumer was handed and did not commit, if it left in order."""
    cleared: tuple[PubendId, ...] | None = None
    """The pubends on which the consumer was no longer in doubt; None: it was never in doubt."""

    @property
    def sid(self) -> int:
        """The subscription's id at this SHB."""
        return self.consumer.sid


class Guests:
    """All guests of an SHB, and the questions to homes."""

    def __init__(
        self,
        hosting: Hosting,
        subscribing: Subscribing,
        waiting: Waiting,
        end_consumption: Callable[[int, int, int], None],
    ) -> None:
        self._hosting = hosting
        self._subscribing = subscribing
        self._waiting = waiting
        self._places = hosting.places
        self._end_consumption = end_consumption
        self._timers = TimerQueue()
        self._numbers = 0
        self._questions: dict[int, Question] = {}
        self._guests: dict[int, Guest] = {}
        """By the subscription's id at this SHB."""
        self._by_home: dict[tuple[ShbId, int], Guest] = {}
        self._leaving: dict[int, tuple[BrokerId, Renew]] = {}
        """The home's broker and the last renewal of each consumer that has gone, by attachment."""
        hosting.ask_home = self.ask_home

    # -------------------------------------------------------------------------------- what clients ask

    def asking(self, here: RequestHandler) -> RequestHandler:
        """Returns the handler of a request of clients that asks another SHB about it if that keeps the subscription.

        `here`: the handler of requests about subscriptions that are kept here.
        """

        def handle(session: ClientSession, request: Any, now: int, wall: int) -> None:
            try:
                places = self._places_to_ask(session, request)
                if places and not self._hosting.life:
                    raise RefusedError(Code.RETRY, "the broker is starting")
            except RefusedError as refused:
                self._hosting.tell(session.number, refused.answer(request.request))
                return
            if places:
                self._ask_one(self._waiting.put(Reason.HOME, session, request, here), places, now)
            else:
                here(session, request, now, wall)

        return handle

    def _places_to_ask(self, session: ClientSession, request: Subscribe | Unsubscribe | Attach) -> list[BrokerId]:
        """Returns the brokers to ask about a request; none if it is handled here. Raises RefusedError."""
        if isinstance(request, Unsubscribe):
            return self._places_to_unsubscribe(request)
        if isinstance(request, Attach):
            return self._places_to_attach(session, request)
        return self._places_to_subscribe(session, request)

    def _places_to_unsubscribe(self, request: Unsubscribe) -> list[BrokerId]:
        if self._hosting.registry.find(request.client_id, request.name) is not None:
            return []
        if not self._places.has_home(request.name):
            return self._places.others()
        home = self._places.of_new(request.client_id, request.name)
        return [] if home == self._places.broker else [home]

    def _places_to_attach(self, session: ClientSession, request: Attach) -> list[BrokerId]:
        """A subscription is read by ranges at its home alone, and so it is created there and nowhere beside it.

        Another SHB is asked only where a token names one that may have it still.
        """
        if not self._places.roams or self._hosting.registry.find(session.client_id, request.name) is not None:
            return []
        places = self._places.of(as_subscribe(request), session.client_id)
        if places[0] == self._places.broker:
            return []
        if len(places) == 1:
            raise elsewhere(places[0], self._hosting)
        return places

    def _places_to_subscribe(self, session: ClientSession, request: Subscribe) -> list[BrokerId]:
        """Returns the brokers to ask; none if the subscription's home is this SHB."""
        if not request.name:
            return []  # without a name it lives where it is consumed
        if request.sid:
            if request.home in {"", self._hosting.seals.home}:
                return []
            if not self._places.roams:
                raise elsewhere(node_of(request.home), self._hosting)
        elif not self._places.roams or self._hosting.registry.find(session.client_id, request.name) is not None:
            return []
        places = self._places.of(request, session.client_id)
        if not self._places.have(places[0]):
            raise elsewhere(places[0], self._hosting)
        if request.sid and places[0] == self._places.broker:
            raise RefusedError(Code.NOT_FOUND, "the subscription is gone: this SHB has another volume now")
        if places == [self._places.broker]:
            return []
        if request.sharing is not None:
            raise RefusedError(
                Code.CONFIGURATION,
                f"shared subscription {request.name!r} is kept by {places[0]}, and served there alone: give the client"
                f" the address of {places[0]}",
                node=places[0],
            )
        consumers = self._hosting.channel(session).consumers.values()
        consumed = [consumer.subscription for consumer in consumers]
        mine = [subscription for subscription in consumed if subscription.home and subscription.name == request.name]
        if mine and request.in_use is InUse.ERROR and not request.sid:
            raise RefusedError(Code.IN_USE, f"subscription {request.name!r} is consumed by this very connection")
        return places

    def acknowledged(self, sid: int, now: int) -> None:
        """A guest's consumer has acknowledged something: the home hears of it within `URGENT`, in one mail."""
        if sid in self._guests:
            self._timers.set_earlier(("renew", sid), now + URGENT)

    def commit(self, request: Commit, now: int, wall: int) -> None:
        """A guest's consumer commits: mails the commit to the home until the home answers that it is durable there."""
        guest = self._guests[request.sid]
        for position in request.positions:
            stream = self._hosting.streams.get(position.pubend)
            if stream is not None:
                stream.acknowledge(guest.sid, position.tick, position.event)
        guest.commit = request
        if mail.encode(self._commit_of(guest, request)) is None:
            reason = "the subscription stands on too many pubends to be consumed elsewhere than at its home"
            self._end(guest, Code.CONFIGURATION, reason, now, wall)
            return
        self._mail_commit(guest, now)

    def hand_back(self, request: Detach) -> None:
        """A guest's consumer leaves in order: keeps the units that it was handed and did not commit."""
        guest = self._guests.get(request.sid)
        if guest is not None and request.handed is not None:
            guest.handed = tuple(request.handed)
            guest.cleared = None if request.cleared is None else tuple(request.cleared)

    def on_committed(self, _node: BrokerId, committed: CommittedAtHome, _now: int, _wall: int) -> None:
        """A commit is durable at the home: answers the consumer."""
        guest = self._by_home.get((committed.sender, committed.sid))
        if guest is None or (committed.life, committed.attachment) != (self._hosting.life, guest.attachment):
            return
        if guest.commit is not None and guest.commit.number == committed.number:
            guest.commit = None
            self._timers.cancel(("commit", guest.sid))
            self._hosting.tell(guest.consumer.channel.session, Committed(guest.sid, committed.number))

    def left(self, sid: int, now: int) -> None:
        """A guest's consumer has gone: mails that to the home until the home confirms it."""
        guest = self._drop(sid)
        if guest is not None:
            self._leave(node_of(guest.home), self._renewal(guest, leaves=True), now)

    def _leave(self, node: BrokerId, renew: Renew, now: int) -> None:
        """Gives the attachment back: mails that until the home confirms it."""
        self._leaving[renew.attachment] = node, renew
        self._post(node, renew)
        self._timers.set(("leave", renew.attachment), now + REPEAT)

    # -------------------------------------------------------------------------------- what homes send

    def handlers(self) -> Mapping[type, MailHandler]:
        """Returns the handler of each message that homes send."""
        return {
            Answer: self.on_answer,
            CommittedAtHome: self.on_committed,
            Ended: self.on_ended,
            Renewed: self.on_renewed,
            Working: self.on_working,
        }

    def on_working(self, _node: BrokerId, working: Working, now: int, _wall: int) -> None:
        """A home has received a question, and needs longer to answer it."""
        question = self._questions.get(working.number) if working.life == self._hosting.life else None
        if question is not None:
            question.heard_at = now
            self._timers.set(("ask", question.number), now + SECOND)

    def on_answer(self, node: BrokerId, answer: Answer, now: int, wall: int) -> None:
        """A home has answered a question."""
        if answer.life != self._hosting.life:
            return
        question, message = self._questions.get(answer.number), answer.message
        if question is None or not question.waiting.waits:
            self._give_back(node, answer, now)
            return
        self._forget(question)
        failed = isinstance(message, RequestFailed) and message.code is Code.NOT_FOUND
        if failed and len(question.places) > 1:
            self._ask_next(question, now, wall)
        elif not isinstance(message, Subscribed) or not isinstance(question.request, Subscribe):
            self._waiting.answer(question.waiting, message)
        else:
            try:
                self._attach(question, message, answer.sender, answer.standing, now, wall)
            except RefusedError as refused:
                self._waiting.refuse(question.waiting, refused)
                self._give_back(node, answer, now)

    def _give_back(self, node: BrokerId, answer: Answer, now: int) -> None:
        """Gives back the attachment that an answer has granted: its client has gone, or cannot be served here."""
        attached = {guest.attachment for guest in self._guests.values()}
        if not isinstance(answer.message, Subscribed) or answer.number in self._leaving or answer.number in attached:
            return
        message, here = answer.message, self._hosting
        renew = Renew(
            here.shb, here.life, 0, answer.sender, message.sid, message.generation, answer.number, "", "", leaves=True
        )
        self._leave(node, renew, now)

    def on_renewed(self, _node: BrokerId, renewed: Renewed, now: int, wall: int) -> None:
        """A home has answered a renewal: takes over its positions, and lets readers that waited for them go on."""
        guest = self._by_home.get((renewed.sender, renewed.sid))
        if guest is None or (renewed.life, renewed.attachment) != (self._hosting.life, guest.attachment):
            return
        guest.heard_at = now
        guest.in_use = None
        guest.answered = max(guest.answered, renewed.question)
        guest.complained = False
        guest.confirmed = {row.pubend: row for row in renewed.standing.rows}
        record = guest.consumer.subscription
        begins = {row.pubend: row.start for row in renewed.standing.rows}
        if any(pubend not in record.start for pubend in begins):
            record.start = begins | renewed.standing.starts | record.start
        self._learn(record, renewed.standing)
        # A home that has not heard of a pubend yet says nothing about it.
        matched = {answer.pubend: answer for answer in renewed.matched}
        for pubend, doubt in list(guest.doubts.items()):
            if 0 < doubt.asked <= renewed.question and pubend in begins and doubt.said is None:
                doubt.said = home_says(matched.get(pubend))
                self._hosting.streams[pubend].scheduler.step(guest.sid, now, wall)

    def on_ended(self, _node: BrokerId, ended: Ended, now: int, wall: int) -> None:
        """A home has ended an attachment."""
        if ended.life != self._hosting.life:
            return
        if self._leaving.pop(ended.attachment, None) is not None:
            self._timers.cancel(("leave", ended.attachment))
        guest = self._by_home.get((ended.sender, ended.sid))
        if guest is not None and guest.attachment == ended.attachment:
            self._lose(guest, ended.code, ended.reason, now, wall)

    # ------------------------------------------------------------------------------------------- time

    @property
    def deadline(self) -> int | None:
        """When `on_deadline` has to be called."""
        return self._timers.next()

    def on_deadline(self, now: int, wall: int) -> None:
        """Repeats questions, commits and farewells without an answer, and renews attachments."""
        for what, number in self._timers.take_due(now):
            assert isinstance(number, int)
            if what == "ask":
                self._repeat(self._questions[number], now, wall)
            elif what == "leave":
                node, renew = self._leaving[number]
                self._post(node, renew)
                self._timers.set(("leave", number), now + SECOND)
            elif what == "commit":
                self._mail_commit(self._guests[number], now)
            elif number in self._guests:
                self._renew(self._guests[number], now)

    # ------------------------------------------------------------------------------------------ asking

    def _ask_one(self, waiting: WaitingRequest, places: list[BrokerId], now: int) -> None:
        """Asks the first of these brokers about a request."""
        self._numbers += 1
        question = self._questions[self._numbers] = Question(self._numbers, waiting, places, now)
        waiting.left = lambda _now, _wall: self._withdraw(question)
        self._ask(question, now)

    def _ask_next(self, question: Question, now: int, wall: int) -> None:
        """The broker that was asked does not have the subscription: asks the next one, which may create it."""
        places, waiting = question.places[1:], question.waiting
        if places[0] == self._places.broker:
            self._waiting.go_on(waiting, now, wall)
        elif isinstance(question.request, Attach):
            self._waiting.refuse(waiting, elsewhere(places[0], self._hosting))
        else:
            self._ask_one(waiting, places, now)

    def _ask(self, question: Question, now: int) -> None:
        floor = min(number for number, other in self._questions.items() if other.waiting.waits)
        session, last = question.waiting.session, len(question.places) == 1
        here, who = self._hosting, (session.client_id, session.instance, session.principal.sent)
        ask = Ask(here.shb, here.life, question.number, floor, *who, last, question.request)
        if mail.post(here.outbox, question.places[0], ask):
            self._timers.set(("ask", question.number), now + REPEAT)
        else:
            self._forget(question)
            reason = "the request is too large to be sent to the home of its subscription"
            self._waiting.refuse(question.waiting, RefusedError(Code.CONFIGURATION, reason))

    def _withdraw(self, question: Question) -> None:
        """Whoever has asked has gone: without this, what waits at the home would still be done for it."""
        self._forget(question)
        self._post(question.places[0], Withdraw(self._hosting.shb, self._hosting.life, question.number))

    def _forget(self, question: Question) -> None:
        del self._questions[question.number]
        self._timers.cancel(("ask", question.number))

    def _repeat(self, question: Question, now: int, wall: int) -> None:
        """Asks once more. If the home is silent, a consumer with a token is attached all the same."""
        if question.waiting.waits and now - question.heard_at < SILENT:
            self._ask(question, now)
            return
        self._forget(question)
        if not question.waiting.waits:
            return
        session, request, node = question.waiting.session, question.request, question.places[0]
        what = "the subscription" if isinstance(request, Unsubscribe) else f"subscription {request.name!r}"
        reason = f"the SHB {node!r} does not answer, which keeps {what} or would have to create it"
        try:
            if not isinstance(request, Subscribe) or not self._is_vouched_for(session, request):
                raise RefusedError(Code.RETRY, reason)
            named = request.token_sid, request.token_generation, request.token_seal
            answer = Subscribed(request.request, *named, False, [], no_local=request.no_local)
            self._attach(question, answer, request.token_home, None, now, wall)
        except RefusedError as refused:
            self._waiting.refuse(question.waiting, refused)

    def _is_vouched_for(self, session: ClientSession, request: Subscribe) -> bool:
        """Whether a request proves by itself which subscription it is of, and where it stands."""
        if not request.token_sid or request.positions is None or request.commits:
            return False  # who commits needs the home, which alone can say what is in doubt
        if request.sid and (request.sid, request.home) != (request.token_sid, request.token_home):
            return False
        checked_filter(session, request, EXISTS)
        record = wanted(session, request)
        record.group = "" if request.order is Order.PUBEND else "some"
        named = (request.token_home, request.token_sid, request.token_generation)
        return self._hosting.seals.vouch(record, *named, request.token_seal)

    # --------------------------------------------------------------------------------------- attaching

    def _attach(
        self, question: Question, answer: Subscribed, home: ShbId, standing: Standing | None, now: int, wall: int
    ) -> None:
        """Attaches the consumer as a guest, as `attach` does at home (steps 7 and 8). Raises RefusedError.

        `standing`: where the subscription stands, from the home; None if the home is silent.
        """
        session, request, hosting = question.waiting.session, question.request, self._hosting
        assert isinstance(request, Subscribe)
        check_may_have(hosting, session.principal, wanted(session, request))  # other rules may count since it was asked
        taker, former = taker_of(session, request), self._by_home.get((home, answer.sid))
        if former is not None:
            if _is_earlier(question, taker, former):
                raise _comes_too_early(standing)
            self._end(former, Code.TAKEN_OVER, taken_over_by(session.client_id, taker, wall), now, wall)
        known, given = standing or Standing(), ticks_of(request)
        late = known.late_start, known.start_wall
        record = self._subscribing.create_guest(session, request, home, *late, _starts(known, given))
        self._learn(record, known)
        consumer = self._subscribing.new_consumer(session, request, record, now, wall)
        undecided = request.in_use if standing is None else None
        guest = Guest(consumer, home, answer.sid, answer.generation, question.number, now, undecided)
        guest.confirmed = {row.pubend: row for row in known.rows}
        self._guests[record.sid] = self._by_home[home, answer.sid] = guest
        self._waiting.take(question.waiting)
        at = {each.pubend: each.positions[record.sid].start for each in self._subscribing.found_of(record, given)}
        starts = dict.fromkeys(given or {}, 0) | _starts(known, {})
        subscribed = replace(answer, sid=record.sid, home=home, home_sid=answer.sid)
        self._subscribing.serve(consumer, request, at, starts, subscribed, now, wall)
        self._due(record.sid, now if standing is None else now + RENEW)

    def _learn(self, record: SubscriptionRecord, standing: Standing) -> None:
        """Takes over positions from the home: the home's knowledge of what is done with never shrinks."""
        for row in standing.rows:
            stream = self._hosting.streams.get(row.pubend)
            if stream is not None:
                position = stream.positions[record.sid]
                if position.sought:
                    self._subscribing.seeking.found(stream, record, row.start)
                position.acknowledge(row.acked, row.acked_event)
                position.released = max(position.released, row.released)

    def _drop(self, sid: int) -> Guest | None:
        guest = self._guests.pop(sid, None)
        if guest is not None:
            del self._by_home[guest.home, guest.home_sid]
            self._timers.cancel(("renew", sid))
            self._timers.cancel(("commit", sid))
        return guest

    def _end(self, guest: Guest, code: Code, reason: str, now: int, wall: int) -> None:
        """Ends the consumer of a guest, as the home wants it."""
        self._drop(guest.sid)
        self._hosting.tell(guest.consumer.channel.session, Detached(guest.sid, code, reason))
        self._end_consumption(guest.sid, now, wall)

    def _lose(self, guest: Guest, code: Code, reason: str, now: int, wall: int) -> None:
        """The home has ended an attachment. The code `RETRY` means: for another attachment of the same client instance.

        If the other attachment comes from an older request that was late, the client still believes to be served here.
        So its session is ended, and it connects again.
        """
        consumer = guest.consumer
        session, name = consumer.channel.session, consumer.subscription.name
        if code is not Code.RETRY:
            self._end(guest, code, reason, now, wall)
        elif (session, name) in {
            (other.waiting.session.number, other.request.name)
            for other in self._questions.values()
            if other.waiting.waits
        }:
            self._end(guest, Code.TAKEN_OVER, "another consumer of this very connection took it over", now, wall)
        else:
            self._drop(guest.sid)
            self._hosting.end_session(session, reason)
            self._end_consumption(guest.sid, now, wall)

    # ---------------------------------------------------------------------------------------- renewing

    def _due(self, sid: int, at: int) -> None:
        self._timers.set(("renew", sid), at)

    def ask_home(self, sid: int, pubend: PubendId, lo: Tick, hi: Tick, now: int) -> HomeSays | None:
        """Returns the home's answer about (lo, hi], given since ticks in it were found lost.

        Returns None if there is no answer yet: the home is asked now, and the reader has to wait.
        """
        guest = self._guests.get(sid)
        if guest is None:
            return ALL_IS_SAID
        doubt = guest.doubts.get(pubend)
        if doubt is None or doubt.hi != hi:
            guest.doubts[pubend] = LossInDoubt(lo, hi)
            self._due(sid, now)
            return None
        if doubt.said is not None:
            del guest.doubts[pubend]
        return doubt.said

    def _renew(self, guest: Guest, now: int) -> None:
        guest.question += 1
        renew = self._renewal(guest, leaves=False)
        self._post(node_of(guest.home), renew)
        waits = bool(guest.doubts) or bool(renew.acknowledged) or guest.answered + 1 < guest.question
        if guest.doubts and now - guest.heard_at >= SILENT and not guest.complained:
            guest.complained = True
            self._complain(guest)
        self._due(guest.sid, now + (SECOND if waits else RENEW))

    def _complain(self, guest: Guest) -> None:
        record, node = guest.consumer.subscription, node_of(guest.home)
        reason = (
            f"subscription {record.name!r} waits for its home {node!r}: events are gone from the log, and only its "
            "home knows whether it was done with them"
        )
        self._hosting.tell(guest.consumer.channel.session, Delayed(guest.sid, reason))
        about = f"{record.client_id}/{record.name}"
        self._hosting.outbox.emit(Alarm(AlarmCode.HOME_SILENT, reason, about))

    def _doubts(self, guest: Guest) -> tuple[LostRange, ...]:
        """Returns the lost ticks that the next renewal asks about: as many as have room in one answer."""
        open_ones = [(pubend, doubt) for pubend, doubt in guest.doubts.items() if doubt.said is None]
        for _, doubt in open_ones[:DOUBTS_MOST]:
            doubt.asked = doubt.asked or guest.question
        return tuple(LostRange(pubend, doubt.lo, doubt.hi) for pubend, doubt in open_ones[:DOUBTS_MOST])

    def _renewal(self, guest: Guest, *, leaves: bool) -> Renew:
        acknowledged: list[Acknowledged] = []
        passed: list[Position] = []
        for stream in self._hosting.streams.values():
            position, row = stream.positions[guest.sid], guest.confirmed.get(stream.pubend)
            if len(acknowledged) + len(passed) >= ROWS_MOST:
                break
            if position.acked > (0 if row is None else row.acked):
                acknowledged.append(Acknowledged(stream.pubend, position.acked, position.acked_event))
            if position.nothing_upto > max(position.acked, 0 if row is None else max(row.nothing_upto, row.released)):
                passed.append(Position(stream.pubend, position.nothing_upto))
        here, consumer = self._hosting, guest.consumer
        return Renew(
            here.shb,
            here.life,
            guest.question,
            guest.home,
            guest.home_sid,
            guest.generation,
            guest.attachment,
            consumer.subscription.client_id,
            consumer.instance,
            tuple(acknowledged),
            guest.in_use,
            leaves,
            guest.handed,
            guest.cleared,
            consumer.taker.attempt,
            consumer.subscription.wants,
            tuple(passed),
            consumer.taker.process,
            () if leaves else self._doubts(guest),
            consumer.taker.asked,
            consumer.taker.again,
            consumer.principal.sent,
        )

    def _mail_commit(self, guest: Guest, now: int) -> None:
        assert guest.commit is not None
        self._post(node_of(guest.home), self._commit_of(guest, guest.commit))
        self._timers.set(("commit", guest.sid), now + REPEAT)

    def _commit_of(self, guest: Guest, commit: Commit) -> CommitAtHome:
        here, at = self._hosting, guest.attachment
        positions = tuple(commit.positions)
        return CommitAtHome(
            here.shb,
            here.life,
            guest.home,
            guest.home_sid,
            at,
            commit.epoch,
            commit.number,
            positions,
            commit.unit,
            commit.enlists,
        )

    def _post(self, node: BrokerId, message: mail.Mail) -> None:
        is_sent = mail.post(self._hosting.outbox, node, message)
        assert is_sent, "a renewal is small"


def home_says(matched: Matched | None) -> HomeSays:
    """Returns which ticks are silence by the home's PFS. `matched`: None if the PFS knows nothing of them."""
    if matched is None:
        return ALL_IS_SAID
    silent = IntervalSet([(matched.lo, matched.upto)])
    for tick in matched.ticks:
        silent.remove(tick - 1, tick)
    return HomeSays(silent.ranges, matched.upto)


def _is_earlier(question: Question, taker: Taker, guest: Guest) -> bool:
    """Whether the home has answered a question before that of a guest: answers arrive in any order."""
    other = guest.consumer.taker
    if taker.is_of_process(other) and taker.asked != other.asked:
        return taker.is_before(other)
    return question.number < guest.attachment


def _comes_too_early(standing: Standing | None) -> RefusedError:
    """Returns why a consumer is not attached in place of a guest that came later."""
    if standing is None:
        reason = "another consumer has come meanwhile: its home has to say who has it"
        return RefusedError(Code.RETRY, reason)
    return RefusedError(Code.TAKEN_OVER, "a later request was answered first")


def _starts(standing: Standing, token_ticks: dict[PubendId, Tick] | None) -> dict[PubendId, Tick]:
    """Returns the first tick of a guest on each pubend.

    That is the tick of the token; where the token names no tick, the subscription's start; without a token, the
    acknowledged tick.
    """
    rows = {row.pubend: row.acked if token_ticks is None else row.start for row in standing.rows}
    return standing.starts | rows | (token_ticks or {})
