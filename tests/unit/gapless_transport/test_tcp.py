"""The transport `tcp` as a plugin: options, addresses, TLS."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest
import trustme
from cryptography.x509 import DNSName, UniformResourceIdentifier

from certificates import certificate_for, der_of
from gapless.core.wire.framing import encode_frame
from gapless.errors import ConfigurationError
from gapless.spi import Certificate, Link
from gapless_testing.transport.ends import End, WatchedLink
from gapless_transport import tcp
from unit.gapless_transport.conftest import Listen, Open

Files = Mapping[str, Path]


def test_hook_open_transport_of_tcp_takes_options(open_tcp: Open) -> None:
    plain = open_tcp(high_water=2 << 20)

    assert (plain.scheme, plain.encrypts) == ("tcp", False)
    assert tcp.is_loopback("127.0.0.1:7400")
    assert plain.is_loopback("localhost:0")
    assert not plain.is_loopback("0.0.0.0:7400")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"port": 7400}, "no option 'port'"),
        ({"connections_max": 0}, "option 'connections_max'"),
        ({"key": "key.pem"}, "'key' means nothing without 'certificate'"),
        ({"client_ca": "ca.pem"}, "'client_ca' means nothing without 'certificate'"),
        ({"ca": "ca.pem"}, "'ca' means nothing without 'tls'"),
        ({"server_name": "broker"}, "'server_name' means nothing without 'tls'"),
        ({"certificate": "/nowhere.pem"}, "'certificate': cannot use /nowhere.pem"),
        ({"tls": True, "ca": "/nowhere.pem"}, "'ca': cannot use /nowhere.pem"),
    ],
)
def test_wrong_options_are_named(options: Mapping[str, object], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=f"transport 'tcp': .*{complaint}"):
        tcp.open_transport(options=options)


async def exchange(
    listening: Mapping[str, object], dialing: Mapping[str, object], listen: Listen, open_tcp: Open
) -> tuple[Link, Link | WatchedLink]:
    """A frame each way, between transports with these options. Returns the dialer's end and the listener's."""
    listener, ends = await listen(open_tcp(**listening))
    near = End()
    link = await open_tcp(**dialing).dial(listener.address, near.accept)
    link.send([b"ping"])
    far = await ends.get(0)
    assert await far.frames(1) == [b"ping"]
    far.link.send([b"pong"])
    assert await near.frames(1) == [b"pong"]
    assert link.secure is far.link.secure is bool(listening.get("certificate"))
    link.close()
    await near.end()
    return link, far.link


async def test_ipv6_addresses_stand_in_brackets(listen: Listen, open_tcp: Open) -> None:
    try:
        listener, ends = await listen(open_tcp(), "[::1]:0")
    except ConfigurationError as error:
        pytest.skip(str(error))
    near = End()
    link = await open_tcp().dial(listener.address, near.accept)
    link.send([b"over IPv6"])
    far = await ends.get(0)

    assert await far.frames(1) == [b"over IPv6"]
    assert listener.address.startswith("[::1]:")
    assert far.link.peer.startswith("[::1]:")
    link.close()
    await near.end()


async def test_nobody_there_is_an_error_that_says_where(listen: Listen, open_tcp: Open) -> None:
    listener, _ = await listen(open_tcp())
    await listener.close()

    with pytest.raises(ConnectionRefusedError, match=listener.address):
        await open_tcp().dial(listener.address, End().accept)


async def test_an_unknown_name_is_an_error_that_says_which(open_tcp: Open) -> None:
    with pytest.raises(socket.gaierror, match=r"no\.such\.invalid:1"):
        await open_tcp().dial("no.such.invalid:1", End().accept)
    with pytest.raises(ConfigurationError, match=r"cannot listen on no\.such\.invalid:1"):
        await open_tcp().listen("no.such.invalid:1", End().accept)


async def test_tls_with_a_trusted_certificate(certificates: Files, listen: Listen, open_tcp: Open) -> None:
    listening = {"certificate": certificates["certificate"], "key": certificates["key"]}
    assert open_tcp(**listening).encrypts
    assert open_tcp(**listening).asks_certificates is ("client_ca" in listening)

    await exchange(listening, {"tls": True, "ca": certificates["ca"]}, listen, open_tcp)


async def test_the_system_is_asked_whom_to_trust(
    certificates: Files, listen: Listen, open_tcp: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`gapless+tls://` works with nothing but SSL_CERT_FILE."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates["ca"]))
    listening = {"certificate": certificates["certificate"], "key": certificates["key"]}

    await exchange(listening, {"tls": True}, listen, open_tcp)


async def test_another_name_can_be_expected(certificates: Files, listen: Listen, open_tcp: Open) -> None:
    listening = {"certificate": certificates["certificate"], "key": certificates["key"]}
    dialing = {"tls": True, "ca": certificates["ca"], "server_name": "broker.example"}

    await exchange(listening, dialing, listen, open_tcp)


async def test_both_ends_can_show_certificates(
    certificates: Files, other_certificates: Files, listen: Listen, open_tcp: Open
) -> None:
    own = {"certificate": certificates["certificate"], "key": certificates["key"]}

    await exchange(
        own | {"client_ca": other_certificates["ca"]},
        {
            "tls": True,
            "ca": certificates["ca"],
            "certificate": other_certificates["certificate"],
            "key": other_certificates["key"],
        },
        listen,
        open_tcp,
    )


@pytest.mark.parametrize(
    ("dialing", "complaint"),
    [
        ({"server_name": "impostor.example"}, r"for another name \([Hh]ostname mismatch.*`server_name` is the name"),
        ({"ca": "other"}, r"is not trusted \(.*`ca` names the file"),
        ({"ca": None}, r"is not trusted \(.*`ca` names the file"),
    ],
    ids=["another name", "another authority", "the system's authorities"],
)
async def test_a_listener_that_cannot_prove_who_it_is(
    certificates: Files,
    other_certificates: Files,
    listen: Listen,
    open_tcp: Open,
    dialing: Mapping[str, object],
    complaint: str,
) -> None:
    listener, ends = await listen(open_tcp(certificate=certificates["certificate"], key=certificates["key"]))
    options = {"tls": True, "ca": certificates["ca"], **dialing}
    if dialing.get("ca") == "other":
        options["ca"] = other_certificates["ca"]

    with pytest.raises(ssl.SSLCertVerificationError, match=complaint) as error:
        await open_tcp(**options).dial(listener.address, End().accept)
    assert str(error.value).startswith(f"{listener.address}: its certificate is"), "a sentence"
    assert ends.all == []


@pytest.mark.parametrize("renewed", ["certificate and key", "ca"])
async def test_who_dials_reads_its_files_anew_for_each_link(
    certificates: Files, other_certificates: Files, tmp_path: Path, listen: Listen, open_tcp: Open, renewed: str
) -> None:
    """They are renewed on disk, under the same names, while the program runs."""
    own = {name: tmp_path / f"{name}.pem" for name in certificates}

    def write(source: Files, *names: str) -> None:
        for name in names:
            own[name].write_bytes(source[name].read_bytes())

    stale = tuple(certificates) if renewed != "ca" else ()
    write(certificates, "ca", "certificate", "key")
    dialing = open_tcp(tls=True, **own)
    theirs = certificates if stale else other_certificates
    listener, _ = await listen(
        open_tcp(certificate=theirs["certificate"], key=theirs["key"], client_ca=other_certificates["ca"])
    )
    refused = End()
    with suppress(OSError):  # in TLS 1.3 a dialer may be up before it is refused
        await dialing.dial(listener.address, refused.accept)
        assert await refused.end() is not None
    write(other_certificates, "certificate", "key", *(() if stale else ("ca",)))

    near = End()
    link = await dialing.dial(listener.address, near.accept)

    link.close()
    assert await near.end() == ""


async def test_files_that_are_being_written_keep_nobody_from_dialing(
    certificates: Files,
    other_certificates: Files,
    tmp_path: Path,
    listen: Listen,
    open_tcp: Open,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A certificate without its key, for a moment: what was read before is used, and it is said once."""
    own = {name: tmp_path / f"{name}.pem" for name in certificates}
    for name, path in own.items():
        path.write_bytes(certificates[name].read_bytes())
    listener, ends = await listen(
        open_tcp(certificate=certificates["certificate"], key=certificates["key"], client_ca=certificates["ca"])
    )
    dialing = open_tcp(tls=True, **own)

    own["certificate"].write_bytes(other_certificates["certificate"].read_bytes())
    for number in range(2):
        near = End()
        link = await dialing.dial(listener.address, near.accept)
        link.send([b"let me in"])
        assert await (await ends.get(number)).frames(1) == [b"let me in"]
        link.close()
        await near.end()

    said = [record.message for record in caplog.records if "'certificate': cannot use" in record.message]
    assert len(said) == 1
    assert "what was read before is used to dial" in said[0]


