"""Fills a subscription's gaps from an archive, for programs that cannot use `connect(archive=…)`.

A gap of a subscription lies between its application's position and the first position from which the broker still has
everything. The part of it that the archive covers is replaced by the events that the subscription selects; the rest
stays a gap. The subscription is not moved: its application still meets the gap, once, and goes on behind it.

Events that have expired meanwhile are included. Their receiver sees the expiration, and a broker to which they are
published skips them by itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

import gapless
from gapless.client.listings import SubscriptionInfo
from gapless.client.ranges.archives import Archive, Part, Selection, check_network
from gapless.core.stream.events import Event
from gapless.core.stream.ticks import PubendId, Tick
from gapless.errors import ConfigurationError, SubscriptionNotFoundError
from gapless.selectors.topics import check_topic
from gapless_spark.pipelines.replay import message_of

REASON: Final = "released early"


@dataclass(frozen=True, slots=True)
class Healable:
    """A gap, and which parts of it an archive has."""

    gap: gapless.Gap
    parts: tuple[Part, ...]

    @property
    def is_whole(self) -> bool:
        """Whether the archive has all of it."""
        return all(part.covered for part in self.parts)


@dataclass(frozen=True, slots=True)
class Healed:
    """What was published for some gaps."""

    published: int
    duplicates: int
    """How many events were there already, from an earlier run."""
    gaps: tuple[gapless.Gap, ...]
    """The parts that the archive does not have."""


class SubscriptionHealing:
    """The gaps of a subscription, to be filled from an archive."""

    def __init__(self, archive: Archive, connection: gapless.sync.Connection, name: str) -> None:
        """The subscription belongs to the connection's client, and must select no more than the archive has.

        Raises SubscriptionNotFoundError, and ConfigurationError for an archive that has less.
        """
        check_network(archive, connection.network)
        self._archive = archive
        self._connection = connection
        self._subscription = subscription_of(connection, name)
        self._selection = Selection(archive, self._subscription.topics, self._subscription.selector, keeps_expired=True)
        lacking = self._selection.lacking()
        if lacking:
            raise ConfigurationError(f"this archive cannot fill the gaps of subscription {name!r}: {lacking}")

    def gaps(self, position: gapless.CheckpointToken | None = None) -> list[gapless.Gap]:
        """Returns the gaps that an application at a position will meet; None: at its acknowledged position."""
        stands = self._subscription.acknowledged if position is None else position
        if stands.network != self._connection.network:
            raise gapless.TokenMismatchError(
                f"the token is of network {stands.network!r}, this is {self._connection.network!r}"
            )
        known = self._connection.earliest(self._subscription.name).ticks
        found = ((pubend, stands.ticks.get(pubend, 0), tick) for pubend, tick in sorted(known.items()))
        return [gapless.Gap(pubend, start, end, REASON) for pubend, start, end in found if start < end]

    def look(self, gaps: Iterable[gapless.Gap]) -> list[Healable]:
        """Returns which parts of each gap the archive has."""
        return [Healable(gap, tuple(self._selection.parts(gap.pubend, gap.start, gap.end))) for gap in gaps]

    def count(self, healable: Healable) -> int:
        """Returns how many events take the place of a gap; it reads all of them."""
        return sum(len(piece) for piece in self.pieces(healable) if isinstance(piece, list))

    def pieces(self, healable: Healable) -> Iterator[list[Event] | gapless.Gap]:
        """Yields what takes the place of a gap, in order: events, and what is left of the gap."""
        for part, events in self._portions(healable):
            if events is None:
                yield gapless.Gap(healable.gap.pubend, part.start, part.end, healable.gap.reason)
            elif events:
                yield events

    def publish(self, healable: Healable, topic: str) -> Healed:
        """Publishes what takes the place of a gap, in order, once: a repetition drops what is there already.

        The events go to `topic`, so they get other ticks; everything else stays the same.
        """
        check_topic(topic)
        published = duplicates = 0
        gaps: list[gapless.Gap] = []
        for part, events in self._portions(healable):
            if events is None:
                gaps.append(gapless.Gap(healable.gap.pubend, part.start, part.end, healable.gap.reason))
            elif events:
                # A repetition has the same portions, and their first ticks rise: so these can be the epochs of the
                # keys.
                producer = self._producer(healable.gap.pubend, part.start, topic)
                messages = [message_of(event, None) for event in events]
                receipt = self._connection.publish(producer, events[0].tick, 0, messages, topic=topic)
                published += receipt.published
                duplicates += receipt.duplicates
        return Healed(published, duplicates, tuple(gaps))

    def _portions(self, healable: Healable) -> Iterator[tuple[Part, list[Event] | None]]:
        """Yields each part with its events, portion by portion; None if it is not covered."""
        for part in healable.parts:
            if not part.covered:
                yield part, None
                continue
            for portion in self._selection.portions(healable.gap.pubend, part.start, part.end):
                yield part, portion.events

    def _producer(self, pubend: PubendId, start: Tick, topic: str) -> str:
        """Returns a unique name for what a subscription has lost from a tick on, and where it is published."""
        own = self._subscription
        what = json.dumps([self._archive.network, own.client_id, own.name, own.topics, own.selector, pubend, topic])
        return f"heal/{sha256(what.encode()).hexdigest()[:24]}/{start}"


def subscription_of(connection: gapless.sync.Connection, name: str) -> SubscriptionInfo:
    """Returns a durable subscription of the connection's client. Raises SubscriptionNotFoundError."""
    for info in connection.subscriptions():
        if (info.client_id, info.name) == (connection.client_id, name):
            return info
    of = f" of client {connection.client_id!r}" if connection.client_id else ""
    raise SubscriptionNotFoundError(f"there is no durable subscription {name!r}{of} here")


def gap_of(text: str) -> gapless.Gap:
    """Returns the gap in a text PUBEND:START:END. Raises ConfigurationError."""
    parts = text.rsplit(":", 2)
    if len(parts) != 3 or not all(part.isascii() and part.isdecimal() for part in parts[1:]):
        raise ConfigurationError(f"{text!r} is not PUBEND:START:END, with the two ticks of a gap")
    return _checked(parts[0], int(parts[1]), int(parts[2]), text)


def gaps_in(lines: Iterable[str]) -> list[gapless.Gap]:
    """Returns the gaps among the lines of `gapless subscribe --json`. Raises ConfigurationError."""
    found: list[gapless.Gap] = []
    for number, line in enumerate(lines, 1):
        try:
            fields = json.loads(line) if line.strip() else None
            gap = fields.get("gap") if isinstance(fields, dict) else None
            if gap is not None:
                found.append(_checked(gap["pubend"], gap["start"], gap["end"], f"line {number}"))
        except (ValueError, TypeError, KeyError) as error:
            raise ConfigurationError(f"line {number} is not one that `gapless subscribe --json` prints") from error
    return found


def _checked(pubend: str, start: Tick, end: Tick, what: str) -> gapless.Gap:
    if not pubend or not 0 <= start < end:
        raise ConfigurationError(f"{what}: ({start}, {end}] of {pubend!r} is no gap")
    return gapless.Gap(pubend, start, end, REASON)
