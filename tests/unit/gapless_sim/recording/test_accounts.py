"""The books of the model: what is in an interval, what is sound, who has to be remembered."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from gapless_sim.recording.accounts import Account, History, Logged, Share, add_tick
from unit.gapless_sim.worlds import row


def test_a_consumer_is_excused_where_it_was_told_of_gaps() -> None:
    account = Account(row(), "node1")
    one: Any = object()
    other: Any = object()
    account.excuse(one, "p@1", [(10, 20), (30, 40)])
    account.excuse(other, "p@1", account.excused_upto("p@1", 35))

    assert [tick for tick in (10, 11, 20, 21, 35, 36) if account.is_excused(one, "p@1", tick)] == [11, 20, 35, 36]
    assert [tick for tick in (10, 11, 20, 21, 35, 36) if account.is_excused(other, "p@1", tick)] == [11, 20, 35]
    assert not account.is_excused(one, "q@1", 15)


def test_what_matches_is_looked_at_above_a_tick_only() -> None:
    """Also what comes to light late, or twice."""
    history, account = History("p@1", "node1"), Account(row(), "node1")
    account.row.matches = lambda event: event.publication.properties["k"] == 1
    share = account.shares["p@1"] = Share(history)
    for tick, k in ((10, 1), (20, 1), (30, 2), (40, 1)):
        publication: Any = SimpleNamespace(topic="t", properties={"k": k})
        history.events[tick] = Logged("p@1", tick, publication)
        add_tick(history.ticks, tick)

    account.match_from(share, 10)
    assert share.ticks == [20, 40]
    share.ticks = [40]
    for tick in (10, 20, 30, 40, 20):
        account.note(history.events[tick])
    assert share.ticks == [20, 40]
    account.note(Logged("q@1", 50, history.events[40].publication))
    assert share.ticks == [20, 40], "another pubend's"
