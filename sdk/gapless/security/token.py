"""The authenticator `token`: bearer tokens, signed by somebody whose public keys are in a file (RFC 7519, 7517).

Whoever has such a token is the one that it names, until it expires. So it goes through TLS alone: a listener beyond
loopback has that. Nobody is asked over the network: the keys are a JWKS file, which is read again when it changes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import jwt
from pydantic import Field, field_validator

from gapless.core.alarms import Alarm, AlarmCode
from gapless.core.ports import AuthContext, Authentication, Authenticator
from gapless.core.principals import Admission, Judgement, PeerInfo, Principal, Refusal
from gapless.errors import ConfigurationError
from gapless.plugins import hookimpl
from gapless.security.names import GROUPS_MAX, group_problem, user_problem
from gapless.settings import Section, parsed

WHERE: Final = "authenticator 'token'"
MECHANISM: Final = "token"
SKEW: Final = 60
"""Seconds by which the clocks of this broker and of whoever made the token may differ."""
LOOK_EVERY: Final = 1_000_000_000
"""Nanoseconds: so often at most it is looked whether the file has changed."""
FAMILIES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "RSA"),
    **dict.fromkeys(("ES256", "ES384", "ES512"), "EC"),
    "EdDSA": "OKP",
    **dict.fromkeys(("HS256", "HS384", "HS512"), "oct"),
}
"""The algorithms, and of which type a key for each is."""


class TokenOptions(Section):
    """Which tokens are taken."""

    jwks: Path
    """The file with the keys."""
    issuer: str = Field(min_length=1)
    audience: str = Field(min_length=1)
    algorithms: tuple[str, ...] = Field(min_length=1)
    """All of one family, so that no public key is taken for a shared secret."""
    principal: str = "sub"
    """The claim with the name of the principal."""
    groups: str = ""
    """The claim with the names of its groups, a list; "": there are none."""

    @field_validator("algorithms")
    @classmethod
    def _of_one_family(cls, algorithms: tuple[str, ...]) -> tuple[str, ...]:
        unknown = [name for name in algorithms if name not in FAMILIES]
        if unknown:
            raise ValueError(f"there is no algorithm {unknown[0]!r}; there are {', '.join(FAMILIES)}")
        if len({FAMILIES[name] for name in algorithms}) > 1:
            raise ValueError("they are of different families; list those of one kind of keys")
        return algorithms


class Keys:
    """The keys in the file. While there is no file, there is none; what cannot be read leaves the former ones."""

    def __init__(self, path: Path, family: str) -> None:
        self._path = path
        self._family = family
        self._read: tuple[int, int, int] | None = None
        """What the file looked like when it was read last."""
        self._keys: Sequence[jwt.PyJWK] = ()
        self.trouble = ""
        """Why the file cannot be used as it is."""

    def look(self) -> None:
        """Reads the file if it has changed."""
        try:
            stat = self._path.stat()
            looks = stat.st_mtime_ns, stat.st_size, stat.st_ino
            if looks != self._read:
                self._read = looks
                self._keys = self._parsed(self._path.read_bytes())
                self.trouble = ""
        except OSError as error:
            self._read, self._keys = None, ()
            self.trouble = f"{self._path}: cannot be read: {error.strerror}"
        except (ValueError, TypeError, KeyError, AttributeError, jwt.PyJWTError) as error:
            self.trouble = f"{self._path}: is no JWKS with keys of type {self._family}: {type(error).__name__}"

    def _parsed(self, raw: bytes) -> Sequence[jwt.PyJWK]:
        found = [
            jwt.PyJWK.from_dict(key)
            for key in json.loads(raw)["keys"]
            if key.get("kty") == self._family and key.get("use", "sig") == "sig"
        ]
        if not found:
            raise ValueError("no key")
        return found

    def of(self, key_id: str | None) -> Sequence[jwt.PyJWK]:
        """The keys that may have signed a token that names this one, or none."""
        return [key for key in self._keys if key_id is None or key.key_id == key_id]


class TokenAuthenticator:
    """Knows whoever has a token."""

    mechanism = MECHANISM
    trusted = True
    needs_certificate = False

    def __init__(self, options: TokenOptions, context: AuthContext) -> None:
        """Raises ConfigurationError if the keys cannot be read."""
        self._options = options
        self._context = context
        self._keys = Keys(options.jwks, FAMILIES[options.algorithms[0]])
        self._keys.look()
        self._looked_at = context.now()
        if self._keys.trouble:
            raise ConfigurationError(f"{WHERE}: jwks: {self._keys.trouble}")

    def begin(self, client_id: str, peer: PeerInfo) -> Authentication | None:
        """Nothing is to be remembered of anyone."""
        return self

    def answer(self, credentials: bytes) -> Judgement:
        """Judges a token: by its signature, then by what it says."""
        self._look()
        try:
            claims = self._claims(credentials.decode("ascii"))
            return self._admission(claims)
        except UnicodeDecodeError:
            return Refusal("its token is no text")
        except jwt.PyJWTError as error:
            return Refusal(f"its token is not valid: {type(error).__name__}{self._trouble()}")
        except ValueError as error:
            return Refusal(f"its token {error}")

    def troubles(self) -> Sequence[Alarm]:
        """What is wrong with the file of keys; see `gapless.spi.TellsTroubles`."""
        self._look()
        if not (trouble := self._keys.trouble):
            return ()
        meanwhile = "its former keys count" if self._keys.of(None) else "nobody with a token comes in meanwhile"
        return (Alarm(AlarmCode.CREDENTIALS_UNUSABLE, f"{trouble}; {meanwhile}", str(self._options.jwks)),)

    def _look(self) -> None:
        now = self._context.now()
        if now - self._looked_at >= LOOK_EVERY:
            self._looked_at = now
            self._keys.look()

    def _trouble(self) -> str:
        return f" ({self._keys.trouble})" if self._keys.trouble else ""

    def _claims(self, token: str) -> Mapping[str, Any]:
        """What a token says whose signature is right. Raises PyJWTError."""
        options = self._options
        key_id = jwt.get_unverified_header(token).get("kid")
        failed: jwt.PyJWTError = jwt.InvalidKeyError("no key")
        for key in self._keys.of(key_id):
            try:
                # The times are judged by the clock of the broker, below.
                return jwt.decode(
                    token,
                    key.key,
                    algorithms=list(options.algorithms),
                    audience=options.audience,
                    issuer=options.issuer,
                    options={"require": ["exp"], "verify_exp": False, "verify_nbf": False, "verify_iat": False},
                )
            except jwt.PyJWTError as error:
                failed = error
        raise failed

    def _admission(self, claims: Mapping[str, Any]) -> Admission:
        """Raises ValueError with the end of a sentence about the token."""
        wall = self._context.wall()
        until = (_seconds(claims, "exp") + SKEW) * 1000
        if until <= wall:
            raise ValueError("has expired")
        for claim in ("nbf", "iat"):
            if claim in claims and (_seconds(claims, claim) - SKEW) * 1000 > wall:
                raise ValueError("is not valid yet")
        name: Any = claims.get(self._options.principal)
        if problem := user_problem(name):
            raise ValueError(f"has in its claim {self._options.principal!r} a name that {problem}")
        return Admission(Principal(name, self._groups(claims)), until)

    def _groups(self, claims: Mapping[str, Any]) -> frozenset[str]:
        claim = self._options.groups
        groups = claims.get(claim, []) if claim else []
        if not isinstance(groups, list) or not all(isinstance(group, str) for group in groups):
            raise ValueError(f"has no list of names in its claim {claim!r}")
        if len(groups) > GROUPS_MAX:
            raise ValueError(f"has {len(groups)} groups; at most {GROUPS_MAX} are taken")
        if problem := next(filter(None, map(group_problem, groups)), ""):
            raise ValueError(problem)
        return frozenset(groups)


def _seconds(claims: Mapping[str, Any], claim: str) -> int:
    """A time of a token. Raises ValueError, also for one that is beyond any clock."""
    value = claims[claim]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1 << 40:
        raise ValueError(f"has no time in its claim {claim!r}")
    return int(value)


@hookimpl
def open_auth(options: Mapping[str, Any], context: AuthContext) -> Authenticator:
    """The authenticator. Raises ConfigurationError for wrong options, and if the keys cannot be read."""
    return TokenAuthenticator(parsed(TokenOptions, options, WHERE), context)
