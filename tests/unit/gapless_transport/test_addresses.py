from __future__ import annotations

import pytest

from gapless.errors import ConfigurationError
from gapless_transport.addresses import is_loopback, parse, render


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("127.0.0.1:7400", ("127.0.0.1", 7400)),
        ("broker.example:0", ("broker.example", 0)),
        ("[::1]:65535", ("::1", 65535)),
        ("[fe80::1%eth0]:1", ("fe80::1%eth0", 1)),
    ],
)
def test_an_address_has_a_host_and_a_port(address: str, parts: tuple[str, int]) -> None:
    assert parse(address) == parts
    assert render(*parts) == address


@pytest.mark.parametrize(
    ("address", "complaint"),
    [
        ("", "port"),
        ("localhost", "port"),
        ("localhost:", "port"),
        ("localhost:http", "port"),
        ("localhost:-1", "port"),
        ("localhost:65536", "port"),
        ("localhost:000080", "port"),
        ("localhost:٣", "port"),
        (":7400", "'0.0.0.0'"),
        ("a b:1", "host"),
        ("a\0b:1", "host"),
        ("user@host:1", "host"),
        ("a/b:1", "host"),
        ("a..b:1", "host"),
        (f"{'a' * 64}:1", "host"),
        ("::1:7400", "brackets"),
        ("[::1:7400", "brackets"),
    ],
)
def test_a_malformed_address_is_named(address: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint) as error:
        parse(address)
    assert repr(address) in str(error.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "localhost", "LOCALHOST", "[::1]", "[::ffff:127.0.0.1]"])
def test_only_this_machine_reaches_loopback(host: str) -> None:
    assert is_loopback(f"{host}:7400")


@pytest.mark.parametrize(
    "host",
    ["0.0.0.0", "[::]", "10.0.0.1", "128.0.0.1", "broker.example", "localhost.example", "127.1", "[::ffff:10.0.0.1]"],
)
def test_others_may_reach_everything_else(host: str) -> None:
    """A name is not looked up, and what is no address in full is a name."""
    assert not is_loopback(f"{host}:7400")
