"""Messages with a body: text, bytes, a map, a stream of values, JSON (sections 3.11 to 3.13 of JMS 3.1).

What is received can be read only; `clear_body()` empties it for writing. A stream and bytes are written first, and can
be read after `reset()`.
"""

from __future__ import annotations

import copy
import json
import struct
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, TypeVar

import msgspec

from gapless.core.stream.events import Event
from gapless.jms.errors import MessageEOFError, MessageFormatError, MessageNotReadableError
from gapless.jms.messages import BODY, Message, is_null, named_getter, named_setter
from gapless.jms.values import TypedValue, ValueType, checked_text, guessed, read, sendable, written
from gapless.texts import a_or_an

_Value = TypeVar("_Value")
_Wire = tuple[str, Any]


class TextMessage(Message):
    """A message whose body is a text, or none."""

    body_kind: ClassVar[str] = "text"

    def __init__(self) -> None:
        super().__init__()
        self._text: str | None = None

    def get_text(self) -> str | None:
        """Returns the text."""
        return self._text

    def set_text(self, text: str | None) -> None:
        """Sets the text. Raises MessageNotWriteableError, MessageFormatError."""
        self._write()
        self._text = written(ValueType.STRING, text).value

    def clear_body(self) -> None:
        """Removes the text, after which it can be set."""
        super().clear_body()
        self._text = None

    def _body(self) -> str | None:
        return self._text

    @property
    def body_is_null(self) -> bool:
        """Whether its text is None, which is another thing than an empty text."""
        return self._text is None

    def take_over(self, event: Event) -> None:
        """Becomes the message of an event, read only."""
        super().take_over(event)
        if is_null(event):
            self._text = None

    def _encoded(self) -> bytes:
        return (self._text or "").encode()

    def _decode(self, body: bytes) -> None:
        try:
            self._text = body.decode()
        except UnicodeDecodeError as error:
            raise MessageFormatError(f"the body of a text message is no UTF-8: {error}") from error


class JsonMessage(Message):
    """A message whose body is what JSON can say. It stands in the place of Java's ObjectMessage."""

    body_kind: ClassVar[str] = "json"

    def __init__(self) -> None:
        super().__init__()
        self._object: Any = None

    def get_object(self) -> Any:
        """Returns the object: a copy, so that nobody changes what others were sent."""
        return copy.deepcopy(self._object)

    def set_object(self, value: Any) -> None:
        """Sets the object, as it is now. Raises MessageNotWriteableError, MessageFormatError."""
        self._write()
        try:
            self._object = json.loads(json.dumps(value, allow_nan=False, ensure_ascii=False).encode())
        except UnicodeEncodeError as error:
            raise MessageFormatError(f"the object has a text that UTF-8 cannot write: {error}") from error
        except (TypeError, ValueError, RecursionError) as error:
            raise MessageFormatError(f"JSON cannot say this object: {error}") from error

    def clear_body(self) -> None:
        """Removes the object, after which it can be set."""
        super().clear_body()
        self._object = None

    def _body(self) -> Any:
        return self.get_object()

    def _encoded(self) -> bytes:
        return json.dumps(self._object, ensure_ascii=False, separators=(",", ":")).encode()

    def _decode(self, body: bytes) -> None:
        try:
            self._object = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise MessageFormatError(f"the body of a JSON message is no JSON: {error}") from error


