"""All shared subscriptions: what connects them to sessions, rows and streams (protocol: shared-subscriptions).

A shared subscription is CONSUMED while anybody takes part in it, or may come back to what is kept for it. Then the one
consumer that stands for all of them is attached. When nobody is left it is FREE; one that is not durable is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from gapless.core.deadlines import Deadlines
from gapless.core.gauges import Gauge
from gapless.core.link_credit import LinkCredit
from gapless.core.ports import ClientSession, Operation, RecoveryReader
from gapless.core.principals import NOBODY
from gapless.core.stream.ticks import FOREVER, PubendId, Tick
from gapless.core.wire.messages import (
    Code,
    Credit,
    Detach,
    Detached,
    Extend,
    HoldLost,
    ListedSharing,
    Settle,
    Subscribe,
    Subscribed,
    Take,
)
from gapless_shb.core.hosting import MOVED, Hosting
from gapless_shb.core.shared.consumers import SharedSubscription, removal
from gapless_shb.core.shared.dispatch import Member
from gapless_shb.core.shared.settling import (
    QUARANTINE,
    ROSTER,
    SHARED,
    Roster,
    SharedRow,
    read_shared,
    split_roster_key,
)
from gapless_shb.core.shared.window import CHUNKS, WINDOWS, KeptWindow, Window, split_chunk_key, split_window_key
from gapless_shb.core.state import gauges
from gapless_shb.core.state.consumers import Channel, Consumer
from gapless_shb.core.state.refusals import RefusedError
from gapless_shb.core.state.registry import SubscriptionRecord
from gapless_shb.core.state.subscription import Phase
from gapless_shb.core.state.takers import Taker


class SharedSubscriptions:
    """See the module."""

    def __init__(
        self, hosting: Hosting, reader: RecoveryReader, remove: Callable[[SubscriptionRecord, int], None]
    ) -> None:
        """Restores what the volume has. `remove`: removes a subscription."""
        self._hosting = hosting
        self._remove = remove
        self._touched: dict[int, SharedSubscription] = {}
        self._shared: dict[int, SharedSubscription] = {}
        self._deadlines: Deadlines[int] = Deadlines()
        self._obsolete: list[Operation] = []
        self._members: dict[int, dict[int, Member]] = {}
        """By session and subscription."""
        credit = LinkCredit(FOREVER, 0)
        self._nobody = Channel(0, _nothing, [], credit, hosting.memory, hosting.counts)
        """The channel of those who have none: the consumers that stand for all of a subscription, and who is away."""
        self._recover(reader)

    def _recover(self, reader: RecoveryReader) -> None:
        rows = dict(read_shared(key, value) for key, value in reader.scan(SHARED))
        rosters: dict[int, list[tuple[str, bytes]]] = {}
        for key, value in reader.scan(ROSTER):
            sid, instance = split_roster_key(key)
            rosters.setdefault(sid, []).append((instance, value))
        chunks: dict[tuple[int, PubendId], list[tuple[Tick, bytes]]] = {}
        for key, value in reader.scan(CHUNKS):
            sid, first, pubend = split_chunk_key(key)
            chunks.setdefault((sid, pubend), []).append((first, value))
        windows: dict[int, dict[PubendId, Window]] = {}
        for key, value in reader.scan(WINDOWS):
            sid, pubend = split_window_key(key)
            found = Window.restored(pubend, value, chunks.get((sid, pubend), ()))
            windows.setdefault(sid, {})[pubend] = found
        for sid in sorted({*rows, *rosters, *windows}):
            record = self._hosting.registry.get(sid)
            restored = rows.get(sid, SharedRow()), windows.get(sid, {}), Roster.restored(rosters.get(sid, ()))
            if record is not None and record.shared is not None:
                self._shared[sid] = SharedSubscription(self._hosting, record, self._touched, *restored)
            else:  # a crash lost the removal of the rest
                _, of_sid, roster = restored
                self._obsolete += removal(sid, of_sid.values(), roster)

    def start(self, now: int) -> None:
        """The pubends are restored: the positions follow the durable floors, and a life begins."""
        if self._obsolete:
            self._hosting.outbox.write(self._obsolete)
        for record in list(self._hosting.registry):
            if record.shared is not None:
                self._of(record)
        for sid, shared in self._shared.items():
            for pubend in [pubend for pubend in shared.windows if pubend not in self._hosting.streams]:
                del shared.windows[pubend]
            for pubend, window in shared.windows.items():
                stream = self._hosting.streams[pubend]
                if window.floor > stream.positions[sid].acked:
                    stream.acknowledge(sid, window.floor, window.floor)
            shared.start(now, self._nobody)
            self._set_deadline(shared)

    def _of(self, record: SubscriptionRecord) -> SharedSubscription:
        shared = self._shared.get(record.sid)
        if shared is None:
            shared = self._shared[record.sid] = SharedSubscription(self._hosting, record, self._touched)
        return shared

    # ------------------------------------------------------------------------------- who comes and goes

    def check(self, session: ClientSession, request: Subscribe, record: SubscriptionRecord, *, changed: bool) -> None:
        """Raises RefusedError if a consumer may not take part now."""
        members = self._of(record).members
        if changed and members:
            reason = f"subscription {record.name!r} has consumers: its filter changes when all have left"
            raise RefusedError(Code.IN_USE, reason)
        other = self._members.get(session.number, {}).get(record.sid)
        if other is not None and other.request != request.request:
            reason = (
                f"this very connection takes part in subscription {record.name!r}: several tasks may iterate the one"
                " consumer that it has"
            )
            raise RefusedError(Code.IN_USE, reason)

    def join(self, session: ClientSession, request: Subscribe, answer: Subscribed, now: int, wall: int) -> None:
        """A consumer takes part, for the first time or again. It is answered; what it may hold comes later."""
        hosting, sid, sharing = self._hosting, answer.sid, request.sharing
        record = hosting.registry.get(sid)
        assert record is not None, "it was just looked up"
        assert sharing is not None, "who does not share it is refused before"
        shared, instance = self._of(record), f"{session.instance}/{request.request}"
        former = shared.members.get(instance)
        if former is not None and former.is_here:
            self._forget(former)
            if former.channel.session != session.number:
                hosting.end_session(former.channel.session, MOVED)
        if sid not in hosting.consumers:
            self._begin(record, shared, now, wall)
        channel = hosting.channel(session)
        member = Member(
            channel,
            request.credit_events,
            request.credit_bytes,
            hosting.payload_max,
            sid,
            instance,
            request.request,
            session.principal,
            wall,
            sharing,
        )
        hosting.tell(session.number, answer)
        self._members.setdefault(session.number, {})[sid] = member
        hosting.session_ends.add(session.number, member, lambda now, _wall: self._lost_link(member, now))
        lost = shared.enter(member, now, wall, again=bool(request.sid))
        if lost:
            hosting.tell(session.number, HoldLost(sid, tuple(lost)))

    def _begin(self, record: SubscriptionRecord, shared: SharedSubscription, now: int, wall: int) -> None:
        """Somebody takes part: the consumer that stands for all is attached, where it is known where it begins."""
        hosting, sid = self._hosting, record.sid
        positions = {pubend: stream.positions[sid] for pubend, stream in hosting.streams.items()}
        at = {pubend: shared.begins_at(pubend, on.acked) for pubend, on in positions.items() if not on.sought}
        taker, most = Taker("", "", 0, 0), hosting.payload_max
        consumer = Consumer(record, self._nobody, taker, NOBODY, FOREVER, FOREVER, most, 0, wall, shared)
        hosting.take_consumer(consumer, Phase.CONSUMED)
        for pubend, tick in at.items():
            hosting.streams[pubend].attach(consumer, tick, now, wall)
        shared.begin()

    def _lost_link(self, member: Member, now: int) -> None:
        """The session of a consumer has ended without a goodbye."""
        self._forget(member)
        shared = self._shared.get(member.sid)
        if shared is not None and shared.members.get(member.instance) is member:
            shared.lose_link(member, now)

    def _forget(self, member: Member) -> None:
        session = member.channel.session
        members = self._members.get(session, {})
        if members.get(member.sid) is member:
            del members[member.sid]
            if not members:
                del self._members[session]
        self._hosting.session_ends.remove(session, member)

    def _end_if_unused(self, shared: SharedSubscription, now: int) -> None:
        """Nobody takes part any more: what was read and not settled stays in rows alone."""
        record = shared.record
        if shared.members:
            return
        if record.sid in self._hosting.consumers:
            self._hosting.outbox.write(shared.end())
            self._hosting.detach(record.sid)
        elif now < self._hosting.started_at + QUARANTINE:
            return  # those of the last life may come back
        if record.shared is not None and not record.shared.durable:
            self._remove(record, now)

    def removed(self, sid: int) -> list[Operation]:
        """A subscription is removed. Returns the writes."""
        shared = self._shared.pop(sid, None)
        if shared is None:
            return []
        self._deadlines.clear(sid)
        for member in list(shared.members.values()):
            self._forget(member)
        return shared.remove()

    def kept(self, sid: int) -> dict[PubendId, KeptWindow]:
        """Returns what is kept of a subscription that lapses."""
        shared = self._shared.get(sid)
        return {} if shared is None else {pubend: window.kept() for pubend, window in shared.windows.items()}

    def come_back(self, record: SubscriptionRecord, kept: dict[PubendId, KeptWindow]) -> list[Operation]:
        """A lapsed subscription is made again: what was not settled is there again. Returns the writes (TS34)."""
        shared, operations = self._of(record), list[Operation]()
        for pubend, window in kept.items():
            if pubend in self._hosting.streams:
                shared.windows[pubend] = back = Window.returned(pubend, window)
                operations += back.rows(record.sid, everything=True)
        return operations

    def forbid(self, member: Member, refused: RefusedError, now: int) -> None:
        """The rules do not let a consumer take part any more."""
        self._hosting.tell(member.channel.session, Detached(member.sid, refused.code, str(refused)))
        self._leave(member, now)

    def member_of(self, session: int, sid: int) -> Member | None:
        """Returns the consumer of a shared subscription in a session."""
        return self._members.get(session, {}).get(sid)

    def of_session(self, session: int) -> Iterable[Member]:
        """Returns the consumers in a session."""
        return list(self._members.get(session, {}).values())

    def members(self, sid: int) -> list[Member]:
        """Returns who takes part in a subscription, over a link."""
        shared = self._shared.get(sid)
        return [] if shared is None else [member for member in shared.members.values() if member.is_here]

    @property
    def sessions(self) -> list[int]:
        """The sessions of all who take part."""
        return list(self._members)

    # ------------------------------------------------------------------------------- what members say

    def on_take(self, session: ClientSession, request: Take, _now: int, _wall: int) -> None:
        """A consumer is about to hand out what may have been handed out before."""
        if (member := self.member_of(session.number, request.sid)) is not None:
            self._shared[request.sid].take(member, request)

    def on_settle(self, session: ClientSession, request: Settle, now: int, _wall: int) -> None:
        """A consumer says what became of events."""
        if (member := self.member_of(session.number, request.sid)) is not None:
            self._shared[request.sid].settle(member, request, now)

    def on_extend(self, session: ClientSession, request: Extend, now: int, _wall: int) -> None:
        """A consumer still works on events."""
        if (member := self.member_of(session.number, request.sid)) is not None:
            self._shared[request.sid].extend(member, request.holds, now)

    def on_credit(self, member: Member, credit: Credit) -> None:
        """A consumer has room for more."""
        if credit.request in {0, member.request}:
            member.grant(credit.events, credit.bytes)
            member.pauses = False
            self._shared[member.sid].touch()

    def on_detach(self, member: Member, request: Detach, now: int) -> None:
        """A consumer says goodbye."""
        if request.request in {0, member.request}:
            self._leave(member, now)

    def _leave(self, member: Member, now: int) -> None:
        self._forget(member)
        shared = self._shared[member.sid]
        shared.leave(member)
        self._end_if_unused(shared, now)

    def on_room(self, session: int) -> None:
        """There is room on a link again."""
        for member in self.of_session(session):
            self._shared[member.sid].touch()

    # ------------------------------------------------------------------------------------------ turns

    @property
    def deadline(self) -> int | None:
        """When something has to happen by itself; None: never."""
        return self._deadlines.next()

    def on_deadline(self, now: int) -> None:
        """Does what is due."""
        for sid in self._deadlines.take_expired(now):
            shared = self._shared.get(sid)
            if shared is not None:
                shared.on_time(now)
                self._set_deadline(shared)
                self._end_if_unused(shared, now)

    def _set_deadline(self, shared: SharedSubscription) -> None:
        if shared.deadline is None:
            self._deadlines.clear(shared.record.sid)
        else:
            self._deadlines.set(shared.record.sid, shared.deadline)

    def finish_turn(self, now: int, wall: int) -> None:
        """Gives out what is free, and writes what has changed, wherever something has."""
        while self._touched:
            _, shared = self._touched.popitem()
            shared.finish_turn(now, wall)
            self._set_deadline(shared)

    # ----------------------------------------------------------------------------------- how they stand

    def listed(self, sid: int, now: int) -> ListedSharing | None:
        """Returns how the consumers of a subscription stand; None if it is not shared."""
        shared = self._shared.get(sid)
        if shared is None:
            return None
        runs = [run for member in shared.members.values() for run in member.runs]
        oldest = min(runs, key=lambda run: run.since, default=None)
        holder, since = ("", now) if oldest is None else (oldest.holder.instance, oldest.since)
        here = len(self.members(sid))
        return ListedSharing(shared.unsettled, shared.held, here, holder, max(0, now - since) / 1e9)

    def gauges(self) -> Iterator[Gauge]:
        """Yields how many events are unsettled and held, and how many consumers take part."""
        shared = self._shared.values()
        yield gauges.SHARED.gauge(len(shared))
        yield gauges.SHARED_UNSETTLED.gauge(sum(each.unsettled for each in shared))
        yield gauges.SHARED_HELD.gauge(sum(each.held for each in shared))
        yield gauges.SHARED_CONSUMERS.gauge(sum(map(len, self._members.values())))


def _nothing(_effect: object) -> None:
    """Nobody hears it."""
