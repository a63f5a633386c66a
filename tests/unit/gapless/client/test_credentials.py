"""Passwords and tokens as applications give them: what is shown, what is kept to themselves, and what is refused."""

from __future__ import annotations

import asyncio
import copy
import functools
import pickle
import threading
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import gapless
from gapless import BearerToken, Password
from gapless.client.addresses import Login
from gapless.client.credentials import PASSWORD_FILE, SECRET_BYTES_MAX, asks, source_of
from gapless.core.client import Credentials
from gapless.core.principals import NO_CERTIFICATE, Admission, PeerInfo
from gapless.errors import AuthenticationError, ConfigurationError, RemoteProtocolError
from gapless.security.scram import Scram
from unit.gapless.client.guarded import row_of_user

SECRET = "S3CRET-of-ann"
TOKEN = "eyJhbGciOiJFUzI1NiJ9.S3CRET.sig_-"


async def first(source: Any, *, is_local: bool = True, secure: bool = False) -> bytes:
    credentials: Credentials = await source.ask(is_local=is_local)
    return credentials.first(b"", secure=secure)


# Passwords.


@pytest.mark.parametrize("from_file", [False, True], ids=["text", "file"])
async def test_a_password_proves_who_the_client_is_and_asks_the_broker_for_its_proof(
    from_file: bool,
    tmp_path: Path,
) -> None:
    (tmp_path / "pw").write_text(f"{SECRET}\n")
    source = Password.from_file("ann", tmp_path / "pw") if from_file else Password("ann", SECRET)
    credentials = await source.ask(is_local=False)
    judge: Any = Scram({"ann": row_of_user("ann", SECRET)}, b"secret", None).begin("", peer())

    said = credentials.first(b"", secure=False)
    for _ in range(2):
        with pytest.raises(RemoteProtocolError, match="without a proof"):
            credentials.check_welcome()
        said = credentials.answer(judge.answer(said))
    credentials.check_welcome()
    admitted = judge.answer(said)

    assert credentials.mechanism == "scram"
    assert isinstance(admitted, Admission)
    assert admitted.principal.name == "ann"


def peer() -> PeerInfo:
    return PeerInfo("x", NO_CERTIFICATE, secure=False, is_local=True, binding=b"")


async def test_a_broker_that_does_not_know_the_password_is_an_impostor() -> None:
    credentials = await Password("ann", SECRET).ask(is_local=False)
    judge: Any = Scram({"ann": row_of_user("ann", "another")}, b"secret", None).begin("", peer())
    proof = credentials.answer(judge.answer(credentials.first(b"", secure=False)))

    assert SECRET.encode() not in proof
    with pytest.raises(RemoteProtocolError):
        credentials.answer(b"v=" + b"A" * 43 + b"=")
    with pytest.raises(RemoteProtocolError, match="without a proof"):
        credentials.check_welcome()


@pytest.mark.parametrize("user", ["", "a\nb", "x" * 256, "\ud800", 7, None])
def test_a_user_has_a_name_that_can_be_printed(user: Any) -> None:
    with pytest.raises(ConfigurationError, match="the name of a user"):
        Password(user, SECRET)
    with pytest.raises(ConfigurationError, match="the name of a user"):
        Password.from_file(user, "pw")


@pytest.mark.parametrize(
    ("password", "problem"), [("", "is empty"), (7, "is a str, not int"), (SECRET + "\ud800", "half a surrogate pair")]
)
def test_what_is_no_password_is_not_shown(password: Any, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem) as error:
        Password("ann", password)

    assert "S3CRET" not in "".join(traceback.format_exception(error.value))


# Tokens.


async def a_token() -> str:
    return TOKEN


class Caller:
    """An object that is called, as SDKs of identity providers are."""

    def __call__(self) -> str:
        return TOKEN


class AsyncCaller:
    async def __call__(self) -> str:
        return TOKEN


SOURCES: dict[str, Any] = {
    "a text": TOKEN,
    "a function": lambda: TOKEN,
    "a coroutine function": a_token,
    "a function that returns a coroutine": lambda *_: a_token(),
    "a partial": functools.partial(str, TOKEN),
    "a partial of a coroutine function": functools.partial(a_token),
    "an object": Caller(),
    "an object whose call is a coroutine": AsyncCaller(),
    "a method": Caller().__call__,
    "a method that is a coroutine": AsyncCaller().__call__,
}


@pytest.mark.parametrize("name", SOURCES)
async def test_a_token_is_a_text_or_what_returns_one(name: str) -> None:
    source = BearerToken(SOURCES[name])

    credentials = await source.ask(is_local=True)
    assert credentials.mechanism == "token"
    assert credentials.first(b"hash", secure=True) == TOKEN.encode()
    credentials.check_welcome()
    with pytest.raises(RemoteProtocolError):
        credentials.answer(b"what?")
    assert "S3CRET" not in repr(source)


