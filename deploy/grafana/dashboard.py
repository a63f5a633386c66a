"""Makes gapless.json, the dashboard for Grafana, by `python deploy/grafana/dashboard.py`.

Each panel is a line here: its title, its unit, and what Prometheus is asked. The JSON is what Grafana imports.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

FILE: Final = Path(__file__).with_name("gapless.json")
ALL: Final = 'instance=~"$instance"'
"""What each expression is limited to: the brokers that were chosen above."""
WIDTH: Final = 24
"""Of Grafana's grid."""
HEIGHT: Final = 7


@dataclass(frozen=True)
class Panel:
    """One graph, or one number."""

    title: str
    unit: str
    """As Grafana names it: "s", "bytes", "cps" (a second), "short" (a number)."""
    curves: Sequence[tuple[str, str]]
    """Expressions, each with its legend; `ALL` is put in for `{}`, and before what else stands in braces."""
    width: int = 8
    kind: str = "timeseries"


def spread(histogram: str, lately: str = "rate({bucket}[$__rate_interval])") -> list[tuple[str, str]]:
    """The middle of what a histogram has observed, and its far end. `lately`: what counts of its buckets."""
    counted = lately.format(bucket=f"{histogram}_bucket{{}}")
    return [
        (f"histogram_quantile({share}, sum by (le, instance) ({counted}))", f"{{{{instance}}}} {100 * share:g} %")
        for share in (0.5, 0.99)
    ]


def rate(counter: str, by: str = "instance") -> str:
    """How much a counter grows a second."""
    return f"sum by ({by}) (rate({counter}{{}}[$__rate_interval]))"


ROWS: Final[dict[str, list[Panel]]] = {
    "Overview": [
        Panel("Serving", "short", [("gapless_node_serving{}", "{{node}}")], 4, "stat"),
        Panel("Alarms", "short", [("sum(gapless_alarm_active{}) or vector(0)", "active")], 4, "stat"),
        Panel("Clients", "short", [("gapless_node_sessions{}", "{{instance}}")], 4, "stat"),
        Panel("Free on the volume", "bytes", [("gapless_volume_free_bytes{}", "{{instance}}")], 4, "stat"),
        Panel("Running since", "s", [("gapless_process_uptime_seconds{}", "{{instance}}")], 4, "stat"),
        Panel("Version", "short", [("gapless_build_info{}", "{{version}}")], 4, "stat"),
        Panel(
            "Events in and out",
            "cps",
            [
                (rate("gapless_pubend_published_events_total"), "{{instance}} published"),
                (rate("gapless_shb_delivered_events_total"), "{{instance}} delivered"),
            ],
        ),
        Panel("What lasts", "short", [("gapless_alarm_active{}", "{{code}} {{about}}")]),
        Panel("What was raised", "short", [("increase(gapless_alarms_total{}[$__rate_interval])", "{{code}}")]),
        Panel("Processor", "percentunit", [("rate(process_cpu_seconds_total{}[$__rate_interval])", "{{instance}}")]),
        Panel("Of it, in turns", "percentunit", [(rate("gapless_node_turn_seconds_sum"), "{{instance}}")]),
        Panel("Memory", "bytes", [("process_resident_memory_bytes{}", "{{instance}}")]),
        Panel("Turn of the loop", "s", spread("gapless_node_turn_seconds")),
        Panel(
            "Sync of the volume",
            "s",
            [
                *spread("gapless_volume_sync_seconds"),
                ("gapless_volume_sync_running_seconds{}", "{{instance}} runs"),
            ],
        ),
        Panel("Written until durable", "s", spread("gapless_volume_commit_seconds")),
        Panel("Bytes of clients", "Bps", [(rate("gapless_node_bytes_total", "direction"), "{{direction}}")]),
        Panel("Refused", "cps", [(rate("gapless_node_refused_total", "code"), "{{code}}")]),
        Panel("Open files", "short", [("process_open_fds{}", "{{instance}}"), ("process_max_fds{}", "most")]),
    ],
    "Pubends": [
        Panel("Published", "cps", [(rate("gapless_pubend_published_events_total", "pubend"), "{{pubend}}")]),
        Panel("Published", "Bps", [(rate("gapless_pubend_published_bytes_total", "pubend"), "{{pubend}}")]),
        Panel("From a batch to its receipt", "s", spread("gapless_phb_publish_seconds")),
        Panel("Log", "bytes", [("gapless_pubend_log_bytes{}", "{{pubend}}")]),
        Panel("Of it, what is still needed", "bytes", [("gapless_pubend_unreleased_bytes{}", "{{pubend}}")]),
        Panel(
            "Batches that were refused",
            "cps",
            [(rate("gapless_pubend_rejected_batches_total", "verdict"), "{{verdict}}")],
        ),
    ],
    "Subscriptions": [
        Panel("Delivered", "cps", [(rate("gapless_shb_delivered_events_total", "path"), "{{path}}")]),
        Panel("Age of events when they are sent", "s", spread("gapless_shb_event_age_seconds")),
        Panel(
            "Consumers",
            "short",
            [
                ("gapless_shb_consumers{}", "{{instance}} consumed"),
                ("sum by (instance) (gapless_shb_readers{})", "{{instance}} catching up"),
            ],
        ),
        Panel(
            "How far subscriptions are behind",
            "s",
            spread("gapless_subscription_behind_seconds", "{bucket}"),
        ),
        Panel("Furthest behind", "short", [("topk(10, gapless_subscription_behind_ticks{})", "{{subscription}}")]),
        Panel("Gaps", "cps", [(rate("gapless_shb_gaps_total", "reason"), "{{reason}}")]),
        Panel(
            "Acknowledged, and sent again",
            "cps",
            [
                (rate("gapless_shb_acknowledged_total"), "{{instance}} acknowledged"),
                (rate("gapless_shb_redelivered_total"), "{{instance}} again"),
            ],
        ),
        Panel("Without credit", "s", spread("gapless_shb_without_credit_seconds")),
        Panel("Catching up", "s", spread("gapless_shb_catch_up_seconds")),
    ],
    "Network": [
        Panel("Links", "short", [("gapless_broker_link_up{}", "{{instance}} to {{node}}")]),
        Panel("Waits on links", "bytes", [("gapless_broker_link_waiting_bytes{}", "{{instance}} to {{node}}")]),
        Panel("Links are behind", "s", [("gapless_broker_link_behind_seconds{}", "{{instance}} to {{node}}")]),
        Panel(
            "Frames on links",
            "cps",
            [
                (
                    rate("gapless_broker_link_frames_total", "instance, node, direction"),
                    "{{instance}} {{direction}} {{node}}",
                )
            ],
        ),
        Panel("Answered after", "s", [("gapless_broker_link_round_trip_seconds{}", "{{instance}} to {{node}}")]),
        Panel("Kept for others", "bytes", [("gapless_router_cached_bytes{}", "{{instance}}")]),
    ],
    "Kafka": [
        Panel("Behind the topic, in offsets", "short", [("gapless_gateway_lag_offsets{}", "{{pubend}}")]),
        Panel("Fetched", "Bps", [(rate("gapless_gateway_fetched_bytes_total", "pubend"), "{{pubend}}")]),
        Panel("Until Kafka answers", "s", spread("gapless_gateway_produce_seconds")),
        Panel("Followed", "cps", [(rate("gapless_pubend_followed_events_total", "pubend"), "{{pubend}}")]),
        Panel("Elections", "cps", [(rate("gapless_gateway_elections_total", "pubend"), "{{pubend}}")]),
        Panel(
            "Logs that stand still", "short", [(f'gapless_alarm_active{{code="log_stands_still", {ALL}}}', "{{about}}")]
        ),
    ],
}


