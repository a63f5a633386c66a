"""The addresses that `connect` takes."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.client.addresses import Embedded, Remote, parse
from gapless.errors import ConfigurationError


@pytest.mark.parametrize(
    ("address", "meaning"),
    [
        ("gapless://127.0.0.1:7400", Remote("tcp", ("127.0.0.1:7400",))),
        ("gapless://broker", Remote("tcp", ("broker:7400",))),
        ("gapless://a:1,b:2, c", Remote("tcp", ("a:1", "b:2", "c:7400"))),
        ("gapless://[::1]:7400", Remote("tcp", ("[::1]:7400",))),
        ("gapless://[::1]/", Remote("tcp", ("[::1]:7400",))),
        ("gapless+tls://a", Remote("tcp", ("a:7400",), {"tls": True})),
        (
            "gapless+tls://a,b:1?ca=/c%20a.pem&certificate=me.pem&key=me.key&server_name=x.example",
            Remote(
                "tcp",
                ("a:7400", "b:1"),
                {"tls": True, "ca": "/c a.pem", "certificate": "me.pem", "key": "me.key", "server_name": "x.example"},
            ),
        ),
        ("gapless+tcp://a", Remote("tcp", ("a:7400",))),
        ("gapless+memory://here", Remote("memory", ("here",))),
        ("embedded:", Embedded("")),
        ("embedded:./data", Embedded("./data")),
        ("embedded:/var/lib/gapless", Embedded("/var/lib/gapless")),
    ],
)
def test_what_an_address_means(address: str, meaning: Remote | Embedded) -> None:
    assert parse(address) == meaning


@pytest.mark.parametrize(
    "address",
    [
        "",
        "127.0.0.1:7400",
        "http://a",
        "gapless:/a",
        "gapless://",
        "gapless://a,,b",
        "gapless+://a",
        "gapless://a/b",
        "gapless://a:0",
        7,
    ],
)
def test_what_is_no_address(address: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"gapless://127\.0\.0\.1:7400|nothing may follow|port 0"):
        parse(address)


@pytest.mark.parametrize("query", ["cert=a", "ca=", "ca", "ca=a&ca=b"])
def test_what_may_not_stand_behind_the_hosts(query: str) -> None:
    with pytest.raises(ConfigurationError, match="may stand ca, certificate, key, server_name, each once"):
        parse(f"gapless+tls://a?{query}")


def test_only_tls_has_options() -> None:
    with pytest.raises(ConfigurationError, match="nothing may follow"):
        parse("gapless://a?ca=ca.pem")
