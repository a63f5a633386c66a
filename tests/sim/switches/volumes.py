"""Broken rules of what becomes of a pubend whose host has lost its volume (protocol: lost-volumes)."""

from __future__ import annotations

from sim.switches.edits import Replace
from sim.switches.switch import Switch

_LOST = "gapless_shb.core.subscriptions.lost_volumes:LostVolumes"
_PLACING = "gapless_routing.common.placing"
_NEEDS = "A PHB that is a node of its own loses its disk, "

VOLUMES = (
    Switch(
        "lost_volume_is_waited_for",
        ("lost volumes",),
        "A pubend is not given up when its host has another volume: its subscriptions wait for ever, and hear of none.",
        (Replace(f"{_LOST}._lose", "return"),),
        ("V1",),
        f"{_NEEDS}while a subscription is behind, or before an SHB has heard of the last events.",
        workload="churn",
        routers=("hostile", "knowledge"),
    ),
    Switch(
        "lost_volume_is_silence",
        ("lost volumes",),
        "What a pubend had that is gone counts as silence.",
        (
            Replace(
                "gapless_shb.core.live.constream:Constream.lost_knowledge",
                "return Knowledge(self.pubend, 0, self.gone_upto, reply=True)",
            ),
        ),
        ("I3", "cores"),
        f"{_NEEDS}before an SHB has heard of the last events that a subscription matches.",
        workload="churn",
        routers=("hostile", "knowledge"),
    ),
    Switch(
        "publisher_of_a_lost_volume_is_put_off",
        ("lost volumes",),
        "A publisher that was open on a pubend which is gone is asked to wait until that is open.",
        (
            Replace(
                f"{_PLACING}:RequestIntake._may_be_judged",
                "return bool(self._pubends) and (not pubend or pubend in self._pubends)",
            ),
        ),
        ("V1",),
        f"{_NEEDS}under an open publisher that has something to publish.",
        workload="churn",
        routers=("hostile", "knowledge"),
    ),
    Switch(
        "node_of_a_lost_volume_is_not_asked",
        ("lost volumes",),
        "A router that has not heard of a pubend puts its publishers off: nobody asks the node where it was.",
        (
            Replace(
                f"{_PLACING}:ClientSide._owners",
                "return [self._state.owners[pubend]] if pubend in self._state.owners else []",
            ),
        ),
        ("V1",),
        f"{_NEEDS}and so does the memory of the router that a publisher's batches go by.",
        workload="churn",
        routers=("hostile", "knowledge"),
    ),
)
