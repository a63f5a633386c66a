"""What is sent over a connection, what its failures become, and that an answer about a name is one about the topic."""

from __future__ import annotations

import asyncio
import io
import ssl
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trustme

from gapless.errors import ConfigurationError, PluginError
from gapless_log.kafka.cluster import Cluster
from gapless_log.kafka.messages import (
    EARLIEST,
    Api,
    Code,
    EpochAsked,
    EpochEnds,
    EpochFound,
    ListOffsets,
    Metadata,
    MetadataRequest,
    OffsetFound,
    OffsetWanted,
    Topic,
    TopicState,
)
from gapless_log.kafka.requests import (
    AIOKAFKA,
    Access,
    Connection,
    UnfitKafkaError,
    _Versioned,
    connect,
    require_tested,
    version_of,
)

ROOT = Path(__file__).parents[4]
A, B = b"a" * 16, b"b" * 16
ALL = dict.fromkeys(range(40), (0, 99))


class Broker:
    """A connection as aiokafka has it, to a broker that answers from a list. `names`: of the ids that it knows."""

    def __init__(self, names: dict[bytes, str]) -> None:
        self.names = names
        self.sent: list[str] = []
        self.answers: dict[str, Any] = {}
        self.at_eof = False
        self.closed = asyncio.get_running_loop().create_future()

    def connected(self) -> bool:
        return not self.at_eof and not self.closed.done()

    def close(self) -> asyncio.Future[None]:
        if not self.closed.done():
            self.closed.set_result(None)
        return self.closed

    async def send(self, request: _Versioned[Any]) -> Any:
        prepared = request.prepare(ALL)
        self.sent.append(repr(prepared).split()[0])
        asked = prepared._request
        if isinstance(asked, MetadataRequest):
            (topic_id,) = asked.ids
            name = self.names.get(topic_id)
            code = Code.UNKNOWN_TOPIC_ID if name is None else Code.NONE
            return Metadata("", 1, (), (TopicState(code, name or "", topic_id, ()),))
        answer = self.answers[asked.api.name]
        if isinstance(answer, BaseException):
            raise answer
        return answer


FOUND = (OffsetFound(0, Code.NONE, 5, -1, 0), OffsetFound(1, Code.NOT_LEADER_OR_FOLLOWER, -1, -1, -1))
WANTED = [OffsetWanted(0, -1, EARLIEST), OffsetWanted(1, -1, EARLIEST)]


def codes(found: tuple[OffsetFound, ...]) -> list[Code]:
    """Their codes."""
    return [each.code for each in found]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ({A: "t"}, [Code.NONE, Code.NOT_LEADER_OR_FOLLOWER]),
        ({B: "t"}, [Code.UNKNOWN_TOPIC_ID] * 2),
        ({A: "other", B: "t"}, [Code.INCONSISTENT_TOPIC_ID] * 2),
    ],
    ids=["this topic", "made again", "another name"],
)
async def test_an_answer_about_a_name_counts_if_the_topic_has_it_after(
    names: dict[bytes, str], expected: list[Code]
) -> None:
    broker = Broker(names)
    broker.answers[ListOffsets.api.name] = FOUND
    connection = Connection(broker, "here:1")

    found = await connection.list_offsets(Topic("t", A), WANTED, is_committed=True)

    assert codes(found) == expected
    assert broker.sent == ["ListOffsets", "Metadata"]


async def test_so_do_the_ends_of_epochs() -> None:
    broker = Broker({B: "t"})
    broker.answers[EpochEnds.api.name] = (EpochFound(0, Code.NONE, 0, 20),)

    (found,) = await Connection(broker, "here:1").epoch_ends(Topic("t", A), [EpochAsked(0, -1, 0)])

    assert found.code is Code.UNKNOWN_TOPIC_ID


async def test_nothing_is_deleted_from_another_topic() -> None:
    broker = Broker({B: "t"})

    deleted = await Connection(broker, "here:1").delete_records(Topic("t", A), 0, 5, 100)

    assert deleted.code is Code.UNKNOWN_TOPIC_ID
    assert broker.sent == ["Metadata"]


