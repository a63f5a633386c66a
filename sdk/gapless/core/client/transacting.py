"""A transaction: what was consumed and what was published take effect together or not at all (protocol: transactions).

It has one commit point, a single write:

- nothing but inputs of one subscription: a commit at its home;
- nothing but outputs: one batch at the pubend of the publisher;
- both, or inputs of several subscriptions: one batch, with or without events, that stores the positions of all of them.

    ENLISTING ──every subscription is enlisted at the pubend──▶ SENT ──receipt──▶ committed
        └── nothing was sent: rolled back                         └──refused──▶ rolled back

What was sent is repeated until it is answered, so a transaction is in doubt only if somebody ends it before.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Final

from gapless.core.client.link.effects import NotPublished, Receipted
from gapless.errors import GaplessError, PublishUncertainError

if TYPE_CHECKING:
    from gapless.core.client.connection import ClientCore
    from gapless.core.client.consuming.subscription import SubscriptionCore
    from gapless.core.stream.columns import EventColumns
    from gapless.core.stream.ticks import PubendId, Tick
    from gapless.core.wire.tokens import BatchTokens

ENLISTED_MAX: Final = 8
"""At how many pubends transactions may store the position of a subscription."""


class Fate(Enum):
    """What became of a transaction."""

    OPEN = "open"
    """It is on its way."""
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    """Nothing of it took effect, nor ever will."""
    IN_DOUBT = "in doubt"


class Transacting:
    """The commit of one transaction. `go_on` is called whenever something may have happened."""

    def __init__(
        self,
        core: ClientCore,
        consumed: Mapping[int, Mapping[PubendId, Tick]],
        events: EventColumns,
        publisher: int | None,
    ) -> None:
        """`consumed`: up to where, by subscription. `publisher`: None: of inputs of one subscription alone."""
        assert consumed or events.count, "a transaction has something to commit"
        assert publisher is not None or (len(consumed) == 1 and not events.count)
        self.fate = Fate.OPEN
        self.error: GaplessError | None = None
        """Why it was not committed, if something was refused."""
        self.reason = ""
        """The same for people."""
        self._core = core
        self._consumed = consumed
        self._events = events
        self._publisher = publisher
        self._asked = False
        """Whether what commits it was sent."""
        self._ticket: int | None = None
        self._inputs: dict[int, SubscriptionCore] = {}
        for number in consumed:
            subscription = core.subscription(number)
            if subscription is None or subscription.committing is None:
                self._end(Fate.ROLLED_BACK, "a subscription is not consumed any more")
            else:
                self._inputs[number] = subscription

    @property
    def ticket(self) -> int | None:
        """The ticket of its batch, once that was given to the publisher."""
        return self._ticket

    @property
    def is_sent(self) -> bool:
        """Whether anything was sent that may commit it."""
        return self._asked or self._ticket is not None

    def go_on(self, now: int) -> Fate:
        """Does what can be done now."""
        if self.fate is Fate.OPEN:
            if self._publisher is None:
                self._commit_at_home(now)
            elif self._ticket is None and self._is_enlisted(self._publisher, now):
                self._publish(self._publisher, now)
        return self.fate

    def on_receipted(self, receipted: Receipted, now: int) -> None:
        """Its batch is durable. The homes need not know at once: whoever comes next asks the pubend."""
        assert receipted.ticket == self._ticket
        self.on_durable(now)

    def on_durable(self, now: int) -> None:
        """The same, of the only batch that it has."""
        self._end(Fate.COMMITTED, "")
        for number, positions in self._consumed.items():
            self._core.stored(number, positions, now)

    def on_not_published(self, refused: NotPublished) -> None:
        """Its batch was refused."""
        assert refused.ticket == self._ticket
        self.give_up(refused.error)

    def give_up(self, error: GaplessError) -> None:
        """The publisher, a subscription or the connection is over."""
        if self.fate is not Fate.OPEN:
            return
        self.error = error
        uncertain = self.is_sent and (self._publisher is None or isinstance(error, PublishUncertainError))
        self._end(Fate.IN_DOUBT if uncertain else Fate.ROLLED_BACK, str(error))

    # How it is done.

    def _end(self, fate: Fate, reason: str) -> None:
        if self.fate is Fate.OPEN:
            self.fate, self.reason = fate, reason

    def _commit_at_home(self, now: int) -> None:
        for number, subscription in self._inputs.items():
            committing = subscription.committing
            assert committing is not None
            if committing.under_way is not None:
                if subscription.over:
                    self._end(Fate.IN_DOUBT if self._asked else Fate.ROLLED_BACK, "the subscription is over")
            elif self._asked:
                self._end(Fate.COMMITTED, "")
            elif subscription.over:
                self._end(Fate.ROLLED_BACK, "the subscription is over")
            else:
                self._asked = True
                self._core.commit(number, self._consumed[number], 0, now)
                if committing.under_way is None:  # nothing but silence has passed
                    self._end(Fate.COMMITTED, "")

    def _is_enlisted(self, number: int, now: int) -> bool:
        """Whether all subscriptions are enlisted at the publisher's pubend; asks for what is missing (TS12)."""
        publisher = self._core.publisher(number)
        if publisher is None:
            self._end(Fate.ROLLED_BACK, "its publisher is over")
        if publisher is None or not publisher.pubend:
            return False
        missing = False
        for subscription in self._inputs.values():
            committing = subscription.committing
            assert committing is not None
            if subscription.over:
                self._end(Fate.ROLLED_BACK, "a subscription is not consumed any more")
                return False
            if publisher.pubend in committing.enlisted:
                continue
            missing = True
            if len(committing.enlisted) >= ENLISTED_MAX:
                where = ", ".join(sorted(committing.enlisted))
                self._end(
                    Fate.ROLLED_BACK,
                    f"the position of subscription {subscription.wanted.name!r} is stored at {ENLISTED_MAX} pubends by"
                    f" now, which is the most: {where}; give the topics that its transactions publish to fewer pubends",
                )
                return False
            self._core.enlist(subscription.number, publisher.pubend, now)
        return not missing

    def _publish(self, number: int, now: int) -> None:
        network = self._core.network
        tokens: BatchTokens = tuple(
            subscription.consumed(network, self._consumed[each]) for each, subscription in self._inputs.items()
        )
        self._ticket = self._core.publish(number, self._events, tokens, now)
