"""What was given under earlier rules, when other rules count (protocol: rights).

Whoever attaches is judged by the rules that count then. So is everything once more that goes on under earlier ones:
consumers, also those at other SHBs, leases, and reads of ranges. It is judged in portions, one a turn, for there may be
many; when that is done the rules *hold* here. Who may no longer have something loses it, with an error that says so.
Nothing else changes: a subscription keeps its position, and holds events back as one whose consumer has gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice, repeat
from typing import Any, Final

from gapless.core.alarms import Alarm, AlarmCode
from gapless.core.ports import RulesHold, RulesReplaced
from gapless.core.principals import Principal
from gapless.core.resources import Durable
from gapless.core.wire.messages import Detached
from gapless_shb.core.hosting import Hosting
from gapless_shb.core.ranges.reads import Reads
from gapless_shb.core.state.refusals import RefusedError
from gapless_shb.core.state.registry import SubscriptionRecord
from gapless_shb.core.state.subscription import Phase
from gapless_shb.core.subscriptions.checks import check_may_have
from gapless_shb.core.subscriptions.holders import Holders
from gapless_shb.core.subscriptions.sharing import SharedSubscriptions
from gapless_shb.core.subscriptions.takeovers import Takeovers

PORTION: Final = 128
"""So many are judged in a turn: by a thousand rules that takes some milliseconds."""
TOLD: Final = 3
"""So many subscriptions the alarm names."""


class Rights:
    """What is left to be judged of what an SHB has given."""

    def __init__(
        self,
        hosting: Hosting,
        holders: Holders,
        takeovers: Takeovers,
        reads: Reads,
        sharing: SharedSubscriptions,
        end_consumption: Callable[[int, int, int], None],
    ) -> None:
        self._hosting = hosting
        self._takeovers = takeovers
        self._holders = holders
        self._reads = reads
        self._sharing = sharing
        self._end_consumption = end_consumption
        hosting.note_forbidden = self.note_made
        self._version = 0
        """Of the rules by which it is judged; 0: everything is."""
        self._has_news = False
        """Whether the operator has to be told of subscriptions that were taken away, or are so no more."""
        self._unjudged: Iterator[tuple[Callable[[Any, int, int], None], object]] = iter(())
        """What judges each thing that is left, and how it is called."""
        self._left = 0
        """How many are left."""
        self._forbidden: dict[int, str] = {}
        """The durable subscriptions that were taken from whoever had or made them, and that nobody has since; their
        names."""
        self._guests: dict[tuple[str, str], None] = {}
        """The subscriptions of other homes that were taken from their consumers here, by client id and name."""

    def on_replaced(self, replaced: RulesReplaced, _now: int, _wall: int) -> None:
        """Other rules count: all that there is is to be judged."""
        self._version = replaced.version
        self._has_news |= bool(self._guests)
        self._guests.clear()  # by these rules they may be consumed again, here or elsewhere
        # A hundred thousand consumers are put on the list in one turn: so it has nothing of its own for each of them.
        consumers, leases, reads = tuple(self._hosting.consumers), self._holders.leased, self._reads.under_way
        self._left = len(consumers) + len(leases) + len(reads)
        self._unjudged = chain(
            zip(repeat(self._judge_consumer), consumers),
            zip(repeat(self._judge_lease), leases),
            zip(repeat(self._judge_read), reads),
        )

    @property
    def is_judging(self) -> bool:
        """Whether `judge` has something to do."""
        return self._version > 0

    def judge(self, now: int, wall: int) -> None:
        """Judges a portion, and says when that was all."""
        for judge, what in islice(self._unjudged, PORTION):
            judge(what, now, wall)
        self._left -= PORTION
        if self._left <= 0:
            self._hosting.outbox.emit(RulesHold(self._version))
            self._version = 0
            if self._has_news:
                self._tell()

    def on_beat(self) -> None:
        """Called every few seconds: looks whether what was forbidden is in use again, or gone."""
        over = [sid for sid in self._forbidden if self._is_had(sid) or self._hosting.registry.get(sid) is None]
        for sid in over:
            del self._forbidden[sid]
        if self._guests:
            for consumer in self._hosting.consumers.values():
                guest = consumer.subscription
                if guest.home and self._guests.pop((guest.client_id, guest.name), "") is None:
                    self._has_news = True
        if over or self._has_news:
            self._tell()

    def note_made(self, subscription: SubscriptionRecord) -> None:
        """Whoever has made a durable subscription lost the right to it meanwhile: it is there, and nobody has it."""
        if not self._is_had(subscription.sid):
            self._note(subscription)

    def _is_had(self, sid: int) -> bool:
        return sid in self._hosting.consumers or self._holders.lock(sid) is not None

    def _judge_consumer(self, sid: int, now: int, wall: int) -> None:
        consumer = self._hosting.consumers.get(sid)
        if consumer is None or self._hosting.registry.phase(sid) is Phase.ATTACHING:
            return  # who is being attached is judged before that is answered
        if consumer.subscription.shared is not None:
            for member in self._sharing.members(sid):
                if refused := self._refusal(member.principal, member.channel.session, sid):
                    self._note(consumer.subscription)
                    self._sharing.forbid(member, refused, now)
            return
        session = consumer.channel.session
        if refused := self._refusal(consumer.principal, session, sid):
            self._note(consumer.subscription)
            self._takeovers.left(sid)
            self._hosting.tell(session, Detached(sid, refused.code, str(refused)))
            self._end_consumption(sid, now, wall)

    def _judge_lease(self, sid: int, _now: int, _wall: int) -> None:
        lock = self._holders.lock(sid)
        if lock is None:
            return
        if refused := self._refusal(lock.session.principal, lock.session.number, sid):
            subscription = self._hosting.registry.get(sid)
            assert subscription is not None, "it was just judged"
            self._note(subscription)
            self._holders.forbid(sid, str(refused))

    def _judge_read(self, key: tuple[int, int], _now: int, _wall: int) -> None:
        session, _ = key
        if (read := self._reads.of(key)) is not None:
            principal, sid = read
            if refused := self._refusal(principal, session, sid):
                self._reads.end(key, refused)

    def _refusal(self, principal: Principal, session: int, sid: int) -> RefusedError | None:
        """Returns why somebody may not have a subscription any more; None if he may.

        One that was removed in this turn has reads still, which end with the turn.
        """
        subscription = self._hosting.registry.get(sid)
        if subscription is None:
            return None
        try:
            check_may_have(self._hosting, principal, subscription)
        except RefusedError as refused:
            self._hosting.tell_audit_of_loss(principal, session, subscription, str(refused))
            # Its traceback leads to whoever is given it: a cycle, for each of a hundred thousand.
            return refused.with_traceback(None)
        return None

    def _note(self, subscription: SubscriptionRecord) -> None:
        """A subscription loses whoever has had it."""
        if subscription.name:
            self._has_news = True
        if subscription.durable:
            self._forbidden[subscription.sid] = subscription.called
        elif subscription.home:
            self._guests[subscription.client_id, subscription.name] = None

    def _tell(self) -> None:
        """Tells the operator which subscriptions are left without those who had them."""
        self._has_news = False
        names = [*self._forbidden.values(), *(str(Durable(*guest)) for guest in self._guests)]
        if not names:
            text = "no subscription is without its consumer any more because the rules forbid it"
            self._hosting.outbox.emit(Alarm(AlarmCode.SUBSCRIPTION_FORBIDDEN, text, over=True))
            return
        more = f" and {len(names) - TOLD:,} more" if len(names) > TOLD else ""
        text = f"the rules do not let be consumed any more: {', '.join(names[:TOLD])}{more}; they keep their positions"
        self._hosting.outbox.emit(Alarm(AlarmCode.SUBSCRIPTION_FORBIDDEN, text))
