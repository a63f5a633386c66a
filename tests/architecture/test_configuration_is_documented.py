"""docs/reference/configuration.md names every key that a node takes, and no other."""

from __future__ import annotations

import re
from dataclasses import fields

from pydantic import BaseModel

from documents import ROOT
from gapless.node.config import (
    AclSection,
    AuditSection,
    AuthSection,
    LimitSection,
    LimitsSection,
    ListenSection,
    NetworkSection,
    NodeSection,
    ObserveSection,
    RoutingSection,
    StorageSection,
)
from gapless.node.groups import GroupSection
from gapless.node.network import NetworkSettings, NetworkTls, NodeSettings
from gapless.security.certificate import CertificateOptions
from gapless.security.token import TokenOptions
from gapless_log.kafka.options import KafkaSection, SaslSection, TlsSection, TopicSection
from gapless_phb.config import PhbSection, PubendSection
from gapless_routing.delta.options import Options as DeltaOptions
from gapless_shb.config import ShbConfig
from gapless_storage.rocksdb import RocksdbOptions
from gapless_transport.tcp_options import TcpOptions

DIALING = {"tls", "ca", "server_name"}
"""Options of the TCP transport that only a client takes."""


def documented(heading: str) -> set[str]:
    """The keys in the table under a heading."""
    text = (ROOT / "docs/reference/configuration.md").read_text("utf-8")
    section = text.partition(f"{heading}\n")[2].split("\n#", 1)[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return {key.rpartition(".")[2] for cell in cells for key in re.findall(r"`([^`]+)`", cell)}


def keys(*models: type[BaseModel]) -> set[str]:
    """The keys that these sections take."""
    return {name for model in models for name in model.model_fields}


def test_every_key_is_documented_where_it_belongs() -> None:
    assert documented("## `[node]`") == keys(NodeSection)
    assert documented("## `[storage]`") == keys(StorageSection)
    assert documented("### `[storage]` with RocksDB") == keys(RocksdbOptions)
    assert documented("## `[[listen]]`") == keys(ListenSection)
    assert documented("### `[[listen]]` with TCP") == keys(TcpOptions) - DIALING
    assert documented("## `[[auth]]`") == keys(AuthSection)
    assert documented("### `[[auth]]` with `certificate`") == keys(CertificateOptions)
    assert documented("### `[[auth]]` with `token`") == keys(TokenOptions)
    assert documented("## `[acl]`") == keys(AclSection)
    assert documented("### `[acl]` with `rules`") == {"file"}
    assert documented("## `[routing]`") == keys(RoutingSection)
    assert documented("## `[network]`") == keys(NetworkSection)
    assert documented("### The network's file") == keys(NetworkSettings, NetworkTls, NodeSettings)
    assert documented("### `[routing]` with the router `delta`") == {option.name for option in fields(DeltaOptions)}
    assert documented("## `[[group]]`") == keys(GroupSection)
    assert documented("## `[observe]`") == keys(ObserveSection)
    assert documented("## `[audit]`") == keys(AuditSection)
    assert documented("## `[limits]`") == keys(LimitsSection)
    assert documented("## `[[limit]]`") == keys(LimitSection)
    assert documented("## `[phb]`") == keys(PhbSection) - {"pubends"}
    assert documented("### `[[phb.pubends]]`") == keys(PubendSection)
    assert documented("### `[[phb.kafka]]`") == keys(KafkaSection)
    assert documented("### `[[phb.kafka.topics]]`") == keys(TopicSection)
    assert documented("### `[phb.kafka.tls]`") == keys(TlsSection)
    assert documented("### `[phb.kafka.sasl]`") == keys(SaslSection)
    assert documented("## `[shb]`") == keys(ShbConfig)
