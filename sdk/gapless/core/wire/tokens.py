"""Checkpoint tokens: an application's position in the streams of a network (protocol: tokens).

A token is a vector clock `pubend → tick`. It contains no selector, so it fits every subscription. Beside the clock it
has its origin: the network, and the subscription for which it was issued, with a seal that only a broker can make.
A token from a network of brokers also names the home of that subscription, the SHB that keeps it.

Its text is written pubend by pubend (`token_plain`) as long as that has 4,096 characters, which every version reads;
beyond, it is packed (`token_packed`). A token has exactly one text, on every machine. So nothing is compressed by a
library whose next version might do it differently.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from gapless.core.stream.ticks import FOREVER, PubendId, ShbId, Tick
from gapless.core.wire import token_packed, token_plain
from gapless.core.wire.token_bytes import Origin, from_base64, names_of
from gapless.core.wire.token_room import PUBENDS_MAX, TEXT_MAX
from gapless.errors import InvalidTokenError, TokenMismatchError
from gapless.texts import text_problem

SEAL_BYTES = 8
EPOCH_DIGITS = 19
"""How many digits an epoch has at most."""
_SEPARATOR = " "
"""Stands between the texts of tokens that go together; it is in no text of a token."""
_OF_CLAIM = ":"
"""Ends the epoch of a claim; it is in no text of a token alone."""

_TEXT = re.compile(r"gl([123])\.([A-Za-z0-9_-]+)([.~])([A-Za-z0-9_.~-]*)", re.ASCII)
_ANY_VERSION = re.compile(r"gl[0-9]{1,9}\.", re.ASCII)
_WITH_HOME = "2"
_PACKED = "3"


class CheckpointToken:
    """A position in the streams of a network. Keep it where you keep the effects of consuming.

    `str(token)` and `CheckpointToken.parse(text)` turn it into text and back; equal tokens have equal texts. It is
    immutable, hashable, picklable, and never falsy.

    `a <= b` means that b stands at or behind a in every pubend; a pubend that one of them does not name counts as tick
    0 there. Two positions may be neither <= nor >=. Tokens cannot be compared, and raise TokenMismatchError, if they
    are of two networks, or know the name of a pubend only under different epochs. Equality compares everything, also
    the subscription for which a token was issued.
    """

    __slots__ = ("_origin", "_text", "_ticks")

    def __init__(
        self,
        network: str,
        ticks: Mapping[PubendId, Tick],
        sid: int = 0,
        generation: int = 0,
        seal: bytes = b"",
        home: ShbId = "",
    ) -> None:
        """For gapless itself; applications get tokens from subscriptions and from `parse`."""
        _check_ticks(ticks)
        for text, what in ((network, "the id of a network"), (home, "the id of an SHB")):
            if problem := text_problem(text):
                raise InvalidTokenError(f"{what} {problem}")
        self._origin: Origin = (network, sid, generation, seal, home)
        self._ticks: dict[PubendId, Tick] = dict(ticks)
        self._text: str | None = None

    @classmethod
    def parse(cls, text: str) -> CheckpointToken:
        """Returns the token with this text. Raises InvalidTokenError if it is not exactly the text of a token."""
        if not isinstance(text, str):
            raise InvalidTokenError(f"the text of a token is a str, not {type(text).__name__}")
        if len(text) > TEXT_MAX:
            raise InvalidTokenError(f"a token has at most {TEXT_MAX:,} characters, this text has {len(text):,}")
        match = _TEXT.fullmatch(text)
        if match is None:
            raise InvalidTokenError(_what_is_wrong(text))
        version, head, kind, names = match.groups()
        if version != _PACKED and len(text) > token_plain.CHARACTERS_MAX:
            raise InvalidTokenError(
                f"a token of version {version} has at most {token_plain.CHARACTERS_MAX:,} characters, this text has"
                f" {len(text):,}"
            )
        (network, sid, generation, sealed, home), ticks = _decode(version, from_base64(head), names_of(kind, names))
        token = cls(network, ticks, sid, generation, sealed, home)
        if str(token) != text:
            raise InvalidTokenError("the text of a token is garbled: gapless would write it differently")
        return token

    @property
    def ticks(self) -> Mapping[PubendId, Tick]:
        """Up to which tick each pubend is done with, that tick included. Read only."""
        return MappingProxyType(self._ticks)

    @property
    def network(self) -> str:
        """The id of the network."""
        return self._origin[0]

    @property
    def sid(self) -> int:
        """The id of the subscription for which it was issued, or 0."""
        return self._origin[1]

    @property
    def generation(self) -> int:
        """The generation of that subscription, or 0."""
        return self._origin[2]

    @property
    def seal(self) -> bytes:
        """The broker's seal over network, subscription and generation, or b"" without a subscription."""
        return self._origin[3]

    @property
    def home(self) -> ShbId:
        """The SHB that keeps that subscription and gave it its id; "" if the token is of a broker in no network."""
        return self._origin[4]

    def has_subscription_of(self, other: CheckpointToken) -> bool:
        """Whether both were issued for the same subscription. One from before its broker joined a network has no home.

        Two tokens of no subscription have the same one, too.
        """
        mine, theirs = self._origin, other._origin
        same_home = self.home == other.home or "" in {self.home, other.home}
        return same_home and (mine[0], mine[1], mine[2]) == (theirs[0], theirs[1], theirs[2])

    def advance(self, changes: Mapping[PubendId, Tick]) -> CheckpointToken:
        """Returns the same token with these pubends at these ticks, even if the ticks are lower than before."""
        _check_ticks(changes)
        return self._at({**self._ticks, **changes})

    def merge(self, other: CheckpointToken) -> CheckpointToken:
        """Returns the pointwise maximum: everything that either token has behind it. Raises TokenMismatchError.

        The result belongs to a subscription only if both tokens belong to the same one.
        """
        _check_comparable(self, other)
        highest = dict(self._ticks)
        for pubend, tick in other._ticks.items():
            highest[pubend] = max(tick, highest.get(pubend, 0))
        return self._at(highest) if self._origin == other._origin else CheckpointToken(self.network, highest)

    def __str__(self) -> str:
        """Returns the text. Raises InvalidTokenError if it would be longer than `parse` takes: too many pubends."""
        if self._text is None:
            self._text = _encode(self._origin, self._ticks)
        return self._text

    def __repr__(self) -> str:
        ticks = ", ".join(f"{pubend}: {tick}" for pubend, tick in sorted(self._ticks.items()))
        return f"<CheckpointToken {self.network!r} {{{ticks}}}>"

    def __reduce__(self) -> tuple[Any, ...]:
        network, *issued = self._origin
        return CheckpointToken, (network, self._ticks, *issued)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CheckpointToken):
            return NotImplemented
        return self._origin == other._origin and self._ticks == other._ticks

    def __hash__(self) -> int:
        return hash((self._origin, frozenset(self._ticks.items())))

    def __le__(self, other: CheckpointToken) -> bool:
        if not isinstance(other, CheckpointToken):
            return NotImplemented
        _check_comparable(self, other)
        return all(tick <= other._ticks.get(pubend, 0) for pubend, tick in self._ticks.items())

    def __lt__(self, other: CheckpointToken) -> bool:
        if not isinstance(other, CheckpointToken):
            return NotImplemented
        return self <= other and not other <= self

    def __ge__(self, other: CheckpointToken) -> bool:
        if not isinstance(other, CheckpointToken):
            return NotImplemented
        return other <= self

    def __gt__(self, other: CheckpointToken) -> bool:
        if not isinstance(other, CheckpointToken):
            return NotImplemented
        return other < self

    def _at(self, ticks: dict[PubendId, Tick]) -> CheckpointToken:
        """Returns a token of the same origin, without copying or checking the ticks."""
        token = CheckpointToken.__new__(CheckpointToken)
        token._origin, token._ticks, token._text = self._origin, ticks, None  # noqa: SLF001 - its own class
        return token


