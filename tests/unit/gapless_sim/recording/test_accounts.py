"""The books of the model: what is in an interval, what is sound, who has to be remembered."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gapless_sim.recording.accounts import Account, History, Logged, Share, add_tick
from unit.gapless_sim.worlds import row


@pytest.mark.parametrize(
    ("lo", "hi", "inside"), [(0, 30, [10, 20, 30]), (10, 30, [20, 30]), (10, 19, []), (29, 30, [30]), (30, 99, [])]
)
def test_an_interval_has_its_end_and_not_its_beginning(lo: int, hi: int, inside: list[int]) -> None:
    share = Share(History("p@1", "node1"), ticks=[10, 20, 30])

    assert share.between(lo, hi) == inside
    assert share.first_between(lo, hi) == (inside[0] if inside else None)


def test_nothing_is_the_newest_of_nothing() -> None:
    history = History("p@1", "node1")

    assert history.newest == 0
    assert Share(history).newest == 0


@pytest.mark.parametrize(("fate", "value"), [("gone_at", 7), ("damaged", True), ("forked", True)])
def test_a_history_is_sound_while_its_disk_is(fate: str, value: object) -> None:
    history = History("p@1", "node1")
    assert history.sound

    setattr(history, fate, value)
    assert not history.sound


@pytest.mark.parametrize("fate", ["removed", "damaged"])
def test_a_subscription_exists_from_its_first_answer_on(fate: str) -> None:
    account = Account(row(), "node1")
    answers = [account.exists]
    account.attached_at = 0
    answers.append(account.exists)
    setattr(account, fate, True)

    assert [*answers, account.exists] == [False, True, False]


def test_one_without_a_name_is_not_durable() -> None:
    assert Account(row(), "node1").durable
    assert not Account(row(name=None), "node1").durable


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


def test_a_tick_gets_its_place_once() -> None:
    ticks: list[int] = []
    for tick in (20, 10, 30, 20, 10, 25):
        add_tick(ticks, tick)

    assert ticks == [10, 20, 25, 30]
