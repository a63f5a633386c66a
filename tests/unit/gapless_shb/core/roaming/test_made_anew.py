"""A subscription that a token makes anew: the token is let in until something newer is acknowledged (protocol: tokens).

Its former home has lost its disk, or somebody has removed it. The application has stored the token and nothing since,
and it may crash as often as it likes before it stores the next one.
"""

from __future__ import annotations

import pytest

from gapless.core.ports import ClientSession
from gapless.core.wire import messages as m
from unit.gapless_shb.core.roaming.harness import Node, Pair, Token, begins


def node_of(pair: Pair, where: str) -> Node:
    return pair.home if where == "home" else pair.other


def let_in(pair: Pair, node: Node, token: Token) -> ClientSession:
    """A process comes with the token. Returns its session."""
    session = pair.come(node, f"process {pair.sessions}", token=token, in_use=m.InUse.TAKEOVER)
    assert begins(pair.attached(node, session)) == token.tick
    return session


def made_anew() -> tuple[Pair, Token, list[int]]:
    """A subscription that was removed, and nothing has been published since: there is a token of it."""
    pair = Pair()
    first = pair.come(pair.home, "first", wait=500)
    (last,) = pair.publish(1)
    token = Token(pair.attached(pair.home, first), last)
    pair.leave(pair.home, first)
    pair.home.feed(m.Unsubscribe(1000, "s", "c"), pair.session("operator"))
    pair.settle(3000)
    return pair, token, []


@pytest.mark.parametrize("where", ["home", "other"])
@pytest.mark.parametrize("restarts", ["nobody", "home", "other"])
def test_the_token_is_let_in_again_as_long_as_nothing_newer_is_acknowledged(where: str, restarts: str) -> None:
    pair, token, events = made_anew()
    for _ in range(3):
        node = node_of(pair, where)

        session = let_in(pair, node, token)
        pair.settle(6000)  # silence, which it passes
        events += pair.publish(1)

        assert pair.ticks(node, session) == events
        if restarts != "nobody":
            node_of(pair, restarts).crash()
            pair.settle(1000)
        if node_of(pair, restarts) is not node or restarts == "nobody":
            pair.leave(node, session)
        pair.settle(6000)


def test_it_moves_between_both_with_the_token() -> None:
    pair, token, events = made_anew()

    for where in ("other", "home", "other", "home"):
        node = node_of(pair, where)
        session = let_in(pair, node, token)
        pair.settle(6000)
        events += pair.publish(1)
        assert pair.ticks(node, session) == events
        pair.leave(node, session)
        pair.settle(6000)


@pytest.mark.parametrize("where", ["home", "other"])
def test_silence_that_its_client_acknowledges_by_itself_is_nothing_newer(where: str) -> None:
    """Found by the simulator (2160, roaming): the application had stored nothing since, and was refused for good."""
    pair, token, events = made_anew()
    node = node_of(pair, where)
    session = let_in(pair, node, token)
    pair.settle(6000)
    (*_, silence) = (each for each in pair.got(node, session, m.DeliverSilence) if isinstance(each, m.DeliverSilence))
    assert silence.upto > token.tick
    pair.acknowledge(node, session, silence.upto, event=token.tick)
    pair.leave(node, session)
    pair.settle(6000)

    session = let_in(pair, node, token)
    events += pair.publish(1)
    assert pair.ticks(node, session) == events


@pytest.mark.parametrize("where", ["home", "other"])
def test_once_something_newer_is_acknowledged_it_is_of_an_earlier_subscription(where: str) -> None:
    pair, token, events = made_anew()
    node = node_of(pair, where)
    session = let_in(pair, node, token)
    events += pair.publish(2)
    pair.acknowledge(node, session, events[0])
    pair.leave(node, session)
    pair.settle(6000)

    again = pair.come(node, "again", token=token)

    refused = pair.refused(node, again)
    assert refused.code is m.Code.TOKEN_MISMATCH


@pytest.mark.parametrize("where", ["home", "other"])
def test_where_it_passed_silence_it_still_lets_the_log_go(where: str) -> None:
    """What is passed is no acknowledgement, and holds nothing back all the same."""
    pair, token, events = made_anew()
    node = node_of(pair, where)
    session = let_in(pair, node, token)
    events += pair.publish(2)

    pair.acknowledge(node, session, events[1])
    pair.settle(12_000)

    assert pair.release() > events[1]