Tokens: TypeAlias = tuple[CheckpointToken, ...]
"""The positions of several subscriptions that are stored together, each subscription's once."""


class ConsumedToken(NamedTuple):
    """Up to where a transaction consumes a subscription: stored for it alone, whoever the publisher is."""

    key: str
    """The subscription, as its home has claimed it at the pubend."""
    epoch: int
    """Of that claim; a later one fences this token."""
    token: CheckpointToken

    def __str__(self) -> str:
        return f"{self.epoch}{_OF_CLAIM}{self.key}={self.token}"

    @classmethod
    def parse(cls, text: str) -> ConsumedToken:
        """Returns what has this text. Raises InvalidTokenError."""
        named, _, token = text.rpartition("=")
        epoch, colon, key = named.partition(_OF_CLAIM)
        if not colon or not epoch.isascii() or not epoch.isdigit() or len(epoch) > EPOCH_DIGITS:
            raise InvalidTokenError("a token of a transaction does not say which subscription it is of")
        return cls(key, int(epoch), CheckpointToken.parse(token))


BatchTokens: TypeAlias = tuple[CheckpointToken | ConsumedToken, ...]
"""What goes with a batch: tokens that its publisher stores, or those of a transaction."""


def own_tokens(tokens: BatchTokens) -> Tokens:
    """Returns those that a publisher stores under its name."""
    return tuple(token for token in tokens if isinstance(token, CheckpointToken))


