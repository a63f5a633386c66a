"""While many consume, the password of one user is changed, and certificate, key and authorities are replaced.

Whoever may stay notices nothing, whoever has to go is told why, and everybody gets every event, once.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest
import trustme

import gapless
from certificates import Directory
from gapless import AuthenticationError, Password
from gapless_testing.ports import free_ports
from integration.broker_process import PATIENCE, BrokerProcess, until
from integration.test_certificates import Publishing

OLD, NEW, OF_BOB = "old-password", "new-password", "password-of-bob"
BY_FILE, BY_WORD, BY_BOB, BY_CERTIFICATE = 41, 4, 45, 10
"""So many sessions: those of ada that read the password from a file, and those that were given it. Were there more of
the latter than may fail before answers are delayed, all of their host would wait for it."""


class Place:
    """A broker with three listeners: for users, for certificates, and for its own machine."""

    def __init__(self, folder: Path) -> None:
        (folder / "certificates").mkdir()
        self.folder = folder
        self.tls = Directory(folder / "certificates")
        self.badge = folder / "badge.pem"
        self.trusted = folder / "trusted.pem"
        issued = self.tls.authority.issue_cert("client.example", common_name="carl")
        self.badge.write_bytes(issued.private_key_and_cert_chain_pem.bytes())
        self.trusted.write_bytes(self.tls.authority.cert_pem.bytes())
        self.password = folder / "password.txt"
        self.password.write_text(OLD, "utf-8")
        self.users, self.certified, self.own = (f"127.0.0.1:{port}" for port in free_ports(3))
        files = {"certificate": str(self.tls.certificate), "key": str(self.tls.key)}
        listen: list[dict[str, object]] = [
            {"address": self.users, "auth": ["scram"], **files},
            {"address": self.certified, "auth": ["certificate"], "client_ca": str(self.tls.ca), **files},
            {"address": self.own, "auth": ["anonymous"]},
        ]
        auth = [{"plugin": name} for name in ("scram", "certificate", "anonymous")]
        self.broker = BrokerProcess(folder / "broker", listen=listen, auth=auth)

    def url(self, user: str = "") -> str:
        """The address for users; with one, that of the file of ada's password."""
        file = f"&password_file={self.password}" if user else ""
        return f"gapless+tls://{user and f'{user}@'}{self.users}?ca={self.trusted}{file}"

    @property
    def url_with_badge(self) -> str:
        return f"gapless+tls://{self.certified}?ca={self.trusted}&certificate={self.badge}"

    @property
    def url_within(self) -> str:
        return f"gapless://{self.own}"

    async def shown(self) -> bytes:
        """The certificate that the listener for users shows to who comes now."""
        host, _, port = self.users.rpartition(":")
        context = ssl.create_default_context(cafile=self.trusted)
        _, writer = await asyncio.open_connection(host, int(port), ssl=context)
        shown: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        return shown


class Consumer:
    """Consumes a durable subscription of its own; if it is not let in any more, it comes back with `later`."""

    def __init__(self, name: str, url: str, first: Password | None, later: Password | None) -> None:
        self.name = name
        self.got: list[bytes] = []
        self.told: list[str] = []
        """Why it had to go."""
        self.ready = asyncio.Event()
        self._url = url
        self._credentials = first
        self._later = later
        self._token: gapless.CheckpointToken | None = None
        """Where it stands, which it keeps together with what it got."""
        self.task = asyncio.create_task(self._consume())

    async def _consume(self) -> None:
        while True:
            try:
                await self._session()
            except AuthenticationError as error:
                self.told.append(str(error))
                if self._later is None or self._credentials is self._later:
                    raise
                self._credentials = self._later

    async def _session(self) -> None:
        async with AsyncExitStack() as stack:
            connecting = gapless.connect(self._url, client_id=self.name, credentials=self._credentials)
            session = await stack.enter_async_context((await stack.enter_async_context(connecting)).session())
            subscription = await stack.enter_async_context(session.subscribe("t", name="all", start=self._token))
            self.ready.set()
            async for event in subscription:
                self.got.append(event.body)
                self._token = subscription.token

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    place = Place(tmp_path)
    async with place.broker:
        yield place


async def test_a_password_and_certificates_change_while_a_hundred_consume(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    broker = place.broker
    async with gapless.connect(place.url_within) as operator:
        await operator.add_user("ada", OLD)
        await operator.add_user("bob", OF_BOB)
        by_file = [Consumer(f"file-{number}", place.url("ada"), None, None) for number in range(BY_FILE)]
        given = Password("ada", OLD), Password("ada", NEW)
        by_word = [Consumer(f"word-{number}", place.url(), *given) for number in range(BY_WORD)]
        bob = Password("bob", OF_BOB)
        by_bob = [Consumer(f"bob-{number}", place.url(), bob, None) for number in range(BY_BOB)]
        by_carl = [Consumer(f"carl-{number}", place.url_with_badge, None, None) for number in range(BY_CERTIFICATE)]
        everybody = [*by_file, *by_word, *by_bob, *by_carl]
        await asyncio.wait_for(asyncio.gather(*(consumer.ready.wait() for consumer in everybody)), PATIENCE)
        publishing = Publishing(operator.session().publisher("t", name="loader"))
        await _all_get(everybody, publishing, 1)

        before = await place.shown()
        renewed = place.tls.renew()
        place.tls.trust(place.tls.authority, trustme.CA())
        place.password.write_text(NEW, "utf-8")
        await operator.change_password("ada", NEW)
        while (seen := await place.shown()) != renewed:
            assert seen == before
            await asyncio.sleep(0.05)
        async with gapless.connect(place.url("ada"), client_id="newcomer") as newcomer:
            await newcomer.pubends()

        await until(lambda: all(consumer.told for consumer in by_word), "ada's sessions to end")
        await _all_get(everybody, publishing, len(publishing.sent) + 5)
        sent = await publishing.end()
        for consumer in everybody:
            await until(lambda: len(consumer.got) >= len(sent) or consumer.task.done(), "the rest")  # noqa: B023
            assert consumer.got == sent, consumer.name
            await consumer.end()

    why = r"the credentials are not valid here; .* the password of user 'ada' was changed: connect with the new one"
    assert [len(consumer.told) for consumer in by_word] == [1] * BY_WORD
    assert all(re.search(why, consumer.told[0]) for consumer in by_word), by_word[0].told
    assert [consumer.told for consumer in (*by_file, *by_bob, *by_carl)] == [[]] * (BY_FILE + BY_BOB + BY_CERTIFICATE)
    lost = [record.getMessage() for record in caplog.records if "lost the connection" in record.getMessage()]
    assert len(lost) == BY_FILE + BY_WORD, "the others do not even notice"
    assert all("the password of user 'ada' was changed: connect with the new one" in line for line in lost)
    assert "Traceback" not in broker.log


async def _all_get(consumers: list[Consumer], publishing: Publishing, count: int) -> None:
    await until(lambda: all(len(consumer.got) >= count for consumer in consumers), f"{count} events at everybody")
    assert len(publishing.sent) >= count
