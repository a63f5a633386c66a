"""`[[phb.kafka]]`: what is right is understood, what is wrong is named, and secrets are never shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trustme

from gapless import plugins
from gapless.errors import ConfigurationError
from gapless_log.kafka.mapping import Rules
from gapless_log.kafka.options import section_from
from gapless_log.kafka.plugin import KafkaPlugin

LEAST: dict[str, Any] = {"servers": ["kafka1:9092"], "topics": ["orders"]}
SASL = {"mechanism": "SCRAM-SHA-512", "user": "gapless", "password_env": "KAFKA_PASSWORD"}


def test_hook_open_log_makes_the_kafka_plugin() -> None:
    assert isinstance(plugins.load("log", "kafka")(options=LEAST), KafkaPlugin)
    with pytest.raises(ConfigurationError, match="servers: Field required"):
        plugins.load("log", "kafka")(options={"topics": ["orders"]})


def test_a_name_alone_is_a_topic() -> None:
    (topic,) = section_from(LEAST).topics

    assert (topic.name, topic.partitions, topic.publish, topic.retention) == ("orders", None, False, "kafka")
    assert topic.rules == Rules("orders")


def test_a_topic_with_everything() -> None:
    options = {
        "name": "orders_eu",
        "topic": "shop.orders",
        "partitions": [0, 2],
        "publish": True,
        "retention": "delete",
        "key": "customer",
        "headers": ["n", "origin"],
        "types": {"n": "int"},
        "fields": {"total": "order.total"},
    }

    (topic,) = section_from({**LEAST, "topics": [options]}).topics

    assert (topic.partitions, topic.publish, topic.retention) == ((0, 2), True, "delete")
    assert topic.rules == Rules("shop.orders", "customer", ("n", "origin"), {"n": "int"}, {"total": "order.total"})


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"servers": []}, "servers: "),
        ({"servers": ["kafka1"]}, r"servers\.0: 'kafka1' is no HOST:PORT"),
        ({"servers": ["kafka1:0"]}, r"servers\.0: 'kafka1:0' is no HOST:PORT"),
        ({"topics": []}, "topics: "),
        ({"topics": ["a", "a"]}, "topics: a is there twice"),
        ({"topics": ["a..b"]}, r"topics\.0: name it with `topic`, for 'a\.\.b'"),
        ({"topics": [{"name": "a b"}]}, r"topics\.0\.name: "),
        ({"topics": [{"name": "a", "topic": "x.*"}]}, r"topics\.0\.topic: 'x\.\*' has a wildcard"),
        ({"topics": [{"name": "a", "publsh": True}]}, r"topics\.0\.publsh: Extra inputs are not permitted"),
        ({"topics": [{"name": "a", "types": {"n": "integer"}}]}, r"topics\.0\.types\.n: Input should be 'text'"),
        ({"topics": [{"name": "a", "headers": ["gapless"]}]}, r"topics\.0\.headers\.0: 'gapless': headers with such"),
        ({"topics": [{"name": "a", "fields": {"f": "a..b"}}]}, r"topics\.0\.fields\.f: "),
        ({"topics": [{"name": "a", "retention": "ours"}]}, r"topics\.0\.retention: "),
        ({"sasl": {"mechanism": "PLAIN", "user": "u"}}, "sasl: either 'password_file' or 'password_env'"),
        ({"sasl": {**SASL, "password_file": "x"}}, "sasl: either 'password_file' or 'password_env'"),
        ({"sasl": {**SASL, "mechanism": "GSSAPI"}}, r"sasl\.mechanism: "),
        ({"tls": {"key": "k.pem"}}, "tls: 'key' means nothing without 'certificate'"),
    ],
)
def test_what_is_wrong_is_named(options: dict[str, Any], fault: str) -> None:
    with pytest.raises(ConfigurationError, match=fault):
        section_from({**LEAST, **options})


def test_a_password_comes_from_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "hidden")
    (tmp_path / "secret").write_text("hidden\n", "utf-8")
    in_file = {"mechanism": "PLAIN", "user": "u", "password_file": str(tmp_path / "secret")}

    for sasl in (SASL, in_file):
        section = section_from({**LEAST, "sasl": sasl})
        assert section.access().password == "hidden"
        assert "hidden" not in f"{section!r}{section}{section.access()!r}"


def test_a_password_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKA_PASSWORD", raising=False)
    with pytest.raises(ConfigurationError, match=r"sasl.password_env: there is no variable KAFKA_PASSWORD"):
        section_from({**LEAST, "sasl": SASL}).access()
    sasl = {"mechanism": "PLAIN", "user": "u", "password_file": str(tmp_path / "none")}
    with pytest.raises(ConfigurationError, match=r"sasl.password_file: cannot read .*none: No such file"):
        section_from({**LEAST, "sasl": sasl}).access()


def test_a_password_in_the_configuration_itself_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigurationError, match=r"sasl.password: Extra inputs") as caught:
        section_from({**LEAST, "sasl": {**SASL, "password": "hidden"}})

    assert "hidden" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_tls_files_are_read_at_once_and_named_if_they_cannot_be(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.issue_cert("gapless").private_key_and_cert_chain_pem.write_to_path(tmp_path / "own.pem")
    tls = {"ca": str(tmp_path / "ca.pem"), "certificate": str(tmp_path / "own.pem")}

    context = section_from({**LEAST, "tls": tls}).access().tls

    assert context is not None
    assert context.check_hostname
    for name in tls:
        with pytest.raises(ConfigurationError, match=rf"tls\.{name}: cannot use .*none\.pem"):
            section_from({**LEAST, "tls": {**tls, name: str(tmp_path / "none.pem")}}).access()
