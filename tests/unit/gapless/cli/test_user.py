"""`gapless user`: in a volume, in a file, and at a broker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from typer.testing import CliRunner

from gapless.cli import user
from gapless.cli.app import app
from gapless.core.server.users import USERS, row_of
from gapless.node.config import make_config
from gapless.node.node import Node
from gapless.security.users import read_users, verifier_for
from gapless.spi import Create, VolumeIdentity
from gapless_storage import rocksdb
from unit.gapless.cli.conftest import Gapless

SECRET = "S3CRET-pencil"

Where = list[str | Path]


@contextmanager
def serving() -> Iterator[str]:
    """A broker in a thread of its own, with everything in memory; its address."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever)
    thread.start()
    settings = {"storage": {"plugin": "memory", "path": ""}, "listen": [{"address": "127.0.0.1:0"}]}
    node = asyncio.run_coroutine_threadsafe(Node.start(make_config(settings)), loop).result()
    try:
        yield node.url
    finally:
        asyncio.run_coroutine_threadsafe(node.stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture
def where(request: pytest.FixtureRequest, tmp_path: Path, gapless: Gapless) -> Iterator[Where]:
    """The options that name a place: a volume, a file, or a broker."""
    kind: str = request.param
    if kind == "broker":
        with serving() as url:
            yield ["--url", url]
    else:
        yield ["--file", tmp_path / "users"] if kind == "file" else a_volume(tmp_path, gapless)


def a_volume(tmp_path: Path, gapless: Gapless) -> Where:
    (tmp_path / "secret").write_text("x", "utf-8")
    gapless("user", "add", "x", "--path", tmp_path / "v", "--create", "--password-file", tmp_path / "secret")
    gapless("user", "remove", "x", "--path", tmp_path / "v")
    return ["--path", tmp_path / "v"]


everywhere = pytest.mark.parametrize("where", ["volume", "file", "broker"], indirect=True)


def stored(tmp_path: Path) -> dict[str, Any]:
    """What a volume keeps of its users."""
    volume = rocksdb.open_storage(
        path=str(tmp_path / "v"), identity=VolumeIdentity("", ""), options={}, create=Create.NO
    )
    try:
        return {key.decode(): row_of(key.decode(), row) for key, row in volume.table(USERS).scan()}
    finally:
        volume.close()


@everywhere
def test_users_are_made_listed_changed_and_removed(gapless: Gapless, tmp_path: Path, where: Where) -> None:
    secret = tmp_path / "secret"
    secret.write_text(f"{SECRET}\n", "utf-8")

    assert gapless("user", "list", *where).stdout == "there is no user\n"
    added = gapless("user", "add", "zoe", *where, "--password-file", secret, "--json")
    assert json.loads(added.stdout) == {"user": "zoe", "done": "added"}
    gapless("user", "add", "ada", *where, "--password-file", secret, "--group", "ops", "--group", "dev")
    rows = json.loads(gapless("user", "list", *where, "--json").stdout)
    assert [(row["name"], row["groups"]) for row in rows] == [("ada", ["ops", "dev"]), ("zoe", [])]
    assert {*rows[0]} == {"name", "groups", "changed"}
    assert "ops, dev" in gapless("user", "list", *where).stdout

    gapless("user", "groups", "ada", *where, "--group", "admin")
    gapless("user", "groups", "zoe", *where)
    gapless("user", "password", "zoe", *where, "--password-file", secret)
    rows = json.loads(gapless("user", "list", *where, "--json").stdout)
    assert [(row["name"], row["groups"]) for row in rows] == [("ada", ["admin"]), ("zoe", [])]

    gapless("user", "remove", "ada", *where)
    assert [row["name"] for row in json.loads(gapless("user", "list", *where, "--json").stdout)] == ["zoe"]


@everywhere
def test_what_makes_no_sense_is_said_and_changes_nothing(gapless: Gapless, tmp_path: Path, where: Where) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET, "utf-8")
    given = [*where, "--password-file", secret]
    gapless("user", "add", "ada", *given)
    before = gapless("user", "list", *where, "--json").stdout

    assert "is a user 'ada' already" in gapless("user", "add", "ada", *given, status=2).stderr
    for command in (["password", "bob", *given], ["groups", "bob", *where], ["remove", "bob", *where]):
        assert "no user 'bob'" in gapless("user", *command, status=2).stderr
    for name in ("", "a\nb", "anonymous"):
        assert "the user's name" in gapless("user", "add", name, *given, status=2).stderr
    assert "a group is named twice" in gapless("user", "groups", "ada", *where, *["--group", "g"] * 2, status=2).stderr
    assert gapless("user", "list", *where, "--json").stdout == before


