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

from typing_extensions import Self

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
NOT_PICKLED: Final = "a secret is not pickled; what is made from_file names the file that it is in, and can be"


@runtime_checkable
class CredentialSource(Protocol):
    """Makes credentials, new ones for each link: what `connect` takes, whatever kind of authenticator it is for."""

    async def ask(self, *, is_local: bool) -> Credentials:
        """Returns the credentials for a link to a broker. `is_local`: whether it never leaves this machine.

        Raises ConfigurationError if that cannot be mended by trying again.
        """


AskCredentials: TypeAlias = "Callable[[str], Awaitable[Credentials]]"
"""Returns the credentials for a link to an address."""


class SecretFile:
    """A file with a secret in it, which is read when it is needed: whoever changes the secret writes the file anew."""

    __slots__ = ("path",)

    def __init__(self, file: str | os.PathLike[str]) -> None:
        """Raises ConfigurationError."""
        named = os.fspath(file)
        if text_problem(named) or not named:
            raise ConfigurationError(f"a file with a password or a token has a name, not {named!r}")
        self.path = str(Path(named).expanduser().absolute())  # it may be read in another process, or another directory

    def __repr__(self) -> str:
        return repr(self.path)

    def __reduce__(self) -> tuple[Any, ...]:
        return SecretFile, (self.path,)

    def read(self) -> Secret:
        """Returns its only line, without the line break. Raises ConfigurationError."""
        path = Path(self.path)
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
        raise ConfigurationError(f"{self.path}, which is to have the credentials in it, {problem}")


class Secret:
    """A text that is shown nowhere, and goes nowhere."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return "…"

    def __reduce__(self) -> NoReturn:
        raise TypeError(NOT_PICKLED)

    def read(self) -> Secret:
        """Returns itself, as a file returns what is in it."""
        return self


class Password:
    """A user with a password: the broker proves that it knows the user, too, and never learns the password."""

    __slots__ = ("_password", "user")

    def __init__(self, user: str, password: str | SecretFile) -> None:
        """`password`: a text; see `from_file`. Raises ConfigurationError."""
        self.user = check_name(user, "the name of a user")
        self._password = password if isinstance(password, SecretFile) else Secret(password)
        del password  # whoever shows the variables of a traceback shows no secret
        if isinstance(self._password, Secret):
            _check_password(self._password)

    @classmethod
    def from_file(cls, user: str, file: str | os.PathLike[str]) -> Self:
        """The password is in a file, which is read for each link."""
        return cls(user, SecretFile(file))

    def __repr__(self) -> str:
        return f"Password({self.user!r}, {self._password!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.user, self._password)

    async def ask(self, *, is_local: bool) -> Credentials:
        """Returns the credentials for a link."""
        from gapless.security import scram  # now: once there is a link, the broker waits

        return ScramCredentials(self.user, self._password.read(), scram.ScramClient)


class BearerToken:
    """A token that says itself who shows it, made by somebody whom the broker trusts.

    It is shown on links with TLS alone, and on those that never leave this machine.
    """

    __slots__ = ("_token",)

    def __init__(self, token: str | TokenSource | SecretFile) -> None:
        """`token`: a text, or what returns one: a plain callable, which has a thread, or a coroutine function.

        See `from_file`, too. Raises ConfigurationError.
        """
        is_text = not callable(token) and not isinstance(token, SecretFile)
        self._token: Secret | SecretFile | TokenSource = Secret(token) if is_text else token  # type: ignore[arg-type, assignment]
        del token
        if isinstance(self._token, Secret):
            _check_token(self._token)

    @classmethod
    def from_file(cls, file: str | os.PathLike[str]) -> Self:
        """The token is in a file, which is read for each link: whoever renews the token writes the file anew."""
        return cls(SecretFile(file))

    def __repr__(self) -> str:
        return f"BearerToken({self._token!r})" if isinstance(self._token, SecretFile) else "BearerToken(…)"

    def __reduce__(self) -> tuple[Any, ...]:
        if not isinstance(self._token, SecretFile):
            raise TypeError(NOT_PICKLED)  # nobody knows what is in a callable
        return type(self), (self._token,)

    async def ask(self, *, is_local: bool) -> Credentials:
        """Returns the credentials for a link, or for a session that would expire."""
        token = self._token
        found = token.read() if isinstance(token, (Secret, SecretFile)) else await _called(token)
        _check_token(found)
        return TokenCredentials(found, is_local=is_local)


class ScramCredentials:
    """A password, on one link: by SCRAM-SHA-256, in which the broker has to prove that it knows the user."""

    mechanism: Final = "scram"

    def __init__(self, user: str, password: Secret, begin: type[ScramClient]) -> None:
        self._user = user
        self._password = password
        self._begin = begin
        self._client: ScramClient | None = None

    def first(self, binding: bytes, *, secure: bool) -> bytes:
        """Returns the user's name, and something random. Raises ConfigurationError: nobody can have such a password."""
        try:
            self._client = self._begin(self._user, self._password.text, binding, secure=secure)
        except ConfigurationError as error:
            problem = str(error)
        else:
            return self._client.first()
        raise ConfigurationError(problem)  # without the frames below, in whose variables the password is

    def answer(self, challenge: bytes) -> bytes:
        """Returns the proof; to the broker's own nothing. Raises RemoteProtocolError for an impostor."""
        assert self._client is not None
        return self._client.answer(challenge)

    def check_welcome(self) -> None:
        """Raises RemoteProtocolError if the broker has not proved that it knows the user."""
        if self._client is None or not self._client.is_proved:
            raise RemoteProtocolError("the broker lets this client in without a proof that it knows its user")


