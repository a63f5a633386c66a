"""Broken rules of positions: which are good for ever, and which never were (protocol: ahead; T11, U03)."""

from __future__ import annotations

from sim.switches.edits import Edit, Replace
from sim.switches.switch import Switch

_AHEAD = "gapless_shb.core.subscriptions.unverified_positions:UnverifiedPositions"

POSITIONS = (
    Switch(
        "silence_ends_at_a_place_of_events",
        ("U03",),
        "A position may be told where an event could stand and none is: in the time between two runs of a PHB it looks"
        " as if that event was lost.",
        (
            Replace(
                "gapless_shb.core.live.constream:Constream.client_position",
                "stands_as_event = self.meta.residue is not None and tick % STEP == self.meta.residue\nreturn tick",
            ),
        ),
        ("U03",),
        "A PHB that was down, somebody who is told of that time in parts, and somebody who asks from there on later.",
        workload="ranges",
    ),
    Switch(
        "what_is_ahead_is_taken",
        ("U03",),
        "A subscription is created at, or acknowledges, a position that nobody was told: it is silent for ever.",
        (
            Edit(
                f"{_AHEAD}.is_beyond",
                "return tick == FOREVER or not stream.meta.timed or (tick + 1) % MILLISECOND != 0",
                "return False",
            ),
        ),
        ("U03",),
        "An application that presents such a position.",
        workload="ranges",
    ),
    Switch(
        "what_is_ahead_is_refused_unasked",
        ("U03", "T11"),
        "A position ahead of what this SHB knows is refused, although the pubend may have come there long ago.",
        (
            Replace(
                f"{_AHEAD}._add",
                "self.doubts.setdefault(pubend, []).append(doubt)\n"
                "self.on_held(self._hosting.streams[pubend], Held('', pubend, FOREVER, {}, 0), now, 0)",
            ),
        ),
        ("U03",),
        "An SHB that crashed, or heard late of a pubend, and an application that had come further.",
    ),
)
