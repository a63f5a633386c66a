"""Passwords over real TLS are bound to the certificate that a client was shown: nobody between can pass a proof on."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import gapless
from certificates import Directory
from gapless import AuthenticationError, Password
from gapless.core.client import Credentials
from gapless.core.server.users import UserRow
from gapless.security.scram import ScramClient
from gapless.security.users import new_verifier, write_users
from integration.broker_process import bounded
from integration.nodes_in_process import running_node

PASSWORD = "a password"
CHUNK = 1 << 16
ANY_BINDING = bytes(32)


class Place:
    """A broker with a listener that speaks TLS and one that does not."""

    def __init__(self, folder: Path) -> None:
        self.tls = Directory(folder)
        write_users(folder / "users", {"ann": UserRow(new_verifier(PASSWORD), (), 0)})
        self.sections: dict[str, Any] = {
            "listen": [
                {"address": "127.0.0.1:0", "certificate": str(self.tls.certificate), "key": str(self.tls.key)},
                {"address": "127.0.0.1:0"},
            ],
            "auth": [{"plugin": "scram", "users": str(folder / "users"), "delays": False}],
        }
        self.secured = self.open = ""
        """The addresses of the two."""

    def url(self, address: str) -> str:
        return f"gapless+tls://{address}?ca={self.tls.ca}"

    @asynccontextmanager
    async def relayed(self, *, with_own_certificate: bool) -> AsyncIterator[str]:
        """Somebody between, whom the client trusts: ends its TLS, and speaks TLS with the broker."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        if with_own_certificate:
            self.tls.authority.issue_cert("127.0.0.1").configure_cert(context)
        else:  # as what stands before a broker has it, for whoever operates both
            context.load_cert_chain(self.tls.certificate, self.tls.key)
        to_broker = ssl.create_default_context(cafile=self.tls.ca)
        host, _, port = self.secured.rpartition(":")

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            far_reader, far_writer = await asyncio.open_connection(host, int(port), ssl=to_broker)
            await asyncio.gather(_pass_on(reader, far_writer), _pass_on(far_reader, writer))

        server = await asyncio.start_server(relay, "127.0.0.1", 0, ssl=context)
        async with server:
            yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(CHUNK):
            writer.write(chunk)
            await writer.drain()
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


class Saying:
    """The credentials of ann, who believes of the link what a test wants, and what she said first."""

    def __init__(self, binding: bytes | None = None, *, secure: bool = True) -> None:
        """`binding`: None: that of the link."""
        self.first = b""
        self._binding = binding
        self._secure = secure

    async def ask(self, *, is_local: bool) -> Credentials:
        return _Said(self, self._binding, secure=self._secure)


class _Said:
    mechanism = "scram"

    def __init__(self, saying: Saying, binding: bytes | None, *, secure: bool) -> None:
        self._saying = saying
        self._binding = binding
        self._secure = secure
        self._client: ScramClient

    def first(self, binding: bytes, *, secure: bool) -> bytes:
        if self._binding is not None:
            binding, secure = self._binding, self._secure
        self._client = ScramClient("ann", PASSWORD, binding, secure=secure)
        self._saying.first = self._client.first()
        return self._saying.first

    def answer(self, challenge: bytes) -> bytes:
        return self._client.answer(challenge)

    def check_welcome(self) -> None:
        assert self._client.is_proved


@pytest.fixture
async def place(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Place]:
    caplog.set_level(logging.INFO)
    place = Place(tmp_path)
    async with running_node(**place.sections) as node:
        place.secured, place.open = node.addresses
        yield place


async def comes_in(url: str, credentials: Saying | Password) -> None:
    async with await bounded(gapless.connect(url, credentials=credentials)) as connection:
        assert len(await connection.pubends()) > 0


async def is_refused(url: str, credentials: Saying | Password) -> None:
    with pytest.raises(AuthenticationError, match=r"^the credentials are not valid here$"):
        await comes_in(url, credentials)


async def test_a_client_that_binds_comes_in(place: Place) -> None:
    ann = Saying()
    await comes_in(place.url(place.secured), ann)
    await comes_in(place.url(place.secured), Password("ann", PASSWORD))

    assert ann.first.startswith(b"p=tls-server-end-point,,n=ann,")


async def test_who_stands_between_with_another_certificate_cannot_pass_a_proof_on(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    async with place.relayed(with_own_certificate=False) as address:
        await comes_in(place.url(address), Password("ann", PASSWORD))
    async with place.relayed(with_own_certificate=True) as address:
        await is_refused(place.url(address), Password("ann", PASSWORD))
        assert "channel-bindings-dont-match" in caplog.text
        # It is the binding alone: who does not bind is at the mercy of whoever is between.
        await comes_in(place.url(address), Saying(b"", secure=False))


async def test_who_could_bind_and_met_no_offer_says_so_and_is_refused_by_a_broker_that_offers_it(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    ann = Saying(b"", secure=True)
    await is_refused(place.url(place.secured), ann)

    assert ann.first.startswith(b"y,,n=ann,")
    assert "server-does-support-channel-binding" in caplog.text


async def test_a_plain_link_has_nothing_to_bind_to(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    ann = Saying()
    await comes_in(f"gapless://{place.open}", ann)
    assert ann.first.startswith(b"n,,n=ann,")

    await comes_in(f"gapless://{place.open}", Saying(b"", secure=True))  # 'y', to a broker that does not offer it
    await is_refused(f"gapless://{place.open}", Saying(ANY_BINDING))
    assert "channel-binding-not-supported" in caplog.text
