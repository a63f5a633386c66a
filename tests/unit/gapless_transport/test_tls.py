from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from gapless.errors import ConfigurationError
from gapless.spi import Certificate
from gapless_transport.tls import certificate_of, dialing_context, listening_context


def test_only_tls_13_is_spoken(certificates: Mapping[str, Path]) -> None:
    listening = listening_context(certificates["certificate"], certificates["key"], None)
    dialing = dialing_context(None, None, None)

    assert listening.minimum_version == dialing.minimum_version == ssl.TLSVersion.TLSv1_3


def test_no_session_can_be_resumed(certificates: Mapping[str, Path]) -> None:
    """Whoever comes back is judged anew: by the authorities of then, and by his certificate."""
    listening = listening_context(certificates["certificate"], certificates["key"], None)
    dialing = dialing_context(certificates["ca"], None, None)
    to_listener, to_dialer = ssl.MemoryBIO(), ssl.MemoryBIO()
    listener = listening.wrap_bio(to_listener, to_dialer, server_side=True)
    dialer = dialing.wrap_bio(to_dialer, to_listener, server_hostname="broker.example")

    for shake in (dialer.do_handshake, listener.do_handshake, dialer.do_handshake, listener.do_handshake):
        with contextlib.suppress(ssl.SSLWantReadError):
            shake()
    listener.write(b"tickets would come before this")

    assert dialer.read() == b"tickets would come before this"
    assert dialer.session is not None
    assert not dialer.session.has_ticket
    assert listening.num_tickets == 0


def test_a_dialer_always_checks_certificate_and_name(certificates: Mapping[str, Path]) -> None:
    for context in (dialing_context(None, None, None), dialing_context(certificates["ca"], None, None)):
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert context.check_hostname


def test_a_listener_asks_for_certificates_if_it_knows_an_authority(certificates: Mapping[str, Path]) -> None:
    certificate, key = certificates["certificate"], certificates["key"]

    assert listening_context(certificate, key, None).verify_mode is ssl.CERT_NONE
    assert listening_context(certificate, key, certificates["ca"]).verify_mode is ssl.CERT_REQUIRED


def test_the_key_may_stand_in_the_certificates_file(certificates: Mapping[str, Path], tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    both.write_bytes(certificates["certificate"].read_bytes() + certificates["key"].read_bytes())

    listening_context(both, None, None)


def test_files_that_cannot_be_used_are_named(certificates: Mapping[str, Path], tmp_path: Path) -> None:
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("no certificate")
    certificate, key = certificates["certificate"], certificates["key"]

    uses: list[tuple[Callable[[], object], str]] = [
        (lambda: listening_context(garbage, key, None), "certificate"),
        (lambda: listening_context(certificate, garbage, None), "certificate"),
        (lambda: listening_context(certificate, None, None), "certificate"),
        (lambda: listening_context(certificate, key, garbage), "client_ca"),
        (lambda: dialing_context(garbage, None, None), "ca"),
    ]
    for use, option in uses:
        with pytest.raises(ConfigurationError, match=f"'{option}': cannot use"):
            use()


def test_an_encrypted_key_is_refused_without_asking_at_the_terminal(
    certificates: Mapping[str, Path], tmp_path: Path
) -> None:
    key = serialization.load_pem_private_key(certificates["key"].read_bytes(), password=None)
    encrypted = tmp_path / "encrypted.pem"
    encrypted.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )

    with pytest.raises(ConfigurationError, match="encrypted"):
        listening_context(certificates["certificate"], encrypted, None)


def told_of(*subject: tuple[str, str], others: tuple[tuple[str, str], ...] = ()) -> dict[str, object]:
    """What Python tells of a verified certificate."""
    return {"subject": tuple((pair,) for pair in subject), "subjectAltName": others, "version": 3}


def test_what_a_certificate_says() -> None:
    subject = (("organizationalUnitName", "loaders"), ("commonName", "desk"), ("organizationalUnitName", "night"))
    others = (
        ("DNS", "desk.example"),
        ("URI", "spiffe://example/desk"),
        ("IP Address", "10.0.0.1"),
        ("DNS", "b.example"),
    )

    certificate = certificate_of(told_of(*subject, others=others))

    assert certificate == Certificate(
        common_name="desk",
        units=("loaders", "night"),
        uris=("spiffe://example/desk",),
        dns_names=("desk.example", "b.example"),
    )


@pytest.mark.parametrize("told", [None, {}], ids=["without TLS", "not verified"])
def test_what_was_not_verified_says_nothing(told: dict[str, object] | None) -> None:
    assert certificate_of(told) == Certificate()


def test_of_several_common_names_none_counts() -> None:
    """Else somebody who may choose one of them could be whoever comes first."""
    assert certificate_of(told_of(("commonName", "desk"), ("commonName", "admin"))).common_name == ""
