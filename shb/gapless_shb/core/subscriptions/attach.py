"""Creates subscriptions, attaches consumers to them, removes them (protocol: subscribing, tokens, exclusive-consumers).

A request to subscribe goes through these steps, in `on_subscribe`, `_attach_existing` and `_attach`. It is refused, and
changes nothing; or it waits, and begins anew with the first step (`waiting`):

1. Does the subscription exist? By its id it has to; by its name it is created if it does not.
2. Does the request want the same filter, and order? Does its token belong to the subscription? Are its positions real,
   and known here? (`checks`) If that is not known yet, it waits for that (`unverified_positions`).
3. Is the note that nobody has it deleted? It waits for that (`expiry`).
4. Is it durable, with its final start and filter? Otherwise its creation goes on, for this request.
5. Has somebody else got it, a consumer or a reader by ranges? Then the request waits, or takes it over (`holders`).
6. Must it be created anew, or changed? That is a creation, as one of a new subscription.
7. Is its commit record durable, and is it claimed of the pubends where transactions stored its position? (`commits`)
8. The answer, and the consumer is served.

Whether another SHB keeps the subscription is found out before (`roaming.guests`). There all eight steps are taken then,
for a consumer that is elsewhere. Here the subscription is made as a guest, and its consumer is served as in step 8.

A creation is answered when three things are done: the record is durable, every known pubend has enrolled this SHB, and
every hold that the subscription needs is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from msgspec.structs import replace

from gapless.core.alarms import Note, Subject
from gapless.core.outbox import Then
from gapless.core.ports import Action, ClientSession, Operation, RecoveryReader
from gapless.core.resources import Durable
from gapless.core.stream.ticks import PubendId, ShbId, Tick, tick_at
from gapless.core.wire.messages import (
    Code,
    Detached,
    Done,
    InUse,
    OnChange,
    Order,
    Position,
    StartAt,
    Subscribe,
    Subscribed,
    Unsubscribe,
)
from gapless_shb.core.hosting import Hosting
from gapless_shb.core.live.constream import Constream
from gapless_shb.core.state.consumers import Consumer
from gapless_shb.core.state.positions import SubscriptionPosition
from gapless_shb.core.state.refusals import RefusedError
from gapless_shb.core.state.registry import SKEW, Shares, SubscriptionRecord
from gapless_shb.core.state.rows import delete_positions, position_row
from gapless_shb.core.state.subscription import Phase
from gapless_shb.core.state.takers import taker_of
from gapless_shb.core.subscriptions.checks import (
    EXISTS,
    called,
    check_existing,
    check_limit,
    check_may_have,
    check_sharing,
    checked_filter,
    checked_new,
    known_by_id,
    not_from,
    note_refusal,
    origin_of,
    removed,
    ticks_of,
    untaken,
    wanted,
)
from gapless_shb.core.subscriptions.claims import key_of
from gapless_shb.core.subscriptions.commits import CommitRecords, OpenedRecord
from gapless_shb.core.subscriptions.expiry import Expiry
from gapless_shb.core.subscriptions.holders import Holders
from gapless_shb.core.subscriptions.seeking import Seeking
from gapless_shb.core.subscriptions.sharing import SharedSubscriptions
from gapless_shb.core.subscriptions.takeovers import Takeovers
from gapless_shb.core.subscriptions.unverified_positions import BeyondError, UnverifiedPositions
from gapless_shb.core.subscriptions.waiting import Reason, Waiting, WaitingRequest
from gapless_shb.core.total_order.groups import Groups

TOPICS_TOLD = 5
"""So many topics of a subscription stand in a line of the log."""
PORTION = 64
"""So much of completing creations is done in one turn of the node: `BEGUN` for each, and one for each pubend."""
BEGUN = 3


@dataclass(slots=True, eq=False)
class Creation:
    """A subscription whose creation, or change, is not answered yet, and what is done of it."""

    subscription: SubscriptionRecord
    creator: WaitingRequest | None = None
    """The request that it is to answer, if that still waits."""
    durable: bool = False
    """Whether the record is durable in its present form."""
    resolved: bool = False
    """Whether the record was written again with the starts that the holds gave."""
    changes: bool = False
    """Whether the subscription was there before, and gets another filter."""


class Subscribing:
    """The life of subscriptions: takes requests, and sends writes and answers through the hosting SHB."""

    def __init__(
        self,
        hosting: Hosting,
        expiry: Expiry,
        ahead: UnverifiedPositions,
        groups: Groups,
        commit_records: CommitRecords,
        takeovers: Takeovers,
        holders: Holders,
        waiting: Waiting,
        reader: RecoveryReader,
    ) -> None:
        self._hosting = hosting
        self.seeking = Seeking(hosting)
        self._takeovers = takeovers
        self._holders = holders
        self._waiting = waiting
        self._commit_records = commit_records
        self._expiry = expiry
        self._ahead = ahead
        self._groups = groups
        self._creations: dict[int, Creation] = {}
        self._sharing = SharedSubscriptions(hosting, reader, lambda record, now: self.remove(record, now, None))
        self.may_complete = False
        """A mark of the turn: something that creations wait for has happened."""
        self._turn_at = -1
        self._left = 0
        """How much of completing creations may still be done in this turn of the node."""
        self._is_behind = False
        """Whether creations that wait for nothing any more were left to the next turn."""

    @property
    def sharing(self) -> SharedSubscriptions:
        """The shared ones among them."""
        return self._sharing

    # ------------------------------------------------------------------------------------- requests

    def on_subscribe(self, session: ClientSession, request: Subscribe, now: int, wall: int) -> None:
        """Creates the subscription or attaches to it. Exactly one answer follows."""
        try:
            existing = self._existing(session, request)  # 1
            if existing is None:
                self._create(session, request, now, wall, in_place=False)
            else:
                self._waiting.pass_on(existing.sid, now, wall)
                self._attach_existing(session, request, existing, now, wall)
        except BeyondError as beyond:
            self._ahead.put_off(session, request, beyond, self.on_subscribe, now)
        except RefusedError as refused:
            self._hosting.tell(session.number, refused.answer(request.request))

    def define(self, session: ClientSession, request: Subscribe, now: int, wall: int) -> int:
        """Creates the subscription unless it exists, without a consumer. Returns its id.

        Raises RefusedError. Raises BeyondError if it is not known yet whether the subscription can be created.

        Until the subscription is durable and its start is final, `is_settled` says no.
        """
        found = self._existing(session, request)
        if found is None:
            creation = self._create(session, request, now, wall, in_place=False)
            assert creation.creator is not None
            self._waiting.take(creation.creator)  # who does not consume is answered by `is_settled`
            return creation.subscription.sid
        check_may_have(self._hosting, session.principal, found)  # or an error would tell what it has
        changes = check_existing(session, request, found, self._hosting, now)
        assert not changes, "who attaches without consuming changes nothing"
        self.is_settled(found)
        return found.sid

    def is_settled(self, subscription: SubscriptionRecord) -> bool:
        """Whether a subscription is durable, with its final start and filter.

        If a crash has interrupted that, it goes on now.
        """
        sid, registry = subscription.sid, self._hosting.registry
        if not subscription.begun and registry.phase(sid) is Phase.FREE:
            self._hosting.registry.become(sid, Phase.CREATING)
            self._creations[sid] = Creation(subscription, durable=True)
            self.may_complete = True
        return subscription.begun and not registry.is_preparing(sid)

    def _await(self, creation: Creation, session: ClientSession, request: Subscribe) -> None:
        """A request waits for a creation, which is to answer it."""
        created, left = partial(self._attach_created, creation), partial(self._creator_left, creation)
        sid = creation.subscription.sid
        creation.creator = self._waiting.put(Reason.PREPARING, session, request, created, sid, left)

    def _nobody_has(self, session: ClientSession, client_id: str, name: str) -> str:
        """Says so. Others of that name are told to those who may know of them."""
        reason = f"there is no subscription {name!r} of client {client_id!r}"
        asked, who = self._hosting.authorizer, session.principal
        others = sorted(
            each.client_id
            for each in self._hosting.registry
            if each.name == name
            and not (asked.asks and asked.refusal(who, Action.OBSERVE, Durable(each.client_id, name)))
        )
        if not others:
            return reason
        more = f" and {len(others) - 3} more" if len(others) > 3 else ""
        return f"{reason}; there is one of client {', '.join(map(repr, others[:3]))}{more}: give its client id"

    def on_unsubscribe(self, session: ClientSession, request: Unsubscribe, now: int, wall: int) -> None:
        """Removes a durable subscription, and informs its consumer.

        The answer waits for the disk, even if there is no such subscription. An earlier removal may be on its way to
        the disk without an answer yet, and a client that asks again would take "not found" for a proof that it is done.
        """
        self._ahead.give_up(request.client_id, request.name)
        subscription = self._hosting.registry.find(request.client_id, request.name)
        if subscription is None:
            lapsed = self._expiry.forget_lapsed(request.client_id, request.name)
            if lapsed:
                self._hosting.write_then_tell(lapsed, session.number, Done(request.request))
                return
            refused = RefusedError(Code.NOT_FOUND, self._nobody_has(session, request.client_id, request.name))
            self._hosting.write_then_tell((), session.number, refused.answer(request.request))
            return
        consumer = self._hosting.consumers.get(subscription.sid)
        if consumer is not None:
            self._hosting.tell(
                consumer.channel.session, Detached(subscription.sid, Code.UNSUBSCRIBED, "the subscription was removed")
            )
        self.remove(subscription, now, session)
        self._hosting.write_then_tell((), session.number, Done(request.request))

    def remove(self, subscription: SubscriptionRecord, now: int, by: ClientSession | None) -> None:
        """Removes a subscription everywhere. `by`: who has asked for it; None: nobody has."""
        sid = subscription.sid
        hosting = self._hosting
        hosting.detach(sid)
        self._holders.removed(sid)
        self._creations.pop(sid, None)
        self._waiting.refuse_all(sid, removed())
        operations: list[Operation] = [*hosting.registry.remove(subscription)]
        operations += delete_positions(sid, hosting.streams)
        operations += self._expiry.removed(sid)
        operations += self._sharing.removed(sid)
        operations += self._commit_records.remove(subscription)
        hosting.matcher.remove(sid)
        for stream in hosting.streams.values():
            stream.remove(sid)
            if stream.holds.drop(sid, now):
                hosting.write_holds(stream)
        hosting.write_interest(operations, drop=subscription)
        if subscription.durable:
            self._tell_log(subscription, "was removed")
            self._hosting.tell_audit("removal", subscription, by, "" if by else "it was not consumed for too long")

    def _creator_left(self, creation: Creation, now: int, _wall: int) -> None:
        """The session has ended that waits for a creation. The subscription stays if it is durable."""
        if not creation.subscription.durable:
            self.remove(creation.subscription, now, None)

    # ------------------------------------------------------------------------------------- creation

    def _existing(self, session: ClientSession, request: Subscribe) -> SubscriptionRecord | None:
        registry = self._hosting.registry
        if request.sid:
            return known_by_id(self._hosting, session, request)
        return registry.find(session.client_id, request.name) if request.name else None

    def _create(self, session: ClientSession, request: Subscribe, now: int, wall: int, *, in_place: bool) -> Creation:
        """Begins the creation of a subscription. Raises RefusedError, and BeyondError for what is not known yet."""
        hosting, original = self._hosting, request
        if request.sharing is not None:
            check_sharing(session, request, hosting)
        lapsed = self._expiry.lapsed.get((session.client_id, request.name or ""))
        if lapsed is not None:
            request = self._expiry.resumed(request, lapsed)
        subscription = checked_new(session, request, hosting, now, in_place=in_place)
        group = self._groups.group_of(request.topics) if request.order is Order.TOTAL else ""
        if request.start is StartAt.TOKEN:
            self._ahead.check(request.positions or (), called(request.name))
        subscription.late_start = _late_start(original, wall) if lapsed is None else lapsed.late_start
        subscription.start_wall = _start_wall(original) if lapsed is None else lapsed.start_wall
        subscription.start = {position.pubend: position.tick for position in request.positions or ()}
        # A name that lapsed may not have been there when a pubend was found.
        sought = [] if lapsed is None else [each for each in hosting.streams.values() if each.seeks(subscription)]
        starts = {
            stream.pubend: self._requested_start(stream, request)
            for stream in hosting.streams.values()
            if stream not in sought
        }
        known = {pubend: start for pubend, (start, _) in starts.items()}
        named = {position.pubend for position in request.positions or ()}
        subscription.start = known | {pubend: at for pubend, at in subscription.start.items() if pubend not in known}
        subscription.begun = not sought and not any(needs_hold for _, needs_hold in starts.values())
        subscription.group = group
        if original.sharing is not None:
            subscription.shared = Shares(original.sharing.window, original.sharing.durable)
        if request.start is StartAt.TOKEN:
            subscription.origin = origin_of(original)
            subscription.unnamed = tuple(pubend for pubend in known if pubend not in named)
        operations = self._enter(
            subscription,
            {
                pubend: SubscriptionPosition(at, acked=at, held=needs_hold)
                for pubend, (at, needs_hold) in starts.items()
            },
            Phase.CREATING,
            now,
        )
        for stream in sought:
            operations += self.seeking.seek(stream, subscription, now)
            hosting.write_holds(stream)
        if lapsed is not None:
            operations += self._expiry.forget_lapsed(session.client_id, subscription.name)
            if subscription.shared is not None:
                operations += self._sharing.come_back(subscription, lapsed.windows)
        for pubend, (_, needs_hold) in starts.items():
            stream = hosting.streams[pubend]
            if needs_hold and request.start is StartAt.TIME and not stream.meta.timed:
                stream.holds.times[subscription.sid] = request.start_wall
            if needs_hold:
                hosting.write_holds(stream)
        hosting.write_interest(operations, self._when_durable(subscription.sid), add=subscription)
        creation = self._creations[subscription.sid] = Creation(subscription)
        self._await(creation, session, request)
        return creation

    def _requested_start(self, stream: Constream, request: Subscribe) -> tuple[Tick, bool]:
        """Returns (start, whether it needs a hold). Start 0 asks for the earliest tick."""
        if request.start is StartAt.TOKEN:
            start = next((p.tick for p in request.positions or () if p.pubend == stream.pubend), 0)
        elif request.start is StartAt.TIME:
            start = stream.at(request.start_wall)
        else:
            start = 0 if request.start is StartAt.EARLIEST else stream.client_position(stream.head)
        return start, start < max(stream.released, stream.enrolled_at, 1)

    def _enter(
        self,
        subscription: SubscriptionRecord,
        positions: Mapping[PubendId, SubscriptionPosition],
        phase: Phase,
        now: int,
    ) -> list[Operation]:
        """A subscription is there from now on, at these positions. Returns what has to be written."""
        hosting = self._hosting
        operations = hosting.registry.create(subscription, phase)
        sid = subscription.sid
        hosting.matcher.add(sid, subscription.filter)
        for pubend, position in positions.items():
            stream = hosting.streams[pubend]
            stream.add(sid, position, subscription.version)
            if position.held:
                stream.holds.put(sid, position.start, now)
                operations.append(position_row(sid, pubend, position))
        return operations

    def create_guest(
        self,
        session: ClientSession,
        request: Subscribe,
        home: ShbId,
        late_start: Tick,
        start_wall: int,
        starts: dict[PubendId, Tick],
    ) -> SubscriptionRecord:
        """A subscription that another SHB keeps is going to be consumed here. Nothing of it becomes durable.

        It begins at `starts`, and on other pubends where `late_start` and `start_wall` say. Raises RefusedError.
        """
        checked_filter(session, request, EXISTS)
        subscription = wanted(session, request)
        subscription.home, subscription.begun = home, True
        subscription.late_start, subscription.start_wall, subscription.start = late_start, start_wall, starts
        if request.order is Order.TOTAL:
            subscription.group = self._groups.group_of(request.topics)
        on = self._hosting.streams.values()
        positions = {
            s.pubend: SubscriptionPosition(s.start_of(subscription), guest=True, sought=s.seeks(subscription))
            for s in on
        }
        self._hosting.write_interest(self._enter(subscription, positions, Phase.FREE, 0), add=subscription)
        return subscription

    def on_held(self, stream: Constream, resolved: Iterable[tuple[int, Tick]]) -> None:
        """A pubend keeps these holds, from these ticks on.

        A subscription that is being created starts there, if that is later than it asked for. Two kinds of subscription
        keep their start, and their reader reports the difference as a gap:

        - one that continues an earlier position, because it was created by a token or resumes a lapsed name; where a
          subscription's token does not name the pubend, that was not known then, and its first tick is the position;
        - one that has begun: its hold could not keep events that were released early.
        """
        self.may_complete = True
        for sid, held_from in resolved:
            at = stream.beginning(held_from)
            subscription, position = self._hosting.registry.get(sid), stream.positions.get(sid)
            if subscription is not None and position is not None and position.sought:
                if stream.seeks(subscription):
                    self.seeking.found_by_pubend(stream, subscription, held_from)
                continue
            if subscription is None or position is None or subscription.begun or position.start >= at:
                continue
            if subscription.origin is not None:
                if position.acked or subscription.names(stream.pubend):
                    continue
                if subscription.origin[0]:  # it is a subscription's, and not only positions that somebody put together
                    at = stream.meta.created
            at = stream.client_position(at)
            position.start = at
            position.acknowledge(at, 0)
            subscription.start = {**subscription.start, stream.pubend: at}
            stream.touch(sid, position)

    def has_to_complete(self, now: int) -> bool:
        """Whether creations may wait for nothing any more, and there is something left of this turn for them."""
        return self.may_complete or (self._is_behind and now != self._turn_at)

    def deadline(self) -> int | None:
        """When the creations that were left over are completed; None if there are none."""
        return self._turn_at + 1 if self._is_behind else None

    def complete_creations(self, now: int, wall: int) -> None:
        """Answers the creations that wait for nothing any more, as many as one turn has room for.

        One sync makes all durable that came while the sync before ran. To serve them all at once would make others
        wait. The rest has the next turn; a new turn is recognised by its time.
        """
        if now != self._turn_at:
            self._turn_at, self._left = now, PORTION
        self.may_complete = self._is_behind = False
        for creation in list(self._creations.values()):
            if not self._is_ready(creation):
                continue
            if self._left <= 0:
                self._is_behind = True
                return
            self._left -= BEGUN + len(self._hosting.streams)
            self._go_on(creation, now, wall)

    def _go_on(self, creation: Creation, now: int, wall: int) -> None:
        sid = creation.subscription.sid
        held = any(stream.positions[sid].held for stream in self._hosting.streams.values())
        # Holds may have raised the start. The answer names it, so it has to be durable before.
        if (held or not creation.subscription.begun) and not creation.resolved:
            creation.resolved, creation.durable = True, False
            self._begin(creation.subscription)
            return
        del self._creations[sid]
        self._hosting.registry.become(sid, Phase.FREE)
        self._note(creation)
        if creation.creator is not None:
            self._waiting.go_on(creation.creator, now, wall)

    def _attach_created(
        self, creation: Creation, session: ClientSession, request: Subscribe, now: int, wall: int
    ) -> None:
        """A creation is complete. Nobody can have had the subscription, so there is nothing to be checked anew."""
        try:
            check_may_have(self._hosting, session.principal, creation.subscription)
            self._attach(session, request, creation.subscription, now, wall, created=not creation.changes)
        except RefusedError as refused:  # its topics are no longer all of one group, or other rules count
            self._hosting.tell(session.number, refused.answer(request.request))
            note_refusal(self._hosting, session, creation.subscription, refused)
            if not creation.subscription.durable:
                self.remove(creation.subscription, now, session)

    def _note(self, creation: Creation) -> None:
        subscription = creation.subscription
        if subscription.durable:
            done = "has another filter now" if creation.changes else "was created"
            selector = f" with selector {subscription.selector!r}" if subscription.selector else ""
            more = f" and {len(subscription.topics) - TOPICS_TOLD} more" * (len(subscription.topics) > TOPICS_TOLD)
            topics = ", ".join(map(repr, subscription.topics[:TOPICS_TOLD]))
            self._tell_log(subscription, f"{done}, for {topics}{more}{selector}")
            by = None if creation.creator is None else creation.creator.session
            reason = "with another filter" if creation.changes else ""
            self._hosting.tell_audit("creation", subscription, by, reason)

    def _tell_log(self, subscription: SubscriptionRecord, what: str) -> None:
        who = f"subscription {subscription.name!r} of client {subscription.client_id!r}"
        name, client_id = subscription.name, subscription.client_id
        self._hosting.outbox.emit(Note(Subject.SUBSCRIPTION, f"{who} {what}", subscription=name, client_id=client_id))

    def _begin(self, subscription: SubscriptionRecord) -> None:
        """The start is known on every pubend, and final now: makes that durable in one write."""
        sid = subscription.sid
        subscription.begun = True
        operations = self._hosting.registry.save(subscription)
        for stream in self._hosting.streams.values():
            if stream.positions[sid].held and subscription.durable:
                operations.append(position_row(sid, stream.pubend, stream.positions[sid]))
        self._hosting.outbox.write(operations, self._when_durable(sid))

    def _when_durable(self, sid: int) -> Then:
        """Returns what lets a creation go on when everything that was written for it is durable."""

        def durable(_now: int, _wall: int) -> None:
            if sid in self._creations:
                self._creations[sid].durable = self.may_complete = True

        return durable

    def _is_ready(self, creation: Creation) -> bool:
        sid = creation.subscription.sid
        streams = self._hosting.streams.values()
        return creation.durable and all(stream.enrolled and not stream.holds.waits_for(sid) for stream in streams)

    # ------------------------------------------------------------------------------------ attaching

    def _attach_existing(
        self, session: ClientSession, request: Subscribe, subscription: SubscriptionRecord, now: int, wall: int
    ) -> None:
        # It may have waited, and other rules may count now. Whoever may change it needs no right to what it has been.
        changes = not request.sid and request.on_change is not OnChange.ERROR
        check_may_have(self._hosting, session.principal, wanted(session, request) if changes else subscription)
        if request.sharing is not None:
            check_sharing(session, request, self._hosting)
        changed = check_existing(session, request, subscription, self._hosting, now)  # 2
        if request.order is Order.TOTAL:
            self._groups.group_of(request.topics)
        if request.commits:  # the answer says that what is repeated is durable: so that is judged before
            self._commit_records.news(subscription, request.acknowledged, now)
        sid = subscription.sid
        if self._expiry.note_return(session, request, sid, self.on_subscribe):  # 3
            return
        if not self.is_settled(subscription):  # 4
            self._adopt(session, request, subscription, changed=changed)
            return
        makes_anew = changed and request.on_change is OnChange.JMS  # 5
        if makes_anew and subscription.principal != session.principal.name:
            check_limit(session, request, self._hosting)  # it has one more then
        again = self.on_subscribe
        if subscription.shared is not None:
            self._sharing.check(session, request, subscription, changed=changed)
        elif not self._holders.make_way(session, request, subscription, again, now, wall, makes_anew=makes_anew):
            return
        if makes_anew:  # 6
            # In one write: a crash must not leave the name without a subscription, of which the client knew.
            self.remove(subscription, now, session)
            anew = replace(request, start=StartAt.LATEST, positions=None)
            self._create(session, anew, now, wall, in_place=True)
        elif changed:
            self._change(session, request, subscription, wall)
        else:
            self._attach(session, request, subscription, now, wall, created=False)

    def _change(self, session: ClientSession, request: Subscribe, subscription: SubscriptionRecord, wall: int) -> None:
        """Gives a subscription that nobody consumes the filter of a request; it keeps its position.

        All of it is one write, and the answer waits for that: a crash leaves the old filter with its positions in the
        PFS, or the new one with none.
        """
        hosting, sid = self._hosting, subscription.sid
        former, operations = hosting.registry.change(
            subscription, request.topics, request.selector, not_from(session, request)
        )
        hosting.matcher.remove(sid)
        hosting.matcher.add(sid, subscription.filter)
        for stream in hosting.streams.values():
            position = stream.change(sid, subscription.version)
            operations.append(position_row(sid, stream.pubend, position))
        operations += self._commit_records.changed(former, wall)
        hosting.registry.become(sid, Phase.CHANGING)
        hosting.write_interest(operations, self._when_durable(sid), add=subscription, former=former)
        creation = self._creations[sid] = Creation(subscription, changes=True)
        self._await(creation, session, request)

    def _adopt(
        self, session: ClientSession, request: Subscribe, subscription: SubscriptionRecord, *, changed: bool
    ) -> None:
        """Continues a creation that lost its creator, or that a crash interrupted, for this session.

        The answer goes to this session when the creation is complete. Whoever wants another filter asks again then.
        """
        if changed:
            raise RefusedError(Code.RETRY, f"subscription {subscription.name!r} is being created, or changed")
        creation = self._creations[subscription.sid]
        creator = creation.creator
        if creator is not None and creator.waits:
            same = (creator.session.instance, creator.request.request) == (session.instance, request.request)
            if subscription.shared is not None and not same:  # several come at once, and all may have it
                self._waiting.put(Reason.PREPARING, session, request, self.on_subscribe, subscription.sid)
                return
            if creator.session.instance != session.instance:
                # Whoever may wait, or take it over, asks again until it is there.
                code = Code.IN_USE if request.in_use is InUse.ERROR else Code.RETRY
                raise RefusedError(code, "the subscription is being created by another consumer")
            if taker_of(session, request).is_before(taker_of(creator.session, creator.request)):
                raise RefusedError(Code.TAKEN_OVER, "a later request of the same client came first")
            taken_over = RefusedError(Code.TAKEN_OVER, "another consumer of the same client took it over")
            self._waiting.refuse(creator, taken_over)
        self._await(creation, session, request)
        self.may_complete = True

    def _attach(
        self,
        session: ClientSession,
        request: Subscribe,
        subscription: SubscriptionRecord,
        now: int,
        wall: int,
        *,
        created: bool,
    ) -> None:
        if subscription.shared is not None:
            self._join(session, request, subscription, now, wall, created=created)
            return
        if subscription.group:
            self._groups.group_of(subscription.topics)
        self._takeovers.taken(subscription.sid, taker_of(session, request))
        consumer = self.new_consumer(session, request, subscription, now, wall)
        opening = self._commit_records.open(consumer, request)
        if opening is None:
            self._answer(consumer, request, OpenedRecord(), now, wall, created=created)
            return
        opened, rows = opening
        self._hosting.take_consumer(consumer, Phase.ATTACHING)
        waiting = self._waiting.put(Reason.RECORD, session, request, self.on_subscribe, consumer.sid)

        def claimed(ticks: Mapping[PubendId, Tick], reason: str, now: int, wall: int) -> None:
            if self._hosting.consumers.get(consumer.sid) is not consumer:
                taken_over = RefusedError(Code.TAKEN_OVER, "another consumer took it over while it was being attached")
                self._waiting.refuse(waiting, taken_over)
                return
            try:
                if reason:
                    raise RefusedError(Code.RETRY, reason)
                check_may_have(self._hosting, session.principal, subscription)
                self._commit_records.advance(subscription, ticks, now)
                self._answer(consumer, request, opened, now, wall, created=created)
                self._waiting.take(waiting)
            except BeyondError as beyond:
                self._hosting.detach(consumer.sid)
                self._waiting.take(waiting)
                self._ahead.put_off(session, request, beyond, self.on_subscribe, now)
            except RefusedError as refused:  # as in `_attach_created`
                self._hosting.detach(consumer.sid)
                self._waiting.refuse(waiting, refused)
                note_refusal(self._hosting, session, subscription, refused)

        def durable(now: int, wall: int) -> None:
            if opened.claims and self._hosting.consumers.get(consumer.sid) is consumer:
                waiting.reason = Reason.CLAIM
                self._commit_records.claim(subscription, opened, claimed)
            else:
                claimed({}, "", now, wall)

        self._hosting.outbox.write(rows, durable)

    def _join(
        self,
        session: ClientSession,
        request: Subscribe,
        subscription: SubscriptionRecord,
        now: int,
        wall: int,
        *,
        created: bool,
    ) -> None:
        """A consumer takes part in a shared subscription, and is answered."""
        hosting = self._hosting
        answer = Subscribed(
            request.request,
            subscription.sid,
            subscription.generation,
            hosting.seals.of(subscription),
            created,
            [],
            hosting.seals.home,
            untaken=untaken(subscription.topics, hosting.streams) if created else (),
        )
        self._sharing.join(session, request, answer, now, wall)

    def new_consumer(
        self, session: ClientSession, request: Subscribe, subscription: SubscriptionRecord, now: int, wall: int
    ) -> Consumer:
        """Returns the consumer that a request makes. What it has acknowledged before counts."""
        consumer = self._hosting.new_consumer(subscription, session, taker_of(session, request), request, wall)
        for acknowledged in request.acknowledged:
            self._ahead.acknowledge(consumer, acknowledged, now)
        return consumer

    def _answer(
        self, consumer: Consumer, request: Subscribe, opened: OpenedRecord, now: int, wall: int, *, created: bool
    ) -> None:
        """Serves the consumer of a subscription that is kept here, from where it goes on."""
        hosting, subscription = self._hosting, consumer.subscription
        sid, given = subscription.sid, ticks_of(request)
        positions = {stream.pubend: stream.positions[sid] for stream in self.found_of(subscription, given)}
        at = {pubend: self.attach_at(hosting.streams[pubend], on, given) for pubend, on in positions.items()}
        starts = {pubend: on.start for pubend, on in positions.items()}
        answer = Subscribed(
            request.request,
            sid,
            subscription.generation,
            hosting.seals.of(subscription),
            created,
            [],
            hosting.seals.home,
            epoch=opened.epoch,
            doubt=opened.doubt,
            cleared=opened.cleared,
            attempts=opened.attempts,
            units=opened.units,
            no_local=bool(subscription.not_from),
            key=key_of(hosting.shb, subscription) if opened.epoch else "",
            claim=opened.claim,
            enlisted=opened.enlisted if opened.epoch else (),
            earlier=opened.earlier,
            untaken=untaken(subscription.topics, hosting.streams) if created else (),
        )
        self.serve(consumer, request, at, starts, answer, now, wall)

    def serve(
        self,
        consumer: Consumer,
        request: Subscribe,
        at: dict[PubendId, Tick],
        starts: Mapping[PubendId, Tick],
        answer: Subscribed,
        now: int,
        wall: int,
    ) -> None:
        """Answers a consumer, and serves it from `at` on.

        `starts`: where its subscription began. `answer`: without the positions, and without the group.
        """
        hosting, subscription = self._hosting, consumer.subscription
        group = self._groups.group_of(subscription.topics) if subscription.group else ""
        if group:
            members = self._groups.members(group)
            at.update(self._groups.late_starts(subscription, members, at, ticks_of(request) or {}))
            if not consumer.is_elsewhere:
                too_late = self._groups.too_late(members, at, starts)
                hosting.ordering.begin(consumer, {pubend: at[pubend] for pubend in members}, too_late)
            if group != subscription.group:
                subscription.group = group
                hosting.outbox.write(hosting.registry.save(subscription))
        positions = [Position(pubend, tick) for pubend, tick in at.items()]
        hosting.attach(consumer, at, replace(answer, positions=positions, group=group), now, wall)
        self._ahead.watch(consumer, at, now)

    def found_of(self, subscription: SubscriptionRecord, given: Mapping[PubendId, Tick] | None) -> Iterator[Constream]:
        """Yields the pubends on which it is known where a subscription starts, or that a token names."""
        for stream in self._hosting.streams.values():
            if not stream.positions[subscription.sid].sought or stream.pubend in (given or {}):
                yield stream

    def attach_at(self, stream: Constream, position: SubscriptionPosition, given: dict[PubendId, Tick] | None) -> Tick:
        """Returns where a consumer goes on: at its token, or without a token where the subscription stands."""
        return position.acked if given is None else given.get(stream.pubend, position.start)


def _start_wall(request: Subscribe) -> int:
    """Returns the time that a request asks to begin at; 0: it asks for none."""
    return request.start_wall if request.start is StartAt.TIME else 0


def _late_start(request: Subscribe, wall: int) -> Tick:
    """Returns where a new subscription starts on pubends that are found later; 0: at their beginning.

    Events that are published after the creation are owed, whichever clock is wrong, even if the request asked for a
    time in the future.
    """
    if request.start in {StartAt.EARLIEST, StartAt.TOKEN}:
        return 0
    present = max(0, tick_at(wall) - SKEW)
    return present if request.start is StartAt.LATEST else min(present, max(0, tick_at(request.start_wall) - 1))
