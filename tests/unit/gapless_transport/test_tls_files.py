"""Files of certificates: what is read of them, when, and what counts while they are of no use."""

from __future__ import annotations

import re
import shutil
import ssl
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme

from certificates import Directory, der_of
from gapless.core.alarms import AlarmCode
from gapless.errors import ConfigurationError
from gapless_transport import tls_files
from gapless_transport.tls_files import TlsFiles, TlsVersion, dialing_files, listening_files

Spoil = Callable[[Directory], object]


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    (tmp_path / "files").mkdir()
    return Directory(tmp_path / "files")


def files_of(directory: Directory) -> TlsFiles:
    return listening_files(directory.certificate, directory.key, directory.ca)


def shown_by(version: TlsVersion) -> bytes:
    assert version.own is not None
    return version.own.der


def trusted_by(version: TlsVersion) -> int:
    return len(version.context.get_ca_certs())


def test_what_has_not_changed_is_not_read_again(directory: Directory) -> None:
    files = files_of(directory)

    assert files.look() is files.version
    assert files.look() is files.look()


def test_a_renewed_certificate_is_another_version_with_a_context_of_its_own(directory: Directory) -> None:
    files = files_of(directory)
    before = files.version

    renewed = directory.renew()

    after = files.look()
    assert after is files.version
    assert (shown_by(after), shown_by(before) != renewed) == (renewed, True)
    assert after.context is not before.context


def test_an_authority_is_not_only_added_but_taken_away_too(directory: Directory) -> None:
    """Loading into a context only adds."""
    directory.trust(directory.authority, trustme.CA())
    files = files_of(directory)
    assert trusted_by(files.version) == 2

    directory.trust(directory.authority)

    assert trusted_by(files.look()) == 1


def test_the_certificate_may_stand_behind_other_things_in_its_file(directory: Directory, tmp_path: Path) -> None:
    """The key, a text for people, and in front of those between it and the authority: the first one is shown."""
    issued = directory.issue()
    chain = directory.authority.cert_pem.bytes()
    both = tmp_path / "both.pem"
    both.write_bytes(
        b"Certificate:\n    Version: 3\n" + issued.private_key_pem.bytes() + issued.cert_chain_pems[0].bytes() + chain
    )

    assert shown_by(listening_files(both, None, None).version) == der_of(issued)


def cut_short(path: Path, share: float) -> None:
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])


def exchange_for_another(directory: Directory) -> None:
    directory.put(directory.key, trustme.CA().issue_cert("127.0.0.1").private_key_pem.bytes())


SPOILT: dict[str, tuple[Spoil, str]] = {
    "half a certificate": (lambda it: cut_short(it.certificate, 0.5), "'certificate': cannot use .*certificate.pem"),
    "half a key": (lambda it: cut_short(it.key, 0.5), "'certificate': cannot use .* with .*key.pem"),
    "half an authority": (lambda it: cut_short(it.ca, 0.5), "'client_ca': cannot use .*ca.pem"),
    "an empty certificate": (lambda it: cut_short(it.certificate, 0), "'certificate': cannot use"),
    "another key": (exchange_for_another, "'certificate': cannot use"),
    "no certificate": (lambda it: it.certificate.unlink(), "'certificate': cannot use .*No such file"),
    "no key": (lambda it: it.key.unlink(), "'certificate': cannot use .*No such file"),
    "no authority": (lambda it: it.ca.unlink(), "'client_ca': cannot use .*No such file"),
    "an expired one": (lambda it: it.renew(begin=-10, end=-0.01), r"certificate.pem: it ended at \d{4}-\d\d-\d\d \d\d"),
    "one of tomorrow": (lambda it: it.renew(begin=1, end=10), r"certificate.pem: it begins at \d{4}-\d\d-\d\d"),
}


