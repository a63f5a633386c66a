from __future__ import annotations

from gapless_sim.administrator import retire
from unit.gapless_sim.worlds import Small


def test_an_shb_is_retired_by_the_message_that_the_command_sends() -> None:
    small = Small(router="hostile", shbs=2, together=False).begin()
    phb, shb = small.world.brokers["phb1"], small.world.brokers["shb1"]
    shb.kill()
    identity = f"shb1@{shb.storage_id}"

    retire(shb, at=phb)
    retire(phb, at=shb)
    small.world.run_until(small.world.now + 20_000_000)

    assert [retired for retired in small.ear.calls if retired.startswith("retired")] == [f"retired {identity}"]
    assert small.world.hits["administrator.retired"] == 1


def test_a_phb_that_is_away_is_asked_until_it_answers() -> None:
    small = Small(router="hostile", shbs=2, together=False).begin()
    phb = small.world.brokers["phb1"]
    phb.kill()

    retire(small.world.brokers["shb1"], at=phb)
    small.rest(10)

    assert small.world.hits["administrator.retired"] == 1


def test_a_broker_does_not_retire_itself() -> None:
    small = Small().begin()
    broker = small.world.brokers["node1"]

    retire(broker, at=broker)
    small.rest(2)

    assert small.world.hits["administrator.refused"] == 1
