"""How a record of Kafka's becomes an event: the rules that a configuration gives, and what they do.

An event must be the same at every gateway and at every reading, so this is a function of the record and of the rules
alone. What does not fit a rule makes no property: one is never refused, and never guessed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import isfinite
from typing import Any, Final, Literal, TypeAlias

import msgspec

from gapless.core.stream.events import Property
from gapless_log.kafka.records import Headers, NewRecord, Record

Kind: TypeAlias = Literal["text", "int", "float", "bool", "int32", "int64", "float64"]
"""What the bytes of a header are: words and numbers in text, or big-endian numbers as Kafka's serializers for Java."""

RESERVED: Final = "gapless"
"""Headers with this name, or with one that begins with it and a dot, are ours and no properties."""


NAMES_MAX: Final = 10_000
"""So many names of headers are remembered."""


class Rules(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the records of one topic become events. A host stores them, so fields are only ever added."""

    topic: str
    """The topic of the events."""
    key: str = "key"
    """The property that is the record's key, if that is text; "": none."""
    headers: tuple[str, ...] | None = None
    """Which headers become properties; None: all of them."""
    types: dict[str, Kind] = {}
    """What the bytes of a header are; text, if it is not listed."""
    fields: dict[str, str] = {}
    """Properties from values that are JSON objects: of each, where it stands in the object (`order.total`)."""

    def encode(self) -> bytes:
        """Returns them as a log's host stores them."""
        return msgspec.json.encode(self, order="deterministic")


Convert: TypeAlias = "Callable[[bytes], Property | None]"


class RecordMapping:
    """Makes properties of records, by rules."""

    def __init__(self, rules: Rules) -> None:
        self.topic = rules.topic
        self._key = rules.key
        self._wanted = None if rules.headers is None else frozenset(rules.headers)
        self._kinds = rules.types
        self._takes_all = rules.headers is None and {"text"}.issuperset(rules.types.values())
        """Whether every header that is text is a property."""
        self._fields = [(name, _decoder(path)) for name, path in rules.fields.items()]
        self._met: dict[str, Convert | None] = {}
        """Of names of headers that were met: what their bytes are; None: they are no properties."""
        self._plain: set[str] = set()
        """Those of them that are text."""

    def properties_of(self, found: Sequence[Record | NewRecord]) -> list[dict[str, Property]]:
        """Returns the properties of each record. Of two headers of a name the last one counts.

        A field of the value goes before a header of its name, and the key before both.
        """
        made = self._texts(found)
        if made is None:
            made = [self._of(record.headers) for record in found]
        for name, decode in self._fields:
            for properties, record in zip(made, found, strict=True):
                if record.value and (field := decode(record.value)) is not None:
                    properties[name] = field
        if self._key:
            for properties, record in zip(made, found, strict=True):
                if record.key is not None and (text := _text(record.key)) is not None:
                    properties[self._key] = text
        return made

    def _texts(self, found: Sequence[Record | NewRecord]) -> list[dict[str, Property]] | None:
        """Returns the properties that headers make if all of them are text, and their names were met before."""
        if not self._takes_all:
            return None
        try:
            made: list[dict[str, Property]] = [
                {name: data.decode() for name, data in record.headers}  # type: ignore[union-attr]
                for record in found
            ]
        except (UnicodeDecodeError, AttributeError):
            return None
        return made if self._plain.issuperset(set[str]().union(*made)) else None

    def _of(self, headers: Headers) -> dict[str, Property]:
        properties: dict[str, Property] = {}
        for name, data in headers:
            convert = self._met[name] if name in self._met else self._meet(name)
            if convert is not None:
                value = None if data is None else convert(data)
                if value is None:
                    properties.pop(name, None)
                else:
                    properties[name] = value
        return properties

    def _meet(self, name: str) -> Convert | None:
        """Returns what the bytes of a header are; None if it is no property."""
        is_wanted = name and not is_reserved(name) and (self._wanted is None or name in self._wanted)
        convert = CONVERSIONS[self._kinds.get(name, "text")] if is_wanted else None
        if len(self._met) < NAMES_MAX:
            self._met[name] = convert
            if convert is _text:
                self._plain.add(name)
        return convert


def is_reserved(name: str) -> bool:
    """Whether a header is ours, and no property."""
    return name.startswith(RESERVED) and name[len(RESERVED) : len(RESERVED) + 1] in ("", ".")


@lru_cache(maxsize=1024)
def mapping_of(rules: bytes) -> RecordMapping:
    """Returns the mapping of encoded rules. Raises ValueError if they are none."""
    try:
        return RecordMapping(msgspec.json.decode(rules, type=Rules))
    except msgspec.MsgspecError as error:
        raise ValueError(f"these are no rules for a Kafka topic: {error}") from error


# ------------------------------------------------------------------------------------------ values

_LONG_MIN, _LONG_MAX = -(1 << 63), (1 << 63) - 1


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _int(data: bytes) -> int | None:
    """Digits with a sign or without: what else Python takes for a number (spaces, underscores) is none."""
    if data.isdigit() and len(data) < 19:  # as nearly always
        return int(data)
    digits = data[1:] if data[:1] in (b"-", b"+") else data
    if not digits.isdigit() or len(digits) > 19:
        return None
    return _long(int(data))


def _float(data: bytes) -> float | None:
    try:
        number = float(data)
    except ValueError:
        return None
    return number if isfinite(number) and b"_" not in data and data == data.strip() else None


def _bool(data: bytes) -> bool | None:
    return {b"true": True, b"false": False}.get(data.lower())


def _long(number: int) -> int | None:
    return number if _LONG_MIN <= number <= _LONG_MAX else None


def _unpacked(form: str) -> Convert:
    unpack, size = struct.Struct(form).unpack, struct.calcsize(form)

    def convert(data: bytes) -> Property | None:
        if len(data) != size:
            return None
        (number,) = unpack(data)
        return _finite(number)

    return convert


def _finite(value: Any) -> Property | None:
    """Returns a value if a property can have it."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, bool | str):
        return value
    return _long(value) if isinstance(value, int) else None


CONVERSIONS: Final[Mapping[Kind, Convert]] = {
    "text": _text,
    "int": _int,
    "float": _float,
    "bool": _bool,
    "int32": _unpacked(">i"),
    "int64": _unpacked(">q"),
    "float64": _unpacked(">d"),
}


def _decoder(path: str) -> Convert:
    """Returns what decodes one field of a JSON object. The rest is skipped without being built."""
    kind: Any = Any
    for name in reversed(path.split(".")):
        kind = msgspec.defstruct("Level", [("next", kind, msgspec.field(name=name, default=None))])
    decode = msgspec.json.Decoder(kind).decode
    depth = path.count(".") + 1

    def convert(value: bytes) -> Property | None:
        try:
            found: Any = decode(value)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        for _ in range(depth):
            found = found.next
            if found is None:
                return None
        return _finite(found)

    return convert
