"""A total order while nobody can tell which of two volumes a node has: a world that seeds draw too seldom.

The node's volume is lost, and its clock was set back: the pubend in its place is older by its ticks.
"""

from __future__ import annotations

from dataclasses import replace

from gapless_sim.search.campaign import Plan
from gapless_sim.search.run import run_seed
from gapless_sim.world.options import Options
from sim.switches.catalogue import switch_named

ROUTER, SEED = "hostile", 90


def world() -> Options:
    """Two hosts whose volumes are lost and whose clocks jump; every subscription is in total order.

    No application lives beside those of `churn`: the others know of no disk that is lost.
    """
    drawn = Plan((ROUTER,), "churn").options(SEED, ROUTER)
    return replace(
        drawn,
        beside=(),
        together=False,
        ordered=1.0,
        group_silence_ms=50,
        additions=0.0,
        policy_changes=0.0,
        disk=replace(drawn.disk, phb_wipe=0.3, wipe=0.0, restore=0.0),
        clock=replace(drawn.clock, jumps=0.5, jump_ms=20_000),
    )


def test_one_pubend_of_two_volumes_is_merged_and_the_others_events_do_not_leave_beside_the_order() -> None:
    options, switch = world(), switch_named("two_stand_for_one_member")
    assert options.phbs * options.pubends > 1
    assert run_seed(options, steps_max=300_000).violation is None

    with switch.applied():
        found = run_seed(options, steps_max=300_000).violation

    assert found is not None
    assert found.oracle in switch.oracle, found
