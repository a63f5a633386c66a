"""The addresses that `connect` takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gapless.client.addresses import Embedded, Login, Remote, parse, with_login
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
    with pytest.raises(
        ConfigurationError, match="may stand ca, certificate, key, server_name, password_file, token_file, each once"
    ):
        parse(f"gapless+tls://a?{query}")


def test_only_tls_has_certificates() -> None:
    with pytest.raises(ConfigurationError, match="behind the hosts of gapless:// may stand password_file, token_file"):
        parse("gapless://a?ca=ca.pem")


TLS = {"tls": True}


@pytest.mark.parametrize(
    ("address", "meaning"),
    [
        ("gapless://ann@a", Remote("tcp", ("a:7400",), {}, Login("ann"))),
        ("gapless://ann@a,b:1/", Remote("tcp", ("a:7400", "b:1"), {}, Login("ann"))),
        ("gapless+tls://ann@[::1]:7", Remote("tcp", ("[::1]:7",), TLS, Login("ann"))),
        ("gapless://ann%40home@a", Remote("tcp", ("a:7400",), {}, Login("ann@home"))),
        ("gapless://ann%3Ax@a", Remote("tcp", ("a:7400",), {}, Login("ann:x"))),
        ("gapless+tcp://ann@a?password_file=/run/pw", Remote("tcp", ("a:7400",), {}, Login("ann", "/run/pw"))),
        ("gapless://a?token_file=/run/t%20k", Remote("tcp", ("a:7400",), {}, Login("", "", "/run/t k"))),
        (
            "gapless+tls://ann@a:1?password_file=/run/pw&certificate=me.pem&ca=/c@b.pem",
            Remote("tcp", ("a:1",), {**TLS, "certificate": "me.pem", "ca": "/c@b.pem"}, Login("ann", "/run/pw")),
        ),
        ("gapless+tls://a:1?ca=/c@b.pem", Remote("tcp", ("a:1",), {**TLS, "ca": "/c@b.pem"})),
        ("gapless+memory://who@here", Remote("memory", ("who@here",))),
    ],
)
def test_an_address_may_say_who_the_client_is(address: str, meaning: Remote) -> None:
    assert parse(address) == meaning


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("gapless://@a", "names an empty user"),
        ("gapless://a?password_file=/run/pw", "needs a user"),
        ("gapless://ann@a?token_file=/run/t", "stands alone"),
        ("gapless://ann@a?password_file=/run/pw&token_file=/run/t", "stands alone"),
        ("gapless://ann@a?password_file=", "each once, with a value"),
        ("gapless://ann@a?password_file=x&password_file=y", "each once, with a value"),
    ],
)
def test_who_the_client_is_is_said_once_and_whole(address: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        parse(address)


@pytest.mark.parametrize(
    "address",
    [
        "gapless://ann:S3CRET@a",
        "gapless+tls://ann:S3CRET@a:7400?ca=/c.pem",
        "gapless+tls://:S3CRET@a",
        "gapless://ann:S3/CRET@a/x",
        "gapless://ann:S3?CRET@a",
        "gapless://a:1,ann:S3CRET@b",
        "gapless://ann:S3,CRET@a",
        "gapless://ann:S3@CRET@a",
        "gapless+ws://ann:S3CRET@a/path",
        "http://ann:S3CRET@a",
        "ann:S3CRET@a:7400",
        "gapless:ann:S3CRET@a",
        "gapless+tls:/ann:S3CRET@a",
        "gapless://a;password=S3CRET",
        "gapless://a?pass%77ord=S3CRET",
        "gapless+tls://a?password=S3CRET",
        "gapless+tls://ann@a?ca=/c.pem&password=S3CRET",
        "gapless://a?token=S3CRET",
        "gapless://a?Access_Token=S3CRET",
        "gapless+ws://a?secret=S3CRET",
    ],
)
def test_an_address_with_a_secret_is_refused_and_not_repeated(address: str) -> None:
    with pytest.raises(ConfigurationError, match="with a password or a token in it is not taken") as error:
        parse(address)

    assert "S3" not in str(error.value)
    assert "CRET" not in str(error.value)


def test_what_is_unknown_behind_the_hosts_is_named_and_not_shown() -> None:
    with pytest.raises(ConfigurationError, match=r"'\?passwort=…'") as error:
        parse("gapless://ann@a?passwort=S3CRET")

    assert "S3CRET" not in str(error.value)


@pytest.mark.parametrize(
    ("address", "login", "made"),
    [
        ("gapless://a", Login("ann"), "gapless://ann@a"),
        ("gapless://a:1,b", Login("a n", "/run/p w"), "gapless://a%20n@a:1,b?password_file=/run/p%20w"),
        ("gapless+tls://a?ca=/c.pem", Login("", "", "/run/t"), "gapless+tls://a?ca=/c.pem&token_file=/run/t"),
    ],
)
def test_a_user_and_files_can_be_put_into_an_address(address: str, login: Login, made: str) -> None:
    assert with_login(address, login) == made
    found = parse(made)
    assert isinstance(found, Remote)
    assert found.login == login


def test_a_file_in_an_address_is_found_from_another_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert with_login("gapless://a", Login("ann", "pw")) == f"gapless://ann@a?password_file={tmp_path}/pw"


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("gapless://ann@a", "names one of its own"),
        ("embedded:", "only addresses of TCP and TLS"),
        ("gapless+memory://here", "only addresses of TCP and TLS"),
    ],
)
def test_what_takes_no_user_is_told(address: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        with_login(address, Login("bob"))
