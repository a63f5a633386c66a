"""Contexts of TLS that follow the files they were made from: certificates are renewed while links go on."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from gapless.core.alarms import Alarm, AlarmCode
from gapless.errors import ConfigurationError
from gapless_transport import tls

LOOK_SECONDS = 1.0
"""How often a listener looks whether its files have changed."""
NOTICE_SECONDS = 30 * 86400
"""So long before the end of a certificate the operator is told."""


@dataclass(frozen=True, slots=True)
class OwnCertificate:
    """The certificate that a context shows, and when it is valid: seconds since 1970."""

    der: bytes
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class TlsVersion:
    """One reading of the files. Never changed: what was once loaded into a context cannot be taken out of it."""

    context: ssl.SSLContext
    own: OwnCertificate | None
    """None: it shows none."""


class TlsFiles:
    """The latest version of some files that is of use, and what is wrong with them now.

    Files are replaced one after the other, and a pair that does not fit is what there is meanwhile: so what cannot be
    used is no reason to give up what could be. Each version has a context of its own; who has begun with one keeps it.
    """

    def __init__(self, make: Callable[[], ssl.SSLContext], certificate: Path | None, files: Sequence[Path]) -> None:
        """`make` reads `files`; `certificate` is the one of them with the certificate that is shown.

        Raises ConfigurationError when they cannot be used. An expired certificate can: who started with it is told.
        """
        self._make = make
        self._certificate = certificate
        self._files = files
        self._lock = threading.Lock()
        self._used = self._stamps()
        self._trouble = ""
        self.version = self._read()

    def look(self) -> TlsVersion:
        """Reads the files if they have changed, or could not be used before. Blocks; may be called on any thread.

        Returns the version that counts now.
        """
        with self._lock:
            stamps = self._stamps()
            if stamps != self._used or self._trouble:
                try:
                    version = self._read()
                    self._refuse_useless(version)
                except Exception as error:  # noqa: BLE001 - whatever somebody has put there, it ends nothing
                    self._trouble = str(error) or type(error).__name__
                else:
                    # Of files that are being written part may be old: then they are read once more, the next time.
                    if self._stamps() == stamps:
                        self.version, self._used, self._trouble = version, stamps, ""
            return self.version

    @property
    def are_used_as_they_are(self) -> bool:
        """Whether the version that counts is what the files say now. Blocks."""
        return self._stamps() == self._used

    @property
    def trouble(self) -> str:
        """Why the files cannot be used as they are now; "" if they can."""
        return self._trouble

    def troubles(self) -> Iterator[Alarm]:
        """What the operator should do something about. Does not block."""
        trouble, own = self._trouble, self.version.own
        if trouble:
            text = f"{trouble}; new links go on with what these files were before"
            yield Alarm(AlarmCode.CERTIFICATE_UNUSABLE, text, str(self._certificate or self._files[0]))
        if own is not None and (left := own.end - _now()) < NOTICE_SECONDS:
            text = f"the certificate of {self._certificate} {'ends' if left > 0 else 'ended'} at {_date(own.end)}"
            yield Alarm(AlarmCode.CERTIFICATE_EXPIRES, text, str(self._certificate))

    def _read(self) -> TlsVersion:
        context = self._make()
        return TlsVersion(context, None if self._certificate is None else _own_certificate(self._certificate))

    def _refuse_useless(self, version: TlsVersion) -> None:
        """Nobody would accept a certificate at the wrong time. What was used before may be better."""
        if version.own is None:
            return
        what = f"transport 'tcp': 'certificate': cannot use {self._certificate}"
        if version.own.end <= _now():
            raise ConfigurationError(f"{what}: it ended at {_date(version.own.end)}")
        if version.own.begin > _now():
            raise ConfigurationError(f"{what}: it begins at {_date(version.own.begin)}")

    def _stamps(self) -> list[object]:
        return [_stamp(path) for path in self._files]


def listening_files(certificate: Path, key: Path | None, client_ca: Path | None) -> TlsFiles:
    """Those of a listener; see `tls.listening_context`."""
    others = [path for path in (key, client_ca) if path is not None]
    return TlsFiles(lambda: tls.listening_context(certificate, key, client_ca), certificate, [certificate, *others])


def dialing_files(ca: Path | None, certificate: Path | None, key: Path | None) -> TlsFiles:
    """Those of a dialer; see `tls.dialing_context`."""
    authorities = _files_of_the_system() if ca is None else [ca]
    own = [path for path in (certificate, key) if path is not None]
    return TlsFiles(lambda: tls.dialing_context(ca, certificate, key), certificate, [*authorities, *own])


def _files_of_the_system() -> list[Path]:
    """Where the authorities stand that this system trusts."""
    paths = ssl.get_default_verify_paths()
    return [Path(path) for path in (paths.cafile, paths.capath) if path]


def _stamp(path: Path) -> object:
    """Differs from that of before when the file does; None if it is not there."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, status.st_dev


def _own_certificate(path: Path) -> OwnCertificate:
    """The first certificate in a file: the one that is shown. Raises ConfigurationError if there is none."""
    from asn1crypto import pem, x509  # whoever does without TLS does without it

    try:
        ders = [der for kind, _, der in pem.unarmor(path.read_bytes(), multiple=True) if "CERTIFICATE" in kind]
        certificate: Any = x509.Certificate.load(ders[0])
        validity = certificate["tbs_certificate"]["validity"]
        begin, end = (validity[name].native.timestamp() for name in ("not_before", "not_after"))
        return OwnCertificate(certificate.dump(), begin, end)
    except (OSError, ValueError, IndexError) as error:
        raise ConfigurationError(f"transport 'tcp': 'certificate': cannot use {path}: {error}") from error


def _now() -> float:
    """By the clock that TLS itself judges certificates by."""
    return time.time_ns() / 1e9


def _date(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%d %H:%M} UTC"
