"""`gapless retire`: nothing is given up before it is clear whom and what that means."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gapless.cli import retire as retire_module
from gapless.cli.app import app
from gapless.client.listings import MissingAnswer, Retirement
from gapless.errors import ConfigurationError
from unit.gapless.cli.conftest import Gapless


class Administered:
    """A connection to a broker that counts one SHB, `away@disk`, until it is retired."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, bool]] = []
        self.before = False
        self.silent = False
        """Whether another PHB does not answer."""
        self.running = False
        """Whether the SHB runs."""

    async def retire(self, shb: str, *, only_look: bool = False, running: bool = False) -> Retirement:
        self.asked.append((shb, only_look))
        if shb not in {"away", "away@disk"}:
            raise ConfigurationError(f"no pubend of node 'node' counts an SHB {shb!r}; those that count: away@disk")
        pubends = () if self.before else ("p@1", "q@1")
        missing = (MissingAnswer("phb2", "it has not answered for 3 s"),) if self.silent else ()
        found = Retirement("away@disk", pubends, self.before, ("phb1",), missing, only_look and self.running)
        assert only_look or running or not self.running, "it was asked for first"
        self.before = self.before or not only_look
        return found

    @property
    def done(self) -> list[str]:
        return [shb for shb, only_look in self.asked if not only_look]


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Administered:
    broker = Administered()

    @asynccontextmanager
    async def connected(*_: Any) -> Any:
        yield broker

    monkeypatch.setattr(retire_module, "connected", connected)
    return broker


def test_it_says_what_it_will_do_and_asks(broker: Administered, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retire_module, "is_interactive", lambda: True)

    refused = CliRunner().invoke(app, ["retire", "away"], input="no\n")
    assert refused.exit_code == 1
    assert broker.done == []
    assert "'away@disk' is counted by p@1, q@1" in refused.stderr
    assert "told of a gap" in refused.stderr
    retired = CliRunner().invoke(app, ["retire", "away"], input="yes\n")

    assert retired.exit_code == 0
    assert broker.done == ["away@disk"], "the one that was shown"
    assert "SHB 'away@disk' is retired" in retired.stdout


def test_where_nobody_can_be_asked_nothing_is_done(gapless: Gapless, broker: Administered) -> None:
    assert "--yes" in gapless("retire", "away", status=2).stderr
    assert broker.done == []


def test_it_may_be_said_twice(gapless: Gapless, broker: Administered) -> None:
    assert gapless("retire", "away", "--yes").stdout == (
        "SHB 'away@disk' is retired: no log waits for it any more, of p@1, q@1 (confirmed by phb1)\n"
    )
    assert gapless("retire", "away").stdout == (
        "SHB 'away@disk' was retired already, and no log waits for it (confirmed by phb1)\n"
    )
    assert broker.done == ["away@disk", "away@disk"]


def test_for_programs(gapless: Gapless, broker: Administered) -> None:
    first, second = (json.loads(gapless("retire", "away", "--yes", "--json").stdout) for _ in range(2))

    confirmed = {"confirmed": ["phb1"], "missing": []}
    assert first == {"shb": "away@disk", "pubends": ["p@1", "q@1"], "retired_before": False} | confirmed
    assert second == {"shb": "away@disk", "pubends": [], "retired_before": True} | confirmed
    assert len(broker.done) == 2


def test_who_has_not_confirmed_is_named(gapless: Gapless, broker: Administered) -> None:
    broker.silent = True

    said = gapless("retire", "away", "--yes", status=1).stdout
    told = json.loads(gapless("retire", "away", "--yes", "--json", status=1).stdout)

    assert "SHB 'away@disk' is retired" in said
    assert "node phb2 has not confirmed it: it has not answered for 3 s. Repeat the command" in said
    assert told["missing"] == [{"node": "phb2", "missing": "it has not answered for 3 s"}]


def test_one_that_nobody_knows_is_an_error(gapless: Gapless, broker: Administered) -> None:
    result = gapless("retire", "typo", "--yes", status=2)

    assert "counts an SHB 'typo'; those that count: away@disk" in result.stderr
    assert broker.done == []


def test_a_real_broker_says_whom_it_counts_and_keeps_its_own(
    gapless: Gapless, url: str, write_events: Callable[..., Path]
) -> None:
    """The SHB of the broker that is asked runs while it answers."""
    gapless("publish", "t", write_events({"body": "a"}), "--url", url)
    [row] = json.loads(gapless("pubends", "--json", "--url", url).stdout)
    [own] = row["shbs"]

    unknown = gapless("retire", "nobody", "--yes", "--url", url, status=2)
    runs = gapless("retire", own.partition("@")[0], "--yes", "--url", url, status=2)
    refused = gapless("retire", own, "--yes", "--running", "--url", url, status=2)

    assert f"no pubend of node 'embedded' counts an SHB 'nobody'; those that count: {own}" in unknown.stderr
    assert f"SHB {own!r} runs: it has just answered" in runs.stderr
    assert f"SHB {own!r} runs in this very node" in refused.stderr
    assert json.loads(gapless("pubends", "--json", "--url", url).stdout)[0]["shbs"] == [own]


def test_one_that_runs_is_refused_whatever_else_is_said(gapless: Gapless, broker: Administered) -> None:
    broker.running = True

    refused = gapless("retire", "away", "--yes", status=2).stderr

    assert "SHB 'away@disk' runs" in refused
    assert "--running" in refused
    assert broker.done == []


def test_one_that_runs_is_given_up_where_that_is_said_too(gapless: Gapless, broker: Administered) -> None:
    broker.running = True

    assert "--yes" in gapless("retire", "away", "--running", status=2).stderr, "nobody was asked"
    assert "is counted by p@1, q@1 and runs" in gapless("retire", "away", "--running", status=2).stderr
    assert broker.done == []
    assert "is retired" in gapless("retire", "away", "--running", "--yes").stdout
    assert broker.done == ["away@disk"]
