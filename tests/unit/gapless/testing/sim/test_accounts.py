"""The books of the model: what is in an interval, what is sound, who has to be remembered."""

from __future__ import annotations

import pytest

from gapless.testing.sim.accounts import Account, History, Share
from unit.gapless.testing.sim.worlds import row


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


@pytest.mark.parametrize("fate", ["gone", "damaged"])
def test_a_history_is_sound_while_its_disk_is(fate: str) -> None:
    history = History("p@1", "node1")
    assert history.sound

    setattr(history, fate, True)
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
