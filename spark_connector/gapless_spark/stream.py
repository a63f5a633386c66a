"""The driver's side of a streaming query, without Spark: its position, how far it may go, what it is done with.

Spark keeps the position, and calls in an order of its own. The subscription keeps everything after its position until
it is acknowledged. Nothing is connected before Spark asks for something, because readers are made and pickled in
several processes.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from typing import Any, Final, TypeAlias, TypeVar
from uuid import uuid4

import gapless
from gapless.core.stream.ticks import PubendId, Tick
from gapless.errors import (
    ConfigurationError,
    GaplessError,
    SubscriptionElsewhereError,
    SubscriptionInUseError,
    SubscriptionNotFoundError,
    TokenAheadError,
    TokenMismatchError,
)
from gapless.sync.ranges import Lease
from gapless_spark import gaps
from gapless_spark.connections import CLOSE_TIMEOUT, HomeWait, connect
from gapless_spark.offsets import carried_on, token_of, went_back
from gapless_spark.options import SourceOptions
from gapless_spark.planning import Range, plan
from gapless_spark.telling import coded

Offset: TypeAlias = "str | Mapping[str, object]"
Result = TypeVar("Result")

LEASE_PATIENCE: Final = 5.0
"""How many seconds a query waits for the former one to be gone. a stopped query needs a fraction of one."""
LEASE_PAUSE: Final = 0.2
EVENTS_INSTEAD: Final = 10_000
"""How many events a batch has if a limit in ticks does not end at a position."""

log = logging.getLogger("gapless_spark")


class WentBackError(GaplessError):
    """A batch ends before it begins. The text begins with a code."""


def start_of(options: SourceOptions) -> Any:
    """Returns the start of a subscription for `attach`; None: where it stands, or with new events."""
    if options.starting_timestamp is not None:
        return options.starting_timestamp
    text = options.starting_offsets.strip()
    if text.lower() in {"subscription", "earliest", "latest"}:
        return None if text.lower() == "subscription" else text.lower()
    return token_of(text) if text.startswith("{") else gapless.CheckpointToken.parse(text)


def ranges(start: Offset, end: Offset, tasks: int) -> list[Range]:
    """Returns the tasks of a batch. It is a pure function, so that a replay plans the same. Raises WentBackError."""
    first, last = token_of(start), token_of(end)
    for pubend, (before, after) in went_back(first, last).items():
        raise WentBackError(
            f"GAPLESS_WENT_BACK pubend={pubend}: from {before} to {after}; is the checkpoint another query's?"
        )
    return plan(first.ticks, last.ticks, {}, tasks)


class Stream:
    """One query's side of a subscription. It takes Spark's offsets, and returns tokens."""

    def __init__(self, options: SourceOptions) -> None:
        """Connects nothing yet."""
        if options.subscription is None:
            raise ConfigurationError('option subscription is missing: .option("subscription", …)')
        self._options = options
        self._name = options.subscription
        self._home = HomeWait(options.brokers, options.broker_timeout)
        self._connection: gapless.sync.Connection | None = None
        self._lease: Lease | None = None
        self._initial: gapless.CheckpointToken | None = None
        self._position: gapless.CheckpointToken | None = None
        """Spark's position, as far as it is known: before 4.2, Spark asks for the latest offset without it."""
        self._target: Mapping[PubendId, Tick] | None = None
        """How far a run goes that takes what is there, and ends."""
        self._head: gapless.CheckpointToken | None = None
        self._committed: deque[gapless.CheckpointToken] = deque()
        self._acknowledged: gapless.CheckpointToken | None = None

    def initial(self) -> gapless.CheckpointToken:
        """Returns where a new query begins. The subscription is created unless it exists; then this is its position."""
        if self._initial is None:
            with self._coded():
                self._initial = self._at_home(self._begin)
        return self._initial

    def _begin(self) -> gapless.CheckpointToken:
        start = self._attach(start_of(self._options))
        if self._lease is None:
            self._lease = self._leased()
        return start

    def stop_at_heads(self) -> None:
        """From now on ignores everything that comes later than now."""
        with self._coded():
            self._target = self._at_home(lambda: self.connected().heads(timeout=self._options.broker_timeout)).ticks

    def at(self, offset: Offset) -> None:
        """Notes that Spark stands at this offset, or plans to."""
        self._position = token_of(offset)

    def latest(
        self, start: Offset | None, *, capped: bool, max_events: int | None = None, max_bytes: int | None = None
    ) -> gapless.CheckpointToken:
        """Returns how far the next batch goes; `start` itself if there is nothing. Waits for `poll_timeout` at most.

        `capped`: whether the options' limits hold; `max_events` and `max_bytes` are further limits. Raises
        RangeGapError if the batch would meet a gap.
        """
        position = (self._position or self.initial()) if start is None else token_of(start)
        with self._coded():
            self._at_home(lambda: self._hold(position))
        if start is not None and (self._options.ack_timing == "eager" or self._target is not None):
            self.commit(start)
        with self._coded():
            return self._at_home(lambda: self._latest(position, max_events, max_bytes, capped=capped))

    def _latest(
        self, position: gapless.CheckpointToken, max_events: int | None, max_bytes: int | None, *, capped: bool
    ) -> gapless.CheckpointToken:
        self._hold(position)
        self._head = end = self._no_further(position, self._heads(position))
        if end != position and capped:
            end = self._no_further(position, self._within_limits(position, end, max_events, max_bytes))
        end = carried_on(position, end)
        if end != position and self._options.fail_on_gap:
            gaps.check(self.connected(), position, end, self._options.broker_timeout)
        return end

    def head(self) -> gapless.CheckpointToken:
        """Returns how far there was something at the last call; in a run that ends, how far it goes."""
        return self._head or self.initial()

    def commit(self, end: Offset) -> None:
        """The query is done with everything up to here.

        If it fails, it only logs that, because the next commit includes it.
        """
        token = token_of(end)
        if self._committed and self._committed[-1] == token:
            return
        self._committed.append(token)
        while len(self._committed) > self._options.ack_lag + 1:
            self._committed.popleft()
        due = self._committed[0]
        if len(self._committed) <= self._options.ack_lag or due == self._acknowledged:
            return
        try:
            self._hold(due)
            self.connected().ack(due, due, timeout=self._options.broker_timeout)
            self._acknowledged = due
        except (GaplessError, OSError, TimeoutError) as error:
            self._committed.pop()
            log.warning("not acknowledged, the next commit will be: %s", error)

    def _at_home(self, call: Callable[[], Result]) -> Result:
        """Returns what a call returns; while the home of the subscription is away, calls again on a new connection."""
        while True:
            try:
                result = call()
            except SubscriptionElsewhereError as error:
                self.stop()
                self._home.refused(error)
            else:
                self._home.found()
                return result

    def stop(self) -> None:
        """Gives the subscription back, and disconnects. Idempotent."""
        connection, self._connection, self._lease = self._connection, None, None
        if connection is not None:
            with suppress(Exception):
                connection.close(CLOSE_TIMEOUT)

    def _coded(self) -> AbstractContextManager[None]:
        return coded(self._options.brokers, self._name, self._options.broker_timeout)

    def _heads(self, position: gapless.CheckpointToken) -> gapless.CheckpointToken:
        poll = self._options.poll_timeout if self._target is None else 0
        timeout = poll + self._options.broker_timeout
        return self.connected().heads(position, after=position, wait=poll, timeout=timeout)

    def _no_further(self, start: gapless.CheckpointToken, end: gapless.CheckpointToken) -> gapless.CheckpointToken:
        """Returns the end; in a run that ends, not beyond its target, and not before the start."""
        target = self._target
        if target is None:
            return end
        ticks = {
            pubend: max(start.ticks.get(pubend, 0), min(tick, target.get(pubend, 0)))
            for pubend, tick in end.ticks.items()
        }
        return start.advance({pubend: tick for pubend, tick in ticks.items() if tick or pubend in start.ticks})

    def _within_limits(
        self,
        start: gapless.CheckpointToken,
        end: gapless.CheckpointToken,
        max_events: int | None,
        max_bytes: int | None,
    ) -> gapless.CheckpointToken:
        """Returns how far a batch may go by the options' limits, and by these."""
        options = self._options
        events, size = _lower(max_events, options.max_events), _lower(max_bytes, options.max_bytes)
        if events is not None or size is not None:
            timeout = options.broker_timeout
            end = self.connected().bound(start, start, max_events=events, max_bytes=size, timeout=timeout)
        if options.max_ticks is not None:
            end = self._at_a_position(start, end.advance(_shared(start.ticks, end.ticks, options.max_ticks)))
        return end

    def _at_a_position(self, start: gapless.CheckpointToken, end: gapless.CheckpointToken) -> gapless.CheckpointToken:
        """Returns the end if a broker accepts it as a position; otherwise an end by a number of events.

        While a pubend is down it assigns no ticks, and a position at such a time would be refused for ever.
        """
        connection, timeout = self.connected(), self._options.broker_timeout
        try:
            connection.heads(start, after=end, timeout=timeout)
        except TokenAheadError:
            return connection.bound(start, start, max_events=EVENTS_INSTEAD, timeout=timeout)
        return end

    def _attach(self, start: Any) -> gapless.CheckpointToken:
        return self.connected().attach(
            self._name,
            *self._options.topics,
            selector=self._options.selector,
            start=start,
            timeout=self._options.broker_timeout,
        )

    def connected(self) -> gapless.sync.Connection:
        """The stream's connection, made when it is first needed."""
        if self._connection is None:
            self._connection = connect(self._options.brokers, self._options.client_id, self._options.broker_timeout)
        return self._connection

    def _hold(self, position: gapless.CheckpointToken) -> None:
        """Keeps the subscription for this query alone.

        Raises the reason if that fails, or if the position is of another one.
        """
        if self._lease is not None:
            self._lease.check()
            return
        with suppress(SubscriptionNotFoundError):  # what becomes of that, the name says
            # A broker that is not the home may know the name as that of nobody.
            self.connected().heads(position, timeout=self._options.broker_timeout)
        self._lease = self._leased()
        if self._initial is None:  # the query continues: check that the subscription still fits the options
            own = self._attach(None)
            if not own.has_subscription_of(position):
                raise TokenMismatchError("the offset is of another subscription, or of an earlier one of this name")

    def _leased(self) -> Lease:
        """Returns the lease, by the subscription's name. A subscription that does not exist is not created."""
        connection, owner = self.connected(), f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"
        until = time.monotonic() + LEASE_PATIENCE
        while True:
            try:
                return connection.lease(self._name, owner, timeout=self._options.broker_timeout)
            except SubscriptionInUseError as error:
                if time.monotonic() >= until:
                    raise SubscriptionInUseError(
                        f"GAPLESS_IN_USE subscription={self._name}: each query needs a subscription of its own; {error}"
                    ) from error
                time.sleep(LEASE_PAUSE)


def _lower(one: int | None, other: int | None) -> int | None:
    return min((each for each in (one, other) if each is not None), default=None)


def _shared(start: Mapping[PubendId, Tick], end: Mapping[PubendId, Tick], ticks: int) -> dict[PubendId, Tick]:
    """Returns the ends of so many ticks, shared in proportion to what each pubend is behind; one for each at least."""
    widths = {pubend: tick - start.get(pubend, 0) for pubend, tick in end.items()}
    total = max(sum(widths.values()), 1)
    return {
        pubend: start.get(pubend, 0) + min(width, max(1, ticks * width // total)) for pubend, width in widths.items()
    }