def test_the_password_is_kept_nowhere_only_what_verifies_it(gapless: Gapless, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(f"{SECRET}\r\nand what is behind it\n", "utf-8")
    given: Where = ["--password-file", tmp_path / "secret"]
    gapless("user", "add", "ada", *given, "--file", tmp_path / "users")
    gapless("user", "add", "ada", *given, "--path", tmp_path / "v", "--create")

    for verifier in (read_users(tmp_path / "users")["ada"].verifier, stored(tmp_path)["ada"].verifier):
        assert verifier == verifier_for(SECRET, verifier.salt)
    kept = [file for file in tmp_path.rglob("*") if file.is_file() and file.name != "secret"]
    assert kept
    assert not any(SECRET.encode() in file.read_bytes() for file in kept)


def run(*arguments: str | Path, stdin: str | bytes) -> Any:
    return CliRunner().invoke(app, ["user", *map(str, arguments)], input=stdin)


def test_a_password_from_the_standard_input(tmp_path: Path) -> None:
    file = tmp_path / "users"
    done = run("add", "ada", "--file", file, "--password-stdin", stdin=f"{SECRET} \nx\n")

    assert done.exit_code == 0, done.output
    verifier = read_users(file)["ada"].verifier
    assert verifier == verifier_for(f"{SECRET} ", verifier.salt)


def test_a_password_that_is_asked_for_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "users"
    monkeypatch.setattr(user, "is_interactive", lambda: True)
    assert run("add", "ada", "--file", file, stdin=f"{SECRET}\nother\n").exit_code == 1
    assert not file.exists()

    done = run("add", "ada", "--file", file, stdin=f"{SECRET}\n{SECRET}\n")
    assert done.exit_code == 0, done.output
    verifier = read_users(file)["ada"].verifier
    assert verifier == verifier_for(SECRET, verifier.salt)
    assert SECRET not in done.output


BAD_PASSWORDS: dict[str, str | bytes] = {
    "nothing": "",
    "an empty line": "\n",
    "a control character": f"{SECRET}\x07\n",
    "letters of both directions": f"\u05d0{SECRET}\n",
    "no text": b"S3CRET\xff\n",
    "too long": SECRET * 1000,
}


@pytest.mark.parametrize("password", BAD_PASSWORDS.values(), ids=BAD_PASSWORDS)
def test_a_password_that_can_be_none_is_refused_and_not_shown(tmp_path: Path, password: str | bytes) -> None:
    (tmp_path / "secret").write_bytes(password if isinstance(password, bytes) else password.encode())
    for given in (["--password-stdin"], ["--password-file", tmp_path / "secret"]):
        done = run("add", "ada", "--file", tmp_path / "users", *given, stdin=password)

        assert done.exit_code == 2
        assert "password" in done.stderr
        assert "S3CRET" not in done.output
        assert not (tmp_path / "users").exists()


def test_nobody_is_asked_where_nobody_is(gapless: Gapless, tmp_path: Path) -> None:
    assert "nobody is there" in gapless("user", "add", "ada", "--file", tmp_path / "users", status=2).stderr


def test_no_password_is_an_argument(gapless: Gapless, tmp_path: Path) -> None:
    assert "No such option" in gapless("user", "add", "ada", "--password", SECRET, status=2).stderr
    assert "unexpected extra argument" in gapless("user", "add", "ada", SECRET, status=2).stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--file", "f", "--path", "v"], "only one is meant"),
        (["--file", "f", "--config", "c"], "only one is meant"),
        (["--create"], "--config or --path says which"),
        (["--file", "f", "--password-stdin", "--password-file", "p"], "one of them"),
    ],
)
def test_options_that_do_not_fit(gapless: Gapless, arguments: list[str], said: str) -> None:
    assert said in gapless("user", "add", "ada", *arguments, status=2).stderr


def test_a_volume_that_is_not_there_is_not_made_by_mistake(gapless: Gapless, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET, "utf-8")
    gapless("user", "add", "ada", "--path", tmp_path / "v", "--password-file", tmp_path / "secret", status=1)

    assert not (tmp_path / "v").exists()


def test_where_a_configuration_has_a_file_of_users_its_volume_is_left_alone(gapless: Gapless, tmp_path: Path) -> None:
    config = tmp_path / "gapless.toml"
    config.write_text(f'[storage]\npath = "{tmp_path / "v"}"\n[auth]\nplugin = "scram"\nusers = "all-users"\n', "utf-8")

    assert "gapless user --file all-users" in gapless("user", "list", "--config", config, status=2).stderr
    assert not (tmp_path / "v").exists()


def test_a_file_that_is_no_file_of_users_is_left_as_it_is(gapless: Gapless, tmp_path: Path) -> None:
    (tmp_path / "users").write_text("root:x:0:0", "utf-8")

    assert "line 1 is no user" in gapless("user", "remove", "ada", "--file", tmp_path / "users", status=2).stderr
    assert (tmp_path / "users").read_text("utf-8") == "root:x:0:0"


def test_where_there_is_no_volume_the_command_that_makes_it_is_named(tmp_path: Path, gapless: Gapless) -> None:
    """Not that of the broker: its first user is made before it is started."""
    (tmp_path / "secret").write_text("x", "utf-8")

    refused = gapless("user", "add", "ada", "--path", tmp_path / "v", "--password-file", tmp_path / "secret", status=1)

    assert f"`gapless user add NAME --path {tmp_path / 'v'} --create`" in refused.stderr
