"""Who may look at a node over HTTP, by its configuration, and what that needs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gapless.core.gauges import Gauge, TellsInParts
from gapless.errors import ConfigurationError
from gapless.node import observing
from gapless.node.assembly import load_plugins
from gapless.node.config import ObserveSection, make_config
from gapless.node.node import Node
from gapless.node.observing import check_extra, judges_of
from gapless.security.anonymous import Anonymous
from gapless.security.certificate import CertificateAuthenticator, CertificateOptions
from gapless.spi import LendsSockets
from gapless_phb.core.broker import PublisherHostingBroker
from gapless_shb.core.broker import SubscriberHostingBroker

THERE: dict[str, Any] = {
    "anonymous": Anonymous(),
    "certificate": CertificateAuthenticator(CertificateOptions()),
}


def test_on_loopback_everybody_may_look_unless_somebody_judges() -> None:
    assert judges_of(ObserveSection(), THERE, is_local=True) is None
    assert list(judges_of(ObserveSection(auth=("certificate",)), THERE, is_local=True) or ()) == ["certificate"]


def test_beyond_loopback_all_judge_who_can() -> None:
    assert list(judges_of(ObserveSection(), THERE, is_local=False) or ()) == list(THERE)
    with pytest.raises(ConfigurationError, match="nobody could look"):
        judges_of(ObserveSection(), {}, is_local=False)


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observing, "find_spec", lambda name: None if name == "uvicorn" else name)

    with pytest.raises(ConfigurationError, match=r"needs uvicorn: pip install 'gapless\[observe\]'"):
        check_extra()


def test_the_transport_lends_and_tells_of_its_certificates() -> None:
    loaded = load_plugins(make_config({"storage": {"plugin": "memory", "path": ""}, "observe": {}}))

    assert loaded.observer in loaded.transports
    assert isinstance(loaded.observer, LendsSockets)
    assert load_plugins(make_config({"storage": {"plugin": "memory", "path": ""}})).observer is None


def test_our_roles_tell_their_figures_in_parts() -> None:
    assert issubclass(PublisherHostingBroker, TellsInParts)
    assert issubclass(SubscriberHostingBroker, TellsInParts)


async def test_the_parts_are_the_whole() -> None:
    pubends = [{"name": "p", "count": 3, "topics": ["#"]}]
    settings = {
        "storage": {"plugin": "memory", "path": ""},
        "listen": [{"address": "127.0.0.1:0"}],
        "phb": {"pubends": pubends},
    }
    node = await Node.start(make_config(settings))
    try:
        await asyncio.sleep(0.1)
        parts = [list(part) for part in node.parts()]
        names = {gauge.name for part in parts for gauge in part if isinstance(gauge, Gauge)}

        assert names == {gauge.name for gauge in node.gauges()}
        assert (
            sum(1 for part in parts if any("pubend" in dict(row.labels) for row in part if isinstance(row, Gauge))) > 6
        )
    finally:
        await node.stop()
