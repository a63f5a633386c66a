"""Who can be expected to reach whom."""

from __future__ import annotations

from gapless_sim.oracles.reachability import Reach
from unit.gapless_sim.oracles.model_fixture import ModelFixture, P


def four(**options: object) -> tuple[ModelFixture, Reach]:
    fixture = ModelFixture(phbs=2, shbs=2, together=False, router="hostile", **options)
    return fixture, Reach(fixture.model)


def test_brokers_meet_unless_one_way_is_cut() -> None:
    fixture, reach = four()

    assert reach.brokers_meet("phb1", "shb1")
    fixture.world.network.cut("shb1", "phb1")
    assert not reach.brokers_meet("phb1", "shb1")
    assert reach.brokers_meet("phb2", "shb1")


def test_nobody_meets_one_whose_volume_was_refused() -> None:
    fixture, reach = four()
    fixture.world.brokers["phb1"].given_up = True

    assert not reach.serves("phb1")
    assert not reach.brokers_meet("phb1", "shb1")


def test_the_local_router_finds_nobody_but_itself() -> None:
    fixture = ModelFixture(phbs=2, shbs=2)
    reach = Reach(fixture.model)

    assert reach.brokers_meet("node1", "node1")
    assert not reach.brokers_meet("node1", "node2")


def test_a_pubend_is_heard_while_it_is_sound() -> None:
    fixture = ModelFixture()
    reach = Reach(fixture.model)
    fixture.opens()
    fixture.attach(fixture.row(), p=0)
    history, account = fixture.model.histories[P], fixture.model.accounts[1]

    assert reach.is_heard(history, account)
    history.gone_at = 0
    assert reach.is_heard(history, account), "what is heard is that it is gone"
    history.damaged = True
    assert not reach.is_heard(history, account)


def test_a_consumer_is_served_where_it_gets_through() -> None:
    fixture = ModelFixture()
    reach = Reach(fixture.model)
    consumer = fixture.attach(fixture.row(), p=0)

    assert reach.is_served(consumer)
    fixture.world.network.cut("node1", "client1")
    assert not reach.is_served(consumer)
