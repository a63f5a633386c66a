"""The SHB core as a whole: what a client consumes, whatever becomes of it and of the broker (I2 to I5, I10)."""

from __future__ import annotations

import pytest

from gapless.core.ports import ClientSession, Tell
from gapless.core.principals import NOBODY
from gapless.core.stream.ticks import STEP
from gapless.core.wire import messages as m
from gapless_shb.core.state.broker_state import CatchUp
from unit.gapless_shb.core.harness import CACHED, FORGETFUL, Client, World
from unit.gapless_shb.core.live.test_constream import push, world_with


@pytest.mark.parametrize("catch_up", [CACHED, FORGETFUL])
@pytest.mark.parametrize("selector", ["", "w = 1", "w = 9"])
@pytest.mark.parametrize("synced", [True, False])
def test_every_client_consumes_exactly_what_it_is_owed(catch_up: CatchUp, selector: str, synced: bool) -> None:
    """It is live, away and behind, and its broker loses power; nothing is released early, so nothing is lost."""
    world, client, _ = world_with(selector, catch_up)
    push(world, 5)
    world.consume(client)
    world.detach(client)
    push(world, 9, raw=False)
    if synced:
        world.pause(300)
        world.sync()
    world.crash()
    world.publish()

    world.rest()

    world.check()
    assert client.gaps == []
    assert client.consumed == [tick for tick, properties, _ in world.log if client.matches(properties)]


def test_early_release_shows_as_gaps_and_nothing_else_does() -> None:
    """With `max_retain`, whoever was away too long is told exactly what may be missing (I5)."""
    world, client, _ = world_with("", FORGETFUL, retain=0)
    push(world, 3)
    world.detach(client)
    push(world, 5)
    world.pause(300)
    world.sync()
    world.release()
    lost = world.lost
    push(world, 2)

    world.rest()

    world.check()
    assert lost >= world.log[7][0]
    assert [hi for _, hi in client.gaps][-1:] == [lost]
    assert client.consumed[-2:] == [tick for tick, _, _ in world.log[-2:]]
    assert all(lo % STEP == hi % STEP == 0 for lo, hi in client.gaps)


def test_clients_do_not_see_each_other() -> None:
    world, first, _ = world_with("w = 1")
    second = Client("t", "w > 1")
    world.clients.append(second)
    world.attach(second, None)
    world.sync()

    push(world, 20)
    world.rest()

    world.check()
    assert first.consumed
    assert second.consumed
    assert not {*first.consumed} & {*second.consumed}


def test_an_shb_answers_that_it_runs_where_somebody_looks_for_it_before_retiring_it() -> None:
    """By its id and by the name of its node; another SHB of that name is not meant."""
    world = World()
    own = world.shb
    node = own.partition("@")[0]

    said = []
    for name in (own, node, f"{node}@another-disk"):
        world.said.clear()
        world.feed(m.Retire(5, name, only_look=True), ClientSession(1, "c", "i1", NOBODY))
        said += [effect.message for effect in world.sent(Tell)]

    assert said[:2] == [m.Retired(5, own, [], False, running=True)] * 2
    refused = said[2]
    assert isinstance(refused, m.RequestFailed)
    assert refused.code is m.Code.NOT_FOUND
    assert own in refused.reason