def seal(secret: bytes, network: str, sid: int, generation: int) -> bytes:
    """Returns the seal for tokens that a broker issues for this subscription, if only this broker has to know it."""
    message = b"gapless token 1\0" + sid.to_bytes(8, "big") + generation.to_bytes(8, "big") + network.encode()
    return hmac.digest(secret, message, "sha256")[:SEAL_BYTES]


def network_seal(secret: bytes, network: str, home: ShbId, sid: int, generation: int, *what: str) -> bytes:
    """Returns the seal that every broker of a network can check.

    `what`: the client id, the name and the filter of the subscription. A broker that cannot ask the home has no other
    proof that the token is of the very subscription that its client asks for.
    """
    message = bytearray(b"gapless token 2\0" + sid.to_bytes(8, "big") + generation.to_bytes(8, "big"))
    for text in (network, home, *what):
        part = text.encode()
        message += len(part).to_bytes(4, "big") + part
    return hmac.digest(secret, message, "sha256")[:SEAL_BYTES]


def find_token(stored: Tokens, token: CheckpointToken) -> CheckpointToken | None:
    """Returns the stored token of the same subscription; None if there is none."""
    return next((other for other in stored if other.has_subscription_of(token)), None)


def merge_tokens(stored: Tokens, tokens: Tokens) -> Tokens:
    """Returns what is stored after these tokens: each replaces that of its subscription, and the newest is last.

    No position falls, and a pubend that only the older token names stays.
    """
    for token in tokens:
        before, merged = find_token(stored, token), token
        if before is not None:
            ticks = token.ticks
            merged = token.advance({pubend: max(tick, ticks.get(pubend, 0)) for pubend, tick in before.ticks.items()})
        stored = (*(other for other in stored if other is not before), merged)
    return stored


def is_before(token: CheckpointToken, stored: CheckpointToken) -> bool:
    """Whether a token stands before a stored one in a pubend that both name: in part, or as a whole."""
    ticks = stored.ticks
    return any(tick < ticks.get(pubend, 0) for pubend, tick in token.ticks.items())


def following(stored: CheckpointToken, token: CheckpointToken) -> CheckpointToken:
    """Returns a token with the pubends that only the stored one before it names, but for former epochs of its own."""
    ticks = token.ticks
    names = {pubend.rpartition("@")[0] for pubend in ticks}
    only = {p: tick for p, tick in stored.ticks.items() if p not in ticks and p.rpartition("@")[0] not in names}
    return token.advance(only) if only else token


