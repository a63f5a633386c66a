"""Certificates and authorities that are replaced while a listener works: for new links, and nobody is disturbed."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import trustme
import uvloop

from certificates import Directory, der_of
from gapless.core.alarms import AlarmCode
from gapless.spi import Link, TellsTroubles, Transport
from gapless_testing.transport.ends import End, Ends
from gapless_transport import tcp, tls_files
from integration.broker_process import until
from unit.gapless_transport.conftest import Listen, Open

NAMES = {"with SNI": {"server_name": "broker.example"}, "without SNI": {}}


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_files, "LOOK_SECONDS", 0.02)


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    return Directory(tmp_path)


class Client:
    """Somebody who dials, with a certificate that nobody replaces."""

    def __init__(self, directory: Directory, authority: trustme.CA, open_tcp: Open, **options: object) -> None:
        self.end = End()
        self.own = directory.path / f"client-{id(self)}.pem"
        issued = authority.issue_cert("client.example", common_name="client")
        self.own.write_bytes(issued.private_key_and_cert_chain_pem.bytes())
        trusted = directory.path / "trusted.pem"
        trusted.write_bytes(directory.authority.cert_pem.bytes())
        self.transport = open_tcp(tls=True, ca=trusted, certificate=self.own, **options)
        self.link: Link

    async def get_in(self, address: str, ends: Ends) -> End:
        """Dials, and says a word; returns the listener's end."""
        count = len(ends.all)
        self.link = await self.transport.dial(address, self.end.accept)
        far = await ends.get(count)
        await self.works(far)
        return far

    async def works(self, far: End) -> None:
        """Frames go both ways."""
        there, here = len(far.received), len(self.end.received)
        self.link.send([b"ping"])
        await far.frames(there + 1)
        far.link.send([b"pong"])
        await self.end.frames(here + 1)

    async def leave(self) -> None:
        self.link.close()
        await self.end.end()


def welcome(end: End) -> None:
    end.link.send([b"welcome"])


async def looked(transport: Transport, holds: Callable[[set[AlarmCode]], bool]) -> None:
    """Waits until what the transport finds wrong is as it should be."""
    assert isinstance(transport, TellsTroubles)
    await until(lambda: holds({alarm.code for alarm in transport.troubles()}), "the transport to tell of it", 5)


@pytest.mark.parametrize("name", NAMES.values(), ids=list(NAMES))
async def test_new_links_see_the_new_certificate_and_old_ones_go_on(
    directory: Directory, listen: Listen, open_tcp: Open, name: dict[str, str]
) -> None:
    listener, ends = await listen(open_tcp(**directory.listening))
    first = Client(directory, directory.authority, open_tcp, **name)
    far = await first.get_in(listener.address, ends)
    old = first.link.shown

    renewed = directory.renew()

    async def shown() -> bytes:
        newcomer = Client(directory, directory.authority, open_tcp, **name)
        other = await newcomer.get_in(listener.address, ends)
        assert newcomer.link.shown == other.link.shown
        await newcomer.leave()
        return newcomer.link.shown

    seen = [await shown()]
    while seen[-1] != renewed:
        assert (seen[-1], len(seen) < 500) == (old, True)
        seen.append(await shown())
    await first.works(far)
    assert first.link.shown == far.link.shown == old != renewed
    await first.leave()


@pytest.mark.parametrize("name", NAMES.values(), ids=list(NAMES))
async def test_an_authority_that_is_taken_away_lets_nobody_in_any_more(
    directory: Directory, listen: Listen, open_tcp: Open, name: dict[str, str]
) -> None:
    former = trustme.CA()
    directory.trust(directory.authority, former)
    listener, ends = await listen(open_tcp(**directory.listening), prepare=welcome)
    inside = Client(directory, former, open_tcp, **name)
    far = await inside.get_in(listener.address, ends)

    directory.trust(directory.authority)

    await until_refused(lambda: Client(directory, former, open_tcp, **name), listener.address)
    count = len(ends.all)
    await is_refused(Client(directory, former, open_tcp, **name), listener.address)
    assert len(ends.all) == count
    other = Client(directory, directory.authority, open_tcp, **name)
    await other.get_in(listener.address, ends)
    await inside.works(far)
    for client in (other, inside):
        await client.leave()


