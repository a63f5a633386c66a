"""The dashboard and the alerts ask for figures that there are, by labels that these have."""

from __future__ import annotations

import re
import runpy

from architecture.project import ROOT
from architecture.queries import DASHBOARD, SCRAPED, alerts, of_alerts, of_dashboard
from architecture.test_metrics_are_documented import families
from gapless.core.alarms import AlarmCode


def labels_of_series() -> dict[str, set[str]]:
    """The labels of each series that a broker tells."""
    found = {"up": set[str]()}
    for family in families().values():
        if family.bounds:
            found[f"{family.name}_bucket"] = {*family.labels, "le"}
            found[f"{family.name}_sum"] = found[f"{family.name}_count"] = {*family.labels}
        else:
            found[family.name] = {*family.labels}
    return found


def test_the_dashboard_is_what_its_program_makes() -> None:
    made = runpy.run_path(str(ROOT / "deploy" / "grafana" / "dashboard.py"))["text"]()

    assert DASHBOARD.read_text("utf-8") == made, "python deploy/grafana/dashboard.py"


def test_what_is_asked_for_is_there() -> None:
    known = labels_of_series()
    for query in [*of_dashboard(), *of_alerts()]:
        for name, labels in query.series():
            assert name in known, f"{query.title}: nobody tells {name}"
            assert labels <= known[name] | SCRAPED, f"{query.title}: {name} has no {labels - known[name] - SCRAPED}"


def test_alerts_speak_of_labels_and_codes_that_there_are() -> None:
    known = labels_of_series()
    codes = {code.label for code in AlarmCode}
    for alert, query in zip(alerts(), of_alerts(), strict=True):
        labels = {label for name, _ in query.series() for label in known[name]} | SCRAPED
        assert set(re.findall(r"\$labels\.(\w+)", str(alert["annotations"]))) <= labels, alert["alert"]
        for value in re.findall(r'code[!=]?~?="([^"]*)"', query.expression):
            assert set(value.split("|")) <= codes, alert["alert"]
        for name, bound in re.findall(r'(\w+)_bucket\{le="([^"]*)"', query.expression):
            assert float(bound) in families()[name].bounds, alert["alert"]
        assert set(alert) <= {"alert", "expr", "for", "labels", "annotations"}
