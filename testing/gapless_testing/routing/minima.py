"""Who counts at a pubend, and whether a release waits for all of them (C4, C5).

The exact words are "not above the true durable minima over the members, never falling, and nothing before
every member was heard since it was enrolled and since the membership was handed over". What a member
reported is true for ever, so its highest report bounds the release, however old it is. *When* a router
heard of it cannot be seen from outside: a report may be on its way when the membership is handed over, and
arrive behind it. What can be seen is a release in the very call that hands the membership over, and one
from a router that was told nothing yet in its life: no frame, nor, by an SHB of its own broker, a report. (What an
SHB there told the router before may come back in a frame, from whoever passed it on.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from gapless.core.network.facts import BrokerId, Progress, PubendMeta
from gapless.core.network.release import Minima
from gapless.core.stream.ticks import PubendId, ShbId, Tick
from gapless_testing.routing.breaches import Clause, ContractError

NOTHING = Minima(-1, -1)


@dataclass(slots=True)
class Members:
    """One pubend: who is counted there, and what its broker's router may say of them."""

    pubend: PubendId
    broker: BrokerId
    handed_over: bool = False
    """Whether the router that is there now was given the membership."""
    members: dict[ShbId, int] = field(default_factory=dict)
    """Each with the number of the call in which the router was told of it."""
    places: dict[ShbId, list[Tick]] = field(default_factory=dict)
    """From where each SHB counts, or ever counted."""
    reports: dict[ShbId, Minima] = field(default_factory=dict)
    heard: dict[ShbId, None] = field(default_factory=dict)
    """Who reported to this very router, at the pubend's broker."""
    said: Minima = NOTHING
    """What its router said last."""
    metas: list[PubendMeta] = field(default_factory=list)
    stable: Tick = 0

    def hand_over(self, broker: BrokerId, meta: PubendMeta, members: Mapping[ShbId, Tick], call: int) -> None:
        """The PHB gives the router the durable membership: all of it."""
        if broker != self.broker:
            self.forget_router()
        self.broker = broker
        self.handed_over = True
        self.members = dict.fromkeys(members, call)
        for shb, at in members.items():
            self._place(shb, at)
        self.stable = max(self.stable, meta.stable)
        plain = replace(meta, stable=0, reach=0)
        if plain not in self.metas:
            self.metas.append(plain)

    def enrol(self, shb: ShbId, at: Tick, call: int) -> None:
        """A membership has become durable. Said again it changes nothing."""
        self.members.setdefault(shb, call)
        self._place(shb, at)

    def _place(self, shb: ShbId, at: Tick) -> None:
        places = self.places.setdefault(shb, [])
        if at not in places:
            places.append(at)

    def report(self, broker: BrokerId, progress: Progress) -> None:
        """An SHB says what it is done with, durably."""
        shb, before = progress.shb, self.reports.get(progress.shb, NOTHING)
        self.reports[shb] = Minima(max(progress.released, before.released), max(progress.delivered, before.delivered))
        if broker == self.broker:
            self.heard[shb] = None

    def forget_router(self) -> None:
        """Another router takes the place of the one that was told all this."""
        self.handed_over = False
        self.said = NOTHING
        self.heard.clear()

    def check_released(self, broker: BrokerId, minima: Minima, call: int, frames: int) -> None:
        """Raises ContractError unless these minima may be said in this call, after so many frames to the router."""
        if broker != self.broker or not self.handed_over:
            raise _unfounded(f"a release of {self.pubend}, whose membership this router was not given")
        if not self.members:
            raise _unfounded(f"a release of {self.pubend}, which has no member")
        for shb, told in self.members.items():
            if told == call or not self._may_be_heard(shb, frames):
                raise _unfounded(f"a release of {self.pubend} before {shb} was heard since it is counted there")
            reported = self.reports[shb]
            if minima.released > reported.released or minima.delivered > reported.delivered:
                raise _unfounded(f"{minima} of {self.pubend}, but {shb} reported no more than {reported}")
        if minima.released < self.said.released or minima.delivered < self.said.delivered:
            raise _unfounded(f"{minima} of {self.pubend} falls below {self.said}, which was said before")
        self.said = minima

    def _may_be_heard(self, shb: ShbId, frames: int) -> bool:
        if shb not in self.reports:
            return False
        return shb in self.heard or frames > 0

    def check_seen(self, meta: PubendMeta, at: Tick | None, shbs: Mapping[ShbId, None], stable: Tick) -> None:
        """Raises ContractError unless the SHBs of a broker may be told this of the pubend."""
        known = max(self.stable, stable)
        if replace(meta, stable=0, reach=0) not in self.metas or max(meta.stable, meta.reach) > known:
            raise ContractError(Clause.TRUTH, f"{meta} is not what {self.pubend} is said to be")
        if at is not None and not any(at in self.places.get(shb, ()) for shb in shbs):
            what = f"{self.pubend} is said to count {', '.join(shbs) or 'an SHB'} from {at} on, which it never did"
            raise ContractError(Clause.ENROL, what)

    def check_stamp(self, shb: ShbId) -> None:
        """Raises ContractError unless silence may be filtered for this SHB."""
        if shb not in self.places:
            raise ContractError(Clause.ENROL, f"silence of {self.pubend} filtered for {shb}, which it does not count")


def _unfounded(what: str) -> ContractError:
    return ContractError(Clause.MINIMA, what)
