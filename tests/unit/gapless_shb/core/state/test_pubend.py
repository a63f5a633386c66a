"""What an SHB keeps of a pubend: its description, places where no event stands, and why ticks of it are lost."""

from __future__ import annotations

import pytest

from gapless.core.network.facts import PubendMeta
from gapless.core.stream.ticks import MILLISECOND, STEP
from gapless.core.wire.messages import GapReason
from gapless_shb.core.pfs.index import Pfs
from gapless_shb.core.state.broker_state import BrokerState
from gapless_shb.core.state.pubend import ServedPubend
from gapless_shb.core.state.registry import Registry

P = "p@1"


def served(meta: PubendMeta) -> ServedPubend:
    pfs = Pfs(meta.pubend, meta.grain, 0, 0, imprecise=False)
    return ServedPubend(meta, 0, pfs, BrokerState("shb@1", Registry.recover(None, iter(()))))


def test_a_description_that_comes_late_is_not_taken() -> None:
    pubend = served(PubendMeta(P, "node", created=20, stable=10, volume="v1"))

    pubend.learn(PubendMeta(P, "node", created=30, stable=11, read_only=True, volume="v1"))
    pubend.learn(PubendMeta(P, "node", created=30, stable=10, volume="v1"))

    assert pubend.meta.read_only
    assert pubend.meta.created == 20, "where it began stays as it was heard first"


@pytest.mark.parametrize("residue", [0, 1, 5])
def test_a_position_never_stands_at_a_place_of_events_without_one(residue: int) -> None:
    pubend = served(PubendMeta(P, "node", residue=residue))
    place = 7 * STEP + residue

    assert pubend.client_position(place) == place + 1
    assert pubend.client_position(place + 1) == place + 1
    pubend.newest_event = place
    assert pubend.client_position(place) == place


def test_of_a_pubend_that_is_gone_everything_is_lost_with_its_volume() -> None:
    pubend = served(PubendMeta(P, "node", grain=MILLISECOND))

    assert pubend.why_lost(GapReason.RETIRED) is GapReason.RETIRED
    pubend.gone_upto = 10
    assert pubend.why_lost(GapReason.RETIRED) is GapReason.VOLUME_LOST