class MapMessage(Message):
    """A message whose body has values by name. Names are case-sensitive."""

    body_kind: ClassVar[str] = "map"

    def __init__(self) -> None:
        super().__init__()
        self._values: dict[str, TypedValue] = {}

    def _value_as(self, name: str, kind: ValueType) -> Any:
        return read(self._values.get(name), kind)

    def _set(self, name: str, value: TypedValue) -> None:
        self._write()
        if not name:
            raise ValueError("the name of a value is not empty")
        self._values[checked_text(name, "the name of a value")] = sendable(value)

    get_boolean = named_getter(_value_as, "value", ValueType.BOOLEAN, bool)
    get_byte = named_getter(_value_as, "value", ValueType.BYTE, int)
    get_short = named_getter(_value_as, "value", ValueType.SHORT, int)
    get_char = named_getter(_value_as, "value", ValueType.CHAR, str)
    get_int = named_getter(_value_as, "value", ValueType.INT, int)
    get_long = named_getter(_value_as, "value", ValueType.LONG, int)
    get_float = named_getter(_value_as, "value", ValueType.FLOAT, float)
    get_double = named_getter(_value_as, "value", ValueType.DOUBLE, float)

    set_boolean = named_setter(_set, "value", ValueType.BOOLEAN, bool)
    set_byte = named_setter(_set, "value", ValueType.BYTE, int)
    set_short = named_setter(_set, "value", ValueType.SHORT, int)
    set_char = named_setter(_set, "value", ValueType.CHAR, str)
    set_int = named_setter(_set, "value", ValueType.INT, int)
    set_long = named_setter(_set, "value", ValueType.LONG, int)
    set_float = named_setter(_set, "value", ValueType.FLOAT, float)
    set_double = named_setter(_set, "value", ValueType.DOUBLE, float)

    def get_string(self, name: str) -> str | None:
        """Returns a value as a text; None: there is no such value."""
        text: str | None = self._value_as(name, ValueType.STRING)
        return text

    def set_string(self, name: str, value: str | None) -> None:
        """Sets a value, as a text. Raises MessageNotWriteableError, MessageFormatError."""
        self._set(name, written(ValueType.STRING, value))

    def get_bytes(self, name: str) -> bytes | None:
        """Returns a value that was written as bytes; None: there is no such value."""
        value: bytes | None = self._value_as(name, ValueType.BYTES)
        return value

    def set_bytes(self, name: str, value: bytes | None) -> None:
        """Sets a value, as bytes. Raises MessageNotWriteableError, MessageFormatError."""
        self._set(name, written(ValueType.BYTES, value))

    def get_object(self, name: str) -> Any:
        """Returns a value as Python has it; None: there is no such value."""
        stored = self._values.get(name)
        return None if stored is None else stored.value

    def set_object(self, name: str, value: Any) -> None:
        """Sets a value: a bool, an int (as a long), a float (as a double), a str, bytes or None."""
        self._set(name, guessed(value))

    def item_exists(self, name: str) -> bool:
        """Whether there is such a value."""
        return name in self._values

    def get_map_names(self) -> list[str]:
        """Returns the names of all values, in no order."""
        return list(self._values)

    def clear_body(self) -> None:
        """Removes all values, after which they can be set."""
        super().clear_body()
        self._values.clear()

    def _body(self) -> dict[str, Any] | None:
        return {name: stored.value for name, stored in self._values.items()} or None

    def _encoded(self) -> bytes:
        return msgspec.msgpack.encode({name: (value.type.value, value.value) for name, value in self._values.items()})

    def _decode(self, body: bytes) -> None:
        try:
            values = msgspec.msgpack.decode(body, type=dict[str, _Wire])
        except msgspec.MsgspecError as error:
            raise MessageFormatError(f"the body of a map message is garbled: {error}") from error
        self._values = {name: _received(value) for name, value in values.items()}


class _Sequential(Message):
    """A message whose body is written from front to back, and then read so."""

    def __init__(self) -> None:
        super().__init__()
        self._at = 0

    def reset(self) -> None:
        """Ends writing: the body is read only, and is read from its beginning."""
        self._body_is_read_only = True
        self._at = 0

    def clear_body(self) -> None:
        """Empties the body, after which it can be written."""
        super().clear_body()
        self._at = 0

    def _readable(self) -> None:
        if not self._body_is_read_only:
            raise MessageNotReadableError("this message's body is being written: call reset() before reading")


def _stream_reader(kind: ValueType, _result: type[_Value]) -> Callable[[StreamMessage], _Value]:
    def read_next(self: StreamMessage) -> _Value:
        value: _Value = self._next(kind)
        return value

    read_next.__doc__ = f"Reads the next value as {a_or_an(kind.value)}. Raises MessageEOFError, MessageFormatError."
    return read_next


def _stream_writer(kind: ValueType, _value: type[_Value]) -> Callable[[StreamMessage, _Value], None]:
    def write_next(self: StreamMessage, value: _Value) -> None:
        self._append(written(kind, value))

    what = a_or_an(kind.value)
    write_next.__doc__ = f"Writes a value, as {what}. Raises MessageNotWriteableError, MessageFormatError."
    return write_next


