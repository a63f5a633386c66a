"""What can be configured of the transport `tcp`."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator, model_validator

from gapless import descriptors
from gapless_transport.options import LinkOptions

REFUSED_MAX = 16
"""So many more a listener takes than there may be clients: they are told why they are refused."""


def connections_default() -> int:
    """How many connections a listener takes by default: what the storage leaves of the files that may be open."""
    return descriptors.for_connections() + REFUSED_MAX


class TcpOptions(LinkOptions):
    """Certificates and limits. Times are in seconds."""

    certificate: Path | None = None
    """PEM file with the certificate, and those between it and its authority. Listening then means TLS."""
    key: Path | None = None
    """PEM file with the certificate's key, if it is not in the same file."""
    client_ca: Path | None = None
    """PEM file with authorities: whoever dials us must show a certificate signed by one of them."""
    tls: bool = False
    """Dial with TLS."""
    ca: Path | None = None
    """PEM file with the authorities to trust when dialing, instead of the system's."""
    server_name: str | None = None
    """The name that the certificate must bear when dialing, if it is not the host dialed."""
    handshake_timeout: float = Field(default=5.0, gt=0)
    """How long a TLS handshake may take."""
    connections_max: int = Field(default_factory=connections_default, ge=1)
    """How many connections a listener holds; further ones are closed at once."""
    unfinished_max: int = Field(default=64 << 20, ge=1)
    """Bytes that frames which are not all there may take, of all connections of a listener together."""
    unfinished_patience: float = Field(default=5.0, gt=0)
    """Who holds some of that for longer is disconnected when others wait for room."""
    backlog: int = Field(default=1024, ge=1)
    """How many connections may wait to be accepted."""

    @field_validator("certificate", "key", "client_ca", "ca", mode="before")
    @classmethod
    def _names_a_file(cls, given: object) -> object:
        if "-----BEGIN" in str(given):
            raise ValueError("this is what is in a file; the option is the name of one")
        return given

    @model_validator(mode="after")
    def _tls_options_go_together(self) -> TcpOptions:
        for names, needed, given in (
            (("key", "client_ca"), "certificate", self.certificate is not None),
            (("ca", "server_name"), "tls", self.tls),
        ):
            for name in names:
                if getattr(self, name) is not None and not given:
                    raise ValueError(f"option {name!r} means nothing without {needed!r}")
        return self
