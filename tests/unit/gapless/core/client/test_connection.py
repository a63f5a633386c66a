"""The client's calls: each is answered, or fails by itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gapless.core.client import ClientCore, SubscribeOptions
from gapless.core.wire import messages as m
from gapless.errors import (
    ConfigurationError,
)
from unit.gapless.core.client.harness import World, columns


class Text(str):
    """What msgpack cannot encode."""

    __slots__ = ()


ASKING: list[Callable[[ClientCore, str], object]] = [
    lambda core, text: core.unsubscribe(text, "", 0),
    lambda core, text: core.unsubscribe("n", text, 0),
    lambda core, text: core.ask_status(text, 0),
    lambda core, text: core.retire(text, 0, only_look=False, running=False),
    lambda core, text: core.open_publisher(text, "i", None, 0),
    lambda core, text: core.open_publisher("p", "i", text, 0),
    lambda core, text: core.subscribe(SubscribeOptions((text,)), 0),
    lambda core, text: core.subscribe(SubscribeOptions(("t",), selector=text), 0),
    lambda core, text: core.subscribe(SubscribeOptions(("t",), positions={text: 1}), 0),
    lambda core, text: core.ranges.attach(SubscribeOptions(("t",), name=text), 0),
    lambda core, text: core.ranges.heads(m.Target(text), None, 0, 0),
    lambda core, text: core.ranges.settle(m.Target("n"), b"", {text: 1}, 0),
    lambda core, text: core.ranges.lease(m.Target("n"), text, m.InUse.ERROR, 0),
    lambda core, text: core.ranges.read(m.Target("n"), text, 0, 1, 0),
    lambda core, text: core.ranges.publish(text, 0, 0, "t", columns(b""), 0),
    lambda core, text: core.ranges.publish("p", 0, 0, text, columns(b""), 0),
]
"""Each call of the core that sends a text of an application's."""


@pytest.mark.parametrize("wrong", ["a\ud800", Text("a")], ids=["half a pair", "subclass"])
@pytest.mark.parametrize("ask", ASKING, ids=range(len(ASKING)))
def test_what_cannot_be_encoded_fails_its_own_call_and_no_session(
    ask: Callable[[ClientCore, str], object], wrong: str
) -> None:
    """Whatever checked it before, or forgot to. Once it waited for a link, no link could live."""
    world = World().start()
    session = world.broker.session

    with pytest.raises(ConfigurationError, match="cannot be sent"):
        ask(world.core, wrong)

    world.reconnect()
    assert world.core.connected
    assert world.broker.session != session
