"""The figures that a node gives of its clients' sessions."""

from __future__ import annotations

from gapless.core.gauges import Family

OPENED = Family("gapless_node_sessions_opened_total", "Sessions of clients that were opened.", counter=True)
REFUSED = Family(
    "gapless_node_refused_total",
    "Connections of clients that were refused, by the code of the answer; `closed`: sessions that this node has ended.",
    ("code",),
    counter=True,
)