def join_tokens(tokens: BatchTokens) -> bytes:
    """Returns as bytes the tokens that go with a batch. Raises InvalidTokenError if one of them has no text."""
    return _SEPARATOR.join(map(str, tokens)).encode()


def split_tokens(raw: bytes) -> Tokens:
    """Returns those of `join_tokens` that are the publisher's. Raises InvalidTokenError."""
    return tuple(CheckpointToken.parse(text) for text in _texts(raw) if _OF_CLAIM not in text)


def split_consumed(raw: bytes) -> tuple[ConsumedToken, ...]:
    """Returns those of `join_tokens` that are of transactions. Raises InvalidTokenError."""
    return tuple(ConsumedToken.parse(text) for text in _texts(raw) if _OF_CLAIM in text)


def _texts(raw: bytes) -> list[str]:
    try:
        return raw.decode().split(_SEPARATOR) if raw else []
    except UnicodeDecodeError as error:
        raise InvalidTokenError("the text of a token is garbled: it is not UTF-8") from error


def same_seal(expected: bytes, offered: bytes) -> bool:
    """Whether two seals are the same. It takes the same time wherever they differ."""
    return hmac.compare_digest(expected, offered)


def _check_ticks(ticks: Mapping[PubendId, Tick]) -> None:
    for pubend, tick in ticks.items():
        if not 0 <= tick <= FOREVER:
            raise InvalidTokenError(f"tick {tick} of pubend {pubend!r} is out of range")
        if problem := text_problem(pubend):
            raise InvalidTokenError(f"the id of a pubend {problem}")


def _check_comparable(left: CheckpointToken, right: CheckpointToken) -> None:
    if left.network != right.network:
        raise TokenMismatchError(f"tokens of two networks: {left.network!r} and {right.network!r}")
    if left.ticks.keys() == right.ticks.keys():
        return
    lefts, rights = _epochs(left), _epochs(right)
    for name, epochs in lefts.items():
        # A stream that began anew is another pubend beside the old one. If a token knows both, the two can be compared.
        if name in rights and epochs.isdisjoint(rights[name]):
            raise TokenMismatchError(
                f"tokens of two epochs of pubend {name!r}: {sorted(epochs)} and {sorted(rights[name])}"
            )


def _epochs(token: CheckpointToken) -> dict[str, set[str]]:
    """Returns the epochs under which a token knows each name."""
    epochs: dict[str, set[str]] = {}
    for pubend in token.ticks:
        name, at, epoch = pubend.rpartition("@")
        epochs.setdefault(name if at else pubend, set()).add(epoch if at else "")
    return epochs


# ------------------------------------------------------------------------------------------ the text


def _encode(origin: Origin, ticks: Mapping[PubendId, Tick]) -> str:
    if len(ticks) > PUBENDS_MAX:
        raise InvalidTokenError(f"a token of {len(ticks):,} pubends has no text: it may name {PUBENDS_MAX:,}")
    text = token_plain.encode(origin, ticks) or token_packed.encode(origin, ticks)
    if len(text) > TEXT_MAX:
        raise InvalidTokenError(
            f"a token of {len(ticks):,} pubends would have {len(text):,} characters: the most is {TEXT_MAX:,}"
        )
    return text


def _decode(version: str, head: bytes, names: bytes) -> tuple[Origin, dict[PubendId, Tick]]:
    if version == _PACKED:
        return token_packed.decode(head, names)
    return token_plain.decode(head, names, has_home=version == _WITH_HOME)


def _what_is_wrong(text: str) -> str:
    """Returns why a text is no token of this version, for people."""
    if not text:
        return "an empty text is no checkpoint token"
    if text.startswith(("gl1.", "gl2.", "gl3.")):
        return "the text of a token is garbled or cut off: it has not the form of one"
    if _ANY_VERSION.match(text):
        return "a checkpoint token of a version that this gapless does not know"
    return "not a checkpoint token: it begins with 'gl1.', 'gl2.' or 'gl3.'"
