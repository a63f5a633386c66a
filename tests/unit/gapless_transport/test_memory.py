from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from gapless.errors import ConfigurationError
from gapless.spi import Transport
from gapless_testing.transport.ends import End, Ends
from gapless_transport import memory
from gapless_transport.memory import MemoryNetwork


def transport(**options: object) -> Transport:
    opened: Transport = memory.open_transport(options=options)
    return opened


async def linked(network: MemoryNetwork) -> tuple[End, End]:
    """A link between two transports of a network."""
    near, ends = End(), Ends()
    listener = await transport(network=network).listen("", ends.accept)
    await transport(network=network).dial(listener.address, near.accept)
    await listener.close()
    return near, ends.all[0]


def test_hook_open_transport_of_memory_takes_options() -> None:
    opened = memory.open_transport(options={"high_water": 1 << 20})

    assert (opened.scheme, opened.encrypts, opened.is_loopback("anywhere")) == ("memory", True, True)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"high_watr": 5}, "no option 'high_watr'"),
        ({"high_water": -1}, "option 'high_water'"),
        ({"network": "lan"}, "option 'network'"),
    ],
)
def test_wrong_options_are_named(options: Mapping[str, object], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=f"transport 'memory': .*{complaint}"):
        memory.open_transport(options=options)


async def test_transports_of_one_network_reach_each_other() -> None:
    near, far = await linked(MemoryNetwork())
    near.link.send([b"hello"])

    assert await far.frames(1) == [b"hello"]


async def test_a_transport_without_a_network_is_alone() -> None:
    listener = await transport().listen("here", Ends().accept)

    with pytest.raises(ConnectionRefusedError, match="nobody listens at 'here'"):
        await transport().dial(listener.address, End().accept)


async def test_an_empty_address_becomes_a_new_one() -> None:
    network = MemoryNetwork()
    one = transport(network=network)
    taken = [(await one.listen(address, Ends().accept)).address for address in ("memory-2", "", "", "")]

    assert len(set(taken)) == 4
    assert list(network.listeners) == taken


async def test_links_know_whom_they_talk_to() -> None:
    near, far = await linked(MemoryNetwork())

    assert near.link.peer == "memory-1"
    assert far.link.peer == "memory-1#1/dialer"
    assert near.link.secure


async def test_links_outlive_what_nobody_holds() -> None:
    """A test that holds only the handlers still has its links."""
    near, far = await linked(MemoryNetwork())
    near.link.send([b"x"])
    await asyncio.sleep(0)

    assert await far.frames(1) == [b"x"]