class StreamMessage(_Sequential):
    """A message whose body is a sequence of values, each with its type. A read that fails does not go on."""

    body_kind: ClassVar[str] = "stream"

    def __init__(self) -> None:
        super().__init__()
        self._values: list[TypedValue] = []

    read_boolean, write_boolean = _stream_reader(ValueType.BOOLEAN, bool), _stream_writer(ValueType.BOOLEAN, bool)
    read_byte, write_byte = _stream_reader(ValueType.BYTE, int), _stream_writer(ValueType.BYTE, int)
    read_short, write_short = _stream_reader(ValueType.SHORT, int), _stream_writer(ValueType.SHORT, int)
    read_char, write_char = _stream_reader(ValueType.CHAR, str), _stream_writer(ValueType.CHAR, str)
    read_int, write_int = _stream_reader(ValueType.INT, int), _stream_writer(ValueType.INT, int)
    read_long, write_long = _stream_reader(ValueType.LONG, int), _stream_writer(ValueType.LONG, int)
    read_float, write_float = _stream_reader(ValueType.FLOAT, float), _stream_writer(ValueType.FLOAT, float)
    read_double, write_double = _stream_reader(ValueType.DOUBLE, float), _stream_writer(ValueType.DOUBLE, float)

    def read_string(self) -> str | None:
        """Reads the next value as a text. Raises MessageEOFError, MessageFormatError."""
        text: str | None = self._next(ValueType.STRING)
        return text

    def write_string(self, value: str | None) -> None:
        """Writes a text. Raises MessageNotWriteableError, MessageFormatError."""
        self._append(written(ValueType.STRING, value))

    def read_bytes(self) -> bytes | None:
        """Reads the next value, all of it, which was written as bytes. Raises MessageEOFError, MessageFormatError."""
        value: bytes | None = self._next(ValueType.BYTES)
        return value

    def write_bytes(self, value: bytes | None) -> None:
        """Writes bytes. Raises MessageNotWriteableError, MessageFormatError."""
        self._append(written(ValueType.BYTES, value))

    def read_object(self) -> Any:
        """Reads the next value as Python has it. Raises MessageEOFError."""
        value = self._here().value
        self._at += 1
        return value

    def write_object(self, value: Any) -> None:
        """Writes a bool, an int (as a long), a float (as a double), a str, bytes or None."""
        self._append(guessed(value))

    def clear_body(self) -> None:
        """Removes all values, after which they can be written."""
        super().clear_body()
        self._values = []

    def is_body_assignable_to(self, kind: type) -> bool:
        """Whether `get_body` returns it: never, it is read value by value."""
        return False

    def _here(self) -> TypedValue:
        self._readable()
        if self._at >= len(self._values):
            raise MessageEOFError(f"this stream has {len(self._values)} values, and all were read")
        return self._values[self._at]

    def _next(self, kind: ValueType) -> Any:
        value = read(self._here(), kind)
        self._at += 1
        return value

    def _append(self, value: TypedValue) -> None:
        self._write()
        self._values.append(sendable(value))

    def _encoded(self) -> bytes:
        return msgspec.msgpack.encode([(value.type.value, value.value) for value in self._values])

    def _decode(self, body: bytes) -> None:
        try:
            values = msgspec.msgpack.decode(body, type=list[_Wire])
        except msgspec.MsgspecError as error:
            raise MessageFormatError(f"the body of a stream message is garbled: {error}") from error
        self._values = [_received(value) for value in values]


def _bytes_reader(form: str, _result: type[_Value]) -> Callable[[BytesMessage], _Value]:
    layout = struct.Struct(">" + form)

    def read_next(self: BytesMessage) -> _Value:
        (value,) = layout.unpack(self.read_bytes(layout.size))
        return _result(value)  # type: ignore[call-arg]

    read_next.__doc__ = f"Reads {layout.size} bytes, as Java's DataInputStream. Raises MessageEOFError."
    return read_next


def _bytes_writer(form: str, kind: ValueType, _value: type[_Value]) -> Callable[[BytesMessage, _Value], None]:
    layout = struct.Struct(">" + form)

    def write_next(self: BytesMessage, value: _Value) -> None:
        self.write_bytes(layout.pack(written(kind, value).value))

    write_next.__doc__ = f"Writes {layout.size} bytes, as Java's DataOutputStream. Raises MessageNotWriteableError."
    return write_next