async def test_a_plain_callable_may_take_its_time_and_a_coroutine_function_runs_here() -> None:
    where: list[bool] = []

    def plain() -> str:
        where.append(threading.current_thread() is threading.main_thread())
        return TOKEN

    async def awaited() -> str:
        where.append(threading.current_thread() is threading.main_thread())
        return await asyncio.sleep(0, TOKEN)

    await BearerToken(plain).ask(is_local=True)
    await BearerToken(awaited).ask(is_local=True)

    assert where == [False, True]


async def test_each_link_has_a_new_token() -> None:
    count = iter(range(9))
    source = BearerToken(lambda: f"token-{next(count)}")

    assert [await first(source) for _ in range(3)] == [b"token-0", b"token-1", b"token-2"]


WRONG: dict[str, Any] = {
    "empty": "",
    "a space": "S3CRET x",
    "a line": "S3CRET\n",
    "not ASCII": "S3CRETé",
    "bytes": b"S3CRET",
}


@pytest.mark.parametrize("name", WRONG)
async def test_what_is_no_token_is_refused_and_not_shown(name: str) -> None:
    with pytest.raises(ConfigurationError, match="a bearer token") as given:
        BearerToken(WRONG[name])
    with pytest.raises(ConfigurationError, match="a bearer token") as returned:
        await BearerToken(lambda: WRONG[name]).ask(is_local=True)

    for error in (given.value, returned.value):
        assert "S3CRET" not in "".join(traceback.format_exception(error))


@pytest.mark.parametrize(
    ("is_local", "secure", "is_shown"),
    [(True, False, True), (False, True, True), (True, True, True), (False, False, False)],
)
async def test_a_token_is_shown_where_nobody_can_read_it_on_the_way(
    is_local: bool,
    secure: bool,
    is_shown: bool,
) -> None:
    if is_shown:
        assert await first(BearerToken(TOKEN), is_local=is_local, secure=secure) == TOKEN.encode()
        return
    with pytest.raises(AuthenticationError, match=r"use gapless\+tls://"):
        await first(BearerToken(TOKEN), is_local=is_local, secure=secure)


async def test_whether_it_is_local_is_asked_of_the_transport() -> None:
    ask = asks(BearerToken(TOKEN), lambda address: address == "here")

    assert (await ask("here")).first(b"", secure=False) == TOKEN.encode()
    with pytest.raises(AuthenticationError):
        (await ask("there")).first(b"", secure=False)


# Files.


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
async def test_a_file_is_read_for_each_link_and_a_line_break_at_its_end_is_none_of_it(end: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    source = BearerToken.from_file(file)
    found = []
    for token in ("one", "two"):
        file.write_bytes(f"{token}{end}".encode())
        found.append(await first(source))

    assert found == [b"one", b"two"]


def directory(path: Path) -> None:
    path.mkdir()


BAD_FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "absent": (lambda _path: None, "is not there"),
    "a directory": (directory, "is no file"),
    "empty": (lambda path: path.write_text(""), "no line"),
    "an empty line": (lambda path: path.write_text("\n"), "no line"),
    "two lines": (lambda path: path.write_text(f"{SECRET}\n{SECRET}\n"), "no line"),
    "no UTF-8": (lambda path: path.write_bytes(b"S3CRET\xff"), "no line"),
    "too long": (lambda path: path.write_text("S3CRET" * SECRET_BYTES_MAX), "no line"),
}


@pytest.mark.parametrize("name", BAD_FILES)
@pytest.mark.parametrize("make", [lambda path: Password.from_file("ann", path), BearerToken.from_file])
async def test_a_file_without_a_secret_is_told_by_its_name_alone(
    name: str, make: Callable[[Path], Any], tmp_path: Path
) -> None:
    write, problem = BAD_FILES[name]
    file = tmp_path / "secret"
    write(file)
    source = make(file)

    with pytest.raises(ConfigurationError, match=problem) as error:
        await source.ask(is_local=True)
    assert str(error.value).startswith(f"{file}, ")
    assert "S3CRET" not in "".join(traceback.format_exception(error.value))


async def test_a_file_that_may_not_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "secret"
    file.write_text(SECRET)

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ConfigurationError, match="cannot be read: Permission denied"):
        await first(BearerToken.from_file(file))


@pytest.mark.parametrize("file", ["", "\ud800"])
def test_a_file_has_a_name(file: str) -> None:
    with pytest.raises(ConfigurationError, match="has a name"):
        BearerToken.from_file(file)


