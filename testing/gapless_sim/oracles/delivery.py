"""What a subscriber gets of a stream: the right events, in order, with nothing left out, from its start on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gapless.core.client import Delivery, Gap
from gapless.core.stream.ticks import tick_at
from gapless.core.wire.messages import GapReason, StartAt
from gapless.errors import SubscriptionNotFoundError
from gapless_sim.oracles.judge import Judge
from gapless_sim.recording.model import begins_of

if TYPE_CHECKING:
    from gapless.core.client import Item
    from gapless.core.client.link.effects import Attached
    from gapless.core.stream.events import Event
    from gapless.core.stream.ticks import PubendId, Tick
    from gapless.core.wire.tokens import CheckpointToken
    from gapless.errors import GaplessError
    from gapless_sim.recording.accounts import Account, Logged, Share
    from gapless_sim.recording.model import Model
    from gapless_sim.world.consumer import Consumer
    from gapless_sim.world.producer import Publication


class I1Match(Judge):
    """What is handed out is an event that its pubend logged, as it was published, and the subscription matches it."""

    name = "I1"

    def handed_out(self, consumer: Consumer, item: Item) -> None:
        """Looks at each event as the application does."""
        if isinstance(item, Delivery):
            history = self.model.histories.get(item.pubend)
            for event in self.model.events(item):
                logged = None if history is None else history.events.get(event.tick)
                if history is None or logged is None:
                    self.fail(
                        f"{consumer.lane} was handed an event of {item.pubend} at {event.tick}, where none is logged"
                    )
                beside = history.beside.get(event.tick)
                if beside is not None and event.body == beside.publication.body:
                    logged = beside
                publication = logged.publication
                if _said(event) != (publication.body, publication.topic, publication.properties, _set(publication)):
                    self.fail(
                        f"{consumer.lane} was handed {event} in place of publication {publication.key}, "
                        "which is logged there"
                    )
                if not consumer.row.matches(logged):
                    what = f"{publication.topic}, {publication.properties}, {publication.headers}"
                    self.fail(
                        f"{consumer.lane} was handed publication {publication.key} ({what}) of {item.pubend} "
                        f"at {event.tick}, which {consumer.row.selector!r} on {consumer.row.topics} does not match"
                    )


def _said(event: Event) -> tuple[bytes, str, Mapping[str, Any], tuple[object, ...]]:
    """What an application sees of an event that it did not choose itself."""
    return event.body, event.topic, event.properties, (event.priority, event.type, event.correlation_id)


def _set(publication: Publication) -> tuple[object, ...]:
    """What an application sees of the headers that a sender has set, or has not."""
    headers = publication.headers
    return headers.get("priority", 4), headers.get("type") or None, headers.get("correlation_id") or None


class I2Order(Judge):
    """Of each pubend the ticks handed out rise strictly, from above where the consumer began."""

    name = "I2"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._last: dict[Consumer, dict[PubendId, Tick]] = {}

    def attached(self, consumer: Consumer, result: Attached, begins: Mapping[PubendId, Tick]) -> None:
        """It begins behind these."""
        self._last[consumer] = begins_of(consumer, begins)

    def handed_out(self, consumer: Consumer, item: Item) -> None:
        """What was handed out is above all before."""
        last = self._last.get(consumer)
        if last is None:
            self.fail(f"{consumer.lane} was handed {item} before it had its subscription")
        before = last.get(item.pubend, 0)
        if isinstance(item, Delivery):
            for tick in item.ticks:
                if tick <= before:
                    self.fail(f"{consumer.lane} was handed {item.pubend} {tick} behind {before}")
                before = tick
        else:
            if not before <= item.start < item.end:
                self.fail(f"{consumer.lane} was told {item}, and stands at {before} already")
            before = item.end
        last[item.pubend] = before


class I3Gapless(Judge):
    """Between two items that a consumer takes of a pubend lies no event that it matches and did not get.

    That holds for a pubend that is gone with its disk, too: what was not delivered of it lies in a gap. Where two
    processes have logged, a gap may come later (N2).

    What lies in a gap may come to light after the gap was delivered: where a PHB crashed before it had told anybody of
    a record, it may release that early before anybody asks, and its publisher, who asks again, gets the receipt.
    """

    name = "I3"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._positions: dict[Consumer, dict[PubendId, Tick]] = {}
        self.ends: dict[PubendId, Tick] = {}
        """Where each pubend that is gone ends, as somebody was told by a gap: whatever else it had is lost with it."""
        self.passed: list[Callable[[Consumer, Logged], None]] = []
        """Called with each event that a consumer has passed, of a pubend for which two processes have logged."""
        model.listeners.append(self.logged)

    def position(self, consumer: Consumer, pubend: PubendId) -> Tick | None:
        """Up to where a consumer has taken a pubend; None if nothing yet, and it began nowhere."""
        return self._positions.get(consumer, {}).get(pubend)

    def attached(self, consumer: Consumer, result: Attached, begins: Mapping[PubendId, Tick]) -> None:
        """It begins here; where the broker's silence has moved it on already, nothing may be left out."""
        self._positions[consumer] = begins_of(consumer, begins)
        for pubend, tick in begins.items():
            self._pass(consumer, pubend, tick, "silence")

    def handed_out(self, consumer: Consumer, item: Item) -> None:
        """The next thing must be the next thing."""
        if isinstance(item, Delivery):
            self._deliver(consumer, item)
        elif isinstance(item, Gap):
            self._pass(consumer, item.pubend, item.start, "the beginning of a gap")
            self._positions[consumer][item.pubend] = item.end
            if item.reason == GapReason.VOLUME_LOST.value:
                self.ends[item.pubend] = min(item.end, self.ends.get(item.pubend, item.end))
        else:
            self._pass(consumer, item.pubend, item.end, "a silence")

    def committed(self, consumer: Consumer, token: CheckpointToken) -> None:
        """The token may stand behind silence that was not delivered."""
        for pubend, tick in token.ticks.items():
            self._pass(consumer, pubend, tick, "its token")

    def logged(self, event: Logged) -> None:
        """An event that comes to light below where somebody stands was hidden from him."""
        for consumer, positions in self._positions.items():
            if positions.get(event.pubend, 0) >= event.tick and self.model.alive(consumer):
                self._look_back(consumer, event)

    def checkpoint(self) -> None:
        """A consumer that is gone gets nothing more."""
        self._positions = {each: positions for each, positions in self._positions.items() if self.model.alive(each)}

    def _deliver(self, consumer: Consumer, item: Delivery) -> None:
        share = self.model.share(consumer, item.pubend)
        assert share is not None, "I1 comes first"
        positions = self._positions[consumer]
        position = positions.get(item.pubend)
        if position is None:
            position = self._begin_late(consumer, share, item.ticks[0] - 1)
        expected = share.between(position, item.ticks[-1])
        if expected != list(item.ticks) and self._is_owed(consumer, share):
            missing = sorted({*expected}.difference(item.ticks))
            events = share.history.events
            if share.history.forked:
                self._pass_all(consumer, [events[tick] for tick in missing])
                positions[item.pubend] = item.ticks[-1]
                return
            named = ", ".join(f"{tick} (publication {events[tick].publication.key})" for tick in missing[:5])
            self.fail(
                f"{consumer.lane} was handed {item.pubend} {item.ticks[0]}..{item.ticks[-1]} at {position}, "
                f"which leaves out {len(missing)}: {named}"
            )
        positions[item.pubend] = item.ticks[-1]

    def _pass(self, consumer: Consumer, pubend: PubendId, upto: Tick, what: str) -> None:
        positions = self._positions[consumer]
        position = positions.get(pubend)
        if position is not None and position >= upto:
            return
        share = self.model.share(consumer, pubend)
        if share is not None:
            if position is None:
                position = self._begin_late(consumer, share, upto)
            hidden = share.first_between(position, upto)
            if hidden is not None and share.history.forked and self._is_owed(consumer, share):
                self._pass_all(consumer, [share.history.events[tick] for tick in share.between(position, upto)])
            elif hidden is not None and self._is_owed(consumer, share):
                self._hidden(consumer, share, hidden, f"{what} up to {upto}, from {position} on")
        positions[pubend] = upto

    def _begin_late(self, consumer: Consumer, share: Share, upto: Tick) -> Tick:
        """A consumer gets the first item of a pubend: where it begins there."""
        account = self.model.accounts[consumer.row.number]
        if share.start is None:
            share.start = upto
        if not account.durable and consumer.core.former_sids:
            return share.start  # its session ended, and with it what it was owed of pubends it did not know yet
        owed = self.model.first_late(account, share, min(upto, share.start))
        if owed is not None and not share.history.forked and self._is_owed(consumer, share):
            self._hidden(consumer, share, owed, f"{upto}, where it begins")
        return upto

    def _look_back(self, consumer: Consumer, event: Logged) -> None:
        share = self.model.share(consumer, event.pubend)
        if share is None or share.start is None or not self._is_owed(consumer, share):
            return
        if self.model.accounts[consumer.row.number].is_excused(consumer, event.pubend, event.tick):
            return
        position = self._positions[consumer][event.pubend]
        if share.start < event.tick and share.first_between(event.tick - 1, event.tick):
            if share.history.forked:
                self._pass_all(consumer, [event])
                return
            self._hidden(consumer, share, event.tick, f"{position}, and it was logged only now")

    def _pass_all(self, consumer: Consumer, events: Sequence[Logged]) -> None:
        for passed in self.passed:
            for event in events:
                passed(consumer, event)

    def _is_owed(self, consumer: Consumer, share: Share) -> bool:
        """Whether what was logged is owed: the event, or a gap. A disk that is older than it was may forget pubends."""
        broker = self.model.accounts[consumer.row.number].broker
        return share.history.answered_for and broker not in self.model.damaged_brokers

    def _hidden(self, consumer: Consumer, share: Share, tick: Tick, where: str) -> None:
        publication = share.history.events[tick].publication
        self.fail(
            f"{consumer.lane} was not handed publication {publication.key} of {share.history.pubend} at {tick}, "
            f"which {consumer.row.selector!r} matches, and was told of {where}"
        )


