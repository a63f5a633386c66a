"""Passwords: SCRAM-SHA-256 (RFC 5802, RFC 7677), both sides of it, and what makes trying passwords slow.

    client ── Hello: n, nonce ──────────────▶ broker       who it says it is
           ◀── challenge: nonce, salt, count ──
           ── proof ────────────────────────▶              that it knows the password
           ◀── challenge: signature ───────────            that the broker knows what is kept of it
           ── nothing ──────────────────────▶
           ◀── Welcome ────────────────────────

Where the link is TLS, the proof is bound to the certificate that the client was shown (RFC 5929, tls-server-end-point):
whoever stands between, with another certificate, cannot pass it on. Client and broker both say what they could do, so
nobody between them strips it.

Whoever asks for a user that is not there gets the same answers as for one that is, in the same time.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Any, Final, NoReturn

from scramp import ScramClient as ClientSide
from scramp import ScramException

from gapless.core.alarms import Alarm
from gapless.core.ports import AuthContext, Authentication, Authenticator
from gapless.core.principals import Admission, Judgement, Later, PeerInfo, Principal, Refusal
from gapless.core.server.complaints import host_of
from gapless.core.server.users import UserRow, row_of, verifier_of
from gapless.core.wire.messages import Verifier
from gapless.core.wire.messages.users import ITERATIONS_MAX, KEY_BYTES, user_name_problem
from gapless.errors import ConfigurationError, RemoteProtocolError
from gapless.plugins import hookimpl
from gapless.security.users import (
    ITERATIONS,
    MECHANISM,
    SALT_BYTES,
    UsersFile,
    prepared_name,
    prepared_password,
)

BINDING: Final = "tls-server-end-point"
MESSAGE_BYTES_MAX: Final = 1280
"""No message of SCRAM is longer here: the longest name, with all its characters written as three, has 765."""
NONCE_BYTES: Final = 24
SECOND: Final = 1_000_000_000
FAILURES_FREE: Final = 5
"""So often a host, or a user, may fail before its answers are delayed."""
DELAY_MOST: Final = 30 * SECOND
FORGOTTEN: Final = 15 * 60 * SECOND
"""So long after the last failure all of them are forgotten."""
FAILURES_KEPT: Final = 4096
"""Of so many hosts, and of so many users, failures are remembered: those that failed last."""
FIRST: Final = re.compile("(?:n|y|p=[A-Za-z0-9.-]+),,n=[^,\\0]+,r=[!-+\\--~]+")
PROOF: Final = re.compile("c=[A-Za-z0-9+/=]+,r=[!-+\\--~]+,p=[A-Za-z0-9+/=]+")
"""The forms of the two messages. There are no extensions here, and no other order: whatever scramp would take."""
MALFORMED: Final = "a message that is not as it should be"
NO_SUCH_USER: Final = "there is no such user"
WRONG_PASSWORD: Final = "the password is wrong"
_ANY_ROW: Final = UserRow(Verifier(bytes(SALT_BYTES), ITERATIONS, bytes(KEY_BYTES), bytes(KEY_BYTES)), (), 0).stored
"""What is looked at where there is no row, because that takes time."""


def new_nonce() -> str:
    """Draws a nonce."""
    return secrets.token_urlsafe(NONCE_BYTES)


# --------------------------------------------------------------------------------------- the broker


class Scram:
    """Knows users by what is kept of their passwords."""

    mechanism = "scram"
    trusted = True
    needs_certificate = False

    def __init__(self, rows: Mapping[str, bytes], secret: bytes, failures: Failures | None) -> None:
        """`failures`: None if answers are never delayed."""
        self.rows = rows
        self.failures = failures
        self._secret = secret

    def begin(self, client_id: str, peer: PeerInfo) -> Authentication | None:
        """A client is going to say who it is."""
        return ScramExchange(self, peer)

    def troubles(self) -> Sequence[Alarm]:
        """What is wrong with the file of users, if they are in one; see `gapless.spi.TellsTroubles`."""
        return self.rows.troubles() if isinstance(self.rows, UsersFile) else ()

    def decoy(self, name: str) -> Verifier:
        """What a user that is not there is verified by: always the same for one name, and right for no password."""
        drawn = hmac.digest(self._secret, b"gapless scram decoy\0" + name.encode(), "sha512")
        return Verifier(drawn[:SALT_BYTES], ITERATIONS, drawn[-KEY_BYTES:], drawn[:KEY_BYTES])


class ScramExchange:
    """A client proves that it knows a password, on one link."""

    __slots__ = ("_host", "_name", "_scram", "_server", "_step", "_stored")

    def __init__(self, scram: Scram, peer: PeerInfo) -> None:
        self._scram = scram
        self._host = host_key(peer.address)
        self._name = ""
        self._stored: bytes | None = None
        """The row that it was begun with; None: there is no such user."""
        binding = (BINDING, peer.binding) if peer.binding else None
        self._server = MECHANISM.make_server(self._verifier, channel_binding=binding, s_nonce=new_nonce())
        self._step: Callable[[str], Judgement] = self._on_first

    def answer(self, credentials: bytes) -> Judgement:
        """Judges the next message of the client. After a refusal, every further one is refused."""
        step, self._step = self._step, self._on_more
        if len(credentials) > MESSAGE_BYTES_MAX:
            return self._refused(f"a message of {len(credentials):,} bytes, where {MESSAGE_BYTES_MAX:,} are enough")
        try:
            return step(credentials.decode())
        except UnicodeDecodeError:
            return self._refused("a message that is no text")
        except ScramException as error:
            return self._refused(self._why(error))

    def _on_first(self, message: str) -> Judgement:
        if FIRST.fullmatch(message) is None:
            return self._refused(MALFORMED)
        self._server.set_client_first(message)
        self._step = self._on_proof
        challenge: str = self._server.get_server_first()
        return challenge.encode()

    def _on_proof(self, message: str) -> Judgement:
        if PROOF.fullmatch(message) is None:
            return self._refused(MALFORMED)
        self._server.set_client_final(message)
        if self._stored is None:
            return self._refused(NO_SUCH_USER)
        self._step = self._on_last
        signature: str = self._server.get_server_final()
        failures = self._scram.failures
        if failures is None:
            return signature.encode()
        wait = failures.wait(self._host, self._name)
        failures.forget(self._name)
        return Later(wait, signature.encode()) if wait else signature.encode()

    def _on_last(self, message: str) -> Judgement:
        """The client has seen that the broker knows its password, too."""
        if message:
            return self._refused("a message where none is due")
        stored = self._scram.rows.get(self._name)
        if stored is None or self._stored is None or verifier_of(stored) != verifier_of(self._stored):
            return self._refused("it was removed, or its password was changed, while it proved who it is")
        return Admission(Principal(self._name, frozenset(row_of(self._name, stored).groups)), None)

    def _on_more(self, _message: str) -> Judgement:
        return self._refused("a message after the last one")

    def _verifier(self, name: str) -> tuple[bytes, bytes, bytes, int] | None:
        """What a user is verified by; None: nobody can be called so.

        Everything is done for every name, so that the time tells nothing.
        """
        if user_name_problem(name):
            return None
        self._name = name
        decoy = self._scram.decoy(name)
        self._stored = self._scram.rows.get(name)
        known = verifier_of(_ANY_ROW if self._stored is None else self._stored)
        verifier = decoy if self._stored is None else known
        return verifier.salt, verifier.stored_key, verifier.server_key, verifier.iterations

    def _why(self, error: ScramException) -> str:
        """Why a message is refused. Nothing of the message is in it."""
        said = getattr(error.server_error, "value", error.server_error)  # older versions of scramp have texts there
        if said == "invalid-proof":
            return NO_SUCH_USER if self._stored is None else WRONG_PASSWORD
        return f"{MALFORMED} ({said})" if said else MALFORMED

    def _refused(self, why: str) -> Judgement:
        """The reason names the user, as far as it is known. A failure counts before it is waited for."""
        refusal = Refusal(f"scram: user {self._name!a}: {why}" if self._name else f"scram: {why}")
        failures = self._scram.failures
        if failures is None:
            return refusal
        wait = failures.wait(self._host, self._name)
        failures.count(self._host, self._name)
        return Later(wait, refusal) if wait else refusal


class Failures:
    """How often clients of a host, and of a user, have failed lately, and how long their answers are delayed for it.

    It remembers a bounded number of each. A user is one also if there is none of that name.
    """

    def __init__(self, now: Callable[[], int]) -> None:
        """`now`: monotonic nanoseconds."""
        self._now = now
        self._hosts: OrderedDict[str, tuple[int, int]] = OrderedDict()
        """For each how often, and when last; the last one is the one that failed last."""
        self._users: OrderedDict[str, tuple[int, int]] = OrderedDict()

    @property
    def remembered(self) -> int:
        """Of how many hosts and users together it remembers something."""
        return len(self._hosts) + len(self._users)

    def wait(self, host: str, user: str) -> int:
        """Returns for how many nanoseconds the next answer is delayed."""
        most = max(self._times(self._hosts, host), self._times(self._users, user))
        return 0 if most < FAILURES_FREE else min(DELAY_MOST, SECOND << min(most - FAILURES_FREE, 5))

    def count(self, host: str, user: str) -> None:
        """A client has failed. `user`: "" if it has not said who it is."""
        self._count(self._hosts, host)
        if user:
            self._count(self._users, user)

    def forget(self, user: str) -> None:
        """The user has succeeded. The host has not: others may try there."""
        self._users.pop(user, None)

    def _times(self, kept: OrderedDict[str, tuple[int, int]], key: str) -> int:
        times, last = kept.get(key, (0, 0))
        return times if self._now() - last < FORGOTTEN else 0

    def _count(self, kept: OrderedDict[str, tuple[int, int]], key: str) -> None:
        kept[key] = self._times(kept, key) + 1, self._now()
        kept.move_to_end(key)
        if len(kept) > FAILURES_KEPT:
            kept.popitem(last=False)


def host_key(address: str) -> str:
    """What of the address of a peer is one host: of IPv6 the first 64 bits, of which a machine has all the others."""
    host = host_of(address)
    try:
        found = ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return host
    if not isinstance(found, IPv6Address):
        return host
    return str(found.ipv4_mapped or IPv6Address(int(found) >> 64 << 64))


# --------------------------------------------------------------------------------------- the client


class ScramClient:
    """The client's side, on one link."""

    __slots__ = ("_client", "_step", "is_proved")

    def __init__(self, user: str, password: str, binding: bytes, *, secure: bool) -> None:
        """`binding`: as in `PeerInfo`; `secure`: whether the link is encrypted, or never leaves the process.

        Raises ConfigurationError if the user can have no such name, or no such password.
        """
        bound = (BINDING, binding) if binding else None
        # A mechanism without binding, and something to bind to: so scramp says that it could, and the broker could not.
        offered = bound or ((BINDING, b"none") if secure else None)
        mechanism = f"{MECHANISM.name}-PLUS" if bound else MECHANISM.name
        self._client = ClientSide(
            [mechanism],
            prepared_name(user),
            prepared_password(password),
            channel_binding=offered,
            c_nonce=new_nonce(),
        )
        self._step: Callable[[str], bytes] = self._on_salt
        self.is_proved = False
        """Whether the broker has proved that it knows the user: before that, a Welcome is an impostor's."""

    def __repr__(self) -> str:
        return "ScramClient(…)"  # never the password

    def __reduce__(self) -> NoReturn:
        raise TypeError("credentials are not pickled")

    def first(self) -> bytes:
        """Returns what the Hello says; called once."""
        message: str = self._client.get_client_first()
        return message.encode()

    def answer(self, challenge: bytes) -> bytes:
        """Returns the answer to a challenge.

        Raises RemoteProtocolError if the broker breaks the protocol, or does not know the password: an impostor.
        """
        step, self._step = self._step, self._on_more
        if len(challenge) > MESSAGE_BYTES_MAX:
            raise RemoteProtocolError("the broker's challenge is longer than any")
        try:
            return step(challenge.decode())
        except (ScramException, UnicodeDecodeError):
            raise RemoteProtocolError("the broker's challenge is no message of SCRAM that is due here") from None

    def _on_salt(self, challenge: str) -> bytes:
        self._client.set_server_first(challenge)
        if int(self._client.iterations) > ITERATIONS_MAX:
            raise RemoteProtocolError(f"the broker wants the password hashed more than {ITERATIONS_MAX:,} times")
        self._step = self._on_signature
        message: str = self._client.get_client_final()
        return message.encode()

    def _on_signature(self, challenge: str) -> bytes:
        try:
            self._client.set_server_final(challenge)
        except ScramException:
            raise RemoteProtocolError("the broker does not know the password, and is none of ours") from None
        self.is_proved = True
        return b""

    def _on_more(self, _challenge: str) -> bytes:
        raise RemoteProtocolError("the broker has no more to ask")


# --------------------------------------------------------------------------------------- the plugin


@hookimpl
def open_auth(options: Mapping[str, Any], context: AuthContext) -> Authenticator:
    """The authenticator, with the users of the volume or those of a file."""
    for name in options:
        if name not in {"users", "delays"}:
            raise ConfigurationError(f"the authenticator 'scram' has no option {name!r}; it has 'users' and 'delays'")
    file, delays = options.get("users", ""), options.get("delays", True)
    if not isinstance(file, str):
        raise ConfigurationError(f"users: the name of a file, not {type(file).__name__}")
    if not isinstance(delays, bool):
        raise ConfigurationError(f"delays: true or false, not {type(delays).__name__}")
    rows = UsersFile(Path(file), context.now, context.end) if file else context.rows
    return Scram(rows, context.secret, Failures(context.now) if delays else None)