@pytest.mark.parametrize("shown", [None, "certificates"])
async def test_a_dialer_that_cannot_prove_who_it_is(
    certificates: Files, other_certificates: Files, listen: Listen, open_tcp: Open, shown: str | None
) -> None:
    """In TLS 1.3 the dialer is up before it is refused: then its link ends, and the listener never had one."""
    own = {"certificate": certificates["certificate"], "key": certificates["key"]}
    listener, ends = await listen(open_tcp(**own, client_ca=other_certificates["ca"]))
    near = End()
    try:
        link = await open_tcp(tls=True, ca=certificates["ca"], **(own if shown else {})).dial(
            listener.address, near.accept
        )
        link.send([b"let me in"])
        await near.end()
    except OSError:
        pass

    assert ends.all == []


async def test_older_versions_of_tls_are_refused(certificates: Files, listen: Listen, open_tcp: Open) -> None:
    listener, ends = await listen(open_tcp(certificate=certificates["certificate"], key=certificates["key"]))
    context = ssl.create_default_context(cafile=certificates["ca"])
    host, port = listener.address.split(":")

    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(OSError):
        await asyncio.open_connection(host, int(port), ssl=context)
    assert ends.all == []
    context.maximum_version = ssl.TLSVersion.TLSv1_3
    _, writer = await asyncio.open_connection(host, int(port), ssl=context)
    await ends.get(0)
    writer.close()
    await writer.wait_closed()


