"""Notices: what a pubend is, and who is enrolled there, on its way from its broker to all others.

The pubend's own broker says it first, and numbers each change within one life of its router. A notice of an older
number of the same life is ignored, as several ways may lead to a broker. What an SHB is told of a pubend (`Seen`), and
which SHBs have to be enrolled (`Enrol`), follow from what is known here. To whom notices are sent is for the router to
decide.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from gapless.core.foreign import reader_of
from gapless.core.network.facts import BrokerId, Enrol, PubendMeta, Real, Seen
from gapless.core.network.reach import check_meta, check_tick
from gapless.core.network.timer_queue import SECOND
from gapless.core.stream.ticks import OFFSET_BITS, PubendId, ShbId, Tick
from gapless_routing.common.router_state import RouterState

UNDER_WAY: Final = 5 * SECOND
"""What somebody said may have been on its way for so long, which no age counts."""
CHANGES_MAX: Final = 1 << 32
"""So often what is said of a pubend does not change in one life of a router: a notice that says so is false."""


class PubendNotice(Struct, array_like=True, frozen=True, gc=False):
    """A pubend, and who is enrolled there."""

    meta: PubendMeta
    enrolled: dict[ShbId, Real]
    life: Real
    """The life of the router at the pubend's broker: what is placed there names it."""
    behind: bool
    """Nothing is pushed up to the pubend's `stable`: who needs it asks, however far away it is."""
    number: Annotated[int, Meta(ge=0, le=CHANGES_MAX)]
    """Rises in one life with each change of what is said: an older notice may come later, over another broker."""


_encode = msgspec.msgpack.Encoder().encode
_decode = reader_of(PubendNotice, "the notice of a pubend")


@dataclass(slots=True, kw_only=True)
class KnownPubend:
    """What is known of one pubend."""

    meta: PubendMeta
    is_here: bool
    """Whether this broker hosts it."""
    enrolled: dict[ShbId, Tick] = field(default_factory=dict)
    life: int = 0
    number: int = 0
    """Of the notice that said so."""
    handed_over_at: int = 0
    """When the pubend's own broker handed its durable membership over, where that is here."""
    dropped_at: dict[ShbId, int] = field(default_factory=dict)
    """When an SHB was a member no more."""
    seen: Seen | None = None
    """What the SHB of this broker was last told."""