class I10Start(Judge):
    """A subscription begins where it was asked to, and resumes no later than where it had come to."""

    name = "I10"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        model.listeners.append(self.logged)

    def attached(self, consumer: Consumer, result: Attached, begins: Mapping[PubendId, Tick]) -> None:
        """Compares with what the application knows."""
        account = self.model.accounts[consumer.row.number]
        if account.remade:
            self.fail(f"{consumer.lane} had to be made anew, and nobody had removed it")
        if account.skipped is not None:
            missed = account.skipped
            self.fail(
                f"{consumer.lane} is resumed after it expired, and passes over publication "
                f"{missed.publication.key} at {missed.tick} of {missed.pubend}"
            )
        if account.removed:
            return
        asked = consumer.wanted.positions or {}
        for pubend, begin in begins.items():
            share = account.shares[pubend]
            if pubend in asked or not share.history.sound:
                continue  # what the application said itself it is held to by I3
            if account.former is not None and share.start == begin and not account.resumed:
                self._judge_kept(consumer, account, account.former, pubend, begin)
                continue
            floor = self._floor(consumer, account, share)
            skipped = None if floor is None else share.first_between(floor, begin)
            if skipped is not None:
                publication = share.history.events[skipped].publication
                self.fail(
                    f"{consumer.lane} ({consumer.wanted.start.name.lower()}) begins behind {begin} of {pubend}, "
                    f"and is owed publication {publication.key} at {skipped}: it needs everything above {floor}"
                )

    def lost_subscription(self, consumer: Consumer, error: GaplessError) -> None:
        """What an application was given is there until somebody removes it."""
        account = self.model.accounts[consumer.row.number]
        if isinstance(error, SubscriptionNotFoundError) and account.exists and account.durable:
            model = self.model
            if model.is_given_up_by_name(account) or model.has_lapsed(consumer) or model.is_of_lost_disk(consumer):
                return
            self.fail(f"{consumer.lane} is not there any more ({error}), and nobody had removed it")

    def logged(self, event: Logged) -> None:
        """What is published once an application has its subscription lies behind its start."""
        for account in self.model.followed:
            share = account.shares.get(event.pubend)
            if share is None or share.start is None or event.tick > share.start:
                continue
            if event.tick < self._wanted_from(account, event.pubend):
                continue
            if account.exists and event.publication.published_at > account.attached_at and share.history.sound:
                self.fail(
                    f"{account} begins behind {share.start} of {event.pubend}, and publication "
                    f"{event.publication.key}, published after that, was logged at {event.tick}"
                )

    def _wanted_from(self, account: Account, pubend: PubendId) -> Tick:
        """What lies before the time, or the token, it asked for is not owed, even if it is published later.

        Clocks differ: a time may be one to come, and a token made from it, too. It may be the token of another
        subscription that it was created at, and not what its row says: where one of its name had lapsed. Or that
        one had asked for such a time, and it goes on there.
        """
        goes_on = account.resumed or account.former is not None
        accounts = list(self.model.namesakes(account)) if goes_on else [account]
        asked = max(consumer.wanted.start_wall for each in accounts for consumer in each.consumers)
        return max(tick_at(asked), *(each.first_token.get(pubend, -1) + 1 for each in accounts))

    def _judge_kept(self, consumer: Consumer, account: Account, former: Account, pubend: PubendId, begin: Tick) -> None:
        """With another filter it begins where it stood: what both select, and was not done with, is owed."""
        share = former.shares.get(pubend)
        if share is None or share.start is None or former.damaged:
            return  # a lost disk had the position that was to be kept
        events = share.history.events
        both = (
            tick
            for tick in share.between(max(share.acked, share.start, share.kept_from), begin)
            if account.row.matches(events[tick])
        )
        skipped = next(both, None)
        if skipped is not None:
            self.fail(
                f"{consumer.lane} has got another filter, and begins behind {begin} of {pubend}: it passes over "
                f"publication {events[skipped].publication.key} at {skipped}, which both filters select and which was "
                f"not done with, for it was acknowledged up to {share.acked}"
            )

    def _floor(self, consumer: Consumer, account: Account, share: Share) -> Tick | None:
        """Everything that matches above it is owed; None where nothing can be said."""
        first = account.consumers[0] is consumer or not account.durable
        if account.durable and any(other.attached for other in account.consumers if other is not consumer):
            first = False  # whoever asked later was attached, and acknowledged, before this request arrived
        if not first and share.start is not None:
            return max(share.acked, share.start, share.kept_from)
        if consumer.wanted.start is StartAt.LATEST:
            return None
        floor = max(share.lost_at_start, self._kept_for_its_name(account, share.history.pubend))
        if consumer.wanted.start is StartAt.TIME:
            return max(floor, tick_at(consumer.wanted.start_wall) - 1)
        return floor

    def _kept_for_its_name(self, account: Account, pubend: PubendId) -> Tick:
        """Where one of its name has lapsed, its place is kept for whoever asks for the name next."""
        if not account.resumed:
            return 0
        others = (each for each in self.model.namesakes(account) if each is not account)
        shares = (each.shares[pubend] for each in others if pubend in each.shares)
        return max((max(share.acked, share.start or 0, share.kept_from) for share in shares), default=0)
