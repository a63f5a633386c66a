"""Sends requests to one Kafka broker, over a connection of aiokafka's: it has TLS, SASL and the versions of requests.

aiokafka has no types, and what is used here is no documented part of it. So this module, and the record parser in
`records`, refuse every aiokafka but the tested one, and nothing of it gets out of here: what aiokafka raises becomes a
ConnectionError or a TimeoutError. What a broker answers is never an exception: `messages.Code`.
"""

from __future__ import annotations

import asyncio
import io
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version as installed_version
from ssl import SSLContext
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

import msgspec

from gapless.errors import ConfigurationError, PluginError
from gapless_log.kafka.messages import (
    Api,
    Code,
    Deleted,
    DeleteRecords,
    DescribeTopic,
    EpochAsked,
    EpochEnds,
    EpochFound,
    Fetch,
    FetchAnswer,
    ListOffsets,
    Metadata,
    MetadataRequest,
    OffsetFound,
    OffsetWanted,
    Produce,
    Produced,
    Request,
    Topic,
    TopicConfig,
)
from gapless_log.kafka.wire import Reader, Writer

AIOKAFKA: Final = "0.14"
"""The only aiokafka that this was tested with; `gapless[kafka]` asks for it."""

NEEDED: Final = "gapless needs Kafka 4.0 or newer"
GOODBYE_SECONDS: Final = 1.0
"""How long a broker may take to close a connection that we have closed."""

Answer = TypeVar("Answer")


def require_tested(version: str) -> None:
    """Raises PluginError for an aiokafka that this was not tested with."""
    if version.split(".")[:2] != AIOKAFKA.split("."):
        raise PluginError(
            f"aiokafka {version} is installed, and Kafka topics were tested with {AIOKAFKA} alone: "
            'pip install "gapless[kafka]"'
        )


