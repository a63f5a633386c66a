"""A node is alive while its loop turns, or has not begun to serve; it is ready when it serves and lacks nothing."""

from __future__ import annotations

import asyncio

import pytest

from gapless.observe.health import TURNS_WITHIN, Health, Phase


class Rig:
    """A node's health, under a clock of the test's."""

    def __init__(self) -> None:
        self.now = 0.0
        self.lacks = ""
        self.health = Health(asyncio.get_running_loop(), lambda: self.lacks, lambda: self.now)


@pytest.fixture
async def rig() -> Rig:
    return Rig()


async def turn() -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_it_begins_alive_and_not_ready(rig: Rig) -> None:
    assert rig.health.stands() == ""
    assert rig.health.unready() == "starting"


async def test_a_loop_that_stands_while_it_recovers_is_no_reason_to_end_it(rig: Rig) -> None:
    rig.health.become(Phase.RECOVERING, "the disk is gone")
    rig.health.look()
    rig.now += 60

    assert rig.health.stands() == ""
    assert rig.health.unready() == "recovering: the disk is gone"


async def test_a_loop_that_stands_while_it_serves_is_one(rig: Rig) -> None:
    rig.health.become(Phase.SERVING)
    rig.health.look()
    rig.now += TURNS_WITHIN
    assert rig.health.stands() == ""
    rig.now += 1

    assert rig.health.stands() == "the broker's loop has not turned for 6 s"
    assert rig.health.unready() == rig.health.stands()
    await turn()
    assert rig.health.stands() == rig.health.unready() == ""


async def test_a_loop_that_turns_is_asked_again(rig: Rig) -> None:
    rig.health.become(Phase.SERVING)
    for _ in range(10):
        rig.health.look()
        rig.now += 1
        await turn()
        assert rig.health.stands() == ""


async def test_what_it_lacks_makes_it_unready_and_does_not_end_it(rig: Rig) -> None:
    rig.health.become(Phase.SERVING)
    rig.lacks = "it has no link"
    rig.health.look()
    await turn()

    assert rig.health.unready() == "it has no link"
    assert rig.health.stands() == ""


async def test_what_it_lacks_counts_from_the_first_moment(rig: Rig) -> None:
    rig.lacks = "it has no link"
    rig.health.become(Phase.SERVING)

    assert rig.health.unready() == "it has no link"


@pytest.mark.parametrize("phase", [Phase.SHUT_OUT, Phase.STOPPING])
async def test_what_no_new_start_would_mend_stays_alive(rig: Rig, phase: Phase) -> None:
    rig.health.become(phase, "why")
    rig.health.look()
    rig.now += 60

    assert rig.health.stands() == ""
    assert rig.health.unready() == f"{phase.value}: why"


def test_a_loop_that_is_over_harms_nobody() -> None:
    loop = asyncio.new_event_loop()
    loop.close()

    Health(loop).look()
