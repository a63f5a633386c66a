"""A client leaves an SHB that has lost its network, although it can still be reached itself."""

from __future__ import annotations

from pathlib import Path

import pytest

import gapless
from gapless.core.ports import Roaming
from gapless_shb.core.state.places import home_of
from gapless_testing.fault_proxy import FaultProxy
from integration.broker_process import bounded
from integration.networks_in_process import network_of

LONG = 60.0


@pytest.mark.timeout(200)
@pytest.mark.parametrize("order", ["pubend", pytest.param("total", marks=pytest.mark.long)])
async def test_a_consumer_goes_on_at_another_shb_when_its_own_is_cut_off(tmp_path: Path, order: str) -> None:
    """In the middle: the PHB. The SHB at which the consumer is reaches it by a way of its own, which is cut."""
    home = home_of("desk-7", Roaming(("shb", "shb2"), b""))
    other = "shb" if home == "shb2" else "shb2"
    async with network_of(tmp_path, "shb", "phb", "shb2") as network, FaultProxy() as way:
        network.network["router"] = "knowledge"
        network.groups = [{"name": "book", "members": ["phb/a", "phb/b"], "silence_seconds": 0.01}]
        pubends = [{"name": name, "topics": [f"{name}.#"]} for name in ("a", "b")]
        phb = await network.start("phb", phb={"pubends": pubends})
        way.target = phb.nodes_address
        straight = network.proxies
        network.proxies = {**straight, "phb": way}
        path = network.write("as_the_home_sees_it.toml")
        network.proxies = straight
        await network.start(home, path)
        await network.start(other)
        await network.until_linked("phb", home)
        await network.until_linked("phb", other)
        url = "gapless://" + ",".join(network.nodes[name].address for name in (home, other))

        async with (
            gapless.connect(f"gapless://{phb.address}", client_id="loader") as writer,
            writer.session() as writing,
            gapless.connect(url, client_id="desk-7") as reader,
            reader.session() as reading,
            reading.subscribe("a.#", "b.#", name="all", order=order) as subscription,  # type: ignore[call-overload]
        ):
            publishers = [writing.publisher(topic) for topic in ("a.x", "b.x")]
            sent: list[bytes] = []

            async def publish(count: int) -> None:
                for _ in range(count):
                    for publisher in publishers:
                        sent.append(b"%d" % len(sent))
                        await bounded(publisher.send(sent[-1]), LONG)

            received: list[bytes] = []

            async def consume() -> None:
                while len(received) < len(sent):
                    received.append((await bounded(anext(subscription), LONG)).body)

            await publish(3)
            await consume()
            network.proxies[home].target = way.target = ""
            network.proxies[home].cut()
            way.cut()
            await network.until_linked("phb", home, linked=False)
            await publish(3)
            await consume()

            assert sorted(received, key=int) == sent
            if order == "total":
                assert received == sent