async def test_an_authority_that_is_added_lets_its_clients_in(
    directory: Directory, listen: Listen, open_tcp: Open
) -> None:
    listener, ends = await listen(open_tcp(**directory.listening), prepare=welcome)
    added = trustme.CA()
    assert await is_refused(Client(directory, added, open_tcp), listener.address)

    directory.trust(directory.authority, added)

    for _ in range(500):
        client = Client(directory, added, open_tcp)
        if not await is_refused(client, listener.address):
            break
    assert ends.all[-1].link.certificate.common_name == "client"


async def test_a_pair_that_is_written_in_two_steps_disturbs_nobody(
    directory: Directory, listen: Listen, open_tcp: Open
) -> None:
    transport = open_tcp(**directory.listening)
    listener, ends = await listen(transport)
    old, renewed = directory.certificate.read_bytes(), directory.issue()
    assert old != renewed.cert_chain_pems[0].bytes()

    directory.certificate.write_bytes(renewed.cert_chain_pems[0].bytes())

    await looked(transport, lambda codes: codes == {AlarmCode.CERTIFICATE_UNUSABLE})
    client = Client(directory, directory.authority, open_tcp)
    await client.get_in(listener.address, ends)
    assert client.link.shown != der_of(renewed)
    await client.leave()
    directory.key.write_bytes(renewed.private_key_pem.bytes())
    await looked(transport, lambda codes: codes == set())
    client = Client(directory, directory.authority, open_tcp)
    await client.get_in(listener.address, ends)
    assert client.link.shown == der_of(renewed)
    await client.leave()


async def test_one_trouble_of_both_ends_is_told_once(directory: Directory, listen: Listen, open_tcp: Open) -> None:
    """A node dials and listens with the same files."""
    transport = open_tcp(**directory.listening | directory.dialing)
    await listen(transport)

    directory.renew(end=3)
    await looked(transport, lambda codes: codes == {AlarmCode.CERTIFICATE_EXPIRES})
    directory.key.unlink()
    await looked(transport, lambda codes: codes == {AlarmCode.CERTIFICATE_EXPIRES, AlarmCode.CERTIFICATE_UNUSABLE})

    assert isinstance(transport, TellsTroubles)
    assert len(transport.troubles()) == 2


def test_it_is_so_on_uvloop_too(directory: Directory, open_tcp: Open) -> None:
    async def shown_before_and_after() -> None:
        ends = Ends()
        transport = open_tcp(**directory.listening)
        listener = await transport.listen("127.0.0.1:0", ends.accept)
        renewed = directory.certificate.read_bytes()
        for _ in range(2):
            client = Client(directory, directory.authority, open_tcp)
            far = await client.get_in(listener.address, ends)
            assert client.link.shown == far.link.shown == ssl_der(renewed)
            assert far.link.certificate.common_name == "client"
            directory.renew()
            renewed = directory.certificate.read_bytes()
            await until(partial(shows, transport, renewed), "the listener to look", 5)
            await client.leave()
        await listener.close()

    uvloop.run(shown_before_and_after())


def shows(transport: Transport, pem: bytes) -> bool:
    """Whether that is what the next link will see."""
    assert isinstance(transport, tcp.TcpTransport)
    own = transport.tls_files[0].version.own
    return own is not None and own.der == ssl_der(pem)


def ssl_der(pem: bytes) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pem.decode())


async def until_refused(make: Callable[[], Client], address: str) -> None:
    """Dials until nobody is let in any more."""
    for _ in range(500):
        if await is_refused(make(), address):
            return
    raise AssertionError("whoever came was let in")


async def is_refused(client: Client, address: str) -> bool:
    """Whether somebody is not let in: in TLS 1.3 who dials may be up before that. The listener welcomes who is in."""
    try:
        link = await client.transport.dial(address, client.end.accept)
    except OSError:
        return True
    await client.end.until(lambda: bool(client.end.received or client.end.closed), lambda: "neither in nor out")
    refused = not client.end.received
    link.close()
    await client.end.end()
    return refused
