"""Networks of cells as a whole: nodes without roles keep nothing, paths are found, and who is retired stays so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gapless.core.network import facts as routing
from gapless.core.ports import Put
from gapless_sim.faults.administrator import shb_of
from gapless_sim.oracles.judge import Judge
from gapless_sim.oracles.liveness import V2LiveCuriosity
from gapless_sim.world.options import SECOND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.core.network.frames import Address, Message
    from gapless.core.network.seam import Effect
    from gapless.core.ports import Operation
    from gapless.core.stream.ticks import PubendId, ShbId
    from gapless_sim.recording.frame_tap import Hop
    from gapless_sim.recording.model import Model
    from gapless_sim.world.broker import SimBroker

ON_ITS_WAY = 5 * SECOND
"""What somebody has said of itself may be passed on by others for so long."""


class R1Soft(Judge):
    """A node without roles logs nothing and needs no operator, whatever becomes of its volume.

    That no promise breaks when it forgets everything is for the other oracles to see: nobody is excused by that.
    """

    name = "R1"

    def written(self, broker: SimBroker, operations: Sequence[Operation]) -> None:
        """Looks for records."""
        if broker.roles:
            return
        for operation in operations:
            if type(operation) is Put:
                self.fail(f"{broker.name} has no role, and logs a record of {operation.stream}")

    def refused(self, broker: SimBroker, error: BaseException) -> None:
        """A volume that has lost something is as good as one that has not."""
        if not broker.roles:
            self.fail(f"{broker.name} has no role, and does not start: {error}")


class V2LivePath(V2LiveCuriosity):
    """In the liveness phase a want that has a path is answered: no SHB asks its router for the same for ever."""

    facts: Sequence[type] = (routing.Want,)
    effects: Sequence[type] = ()

    def asked(self, broker: str, want: routing.Want) -> None:
        """What comes to a PHB is judged elsewhere."""

    def informed(self, broker: str, now: int, fact: Any) -> None:
        """As a watcher of the seam: an SHB wants something."""
        if type(fact) is routing.Want:
            super().asked(broker, fact)

    def said(self, broker: str, now: int, effect: Effect) -> None:
        """What routers say is judged elsewhere."""

    def vanished(self, broker: str) -> None:
        """An SHB that starts anew asks anew."""
        for pubend, shb in list(self._asked):
            if self.model.broker_of.get(shb) == broker:
                del self._asked[pubend, shb]


class V3Retired(Judge):
    """An SHB that is retired and has not been heard of since is not counted again: the release goes on without it.

    Where frames come much later than they were sent, nobody can tell when something was said, and nobody is judged; nor
    when faults have stopped, for what was sent before may still come (seed 820152).
    """

    name = "V3"
    facts: Sequence[type] = (routing.Opened,)
    effects: Sequence[type] = (routing.Enrol,)

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        faults = self.world.options.network
        self._comes_late = bool(faults.repeat or faults.late)
        self._retired_at: dict[ShbId, int] = {}
        self._handed_over_at: dict[tuple[PubendId, ShbId], int] = {}
        """When a PHB has told its router that a pubend does not count an SHB any more."""
        self._heard_at: dict[ShbId, int] = {}
        """When something of the node of an SHB came anywhere the last time, while it was that SHB's."""

    def retired(self, shb: ShbId) -> None:
        """From now on nobody waits for it."""
        self._retired_at[shb] = self.world.now

    def frame_sent(self, hop: Hop, message: Message, address: Address, size: int) -> None:
        """Only what comes counts."""

    def frame_arrived(self, hop: Hop, message: Message, address: Address) -> None:
        """Something of a node has come."""
        self._heard_at[shb_of(self.world.brokers[hop.source])] = self.world.now

    def informed(self, broker: str, now: int, fact: Any) -> None:
        """As a watcher of the seam: a PHB says whom it counts."""
        for shb in self._retired_at:
            if shb not in fact.members:
                self._handed_over_at.setdefault((fact.meta.pubend, shb), self.world.now)

    def said(self, broker: str, now: int, effect: Effect) -> None:
        """As a watcher of the seam: somebody is to be counted."""
        if type(effect) is not routing.Enrol or effect.shb not in self._retired_at:
            return
        node = self.model.broker_of.get(effect.shb)
        if node is None or node == broker or self._comes_late:
            return
        retired_at, heard_at = self._retired_at[effect.shb], self._heard_at.get(effect.shb, 0)
        handed_over_at = self._handed_over_at.get((effect.pubend, effect.shb))
        if handed_over_at is None:
            return  # its PHB has not retired it yet: it may be cut off, and the administrator tries on (seed 2001952)
        if heard_at + ON_ITS_WAY < handed_over_at or heard_at < retired_at < self.world.now - ON_ITS_WAY:
            self.fail(
                f"{effect.shb} is retired, nobody has heard of it since, and {effect.pubend} is to count it again"
            )

    def vanished(self, broker: str) -> None:
        """A router that starts anew may have heard what it likes."""
