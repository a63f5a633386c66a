"""What a batch query reads, from where to where, and how a task reads its part of it: without Spark.

What a task reads through belongs to the home of the subscription. A temporary subscription has its home where it was
made; if that is away, the task makes another one elsewhere, and goes on where it was.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, closing, nullcontext

import gapless
from gapless.core.client import Delivery, Gap
from gapless.core.stream.ticks import PubendId, Tick
from gapless.errors import SubscriptionElsewhereError
from gapless_spark import gaps
from gapless_spark.connections import HomeWait, connect, shared_connection
from gapless_spark.offsets import token_of
from gapless_spark.options import SourceOptions
from gapless_spark.parts import parts_of
from gapless_spark.stream import start_of
from gapless_spark.telling import coded
from gapless_spark.temporary import remove_left_behind, temporary


def bounds(
    options: SourceOptions, *, ask_timed: bool
) -> tuple[gapless.CheckpointToken, gapless.CheckpointToken, frozenset[PubendId]]:
    """Returns from where to where a batch query reads; with `ask_timed`, also the pubends whose ticks are times.

    "earliest" is what the pubends still have, as for a subscription that is created.
    """
    home = HomeWait(options.brokers, options.broker_timeout)
    with coded(options.brokers, options.subscription or "", options.broker_timeout):
        while True:
            connection = connect(options.brokers, options.client_id, options.broker_timeout)
            try:
                start, end = _bounds(options, connection)
                return start, end, _timed(connection, options.broker_timeout) if ask_timed else frozenset()
            except SubscriptionElsewhereError as error:
                home.refused(error)
            finally:
                connection.close(options.broker_timeout)


def parts_at_home(
    options: SourceOptions, origin: str, pubend: PubendId, cut: tuple[Tick, Tick], whole: tuple[Tick, Tick]
) -> Generator[Delivery | Gap, None, None]:
    """Yields the events and gaps of `cut`, a part of `whole`, in order (`parts_of`).

    `origin`: the subscription, as the text of a token; without a subscription, the position where the batch begins.
    """
    home, timeout = HomeWait(options.brokers, options.broker_timeout), options.broker_timeout
    token, (start, end) = gapless.CheckpointToken.parse(origin), cut
    while True:
        try:
            with (
                shared_connection(options.brokers, options.client_id, timeout) as connection,
                nullcontext(token) if options.subscription else temporary(connection, options, token) as subscription,
                closing(parts_of(connection, subscription, pubend, (start, end), whole, timeout)) as parts,
            ):
                for part in parts:
                    home.found()
                    yield part
                    start = part.end if isinstance(part, Gap) else part.ticks[-1]
            return
        except SubscriptionElsewhereError as error:
            home.refused(error)


def _bounds(
    options: SourceOptions, connection: gapless.sync.Connection
) -> tuple[gapless.CheckpointToken, gapless.CheckpointToken]:
    name, timeout = options.subscription, options.broker_timeout
    begin = start_of(options)
    with ExitStack() as readings:
        if name is None:
            remove_left_behind(connection, options)
            # Each task has a subscription of its own, from this very position on. For that of the planning everything
            # before it is silence, however far back; for theirs it would be a gap.
            start = readings.enter_context(temporary(connection, options, begin))
        else:
            moves = isinstance(begin, gapless.CheckpointToken)
            # A token would move the position of the subscription, but a batch query only reads.
            start = connection.attach(
                name, *options.topics, selector=options.selector, start=None if moves else begin, timeout=timeout
            )
            if moves:
                start = begin
            elif begin == "earliest":
                start = start.advance(connection.earliest(timeout=timeout).ticks)
        end = _ending(options, start, connection)
        if options.fail_on_gap:
            gaps.check(connection, start, end, timeout)
        return start, end


def _ending(
    options: SourceOptions, start: gapless.CheckpointToken, connection: gapless.sync.Connection
) -> gapless.CheckpointToken:
    ending = options.ending_offsets.strip()
    if ending.lower() == "latest":
        return connection.heads(start, after=start, timeout=options.broker_timeout)
    return token_of(ending) if ending.startswith("{") else gapless.CheckpointToken.parse(ending)


def _timed(connection: gapless.sync.Connection, timeout: float) -> frozenset[PubendId]:
    """Returns the pubends whose ticks are times, as far as their hosts have answered."""
    return frozenset(info.pubend for info in connection.pubends(timeout=timeout) if info.timed)
