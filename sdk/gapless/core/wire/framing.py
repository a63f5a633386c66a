"""Frames on a byte stream: length, checksum, payload. Pure: bytes in, payloads out.

    +----------------+----------------+---------------------+
    | length, 4 bytes| CRC32C, 4 bytes| payload             |
    +----------------+----------------+---------------------+

Both numbers are little-endian and unsigned, and are those of the payload alone. A payload is never empty. The length is
compared with a limit as soon as it is known, and memory grows only with the bytes that arrive. So a peer that announces
a large frame costs nothing until it sends it.

Rules of this module: no clock, no I/O, no knowledge of what a payload means.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from google_crc32c import extend, value

from gapless.errors import LocalProtocolError, RemoteProtocolError

HEADER_BYTES = 8
"""The bytes before every payload."""

PAYLOAD_BYTES_MAX = 2**31 - 1
"""The longest possible payload, whatever the limit of the receiving end is."""

LOOKS_LIKE_HTTP: Final = "These bytes look like HTTP"
"""How the error ends when the other end speaks HTTP."""

_HEADER = Struct("<II")

# Small pieces of an unfinished payload are gathered in one growing buffer: a peer that sends two bytes at a time
# must not make us keep one object for each piece.
_SMALL_PIECE_BYTES = 4096


def encode_header(payload: bytes, rest: bytes = b"") -> bytes:
    """Returns the header of the frame whose payload is `payload + rest`; neither part is copied.

    Raises LocalProtocolError if the payload is empty or longer than `PAYLOAD_BYTES_MAX`.
    """
    length = len(payload) + len(rest)
    if not 0 < length <= PAYLOAD_BYTES_MAX:
        raise LocalProtocolError(f"a frame's payload has 1 to {PAYLOAD_BYTES_MAX} bytes, not {length}")
    checksum = value(payload)
    return _HEADER.pack(length, extend(checksum, rest) if rest else checksum)


def encode_frame(payload: bytes) -> bytes:
    """Returns the whole frame in one piece: for tests, simulations, and everything that need not be fast.

    Raises LocalProtocolError as `encode_header` does.
    """
    return encode_header(payload) + payload


class FrameDecoder:
    """Cuts a stream of bytes back into payloads, however the bytes arrive.

    A frame that breaks the rules (too long, empty, wrong checksum) makes `feed` raise RemoteProtocolError, then and at
    every later call: after such a frame the stream cannot be trusted again. The frames before it are not lost: `feed`
    returns them first, sets `held`, and judges the bad frame at the next call. So a caller that sees `held` handles the
    payloads and calls `feed(b"")`. This also lets the handling of one frame raise the limit for the next one.
    """

    def __init__(self, limit: int) -> None:
        """Creates a decoder that accepts payloads of 1 to `limit` bytes."""
        self.limit = limit
        """The longest accepted payload, in bytes. It may be changed between calls of `feed`."""
        self.held = False
        """Whether a frame that would now be refused follows the payloads just returned."""
        self.begun = 0
        """The length of a payload that has not arrived completely; 0 if there is none."""
        self._rest = b""
        self._pieces: list[bytes | bytearray | memoryview] = []
        self._missing = 0
        self._checksum = 0
        self._error = ""

    @property
    def inside_frame(self) -> bool:
        """Whether the bytes so far end in the middle of a frame, so that an end of the stream would cut it."""
        return bool(self._missing or self._rest)

    @property
    def collected(self) -> int:
        """How many bytes of the unfinished payload have arrived."""
        return self.begun - self._missing

    def feed(self, data: bytes) -> list[bytes]:
        """Returns the payloads that `data` completes, in order.

        Raises RemoteProtocolError if the first frame that was not returned yet breaks the rules.
        """
        if self._error:
            raise RemoteProtocolError(self._error)
        if not self._missing:
            return self._cut(self._rest + data if self._rest else data, 0, [])
        if len(data) < self._missing:
            self._collect(memoryview(data))
            return []
        length = self._missing
        self._collect(memoryview(data)[:length])
        self.begun = 0
        payload = b"".join(self._pieces)
        self._pieces.clear()
        if value(payload) != self._checksum:
            self._break(_checksum_message(payload, self._checksum))
        return self._cut(data, length, [payload])

    def _cut(self, data: bytes, start: int, payloads: list[bytes]) -> list[bytes]:
        """Appends the whole frames in `data` from `start` on to `payloads`, and keeps the rest."""
        end = len(data)
        limit = self.limit
        unpack = _HEADER.unpack_from
        self.held = False
        self._rest = b""
        while end - start >= HEADER_BYTES:
            length, checksum = unpack(data, start)
            if not 0 < length <= limit:
                return self._hold(data, start, payloads, _length_message(length, limit, data[start : start + 4]))
            body = start + HEADER_BYTES
            start = body + length
            if start > end:
                self._missing = self.begun = length
                self._checksum = checksum
                self._collect(memoryview(data)[body:])
                return payloads
            payload = data[body:start]
            if value(payload) != checksum:
                return self._hold(data, body - HEADER_BYTES, payloads, _checksum_message(payload, checksum))
            payloads.append(payload)
        self._rest = data[start:]
        return payloads

    def _collect(self, piece: memoryview) -> None:
        """Keeps a piece of an unfinished payload: large pieces by reference, small ones gathered."""
        self._missing -= len(piece)
        if len(piece) >= _SMALL_PIECE_BYTES:
            self._pieces.append(piece)
        elif self._pieces and isinstance(self._pieces[-1], bytearray):
            self._pieces[-1] += piece
        else:
            self._pieces.append(bytearray(piece))

    def _hold(self, data: bytes, start: int, payloads: list[bytes], message: str) -> list[bytes]:
        """Keeps a bad frame for the next call, if there are payloads to return before it."""
        if not payloads:
            self._break(message)
        self.held = True
        self._rest = data[start:]
        return payloads

    def _break(self, message: str) -> None:
        self._error = message
        self._rest = b""
        raise RemoteProtocolError(message)


def _checksum_message(payload: bytes, checksum: int) -> str:
    real = value(payload)
    return f"a frame of {len(payload)} bytes has the checksum {real:08x} but announced {checksum:08x}"


def _length_message(length: int, limit: int, start: bytes) -> str:
    if length == 0:
        return "a frame announced an empty payload"
    message = f"a frame announced {length} bytes; at most {limit} are allowed here"
    if start.startswith((b"\x16\x03", b"\x15\x03")):
        return f"{message}. These bytes look like TLS: this end speaks without"
    if start.startswith((b"GET ", b"POST", b"HEAD", b"PUT ", b"HTTP", b"OPTI", b"CONN", b"PRI ")):
        return f"{message}. {LOOKS_LIKE_HTTP}"
    return message
