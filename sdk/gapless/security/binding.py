"""Channel binding: what a client proves to one listener is of no use to who shows another certificate (RFC 5929)."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Final

CERTIFICATES_MAX: Final = 64
"""So many certificates are remembered with their hashes: a process meets few, and each of them often."""

_HASHES: Final = frozenset({"sha224", "sha256", "sha384", "sha512"})
"""Those that a certificate may choose. MD5 and SHA-1 are not among them."""


@lru_cache(maxsize=CERTIFICATES_MAX)
def end_point(certificate: bytes) -> bytes:
    """Returns the `tls-server-end-point` of a link whose listener has shown this certificate (DER); b"" for b"".

    It is the certificate's hash, by the hash function of its signature; SHA-256 in place of MD5 and SHA-1. Where the
    signature has no single hash function, or an unknown one (Ed25519, Ed448, ML-DSA), the RFC says nothing: there it is
    SHA-256, too, so that no kind of certificate takes the binding away.
    """
    return hashlib.new(_hash_name(certificate), certificate).digest() if certificate else b""


def _hash_name(certificate: bytes) -> str:
    from asn1crypto import x509  # whoever does without TLS does without it

    try:
        algorithm = x509.Certificate.load(certificate)["signature_algorithm"]
        # asn1crypto tells of Ed25519 what it hashes with inside; that is no choice of the signature's.
        name = "" if algorithm["algorithm"].native.startswith("ed") else str(algorithm.hash_algo)
    except (ValueError, KeyError, TypeError):
        name = ""
    return name if name in _HASHES else "sha256"
