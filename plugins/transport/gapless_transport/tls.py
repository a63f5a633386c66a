"""TLS contexts: version 1.3 only, certificates and host names always checked when dialing."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gapless.core.principals import NO_CERTIFICATE
from gapless.errors import ConfigurationError
from gapless.spi import Certificate


def listening_context(certificate: Path, key: Path | None, client_ca: Path | None) -> ssl.SSLContext:
    """The context of a listener that shows `certificate`.

    With `client_ca`, only clients with a certificate signed by it come in. Raises ConfigurationError,
    naming the option, when a file cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # Links live long, so nobody resumes a session; without tickets there is no state to keep or to flood.
    context.num_tickets = 0
    _load_certificate(context, certificate, key)
    if client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        _load_authorities(context, client_ca, "client_ca")
    return context


def dialing_context(ca: Path | None, certificate: Path | None, key: Path | None) -> ssl.SSLContext:
    """The context of a dialer: trusts `ca` alone, or else what this system trusts (and SSL_CERT_FILE).

    With `certificate`, that is shown to a listener who asks. Raises ConfigurationError, naming the
    option, when a file cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    if ca is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        _load_authorities(context, ca, "ca")
    if certificate is not None:
        _load_certificate(context, certificate, key)
    return context


NO_TLS = "the other end does not speak TLS"
CERTIFICATE_EXPIRED = 10
NAME_MISMATCHES = (62, 64)
"""What OpenSSL calls a certificate of another host name, or IP address."""


def reason_of(error: BaseException) -> str:
    """Returns why no link came about through TLS, and what to do, where OpenSSL's own words do not tell."""
    if isinstance(error, ssl.SSLCertVerificationError):
        said = error.verify_message
        if error.verify_code in NAME_MISMATCHES:
            return f"its certificate is for another name ({said}). `server_name` is the name that it must bear"
        if error.verify_code == CERTIFICATE_EXPIRED:
            return "its certificate has expired: it needs a new one"
        return f"its certificate is not trusted ({said}). `ca` names the file with the authority that has signed it"
    if isinstance(error, ssl.SSLError):
        reason = error.reason or ""
        if reason in {"WRONG_VERSION_NUMBER", "HTTP_REQUEST"}:
            return NO_TLS
        if "ALERT_UNKNOWN_CA" in reason:
            return "the other end does not trust our certificate: its `ca`, or `client_ca`, is another one"
        if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
            return "the other end has shown no certificate, and `client_ca` asks for one"
        return error.strerror or reason or str(error)
    return str(error) or type(error).__name__


def certificate_of(told: Mapping[str, Any] | None) -> Certificate:
    """What a peer's certificate says, from what `getpeercert` tells of it; an empty one without it.

    What was not verified is not told: Python shows such a certificate as an empty one.
    """
    if not told:
        return NO_CERTIFICATE
    subject = [pair for part in told.get("subject", ()) for pair in part]
    others = told.get("subjectAltName", ())
    names = _values(subject, "commonName")
    return Certificate(
        common_name=names[0] if len(names) == 1 else "",
        units=_values(subject, "organizationalUnitName"),
        uris=_values(others, "URI"),
        dns_names=_values(others, "DNS"),
    )


def _values(pairs: Iterable[tuple[str, str]], wanted: str) -> tuple[str, ...]:
    return tuple(value for key, value in pairs if key == wanted)


def _load_authorities(context: ssl.SSLContext, path: Path, option: str) -> None:
    try:
        context.load_verify_locations(cafile=path)
    except OSError as error:
        raise ConfigurationError(f"transport 'tcp': {option!r}: cannot use {path}: {error}") from error


def _load_certificate(context: ssl.SSLContext, certificate: Path, key: Path | None) -> None:
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except OSError as error:
        files = f"{certificate} with {key}" if key else str(certificate)
        raise ConfigurationError(f"transport 'tcp': 'certificate': cannot use {files}: {error}") from error


def _no_password() -> str:
    """Called for an encrypted key; without this, OpenSSL would ask at the terminal and block."""
    raise ConfigurationError("transport 'tcp': 'key': it is encrypted; gapless needs it in the clear")
