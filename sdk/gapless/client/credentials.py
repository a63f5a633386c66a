"""What an application gives to `connect` so that a broker knows who it is: a password, or a bearer token.

A secret is in the object alone: not in its `repr`, and it cannot be pickled. What is made `from_file` has the name of a
file and no secret; that can be pickled, and reads the file anew for each link.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, TypeAlias, runtime_checkable

from gapless.client.options import check_name
from gapless.core.client import Credentials, NoCredentials
from gapless.errors import AuthenticationError, ConfigurationError, GaplessError, RemoteProtocolError
from gapless.texts import text_problem

if TYPE_CHECKING:
    from gapless.client.addresses import Login
    from gapless.security.scram import ScramClient

TokenSource: TypeAlias = "Callable[[], str | Awaitable[str]]"
"""Returns a token that is valid for some time: asked before each try to connect, and when the one before expires."""
PASSWORD_FILE: Final = "GAPLESS_PASSWORD_FILE"
"""The environment variable that names the file with the password of the user in the address."""
SECRET_BYTES_MAX: Final = 4096
"""No longer secret in a file: it would not fit into what a broker reads of a stranger."""


@runtime_checkable
class CredentialSource(Protocol):
    """Makes credentials, new ones for each link: what `connect` takes, whatever kind of authenticator it is for."""

    async def ask(self, *, is_local: bool) -> Credentials:
        """Returns the credentials for a link to a broker. `is_local`: whether it never leaves this machine.

        Raises ConfigurationError if that cannot be mended by trying again.
        """


AskCredentials: TypeAlias = "Callable[[str], Awaitable[Credentials]]"
"""Returns the credentials for a link to an address."""


class Password:
    """A user with a password: the broker proves that it knows the user, too, and never learns the password."""

    __slots__ = ("_file", "_password", "user")

    def __init__(self, user: str, password: str) -> None:
        """Raises ConfigurationError."""
        self.user = _checked_user(user)
        self._file = ""
        self._password = password
        del password  # whoever shows the variables of a traceback shows no secret
        if problem := text_problem(self._password):
            self._password = ""
            raise ConfigurationError(f"a password {problem.split(',')[0]}")
        if not self._password:
            raise ConfigurationError("the password is empty")

    @classmethod
    def from_file(cls, user: str, file: str | os.PathLike[str]) -> Password:
        """The password is in a file, which is read for each link; a line break at its end does not belong to it."""
        made = cls.__new__(cls)
        made.user = _checked_user(user)
        made._password = ""
        made._file = _checked_file(file)
        return made

    def __repr__(self) -> str:
        return f"Password.from_file({self.user!r}, {self._file!r})" if self._file else f"Password({self.user!r}, …)"

    def __reduce__(self) -> tuple[Any, ...]:
        return _file_alone(self, Password.from_file, (self.user, self._file))

    async def ask(self, *, is_local: bool) -> Credentials:
        """Returns the credentials for a link."""
        return ScramCredentials(self.user, _read(self._file) if self._file else _Secret(self._password))


class BearerToken:
    """A token that says itself who shows it, made by somebody whom the broker trusts.

    It is shown on links with TLS alone, and on those that never leave this machine.
    """

    __slots__ = ("_file", "_source", "_token")

    def __init__(self, token: str | TokenSource) -> None:
        """`token`: a text; or what returns one, which is called in a thread, or is a coroutine function.

        Raises ConfigurationError.
        """
        self._file = ""
        self._token = _Secret("")
        self._source: TokenSource | None = None
        if callable(token):
            self._source = token
            return
        self._token = _Secret(token)
        del token
        self._token = _checked_token(self._token)

    @classmethod
    def from_file(cls, file: str | os.PathLike[str]) -> BearerToken:
        """The token is in a file, which is read for each link: whoever renews the token writes the file anew."""
        made = cls.__new__(cls)
        made._token = _Secret("")
        made._source = None
        made._file = _checked_file(file)
        return made

    def __repr__(self) -> str:
        return f"BearerToken.from_file({self._file!r})" if self._file else "BearerToken(…)"

    def __reduce__(self) -> tuple[Any, ...]:
        return _file_alone(self, BearerToken.from_file, (self._file,))

    async def ask(self, *, is_local: bool) -> Credentials:
        """Returns the credentials for a link, or for a session that would expire."""
        token = self._token
        if self._file:
            token = _checked_token(_read(self._file))
        elif self._source is not None:
            token = _checked_token(await _called(self._source))
        return TokenCredentials(token, is_local=is_local)


class ScramCredentials:
    """A password, on one link: by SCRAM-SHA-256, in which the broker has to prove that it knows the user."""

    mechanism: Final = "scram"

    def __init__(self, user: str, password: _Secret) -> None:
        self._user = user
        self._password = password
        self._client: ScramClient | None = None
        self._is_proved = False

    def first(self, binding: bytes, *, secure: bool) -> bytes:
        """Returns the user's name, and something random."""
        from gapless.security.scram import ScramClient

        self._client = ScramClient(self._user, self._password.text, binding, secure)
        self._password = _Secret("")
        return self._client.first()

    def answer(self, challenge: bytes) -> bytes:
        """Returns the proof; to the broker's own nothing. Raises RemoteProtocolError for an impostor."""
        assert self._client is not None
        if self._is_proved:
            raise RemoteProtocolError("the broker goes on asking who this is, after it was told")
        answer = self._client.answer(challenge)
        self._is_proved = not answer
        return answer

    def check_welcome(self) -> None:
        """Raises RemoteProtocolError if the broker has not proved that it knows the user."""
        if not self._is_proved:
            raise RemoteProtocolError("the broker lets this client in without a proof that it knows its user")