async def test_an_answer_that_is_late_closes_the_connection() -> None:
    broker = Broker({})
    broker.answers[ListOffsets.api.name] = asyncio.TimeoutError()
    connection = Connection(broker, "here:1")

    with pytest.raises(TimeoutError, match="here:1 has not answered to ListOffsets"):
        await connection.ask(ListOffsets("t", (), is_committed=True))

    assert not connection.is_open


async def test_what_aiokafka_raises_does_not_get_out() -> None:
    from aiokafka.errors import KafkaConnectionError

    broker = Broker({})
    broker.answers[ListOffsets.api.name] = KafkaConnectionError("torn")

    with pytest.raises(ConnectionError, match=r"the connection to Kafka at here:1 broke: .*torn"):
        await Connection(broker, "here:1").ask(ListOffsets("t", (), is_committed=True))


async def test_a_connection_that_has_just_gone_is_closed() -> None:
    """Under uvloop that is a RuntimeError; if it got out, whoever had asked would wait for ever."""
    broker = Broker({})
    broker.answers[ListOffsets.api.name] = RuntimeError("unable to perform operation; the handler is closed")
    connection = Connection(broker, "here:1")

    with pytest.raises(ConnectionError, match="the handler is closed"):
        await connection.ask(ListOffsets("t", (), is_committed=True))

    assert not connection.is_open


async def test_a_connection_that_is_refused_is_closed_before_one_hears_of_it() -> None:
    """Under TLS that takes two: whoever ends the loop at once would leave the socket open."""
    authority, goodbyes = trustme.CA(), []
    serving, trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(serving)
    authority.configure_trust(trusting)

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in (struct.pack(">hihhhhhh", 0, 2, 17, 0, 1, 18, 0, 0), struct.pack(">hi", 33, 0)):  # no mechanism
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            request = await reader.readexactly(size)
            writer.write(struct.pack(">i", len(answer) + 4) + request[4:8] + answer)
        await reader.read()
        goodbyes.append("client's")
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0, ssl=serving)
    host, port = server.sockets[0].getsockname()
    with pytest.raises(ConnectionError, match="cannot connect to Kafka"):
        await connect(f"{host}:{port}", Access(tls=trusting, mechanism="PLAIN", user="u", password="p"))
    server.close()

    assert goodbyes


async def test_what_the_broker_has_closed_is_closed_here_before_there_is_another() -> None:
    connections: list[tuple[Connection, Broker]] = []

    async def another(address: str) -> Connection:
        broker = Broker({A: "t"})
        connections.append((Connection(broker, address), broker))
        return connections[-1][0]

    cluster = Cluster(["here:1"], another)
    await cluster.metadata(ids=(A,))
    (_, first) = connections[0]
    first.at_eof = True
    await cluster.metadata(ids=(A,))

    assert len(connections) == 2
    assert first.closed.done()


def test_a_request_is_framed_as_aiokafka_asks_for_it() -> None:
    prepared = _Versioned(MetadataRequest(("t",), ())).prepare(ALL)

    header = prepared.build_request_header(correlation_id=77, client_id="me").encode()

    assert header == struct.pack(">hhih", 3, 12, 77, 2) + b"me\0"
    assert prepared.encode() == b"\x02" + bytes(16) + b"\x02t\0" + b"\0\0\0"
    assert repr(prepared) == "Metadata 12"


def test_an_answer_begins_after_its_header() -> None:
    """Which has tags, too: here one that nobody knows."""
    prepared = _Versioned(MetadataRequest((), ())).prepare(ALL)
    data = io.BytesIO(struct.pack(">i", 77) + b"\x01\x05\x02xx" + bytes(4) + b"\x01\x02c\0\0\0\x02\x01\0")

    header = prepared.parse_response_header(data)

    assert header.correlation_id == 77
    assert prepared.decode(data) == Metadata("c", 2, (), ())


@pytest.mark.parametrize(("range_", "expected"), [((0, 13), 13), ((3, 12), 9), ((9, 9), 9), ((10, 20), 13)])
def test_the_best_version_of_both(range_: tuple[int, int], expected: int) -> None:
    assert version_of(Api("Produce", 0, (13, 9)), {0: range_}) == expected


