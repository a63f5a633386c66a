"""Requests are what Kafka's schemas say, as aiokafka's types read them; answers are taken apart to the last field."""

from __future__ import annotations

import io
import struct
from typing import Any

import pytest
from aiokafka.protocol.admin import DeleteRecordsRequest
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactBytes,
    CompactString,
    Int8,
    Int16,
    Int32,
    Int64,
    Schema,
    TaggedFields,
)

from gapless_log.kafka.messages import (
    LATEST,
    NO_ID,
    UNKNOWN,
    Aborted,
    Broker,
    Code,
    Deleted,
    DeleteRecords,
    DescribeTopic,
    EpochAsked,
    EpochEnd,
    EpochEnds,
    EpochFound,
    Fetch,
    FetchAnswer,
    Fetched,
    FetchFrom,
    ListOffsets,
    Metadata,
    MetadataRequest,
    OffsetFound,
    OffsetWanted,
    PartitionState,
    Produce,
    Produced,
    Request,
    Topic,
    TopicConfig,
    TopicState,
)
from gapless_log.kafka.wire import Reader, Writer

A, B = b"a" * 16, b"b" * 16


class Id:
    """A topic's id, as a type of aiokafka's."""

    @classmethod
    def encode(cls, value: bytes) -> bytes:
        """As it is."""
        return value

    @classmethod
    def decode(cls, data: io.BytesIO) -> bytes:
        """Sixteen bytes."""
        return data.read(16)


TEXT = CompactString("utf-8")


def many(*fields: Any) -> Any:
    """An array of structures; each ends with its tags."""
    array = CompactArray(Int8)
    array.array_of = Schema(*((str(number), field) for number, field in enumerate((*fields, TaggedFields))))
    return array


def body(*fields: Any) -> Any:
    """A whole message."""
    return Schema(*((str(number), field) for number, field in enumerate((*fields, TaggedFields))))


def sent(request: Request[Any], version: int) -> bytes:
    """Its bytes."""
    out = Writer()
    request.write(out, version)
    return out.message()


def read(request: Request[Any], version: int, answer: bytes) -> Any:
    """Its answer, of which only the tags at the end may be left."""
    reader = Reader(answer)
    found = request.read(reader, version)
    assert answer[reader.at :] in (b"", b"\0")
    return found


REQUESTS: list[tuple[Request[Any], int, Any, tuple[Any, ...]]] = [
    (
        MetadataRequest(("é",), (A,)),
        12,
        body(many(Id, TEXT), Boolean, Boolean),
        ([(NO_ID, "é", {}), (A, None, {})], False, False, {}),
    ),
    (
        Fetch(
            (
                FetchFrom(A, 0, 1 << 40, 3, 2, 100),
                FetchFrom(B, 1, 0, UNKNOWN, UNKNOWN, 200),
                FetchFrom(A, 2, 5, 3, 2, 300),
            ),
            is_committed=True,
            wait_ms=500,
            bytes_min=1,
            bytes_max=1 << 20,
        ),
        13,
        body(
            Int32,
            Int32,
            Int32,
            Int32,
            Int8,
            Int32,
            Int32,
            many(Id, many(Int32, Int32, Int64, Int32, Int64, Int32)),
            many(Id, CompactArray(Int32)),
            TEXT,
        ),
        (
            -1,
            500,
            1,
            1 << 20,
            1,
            0,
            -1,
            [
                (A, [(0, 3, 1 << 40, 2, -1, 100, {}), (2, 3, 5, 2, -1, 300, {})], {}),
                (B, [(1, -1, 0, -1, -1, 200, {})], {}),
            ],
            [],
            "",
            {},
        ),
    ),
    (
        ListOffsets("t", (OffsetWanted(0, 3, LATEST), OffsetWanted(1, UNKNOWN, 77)), is_committed=False),
        7,
        body(Int32, Int8, many(TEXT, many(Int32, Int32, Int64))),
        (-1, 0, [("t", [(0, 3, -1, {}), (1, -1, 77, {})], {})], {}),
    ),
    (
        EpochEnds("t", (EpochAsked(0, 3, 2),)),
        4,
        body(Int32, many(TEXT, many(Int32, Int32, Int32))),
        (-1, [("t", [(0, 3, 2, {})], {})], {}),
    ),
    (
        Produce(Topic("t", A), 4, b"batch", 900),
        13,
        body(TEXT, Int16, Int32, many(Id, many(Int32, CompactBytes))),
        (None, -1, 900, [(A, [(4, b"batch", {})], {})], {}),
    ),
    (
        Produce(Topic("t", A), 4, b"batch", 900),
        9,
        body(TEXT, Int16, Int32, many(TEXT, many(Int32, CompactBytes))),
        (None, -1, 900, [("t", [(4, b"batch", {})], {})], {}),
    ),
    (
        DescribeTopic("t"),
        4,
        body(many(Int8, TEXT, CompactArray(TEXT)), Boolean, Boolean),
        ([(2, "t", None, {})], False, False, {}),
    ),
]


