"""What `gapless doctor` makes of figures that say who serves whom: who is bypassed, and what does not come to whom.

A router whose brokers choose by whom they are served, as `delta`, gives them; under another one there are none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from gapless import Gauge

SERVING: Final = "gapless_node_serving"
SERVED: Final = "gapless_router_served_pubends"
BYPASSED: Final = "gapless_router_bypassed_pubends"
CUT: Final = "gapless_router_cut_pubends"
OTHERS: Final = "others"
"""What is said for the nodes that a broker counts together, because there are many."""
NAMED_MAX: Final = 5
"""So many nodes are named for one finding."""

Gauges: TypeAlias = 'Mapping[str, Sequence["Gauge"]]'
"""What each node says of itself, by its name."""


def own_name(gauges: Sequence[Gauge]) -> str:
    """The name of the node whose figures these are; "" if they do not say it."""
    return next((node for gauge in gauges if gauge.name == SERVING for _, node in gauge.labels), "")


def service_rows(gauges: Gauges) -> list[dict[str, Any]]:
    """A row for each node and each other one whose pubends are to come there."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for node, theirs in gauges.items():
        for gauge in theirs:
            if gauge.name not in {SERVED, BYPASSED, CUT}:
                continue
            labels = dict(gauge.labels)
            host = labels["host"] or OTHERS
            empty: dict[str, Any] = {"node": node, "host": host, "served_by": [], "past": [], "pubends": 0, "cut": 0}
            row = rows.setdefault((node, host), empty)
            if gauge.name == CUT:
                row["cut"] += int(gauge.value)
            elif gauge.name == BYPASSED:
                row["past"].append(labels["node"])
            else:
                row["served_by"].append(labels["by"])
                row["pubends"] += int(gauge.value)
    return list(rows.values())


def services(gauges: Gauges, silent: Collection[str] = ()) -> Iterator[str]:
    """A sentence for each node that others bypass, and for each whose pubends do not come to others.

    `silent`: who is known not to answer.
    """
    past: dict[str, dict[str, None]] = {}
    cut: dict[str, dict[str, None]] = {}
    for row in service_rows(gauges):
        for node in row["past"]:
            past.setdefault(node, {})[f"{row['node']} is served by {_named(row['served_by'])}"] = None
        if row["cut"]:
            cut.setdefault(row["host"], {})[row["node"]] = None
    for node, instead in past.items():
        why = (
            "Start it"
            if node in silent
            else "If it runs, it has come back just now, or nothing comes to it either; else start it"
        )
        yield f"node {node} is bypassed: {_named(list(instead))}. Events go on past it. {why}"
    for host, cut_off in cut.items():
        why = (
            "it is away itself. Start it; nothing can be published to it until then"
            if host in silent
            else "too many nodes in a row are away. Start those between them that do not answer"
        )
        yield f"nothing of the pubends of {host} comes to {_named(list(cut_off))}: {why}. What was published comes then"


def _named(names: Sequence[str]) -> str:
    shown = list(names[:NAMED_MAX])
    more = len(names) - len(shown)
    last = f"{more} more" if more else shown.pop()
    return f"{', '.join(shown)} and {last}" if shown else last
