"""The subscriber-hosting broker as one pure core: it connects its parts to the node (protocol: owners).

The parts:

- `constream` follows a pubend; `readers` catch up, and the `scheduler` gives them their turns;
- `pfs` keeps which ticks matched which subscription;
- `subscribing` creates subscriptions and attaches consumers to them;
- `ordering` merges the pubends of a `groups`' group for consumers that want one order;
- `checkpoint` makes positions durable; `recovery` restores them at a start;
- `listing` answers questions about subscriptions;
- `lost_volumes` finds pubends that are gone;
- `ranges` serves applications that keep their position themselves.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import chain

from gapless.core.alarms import Alarm, AlarmCode
from gapless.core.deadlines import Deadlines
from gapless.core.gauges import Gauge
from gapless.core.network.bytes_above import BytesAbove
from gapless.core.network.facts import (
    AskInterest,
    BrokerId,
    Held,
    Know,
    Posted,
    Probe,
    PubendMeta,
    RanTwice,
    Seen,
    Submitted,
)
from gapless.core.network.reach import ImpossibleTickError, check_tick
from gapless.core.ports import (
    ClientSession,
    Handler,
    LinkHasRoom,
    Operation,
    ReadResult,
    RequestHandler,
    RoleContext,
    RulesReplaced,
    SessionEnded,
    Tell,
)
from gapless.core.stream.ticks import ShbId, Tick
from gapless.core.wire.messages import (
    Acknowledge,
    Attach,
    Code,
    Commit,
    Committed,
    Credit,
    Detach,
    Detached,
    Extend,
    ListSubscriptions,
    RequestFailed,
    Retire,
    Retired,
    Settle,
    Subscribe,
    Take,
    Unsubscribe,
)
from gapless_shb.core.behind import Behind
from gapless_shb.core.checkpoint import ShbCheckpoints
from gapless_shb.core.hosting import Hosting
from gapless_shb.core.live.constream import Constream
from gapless_shb.core.pfs.index import Pfs
from gapless_shb.core.ranges.service import Ranges
from gapless_shb.core.recovery import recover
from gapless_shb.core.rights import Rights
from gapless_shb.core.roaming.guests import Guests
from gapless_shb.core.roaming.home import Home
from gapless_shb.core.roaming.mail import (
    Mail,
    MailHandler,
    decode,
    ticks_of,
)
from gapless_shb.core.state import gauges
from gapless_shb.core.state.broker_state import CatchUp
from gapless_shb.core.state.consumers import Channel, Consumer, rotated
from gapless_shb.core.state.memory import Memory
from gapless_shb.core.state.places import Places
from gapless_shb.core.state.positions import SubscriptionPosition
from gapless_shb.core.state.refusals import RefusedError
from gapless_shb.core.state.registry import META, SUBSCRIPTIONS, Registry
from gapless_shb.core.state.rows import position_row
from gapless_shb.core.state.seals import Seals
from gapless_shb.core.state.subscription import Phase
from gapless_shb.core.subscriptions.attach import Subscribing
from gapless_shb.core.subscriptions.claims import Claims
from gapless_shb.core.subscriptions.commits import CommitRecords
from gapless_shb.core.subscriptions.expiry import Expiry
from gapless_shb.core.subscriptions.holders import Holders
from gapless_shb.core.subscriptions.listing import Listings
from gapless_shb.core.subscriptions.lost_volumes import LostVolumes
from gapless_shb.core.subscriptions.pinned import Pinned
from gapless_shb.core.subscriptions.takeovers import Takeovers
from gapless_shb.core.subscriptions.unverified_positions import UnverifiedPositions
from gapless_shb.core.subscriptions.waiting import Waiting
from gapless_shb.core.total_order.groups import Groups

_MILLISECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class Timing:
    """The intervals of an SHB, in milliseconds (protocol: timers)."""

    checkpoint_ms: int = 250
    idle_checkpoint_ms: int = 5_000
    silence_ms: int = 1_000
    repeat_ms: int = 5_000
    stalled_ms: int = 3_000
    expiry_ms: int | None = None


class ShbTimer(Enum):
    """The deadlines of an SHB."""

    CHECKPOINT = "checkpoint"
    SILENCE = "silence"
    REPEAT = "repeat"
    LISTING = "listing"
    RIGHTS = "rights"
    PINNED = "pinned"
    EXPIRY = "expiry"


def shb_id(context: RoleContext) -> ShbId:
    """Returns the SHB's id.

    It contains the storage's id: with another storage it is another SHB (protocol: pubends).
    """
    return f"{context.broker}@{context.storage_id}"


class SubscriberHostingBroker:
    """The SHB core (a `Role`); see the module."""

    name = "shb"

    def __init__(self, context: RoleContext, timing: Timing, catch_up: CatchUp | None = None) -> None:
        self._timing = timing
        self._deadlines: Deadlines[ShbTimer] = Deadlines()
        meta = dict(context.reader.scan(META)).get(b"registry")
        self._shb = shb_id(context)
        registry = Registry.recover(meta, context.reader.scan(SUBSCRIPTIONS))
        seals = Seals(self._shb, context.network, context.secret, context.roaming)
        self._hosting = Hosting(self._shb, seals, registry, Places(context.roaming, context.broker), context.authorizer)
        self._hosting.payload_max = context.max_delivery_bytes
        self._hosting.is_audited = context.audited
        self._hosting.limits = context.limits
        self._hosting.traces = context.traces
        if catch_up is not None:
            self._hosting.catch_up = catch_up
            self._hosting.memory = Memory(catch_up.memory_bytes)
        self._hosting.selector_limits = context.selector_limits
        self._groups = Groups(context.groups, self._hosting.streams)
        self._waiting = Waiting(self._hosting)
        self._expiry = Expiry(self._hosting, self._waiting, timing.expiry_ms, context.reader)
        self._ahead = UnverifiedPositions(self._hosting, self._waiting, self._end_consumption)
        self._claims = Claims(self._hosting, context.reader)
        self._commit_records = CommitRecords(self._hosting, self._ahead, self._claims, context.reader)
        self._takeovers = Takeovers()
        self._holders = Holders(self._hosting, self._takeovers, self._waiting)
        self._subscribing = Subscribing(
            self._hosting,
            self._expiry,
            self._ahead,
            self._groups,
            self._commit_records,
            self._takeovers,
            self._holders,
            self._waiting,
            context.reader,
        )
        self._sharing = self._subscribing.sharing
        self._ranges = Ranges(
            self._hosting,
            self._subscribing,
            self._expiry,
            self._ahead,
            self._commit_records,
            self._holders,
            self._waiting,
        )
        self._rights = Rights(
            self._hosting, self._holders, self._takeovers, self._ranges.reads, self._sharing, self._end_consumption
        )
        self._pinned = Pinned(self._hosting, self._holders)
        self._connect_roaming(context)
        self._behind = Behind(self._hosting)
        self._listings = Listings(self._hosting, self._waiting, self._sharing, self._pinned.held_back)
        self._lost_volumes = LostVolumes(self._hosting, self._listings, self._on_gone)
        self._checkpoints = ShbCheckpoints(self._hosting)
        self._urgent = False
        self._beside = 0
        """The incarnation of another process of this SHB that has run, until its subscriptions have joined anew."""
        """Whether the next checkpoint must not wait, because a consumer has left since the last one began."""
        self._due: int | None = None
        """The next deadline, as computed at the end of the last turn."""
        recover(self._hosting, context)

    def _connect_roaming(self, context: RoleContext) -> None:
        here: dict[type, RequestHandler] = {
            Subscribe: self._subscribing.on_subscribe,
            Unsubscribe: self._subscribing.on_unsubscribe,
            Attach: self._ranges.requests()[Attach],
        }
        self._guests = Guests(self._hosting, self._subscribing, self._waiting, self._end_consumption)
        self._named = {kind: self._guests.asking(handler) for kind, handler in here.items()}
        """The requests that may create a subscription, or are about one of any SHB, by its name."""
        self._home = Home(
            self._hosting,
            self._expiry,
            here,
            self._end_consumption,
            self._on_session_ended,
            self._commit_records,
            self._takeovers,
            self._holders,
        )
        self._mail: dict[type, MailHandler] = {
            **self._home.handlers(),
            **self._guests.handlers(),
            BytesAbove: self._pinned.on_answer,
        }

    def start(self, now: int, wall: int) -> None:
        """Announces the interest under a new version: changes of the former life that were not durable are gone."""
        for timer, after in (
            (ShbTimer.SILENCE, self._timing.silence_ms),
            (ShbTimer.REPEAT, self._timing.repeat_ms),
            (ShbTimer.CHECKPOINT, self._timing.idle_checkpoint_ms),
        ):
            self._deadlines.set(timer, now + after * _MILLISECOND)
        self._hosting.started_at = now
        self._hosting.write_start()
        self._expiry.start()
        self._claims.start()
        self._sharing.start(now)
        self._await_beat(now)
        self._lost_volumes.start(now, wall)
        self._ahead.look_back(now)
        for stream in self._hosting.streams.values():
            stream.holds.renew(now)
            self._hosting.write_holds(stream)

    # -------------------------------------------------------------------------------------- the tables

    def handlers(self) -> Mapping[type, Handler]:
        """Returns the handler of each message that routers send to an SHB."""
        return {
            Know: self._on_deliver,
            Seen: self._on_seen,
            Probe: self._on_probed,
            Held: self._on_held,
            AskInterest: self._on_ask_interest,
            RanTwice: self._on_ran_twice,
            RulesReplaced: self._rights.on_replaced,
            Posted: self._on_posted,
            Submitted: self._claims.on_submitted,
            SessionEnded: self._on_session_ended,
            LinkHasRoom: self._on_room,
        }

    def requests(self) -> Mapping[type, RequestHandler]:
        """Returns the handler of each request that clients send to an SHB."""
        return {
            Credit: self._on_credit,
            Acknowledge: self._on_acknowledge,
            Commit: self._on_commit,
            Detach: self._on_detach,
            Take: self._sharing.on_take,
            Settle: self._sharing.on_settle,
            Extend: self._sharing.on_extend,
            ListSubscriptions: self._listings.on_list,
            Retire: self._on_retire,
            **self._ranges.requests(),
            **self._named,
        }

    def _on_retire(self, session: ClientSession, request: Retire, _now: int, _wall: int) -> None:
        """Somebody looks for an SHB that is to be retired: this one answers that it runs, if it is meant."""
        if request.only_look and request.shb in {self._shb, self._shb.partition("@")[0]}:
            answer: Retired | RequestFailed = Retired(request.request, self._shb, [], False, running=True)
        else:
            node, _, _ = self._shb.partition("@")
            reason = f"the SHB of node {node!r} is {self._shb!r}"
            answer = RequestFailed(request.request, Code.NOT_FOUND, reason)
        self._hosting.outbox.emit(Tell(session.number, answer))

    # -------------------------------------------------------------------------------- the end of a turn

    def take_effects(self, now: int, wall: int) -> list[object]:
        """Does what follows from everything that happened since the last call, and returns the effects.

        Handlers only change state and set marks. All that follows from a change stands here, once for all messages of
        a turn. So no handler can forget a part of it.
        """
        if self._beside and not self._consumers_here():
            self._hosting.leap(self._beside)
            self._beside = 0
        if self._hosting.memory.is_awaited:
            self._serve_waiting(now, wall)
        goes_on = True
        while goes_on:
            self._answer_for_hosts(now, wall)
            if self._subscribing.has_to_complete(now):
                self._subscribing.complete_creations(now, wall)
            self._waiting.pass_all_on(now, wall)
            if self._ranges.used:
                self._ranges.answer_ready(now, wall)
            # A consumer that was attached just now may complete another creation, and other requests wait for that one.
            goes_on = self._subscribing.has_to_complete(now) or self._waiting.is_due
        self._hosting.ordering.finish_turn(now, wall)
        self._sharing.finish_turn(now, wall)
        stalled_after = self._timing.stalled_ms * _MILLISECOND
        due = self._ranges.deadline if self._ranges.used else None
        for other in (self._guests.deadline, self._subscribing.deadline(), self._sharing.deadline):
            if other is not None:
                due = other if due is None else min(due, other)
        for stream in self._hosting.streams.values():
            time = stream.finish_turn(now, stalled_after)
            due = time if due is None else min(due, time)
        if self._hosting.memory.is_awaited:
            turn = self._hosting.memory.deadline(now)
            due = turn if due is None or (turn is not None and turn < due) else due
        if self._hosting.unsaved:
            self._hosting.unsaved = False
            self._deadlines.set_earlier(ShbTimer.CHECKPOINT, now + self._timing.checkpoint_ms * _MILLISECOND)
        if self._urgent and not self._checkpoints.under_way:
            self._deadlines.set_earlier(ShbTimer.CHECKPOINT, now)
        if self._listings.telling:
            self._deadlines.set_earlier(ShbTimer.LISTING, now + _MILLISECOND)
        if self._rights.is_judging:
            self._deadlines.set_earlier(ShbTimer.RIGHTS, now)
        if self._pinned.is_working:
            self._deadlines.set_earlier(ShbTimer.PINNED, now)
        own = self._deadlines.next()
        self._due = own if due is None or (own is not None and own < due) else due
        return self._hosting.take_effects()

    # -------------------------------------------------------------------------------- what routers send

    def _on_deliver(self, deliver: Know, now: int, wall: int) -> None:
        stream = self._hosting.streams.get(deliver.knowledge.pubend)
        if stream is not None:
            stream.on_knowledge(deliver.knowledge, now, wall)
            if self._ranges.used:
                self._ranges.on_heard(stream.pubend, now, wall)
            if stream.pubend in self._ahead.doubts:
                self._ahead.on_heard(stream, now, wall)
            if stream.has_rivals:
                self._lost_volumes.heard(stream, now, wall)

    def _on_seen(self, seen: Seen, now: int, wall: int) -> None:
        stream = self._hosting.streams.get(seen.meta.pubend)
        if stream is None and seen.enrolled_at is None:
            self._hosting.announced.setdefault(seen.meta.pubend, now)
            return
        known = None if stream is None else stream.meta
        if stream is None:
            assert seen.enrolled_at is not None
            stream = self._discover(seen.meta, seen.enrolled_at, now, wall)
        stream.learn(seen.meta)
        stream.seen(now)
        if known is not None and known.voids != stream.meta.voids:
            stream.begin_anew(now)
        if known is not None and known.forks != stream.meta.forks:
            stream.forget_forks(known.forks, now)
        if known is None or (known.topics, known.read_only) != (stream.meta.topics, stream.meta.read_only):
            self._judge_orders(now, wall)
        if seen.enrolled_at is not None and stream.enrol(seen.enrolled_at):
            self._hosting.unsaved = True
            self._subscribing.may_complete = True
        stream.catch_up(seen.meta.stable, now)
        self._ahead.on_heard(stream, now, wall)
        if known is None or known.volume != stream.meta.volume:
            self._hosting.unsaved = True
            self._lost_volumes.found(stream, now, wall)
        if stream.has_rivals:
            self._lost_volumes.heard(stream, now, wall)

    def _on_gone(self, stream: Constream, now: int, wall: int) -> None:
        """A pubend is gone: all who want something of it are told, and whoever waited for its host goes on.

        Merges end before that: none may pass the place where the pubend was heard of last, for events of the pubend
        that stands for its member next come there.
        """
        if group := self._groups.group_of_member(stream):
            self._end_merges(group, f"{stream.meta.member} of the group {group!r} is gone with its volume", now, wall)
        self._on_deliver(Know(stream.lost_knowledge), now, wall)
        self._subscribing.may_complete = True
        self._hosting.unsaved = True
        self._ahead.on_heard(stream, now, wall)
        self._judge_orders(now, wall)

    def _answer_for_hosts(self, now: int, wall: int) -> None:
        """Answers what is asked of pubends that are gone."""
        for stream in self._hosting.streams.values():
            if not stream.gone_upto:
                continue
            while stream.takes_answer(now):
                self._on_deliver(Know(stream.lost_knowledge), now, wall)
            if (held := stream.answer_for_host(now)) is not None:
                self._on_held(held, now, wall)

    def _discover(self, meta: PubendMeta, at: Tick, now: int, wall: int) -> Constream:
        """Adds a pubend that was unknown. Each subscription starts there where it asked to (protocol: late-pubends)."""
        pfs = Pfs(meta.pubend, meta.grain, at, 0, imprecise=self._hosting.catch_up.imprecise)
        stream = Constream(meta, at, pfs, self._hosting)
        stream.learn(meta)
        self._hosting.add_stream(stream)
        rows: list[Operation] = []
        group = self._groups.group_of_member(stream)
        late = self._groups.start_of_late(stream, group) if group else 0
        for subscription in self._hosting.registry:
            if stream.seeks(subscription):
                rows += self._subscribing.seeking.seek(stream, subscription, now)
                continue
            start = stream.start_of(subscription)
            # The start by time lies after `at`: this broker's clock seems to be hours ahead of the pubend's. Events
            # from now on are owed all the same.
            too_late = start > at and meta.pubend not in subscription.start
            start = stream.client_position(at) if too_late else start
            if group and subscription.group == group and start < late:
                start, too_late = stream.client_position(late), True  # which no restart would find again
            position = SubscriptionPosition(start, acked=start, held=start < at)
            if subscription.home:
                position = SubscriptionPosition(start, guest=True)
            stream.add(subscription.sid, position, subscription.version)
            if position.held:
                stream.holds.put(subscription.sid, start, now)
            if (too_late or position.held) and subscription.durable:
                rows.append(position_row(subscription.sid, meta.pubend, position))
            self._ahead.look_at(stream, subscription.sid, now)
        self._hosting.write_holds(stream, *rows)
        if group and self._groups.replaces_another(stream):
            # Who merges the older incarnation would wait for it for ever.
            reason = f"{meta.member} of the group {group!r} has begun anew as {meta.pubend}"
            self._end_merges(group, reason, now, wall)
        self._hosting.attach_to_new(stream, group, now, wall)
        return stream

    def _end_merges(self, group: str, reason: str, now: int, wall: int) -> None:
        """Ends the sessions that consume a group in total order. Their clients connect again by themselves.

        Their consumption ends at once: until the session has ended, nothing more leaves in that order.
        """
        for consumer in list(self._hosting.consumers.values()):
            if consumer.subscription.group == group:
                self._hosting.end_session(consumer.channel.session, reason)
                self._end_consumption(consumer.sid, now, wall)

    def _judge_orders(self, now: int, wall: int) -> None:
        """Pubends carry other topics than before: ends consumers whose topics are no longer all of one group."""
        for consumer in [one for one in self._hosting.consumers.values() if one.subscription.group]:
            try:
                self._groups.group_of(consumer.subscription.topics)
            except RefusedError as refused:
                detached = Detached(consumer.sid, refused.code, str(refused))
                self._hosting.tell(consumer.channel.session, detached)
                self._end_consumption(consumer.sid, now, wall)

    def _on_probed(self, probed: Probe, now: int, wall: int) -> None:
        stream = self._hosting.streams.get(probed.pubend)
        if stream is not None:
            stream.catch_up(probed.upto, now)  # asks for all unknown ticks at once
            self._checkpoints.report(stream)

    def _on_held(self, held: Held, now: int, wall: int) -> None:
        stream = self._hosting.streams.get(held.pubend)
        if stream is not None:
            self._subscribing.on_held(stream, stream.holds.on_held(held))
            self._ahead.on_held(stream, held, now, wall)
            self._hosting.unsaved = True

    def _on_ask_interest(self, _ask: AskInterest, _now: int, _wall: int) -> None:
        self._hosting.announce_in_full()

    def _on_ran_twice(self, ran: RanTwice, _now: int, _wall: int) -> None:
        """Whoever consumes here comes again, and finds its subscription where it was."""
        self._beside = ran.other
        sessions = [consumer.channel.session for consumer in self._consumers_here()]
        for session in dict.fromkeys([*sessions, *self._sharing.sessions]):
            self._hosting.end_session(session, "another process of this broker has run: connect again")

    def _consumers_here(self) -> list[Consumer]:
        return [consumer for consumer in self._hosting.consumers.values() if not consumer.is_elsewhere]

    # -------------------------------------------------------------------------------- what clients ask

    def _on_posted(self, posted: Posted, now: int, wall: int) -> None:
        """Another SHB has sent mail. What this version does not know is ignored: it is repeated to nobody's harm."""
        mail, node = decode(posted.data), posted.from_node
        if mail is not None and self._is_possible(node, mail, wall):
            self._mail[type(mail)](node, mail, now, wall)

    def _is_possible(self, node: BrokerId, mail: Mail, wall: int) -> bool:
        """Whether pubends can have come as far as mail says; else the operator is told, and it never counts."""
        for pubend, tick in ticks_of(mail):
            stream = self._hosting.streams.get(pubend)
            if stream is None:
                continue
            try:
                check_tick(stream.meta, tick, wall)
            except ImpossibleTickError as error:
                text = f"mail of node {node!r} spoke of {error}: nothing of it was believed"
                self._hosting.outbox.emit(Alarm(AlarmCode.IMPOSSIBLE_TICK, text, node))
                return False
        return True

    def _on_credit(self, session: ClientSession, credit: Credit, now: int, wall: int) -> None:
        if (member := self._sharing.member_of(session.number, credit.sid)) is not None:
            self._sharing.on_credit(member, credit)
            return
        consumer = self._hosting.consumer_of(session.number, credit.sid)
        if consumer is None:
            return
        if credit.request not in {0, consumer.request}:
            return  # granted by the consumer of the same session that this one took over from
        if consumer.starved_at is not None:
            self._hosting.counts.on_credit(consumer.starved_at, now)
            consumer.starved_at = None
        consumer.grant(credit.events, credit.bytes)
        self._go_on(consumer, now, wall)

    def _on_room(self, said: LinkHasRoom, now: int, wall: int) -> None:
        """What waited on a client's link has left: consumers and range reads that had to wait go on."""
        channel = self._hosting.channels.get(said.session.number)
        if channel is not None and channel.on_room(said.left):
            self._serve_link(channel, now, wall)

    def _serve_waiting(self, now: int, wall: int) -> None:
        """Some memory may be free again: the links and the readers whose turn it is go on."""
        for session in self._hosting.memory.take_turns():
            channel = self._hosting.channels[session]
            if channel.on_memory():
                self._serve_link(channel, now, wall)
        for reader in self._hosting.memory.take_fetchers(now):
            reader.on_memory(now, wall)

    def _serve_link(self, channel: Channel, now: int, wall: int) -> None:
        """What had to wait for room on a link goes on."""
        turn, ranges_first = divmod(channel.rooms, 2)
        if ranges_first:
            self._ranges.on_room(channel.session, turn, now, wall)
        for consumer in rotated(list(channel.consumers.values()), turn):
            self._go_on(consumer, now, wall)
        self._sharing.on_room(channel.session)
        if not ranges_first:
            self._ranges.on_room(channel.session, turn, now, wall)

    def _go_on(self, consumer: Consumer, now: int, wall: int) -> None:
        """More events of a consumer may be sent: its readers go on, after each grant another one first."""
        if consumer.ordered is not None:
            consumer.ordered.touch()
        reading = [stream for stream in self._hosting.streams.values() if consumer.sid in stream.scheduler.readers]
        for stream in rotated(reading, consumer.grants):
            stream.scheduler.step(consumer.sid, now, wall)

    def _on_acknowledge(self, session: ClientSession, request: Acknowledge, now: int, wall: int) -> None:
        consumer = self._hosting.consumer_of(session.number, request.sid)
        if consumer is None:
            return
        for said in request.positions:
            self._ahead.acknowledge(consumer, said, now)
        self._hosting.unsaved = True
        self._guests.acknowledged(request.sid, now)

    def _on_commit(self, session: ClientSession, request: Commit, now: int, wall: int) -> None:
        consumer = self._hosting.consumer_of(session.number, request.sid)
        if consumer is None or self._hosting.registry.phase(request.sid) is Phase.ATTACHING:
            return  # from a former consumer, which has been told
        if consumer.subscription.home:
            self._guests.commit(request, now, wall)
            return
        if not self._commit_records.is_current(request.sid, request.epoch):
            return  # of a consumer of this very session, which another one has taken over from

        def durable(_now: int, _wall: int) -> None:
            self._hosting.tell(session.number, Committed(request.sid, request.number))

        self._commit_records.commit(consumer, request.positions, request.unit, request.enlists, durable, now)

    def _on_detach(self, session: ClientSession, request: Detach, now: int, wall: int) -> None:
        if (member := self._sharing.member_of(session.number, request.sid)) is not None:
            self._sharing.on_detach(member, request, now)
            self._urgent = True
            return
        consumer = self._hosting.consumer_of(session.number, request.sid)
        if consumer is None:
            return
        if request.request in {0, consumer.request}:  # otherwise another consumer of the session has taken it over
            self._commit_records.close(consumer, request.handed, request.cleared)
            self._takeovers.left(request.sid)
            self._guests.hand_back(request)
            self._end_consumption(request.sid, now, wall)

    def _on_session_ended(self, ended: SessionEnded, now: int, wall: int) -> None:
        self._hosting.session_ends.end(ended.session.number, now, wall)
        channel = self._hosting.channels.pop(ended.session.number, None)
        for sid in list(channel.consumers) if channel else ():
            self._end_consumption(sid, now, wall)
        if channel is not None:
            channel.close()

    def _end_consumption(self, sid: int, now: int, wall: int) -> None:
        self._guests.left(sid, now)
        consumer = self._hosting.detach(sid)
        if consumer is not None and not consumer.subscription.durable:
            self._subscribing.remove(consumer.subscription, now, None)
        self._waiting.pass_on(sid, now, wall)
        # Make the last acknowledgements durable at once: perhaps the client left because the broker is about to stop.
        self._urgent = True
        self._deadlines.set_earlier(ShbTimer.CHECKPOINT, now)

    # ---------------------------------------------------------------------------------------- durability

    def on_durable(self, cookie: Hashable, now: int, wall: int) -> None:
        """A write is durable: calls the function that waits for it."""
        self._hosting.outbox.on_durable(cookie, now, wall)

    def _checkpoint(self, now: int) -> None:
        self._deadlines.set(ShbTimer.CHECKPOINT, now + self._timing.idle_checkpoint_ms * _MILLISECOND)
        if self._checkpoints.under_way:
            self._hosting.unsaved = True
            return
        self._urgent = self._hosting.unsaved = False  # this checkpoint covers everything that was marked so far
        self._checkpoints.begin()

    # --------------------------------------------------------------------------------------------- time

    def on_read(self, result: ReadResult, now: int, wall: int) -> None:
        """A read of the PFS is answered; it was asked for by a reader, a range read or a listing."""
        self._hosting.outbox.on_read(result, now, wall)

    def on_space(self, now: int, wall: int, *, low: bool) -> None:
        """Does nothing while the disk is nearly full: an SHB writes little, and its checkpoints let space be freed."""

    def deadline(self) -> int | None:
        """Returns the earliest deadline of the core, its ranges and its pubends, as of the end of the last turn."""
        return self._due

    def on_deadline(self, now: int, wall: int) -> None:
        """The deadline has come: runs the timers that are due, and lets readers and pubends go on."""
        for timer in self._deadlines.take_expired(now):
            if timer is ShbTimer.CHECKPOINT:
                self._checkpoint(now)
            elif timer is ShbTimer.SILENCE:
                self._deadlines.set(ShbTimer.SILENCE, now + self._timing.silence_ms * _MILLISECOND)
                self._say_silence()
            elif timer is ShbTimer.REPEAT:
                self._deadlines.set(ShbTimer.REPEAT, now + self._timing.repeat_ms * _MILLISECOND)
                self._repeat()
                self._home.on_beat(now, wall)
                self._rights.on_beat()
                self._claims.on_beat()
                self._pinned.on_beat()
            elif timer is ShbTimer.LISTING:
                self._listings.tell()
            elif timer is ShbTimer.RIGHTS:
                self._rights.judge(now, wall)
            elif timer is ShbTimer.PINNED:
                self._pinned.work()
            elif timer is ShbTimer.EXPIRY:
                self._expiry.on_beat(lambda lapsed: self._subscribing.remove(lapsed, now, None), self._sharing.kept)
                self._await_beat(now)
        self._guests.on_deadline(now, wall)
        self._sharing.on_deadline(now)
        for stream in self._hosting.streams.values():
            if stream.scheduler.readers:
                stream.scheduler.pump(now, wall)
            stream.on_deadline(now, self._timing.stalled_ms * _MILLISECOND)

    def gauges(self) -> Iterator[Gauge]:
        """Yields how many subscriptions and consumers there are, and the positions on each pubend."""
        return chain.from_iterable(self.parts())

    def parts(self) -> Iterator[Iterable[Gauge]]:
        """Yields the same, pubend by pubend; see `gapless.core.gauges.TellsInParts`."""
        yield self._own_gauges()
        for stream in list(self._hosting.streams.values()):
            yield stream.gauges()

    def _own_gauges(self) -> Iterator[Gauge]:
        yield gauges.SUBSCRIPTIONS.gauge(len(self._hosting.registry))
        yield gauges.CONSUMERS.gauge(len(self._hosting.consumers))
        yield from self._waiting.gauges()
        yield from self._sharing.gauges()
        yield from self._hosting.counts.gauges()
        memory = self._hosting.memory
        parts = {"links": memory.links, "readers": memory.readers, "asked": memory.asked, "pages": memory.pages}
        for what, held in parts.items():
            yield gauges.MEMORY.gauge(held, what)
        yield from self._pinned.gauges()
        yield from self._behind.gauges()
        yield from self._groups.gauges()

    def _say_silence(self) -> None:
        self._hosting.ordering.say_silence()
        for stream in self._hosting.streams.values():
            for channel in self._hosting.channels.values():
                channel.tell_idle(stream.pubend, stream.client_position(stream.head), stream.live)

    def _repeat(self) -> None:
        self._hosting.announce_version()
        for stream in self._hosting.streams.values():
            self._checkpoints.report(stream)

    def _await_beat(self, now: int) -> None:
        if self._expiry.beat_ms is not None:
            self._deadlines.set(ShbTimer.EXPIRY, now + self._expiry.beat_ms * _MILLISECOND)
