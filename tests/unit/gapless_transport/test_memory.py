from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from gapless.errors import ConfigurationError
from gapless.spi import Transport
from gapless_testing.running import settle
from gapless_testing.transport.ends import End, Ends
from gapless_transport import memory
from gapless_transport.memory import MemoryNetwork


def transport(**options: object) -> Transport:
    opened: Transport = memory.open_transport(options=options)
    return opened


async def linked(network: MemoryNetwork, near_options: Mapping[str, object] = {}) -> tuple[End, End]:
    """A link from a transport `near` to a transport `far`."""
    near, ends = End(), Ends()
    listener = await transport(network=network, name="far").listen("", ends.accept)
    await transport(network=network, name="near", **near_options).dial(listener.address, near.accept)
    await listener.close()
    return near, ends.all[0]


def test_hook_open_transport_of_memory_takes_options() -> None:
    opened = memory.open_transport(options={"high_water": 1 << 20, "drop": 0.5, "seed": 3})

    assert (opened.scheme, opened.encrypts, opened.is_loopback("anywhere")) == ("memory", True, True)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"dorp": 0.5}, "no option 'dorp'"),
        ({"drop": 1.5}, "option 'drop'"),
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


async def test_a_cut_loses_what_is_sent_one_way() -> None:
    network = MemoryNetwork()
    near, far = await linked(network)
    network.cut("near", "far")
    near.link.send([b"lost"])
    far.link.send([b"arrives"])

    assert await near.frames(1) == [b"arrives"]
    await settle()
    assert (far.received, far.closed, near.link.pending) == ([], [], 0)
    network.heal()
    near.link.send([b"after"])
    assert await far.frames(1) == [b"after"]


async def test_a_partition_loses_both_ways_and_bars_the_way() -> None:
    network = MemoryNetwork()
    near, far = await linked(network)
    network.partition(["near", "other"], ["far"])
    near.link.send([b"lost"])
    far.link.send([b"lost"])
    await settle()

    assert (near.received, far.received) == ([], [])
    with pytest.raises(OSError, match="cannot be reached"):
        await linked(network)
    network.heal()
    await linked(network)


async def test_the_same_seed_repeats_what_links_meet() -> None:
    async def outcome(seed: int) -> list[list[bytes]]:
        network = MemoryNetwork()
        options = {"drop": 0.3, "seed": seed}
        ends = [await linked(network, options) for _ in range(3)]
        for near, _ in ends:
            near.link.send([bytes([index]) for index in range(50)])
        await settle()
        return [far.received for _, far in ends]

    assert await outcome(1) == await outcome(1)
    assert await outcome(1) != await outcome(2)
    first, second, third = await outcome(1)
    assert first != second != third != first


async def test_links_know_whom_they_talk_to() -> None:
    near, far = await linked(MemoryNetwork())

    assert near.link.peer == "memory-1"
    assert far.link.peer == "near"
    assert near.link.secure


async def test_links_outlive_what_nobody_holds() -> None:
    """A test that holds only the handlers still has its links."""
    near, far = await linked(MemoryNetwork())
    near.link.send([b"x"])
    await asyncio.sleep(0)

    assert await far.frames(1) == [b"x"]