class Notices:
    """All pubends that are known here, as far as notices say."""

    def __init__(self, state: RouterState, pubends: Mapping[PubendId, KnownPubend]) -> None:
        """`pubends`: the router's own table; the router adds to it whatever it hears of."""
        self._state = state
        self._pubends = pubends
        self.lives: dict[BrokerId, int] = {}
        """The life of the router at each broker with pubends."""

    # -------------------------------------------------------------------------------- what is known

    @property
    def hosted(self) -> list[PubendId]:
        """The pubends of this broker."""
        return [name for name, pubend in self._pubends.items() if pubend.is_here]

    def meta_of(self, name: PubendId) -> PubendMeta | None:
        """Returns what is known of a pubend; None: nothing."""
        pubend = self._pubends.get(name)
        return None if pubend is None else pubend.meta

    def all_places(self, broker: BrokerId) -> list[PubendMeta] | None:
        """Returns the pubends of a broker that take new publishers; None if it may have more than are known here.

        It may where notices of some were lost, or are not sent yet: it has just begun, or has not found a log.
        """
        life = self.lives.get(broker)
        known = [pubend for pubend in self._pubends.values() if pubend.meta.broker == broker]
        metas = [pubend.meta for pubend in known if not pubend.meta.read_only]
        # Those of an earlier life may be gone with its volume.
        latest = [pubend.meta for pubend in known if pubend.is_here or pubend.life == life]
        said = {meta.places for meta in latest}
        found = {meta.pubend if meta.timed else meta.topics for meta in latest if not meta.read_only}
        is_all = bool(said) and all(places is not None and places <= len(found) for places in said)
        return metas if is_all else None

    # ------------------------------------------------------------------------------ the pubends here

    def renew_life(self) -> None:
        """This router has another life: who places something at a pubend here has to name it."""
        for pubend in self._pubends.values():
            if pubend.is_here:
                pubend.life = self._state.life

    def opened(self, pubend: KnownPubend, meta: PubendMeta, members: Mapping[ShbId, Tick]) -> None:
        """A pubend of this broker, as it is now, with its durable membership."""
        pubend.meta = meta
        pubend.dropped_at |= {shb: self._state.now for shb in pubend.enrolled if shb not in members}
        pubend.enrolled = dict(members)
        pubend.life = self._state.life
        pubend.number += 1
        pubend.handed_over_at = self._state.now

    def enrolled(self, pubend: KnownPubend, shb: ShbId, at: Tick) -> None:
        """A membership at a pubend of this broker is durable."""
        pubend.enrolled[shb] = at
        pubend.dropped_at.pop(shb, None)
        pubend.number += 1

    def decided(self, pubend: KnownPubend, hi: Tick) -> bool:
        """A pubend of this broker has said something up to there. Returns whether a notice has to go before it.

        That is so where a log that numbers its records has another leader now: else nobody would believe its ticks.
        """
        highest = max(pubend.meta.stable, hi)
        elected = is_elected(pubend.meta, highest)
        pubend.meta = replace(pubend.meta, stable=highest, reach=highest)
        return elected

    def on_heard(self, shb: ShbId, at: int) -> None:
        """An SHB spoke at that time: at the pubends where it does not count yet it is to be enrolled (C5, T60)."""
        for name, pubend in self._pubends.items():
            since = max(pubend.handed_over_at, pubend.dropped_at.get(shb, -UNDER_WAY) + UNDER_WAY)
            if pubend.is_here and shb not in pubend.enrolled and at >= since:
                self._state.effects.append(Enrol(name, shb))

    # ---------------------------------------------------------------------------- of other brokers

    def read(self, data: bytes) -> PubendNotice:
        """Returns a notice that has come. Raises RemoteProtocolError when it makes no sense."""
        notice = _decode(data)
        check_meta(notice.meta, self._state.wall)
        for at in notice.enrolled.values():
            check_tick(notice.meta, at, self._state.wall)
        return notice

    def is_old(self, pubend: KnownPubend, notice: PubendNotice) -> bool:
        """Whether a later notice of the same life was heard already."""
        known = pubend.number, pubend.meta.created
        return pubend.life == notice.life and (notice.number, notice.meta.created) < known

    def has_changed(self, pubend: KnownPubend, notice: PubendNotice) -> bool:
        """Whether a notice says something that others have to hear at once."""
        meta = notice.meta
        return (
            pubend.enrolled != notice.enrolled
            or replace(pubend.meta, stable=0, reach=0) != replace(meta, stable=0, reach=0)
            or is_elected(pubend.meta, meta.reach)
            or pubend.life != notice.life
        )

    def has_begun_anew(self, pubend: KnownPubend, notice: PubendNotice) -> bool:
        """Whether the pubend's broker has forgotten what it was asked, or takes back what it has said."""
        known, meta = pubend.meta, notice.meta
        return pubend.life != notice.life or known.voids != meta.voids or known.forks != meta.forks

    def accept(self, pubend: KnownPubend, notice: PubendNotice) -> list[ShbId]:
        """From now on this is what is known of a pubend. Returns the SHBs that are no members any more."""
        meta = notice.meta
        is_same = meta.created == pubend.meta.created
        dropped = [shb for shb in pubend.enrolled if shb not in notice.enrolled] if is_same else []
        pubend.meta = replace(meta, stable=max(meta.stable, pubend.meta.stable))
        pubend.enrolled, pubend.life, pubend.number = dict(notice.enrolled), notice.life, notice.number
        self.lives[meta.broker] = notice.life
        return dropped

    # -------------------------------------------------------------------------------------- telling

    def notice(self, pubend: KnownPubend, stable: Tick, *, behind: bool) -> bytes:
        """Returns the notice of a pubend that says how far it is decided; `behind`: nothing up to there is pushed."""
        meta = replace(pubend.meta, stable=stable)
        return _encode(PubendNotice(meta, dict(pubend.enrolled), pubend.life, behind, pubend.number))

    def see(self, pubend: KnownPubend, shb: ShbId) -> None:
        """Tells the SHB here of a pubend, once it has spoken, and from where it counts there, if that is new to it."""
        if not shb:
            return
        seen = Seen(pubend.meta, pubend.enrolled.get(shb))
        if seen != pubend.seen:
            pubend.seen = seen
            self._state.effects.append(seen)


def is_elected(meta: PubendMeta, reach: Tick) -> bool:
    """Whether a log that numbers its records has come so far that its leader is another one than was said last."""
    return not meta.timed and reach >> OFFSET_BITS > meta.reach >> OFFSET_BITS
