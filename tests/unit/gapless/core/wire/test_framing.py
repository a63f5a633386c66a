"""Frames: any chopping gives the same payloads, and nothing that was not sent ever comes out."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.core.wire.framing import HEADER_BYTES, FrameDecoder, encode_frame, encode_header
from gapless.errors import LocalProtocolError, RemoteProtocolError

LIMIT = 20_000

payload_lists = st.lists(
    st.binary(min_size=1, max_size=40) | st.integers(1, LIMIT).map(lambda size: bytes(range(251)) * (size // 251 + 1)),
    min_size=1,
    max_size=8,
).map(lambda payloads: [payload[:LIMIT] for payload in payloads])


def stream_of(payloads: list[bytes]) -> bytes:
    return b"".join(map(encode_frame, payloads))


def fed_in_pieces(decoder: FrameDecoder, data: bytes, sizes: list[int]) -> list[bytes]:
    """All payloads of `data`, fed in pieces of these sizes, again and again."""
    received: list[bytes] = []
    start = turn = 0
    while start < len(data):
        end = start + sizes[turn % len(sizes)]
        received += decoder.feed(data[start:end])
        start, turn = end, turn + 1
    return received


def test_a_frame_is_length_checksum_and_payload() -> None:
    """The checksum of this payload is the known answer of CRC-32C."""
    assert encode_frame(b"123456789") == b"\x09\0\0\0" + b"\x83\x92\x06\xe3" + b"123456789"


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_two_parts_have_the_header_of_the_whole(first: bytes, second: bytes) -> None:
    if first or second:
        assert encode_header(first, second) == encode_header(first + second)


@pytest.mark.parametrize("parts", [(b"",), (b"", b"")], ids=len)
def test_an_empty_payload_cannot_be_sent(parts: tuple[bytes, ...]) -> None:
    with pytest.raises(LocalProtocolError, match="not 0"):
        encode_header(*parts)


@given(payload_lists, st.lists(st.integers(1, 50) | st.integers(1, 30_000), min_size=1, max_size=5))
def test_any_chopping_gives_the_same_payloads(payloads: list[bytes], sizes: list[int]) -> None:
    decoder = FrameDecoder(LIMIT)

    assert fed_in_pieces(decoder, stream_of(payloads), sizes) == payloads
    assert not decoder.inside_frame


@pytest.mark.parametrize("size", range(1, 24))
def test_pieces_of_every_small_size(size: int) -> None:
    payloads = [bytes([length]) * length for length in range(1, 30)]

    assert fed_in_pieces(FrameDecoder(LIMIT), stream_of(payloads), [size]) == payloads


def test_payloads_come_as_soon_as_they_are_whole() -> None:
    decoder = FrameDecoder(LIMIT)
    data = stream_of([b"first", b"second"])
    came = [(end, payload) for end in range(1, len(data) + 1) for payload in decoder.feed(data[end - 1 : end])]

    assert came == [(HEADER_BYTES + 5, b"first"), (len(data), b"second")]


@pytest.mark.parametrize("missing", [1, 6, 7, 8, 14])
def test_a_cut_stream_ends_inside_a_frame(missing: int) -> None:
    data = stream_of([b"first", b"second"])
    decoder = FrameDecoder(LIMIT)

    assert decoder.feed(data[:-missing]) == [b"first"]
    assert decoder.inside_frame is (missing < 14)
    assert decoder.feed(data[-missing:]) == [b"second"]
    assert not decoder.inside_frame


@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_no_flipped_bit_goes_unnoticed(piece: int) -> None:
    """What comes out is what was sent, up to the damage; then there is an error, or the decoder still waits."""
    payloads = [b"one", b"and two", b"!"]
    data = stream_of(payloads)
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        decoder = FrameDecoder(LIMIT)
        received: list[bytes] = []
        refused = False
        try:
            for start in range(0, len(damaged), piece):
                received += decoder.feed(bytes(damaged[start : start + piece]))
            received += decoder.feed(b"")
        except RemoteProtocolError:
            refused = True

        assert received == payloads[: len(received)]
        assert len(received) < len(payloads)
        assert refused or decoder.inside_frame


@given(st.binary(max_size=300), st.lists(st.integers(1, 40), min_size=1, max_size=4))
def test_noise_is_refused_or_awaited(noise: bytes, sizes: list[int]) -> None:
    """Whatever comes, only one kind of error is raised, and it is raised again at every later call."""
    decoder = FrameDecoder(100)
    try:
        fed_in_pieces(decoder, noise, sizes)
        decoder.feed(b"")
    except RemoteProtocolError as error:
        with pytest.raises(RemoteProtocolError, match=r".") as again:
            decoder.feed(encode_frame(b"good"))
        assert str(again.value) == str(error)


def test_the_limit_itself_is_allowed() -> None:
    assert FrameDecoder(5).feed(encode_frame(b"12345")) == [b"12345"]


@pytest.mark.parametrize("length", [6, 2**16, 2**31 - 1, 2**31, 2**32 - 1])
def test_a_length_above_the_limit_is_refused_with_its_header(length: int) -> None:
    with pytest.raises(RemoteProtocolError, match=f"announced {length} bytes; at most 5"):
        FrameDecoder(5).feed(length.to_bytes(4, "little") + bytes(4))


def test_an_empty_payload_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="empty"):
        FrameDecoder(5).feed(bytes(8))


def test_a_wrong_checksum_is_refused_in_one_piece_and_in_several() -> None:
    damaged = encode_frame(b"payload")[:-1] + b"?"

    with pytest.raises(RemoteProtocolError, match="checksum"):
        FrameDecoder(LIMIT).feed(damaged)
    decoder = FrameDecoder(LIMIT)
    decoder.feed(damaged[:10])
    with pytest.raises(RemoteProtocolError, match="checksum"):
        decoder.feed(damaged[10:])


@pytest.mark.parametrize(
    ("offence", "complaint"),
    [
        (bytes(8), "empty"),
        (encode_frame(bytes(6)), "announced 6 bytes"),
        (encode_frame(b"bad")[:-1] + b"?", "frame of 3 bytes has the checksum"),
    ],
)
def test_payloads_before_an_offence_are_returned_first(offence: bytes, complaint: str) -> None:
    decoder = FrameDecoder(5)

    assert decoder.feed(encode_frame(b"one") + encode_frame(b"two") + offence + encode_frame(b"four")) == [
        b"one",
        b"two",
    ]
    assert decoder.held
    with pytest.raises(RemoteProtocolError, match=complaint):
        decoder.feed(b"")
    assert not decoder.held


def test_a_payload_that_spans_reads_is_returned_before_an_offence() -> None:
    decoder = FrameDecoder(5)
    data = encode_frame(b"12345") + bytes(8)
    decoder.feed(data[:10])

    assert decoder.feed(data[10:]) == [b"12345"]
    assert decoder.held
    with pytest.raises(RemoteProtocolError, match="empty"):
        decoder.feed(encode_frame(b"more"))


def test_a_held_frame_is_judged_by_the_limit_of_then() -> None:
    decoder = FrameDecoder(5)
    data = encode_frame(b"hello") + encode_frame(b"a long one") + encode_frame(b"last")

    assert decoder.feed(data) == [b"hello"]
    decoder.limit = 10
    assert decoder.feed(b"") == [b"a long one", b"last"]
    assert not decoder.held


def test_a_frame_under_way_keeps_its_permission() -> None:
    """The limit is judged once, when the length is known."""
    decoder = FrameDecoder(10)
    decoder.feed(encode_frame(b"a long one")[:9])
    decoder.limit = 5

    assert decoder.feed(encode_frame(b"a long one")[9:]) == [b"a long one"]


@pytest.mark.parametrize(
    ("start", "hint"),
    [(b"\x16\x03\x01\x02\x00\x01\x00\x01", "TLS"), (b"GET / HTTP/1.1\r\n", "HTTP"), (b"\xff" * 8, "at most 5 are")],
)
def test_who_knocks_at_the_wrong_door_is_told(start: bytes, hint: str) -> None:
    with pytest.raises(RemoteProtocolError, match=hint):
        FrameDecoder(5).feed(start)


def peak_of_feeding(decoder: FrameDecoder, pieces: list[bytes]) -> int:
    tracemalloc.start()
    for piece in pieces:
        decoder.feed(piece)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def test_a_length_allocates_nothing() -> None:
    claim = (1 << 30).to_bytes(4, "little") + bytes(4)

    assert peak_of_feeding(FrameDecoder(1 << 30), [claim, b"x"]) < 1 << 16


def test_tiny_pieces_cost_no_more_than_their_bytes() -> None:
    """Else a peer could make us hold an object of fifty bytes for every two that it sends."""
    frame = encode_frame(bytes(60_000))
    pieces = [frame[start : start + 2] for start in range(0, len(frame), 2)]

    assert peak_of_feeding(FrameDecoder(1 << 30), pieces) < 3 * len(frame)
