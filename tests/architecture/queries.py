"""What Prometheus is asked by the dashboard and by the alerts of the folder `deploy`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import promql_parser
import yaml

from architecture.project import ROOT

DASHBOARD = ROOT / "deploy" / "grafana" / "gapless.json"
ALERTS = ROOT / "deploy" / "prometheus" / "gapless.rules.yml"
SCRAPED = {"instance", "job"}
"""The labels that Prometheus adds when it scrapes."""


@dataclass(frozen=True)
class Query:
    """One expression, and who asks it."""

    title: str
    expression: str

    @property
    def tree(self) -> promql_parser.Expr:
        """The expression, parsed. Raises ValueError where Prometheus would refuse it."""
        return promql_parser.parse(self.expression.replace("$__rate_interval", "5m"))

    def series(self) -> Iterator[tuple[str, set[str]]]:
        """Yields each series that is asked for, with the labels that are asked for or grouped by."""
        yield from _series(self.tree, set())


def _series(tree: promql_parser.Expr, grouped: set[str]) -> Iterator[tuple[str, set[str]]]:
    match tree:
        case promql_parser.VectorSelector():
            assert tree.name is not None
            yield tree.name, {each.name for each in tree.matchers.matchers} | grouped
        case promql_parser.MatrixSelector():
            yield from _series(tree.vector_selector, grouped)
        case promql_parser.AggregateExpr():
            by = set(tree.modifier.labels) if tree.modifier is not None else set()
            yield from _series(tree.expr, grouped | by)
        case promql_parser.Call():
            for each in tree.args:
                yield from _series(each, grouped)
        case promql_parser.BinaryExpr():
            yield from _series(tree.lhs, grouped)
            yield from _series(tree.rhs, grouped)
        case promql_parser.ParenExpr():
            yield from _series(tree.expr, grouped)
        case promql_parser.NumberLiteral():
            pass
        case _:
            raise AssertionError(f"{type(tree).__name__} is not looked into")


def of_dashboard() -> list[Query]:
    """Those of all panels."""
    panels = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    return [Query(panel["title"], target["expr"]) for panel in panels for target in panel.get("targets", ())]


def of_alerts() -> list[Query]:
    """Those of all alerts."""
    return [Query(alert["alert"], alert["expr"]) for alert in alerts()]


def alerts() -> list[dict[str, Any]]:
    """The alerts, as they stand in the file."""
    found: list[dict[str, Any]] = []
    for group in yaml.safe_load(ALERTS.read_text("utf-8"))["groups"]:
        found += group["rules"]
    return found