# What is shown of them.

SHOWN: dict[str, tuple[Any, str]] = {
    "password": (Password("ann", SECRET), "Password('ann', …)"),
    "token": (BearerToken(TOKEN), "BearerToken(…)"),
    "a callable with a token in it": (BearerToken(functools.partial(str, TOKEN)), "BearerToken(…)"),
}


@pytest.mark.parametrize("name", SHOWN)
def test_no_secret_is_shown_or_pickled(name: str) -> None:
    source, shown = SHOWN[name]

    assert repr(source) == str(source) == f"{source}" == shown
    assert not hasattr(source, "__dict__")
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError, match="a secret is not pickled; what is made from_file"):
            pickle.dumps(source, protocol)
    with pytest.raises(TypeError, match="not pickled"):
        copy.deepcopy(source)


def test_what_names_a_file_is_pickled_with_the_name_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As what goes to the workers of a cluster; there the working directory is another one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret").write_text(SECRET)
    for source in (Password.from_file("ann", "secret"), BearerToken.from_file("secret")):
        data = pickle.dumps(source)
        assert b"S3CRET" not in data
        assert repr(pickle.loads(data)) == repr(source)
        assert str(tmp_path / "secret") in repr(source)


@pytest.mark.parametrize("name", SHOWN)
async def test_no_secret_is_in_what_a_link_has_of_it(name: str) -> None:
    source, _ = SHOWN[name]
    credentials = await source.ask(is_local=True)
    credentials.first(b"", secure=True)

    assert "S3CRET" not in repr(credentials)
    assert "S3CRET" not in repr(vars(credentials))
    with pytest.raises(TypeError):
        pickle.dumps(credentials)


async def test_no_secret_is_in_a_traceback_with_the_variables_of_its_frames() -> None:
    """As error reporters send them. The caller's own variables are the caller's."""

    async def fails() -> None:
        (await Password("ann", "S3CRET" + "\u0007").ask(is_local=True)).first(b"", secure=False)

    for call in (fails, lambda: first(BearerToken(TOKEN), is_local=False)):
        try:
            await call()
        except gapless.GaplessError as error:
            lines = traceback.TracebackException.from_exception(error, capture_locals=True).format()
            shown = [line for line in lines if "test_credentials.py" not in line]
            assert shown
            assert "S3CRET" not in "".join(shown)
        else:
            raise AssertionError("it should have failed")


# What `connect` makes of them.


def test_the_argument_or_the_address_says_the_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PASSWORD_FILE, raising=False)
    given = Password("ann", SECRET)
    file = str(tmp_path / "pw")

    assert source_of(None, None) is None
    assert source_of(None, given) is given
    assert source_of(Login("ann"), given) is given, "the address names the same user"
    assert repr(source_of(Login("ann", file), None)) == repr(Password.from_file("ann", file))
    assert repr(source_of(Login("", "", file), None)) == repr(BearerToken.from_file(file))


def test_the_environment_names_the_file_where_the_address_names_the_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PASSWORD_FILE, str(tmp_path / "pw"))

    assert repr(source_of(Login("ann"), None)) == repr(Password.from_file("ann", tmp_path / "pw"))
    assert repr(source_of(Login("ann", "/run/x"), None)) == repr(Password.from_file("ann", "/run/x"))
    assert repr(source_of(Login("", "", "/run/t"), None)) == repr(BearerToken.from_file("/run/t"))
    assert source_of(None, None) is None, "it makes nobody of a client that names no user"


@pytest.mark.parametrize(
    ("login", "given", "problem"),
    [
        (Login("ann"), None, "?password_file=FILE says in which file"),
        (Login("ann"), Password("bob", SECRET), "names a user or a file of its own"),
        (Login("ann", "/run/pw"), Password("ann", SECRET), "names a user or a file of its own"),
        (Login("ann"), BearerToken(TOKEN), "names a user or a file of its own"),
        (None, SECRET, "not str"),
        (None, ("ann", SECRET), "not tuple"),
        (None, lambda: SECRET, "not function"),
    ],
)
def test_credentials_are_given_once_and_are_some(
    login: Login | None, given: Any, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(PASSWORD_FILE, raising=False)
    with pytest.raises(ConfigurationError) as error:
        source_of(login, given)

    assert problem in str(error.value)
    assert "S3CRET" not in str(error.value)


def test_a_source_of_somebody_elses_is_taken() -> None:
    """An authenticator of a plugin may need credentials of another kind."""

    class Own:
        def ask(self, *, is_local: bool) -> Awaitable[Credentials]:
            raise NotImplementedError

    own: Any = Own()
    assert source_of(None, own) is own
