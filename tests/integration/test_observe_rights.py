"""Beyond loopback, figures are for those who may observe: by TLS, bearer token or certificate, and rules."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

import gapless
from certificates import Directory, certificate_for
from gapless.node.node import Node
from integration.broker_process import bounded
from integration.nodes_in_process import running_node

RULES = [{"who": ["prometheus", "grafana"], "actions": ["observe"], "topics": "#", "names": ["*"], "client_ids": "*"}]


class Office:
    """A node with tokens, certificates and rules, and whoever asks it over HTTPS."""

    def __init__(self, directory: Directory) -> None:
        self.directory = directory
        self.key = ec.generate_private_key(ec.SECP256R1())
        jwk = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(self.key.public_key()))
        jwks = directory.path / "jwks.json"
        jwks.write_text(json.dumps({"keys": [jwk]}), "utf-8")
        token = {"plugin": "token", "jwks": str(jwks), "issuer": "i", "audience": "a", "algorithms": ["ES256"]}
        files = {name: str(path) for name, path in directory.listening.items()}
        self.sections: dict[str, Any] = {
            "auth": [{"plugin": "scram"}, {"plugin": "certificate"}, token],
            "listen": [{"address": "127.0.0.1:0", "auth": ["scram"]}],
            "allow": RULES,
            "observe": {"address": "0.0.0.0:0", "auth": ["certificate", "token"], **files},
        }
        self.node: Node
        self._clients: list[httpx.AsyncClient] = []

    def token(self, name: str, seconds: float = 60.0) -> dict[str, str]:
        claims = {"iss": "i", "aud": "a", "sub": name, "exp": time.time_ns() / 1e9 + seconds}
        return {"authorization": f"Bearer {jwt.encode(claims, self.key, 'ES256')}"}

    def client(self, name: str = "") -> httpx.AsyncClient:
        """Somebody with a certificate of that name, or without one."""
        context = ssl.create_default_context(cafile=self.directory.ca)
        if name:
            own = self.directory.path / f"{name}.pem"
            own.write_bytes(certificate_for(self.directory.authority, name, "tools"))
            context.load_cert_chain(own)
        port = self.node.observe_url.rpartition(":")[2]
        client = httpx.AsyncClient(verify=context, base_url=f"https://127.0.0.1:{port}")
        self._clients.append(client)
        return client

    async def shown(self) -> bytes:
        """The certificate that whoever comes now is shown."""
        context = ssl.create_default_context(cafile=self.directory.ca)
        async with httpx.AsyncClient(verify=context) as client:
            port = self.node.observe_url.rpartition(":")[2]
            answer = await client.get(f"https://127.0.0.1:{port}/livez")
            stream: Any = answer.extensions["network_stream"]
            shown: bytes = stream.get_extra_info("ssl_object").getpeercert(binary_form=True)
            return shown

    async def close(self) -> None:
        for client in self._clients:
            await client.aclose()


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[Office]:
    (tmp_path / "files").mkdir()
    office = Office(Directory(tmp_path / "files"))
    async with running_node(**office.sections) as office.node:
        yield office
        await office.close()


async def test_who_may_observe_sees_and_nobody_else(office: Office, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    anybody = office.client()
    certified, stranger = office.client("prometheus"), office.client("eve")
    for path in ("/metrics", "/status"):
        answers = {
            "nobody": await anybody.get(path),
            "a token": await anybody.get(path, headers=office.token("grafana")),
            "a certificate": await certified.get(path),
            "a token without the right": await anybody.get(path, headers=office.token("eve")),
            "a certificate without the right": await stranger.get(path),
            "an expired token": await anybody.get(path, headers=office.token("grafana", -1000)),
            "no token": await anybody.get(path, headers={"authorization": "Bearer x"}),
            "a password": await anybody.get(path, auth=("ada", "secret")),
        }
        assert {who: answer.status_code for who, answer in answers.items()} == {
            "nobody": 401,
            "a token": 200,
            "a certificate": 200,
            "a token without the right": 403,
            "a certificate without the right": 403,
            "an expired token": 401,
            "no token": 401,
            "a password": 401,
        }
        assert answers["nobody"].headers["www-authenticate"] == "Bearer"
        assert "'eve'" in answers["a certificate without the right"].text
    for path in ("/livez", "/readyz"):
        assert (await anybody.get(path)).text == "ok\n"
    said = [record.getMessage() for record in caplog.records if "over HTTP" in record.getMessage()]
    assert any("its token has expired" in line for line in said)
    assert any("'eve'" in line for line in said)


async def test_whoever_looks_is_in_the_audit_and_not_once_for_each_time(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    office, file = Office(Directory(tmp_path / "files")), tmp_path / "audit.jsonl"
    async with running_node(**office.sections, audit={"file": str(file)}) as office.node:
        anybody, certified = office.client(), office.client("prometheus")
        for _ in range(3):
            for path in ("/metrics", "/status", "/livez"):
                await certified.get(path)
                await anybody.get(path, headers=office.token("eve"))
                await anybody.get(path, headers=office.token("grafana", -1000))
                await anybody.get(path)
        await office.close()

    lines = [json.loads(line) for line in file.read_bytes().splitlines()]
    assert [(line["principal"], line["outcome"]) for line in lines] == [
        ("prometheus", "ok"),
        ("eve", "refused"),
        ("", "refused"),
    ]
    assert {(line["kind"], line["action"], line["resource"], line["peer"]) for line in lines} == {
        ("admission", "observe", "status", "127.0.0.1")
    }
    assert "'eve'" in lines[1]["reason"]
    assert "expired" in lines[2]["reason"]
    assert abs(datetime.fromisoformat(lines[0]["time"].replace("Z", "+00:00")).timestamp() - time.time()) < 60


async def test_a_stranger_to_the_authority_does_not_come_in(office: Office, tmp_path: Path) -> None:
    (tmp_path / "others").mkdir()
    others = Directory(tmp_path / "others")
    own = tmp_path / "own.pem"
    own.write_bytes(certificate_for(others.authority, "prometheus", "tools"))
    client = office.client()
    context = ssl.create_default_context(cafile=office.directory.ca)
    context.load_cert_chain(own)
    async with httpx.AsyncClient(verify=context, base_url=client.base_url) as stranger:
        with pytest.raises(httpx.TransportError):
            await stranger.get("/metrics")
    assert (await client.get("/metrics", headers=office.token("grafana"))).status_code == 200


async def test_a_certificate_that_is_replaced_is_shown(office: Office) -> None:
    before = await office.shown()
    now = office.directory.renew()
    for _ in range(300):
        if await office.shown() == now:
            break
    else:
        raise AssertionError("the new certificate is not shown")
    assert before != now


async def test_a_native_client_that_speaks_tls_is_told_what_it_reached(office: Office) -> None:
    port = office.node.observe_url.rpartition(":")[2]
    url = f"gapless+tls://127.0.0.1:{port}?ca={office.directory.ca}"

    with pytest.raises(gapless.ConfigurationError, match="is an HTTP server"):
        await bounded(gapless.connect(url))


async def test_rules_of_others_count_on_loopback_where_that_is_wanted(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    office = Office(Directory(tmp_path / "files"))
    office.sections["observe"] = {"address": "127.0.0.1:0", "auth": ["token"]}
    async with running_node(**office.sections) as node, httpx.AsyncClient(base_url=node.observe_url) as client:
        assert (await client.get("/metrics")).status_code == 401
        assert (await client.get("/metrics", headers=office.token("grafana"))).status_code == 200


@pytest.mark.parametrize(
    ("observe", "fragments"),
    [
        ({"auth": ["token"], "certificate": None}, ("TLS (its certificate)",)),
        ({"auth": None}, ("nobody could look", "`token`")),
        ({"auth": ["certificate"], "client_ca": None}, ("client_ca", "'certificate'")),
    ],
)
async def test_beyond_loopback_nothing_is_left_open(
    tmp_path: Path, observe: dict[str, Any], fragments: tuple[str, ...]
) -> None:
    (tmp_path / "files").mkdir()
    office = Office(Directory(tmp_path / "files"))
    if observe["auth"] is None:
        office.sections["auth"] = [{"plugin": "scram"}]
    if "certificate" in observe:
        observe = observe | {"key": None, "client_ca": None}
    section = {key: value for key, value in (office.sections["observe"] | observe).items() if value is not None}

    with pytest.raises(gapless.ConfigurationError) as raised:
        async with running_node(**office.sections | {"observe": section}):
            pass

    assert [fragment for fragment in fragments if fragment not in str(raised.value)] == [], str(raised.value)
    assert str(raised.value).startswith("configuration: observe: ")


async def test_insecure_is_taken_at_its_word() -> None:
    async with (
        running_node(observe={"address": "0.0.0.0:0"}, node={"insecure": True}) as node,
        httpx.AsyncClient() as client,
    ):
        port = node.observe_url.rpartition(":")[2]
        assert (await client.get(f"http://127.0.0.1:{port}/metrics")).status_code == 200