class BytesMessage(_Sequential):
    """A message whose body is bytes, written and read as Java's data streams do: numbers with the high byte first."""

    body_kind: ClassVar[str] = "bytes"

    def __init__(self) -> None:
        super().__init__()
        self._bytes = bytearray()

    read_boolean, write_boolean = _bytes_reader("?", bool), _bytes_writer("?", ValueType.BOOLEAN, bool)
    read_byte, write_byte = _bytes_reader("b", int), _bytes_writer("b", ValueType.BYTE, int)
    read_short, write_short = _bytes_reader("h", int), _bytes_writer("h", ValueType.SHORT, int)
    read_int, write_int = _bytes_reader("i", int), _bytes_writer("i", ValueType.INT, int)
    read_long, write_long = _bytes_reader("q", int), _bytes_writer("q", ValueType.LONG, int)
    read_float, write_float = _bytes_reader("f", float), _bytes_writer("f", ValueType.FLOAT, float)
    read_double, write_double = _bytes_reader("d", float), _bytes_writer("d", ValueType.DOUBLE, float)
    read_unsigned_byte = _bytes_reader("B", int)
    read_unsigned_short = _bytes_reader("H", int)

    def read_char(self) -> str:
        """Reads a character of two bytes. Raises MessageEOFError."""
        return chr(self.read_unsigned_short())

    def write_char(self, value: str) -> None:
        """Writes a character of two bytes. Raises MessageNotWriteableError, MessageFormatError."""
        self.write_bytes(struct.pack(">H", ord(written(ValueType.CHAR, value).value)))

    def read_utf(self) -> str:
        """Reads a text that has its length in two bytes before it. Raises MessageEOFError, MessageFormatError."""
        start = self._at
        try:
            return self.read_bytes(self.read_unsigned_short()).decode()
        except (MessageEOFError, UnicodeDecodeError) as error:
            self._at = start
            if isinstance(error, MessageEOFError):
                raise
            raise MessageFormatError(f"here is no UTF-8: {error}") from error

    def write_utf(self, value: str) -> None:
        """Writes a text as UTF-8, with its length in two bytes before it. Raises MessageNotWriteableError."""
        text = str(written(ValueType.STRING, value).value).encode()
        if len(text) >= 1 << 16:
            raise MessageFormatError(f"a text of {len(text)} bytes: write_utf writes at most 65535")
        self.write_bytes(struct.pack(">H", len(text)) + text)

    def read_bytes(self, count: int) -> bytes:
        """Reads so many bytes. Raises MessageEOFError if there are not as many, and then reads none."""
        self._readable()
        if self._at + count > len(self._bytes):
            raise MessageEOFError(f"{count} bytes were to be read, and {len(self._bytes) - self._at} are left")
        self._at += count
        return bytes(self._bytes[self._at - count : self._at])

    def write_bytes(self, value: bytes) -> None:
        """Writes bytes. Raises MessageNotWriteableError, MessageFormatError."""
        self._write()
        self._bytes += written(ValueType.BYTES, value).value or b""

    def get_body_length(self) -> int:
        """Returns the number of bytes. Raises MessageNotReadableError."""
        self._readable()
        return len(self._bytes)

    def clear_body(self) -> None:
        """Removes all bytes, after which they can be written."""
        super().clear_body()
        self._bytes = bytearray()

    def _body(self) -> bytes | None:
        return bytes(self._bytes) or None

    def _encoded(self) -> bytes:
        return bytes(self._bytes)

    def _decode(self, body: bytes) -> None:
        self._bytes = bytearray(body)


_KINDS: Final[dict[object, type[Message]]] = {
    kind.body_kind: kind for kind in (Message, TextMessage, BytesMessage, MapMessage, StreamMessage, JsonMessage)
}


def message_of(event: Event) -> Message:
    """The message of an event, read only. Raises MessageFormatError if its body is not what it says that it is."""
    message = _KINDS.get(event.properties.get(BODY), BytesMessage)()
    message.take_over(event)
    return message


def message_with(body: Any) -> Message:
    """The message that has this body. A mapping becomes a MapMessage, anything else that JSON can say a JsonMessage.

    Raises MessageFormatError.
    """
    if body is None:
        return Message()
    if isinstance(body, str):
        text = TextMessage()
        text.set_text(body)
        return text
    if isinstance(body, (bytes, bytearray, memoryview)):
        octets = BytesMessage()
        octets.write_bytes(bytes(body))
        return octets
    if isinstance(body, Mapping):
        values = MapMessage()
        for name, value in body.items():
            values.set_object(name, value)
        return values
    anything = JsonMessage()
    anything.set_object(body)
    return anything


def _received(wire: _Wire) -> TypedValue:
    name, value = wire
    try:
        kind = ValueType(name)
    except ValueError as error:
        raise MessageFormatError(f"the body of a message has a value of the unknown type {name!r:.30}") from error
    return TypedValue(kind, None) if value is None else written(kind, value)
