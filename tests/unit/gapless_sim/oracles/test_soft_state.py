"""R1, V2 and V3 where there are nodes without roles."""

from __future__ import annotations

from typing import Any

from gapless.core.network.facts import Enrol, Opened, PubendMeta, Want
from gapless.core.ports import Put, Set
from gapless.errors import VolumeForeignError
from gapless_sim.oracles.soft_state import R1Soft, V2LivePath, V3Retired
from gapless_sim.recording.frame_tap import Hop
from gapless_sim.world.network import BrokerLink
from gapless_sim.world.options import SECOND
from unit.gapless_sim.oracles.model_fixture import ModelFixture, P, violates

CELLS = "phb1:phb ib1<phb1 shb1:shb<ib1"
FAR = "shb1@disk"


def tree(*judges: Any, **options: Any) -> ModelFixture:
    fixture = ModelFixture(*judges, router="knowledge", topology="tree", cells=CELLS, **options)
    fixture.opens(broker="phb1")
    fixture.model.shb_of["shb1"], fixture.model.broker_of[FAR] = FAR, "shb1"
    fixture.world.brokers["shb1"].storage_id = "disk"
    return fixture


# ------------------------------------------------------------------------------------------------ R1


def test_a_node_without_roles_logs_nothing() -> None:
    fixture = tree(R1Soft)
    brokers = fixture.world.brokers
    record = Put("log/p", 1, b"record")

    fixture.observe.written(brokers["phb1"], [record])
    fixture.observe.written(brokers["ib1"], [Set("router", b"key", b"value")])
    with violates("R1"):
        fixture.observe.written(brokers["ib1"], [record])


def test_a_node_without_roles_starts_with_any_volume() -> None:
    fixture = tree(R1Soft)
    error = VolumeForeignError("it is of somebody else")

    fixture.observe.refused(fixture.world.brokers["shb1"], error)
    with violates("R1"):
        fixture.observe.refused(fixture.world.brokers["ib1"], error)


# ------------------------------------------------------------------------------------------------ V2


def asks(fixture: ModelFixture, lo: int) -> None:
    watcher(fixture, V2LivePath).informed("shb1", 0, Want(P, ((lo, lo + 5),), None, FAR, again=False))
    fixture.world.now += SECOND


def watcher(fixture: ModelFixture, kind: type) -> Any:
    return fixture.oracles[kind]


def in_liveness() -> ModelFixture:
    fixture = tree(V2LivePath)
    fixture.world.now = SECOND
    fixture.observe.liveness_begins()
    return fixture


def test_who_asks_its_router_for_the_same_again_and_again_has_no_answer() -> None:
    fixture = in_liveness()
    asks(fixture, 5)
    asks(fixture, 5)

    assert not fixture.oracles[V2LivePath].settled()
    assert "asks p@1 for what is above 5" in fixture.oracles[V2LivePath].unsettled()


# ------------------------------------------------------------------------------------------------ V3


def retired(**options: Any) -> ModelFixture:
    fixture = tree(V3Retired, **options)
    fixture.world.now = 10 * SECOND
    heard_of(fixture, "shb1")
    fixture.world.now = 20 * SECOND
    fixture.observe.retired(FAR)
    gives_up(fixture)
    return fixture


def gives_up(fixture: ModelFixture) -> None:
    watcher(fixture, V3Retired).informed("phb1", 0, Opened(PubendMeta(P, "phb1"), {}))


def heard_of(fixture: ModelFixture, node: str) -> None:
    brokers = fixture.world.brokers
    hop = Hop(BrokerLink(brokers[node], brokers["ib1" if node != "ib1" else "phb1"]), 1)
    watcher(fixture, V3Retired).frame_arrived(hop, Want(P, ((1, 2),), None, FAR, again=False), ())


def counts(fixture: ModelFixture, shb: str = FAR) -> None:
    fixture.world.now += 10 * SECOND
    watcher(fixture, V3Retired).said("phb1", 0, Enrol(P, shb))


def test_who_is_retired_and_silent_is_not_counted_again() -> None:
    fixture = retired()
    heard_of(fixture, "ib1")

    with violates("V3"):
        counts(fixture)


def test_who_was_only_slow_is_counted_again_and_so_is_anybody_else() -> None:
    fixture = retired()
    counts(fixture, "shb2@disk")
    heard_of(fixture, "shb1")

    counts(fixture)


def test_who_was_silent_before_the_pubend_gave_it_up_is_not_counted_again_however_soon() -> None:
    fixture = tree(V3Retired)
    heard_of(fixture, "shb1")
    fixture.world.now = 20 * SECOND
    fixture.observe.retired(FAR)
    counts(fixture)  # the PHB may be cut off from whoever retires: then it does not know
    gives_up(fixture)

    with violates("V3"):
        watcher(fixture, V3Retired).said("phb1", 0, Enrol(P, FAR))
