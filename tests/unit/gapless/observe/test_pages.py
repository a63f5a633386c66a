"""The pages, without a node and without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any

import httpx
import pytest

from gapless.core.alarms import RaisedAlarm
from gapless.core.gauges import Family, Gauge
from gapless.core.principals import Certificate
from gapless.observe import pages as module
from gapless.observe.exposition import OPENMETRICS, PROMETHEUS
from gapless.observe.gate import DeniedError
from gapless.observe.health import Health, Phase
from gapless.observe.pages import Pages
from gapless.observe.snapshot import Snapshots

SERVING = Family("gapless_node_serving", "Whether it serves.")
LONG = Family("gapless_long", "Of many names.", ("name",))


class Gate:
    """Lets in who says `Bearer yes`."""

    async def pass_in(self, authorization: str, certificate: Certificate, address: str) -> None:
        if authorization != "Bearer yes":
            raise DeniedError(401 if not authorization else 403, "you may not")


class Rig:
    """The pages of a node, and a client of theirs."""

    def __init__(self, gate: Any = None) -> None:
        loop = asyncio.get_running_loop()
        self.rows: Iterable[Gauge] = [SERVING.gauge(1)]
        self.taken = 0
        self.health = Health(loop)
        self.health.become(Phase.SERVING)
        snapshots = Snapshots(loop, self.parts)
        self.pages = Pages("desk", self.health, snapshots, lambda: [SERVING.gauge(0)], gate)
        transport = httpx.ASGITransport(app=self.pages.app)
        self.client = httpx.AsyncClient(transport=transport, base_url="http://node")

    def parts(self) -> Iterator[Iterable[Gauge | RaisedAlarm]]:
        self.taken += 1
        yield self.rows


async def test_figures_in_both_formats() -> None:
    rig = Rig()

    text = await rig.client.get("/metrics")
    openmetrics = await rig.client.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})

    assert (text.headers["content-type"], openmetrics.headers["content-type"]) == (PROMETHEUS, OPENMETRICS)
    assert "gapless_node_serving 1\n" in text.text
    assert openmetrics.text.endswith("gapless_node_serving 1\n# EOF\n")
    assert rig.taken == 1


async def test_a_long_text_comes_whole() -> None:
    rig = Rig()
    rig.rows = [LONG.gauge(number, "x" * 100 + str(number)) for number in range(2000)]

    told = await rig.client.get("/metrics")

    assert len(told.content) == int(told.headers["content-length"]) > 3 * module.CHUNK
    assert told.text.endswith('1999"} 1999\n')


async def test_status_is_json() -> None:
    told = (await Rig().client.get("/status")).json()

    assert told["node"] == "desk"
    assert told["phase"] == "serving"
    assert told["gauges"] == [{"name": SERVING.name, "labels": {}, "value": 1, "help": SERVING.help}]
    assert told["alarms"] == []


async def test_a_node_that_does_not_serve_and_does_not_answer_is_told_to_be_so(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    monkeypatch.setattr(module, "ANSWER_WITHIN", 0.1)
    rig.health.become(Phase.RECOVERING, "its disk is full")
    rig.rows = _failing()

    assert "gapless_node_serving 0\n" in (await rig.client.get("/metrics")).text
    ready = await rig.client.get("/readyz")
    assert (ready.status_code, ready.text) == (503, "recovering: its disk is full\n")
    assert (await rig.client.get("/livez")).status_code == 200


def _failing() -> Iterator[Gauge]:
    yield SERVING.gauge(1)
    raise KeyError("no figures")


async def test_a_node_that_serves_and_cannot_tell_its_figures_says_why() -> None:
    rig = Rig()
    rig.rows = _failing()

    told = await rig.client.get("/metrics")

    assert told.status_code == 503
    assert "KeyError('no figures')" in told.text
    assert told.headers["retry-after"] == "1"


async def test_others_may_not_look_but_hear_whether_it_is_well() -> None:
    rig = Rig(Gate())
    rig.health.become(Phase.RECOVERING, "a secret reason")

    for path in ("/metrics", "/status"):
        unknown, forbidden = [await rig.client.get(path, headers=sent) for sent in ({}, {"authorization": "x"})]
        assert (unknown.status_code, unknown.headers["www-authenticate"]) == (401, "Bearer")
        assert (forbidden.status_code, forbidden.text) == (403, "you may not\n")
        assert (await rig.client.get(path, headers={"authorization": "Bearer yes"})).status_code == 200
    assert (await rig.client.get("/readyz")).text == "recovering\n"
    assert (await rig.client.get("/livez")).status_code == 200


async def test_more_than_can_be_answered_are_told_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WORKING_MAX", 5)
    rig = Rig()

    answers = await asyncio.gather(*(rig.client.get("/metrics") for _ in range(8)))

    assert sorted(answer.status_code for answer in answers) == [200] * 5 + [503] * 3
    assert (await rig.client.get("/livez")).status_code == 200
    assert (await rig.client.get("/metrics")).status_code == 200


async def test_other_pages_and_methods_say_what_there_is() -> None:
    rig = Rig()

    absent, posted = await rig.client.get("/metric"), await rig.client.post("/metrics", content=b"x")
    assert (absent.status_code, posted.status_code) == (404, 405)
    assert "/metrics" in absent.text
    assert posted.headers["allow"] == "GET, HEAD"
    assert "/readyz" in (await rig.client.get("/")).text
    assert (await rig.client.head("/metrics")).status_code == 200
