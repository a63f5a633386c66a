from __future__ import annotations

from unit.gapless_sim.worlds import Small


def test_no_router_does_wrong_any_more_when_faults_are_over() -> None:
    """Found by the simulator: where a router loses for ever, wants may remain unanswered for too long."""
    small = Small(router="hostile", phbs=1, shbs=1, together=False, hostility=(("lose", 1.0),)).begin()
    small.publish(3)
    before = small.producer.open
    small.world.in_liveness = True
    small.world.seam.begin_liveness()
    small.world.brokers["phb1"].kill()
    small.rest(60)
    small.publish(3)
    small.rest()

    assert not before
    assert small.told == [0, 1, 2]
