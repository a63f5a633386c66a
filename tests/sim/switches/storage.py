"""Broken rules of making durable: groups of commits, the disk in memory (protocol: how-a-write-becomes-durable)."""

from __future__ import annotations

from sim.switches.edits import Edit
from sim.switches.switch import Switch

_LOG = "gapless_storage._memory:Records"

STORAGE = (
    Switch(
        "sync_covers_later_writes",
        ("before PublishAck",),
        "When a sync ends, everything that was written while it ran counts as durable too.",
        (
            Edit(
                "gapless.node.commit:GroupCommit.on_synced",
                "    self._begin()",
                "    if durable:\n"
                "        for behind in self._in_flight:\n"
                "            durable += behind.cookies\n"
                "            behind.cookies = []\n"
                "        durable += self._cookies\n"
                "        self._cookies = []\n"
                "    self._begin()",
            ),
        ),
        ("I7", "I1"),
        "A batch that is written to a PHB while a sync is under way, and a power cut between the end of that sync and"
        " the end of the next one. Every rule of 1.5 is broken with it, so an SHB shows it as well.",
    ),
    Switch(
        "failed_sync_taken_for_done",
        ("T44", "before PublishAck"),
        "A sync that fails is taken for one that succeeded.",
        (
            Edit(
                "gapless_storage.memory_disk:MemoryVolume.sync",
                "            self._failure = error\n            raise",
                "            return",
            ),
        ),
        ("I7", "I1"),
        "A sync of the PHB that fails and loses what it should have made durable (`DiskFaults.sync`), and a later end"
        " of that process, by whatever cause.",
    ),
    Switch(
        "reclaimed_before_chop_durable",
        ("before discard",),
        "Records are discarded for good when their chop is written, not when it is durable.",
        (
            Edit(
                f"{_LOG}.reclaim",
                "bisect_right(self._indexes, self.settled)",
                "bisect_right(self._indexes, self.first)",
            ),
        ),
        ("I7", "V2", "V1"),
        "The node's upkeep reclaims between the write of a chop and its sync, and the PHB loses power then: its log"
        " lacks what is not given up. A subscription from `earliest`, or an old token, would wait for that.",
    ),
    Switch(
        "volume_reads_by_index",
        ("T50",),
        "A read of a stream does not return the record that reaches beyond its end.",
        (
            Edit(
                f"{_LOG}.read",
                "min(bisect_left(self._indexes, upto, lo=place) + 1, len(self._indexes))",
                "bisect_right(self._indexes, upto, lo=place)",
            ),
        ),
        ("V2", "V1"),
        "Batches of several events, of which a subscriber that catches up matches some but not the last. The PHB"
        " notices that a record is missing, and answers nothing: nobody is lied to, and nobody gets on.",
    ),
)
