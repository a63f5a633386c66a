"""How an operator changes a broker's configuration: the file is edited, and holds from the next start on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gapless.node.config import make_config

if TYPE_CHECKING:
    from gapless_sim.world.broker import SimBroker
    from gapless_sim.world.topology import Topology


def add_pubend(broker: SimBroker) -> None:
    """One more pubend from the next start on: for publishers of one client, as far as they are new."""
    pubends = list(_phb_section(broker)["pubends"])
    number = len(pubends)
    new = {"name": f"{broker.name}-extra{number}", "publishers": [f"client{number}*"], "count": 1}
    _configure(broker, pubends=[{**pubends[-1], **new}, *pubends])


def change_policy(broker: SimBroker, max_retain_seconds: float | None) -> None:
    """Another bound of what is retained, from the next start on."""
    pubends = [{**pubend, "max_retain_seconds": max_retain_seconds} for pubend in _phb_section(broker)["pubends"]]
    for pubend in pubends:
        pubend.pop("release", None)
    _configure(broker, pubends=pubends)


def take_only(broker: SimBroker, topic: str) -> None:
    """The pubends of a broker's own take this topic and no other, from the next start on."""
    _configure(broker, pubends=[{**pubend, "topics": [topic]} for pubend in _phb_section(broker)["pubends"]])


def change_kafka_topic(broker: SimBroker, **changes: Any) -> None:
    """Other settings of the topic of Kafka's, from the next start on."""
    (section,) = _phb_section(broker)["model_kafka"]
    (topic,) = section["topics"]
    _configure(broker, model_kafka=[{**section, "topics": [{**topic, **changes}]}])


def change_map(broker: SimBroker, topology: Topology) -> None:
    """Another map of the network, from the next start on; a node that it does not have is not started again."""
    broker.topology = topology
    broker.removed = broker.name not in topology.cell_of
    broker.loaded = replace(broker.loaded, network=topology.map())


def _phb_section(broker: SimBroker) -> dict[str, Any]:
    return broker.loaded.config.role("phb")


def _configure(broker: SimBroker, **changes: Any) -> None:
    config = broker.loaded.config
    settings = {"node": config.node.model_dump(), "storage": config.storage.model_dump(), "listen": []}
    roles = {role: config.role(role) for role in config.node.roles}
    config = make_config({**settings, **roles, "phb": {**_phb_section(broker), **changes}})
    config = config.model_copy(update={"group": broker.loaded.config.group})
    broker.loaded = replace(broker.loaded, config=config)