@pytest.mark.parametrize(
    ("request_", "version", "schema", "expected"), REQUESTS, ids=[f"{each[0].api.name}-{each[1]}" for each in REQUESTS]
)
def test_a_request_is_what_the_schema_says(
    request_: Request[Any], version: int, schema: Any, expected: tuple[Any, ...]
) -> None:
    data = io.BytesIO(sent(request_, version))

    assert schema.decode(data) == expected
    assert data.read() == b""


def test_a_wish_to_delete_is_what_aiokafka_sends() -> None:
    theirs = DeleteRecordsRequest([("t", [(4, 77)])], 900).prepare({21: (0, 2)})

    assert sent(DeleteRecords("t", 4, 77, 900), 2) == theirs.encode()


def aborted_and_diverging() -> bytes:
    """An answer to a fetch, with every field."""
    part = many(Int32, Int16, Int64, Int64, Int64, many(Int64, Int64), Int32, CompactBytes)
    tags = {1: struct.pack(">ii", 8, 5) + b"\0"}
    diverging = {0: struct.pack(">iq", 2, 600) + b"\0"}
    head: bytes = body(Int32, Int16, Int32).encode((9, 0, 0, {}))[:-1]
    one: bytes = part.array_of.encode((0, 0, 12, 10, 3, [(7, 4, {}), (6, 5, {})], -1, b"records", {}))
    # aiokafka's encoder of tags leaves their lengths out.
    two: bytes = part.array_of.encode((1, 74, -1, -1, -1, [], -1, None, {}))[:-1] + tagged({**diverging, **tags})
    return head + b"\x02" + A + b"\x03" + one + two + b"\0" + b"\0"


def tagged(tags: dict[int, bytes]) -> bytes:
    """Tags, with their lengths."""
    return bytes([len(tags)]) + b"".join(bytes([tag, len(data)]) + data for tag, data in tags.items())


