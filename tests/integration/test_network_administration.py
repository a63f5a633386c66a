"""Administration of a network of real processes: each node answers for all, and whoever does not answer is named."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

import gapless
from gapless.core.ports import Roaming
from gapless.core.server.inquiries import NO_ANSWER
from gapless_shb.core.state.places import home_of
from integration.broker_process import CLI, PATIENCE, bounded, clean_environment
from integration.networks_in_process import network_of
from integration.test_network_command import running, write_network

pytestmark = pytest.mark.timeout(120)


async def command(*arguments: str) -> tuple[int, Any]:
    """The exit status of a command, and the JSON that it has printed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *CLI,
        *arguments,
        "--json",
        env=clean_environment(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await bounded(process.communicate(), PATIENCE)
    assert process.returncode is not None
    assert output, errors.decode()
    return process.returncode, json.loads(output)


async def publish_and_consume(phb: str, shb: str) -> None:
    """Three events go from one node to a durable subscription at another."""
    async with gapless.connect(phb) as connection, connection.session() as session:
        publisher = session.publisher("flights", name="loader")
        async with gapless.connect(shb, client_id="desk") as other, other.session() as reading:
            async with reading.subscribe("flights", name="late", start="earliest") as subscription:
                await bounded(publisher.send_batch([gapless.Message(b"x")] * 3))
                for _ in range(3):
                    await bounded(anext(aiter(subscription)))
                await subscription.acknowledge()


async def test_every_node_answers_for_all_and_whoever_does_not_answer_is_named(tmp_path: Path) -> None:
    file = write_network(tmp_path, router="knowledge")

    async with running(file, "--stay") as network:
        await network.until_up()
        urls = {name: up["url"] for name, up in network.up.items()}
        await publish_and_consume(urls["phb"], urls["shb"])

        for url in urls.values():
            async with gapless.connect(url) as connection:
                [subscription] = subscriptions = await bounded(connection.subscriptions())
                [pubend] = pubends = await bounded(connection.pubends())
                status = await bounded(connection.status("shb"))
            assert (subscription.node, subscription.client_id, subscription.name) == ("shb", "desk", "late")
            assert (pubend.node, [shb.partition("@")[0] for shb in pubend.shbs]) == ("phb", ["shb"])
            assert subscriptions.missing == pubends.missing == ()
            assert status.value("gapless_shb_subscriptions") == 1

        doctor = "doctor", "--network", str(file), "--url", urls["ib"]
        status_, well = await command(*doctor)
        assert (status_, well["findings"]) == (0, [])
        assert [node["answers"] for node in well["nodes"]] == [True, True, True]

        async with gapless.connect(urls["ib"]) as connection:
            for name in ("shb", pubend.shbs[0]):
                with pytest.raises(gapless.ConfigurationError, match="--running"):
                    await bounded(connection.retire(name))

        os.kill(network.up["shb"]["pid"], signal.SIGKILL)
        assert await command("subscriptions", "--url", urls["ib"]) == (1, [{"node": "shb", "missing": NO_ANSWER}])
        async with gapless.connect(urls["ib"]) as connection:
            with pytest.raises(gapless.NoAnswerError, match="node 'shb'"):
                await bounded(connection.status("shb"))

        status_, ill = await command(*doctor)
        named, waiting = ill["findings"]
        assert status_ == 1
        assert named.startswith("node shb cannot be reached from ib")
        assert f"gapless retire {pubend.shbs[0]}" in waiting

        retired = {"shb": pubend.shbs[0], "missing": [], "confirmed": ["phb"]}
        status_, first = await command("retire", "shb", "--yes", "--url", urls["ib"])
        async with gapless.connect(urls["ib"]) as connection:
            second = await bounded(connection.retire("shb"))
            [after] = await bounded(connection.pubends())
        assert (status_, first) == (0, {**retired, "pubends": [pubend.pubend], "retired_before": False})
        assert (second.pubends, second.before, second.confirmed, second.missing) == ((), True, ("phb",), ())
        assert after.shbs == ()

        os.kill(network.up["phb"]["pid"], signal.SIGKILL)
        status_, worse = await command(*doctor)
        assert status_ == 1
        assert [finding.split(" from ")[0] for finding in worse["findings"]] == [
            "node phb cannot be reached",
            "node shb cannot be reached",
        ]
        async with gapless.connect(urls["ib"]) as connection:
            unconfirmed = await bounded(connection.retire(pubend.shbs[0]))
        assert unconfirmed.confirmed == ()
        assert unconfirmed.missing == (gapless.MissingAnswer("phb", NO_ANSWER),)


async def test_a_subscription_that_is_consumed_elsewhere_is_listed_once_at_its_home(tmp_path: Path) -> None:
    home = home_of("desk", Roaming(("shb", "shb2"), b""))
    other = "shb2" if home == "shb" else "shb"
    async with network_of(tmp_path, "phb", "ib", "shb", "shb2") as network:
        network.network["router"] = "knowledge"
        await network.start_all()
        for pair in (("phb", "ib"), ("ib", "shb"), ("shb", "shb2")):
            await network.until_linked(*pair)
        async with gapless.connect(network.nodes[other].url, client_id="desk") as connection:
            async with connection.session() as session, session.subscribe("flights", name="late"):
                for at in network.nodes.values():
                    async with gapless.connect(at.url) as administrator:
                        [listed] = found = await bounded(administrator.subscriptions())
                    assert (listed.node, listed.name, listed.connected, found.missing) == (home, "late", True, ())
