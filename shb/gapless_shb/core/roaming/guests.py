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

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from gapless.core.alarms import Alarm, AlarmCode
from gapless.core.network.facts import BrokerId, Post
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
from gapless_shb.core.live.constream import Constream
from gapless_shb.core.ranges.service import as_subscribe
from gapless_shb.core.roaming import mail
from gapless_shb.core.roaming.mail import (
    Answer,
    Ask,
    CommitAtHome,
    CommittedAtHome,
    Ended,
    LostRange,
    Matched,
    Renew,
    Renewed,
    Row,
    Standing,
    Working,
)
from gapless_shb.core.roaming.matches import DOUBTS_MOST
from gapless_shb.core.state.broker_state import ALL_IS_SAID, HomeSays
from gapless_shb.core.state.consumers import Consumer
from gapless_shb.core.state.places import node_of
from gapless_shb.core.state.positions import SubscriptionPosition
from gapless_shb.core.state.refusals import RefusedError
from gapless_shb.core.state.registry import SubscriptionRecord
from gapless_shb.core.state.takers import taker_of
from gapless_shb.core.subscriptions.checks import EXISTS, checked_filter, elsewhere, not_from
from gapless_shb.core.subscriptions.takeovers import taken_over_by
from gapless_shb.core.subscriptions.unverified_positions import UnverifiedPositions
from gapless_shb.core.total_order.groups import Groups

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
    session: ClientSession
    request: Subscribe | Unsubscribe | Attach
    places: list[BrokerId]
    """The brokers to ask, one after the other; the first is being asked now."""
    heard_at: int
    """When that broker last sent something about the question; before that, when the question was first sent."""


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
        ahead: UnverifiedPositions,
        groups: Groups,
        here: dict[type, RequestHandler],
        end_consumption: Callable[[int, int, int], None],
    ) -> None:
        """`here`: the handlers of requests about subscriptions whose home is this SHB, by the request's type."""
        self._hosting = hosting
        self._ahead = ahead
        self._groups = groups
        self._places = hosting.places
        self._here = here
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

    def takes(self, session: ClientSession, request: Subscribe | Unsubscribe | Attach, now: int) -> bool:
        """Asks another SHB about a request if that is needed. Returns whether it was. Raises RefusedError."""
        if isinstance(request, Unsubscribe):
            places = self._places_to_unsubscribe(request)
        elif isinstance(request, Attach):
            places = self._places_to_attach(session, request)
        else:
            places = self._places_to_subscribe(session, request)
        if not places:
            return False
        if not self._hosting.life:
            raise RefusedError(Code.RETRY, "the broker is starting")
        self._numbers += 1
        self._begin(Question(self._numbers, session, request, places, now), now)
        return True

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
        elif self._hosting.registry.find(session.client_id, request.name) is not None:
            return []
        if not self._places.roams:
            if request.sid:
                raise elsewhere(node_of(request.home), self._hosting)
            return []
        places = self._places.of(request, session.client_id)
        if not self._places.have(places[0]):
            raise elsewhere(places[0], self._hosting)
        if request.sid and places[0] == self._places.broker:
            raise RefusedError(Code.NOT_FOUND, "the subscription is gone: this SHB has another volume now")
        if places == [self._places.broker]:
            return []
        consumers = self._hosting.channel(session.number).consumers.values()
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

    def on_committed(self, committed: CommittedAtHome) -> None:
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
            renew = self._renewal(guest, leaves=True)
            self._leaving[guest.attachment] = node_of(guest.home), renew
            self._post(node_of(guest.home), renew)
            self._timers.set(("leave", guest.attachment), now + REPEAT)

    # -------------------------------------------------------------------------------- what homes send

    def on_working(self, working: Working, now: int) -> None:
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
        if question is None:
            self._give_back(node, answer, now)
            return
        failed = isinstance(message, RequestFailed) and message.code is Code.NOT_FOUND
        if failed and len(question.places) > 1:
            self._ask_next(question, now, wall)
            return
        self._forget(question.number)
        if isinstance(message, Subscribed) and isinstance(question.request, Subscribe):
            try:
                former = self._by_home.get((answer.sender, message.sid))
                if former is not None and _is_earlier(question, former):
                    raise RefusedError(Code.TAKEN_OVER, "a later request was answered first")
                self._attach(question, message, answer.sender, message.sid, answer.standing, now, wall)
            except RefusedError as refused:
                self._hosting.tell(question.session.number, refused.answer(question.request.request))
                self._give_back(node, answer, now)
        else:
            self._hosting.tell(question.session.number, message)

    def _give_back(self, node: BrokerId, answer: Answer, now: int) -> None:
        """Gives back the attachment that an answer has granted: its client has gone, or cannot be served here."""
        attached = {guest.attachment for guest in self._guests.values()}
        if not isinstance(answer.message, Subscribed) or answer.number in self._leaving or answer.number in attached:
            return
        message, here = answer.message, self._hosting
        renew = Renew(
            here.shb, here.life, 0, answer.sender, message.sid, message.generation, answer.number, "", "", leaves=True
        )
        self._leaving[answer.number] = node, renew
        self._post(node, renew)
        self._timers.set(("leave", answer.number), now + REPEAT)

    def on_renewed(self, renewed: Renewed, now: int, wall: int) -> None:
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
        for row in renewed.standing.rows:
            stream = self._hosting.streams.get(row.pubend)
            if stream is not None:
                learn(stream.positions[guest.sid], row)
        # A home that has not heard of a pubend yet says nothing about it.
        matched = {answer.pubend: answer for answer in renewed.matched}
        for pubend, doubt in list(guest.doubts.items()):
            if 0 < doubt.asked <= renewed.question and pubend in begins and doubt.said is None:
                doubt.said = home_says(matched.get(pubend))
                self._hosting.streams[pubend].scheduler.step(guest.sid, now, wall)

    def on_ended(self, ended: Ended, now: int, wall: int) -> None:
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

    def _ask(self, question: Question, now: int) -> None:
        floor = min(self._questions, default=question.number)
        session, last = question.session, len(question.places) == 1
        ask = Ask(
            self._hosting.shb,
            self._hosting.life,
            question.number,
            floor,
            session.client_id,
            session.instance,
            session.principal,
            last,
            question.request,
        )
        data = mail.encode(ask)
        if data is None:
            self._forget(question.number)
            reason = "the request is too large to be sent to the home of its subscription"
            self._hosting.tell(
                session.number, RefusedError(Code.CONFIGURATION, reason).answer(question.request.request)
            )
            return
        self._hosting.outbox.emit(Post(question.places[0], mail.ROLE, data))
        self._timers.set(("ask", question.number), now + REPEAT)

    def _repeat(self, question: Question, now: int, wall: int) -> None:
        if now - question.heard_at < SILENT:
            self._ask(question, now)
            return
        self._forget(question.number)
        request, node = question.request, question.places[0]
        try:
            if isinstance(request, Subscribe) and self._is_vouched_for(question.session, request):
                former = self._by_home.get((request.token_home, request.token_sid))
                if former is not None and _is_earlier(question, former):
                    raise RefusedError(
                        Code.RETRY, "another consumer has come meanwhile: its home has to say who has it"
                    )
                home = Subscribed(
                    request.request,
                    request.token_sid,
                    request.token_generation,
                    request.token_seal,
                    False,
                    [],
                    no_local=request.no_local,
                )
                self._attach(question, home, request.token_home, request.token_sid, None, now, wall)
                return
        except RefusedError as refused:
            self._hosting.tell(question.session.number, refused.answer(request.request))
            return
        what = "the subscription" if isinstance(request, Unsubscribe) else f"subscription {request.name!r}"
        reason = f"the SHB {node!r} does not answer, which keeps {what} or would have to create it"
        self._hosting.tell(question.session.number, RequestFailed(request.request, Code.RETRY, reason))

    def _is_vouched_for(self, session: ClientSession, request: Subscribe) -> bool:
        """Whether a request proves by itself which subscription it is of, and where it stands."""
        if not request.token_sid or request.positions is None or request.commits:
            return False  # who commits needs the home, which alone can say what is in doubt
        if request.sid and (request.sid, request.home) != (request.token_sid, request.token_home):
            return False
        checked_filter(session, request, EXISTS)
        record = SubscriptionRecord(
            0,
            session.client_id,
            request.name or "",
            0,
            tuple(request.topics),
            request.selector,
            0,
            0,
            {},
            group="" if request.order is Order.PUBEND else "some",
            not_from=not_from(session, request),
        )
        named = (request.token_home, request.token_sid, request.token_generation)
        return self._hosting.seals.vouch(record, *named, request.token_seal)

    def _ask_next(self, question: Question, now: int, wall: int) -> None:
        """The broker that was asked does not have the subscription: asks the next one, which may create it."""
        self._forget(question.number)
        places, request = question.places[1:], question.request
        if places[0] == self._places.broker:
            self._here[type(request)](question.session, request, now, wall)
            return
        if isinstance(request, Attach):
            refused = elsewhere(places[0], self._hosting)
            self._hosting.tell(question.session.number, refused.answer(request.request))
            return
        self._numbers += 1
        self._begin(Question(self._numbers, question.session, question.request, places, now), now)

    def _begin(self, question: Question, now: int) -> None:
        number = question.number
        self._questions[number] = question
        ends, session = self._hosting.session_ends, question.session.number
        ends.add(session, (Question, number), lambda _now, _wall: self._forget(number))
        self._ask(question, now)

    def _forget(self, number: int) -> None:
        question = self._questions.pop(number)
        self._hosting.session_ends.remove(question.session.number, (Question, number))
        self._timers.cancel(("ask", number))

    # --------------------------------------------------------------------------------------- attaching

    def _attach(
        self,
        question: Question,
        answer: Subscribed,
        home: ShbId,
        home_sid: int,
        standing: Standing | None,
        now: int,
        wall: int,
    ) -> None:
        """Attaches the consumer as a guest. `standing`: its positions, from the home; None if the home is silent."""
        session, request, hosting = question.session, question.request, self._hosting
        assert isinstance(request, Subscribe)
        taker = taker_of(session, request)
        former = self._by_home.get((home, home_sid))
        if former is not None:
            reason = taken_over_by(session.client_id, taker, wall)
            self._end(former, Code.TAKEN_OVER, reason, now, wall)
        checked_filter(session, request, EXISTS)
        group = self._groups.group_of(request.topics) if request.order is Order.TOTAL else ""
        known = standing or Standing()
        token_ticks = None if request.positions is None else {p.pubend: p.tick for p in request.positions}
        record, operations = hosting.registry.create(
            session.client_id,
            request.name or "",
            request.topics,
            request.selector,
            known.late_start,
            _starts(known, token_ticks),
            group=group,
            home=home,
            not_from=not_from(session, request),
            unnamed=(),
        )
        hosting.matcher.add(record.sid, record.filter)
        rows = {row.pubend: row for row in known.rows}
        for stream in hosting.streams.values():
            position = self.position_on(stream, record)
            if stream.pubend in rows:
                learn(position, rows[stream.pubend])
            stream.add(record.sid, position, record.version)
        hosting.write_interest(operations, add=record)
        consumer = Consumer(
            record,
            hosting.channel(session.number),
            taker,
            request.credit_events,
            request.credit_bytes,
            hosting.payload_max,
            request.request,
            since=wall,
        )
        undecided = request.in_use if standing is None else None
        guest = Guest(consumer, home, home_sid, answer.generation, question.number, now, undecided)
        guest.confirmed = rows
        self._guests[record.sid] = self._by_home[home, home_sid] = guest
        begins = {stream.pubend: stream.positions[record.sid].start for stream in hosting.streams.values()}
        if group:
            members = self._groups.members(group)
            begins.update(self._groups.late_starts(record, members, begins, token_ticks or {}))
            starts = begins | dict.fromkeys(token_ticks or {}, 0) | _starts(known, {})
            too_late = self._groups.too_late(members, begins, starts)
            hosting.ordering.begin(consumer, {pubend: begins[pubend] for pubend in members}, too_late)
        positions = [Position(pubend, tick) for pubend, tick in begins.items()]
        subscribed = replace(answer, sid=record.sid, positions=positions, home=home, home_sid=home_sid, group=group)
        hosting.attach(consumer, begins, subscribed, now, wall)
        for acknowledged in request.acknowledged:
            self._ahead.acknowledge(consumer, acknowledged, now)
        self._due(record.sid, now if standing is None else now + RENEW)

    def position_on(self, stream: Constream, record: SubscriptionRecord) -> SubscriptionPosition:
        """Returns where a guest begins on a pubend: it has acknowledged nothing as far as is known here."""
        return SubscriptionPosition(stream.start_of(record), guest=True)

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
            (question.session.number, question.request.name) for question in self._questions.values()
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
        data = mail.encode(message)
        assert data is not None, "a renewal is small"
        self._hosting.outbox.emit(Post(node, mail.ROLE, data))


