"""Openings and batches at the PHB's node, where simulations submit some of them twice, late or out of order."""

from __future__ import annotations

from collections.abc import Collection

from gapless.core.network.facts import OpenRequest, Pub, Submit, SubmitOpen
from gapless.core.network.timer_queue import SECOND
from gapless.core.stream.ticks import PubendId
from gapless_routing.common.placing import From, RequestIntake, line_of
from gapless_sim.hostile.mesh import Mesh, Station

SUBMIT_LATE = 5 * SECOND
LATE_MAX = 100
"""How many batches wait to be submitted again."""


class HostileIntake(RequestIntake):
    """What entries ask of the pubends of this node, mistreated."""

    def __init__(self, station: Station, mesh: Mesh, pubends: Collection[PubendId]) -> None:
        super().__init__(station, mesh, pubends)
        self._hostile = station
        self._late: dict[int, tuple[From, int, Pub]] = {}
        self._count = 0

    def submit_late(self, count: int) -> None:
        """Submits a batch again, unless it was given up."""
        sender, number, pub = self._late.pop(count)
        origin = self._origins.get(sender[:2])
        if origin is not None and not origin.is_given_up(number, line_of(pub)):
            self._hostile.effects.append(Submit(pub, None))

    def _submit(self, sender: From, number: int, message: OpenRequest | Pub) -> None:
        effects, hostility = self._hostile.effects, self._hostile.hostility
        super()._submit(sender, number, message)
        if hostility.happens("submit_twice"):
            effects.append(Submit(message, None) if isinstance(message, Pub) else SubmitOpen(message, None))
        if isinstance(message, Pub) and hostility.happens("submit_late") and len(self._late) < LATE_MAX:
            self._count += 1
            self._late[self._count] = (sender, number, message)
            self._hostile.timers.set(("submit", self._count), self._hostile.within(SUBMIT_LATE))

    def _may_overtake(self) -> bool:
        return self._hostile.hostility.happens("unordered")