ANSWERS: list[tuple[Request[Any], int, bytes, Any]] = [
    (
        MetadataRequest((), ()),
        12,
        body(
            Int32,
            many(Int32, TEXT, Int32, TEXT),
            TEXT,
            Int32,
            many(
                Int16,
                TEXT,
                Id,
                Boolean,
                many(Int16, Int32, Int32, Int32, CompactArray(Int32), CompactArray(Int32), CompactArray(Int32)),
                Int32,
            ),
        ).encode(
            (
                0,
                [(1, "host", 9092, None, {}), (2, "other", 9093, "rack", {})],
                "cluster",
                2,
                [
                    (0, "t", A, False, [(5, 3, 1, 4, [1, 2], [1], [2], {})], 0, {}),
                    (100, None, B, False, [], 0, {}),
                    (3, "gone", NO_ID, False, [], 0, {}),
                ],
                {},
            )
        ),
        Metadata(
            "cluster",
            2,
            (Broker(1, "host", 9092), Broker(2, "other", 9093)),
            (
                TopicState(Code.NONE, "t", A, (PartitionState(Code.LEADER_NOT_AVAILABLE, 3, 1, 4, (1, 2), (1,)),)),
                TopicState(Code.UNKNOWN_TOPIC_ID, "", B, ()),
                TopicState(Code.UNKNOWN_TOPIC_OR_PARTITION, "gone", NO_ID, ()),
            ),
        ),
    ),
    (
        Fetch((), is_committed=True, wait_ms=0, bytes_min=0, bytes_max=0),
        13,
        aborted_and_diverging(),
        FetchAnswer(
            Code.NONE,
            (
                Fetched(A, 0, Code.NONE, 12, 10, 3, (Aborted(7, 4), Aborted(6, 5)), None, None, b"records"),
                Fetched(A, 1, Code.FENCED_LEADER_EPOCH, -1, -1, -1, (), EpochEnd(2, 600), (8, 5), b""),
            ),
        ),
    ),
    (
        ListOffsets("t", (), is_committed=True),
        7,
        body(Int32, many(TEXT, many(Int32, Int16, Int64, Int64, Int32))).encode(
            (0, [("t", [(0, 0, 77, 1 << 40, 3, {}), (1, 75, -1, -1, -1, {})], {})], {})
        ),
        (
            OffsetFound(0, Code.NONE, 1 << 40, 77, 3),
            OffsetFound(1, Code.UNKNOWN_LEADER_EPOCH, UNKNOWN, -1, UNKNOWN),
        ),
    ),
    (
        EpochEnds("t", ()),
        4,
        body(Int32, many(TEXT, many(Int16, Int32, Int32, Int64))).encode((0, [("t", [(0, 1, 2, 600, {})], {})], {})),
        (EpochFound(1, Code.NONE, 2, 600),),
    ),
    *[
        (
            Produce(Topic("t", A), 4, b"", 0),
            version,
            body(
                many(field, many(Int32, Int16, Int64, Int64, Int64, many(Int32, TEXT), TEXT)),
                Int32,
            ).encode(([(named, [(4, 87, -1, -1, 3, [(0, "too old", {})], "bad batch", {})], {})], 0, {}))[:-5],
            Produced(Code.INVALID_RECORD, -1, 3, "bad batch; too old"),
        )
        for version, field, named in ((13, Id, A), (9, TEXT, "t"))
    ],
    (
        DeleteRecords("t", 4, 0, 0),
        2,
        body(Int32, many(TEXT, many(Int32, Int64, Int16))).encode((0, [("t", [(4, 40, 0, {})], {})], {})),
        Deleted(Code.NONE, 40),
    ),
    (
        DescribeTopic("t"),
        4,
        body(
            Int32,
            many(
                Int16,
                TEXT,
                Int8,
                TEXT,
                many(TEXT, TEXT, Boolean, Int8, Boolean, many(TEXT, TEXT, Int8), Int8, TEXT),
            ),
        ).encode(
            (
                0,
                [
                    (
                        0,
                        None,
                        2,
                        "t",
                        [
                            ("a", "1", False, 1, False, [("b", "2", 1, {})], 3, "words", {}),
                            ("c", None, True, 5, True, [], 1, None, {}),
                        ],
                        {},
                    )
                ],
                {},
            )
        ),
        TopicConfig(Code.NONE, {"a": "1", "c": ""}),
    ),
]


@pytest.mark.parametrize(
    ("request_", "version", "answer", "expected"), ANSWERS, ids=[f"{each[0].api.name}-{each[1]}" for each in ANSWERS]
)
def test_an_answer_is_taken_apart(request_: Request[Any], version: int, answer: bytes, expected: Any) -> None:
    assert read(request_, version, answer) == expected


@pytest.mark.parametrize(
    ("request_", "version", "answer", "expected"), ANSWERS, ids=[f"{each[0].api.name}-{each[1]}" for each in ANSWERS]
)
def test_an_answer_that_ends_too_early_is_an_error(
    request_: Request[Any], version: int, answer: bytes, expected: Any
) -> None:
    for length in range(len(answer) - 1):
        with pytest.raises(ValueError, match="ends after"):
            request_.read(Reader(answer[:length]), version)


def test_a_code_that_is_not_listed_has_a_name() -> None:
    code = Code(12345)

    assert (code.name, code.value, code == 12345) == ("CODE_12345", 12345, True)
    with pytest.raises(ValueError, match="'x' is not a valid Code"):
        Code("x")  # type: ignore[arg-type]


def test_a_topic_id_has_sixteen_bytes() -> None:
    with pytest.raises(ValueError, match="16 bytes, not 3"):
        sent(MetadataRequest((), (b"abc",)), 12)


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 16383, 16384, (1 << 32) - 1])
def test_a_varint_comes_back(value: int) -> None:
    out = Writer()
    out.varint(value)

    assert Reader(out.message()).varint() == value


def test_a_varint_without_an_end() -> None:
    with pytest.raises(ValueError, match="more than five bytes"):
        Reader(b"\xff" * 9).varint()
