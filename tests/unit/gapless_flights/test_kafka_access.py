"""How the demo connects to somebody's own Kafka."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trustme

from gapless import ConfigurationError
from gapless.settings import read_toml
from gapless_flights.kafka_access import KafkaAccess

TEXT = """
[tls]
ca = "ca.pem"
[sasl]
mechanism = "PLAIN"
user = "alice"
password_file = "secret"
"""


@pytest.fixture
def access(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file, beside what it names; one is in their directory."""
    monkeypatch.chdir(tmp_path)
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.pem")
    (tmp_path / "secret").write_text("open\n", "utf-8")
    (tmp_path / "access.toml").write_text(TEXT, "utf-8")
    return tmp_path / "access.toml"


def test_a_kafka_that_asks_for_nothing_is_given_nothing() -> None:
    access = KafkaAccess.of("a:1,b:2", None)

    assert access.options() == {"bootstrap_servers": "a:1,b:2", "security_protocol": "PLAINTEXT"}
    assert access.configuration == '\n[[phb.kafka]]\nservers = ["a:1", "b:2"]\n'


def test_a_gapless_broker_is_told_the_same_and_finds_the_files_from_anywhere(access: Path, tmp_path: Path) -> None:
    (tmp_path / "gapless.toml").write_text(KafkaAccess.of("a:1", access).configuration, "utf-8")

    (section,) = read_toml(tmp_path / "gapless.toml")["phb"]["kafka"]
    assert section == {
        "servers": ["a:1"],
        "tls": {"ca": str(tmp_path / "ca.pem")},
        "sasl": {"mechanism": "PLAIN", "user": "alice", "password_file": str(tmp_path / "secret")},
    }


def test_clients_of_kafkas_own_get_in_by_the_same(access: Path) -> None:
    options = KafkaAccess.of("a:1", access).options()

    assert isinstance(options.pop("ssl_context"), ssl.SSLContext)
    assert options == {
        "bootstrap_servers": "a:1",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "alice",
        "sasl_plain_password": "open",
    }


@pytest.mark.parametrize("there", [True, False])
def test_a_password_may_be_in_the_environment(access: Path, monkeypatch: pytest.MonkeyPatch, *, there: bool) -> None:
    access.write_text(TEXT.replace('password_file = "secret"', 'password_env = "SECRET"'), "utf-8")
    if there:
        monkeypatch.setenv("SECRET", "open")
        assert KafkaAccess.of("a:1", access).options()["sasl_plain_password"] == "open"
    else:
        with pytest.raises(ConfigurationError, match="there is no variable SECRET"):
            KafkaAccess.of("a:1", access).options()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[ssl]", "ssl: it may have the tables"),
        ('[sasl]\npassword = "open"', "password: it may have"),
        ("[sasl]\nuser = 7", "user: it may have"),
        ("tls = 1", "tls: it may have"),
        ("[tls", "is not TOML"),
        ('[sasl]\nuser = "alice"\npassword_file = "secret"', "mechanism: Field required"),
        (
            '[sasl]\nmechanism = "GSSAPI"\nuser = "alice"\npassword_file = "secret"',
            "mechanism: Input should be 'PLAIN'",
        ),
        ('[sasl]\nmechanism = "PLAIN"\nuser = "alice"', "says where the password is"),
    ],
)
def test_what_the_file_may_not_have_is_named(access: Path, text: str, why: str) -> None:
    access.write_text(text, "utf-8")

    with pytest.raises(ConfigurationError, match=why):
        KafkaAccess.of("a:1", access)


def test_a_file_that_is_missing_is_named(access: Path, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").unlink()

    with pytest.raises(ConfigurationError, match="No such file"):
        KafkaAccess.of("a:1", access).options()
