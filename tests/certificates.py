"""Certificates of any kind, for as long as a test likes; and files of them that are replaced."""

from __future__ import annotations

import os
from datetime import datetime, timedelta, timezone
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Directory:
    """An authority, and the files of what it has issued: each is replaced as one should, by renaming."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.authority = trustme.CA()
        self.certificate = path / "certificate.pem"
        self.key = path / "key.pem"
        self.ca = path / "ca.pem"
        self.renew()
        self.trust(self.authority)

    @property
    def listening(self) -> dict[str, Path]:
        """Options of a listener that asks for certificates."""
        return {"certificate": self.certificate, "key": self.key, "client_ca": self.ca}

    @property
    def dialing(self) -> dict[str, object]:
        """Options of a dialer that shows its own."""
        return {"tls": True, "ca": self.ca, "certificate": self.certificate, "key": self.key}

    def renew(self, **days: float) -> bytes:
        """Puts a new certificate and its key there; returns its DER. `begin`, `end`: in how many days."""
        issued = self.issue(**days)
        self.put(self.certificate, issued.cert_chain_pems[0].bytes())
        self.put(self.key, issued.private_key_pem.bytes())
        return der_of(issued)

    def issue(self, *, begin: float = -1, end: float = 365) -> trustme.LeafCert:
        """A certificate for 127.0.0.1 and broker.example."""
        now = datetime.now(timezone.utc)
        return self.authority.issue_cert(
            "127.0.0.1",
            "broker.example",
            not_before=now + timedelta(days=begin),
            not_after=now + timedelta(days=end),
        )

    def trust(self, *authorities: trustme.CA) -> None:
        """Those of the CA file, and no others."""
        self.put(self.ca, b"".join(authority.cert_pem.bytes() for authority in authorities))

    def put(self, path: Path, content: bytes) -> None:
        """Replaces a file at one go."""
        fresh = path.with_suffix(".new")
        fresh.write_bytes(content)
        os.replace(fresh, path)  # noqa: PTH105 - the words of what operators do


def der_of(issued: trustme.LeafCert) -> bytes:
    """What is sent of a certificate."""
    certificate = x509.load_pem_x509_certificate(issued.cert_chain_pems[0].bytes())
    return certificate.public_bytes(serialization.Encoding.DER)


def certificate_for(authority: trustme.CA, name: str, unit: str, *others: x509.GeneralName) -> bytes:
    """A certificate and its key in one PEM, with what trustme does not put into one."""
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.load_pem_x509_certificate(authority.cert_pem.bytes())
    signer = serialization.load_pem_private_key(authority.private_key_pem.bytes(), password=None)
    now = datetime.now(timezone.utc)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(
            x509.Name(
                [
                    x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, unit),
                    x509.NameAttribute(NameOID.COMMON_NAME, name),
                ]
            )
        )
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(others), critical=False)
        .sign(signer, hashes.SHA256())  # type: ignore[arg-type]
    )
    return certificate.public_bytes(serialization.Encoding.PEM) + key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