class TokenCredentials(NoCredentials):
    """A bearer token, on one link."""

    mechanism = "token"

    def __init__(self, token: _Secret, *, is_local: bool) -> None:
        self._token = token
        self._is_local = is_local

    def first(self, _binding: bytes, *, secure: bool) -> bytes:
        """Returns the token. Raises AuthenticationError if others could read it on the way."""
        if not secure and not self._is_local:
            raise AuthenticationError(
                "a bearer token is not shown on a link that others can read: use gapless+tls://, or a broker on this"
                " machine"
            )
        return self._token.text.encode()


def source_of(login: Login | None, given: CredentialSource | None) -> CredentialSource | None:
    """Returns whoever says the credentials: the argument of `connect`, or what the address names; None: nobody does.

    Raises ConfigurationError.
    """
    if given is not None and not isinstance(given, CredentialSource):
        kind = type(given).__name__
        raise ConfigurationError(f"credentials is a gapless.Password or a gapless.BearerToken, not {kind}")
    if login is None:
        return given
    if given is not None:
        raise ConfigurationError("the credentials are given, and the address names a user or a file of its own, too")
    if login.token_file:
        return BearerToken.from_file(login.token_file)
    file = login.password_file or os.environ.get(PASSWORD_FILE, "")
    if not file:
        raise ConfigurationError(
            f"the address names the user {login.user!r} and no password: ?password_file=FILE says in which file it is,"
            f" or {PASSWORD_FILE} in the environment; programs give credentials=gapless.Password(user, password)"
        )
    return Password.from_file(login.user, file)


def asks(source: CredentialSource, is_local: Callable[[str], bool]) -> AskCredentials:
    """Returns what asks for credentials. `is_local`: whether an address is of this machine."""
    return lambda address: source.ask(is_local=is_local(address))


class _Secret:
    """A text that is shown nowhere."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return "…"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not pickled")


def _file_alone(made: Password | BearerToken, make: Callable[..., Any], arguments: tuple[str, ...]) -> tuple[Any, ...]:
    """What is pickled of credentials. Raises TypeError if they are not in a file."""
    if not arguments[-1]:
        kind = type(made).__name__
        raise TypeError(f"{made!r} is not pickled, for it has a secret in it; use {kind}.from_file, which names a file")
    return make, arguments


def _checked_user(user: str) -> str:
    return check_name(user, "the name of a user")


def _checked_file(file: str | os.PathLike[str]) -> str:
    """Returns the whole path: it may be read in another process, or after a change of the directory."""
    named = os.fspath(file)
    if text_problem(named) or not named:
        raise ConfigurationError(f"a file with a password or a token has a name, not {named!r}")
    return str(Path(named).expanduser().absolute())


def _read(file: str) -> _Secret:
    """Returns the text of a file, without the line break at its end. Raises ConfigurationError."""
    path, problem = Path(file), ""
    try:
        if not path.is_file():
            problem = "is no file" if path.exists() else "is not there"
        else:
            with path.open("rb") as opened:
                secret = _decoded(opened.read(SECRET_BYTES_MAX + 1))
            if secret is not None:
                return secret
            problem = f"has no line of UTF-8 in it that is a secret of at most {SECRET_BYTES_MAX:,} bytes"
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}"
    raise ConfigurationError(f"{file}, which is to have the credentials in it, {problem}")


def _decoded(content: bytes) -> _Secret | None:
    """Returns a secret if it is the only line of a file."""
    try:
        secret = _Secret(content.decode())
    except UnicodeDecodeError:
        return None
    secret.text = secret.text.removesuffix("\n").removesuffix("\r")
    is_line = secret.text and len(content) <= SECRET_BYTES_MAX and "\n" not in secret.text
    return secret if is_line else None


def _checked_token(token: _Secret) -> _Secret:
    """Raises ConfigurationError for what is no token of any kind."""
    text = token.text
    if not isinstance(text, str):
        kind = type(text).__name__
        del text
        raise ConfigurationError(f"a bearer token is a str, not {kind}")
    is_wrong = not text or not text.isascii() or not text.isprintable() or " " in text
    del text
    if is_wrong:
        raise ConfigurationError("a bearer token has letters, digits and punctuation of ASCII alone, and at least one")
    return token


async def _called(source: TokenSource) -> _Secret:
    """Returns what an application's callable returns. A plain one may take its time: it has a thread."""
    if inspect.iscoroutinefunction(source) or inspect.iscoroutinefunction(getattr(source, "__call__", None)):  # noqa: B004 - of an object with such a method
        returned: Any = source()
    else:
        returned = await asyncio.to_thread(partial(source))
    return _Secret(await returned if inspect.isawaitable(returned) else returned)


def reason_of(error: Exception) -> str:
    """What is told of an exception that came instead of credentials."""
    return str(error) if isinstance(error, GaplessError) else f"{type(error).__name__}: {error}".removesuffix(": ")
