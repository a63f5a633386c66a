"""A durable subscription goes on at another SHB, event by event, while its home is down (protocol: roaming)."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from typing_extensions import Never, Self

import gapless
from gapless.core.ports import Roaming
from gapless_shb.core.state.places import home_of
from integration.broker_process import BrokerProcess, bounded, to_toml
from integration.networks_in_process import SECRET, free_addresses

ROLES = {"phb": ["phb"], "ib": [], "shb1": ["shb"], "shb2": ["shb"]}
LONG = 100.0
"""Seconds for what waits for the start of a process, on a machine that has little time for it."""


class Processes:
    """PHB – IB – two SHBs, each a process of its own."""

    def __init__(self, directory: Path, *, secret: str = SECRET) -> None:
        addresses = free_addresses(len(ROLES))
        nodes = [
            {"name": name, "roles": roles, "address": address, "cell": name}
            for (name, roles), address in zip(ROLES.items(), addresses, strict=True)
        ]
        network = {"name": "flights", "router": "knowledge"} | ({"secret": secret} if secret else {})
        text = to_toml({"network": network, "node": nodes})
        (directory / "network.toml").write_text(
            f'bundles = [["phb", "ib"], ["ib", "shb1"], ["ib", "shb2"]]\n{text}', "utf-8"
        )
        self.nodes = {
            name: BrokerProcess(directory / name, network={"file": "../network.toml", "node": name}) for name in ROLES
        }
        for node in self.nodes.values():
            node.patience = LONG

    async def __aenter__(self) -> Self:
        await asyncio.gather(*(node.start() for node in self.nodes.values()))
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(node.kill() for node in self.nodes.values()))

    def url(self, *names: str) -> str:
        """Brokers in the order in which a client tries them."""
        return "gapless://" + ",".join(self.nodes[name].url.partition("://")[2] for name in names)


class Database:
    """What a consumer keeps: its effects, and its token, in one transaction."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path)
        self._db.execute("CREATE TABLE effects (body TEXT)")
        self._db.execute("CREATE TABLE token (text TEXT)")

    def close(self) -> None:
        self._db.close()

    def commit(self, body: str, token: gapless.CheckpointToken) -> None:
        with self._db:
            self._db.execute("INSERT INTO effects VALUES (?)", (body,))
            self._db.execute("DELETE FROM token")
            self._db.execute("INSERT INTO token VALUES (?)", (str(token),))

    @property
    def effects(self) -> list[str]:
        return [body for (body,) in self._db.execute("SELECT body FROM effects ORDER BY rowid")]

    @property
    def token(self) -> gapless.CheckpointToken | None:
        row = self._db.execute("SELECT text FROM token").fetchone()
        return None if row is None else gapless.CheckpointToken.parse(row[0])


def home_and_other(client_id: str) -> tuple[str, str]:
    home = home_of(client_id, Roaming(("shb1", "shb2"), b""))
    return home, "shb1" if home == "shb2" else "shb2"


async def done_with(reader: gapless.Connection, name: str) -> None:
    """Waits until the home has all acknowledgements."""
    rows = [(name, -1)]
    while rows != [(name, 0)]:
        rows = [(row.name, row.lag_events) for row in await reader.subscriptions()]


@pytest.mark.timeout(400)
async def test_a_consumer_goes_on_elsewhere_while_its_home_is_dead_and_again_after_it_returned(tmp_path: Path) -> None:
    home, other = home_and_other("desk-7")
    with closing(Database(tmp_path / "effects.db")) as database:
        await go_on_elsewhere_and_again_at_home(tmp_path, home, other, database)


async def go_on_elsewhere_and_again_at_home(tmp_path: Path, home: str, other: str, database: Database) -> None:
    async with (
        Processes(tmp_path) as network,
        gapless.connect(network.url("phb"), client_id="loader") as writer,
        writer.session() as writing,
        # The other one comes first: it asks the home to create the subscription.
        gapless.connect(network.url(other, home), client_id="desk-7") as reader,
        reader.session() as reading,
    ):
        publisher = writing.publisher("t", name="loader")
        subscription = await bounded(reading.subscribe("t", name="late", selector="even"), LONG)
        assert subscription.token.home.startswith(f"{home}@")
        sent = 0

        async def publish(count: int) -> None:
            nonlocal sent
            for _ in range(count):
                await bounded(publisher.send(b"%d" % sent, properties={"even": sent % 2 == 0}), LONG)
                sent += 1

        async def consume(of: gapless.Subscription[gapless.Event, Never], upto: int) -> None:
            while len(database.effects) < (upto + 1) // 2:
                event = await bounded(anext(of), LONG)
                database.commit(event.body.decode(), of.token)
                await of.acknowledge()

        await publish(20)
        await consume(subscription, 20)
        await network.nodes[home].kill()
        await publish(20)
        await consume(subscription, 40)  # it never noticed
        await network.nodes[other].restart()
        await publish(20)
        await consume(subscription, 60)  # the other SHB knows it by its token alone
        await network.nodes[home].start()
        await publish(20)
        await consume(subscription, 80)
        await network.nodes[other].kill()
        await publish(20)
        await consume(subscription, 100)  # at home again, by itself
        await bounded(done_with(reader, "late"), LONG)

    assert database.effects == [str(number) for number in range(0, 100, 2)]


@pytest.mark.timeout(400)
async def test_without_a_secret_of_the_network_a_subscription_stays_at_its_home_and_that_is_said(
    tmp_path: Path,
) -> None:
    async with Processes(tmp_path, secret="") as network:
        async with (
            gapless.connect(network.url("shb1"), client_id="desk-7") as at_home,
            at_home.session() as session,
            session.subscribe("t", name="late") as subscription,
        ):
            token = subscription.token
        async with gapless.connect(network.url("shb2"), client_id="desk-7") as elsewhere:
            with pytest.raises(gapless.ConfigurationError, match=r"kept by shb1, .*no network with a secret"):
                await bounded(elsewhere.heads(token))


@pytest.mark.timeout(400)
async def test_the_blocking_client_fails_over_by_itself_too(tmp_path: Path) -> None:
    home, other = home_and_other("desk-8")
    received: list[bytes] = []
    loop = asyncio.get_running_loop()
    async with Processes(tmp_path) as network:

        def consume() -> None:
            with (
                gapless.sync.connect(network.url("phb"), client_id="loader") as writer,
                writer.session() as writing,
                gapless.sync.connect(network.url(home, other), client_id="desk-8") as reader,
                reader.session() as reading,
                reading.subscribe("t", name="all", timeout=LONG) as subscription,
            ):
                publisher = writing.publisher("t", name="loader")
                for number in range(20):
                    publisher.send(b"%d" % number, timeout=LONG)
                    if number == 10:
                        asyncio.run_coroutine_threadsafe(network.nodes[home].kill(), loop).result(LONG)
                    event = subscription.receive(timeout=LONG)
                    assert event is not None
                    received.append(event.body)

        await asyncio.to_thread(consume)

    assert received == [b"%d" % number for number in range(20)]
