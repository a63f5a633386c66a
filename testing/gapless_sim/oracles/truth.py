"""What pubends state about their ticks, and what SHBs receive about them."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gapless.core.stream.events import Event, Extras
from gapless.core.stream.intervals import IntervalMap, IntervalSet
from gapless.core.stream.stamps import join
from gapless.selectors.lexer import canonical
from gapless_sim.oracles.judge import Judge
from gapless_sim.world.producer import key_of

if TYPE_CHECKING:
    from gapless.core.network import facts as routing
    from gapless.core.stream.knowledge import Knowledge
    from gapless.core.stream.stamps import Stamp
    from gapless.core.stream.ticks import PubendId, ShbId, Tick
    from gapless.selectors.filters import Filter
    from gapless_sim.recording.accounts import Logged
    from gapless_sim.recording.model import Model
    from gapless_sim.world.broker import SimBroker
    from gapless_sim.world.consumer import Consumer
    from gapless_sim.world.producer import Producer, Publication


@dataclass(slots=True, eq=False)
class Said:
    """All that a pubend ever said of its ticks."""

    broker: str
    decided: IntervalSet = field(default_factory=IntervalSet)
    """Events and silence."""
    keys: dict[Tick, int] = field(default_factory=dict)
    ticks: list[Tick] = field(default_factory=list)
    """Of the events, in order."""

    def between(self, lo: Tick, hi: Tick) -> int:
        """How many events are in (lo, hi]."""
        return bisect_right(self.ticks, hi) - bisect_right(self.ticks, lo)


class I12SingleAuthority(Judge):
    """A tick that was an event stays that event, and one that was silence never becomes one: across all crashes."""

    name = "I12"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._said: dict[PubendId, Said] = {}

    def known(self, broker: str, knowledge: Knowledge) -> None:
        """Compares with all that was said before."""
        pubend, lo, hi, data = knowledge.pubend, knowledge.lo, knowledge.hi, knowledge.data
        history = self.model.histories.get(pubend)
        if history is not None and history.forked:
            return
        said = self._said.get(pubend)
        if said is None:
            said = self._said[pubend] = Said(broker)
        if said.broker != broker:
            self.fail(f"{pubend} is spoken for by {said.broker} and by {broker}")
        if not lo < hi or (data.ticks and not lo < data.ticks[0] <= data.ticks[-1] <= hi):
            self.fail(f"{pubend} says events {list(data.ticks)} of ({lo}, {hi}]")
        if not knowledge.reply and not self.model.ages.may_stamp(self.model.histories[pubend], hi):
            self.fail(f"{pubend} decides everything up to {hi}: it follows a wall clock that has leapt")
        if knowledge.damaged:
            self._given_up(pubend, lo, hi)
            return
        silent_from = min(max(lo, knowledge.lost), hi)
        for index, tick in enumerate(data.ticks):
            event = data.events[index]
            self._event(pubend, said, tick, key_of(event[len(event) - data.body_lengths[index] :]))
            if tick <= silent_from:
                said.decided.add(tick - 1, tick)
        told = len(data.ticks) - bisect_right(data.ticks, silent_from)
        if said.between(silent_from, hi) != told:
            present = {*data.ticks}
            hidden = next(tick for tick in said.ticks if silent_from < tick <= hi and tick not in present)
            before = f"where it had said publication {said.keys[hidden]} at {hidden}"
            self.fail(f"{pubend} says silence in ({silent_from}, {hi}], {before}")
        said.decided.add(silent_from, hi)

    def _given_up(self, pubend: PubendId, lo: Tick, hi: Tick) -> None:
        """What is damaged is neither an event nor silence; an operator must have said so."""
        history = self.model.histories[pubend]
        lo = max(lo, history.lost)  # what is released may be damaged or not
        if history.sound and lo < hi and not history.given_up.covers(lo, hi):
            self.fail(f"{pubend} gives ({lo}, {hi}] up as damaged, and an operator has given up {history.given_up}")

    def receipted(
        self, producer: Producer, publication: Publication, pubend: PubendId, tick: Tick, *, durable: bool
    ) -> None:
        """A receipt says as much as its pubend does."""
        said = self._said.get(pubend)
        if tick and said is not None and tick not in said.keys and self.model.histories[pubend].sound:
            self._event(pubend, said, tick, publication.key)
            said.decided.add(tick - 1, tick)

    def restored(self, broker: SimBroker) -> None:
        """What its disk knew is another thing now."""
        self._said = {pubend: said for pubend, said in self._said.items() if said.broker != broker.name}

    def _event(self, pubend: PubendId, said: Said, tick: Tick, key: int) -> None:
        before = said.keys.get(tick)
        if before == key:
            return
        if before is not None:
            self.fail(f"{pubend} says publication {key} at {tick}, where it had said publication {before}")
        if said.decided.covers(tick - 1, tick):
            self.fail(f"{pubend} says publication {key} at {tick}, where it had said silence")
        said.keys[tick] = key
        if not said.ticks or tick > said.ticks[-1]:
            said.ticks.append(tick)
        else:
            insort(said.ticks, tick)


@dataclass(slots=True, eq=False)
class Interest:
    """What one SHB wanted, version by version."""

    filters: dict[int, dict[int, Filter]] = field(default_factory=dict)
    """Version → subscription → filter, as far as it was announced."""

    def announce(self, interest: routing.Interest) -> None:
        """The SHB says what it wants, whole or as a change."""
        if interest.version in self.filters:
            return
        before = {} if interest.full else self.filters.get(interest.base, {})
        kept = {sid: wanted for sid, wanted in before.items() if sid not in interest.drop}
        self.filters[interest.version] = {**kept, **interest.add}


class I9Truth(Judge):
    """No event is logged, ever, at a tick that an SHB received as silence, if a filter honoured in that matches it."""

    name = "I9"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._silent: dict[PubendId, IntervalMap[Stamp]] = {}
        """What any SHB has received as silence, under the highest stamp."""
        self._interests: dict[ShbId, Interest] = {}
        self._predicates: dict[tuple[tuple[str, ...], str], Callable[[Logged], bool]] = {}
        model.listeners.append(self.logged)

    def subscribing(self, consumer: Consumer) -> None:
        """What a filter means is what the application means."""
        row = consumer.row
        self._predicates.setdefault((tuple(row.topics), canonical(row.selector)), row.matches)

    def wanted(self, broker: str, interest: routing.Interest) -> None:
        """An SHB announces its filters."""
        self._interests.setdefault(interest.shb, Interest()).announce(interest)

    def delivered(self, broker: str, knowledge: Knowledge) -> None:
        """An SHB receives silence; that it is true of what is logged already, the routers' contract sees to."""
        lo = min(max(knowledge.lo, knowledge.lost), knowledge.hi)
        if lo < knowledge.hi and not knowledge.damaged:
            silent = self._silent.get(knowledge.pubend)
            if silent is None:
                silent = self._silent[knowledge.pubend] = IntervalMap()
            silent.join(lo, knowledge.hi, knowledge.stamp, join)

    def logged(self, event: Logged) -> None:
        """An event comes to light; its tick may not have been called silent."""
        silent = self._silent.get(event.pubend)
        if silent is None or silent.last is None or silent.last[1] < event.tick:
            return
        if self.model.histories[event.pubend].sound:
            for _, _, stamp in silent.overlapping(event.tick - 1, event.tick):
                self._judge(event, stamp)

    def restored(self, broker: SimBroker) -> None:
        """What its disk knew is another thing now."""
        self._forget(broker)

    def copied(self, broker: SimBroker) -> None:
        """What one process says is silent, the other may log."""
        self._forget(broker)

    def _forget(self, broker: SimBroker) -> None:
        for pubend, history in self.model.histories.items():
            if history.broker == broker.name:
                self._silent.pop(pubend, None)

    def _judge(self, event: Logged, stamp: Stamp) -> None:
        pubend, tick, publication = event.pubend, event.tick, event.publication
        if stamp is None:
            self.fail(
                f"publication {publication.key} is logged at {tick} of {pubend}, "
                "which an SHB was told is silent for everybody"
            )
        for shb, version in stamp.items():
            filters = self._interests[shb].filters.get(version, {}) if shb in self._interests else {}
            for sid, wanted in filters.items():
                if self._matches(wanted, event):
                    self.fail(
                        f"publication {publication.key} is logged at {tick} of {pubend}, "
                        f"which was called silent under version {version} of {shb}, "
                        f"and its subscription {sid} wants it by {wanted}"
                    )

    def _matches(self, wanted: Filter, event: Logged) -> bool:
        matches = self._predicates.get((tuple(wanted.topics), canonical(wanted.selector)))
        if matches is not None:
            return matches(event)
        publication = event.publication
        told = Event(
            publication.topic,
            dict(publication.properties),
            Extras(**publication.headers),
            b"",
            event.tick,
            event.pubend,
        )
        return wanted.matches(told.topic, told.properties, told.headers)