def home_says(matched: Matched | None) -> HomeSays:
    """Returns which ticks are silence by the home's PFS. `matched`: None if the PFS knows nothing of them."""
    if matched is None:
        return ALL_IS_SAID
    silent = IntervalSet([(matched.lo, matched.upto)])
    for tick in matched.ticks:
        silent.remove(tick - 1, tick)
    return HomeSays(silent.ranges, matched.upto)


def _is_earlier(question: Question, guest: Guest) -> bool:
    """Whether the home has answered a question before that of a guest: answers arrive in any order."""
    assert isinstance(question.request, Subscribe)
    taker, other = taker_of(question.session, question.request), guest.consumer.taker
    if taker.is_of_process(other) and taker.asked != other.asked:
        return taker.is_before(other)
    return question.number < guest.attachment


def learn(position: SubscriptionPosition, row: Row) -> None:
    """Takes over a position from the home: the home's knowledge of what is done with never shrinks."""
    position.acknowledge(row.acked, row.acked_event)
    position.released = max(position.released, row.released)


def _starts(standing: Standing, token_ticks: dict[PubendId, Tick] | None) -> dict[PubendId, Tick]:
    """Returns the first tick of a guest on each pubend.

    That is the tick of the token; where the token names no tick, the subscription's start; without a token, the
    acknowledged tick.
    """
    rows = {row.pubend: row.acked if token_ticks is None else row.start for row in standing.rows}
    return standing.starts | rows | (token_ticks or {})
