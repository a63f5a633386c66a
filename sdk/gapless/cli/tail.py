"""`gapless tail`: prints what comes, and what came last, and leaves no subscription behind."""

from __future__ import annotations

import heapq
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from gapless.cli.connecting import connected, credentials_of, run
from gapless.cli.options import DEFAULT_URL, DEFAULT_WAIT, AsJson, Url, User, Wait
from gapless.cli.output import one_line
from gapless.cli.publish import stopping_on_interrupt
from gapless.cli.subscribe import EventPrinter
from gapless.cli.waiting import telling_why
from gapless.core.stream.ticks import time_at
from gapless.errors import ConfigurationError, GapError
from gapless.selectors.topics import patterns_meet

if TYPE_CHECKING:
    from gapless import Connection, Event, Gap, PubendInfo, Session, Subscription

LAST_MAX: Final = 100_000
"""So many events are kept in memory at most, until they are printed."""
FIRST_SPAN: Final = timedelta(seconds=10)
"""How far before the newest event the first look begins."""
SPAN_FACTOR: Final = 10
SPANS: Final = 7
"""After so many looks, the last of them 116 days back, the next one begins at the earliest event."""
WHOLE: Final = ("latest", "earliest")
"""Starts before which there is nothing to be looked for."""


def tail(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Wildcards are allowed.")],
    *,
    selector: Annotated[str, typer.Option(metavar="SELECTOR")] = "",
    last: Annotated[
        int, typer.Option(min=0, max=LAST_MAX, metavar="N", help="First print the newest N events that are there.")
    ] = 0,
    follow: Annotated[bool, typer.Option(help="Go on with what comes; else end after --last.")] = True,
    url: Url = DEFAULT_URL,
    user: User = "",
    wait: Wait = DEFAULT_WAIT,
    as_json: AsJson = False,
) -> None:
    """Print the events of a topic as they come, until Ctrl-C; nothing is acknowledged, or kept for it.

    A gap is printed in its place, and makes the exit status 1.
    """
    if not follow and not last:
        raise ConfigurationError("--no-follow ends after the events of --last N: say how many")
    credentials = credentials_of(url, user)
    printer = EventPrinter(None, None, ack=False, as_json=as_json)

    async def watch() -> None:
        async with connected(url, "", wait, credentials) as connection, connection.session() as session:
            await Tail(connection, session, topic, selector, printer).run(last, follow=follow)

    run(watch())
    if printer.gaps:
        raise GapError(printer.gaps[0])


class Newest:
    """The newest events of several pubends, and the gaps between them, in an order that keeps that of each pubend."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._events = 0
        self._items: list[tuple[datetime, int, Event | Gap]] = []
        """A heap: by the latest time that was seen on the item's pubend, and then as they came."""
        self._times: dict[str, datetime] = {}
        self._arrived = 0

    @property
    def full(self) -> bool:
        """Whether there are as many events as were asked for."""
        return self._events == self._count

    def add(self, item: Event | Gap) -> None:
        """Takes an event or a gap, and drops what is older than the newest events."""
        from gapless import Gap

        before = self._times.get(item.pubend, datetime.min.replace(tzinfo=timezone.utc))
        latest = before if isinstance(item, Gap) else max(before, item.timestamp)
        self._times[item.pubend] = latest
        self._arrived += 1
        heapq.heappush(self._items, (latest, self._arrived, item))
        self._events += not isinstance(item, Gap)
        while self._events > self._count:
            self._events -= not isinstance(heapq.heappop(self._items)[2], Gap)

    def runs(self) -> Iterator[list[Event] | Gap]:
        """Yields all of it in order: gaps, and the events between them."""
        from gapless import Gap

        events: list[Event] = []
        for _, _, item in sorted(self._items, key=lambda entry: entry[:2]):
            if not isinstance(item, Gap):
                events.append(item)
                continue
            if events:
                yield events
                events = []
            yield item
        if events:
            yield events


class Tail:
    """Looks back as far as it must, and then goes on from there: no event is between the two."""

    def __init__(
        self, connection: Connection, session: Session, topic: str, selector: str, printer: EventPrinter
    ) -> None:
        self._connection = connection
        self._session = session
        self._topic = topic
        self._selector = selector
        self._printer = printer
        self._seen = 0
        """How many items the subscriptions have handed out before there was something to print."""
        self._stopped = False

    async def run(self, last: int, *, follow: bool) -> None:
        """Prints the newest `last` events, and then what comes, until it is interrupted."""
        pubends = await self._pubends() if last else []
        ends = {info.pubend: info.newest for info in pubends}
        for start in starts(pubends):
            newest = Newest(last)
            async with (
                self._session.subscribe(
                    self._topic, selector=self._selector, start=start, silence=True, on_gap="deliver"
                ) as subscription,
                telling_why(self._connection, [self._topic], lambda: self._seen + self._printer.printed),
            ):
                with stopping_on_interrupt(partial(self._stop, subscription)):
                    await self._look(subscription, dict(ends), newest)
                    if newest.full or start in WHOLE or self._stopped:
                        await self._print(subscription, newest, follow=follow)
                        return

    async def _pubends(self) -> list[PubendInfo]:
        """Those of the topic that have events."""
        found = await self._connection.pubends()
        for each in found.missing:
            reason = f"the part of node {one_line(each.node)} is missing: {one_line(each.reason)}"
            print(f"gapless: {reason}", file=sys.stderr)
        return [
            info
            for info in found
            if info.newest > info.lost and any(patterns_meet(self._topic, each) for each in info.topics)
        ]

    async def _look(self, subscription: Subscription[Any, Any], left: dict[str, int], newest: Newest) -> None:
        """Reads up to where the pubends stood, which `left` says; or until it is interrupted."""
        from gapless import Event, Silence

        while left and not self._stopped:
            async for item in subscription:
                self._seen += 1
                if not isinstance(item, Silence):
                    newest.add(item)
                place = item.tick if isinstance(item, Event) else item.end
                if item.pubend in left and place >= left[item.pubend]:
                    del left[item.pubend]
                    break

    async def _print(self, subscription: Subscription[Any, Any], newest: Newest, *, follow: bool) -> None:
        for each in newest.runs():
            await self._printer.show(each)
        if follow and not self._stopped:
            await self._printer.consume(subscription)

    def _stop(self, subscription: Subscription[Any, Any]) -> None:
        self._stopped = True
        subscription.drain()


def starts(pubends: list[PubendInfo]) -> Iterator[datetime | Literal["latest", "earliest"]]:
    """Earlier and earlier times, and at last the earliest event: of these pubends. Without any there is one: now.

    Times count from the newest event, if it has one.
    """
    if not pubends:
        yield "latest"
        return
    if all(info.timed for info in pubends):
        newest = max(time_at(info.newest) for info in pubends)
    else:
        newest = datetime.fromtimestamp(time.time_ns() / 1e9, timezone.utc)
    for power in range(SPANS):
        yield newest - FIRST_SPAN * SPAN_FACTOR**power
    yield "earliest"