@pytest.mark.parametrize(("spoil", "says"), SPOILT.values(), ids=list(SPOILT))
def test_what_cannot_be_used_replaces_nothing_until_it_can(directory: Directory, spoil: Spoil, says: str) -> None:
    files = files_of(directory)
    before = files.version
    whole = directory.path.with_name("as it was")
    shutil.copytree(directory.path, whole)

    spoil(directory)

    assert files.look() is before
    assert files.look() is before
    (alarm,) = files.troubles()
    assert (alarm.code, alarm.about) == (AlarmCode.CERTIFICATE_UNUSABLE, str(directory.certificate))
    assert files.trouble in alarm.text
    assert re.search(says, alarm.text), alarm.text
    for path in (directory.certificate, directory.key, directory.ca):
        directory.put(path, (whole / path.name).read_bytes())
    assert files.look() is not before
    assert list(files.troubles()) == []
    assert files.trouble == ""


def test_a_certificate_that_begins_meanwhile_needs_no_further_change(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = files_of(directory)
    tomorrow = directory.renew(begin=1, end=10)
    assert shown_by(files.look()) != tomorrow

    now = time.time()
    monkeypatch.setattr(tls_files, "_now", lambda: now + 2 * 86400)

    assert shown_by(files.look()) == tomorrow
    assert [alarm.code for alarm in files.troubles()] == [AlarmCode.CERTIFICATE_EXPIRES]


@pytest.mark.parametrize(("days", "says"), [(31, None), (29.9, "ends at"), (0.1, "ends at"), (-0.1, "ended at")])
def test_the_end_is_told_thirty_days_before(tmp_path: Path, days: float, says: str | None) -> None:
    """A broker may even be started with a certificate that has ended: it tells so, and takes the next one."""
    directory = Directory(tmp_path)
    directory.renew(begin=-100, end=days)
    files = files_of(directory)

    told = [(alarm.code, alarm.about) for alarm in files.troubles()]

    assert told == ([] if says is None else [(AlarmCode.CERTIFICATE_EXPIRES, str(directory.certificate))])
    assert all(f"{directory.certificate} {says} 20" in alarm.text for alarm in files.troubles())
    directory.renew()
    files.look()
    assert list(files.troubles()) == []


def test_files_that_change_while_they_are_read_are_read_once_more(directory: Directory) -> None:
    """What was read may be the half of one and the half of the other: it is not used."""
    last: list[bytes] = []

    def make() -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(directory.certificate, directory.key)
        if writers:
            last.append(writers.pop()())
        return context

    writers: list[Callable[[], bytes]] = []
    files = TlsFiles(make, directory.certificate, [directory.certificate, directory.key])
    before = files.version
    directory.renew()
    writers.append(directory.renew)

    assert files.look() is before
    assert list(files.troubles()) == []
    assert shown_by(files.look()) == last[0]


def test_files_that_cannot_be_used_at_the_start_are_an_error(directory: Directory) -> None:
    cut_short(directory.certificate, 0.5)

    with pytest.raises(ConfigurationError, match="'certificate': cannot use"):
        files_of(directory)


def test_a_dialer_follows_its_own_files_and_whom_it_trusts(directory: Directory) -> None:
    files = dialing_files(directory.ca, directory.certificate, directory.key)
    directory.trust(directory.authority, trustme.CA())
    assert trusted_by(files.look()) == 2

    renewed = directory.renew()
    assert shown_by(files.look()) == renewed


def test_a_dialer_that_shows_nothing_has_no_end(directory: Directory) -> None:
    files = dialing_files(directory.ca, None, None)
    assert files.version.own is None
    directory.ca.unlink()
    files.look()

    assert [(alarm.code, alarm.about) for alarm in files.troubles()] == [
        (AlarmCode.CERTIFICATE_UNUSABLE, str(directory.ca))
    ]


def test_a_dialer_follows_whom_the_system_trusts(directory: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(directory.ca))
    monkeypatch.setenv("SSL_CERT_DIR", str(directory.path / "nowhere"))
    files = dialing_files(None, None, None)
    assert files.look() is files.version

    directory.trust(directory.authority, trustme.CA())

    assert trusted_by(files.look()) == 2