@pytest.mark.parametrize("versions", [{1: (4, 12)}, {1: (14, 18)}, {}], ids=str)
def test_a_kafka_that_is_too_old_is_refused(versions: dict[int, tuple[int, int]]) -> None:
    said = r"(speaks versions .* of|does not know) Fetch, and version 13 .*gapless needs Kafka 4\.0 or newer"
    with pytest.raises(ConfigurationError, match=said):
        version_of(Api("Fetch", 1, (13,)), versions)


async def old(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Kafka 3.0 says which requests it knows, and is asked for none of the newer ones."""
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    asked = await reader.readexactly(size)
    known = [(0, 0, 9), (1, 0, 12), (2, 0, 7), (3, 0, 11), (18, 0, 3)]
    answer = struct.pack(">hi", 0, len(known)) + b"".join(struct.pack(">hhh", *each) for each in known)
    writer.write(struct.pack(">i", len(answer) + 4) + asked[4:8] + answer)
    await reader.read()


async def no_kafka(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A web server."""
    await reader.read(8)
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")


async def nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Something that is framed as Kafka's answers are."""
    asked = await reader.read(100)
    writer.write(struct.pack(">i", 12) + asked[8:12] + b"\xff" * 8)
    await reader.read()


@pytest.mark.parametrize(
    ("serve", "said"),
    [
        (old, "it is too old: it speaks versions 0 to 11 of Metadata, and version 12 of that is needed"),
        (no_kafka, "cannot connect to Kafka at 127.0.0.1"),
        (nonsense, "is no Kafka"),
    ],
)
async def test_what_is_no_kafka_of_today_is_an_error_of_the_connection(serve: Any, said: str) -> None:
    """Which is tried again, and may be another one then; it says which Kafka is needed."""
    ended = asyncio.Event()

    async def serve_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await serve(reader, writer)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        ended.set()

    server = await asyncio.start_server(serve_once, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()

    with pytest.raises(ConnectionError) as error:
        connection = await connect(f"{host}:{port}", Access(patience=5))
        await connection.metadata()

    await asyncio.wait_for(ended.wait(), 10)
    server.close()
    assert said in str(error.value)
    assert str(error.value).endswith("gapless needs Kafka 4.0 or newer")


async def test_only_where_nobody_of_a_cluster_is_fit_that_is_for_good() -> None:
    async def refuse(address: str) -> Connection:
        raise (UnfitKafkaError if "old" in address else ConnectionError)(address)

    with pytest.raises(UnfitKafkaError, match="old-1; old-2"):
        await Cluster(["old-1", "old-2"], refuse).metadata()
    with pytest.raises(ConnectionError) as error:
        await Cluster(["old-1", "away"], refuse).metadata()
    assert not isinstance(error.value, UnfitKafkaError)


@pytest.mark.parametrize("version", ["0.13.1", "0.15.0", "1.0", "0.140.0"])
async def test_another_aiokafka_is_refused(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gapless_log.kafka.requests.installed_version", lambda _: version)

    with pytest.raises(PluginError, match=f"aiokafka {version} is installed.* tested with 0.14 alone"):
        await connect("localhost:1", Access())


def test_the_extra_asks_for_the_aiokafka_that_was_tested() -> None:
    require_tested(f"{AIOKAFKA}.9")
    minor = int(AIOKAFKA.split(".")[1])

    assert f'"aiokafka[lz4,snappy,zstd]>={AIOKAFKA},<0.{minor + 1}"' in (ROOT / "pyproject.toml").read_text("utf-8")


@pytest.mark.parametrize(
    ("access", "protocol"),
    [
        (Access(), "PLAINTEXT"),
        (Access(tls=ssl.create_default_context()), "SSL"),
        (Access(mechanism="PLAIN", user="u", password="p"), "SASL_PLAINTEXT"),
        (Access(tls=ssl.create_default_context(), mechanism="SCRAM-SHA-256", user="u", password="p"), "SASL_SSL"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_how_a_connection_is_secured(access: Access, protocol: str) -> None:
    options = access.options()

    assert options["security_protocol"] == protocol
    assert options["ssl_context"] is access.tls
    assert (options["sasl_plain_username"], options["sasl_plain_password"]) == (access.user, access.password)


def test_a_password_is_not_printed() -> None:
    assert "secret" not in repr(Access(mechanism="PLAIN", user="u", password="secret"))
