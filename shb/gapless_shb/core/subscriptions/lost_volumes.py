"""Finds pubends that are gone because the volume of their host was lost and made anew (protocol: lost-volumes; T34).

A node has one volume, and its pubends are made in that. So if an SHB knows pubends of two volumes of one node, one of
the volumes is lost with all that only it had. The host cannot know that there ever was another volume. An SHB knows,
because it has its pubends in a table.

Which of the two is lost:

1. A pubend that is found, and was created later than all that are known of the other volume, shows that the other one
   is lost.
2. If it was created earlier, it may be a late word of a former volume, or the clock of the node was set back. And an
   operator may put a volume back that was given up. In both cases the volume that is heard of is there: if one is heard
   to go on, and the other has not gone on for `SILENT`, the other one is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from gapless.core.alarms import Alarm, AlarmCode
from gapless.core.stream.ticks import SECOND, PubendId, Tick, seconds_between, tick_at, time_at
from gapless_shb.core.hosting import Hosting
from gapless_shb.core.live.constream import Constream
from gapless_shb.core.subscriptions.listing import Counted, Listings

SILENT = 3_000_000_000
"""After so many nanoseconds without anything new a pubend counts as silent; a pubend that is there says something each
second."""
AHEAD = 60 * SECOND
"""So far behind the making of a volume what the former one had is given up: ticks may be ahead of the wall clock."""
REMEMBERED = 86_400.0
"""For how many seconds after a loss a broker that starts again tells its operator again."""
NAMED_MAX = 8
"""How many subscriptions that were behind an alarm names."""

Gone: TypeAlias = Callable[[Constream, int, int], None]
"""(pubend, now, wall): delivers what is lost of a pubend that is gone, and does what follows from that."""


class LostVolumes:
    """Decides which pubends of an SHB are gone, and tells the operator."""

    def __init__(self, hosting: Hosting, listings: Listings, gone: Gone) -> None:
        self._hosting = hosting
        self._listings = listings
        self._gone = gone
        self._told: dict[PubendId, Tick] = {}
        """How far each pubend with rivals was heard of, and in `_at` when that was. Rivals: of another volume."""
        self._at: dict[PubendId, int] = {}

    def start(self, now: int, wall: int) -> None:
        """The broker starts: what was gone before still is."""
        for stream in self._hosting.streams.values():
            self._meet_rivals(stream, now)
            if stream.gone_upto:
                self._give_up(stream, stream.gone_upto, now, wall)

    def found(self, stream: Constream, now: int, wall: int) -> None:
        """A pubend was found, or its host has named the volume for the first time."""
        self._meet_rivals(stream, now)
        rivals = list(self._rivals(stream))
        if all(stream.meta.created > rival.meta.created for rival in rivals):
            self._lose(rivals, stream, now, wall)

    def heard(self, stream: Constream, now: int, wall: int) -> None:
        """Something was heard of a pubend that has rivals: if it goes on, those that are silent are gone."""
        if stream.told_upto <= self._told[stream.pubend]:
            return
        self._told[stream.pubend], self._at[stream.pubend] = stream.told_upto, now
        there = [rival for rival in self._rivals(stream) if not rival.gone_upto]
        if any(now - self._at[rival.pubend] < SILENT for rival in there):
            return  # nobody can tell yet
        if stream.gone_upto:
            stream.come_back(now)
        self._lose(there, stream, now, wall)

    def _rivals(self, stream: Constream) -> Iterator[Constream]:
        """Yields the pubends of other volumes of the same node. Of a volume without a name, those of the same name."""
        for other in self._hosting.streams.values():
            if other is stream or not stream.meta.timed or not other.meta.timed or not stream.meta.broker:
                continue
            volumes = stream.meta.volume, other.meta.volume
            is_of_another = all(volumes) and volumes[0] != volumes[1]
            if other.meta.broker == stream.meta.broker and (is_of_another or other.meta.member == stream.meta.member):
                yield other

    def _meet_rivals(self, stream: Constream, now: int) -> None:
        for rival in self._rivals(stream):
            for each in (stream, rival):
                each.has_rivals = True
                self._told.setdefault(each.pubend, each.told_upto)
                self._at.setdefault(each.pubend, now)

    def _lose(self, lost: list[Constream], later: Constream, now: int, wall: int) -> None:
        """Gives up pubends of a volume that is lost: what of them nobody here has."""
        for stream in lost:
            if not stream.gone_upto:
                stream.heard_upto, stream.followed_by = stream.head, later.pubend
                # Not at a place of events: clients are told a position behind that, which the head would never reach.
                self._give_up(
                    stream, stream.client_position(max(later.meta.created, stream.told_upto) + AHEAD), now, wall
                )

    def _give_up(self, stream: Constream, upto: Tick, now: int, wall: int) -> None:
        if seconds_between(upto, tick_at(wall)) < REMEMBERED:
            self._listings.count(stream.pubend, lambda counted: self._tell(stream, counted))
        stream.lose(upto)
        self._told[stream.pubend] = upto
        self._gone(stream, now, wall)

    def _tell(self, stream: Constream, counted: Mapping[int, Counted]) -> None:
        """Tells the operator what is lost, and who was behind."""
        behind: list[str] = []
        for sid, found in sorted(counted.items(), key=lambda each: -each[1].events):
            subscription = self._hosting.registry.get(sid)
            if subscription is not None and subscription.durable:
                of = f" of client {subscription.client_id!r}" if subscription.client_id else ""
                behind.append(f"{subscription.name!r}{of} {_shortfall(found)}")
        more = f"; {len(behind) - NAMED_MAX} more" if len(behind) > NAMED_MAX else ""
        noted = "; ".join(behind[:NAMED_MAX]) + more if behind else "no subscription had anything left to acknowledge"
        instead = [f"{each.pubend}, made at {_shown(each.meta.created)}" for each in self._followers(stream)]
        text = (
            f"pubend {stream.pubend} is gone: node {stream.meta.broker!r} has lost its volume, and has another one"
            f" instead with {'; '.join(instead)}. This SHB had heard of everything up to {_shown(stream.heard_upto)}:"
            " what was published later is lost to all subscriptions, and each gets a gap. Of what was published before:"
            f" {noted}"
        )
        self._hosting.outbox.emit(Alarm(AlarmCode.PUBEND_MADE_ANEW, text, stream.pubend))

    def _followers(self, stream: Constream) -> list[Constream]:
        """Returns the pubends of the volume that a node had next, and not of those that were lost before or later."""
        follower = self._hosting.streams.get(stream.followed_by)
        if follower is None:  # a row of an earlier version does not say it
            return [rival for rival in self._rivals(stream) if not rival.gone_upto]
        others = (rival for rival in self._rivals(stream) if rival is not follower)
        return [follower, *(each for each in others if each.meta.volume and each.meta.volume == follower.meta.volume)]


def _shortfall(found: Counted) -> str:
    if not found.events:
        return "had not read everything, and how many events it lacked is not known here"
    at_least = "" if found.complete else "at least "
    return f"had not acknowledged {at_least}{found.events} events since {_shown(found.oldest)}"


def _shown(tick: Tick) -> str:
    return f"{time_at(tick):%Y-%m-%d %H:%M:%S} UTC"
