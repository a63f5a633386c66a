"""A pubend whose log numbers its records itself, and that others append to as well (protocol: numbered-logs).

It tells what it follows, and publishes by appending and reading back. Its publishers are known from their marks in the
log, so a broker that has lost its volume knows them again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from hashlib import blake2b

from gapless.core.gauges import Gauge
from gapless.core.network.facts import OpenRequest, Outcome, Pub, Submitted, Verdict
from gapless.core.outbox import Then
from gapless.core.ports import Grown, NumberedLog, Set, Trim
from gapless.core.stream.batch_bytes import COUNT_BYTES, ROW
from gapless.core.stream.ticks import Tick
from gapless.core.wire.tokens import split_consumed
from gapless.errors import InvalidTokenError
from gapless_phb.core import gauges, rows
from gapless_phb.core.foreign_log.followed import FollowedLog, Judged
from gapless_phb.core.foreign_log.publishing import NumberedPublishing
from gapless_phb.core.publishers.published import Published
from gapless_phb.core.records import tag_of
from gapless_phb.core.rows import SavedPubend
from gapless_phb.core.source import PubendContext, Timers


class ForeignLogSource:
    """The source of such a pubend (`gapless_phb.core.source.Source`)."""

    def __init__(
        self, context: PubendContext, saved: SavedPubend, found: NumberedLog, timers: Timers, now: int
    ) -> None:
        """`found`: the log as its plugin describes it."""
        self.on_grown: Callable[[int], None] = _nobody
        self._outbox = context.outbox
        self._published = Published(context.publish_seconds)
        self._tables = context.tables
        self._key = rows.key(saved.number)
        tag = tag_of(context.network, found.log)
        event_bytes_max = context.settings.max_delivery_bytes - COUNT_BYTES - ROW.size
        self.log = FollowedLog(found, saved.row.rules, tag, event_bytes_max, context.outbox, timers, self._on_told)
        self._publishing = NumberedPublishing(context, saved, self.log, tag, timers, self._published, now)

    # ------------------------------------------------------------------------------------------- beginning

    def void(self, _now: int, _wall: int) -> tuple[Tick, Tick] | None:
        """Returns nothing: the log itself describes its voids."""
        return None

    def fork(self, _upto: Tick, _now: int, _wall: int) -> Sequence[tuple[Tick, Tick]]:
        """Returns nothing: all processes of all gateways read the same log."""
        return ()

    def begin(self, ready: Then, _now: int, _wall: int) -> None:
        """Calls `ready` when the pubend's row is durable."""

        def durable(now: int, wall: int) -> None:
            self.log.ready = True
            ready(now, wall)

        self._outbox.write([], durable)

    def start(self, now: int, _wall: int) -> None:
        """The network knows the pubend now: follows the log from what was decided when it was found."""
        if not self.log.ended:
            self.log.follow()
            self._publishing.start(now)

    def promise(self, now: int, wall: int) -> None:
        """There is nothing to promise: what comes next is the log's affair."""

    def present(self, _now: int, _wall: int) -> Tick:
        """Returns how far the log was told."""
        return self.log.stable

    # ------------------------------------------------------------------------------------- what the log says

    def learn(self, found: NumberedLog, now: int) -> bool:
        """Takes a newer description of the log. Returns whether it tells other voids."""
        others = self.log.learn(found, now)
        if self.log.ready:
            self._publishing.start(now)
            self._publishing.on_removed()
        return others

    def on_grown_log(self, grown: Grown, now: int) -> None:
        """The log has grown."""
        before = self.log.stable
        self.log.on_grown(grown, now)
        if self.log.stable > before:
            self.on_grown(now)

    def _on_told(self, found: Sequence[Judged], now: int) -> None:
        self._publishing.on_told(found, now)

    def gone(self, why: str, then: Then) -> None:
        """The log is gone for good. Calls `then` when it is durable that everything is lost."""
        self._publishing.end_all(why)
        self.log.end()
        self._outbox.write([Set(self._tables.lost, self._key, rows.encode(self.log.lost))], then)

    def locate(self, wall: int, then: Callable[[Tick], None]) -> None:
        """Asks the log for the place before the first record that bears this time, or a later one."""
        if self.log.ended:
            then(self.log.lost)
        else:
            self._outbox.locate(self.log.pubend, wall, lambda located, _now, _wall: then(located.tick))

    # ------------------------------------------------------------------------------------------- giving up

    def give_up(self, upto: Tick, again: Callable[[int], None]) -> None:
        """Asks the log to remove everything up to a tick, if this broker decides that (TK21).

        The publishers are known from marks in the log. So a checkpoint of them goes first.
        """
        log = self.log
        if log.ended or not log.found.capabilities.trims or upto <= log.lost_asked:
            return
        if self._publishing.covers(upto, again):
            log.lost_asked = upto
            self._outbox.emit(Trim(log.pubend, upto))

    # ------------------------------------------------------------------------------------------ publishing

    @property
    def publisher_count(self) -> int:
        """How many publishers are known."""
        return self._publishing.publisher_count

    @property
    def is_read(self) -> bool:
        """Whether the publishers are known that the log had marks of at the start, or none can be taken anyway."""
        return bool(self.log.found.refuses) or self._publishing.is_read

    def knows(self, publisher: str, *, keyed: bool) -> bool:
        """Whether a publisher, or a producer of keyed batches, has published to this pubend through gapless."""
        return not self.log.ended and self._publishing.knows(publisher, keyed=keyed)

    def open_publisher(self, request: OpenRequest, reply_to: Hashable, now: int, wall: int) -> None:
        """Opens a publisher, and answers."""
        if self.log.found.refuses or self.log.ended:
            self._answer(reply_to, Outcome(Verdict.REJECTED, self._refusal))
        elif request.claims:
            text = f"pubend {self.log.pubend} is on a log of others, and stores no positions for subscriptions alone"
            self._answer(reply_to, Outcome(Verdict.REJECTED, text))
        else:
            self._publishing.open(request, reply_to, now, wall)

    def submit(self, pub: Pub, reply_to: Hashable, refusal: str, now: int, wall: int) -> None:
        """Takes a batch of a publisher. `refusal`: why nothing new can be taken now, or ""."""
        outcome: Outcome | None
        if self.log.found.refuses or self.log.ended:
            outcome = Outcome(Verdict.REJECTED, self._refusal, pub.first)
        elif _is_for_subscriptions(pub):
            text = (
                f"a transaction cannot store what it has consumed at pubend {self.log.pubend}: its log is one of others"
            )
            outcome = Outcome(Verdict.INVALID, text, pub.first)
        else:
            outcome = self._publishing.take(pub, reply_to, refusal, now, wall)
        if outcome is not None:
            self._published.on_answer(outcome.verdict)
            self._answer(reply_to, outcome)

    def end(self, request: OpenRequest, reply_to: Hashable, now: int) -> None:
        """Closes a publisher, or notes that its session has ended."""
        if self.log.found.refuses or self.log.ended:
            self._answer(reply_to, Outcome(Verdict.OK))
        else:
            self._publishing.end(request, reply_to, now)

    @property
    def _refusal(self) -> str:
        return f"the log of pubend {self.log.pubend} is gone" if self.log.ended else self.log.found.refuses

    def _answer(self, reply_to: Hashable, outcome: Outcome) -> None:
        self._outbox.emit(Submitted(reply_to, self.log.pubend, outcome))

    # ---------------------------------------------------------------------------------------------- looking

    def gauges(self) -> Iterator[Gauge]:
        """Yields its positions and sizes, and how much is on its way into the log."""
        log, name = self.log, self.log.pubend
        yield gauges.LOG_BYTES.gauge(log.index.size, name)
        yield gauges.LOST.gauge(log.lost, name)
        yield gauges.NEWEST.gauge(log.newest, name)
        yield gauges.STABLE.gauge(log.stable, name)
        yield gauges.DAMAGED_RANGES.gauge(len(log.damage.listing(log.lost)), name)
        yield gauges.FOLLOWED_EVENTS.gauge(log.events, name)
        yield gauges.FOLLOWED_BYTES.gauge(log.index.total, name)
        yield gauges.RULES.gauge(int.from_bytes(blake2b(log.found.rules, digest_size=6).digest(), "big"), name)
        yield from self._publishing.gauges()
        yield from self._published.gauges(name)


def _is_for_subscriptions(pub: Pub) -> bool:
    try:
        return bool(pub.tokens and split_consumed(pub.tokens))
    except InvalidTokenError:
        return False  # whoever takes the batch says what is wrong with it


def _nobody(_now: int) -> None:
    """Nothing is to be done until a listener is set."""
