"""What a PHB has said it keeps is still there when it starts again: its records, and whom it counts."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gapless.core.gauges import values_by
from gapless.core.network import facts as routing
from gapless.core.network.seam import Effect
from gapless_phb.core import gauges
from gapless_sim.oracles.judge import Judge
from gapless_sim.recording.pubend_logs import LOG

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.core.stream.ticks import PubendId, ShbId, Tick
    from gapless_sim.recording.accounts import History
    from gapless_sim.recording.model import Model
    from gapless_sim.world.broker import SimBroker


class I7Kept(Judge):
    """An event that was sent or has a receipt, and is not given up, is in the log after every start of its PHB.

    But for what cannot be read, or could not, where a fault has struck.
    """

    name = "I7"

    def booted(self, broker: SimBroker) -> None:
        """Reads its logs."""
        if broker.name in self.model.damaged_brokers:
            return
        lost = values_by(broker.gauges(), gauges.LOST, "pubend")
        for pubend, history in self.model.histories.items():
            if history.broker != broker.name or not history.sound:
                continue
            if pubend not in lost:
                self.fail(f"{pubend} is gone, and nobody has removed it")
            self._look(broker, history, int(lost[pubend]))

    def _look(self, broker: SimBroker, history: History, lost: Tick) -> None:
        """Each event above what is given up must be in the record that ends at its tick, or next above it."""
        assert broker.disk_driver is not None
        records = broker.disk_driver.records(LOG + history.pubend, lost)
        ends = [end for end, _ in records]
        latest, upto = -1, 0
        for tick in reversed(history.ticks[bisect_right(history.ticks, lost) :]):
            if tick in history.unreadable or tick in history.given_up:
                continue
            place = bisect_left(ends, tick)
            publication = history.events[tick].publication
            record = records[place][1] if place < len(ends) else b""
            if place != latest:
                latest, upto = place, len(record)
            # Most end where the one above them begins, and need not be searched for.
            if record.endswith(publication.event, 0, upto):
                upto -= len(publication.event)
            elif publication.event not in record:
                self.fail(
                    f"{history.pubend} has logged publication {publication.key} at {tick}, it was said, "
                    f"and its log lacks it: it has given up what is up to {lost}"
                )


class I8Counted(Judge):
    """An SHB that was enrolled counts until it is retired; a new pubend counts all of its PHB's."""

    name = "I8"
    facts: Sequence[type] = (routing.Enrolled,)
    effects: Sequence[type] = ()

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._counted: dict[str, dict[PubendId, dict[ShbId, None]]] = {}
        """By broker."""

    def informed(self, broker: str, now: int, fact: Any) -> None:
        """As a watcher of the seam: an SHB is counted, and what it counts from is still there."""
        if type(fact) is not routing.Enrolled:
            return
        pubend, shb, at = fact.pubend, fact.shb, fact.at
        counted = self._counted.setdefault(broker, {}).setdefault(pubend, {})
        history = self.model.histories.get(pubend)
        if shb not in counted and history is not None and history.sound and history.lost > at:
            self.fail(f"{pubend} counts {shb} from {at} on, and has released everything up to {history.lost}")
        counted[shb] = None

    def said(self, broker: str, now: int, effect: Effect) -> None:
        """What routers say is no promise."""

    def vanished(self, broker: str) -> None:
        """A router that is gone forgets; the PHB does not."""

    def opened(self, broker: str, meta: routing.PubendMeta, members: Mapping[ShbId, Tick]) -> None:
        """Compares with whom it counted; a pubend that is new counts whoever was ever counted at its PHB."""
        known = self._counted.setdefault(broker, {})
        owed = known.get(meta.pubend)
        if owed is None:
            owed = {shb: None for counted in known.values() for shb in counted}
        forgotten = [shb for shb in owed if shb not in members and shb not in self.model.retired_shbs]
        if forgotten and broker not in self.model.damaged_brokers:
            self.fail(f"{meta.pubend} does not count {', '.join(forgotten)}, and nobody has retired them")
        known[meta.pubend] = dict.fromkeys(members)

    def wiped(self, broker: SimBroker) -> None:
        """An empty disk knows nobody."""
        self._counted.pop(broker.name, None)