class TokenCredentials(NoCredentials):
    """A bearer token, on one link."""

    mechanism = "token"

    def __init__(self, token: Secret, *, is_local: bool) -> None:
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


def source_of(login: Login | None, given: object) -> CredentialSource | None:
    """Returns whoever says the credentials: the argument of `connect`, or what the address names; None: nobody does.

    Raises ConfigurationError.
    """
    if given is not None and not isinstance(given, CredentialSource):
        kind = type(given).__name__
        raise ConfigurationError(f"credentials is a gapless.Password or a gapless.BearerToken, not {kind}")
    if login is None:
        return given
    if given is not None:
        if login.user == getattr(given, "user", None) and not login.password_file:
            return given
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


def _without_characters(problem: str) -> str:
    """A problem of a text, without the character that it shows."""
    return "holds half a surrogate pair" if "surrogate" in problem else problem


def _check_password(password: Secret) -> None:
    if problem := text_problem(password.text):
        raise ConfigurationError(f"a password {_without_characters(problem)}")
    if not password.text:
        raise ConfigurationError("the password is empty")


def _check_token(token: Secret) -> None:
    """Raises ConfigurationError for what is no token of any kind."""
    if problem := text_problem(token.text):
        raise ConfigurationError(f"a bearer token {_without_characters(problem)}")
    if not token.text.isascii() or not token.text.isprintable() or " " in token.text or not token.text:
        raise ConfigurationError("a bearer token has letters, digits and punctuation of ASCII alone, and at least one")


def _decoded(content: bytes) -> Secret | None:
    """Returns a secret if it is the only line of a file."""
    try:
        secret = Secret(content.decode())
    except UnicodeDecodeError:
        return None
    secret.text = secret.text.removesuffix("\n").removesuffix("\r")
    is_line = secret.text and len(content) <= SECRET_BYTES_MAX and "\n" not in secret.text
    return secret if is_line else None


async def _called(source: TokenSource) -> Secret:
    """Returns what an application's callable returns. A plain one may take its time: it has a thread."""
    call = source if inspect.isroutine(source) or isinstance(source, partial) else type(source).__call__
    returned: Any = source() if inspect.iscoroutinefunction(call) else await asyncio.to_thread(source)
    return Secret(await returned if inspect.isawaitable(returned) else returned)


def reason_of(error: Exception) -> str:
    """What is told of an exception that came instead of credentials."""
    return str(error) if isinstance(error, GaplessError) else f"{type(error).__name__}: {error}".removesuffix(": ")
