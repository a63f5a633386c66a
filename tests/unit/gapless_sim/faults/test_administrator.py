from __future__ import annotations

from gapless_sim.faults.administrator import retire, shb_of
from unit.gapless_sim.worlds import Small


def test_an_shb_is_retired_by_the_message_that_the_command_sends() -> None:
    small = Small(router="hostile", shbs=2, together=False).begin()
    shb = small.world.brokers["shb1"]
    small.rest(1)
    shb.kill()
    identity = f"shb1@{shb.storage_id}"

    retire(shb, shb_of(shb))
    small.world.run_until(small.world.now + 2_000_000_000)

    assert [retired for retired in small.ear.calls if retired.startswith("retired")] == [f"retired {identity}"]
    assert small.world.hits["administrator.retired"] == 1


def test_a_phb_that_is_away_is_asked_until_it_answers() -> None:
    """By whatever node the administrator asks."""
    small = Small(router="hostile", phbs=2, shbs=2, together=False).begin()
    small.rest(1)
    away = small.world.brokers["phb2"]
    away.stop()
    away.given_up = True  # it does not come back by itself

    retire(small.world.brokers["shb1"], shb_of(small.world.brokers["shb1"]))
    small.rest(10)
    assert small.world.hits["administrator.not confirmed"] >= 1
    assert small.world.hits["administrator.retired"] == 0
    away.given_up = False
    away.boot()
    small.rest(10)

    assert small.world.hits["administrator.retired"] == 1


def test_a_broker_does_not_retire_itself() -> None:
    small = Small().begin()

    retire(small.world.brokers["node1"], shb_of(small.world.brokers["node1"]))
    small.rest(2)

    assert small.world.hits["administrator.refused"] == 1
