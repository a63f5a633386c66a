"""Finds pubends that are gone because the volume of their host was lost and made anew (protocol: lost-volumes; T34).

A node has one volume, and the pubends of that are made by it. So if a node has pubends of two volumes, the earlier
volume is lost with all of its pubends: nobody else had their logs. The host itself cannot know that there ever was
another volume. An SHB knows, because it has the pubends in its tables.

Which of two volumes is the later one: that whose pubends were created later. If a pubend of the earlier one is heard
of again, above everything that was given up of it, the operator has put the right volume back. Then that one is the
later one, and what was published to the other meanwhile is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gapless.core.alarms import Alarm, AlarmCode
from gapless.core.network.facts import BrokerId
from gapless.core.stream.ticks import Tick, seconds_between, tick_at, time_at
from gapless_shb.core.constream import Constream
from gapless_shb.core.hosting import Hosting
from gapless_shb.core.listing import Counted, Listings

REMEMBERED = 86_400.0
"""For how many seconds a broker that starts again tells its operator again."""
NAMED_MAX = 8
"""How many subscriptions that were behind an alarm names."""

Gone = Callable[[Constream, int, int], None]
"""(pubend, now, wall): what else is to be done when a pubend is gone."""


class LostVolumes:
    """Decides which pubends of an SHB are gone, and tells the operator."""

    def __init__(self, hosting: Hosting, listings: Listings, gone: Gone) -> None:
        self._hosting = hosting
        self._listings = listings
        self._gone = gone
        self._returned: dict[str, Tick] = {}
        """The pubends that were gone and are there again, and where they were heard of then."""

    def look(self, now: int, wall: int) -> None:
        """A pubend is new here, or its description is: gives up those that it shows to be gone."""
        streams = [stream for stream in self._hosting.streams.values() if stream.meta.timed and stream.meta.broker]
        streams.sort(key=self._order)
        members = {stream.meta.member: stream for stream in streams}
        nodes = {stream.meta.broker: stream for stream in streams if stream.meta.volume}
        for stream in streams:
            if not stream.gone_upto:
                later = self._later(stream, members, nodes)
                if later is not None:
                    self._lose(stream, later, now, wall)

    def heard(self, stream: Constream, now: int, wall: int) -> None:
        """Something was heard of a pubend that is gone. If it is above all that was given up, it is there again."""
        if stream.told_upto <= stream.gone_upto:
            return
        self._returned[stream.pubend] = stream.told_upto
        stream.come_back(now)
        self.look(now, wall)

    def _order(self, stream: Constream) -> Tick:
        return max(stream.meta.created, self._returned.get(stream.pubend, 0))

    def _later(
        self, stream: Constream, members: Mapping[str, Constream], nodes: Mapping[BrokerId, Constream]
    ) -> Constream | None:
        """Returns a pubend of a later volume of the same node; None if there is none."""
        same_name = members[stream.meta.member]
        if self._order(same_name) > self._order(stream):
            return same_name
        same_node = nodes.get(stream.meta.broker)
        if same_node is None or not stream.meta.volume or same_node.meta.volume == stream.meta.volume:
            return None
        return same_node if self._order(same_node) > self._order(stream) else None

    def _lose(self, stream: Constream, later: Constream, now: int, wall: int) -> None:
        """Gives up a pubend: everything of it that nobody here has is lost.

        The operator was told of an old loss in a former life of this broker.
        """
        if later.meta.stable or seconds_between(later.meta.created, tick_at(wall)) < REMEMBERED:
            self._listings.count(stream.pubend, lambda counted: self._tell(stream, later, counted))
        stream.lose(max(self._order(later), stream.told_upto), now, wall)
        self._gone(stream, now, wall)

    def _tell(self, stream: Constream, later: Constream, counted: Mapping[int, Counted]) -> None:
        """Tells the operator what is lost, and who was behind."""
        behind: list[str] = []
        for sid, found in sorted(counted.items(), key=lambda each: -each[1].events):
            subscription = self._hosting.registry.get(sid)
            if subscription is not None and subscription.durable:
                of = f" of client {subscription.client_id!r}" if subscription.client_id else ""
                since = _shown(found.oldest)
                behind.append(f"{subscription.name!r}{of} had not acknowledged {found.events} events since {since}")
        more = f"; {len(behind) - NAMED_MAX} more" if len(behind) > NAMED_MAX else ""
        noted = "; ".join(behind[:NAMED_MAX]) + more if behind else "no subscription had anything left to acknowledge"
        text = (
            f"pubend {stream.pubend} is gone: node {stream.meta.broker!r} has lost its volume, and has made"
            f" {later.pubend} in another one at {_shown(later.meta.created)}. This SHB had heard of everything up to"
            f" {_shown(stream.heard_upto)}: what was published later is lost to all subscriptions, and each gets a"
            f" gap. Of what was published before: {noted}"
        )
        self._hosting.outbox.emit(Alarm(AlarmCode.PUBEND_MADE_ANEW, text, stream.pubend))


def _shown(tick: Tick) -> str:
    return f"{time_at(tick):%Y-%m-%d %H:%M:%S} UTC"
