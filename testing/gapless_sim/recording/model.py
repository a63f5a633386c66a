"""What really happened in a world: what was published and logged, and what is owed to which subscription.

It is called like an oracle, and the oracles ask it; it judges nothing itself. The truth of a pubend is every event
that its PHB ever said, or found in its log at a start, whatever became of it since. Whether an event matches a
subscription is decided by the predicate that the workload wrote down beside the selector, once per event, never
by gapless's own matching.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gapless.core.client import Delivery
from gapless.core.network import facts as routing
from gapless.core.network.seam import Effect
from gapless.core.ports import Put
from gapless.core.stream.intervals import IntervalSet
from gapless.core.wire.messages import AttachedTo, OnChange, StartAt, Subscribe, Subscribed
from gapless.core.wire.tokens import CheckpointToken
from gapless.errors import SubscriptionTakenOverError
from gapless_shb.core.state.places import home_of
from gapless_sim.recording.accounts import Account, History, Logged, Share, add_tick
from gapless_sim.recording.event_ages import Ages
from gapless_sim.recording.expired_subscriptions import Lapses
from gapless_sim.recording.observation import Oracle, Violation
from gapless_sim.recording.pubend_logs import LOG, chops, records_apart, unseen
from gapless_sim.recording.session_tap import ReceivedAcknowledgements
from gapless_sim.world.consumer import is_alive
from gapless_sim.world.producer import key_of

if TYPE_CHECKING:
    from gapless.core.client.link.effects import Attached
    from gapless.core.ports import Operation
    from gapless.core.stream.columns import EventBatch
    from gapless.core.stream.events import Event
    from gapless.core.stream.knowledge import Knowledge
    from gapless.core.stream.ticks import PubendId, ShbId, Tick
    from gapless_sim.world.broker import SimBroker
    from gapless_sim.world.consumer import Consumer, Row
    from gapless_sim.world.producer import Producer, Publication
    from gapless_sim.world.sharing import SharedRow
    from gapless_sim.world.world import World


class Model(Oracle):
    """Everything that happened, as far as it matters for the promise. At the seam it watches who is counted."""

    facts: Sequence[type] = (routing.Enrolled,)
    effects: Sequence[type] = (routing.Submitted,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.publications: dict[int, Publication] = {}
        """All that were ever handed to a publisher, by key."""
        self.histories: dict[PubendId, History] = {}
        self.places: dict[int, Logged] = {}
        """Where each publication is logged, by key; of one that is sent often, where it is logged last."""
        self.accounts: dict[int, Account] = {}
        """By the rows' numbers."""
        self.producers: dict[Producer, int] = {}
        """Those that ever published, and in which of their client's lives."""
        self.opened_at: dict[Producer, int] = {}
        """When each publisher was opened; it stays on the pubend that it was given then."""
        self.disk_made_older_at = -1
        """When an old copy of a disk was put back the last time."""
        self.shb_of: dict[str, ShbId] = {}
        """The SHB that a broker hosts now."""
        self.broker_of: dict[ShbId, str] = {}
        self.members: dict[PubendId, dict[ShbId, Tick]] = {}
        """Who counts at a pubend, and from where."""
        self.retired_shbs: dict[ShbId, None] = {}
        self.wiped_brokers: dict[str, None] = {}
        """Whose disk was replaced by an empty one."""
        self.damaged_brokers: dict[str, None] = {}
        """Where an old copy of a disk was put back."""
        self.given_up: dict[int, None] = {}
        """The keys of publications that an operator gave up with their records; they may be sent again."""
        self.liveness_since = -1
        self.listeners: list[Callable[[Logged], None]] = []
        """Called with each event when it comes to light; the log may have had it for a while."""
        self.shared_rows: list[tuple[str, SharedRow]] = []
        """All shared subscriptions that were ever asked for, each with its home."""
        self.needs: list[Callable[[PubendId, dict[str, None]], bool]] = []
        """Who says whether something beside all accounts is needed of a pubend, at some of these brokers."""
        self.ages = Ages(world)
        """Which events may be gone because they are old."""
        self.followed: list[Account] = []
        """The accounts whose matching is looked at as events come."""
        self._lapses = Lapses()
        self._item: tuple[Any, list[Event]] = (None, [])
        self._received = ReceivedAcknowledgements()

    # What is asked of it.

    @property
    def has_lost_disks(self) -> bool:
        """Whether anything that was durable is gone, or was made older."""
        return bool(self.wiped_brokers or self.damaged_brokers)

    def given_up_at(self, event: Logged) -> bool:
        """Whether an operator has given up the record that an event was in."""
        return event.tick in self.histories[event.pubend].given_up

    def is_given_up_by_name(self, account: Account) -> bool:
        """Whether a namesake is: who gives up what a lost disk had removes by its name what was made anew."""
        return self.has_lost_disks and any(other.removed for other in self.namesakes(account))

    def namesakes(self, account: Account) -> Iterator[Account]:
        """All rows of a name, a subscription's own among them."""
        names = account.row.client_id, account.row.name
        return (other for other in self.accounts.values() if (other.row.client_id, other.row.name) == names)

    def share(self, consumer: Consumer, pubend: PubendId) -> Share | None:
        """A consumer's subscription on a pubend; None of a pubend that never logged or said anything."""
        account = self.accounts[consumer.row.number]
        return self.share_of(account, pubend)

    def share_of(self, account: Account, pubend: PubendId) -> Share | None:
        """A subscription on a pubend, likewise."""
        share = account.shares.get(pubend)
        history = self.histories.get(pubend)
        if share is None and history is not None:
            share = account.shares[pubend] = Share(history)
            account.match_from(share, 0)
        return share

    def events(self, item: Delivery) -> list[Event]:
        """What was handed out, decoded once for all who look at it."""
        if self._item[0] is not item:
            self._item = item, item.events()
        return self._item[1]

    def keys(self, item: Delivery) -> list[int]:
        """The keys of what was handed out."""
        return [key_of(event.body) for event in self.events(item)]

    def alive(self, consumer: Consumer) -> bool:
        """Whether a consumer still is one: its process runs, and it has neither left nor failed."""
        return is_alive(consumer)

    def heard_upto(self, account: Account, pubend: PubendId) -> Tick:
        """Up to where the session that had a subscription has acknowledged it."""
        return self._received.upto(account.broker, account.sid, pubend)

    def has_lapsed(self, consumer: Consumer) -> bool:
        """Whether what a consumer had has lapsed, even if it was made anew for another one since."""
        return self._lapses.has(self.accounts[consumer.row.number].broker, consumer.core.sid)

    def is_of_lost_disk(self, consumer: Consumer) -> bool:
        """Whether what a consumer had is lost with a disk, even if it was made anew for another one since."""
        account = self.accounts[consumer.row.number]
        has_lost = account.broker in self.wiped_brokers or account.broker in self.damaged_brokers
        return has_lost and consumer.core.sid != account.sid

    def is_late(self, account: Account, share: Share, tick: Tick) -> bool:
        """Whether an event of a pubend that was found after the subscription began is owed to it.

        It is if it was published when the application had its subscription, and the pubend counted its SHB.
        """
        counted = self.members.get(share.history.pubend, {}).get(account.shb)
        published = share.history.events[tick].publication.published_at
        return counted is not None and tick > counted and published > account.attached_at >= 0

    def first_late(self, account: Account, share: Share, upto: Tick) -> Tick | None:
        """The first matching event up to a tick that is owed although the pubend was found later."""
        owed = (tick for tick in share.between(0, upto) if self.is_late(account, share, tick))
        return next(owed, None)

    # At the seam.

    def opened(self, broker: str, meta: routing.PubendMeta, members: Mapping[ShbId, Tick]) -> None:
        """A pubend is there."""
        history = self._history(meta.pubend, broker)
        # One of a volume that was made anew beside a second process cannot tell that only one of them has it.
        history.forked |= broker in self.damaged_brokers and bool(meta.forks)
        self.members[meta.pubend] = dict(members)
        self.ages.opened(broker, meta.pubend, meta.created)

    def known(self, broker: str, knowledge: Knowledge) -> None:
        """The truth grows."""
        history = self._history(knowledge.pubend, broker)
        data = knowledge.data
        for index, tick in enumerate(data.ticks):
            if tick not in history.events:
                self._log(history, tick, _key(data, index))
        history.lost = max(history.lost, knowledge.lost)

    def known_beside(self, broker: str, knowledge: Knowledge) -> None:
        """What a second process logs is owed, too; how far it has chopped its log is an affair of its own."""
        history, data = self._history(knowledge.pubend, broker), knowledge.data
        for index, tick in enumerate(data.ticks):
            key = _key(data, index)
            if tick not in history.events:
                self._log(history, tick, key)
            elif history.events[tick].publication.key != key:
                history.beside[tick] = Logged(history.pubend, tick, self.publications[key])

    def wanted(self, broker: str, interest: routing.Interest) -> None:
        """An SHB is there. It may have given subscriptions away before anybody saw its name."""
        if self.shb_of.get(broker) != interest.shb:
            self.shb_of[broker] = interest.shb
            self.broker_of[interest.shb] = broker
            for account in self.accounts.values():
                if account.broker == broker and account.exists and not account.shb:
                    account.shb = interest.shb

    def informed(self, broker: str, now: int, fact: Any) -> None:
        """What routers receive, as a watcher of the seam: which SHBs are counted."""
        if type(fact) is routing.Enrolled:
            self.members.setdefault(fact.pubend, {})[fact.shb] = fact.at

    def said(self, broker: str, now: int, effect: Effect) -> None:
        """A home hears of a pubend what transactions have consumed. What else routers say is no truth."""
        assert type(effect) is routing.Submitted
        if type(effect.reply_to) is routing.RoleAsks:
            self._received.on_claimed(broker, map(CheckpointToken.parse, effect.outcome.tokens))

    def vanished(self, broker: str) -> None:
        """A broker is about to recover."""
        self.ages.vanished(broker)

    # In the brokers.

    def booted(self, broker: SimBroker) -> None:
        """What a log has when its PHB starts is synced: it is the truth, even if nobody ever asks for it."""
        assert broker.disk_driver is not None
        for history in self._at(broker):
            if history.sound:
                self._look_into(history, broker.disk_driver.records(LOG + history.pubend, history.lost))

    def written(self, broker: SimBroker, operations: Sequence[Operation]) -> None:
        """A log grew, or was chopped; a subscription has expired."""
        self._note_what_may_be(broker, operations)
        for pubend, upto in chops(operations):
            history = self._history(pubend, broker.name)
            history.lost = max(history.lost, upto)

    def failed_to_write(self, broker: SimBroker, operations: Sequence[Operation]) -> None:
        """A log may have grown all the same, or a subscription have expired."""
        self._note_what_may_be(broker, operations)

    def wiped(self, broker: SimBroker) -> None:
        """Everything on a disk is gone: its pubends, and the subscriptions of its SHB."""
        for history in self._at(broker):
            if not history.gone:
                history.gone_at = self.world.now
        self.wiped_brokers[broker.name] = None
        self._forget_rows(broker)

    def restored(self, broker: SimBroker) -> None:
        """An old copy of a disk was put back."""
        for history in self._at(broker):
            history.damaged = True
        self.damaged_brokers[broker.name] = None
        self.disk_made_older_at = self.world.now
        self._forget_rows(broker)

    def copied(self, broker: SimBroker) -> None:
        """Two processes of a node run on copies of one volume."""
        for history in self._at(broker):
            history.forked = True
            history.unreadable_in_copy = history.unreadable.copy()
        self.damaged_brokers[broker.name] = None

    def took_copy(self, broker: SimBroker) -> None:
        """What cannot be read on the copy can still not be read, whatever was given up on the other one."""
        for history in self._at(broker):
            history.unreadable = history.unreadable_in_copy.copy()

    def spoilt(self, broker: SimBroker, stream: str, records: Sequence[tuple[int, int, bytes]]) -> None:
        """What is in durable records is the truth, though nobody can read it any more, and nobody ever asked for it."""
        history = self._history(stream[len(LOG) :], broker.name)
        if history.sound:
            self._look_into(history, [(end, record) for _, end, record in records if end > history.lost])
        for after, end, _ in records:
            history.unreadable.add(after, end)

    def repaired(self, broker: SimBroker, holes: Sequence[tuple[str, int, int]]) -> None:
        """From now on what could not be read is lost; the rest of it was released."""
        for stream, after, upto in holes:
            history = self._history(stream[len(LOG) :], broker.name)
            for lo, hi in history.unreadable.ranges:
                if lo < upto and after < hi:  # a record is lost whole, and a hole may begin at any index above the last
                    history.given_up.add(lo, hi)
        for history in self._at(broker):
            history.unreadable = IntervalSet()
            for lo, hi in history.given_up.ranges:
                self.given_up.update((history.events[tick].publication.key, None) for tick in history.between(lo, hi))

    def retired(self, shb: ShbId) -> None:
        """Nobody waits for an SHB any more."""
        self.retired_shbs[shb] = None
        for members in self.members.values():
            members.pop(shb, None)

    # Between SHBs and their clients.

    def received(self, broker: str, session: int, message: Any) -> None:
        """An SHB receives an acknowledgement."""
        self._received.on_request(broker, session, message)
        if type(message) is Subscribe:
            self._lapses.received(broker, message)

    def sent(self, broker: str, session: int, message: Any) -> None:
        """An SHB gives a subscription to a session."""
        if type(message) is Subscribed:
            self._received.on_given(broker, session, message)
            self._lapses.given(broker, message.sid)
        elif type(message) is AttachedTo:
            self._received.on_given(broker, session, message)

    # In the applications.

    def published(self, producer: Producer, publications: Sequence[Publication]) -> None:
        """Publications are on their way."""
        self.producers[producer] = producer.client.boots
        for publication in publications:
            self.publications[publication.key] = publication

    def ready(self, producer: Producer, sequence: int) -> None:
        """A publisher is open."""
        self.opened_at[producer] = self.world.now

    def receipted(
        self, producer: Producer, publication: Publication, pubend: PubendId, tick: Tick, *, durable: bool
    ) -> None:
        """An event with a receipt is logged, even if no PHB has sent it since it recovered."""
        history = self._history(pubend, "")
        if tick and tick not in history.events and (publication.often or publication.key not in self.places):
            self._log(history, tick, publication.key)

    def subscribing(self, consumer: Consumer) -> None:
        """A row is used, for the first time or again."""
        row = consumer.row
        account = self.accounts.get(row.number)
        if account is None:
            account = self.accounts[row.number] = Account(row, self._home_of(consumer), asked_at=self.world.now)
            if row.former is not None and row.on_change is OnChange.KEEP_POSITION:
                account.former = self.accounts.get(row.former.number)
        account.consumers.append(consumer)
        account.unsubscribed = False
        if account not in self.followed:
            self.followed.append(account)
            for share in account.shares.values():
                account.match_from(share, share.base)

    def attached(self, consumer: Consumer, result: Attached, begins: Mapping[PubendId, Tick]) -> None:
        """A subscription is there: from now on it is owed what matches."""
        account = self.accounts[consumer.row.number]
        account.shb = self.shb_of.get(account.broker, "")
        account.unsubscribed = False
        # Whoever reads an answer late may be given what has lapsed since, and was made anew for another process.
        is_late = account.exists and self._lapses.has(account.broker, result.sid)
        is_another = result.sid != account.sid and not is_late
        self._note_remade(consumer, account, result.sid, begins, is_another=is_another)
        is_first = is_another or account.damaged
        if is_first:
            account.begin(result.sid, self.creator_of(consumer).wanted, self.world.now)
            # The answer may be older than the disk: whoever reads it late has what is gone already.
            account.damaged = not self._received.has_given(account.broker, consumer.core.seal)
        # It may have lapsed while the answer was on its way.
        account.lapsed = self._lapses.has(account.broker, account.sid)
        for pubend, tick in begins_of(consumer, begins).items():
            self._begin_on(consumer, account, pubend, tick, is_first=is_first)

    def creator_of(self, consumer: Consumer) -> Consumer:
        """Who may have begun the creation that a consumer was answered with: one that asked with a token, if any.

        That one lost the name to a later consumer of its client before it ever had it. The creation went on.
        """
        name = consumer.row.client_id, consumer.row.name
        others = (other for account in self.accounts.values() for other in account.consumers)
        return next(
            (
                other
                for other in others
                if (other.row.client_id, other.row.name) == name
                and other.wanted.start is StartAt.TOKEN
                and isinstance(other.error, SubscriptionTakenOverError)
                and not other.core.sid
            ),
            consumer,
        )

    def acknowledged(self, consumer: Consumer, positions: Mapping[PubendId, Tick]) -> None:
        """The application needs nothing up to there."""
        account = self.accounts[consumer.row.number]
        account.acknowledged.setdefault(consumer, {}).update(positions)
        for pubend, tick in positions.items():
            share = self.share_of(account, pubend)
            if share is not None and tick > share.acked:
                share.acked = tick

    def unsubscribing(self, row: Row) -> None:
        """Nothing more is owed."""
        account = self.accounts.get(row.number)
        if account is not None:
            account.removed = True

    def changing(self, row: Row) -> None:
        """The subscription of a row is to get another filter, which another row stands for."""
        self.unsubscribing(row)

    def unsubscribed(self, row: Row) -> None:
        """And nothing is kept for it, unless some request is still on its way that makes it anew."""
        account = self.accounts.get(row.number)
        if account is not None:
            account.unsubscribed = all(c.attached or c.error is not None for c in account.consumers)

    def checkpoint(self) -> None:
        """Rows that nobody can use any more are not followed."""
        self.followed = [account for account in self.followed if self._is_used(account)]

    def liveness_begins(self) -> None:
        """From here on everything must come right."""
        self.liveness_since = self.world.now

    # How it is done.

    def _home_of(self, consumer: Consumer) -> str:
        """The broker that keeps what a consumer subscribes to, or where it is as long as it is not durable."""
        roaming = self.world.roaming
        if roaming is None or consumer.row.name is None:
            return consumer.client.addresses[0]
        return home_of(consumer.row.client_id, roaming)

    def _history(self, pubend: PubendId, broker: str) -> History:
        history = self.histories.get(pubend)
        if history is None:
            history = self.histories[pubend] = History(pubend, broker)
        if broker and not history.broker:
            history.broker = broker
        return history

    def _look_into(self, history: History, records: Sequence[tuple[int, bytes]]) -> None:
        unplaced = [
            publication for key, publication in self.publications.items() if publication.often or key not in self.places
        ]
        if unplaced:
            for end, record in records:
                for tick, publication in unseen(history, end, record, unplaced):
                    self._log(history, tick, publication.key)

    def _note_what_may_be(self, broker: SimBroker, operations: Sequence[Operation]) -> None:
        for operation in records_apart(operations):
            if type(operation) is Put and operation.stream.startswith(LOG):
                self._history(operation.stream[len(LOG) :], broker.name).append(operation.index, len(operation.record))
        for sid in self._lapses.note(broker.name, operations):
            for account in self.accounts.values():
                if (account.broker, account.sid) == (broker.name, sid):
                    account.lapsed = True

    def _log(self, history: History, tick: Tick, key: int) -> None:
        publication = self.publications.get(key)
        if publication is None:
            raise Violation("I1", f"{history.pubend} has an event at {tick}, key {key}, which nobody published")
        event = history.events[tick] = Logged(history.pubend, tick, publication)
        add_tick(history.ticks, tick)
        self.places[key] = event
        for account in self.followed:
            account.note(event)
        for listen in self.listeners:
            listen(event)

    def _note_remade(
        self, consumer: Consumer, account: Account, sid: int, begins: Mapping[PubendId, Tick], *, is_another: bool
    ) -> None:
        """What is given in place of something that the row had: made anew, and perhaps resumed."""
        lapses, row = self._lapses, account.row
        if is_another:
            made_anew = lapses.take(account.broker, row.client_id, row.name, sid)
            account.resumed = account.resumed or made_anew or account.lapsed
        has_lapsed = is_another and account.lapsed and not account.damaged
        is_resumed = has_lapsed and not lapses.is_moved(account.broker, row.name)
        account.skipped = self._skipped(consumer, account, begins) if is_resumed else None
        # While the home is away another SHB serves whoever shows a token, and that may be of the home's former disk.
        is_of_home = self._received.has_given(account.broker, consumer.core.seal)
        account.remade = is_another and is_of_home and account.exists and account.durable

    def _begin_on(self, consumer: Consumer, account: Account, pubend: PubendId, tick: Tick, *, is_first: bool) -> None:
        """A subscription begins on a pubend, or is there again."""
        history = self._history(pubend, "")
        share = account.shares.get(pubend)
        if share is None:
            kept_from = account.kept_from(history) if is_first else 0
            share = account.shares[pubend] = Share(history, lost_at_start=history.lost, kept_from=kept_from)
            account.match_from(share, matched_from(consumer, history, tick) if is_first else 0)
        elif tick < share.base:
            account.match_from(share, tick)
        if share.start is None:
            share.start = tick

    def _is_used(self, account: Account) -> bool:
        if any(self.alive(consumer) for consumer in account.consumers):
            return True
        return account.durable and not account.removed and not account.row.ended

    def _skipped(self, consumer: Consumer, account: Account, begins: Mapping[PubendId, Tick]) -> Logged | None:
        """Of what a subscription needed when it lapsed: the first that lies before the place it is resumed at."""
        asked = consumer.wanted.positions or {}
        for pubend, begin in begins.items():
            share = account.shares.get(pubend)
            if share is None or share.start is None or pubend in asked or not share.history.sound:
                continue
            tick = share.first_between(max(share.acked, share.start, share.kept_from), begin)
            if tick is not None:
                return share.history.events[tick]
        return None

    def _at(self, broker: SimBroker) -> Iterator[History]:
        return (history for history in self.histories.values() if history.broker == broker.name)

    def _forget_rows(self, broker: SimBroker) -> None:
        for account in self.accounts.values():
            if account.broker == broker.name:
                account.damaged = True
        self._received.forget(broker.name)
        self._lapses.forget(broker.name)


def begins_of(consumer: Consumer, begins: Mapping[PubendId, Tick]) -> dict[PubendId, Tick]:
    """Where a consumer begins: where its application asked for, else where the broker says.

    The broker's silence may have moved it on before anybody could look.
    """
    asked = consumer.wanted.positions or {}
    return {**begins, **{pubend: tick for pubend, tick in asked.items() if tick}}


def matched_from(consumer: Consumer, history: History, begin: Tick) -> Tick:
    """From where on events are matched with a subscription that begins; but for `latest`, all that is there."""
    return begin if consumer.wanted.start is StartAt.LATEST else min(begin, history.lost)


def _key(data: EventBatch, index: int) -> int:
    event = data.events[index]
    return key_of(event[len(event) - data.body_lengths[index] :])