def layout() -> Iterator[dict[str, Any]]:
    """Yields the rows and panels with their places."""
    numbers, top = count(1), 0
    for title, panels in ROWS.items():
        yield {"id": next(numbers), "type": "row", "title": title, "gridPos": place(0, top, WIDTH, 1), "panels": []}
        left, top = 0, top + 1
        for panel in panels:
            if left + panel.width > WIDTH:
                left, top = 0, top + HEIGHT
            yield drawn(panel, next(numbers), place(left, top, panel.width, HEIGHT))
            left += panel.width
        top += HEIGHT if panels else 0


def place(x: int, y: int, w: int, h: int) -> dict[str, int]:
    """Where something stands in Grafana's grid."""
    return {"x": x, "y": y, "w": w, "h": h}


def drawn(panel: Panel, number: int, where: dict[str, int]) -> dict[str, Any]:
    """A panel as Grafana reads it."""
    source = {"type": "prometheus", "uid": "${source}"}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "datasource": source,
        "gridPos": where,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + at),
                "datasource": source,
                "expr": expression.replace("{}", f"{{{ALL}}}"),
                "legendFormat": legend,
            }
            for at, (expression, legend) in enumerate(panel.curves)
        ],
    }


def dashboard() -> dict[str, Any]:
    """All of it."""
    return {
        "title": "gapless",
        "uid": "gapless",
        "schemaVersion": 39,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "tags": ["gapless"],
        "templating": {
            "list": [
                {"name": "source", "type": "datasource", "query": "prometheus", "label": "Prometheus"},
                {
                    "name": "instance",
                    "type": "query",
                    "label": "Broker",
                    "datasource": {"type": "prometheus", "uid": "${source}"},
                    "query": "label_values(gapless_node_serving, instance)",
                    "refresh": 2,
                    "multi": True,
                    "includeAll": True,
                    "allValue": ".*",
                },
            ]
        },
        "panels": list(layout()),
    }


def text() -> str:
    """The file."""
    return json.dumps(dashboard(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), "utf-8")