async def test_plain_bytes_do_not_pass_a_tls_port(certificates: Files, listen: Listen, open_tcp: Open) -> None:
    listener, ends = await listen(open_tcp(certificate=certificates["certificate"], key=certificates["key"]))
    near = End()
    link = await open_tcp().dial(listener.address, near.accept)
    link.send([b"in the clear"])

    assert await near.end() is not None
    assert ends.all == []
    assert near.received == []


async def test_a_plain_port_says_that_it_is_asked_for_tls(listen: Listen, open_tcp: Open) -> None:
    listener, ends = await listen(open_tcp())

    with pytest.raises(OSError, match=r"127\.0\.0\.1:\d+: the other end closed .* it may not speak TLS"):
        await open_tcp(tls=True).dial(listener.address, End().accept)
    assert "look like TLS" in await (await ends.get(0)).end()


async def test_frames_right_behind_the_handshake_are_not_lost(
    certificates: Files, listen: Listen, open_tcp: Open
) -> None:
    """The listener's first frames may come in the very read that ends the dialer's handshake."""
    transport = open_tcp(
        certificate=certificates["certificate"], key=certificates["key"], tls=True, ca=certificates["ca"]
    )
    listener, _ = await listen(transport, prepare=lambda end: end.link.send([b"welcome", b"again"]))
    for _ in range(20):
        near = End()
        link = await transport.dial(listener.address, near.accept)
        assert await near.frames(2) == [b"welcome", b"again"]
        link.close()
        await near.end()


async def test_a_listener_that_hangs_up_during_the_handshake(open_tcp: Open) -> None:
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    end = End()

    for _ in range(20):
        with pytest.raises(OSError, match=r"."):
            await open_tcp(tls=True).dial(address, end.accept)
    assert end.closed == []
    server.close()


async def test_a_listener_that_never_answers_the_handshake(open_tcp: Open) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"

        with pytest.raises(OSError, match=r"handshake"):
            await open_tcp(tls=True, handshake_timeout=0.1).dial(address, End().accept)


async def test_what_a_link_sends_are_frames(listen: Listen, open_tcp: Open) -> None:
    listener, _ = await listen(open_tcp(), prepare=lambda end: end.link.send([b"one", (b"t", b"wo")]))
    host, port = listener.address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    expected = encode_frame(b"one") + encode_frame(b"two")

    assert await reader.readexactly(len(expected)) == expected
    writer.close()
    await writer.wait_closed()


async def test_each_end_tells_what_the_other_s_certificate_says(tmp_path: Path, listen: Listen, open_tcp: Open) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    there = authority.issue_cert("127.0.0.1", common_name="there")
    here = certificate_for(
        authority, "here", "loaders", DNSName("here.example"), UniformResourceIdentifier("spiffe://example/here")
    )
    there.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "there.pem"))
    (tmp_path / "here.pem").write_bytes(here)
    ca = tmp_path / "ca.pem"
    listening = {"certificate": tmp_path / "there.pem", "client_ca": ca}

    near, far = await exchange(
        listening, {"tls": True, "ca": ca, "certificate": tmp_path / "here.pem"}, listen, open_tcp
    )

    assert near.certificate.common_name == "there"
    assert far.certificate == Certificate("here", ("loaders",), ("spiffe://example/here",), ("here.example",))
    assert near.shown == far.shown == der_of(there)


async def test_who_shows_no_certificate_has_no_name(certificates: Files, listen: Listen, open_tcp: Open) -> None:
    listening = {"certificate": certificates["certificate"], "key": certificates["key"]}

    _, far = await exchange(listening, {"tls": True, "ca": certificates["ca"]}, listen, open_tcp)

    assert far.certificate == Certificate()
