"""The figures that a node gives of itself, whatever its roles are."""

from __future__ import annotations

from gapless.core.gauges import SECONDS, Family

SERVING = Family("gapless_node_serving", "Whether clients are served just now; not while it recovers.", ("node",))
SESSIONS = Family("gapless_node_sessions", "Clients that are connected.")
RULES = Family(
    "gapless_rules_hold",
    "Which rules decide who may do what: 1 when nothing that they forbid goes on, 0 while that is judged.",
    ("rules",),
)
FREE_BYTES = Family("gapless_volume_free_bytes", "What is left on the disk of the volume.")
SPACE_LOW = Family("gapless_volume_space_low", "Whether less is left than node.min_free_bytes: publishers wait.")
RECLAIMABLE_BYTES = Family("gapless_volume_reclaimable_bytes", "What the volume can give back to the disk.")
COMMIT_SECONDS = Family(
    "gapless_volume_commit_seconds",
    "How long what was written in a turn takes until it is durable: it may wait for a sync that runs.",
    bounds=SECONDS,
)
SYNC_SECONDS = Family(
    "gapless_volume_sync_seconds", "How long a sync of the volume takes: receipts wait for one.", bounds=SECONDS
)
SYNC_RUNNING = Family(
    "gapless_volume_sync_running_seconds",
    "How long the sync that runs for longest has been running; 0 without one. A disk that hangs shows here.",
)
TURN_SECONDS = Family(
    "gapless_node_turn_seconds",
    "How long a turn of the node takes: as long, nothing else is done that is not in a thread.",
    bounds=SECONDS,
)
FACTS = Family(
    "gapless_facts_total",
    "What the parts of the broker said to each other, by who and what.",
    ("source", "kind"),
    counter=True,
)