@dataclass(frozen=True)
class Access:
    """How brokers are connected to."""

    tls: SSLContext | None = None
    mechanism: Literal["", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = ""
    """Of SASL; empty: the broker asks for no name."""
    user: str = ""
    password: str = field(default="", repr=False)
    client_id: str = "gapless"
    """What the broker's log and its quotas know us by."""
    patience: float = 30.0
    """Seconds for an answer, a fetch's waiting included; a connection that takes longer is closed."""

    def options(self) -> dict[str, Any]:
        """The same, for aiokafka."""
        security = ("SASL_" if self.mechanism else "") + ("SSL" if self.tls else "PLAINTEXT")
        return {
            "security_protocol": security,
            "ssl_context": self.tls,
            "sasl_mechanism": self.mechanism or None,
            "sasl_plain_username": self.user,
            "sasl_plain_password": self.password,
            "client_id": self.client_id,
            "request_timeout_ms": int(self.patience * 1000),
        }


class UnfitKafkaError(ConnectionError):
    """What answers at an address is too old for gapless, or is no Kafka. Another one may be there later."""


class Connection:
    """A connection to one broker. It answers in order: a `fetch` that waits has everything after it wait, too.

    Every method raises ConnectionError when the connection breaks, UnfitKafkaError when the broker is too old, and
    TimeoutError when an answer takes too long; it is closed then, and of no further use. A method that is cancelled
    does no harm, but its answer is still waited for by what comes after it.
    """

    def __init__(self, connection: Any, address: str) -> None:
        """Made by `connect`."""
        self._connection = connection
        self.address = address

    @property
    def is_open(self) -> bool:
        """Whether it can be used."""
        return bool(self._connection.connected())

    async def close(self) -> None:
        """Ends it; what waits for an answer gets a ConnectionError."""
        await _closed(self._connection)

    async def ask(self, request: Request[Answer]) -> Answer:
        """Sends a request; returns its answer."""
        from aiokafka.errors import KafkaError

        try:
            answer: Answer = await self._connection.send(_Versioned(request))
        except ConfigurationError as error:
            self._connection.close()  # which versions it speaks is asked once for each connection
            raise UnfitKafkaError(f"Kafka at {self.address}: {error}") from error
        except asyncio.TimeoutError as error:
            self._connection.close()  # the answer would come before every other one
            raise TimeoutError(f"Kafka at {self.address} has not answered to {request.api.name}") from error
        except (KafkaError, RuntimeError) as error:
            # uvloop raises RuntimeError where one writes to a connection that has just gone, and aiokafka lets it pass.
            self._connection.close()
            raise ConnectionError(f"the connection to Kafka at {self.address} broke: {error}") from error
        return answer

    # -------------------------------------------------------------------------------- by a topic's id

    async def metadata(self, names: Sequence[str] = (), ids: Sequence[bytes] = ()) -> Metadata:
        """All brokers, and these topics, as this broker knows them."""
        return await self.ask(MetadataRequest(tuple(names), tuple(ids)))

    async def fetch(self, request: Fetch) -> FetchAnswer:
        """Records; what waits for some wants a connection of its own."""
        return await self.ask(request)

    async def produce(self, topic: Topic, partition: int, batch: bytes, timeout_ms: int) -> Produced:
        """Appends a batch of `records.encode`, once: when this raises, it may have been appended or not."""
        return await self.ask(Produce(topic, partition, batch, timeout_ms))

    # -------------------------------------------------------------------------------- by its name, and then its id

    async def list_offsets(
        self, topic: Topic, partitions: Sequence[OffsetWanted], *, is_committed: bool
    ) -> tuple[OffsetFound, ...]:
        """Where logs begin and end, or stand at a time; UNKNOWN_TOPIC_ID if it is not this topic that has the name."""
        request = ListOffsets(topic.name, tuple(partitions), is_committed)
        found, code = await self._of(topic, request)
        return found if code is Code.NONE else tuple(msgspec.structs.replace(each, code=code) for each in found)

    async def epoch_ends(self, topic: Topic, partitions: Sequence[EpochAsked]) -> tuple[EpochFound, ...]:
        """Where leader epochs end; UNKNOWN_TOPIC_ID if it is not this topic that has the name."""
        found, code = await self._of(topic, EpochEnds(topic.name, tuple(partitions)))
        return found if code is Code.NONE else tuple(msgspec.structs.replace(each, code=code) for each in found)

    async def describe(self, topic: Topic) -> TopicConfig:
        """The settings that are in force; UNKNOWN_TOPIC_ID if it is not this topic that has the name."""
        config, code = await self._of(topic, DescribeTopic(topic.name))
        return config if code is Code.NONE else TopicConfig(code, {})

    async def delete_records(self, topic: Topic, partition: int, before: int, timeout_ms: int) -> Deleted:
        """Deletes what lies before an offset, if this topic has the name; else UNKNOWN_TOPIC_ID.

        That is asked first. Whoever deletes the topic, and makes it again, in the time between, loses such records of
        the new one: Kafka deletes by the name alone.
        """
        if code := await self._has_name(topic):
            return Deleted(code, -1)
        return await self.ask(DeleteRecords(topic.name, partition, before, timeout_ms))

    async def _of(self, topic: Topic, request: Request[Answer]) -> tuple[Answer, Code]:
        """The answer about a name, and whether that was this topic's when it was given.

        An id is never given twice, and a broker knows that it is gone before it answers for the new topic: so if the
        id is there after the answer, the answer was about it. Both requests are sent at once, and answered in order.
        """
        answer, code = await asyncio.gather(self.ask(request), self._has_name(topic))
        return answer, code

    async def _has_name(self, topic: Topic) -> Code:
        (found,) = (await self.metadata(ids=(topic.id,))).topics
        if found.code is Code.NONE and found.name != topic.name:
            return Code.INCONSISTENT_TOPIC_ID
        return found.code


async def connect(address: str, access: Access) -> Connection:
    """Connects to the broker at `HOST:PORT`.

    Raises ConnectionError when there is none, or when it refuses us, UnfitKafkaError when it is no Kafka, and
    TimeoutError when it does not answer; PluginError when another aiokafka is installed than the tested one.
    """
    require_tested(installed_version("aiokafka"))
    from aiokafka.conn import AIOKafkaConnection, get_ip_port_afi
    from aiokafka.errors import KafkaError

    host, port, _ = get_ip_port_afi(address)
    connection = AIOKafkaConnection(host, port, **access.options())
    try:
        await connection.connect()
    except asyncio.TimeoutError as error:
        raise TimeoutError(f"Kafka at {address} does not answer. {NEEDED}") from error
    except OSError as error:
        await _closed_if_begun(connection)
        raise ConnectionError(f"cannot connect to Kafka at {address}: {error}") from error
    except KafkaError as error:
        await _closed_if_begun(connection)
        raise ConnectionError(f"cannot connect to Kafka at {address}: {error}. {NEEDED}") from error
    except Exception as error:  # whatever aiokafka makes of bytes that are no answer
        await _closed_if_begun(connection)
        raise UnfitKafkaError(f"what answers at {address} is no Kafka: {error!r}. {NEEDED}") from error
    return Connection(connection, address)


async def _closed_if_begun(connection: Any) -> None:
    if connection._protocol is not None:  # noqa: SLF001 - there has been a connection: aiokafka says so in no other way
        await _closed(connection)


async def _closed(connection: Any) -> None:
    """Closes a connection of aiokafka's, and waits for it: under TLS both ends say goodbye before."""
    await asyncio.wait([connection.close()], timeout=GOODBYE_SECONDS)


class _Header(NamedTuple):
    correlation_id: int


class _Versioned(Generic[Answer]):
    """A request as aiokafka's connections want it: it is given the broker's versions, and then asked for its bytes."""

    def __init__(self, request: Request[Answer]) -> None:
        self.RESPONSE_TYPE = self
        self._request = request
        self._version = -1

    def prepare(self, versions: dict[int, tuple[int, int]]) -> _Versioned[Answer]:
        """Called first."""
        self._version = version_of(self._request.api, versions)
        return self

    def build_request_header(self, correlation_id: int, client_id: str) -> _Bytes:
        """Called next: the header of all flexible messages."""
        api = self._request.api
        client = client_id.encode()
        head = struct.pack(">hhih", api.key, self._version, correlation_id, len(client))
        return _Bytes(head + client + b"\0")

    def encode(self) -> bytes:
        """Then: the body."""
        out = Writer()
        self._request.write(out, self._version)
        return out.message()

    def parse_response_header(self, data: io.BytesIO) -> _Header:
        """When an answer is there: its header."""
        reader = Reader(data.getvalue())
        header = _Header(reader.int32())
        reader.end()
        data.seek(reader.at)
        return header

    def decode(self, data: io.BytesIO) -> Answer:
        """At last: the answer."""
        return self._request.read(Reader(data.getvalue(), data.tell()), self._version)

    def __repr__(self) -> str:
        return f"{self._request.api.name} {self._version}"  # aiokafka logs it; a batch is large


class _Bytes(NamedTuple):
    data: bytes

    def encode(self) -> bytes:
        """The bytes, as aiokafka asks for them."""
        return self.data


def version_of(api: Api, versions: dict[int, tuple[int, int]]) -> int:
    """The version of a request that is best for both; raises ConfigurationError if there is none."""
    lowest, highest = versions.get(api.key, (0, -1))
    for version in api.versions:
        if lowest <= version <= highest:
            return version
    wanted = " or ".join(map(str, api.versions))
    spoken = f"speaks versions {lowest} to {highest} of" if highest >= 0 else "does not know"
    raise ConfigurationError(f"it is too old: it {spoken} {api.name}, and version {wanted} of that is needed. {NEEDED}")
