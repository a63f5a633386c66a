"""docs/reference/limits.md has the limits that the code has, and where and how one meets them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import islice, product
from string import ascii_lowercase
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel
from typing_extensions import Self

from documents import ROOT
from gapless import errors
from gapless.client import options
from gapless.client.messages import Encoder, Message
from gapless.client.options import check_name
from gapless.client.ranges import calls as ranges
from gapless.client.ranges import keyed
from gapless.core import alarms
from gapless.core.client import ClientSettings
from gapless.core.client.consuming import subscription as subscribing
from gapless.core.client.ranges import reading
from gapless.core.network import facts, frames
from gapless.core.network.timer_queue import SECOND
from gapless.core.server import SessionLimits, answering, handshake, inquiries, publishing
from gapless.core.stream.columns import EventColumns
from gapless.core.stream.events import encode_event
from gapless.core.stream.ticks import FOREVER
from gapless.core.wire import framing, token_room
from gapless.core.wire.framing import encode_header
from gapless.core.wire.messages import sharing
from gapless.core.wire.messages.checks import HELLO_BYTES_MAX
from gapless.core.wire.tokens import CheckpointToken
from gapless.node.config import LimitsSection, NodeSection, make_config
from gapless.observe import http, pages, snapshot
from gapless.selectors import lexer, parser, topics
from gapless.selectors.selector import Selector
from gapless.selectors.topics import check_patterns, check_topic
from gapless.selectors.values import EXACT_MAX
from gapless.spi import VolumeIdentity
from gapless.texts import NAME_BYTES_MAX
from gapless_log.kafka import unpacking
from gapless_log.kafka.lineage import EPOCHS_MAX, OFFSETS_MAX
from gapless_phb.config import NAME, PhbSection, PubendSection
from gapless_phb.core import rows as phb_rows
from gapless_phb.core.publishers import consumed
from gapless_phb.core.records import encode_record
from gapless_routing.knowledge.options import Sizes
from gapless_shb.config import ShbConfig
from gapless_shb.core.ranges import reads
from gapless_shb.core.state import rows as shb_rows
from gapless_shb.core.subscriptions import expiry
from gapless_storage import memory_disk
from gapless_storage._rocksdb import layout
from gapless_storage.memory import MemoryDisk
from gapless_storage.rocksdb import RocksdbOptions
from gapless_transport.tcp_options import TcpOptions

LONG = (1 << 63) - 1


class Row(NamedTuple):
    """A line of a table."""

    limit: str
    value: str
    set_by: str
    beyond: str


def documented() -> dict[str, list[Row]]:
    """The rows of each section."""
    text = (ROOT / "docs/reference/limits.md").read_text("utf-8")
    sections = (section.partition("\n") for section in text.split("\n## ")[1:])
    return {
        title: [
            Row(*(cell.strip() for cell in line.split("|")[1:-1])) for line in rest.splitlines() if line[:2] == "| "
        ][1:]
        for title, _, rest in sections
    }


def size(number: int) -> str:
    """Bytes as the page writes them: in whole units where there are many."""
    for unit, shift in (("MiB", 20), ("KiB", 10)):
        if number >= 1 << 16 and number % (1 << shift) == 0:
            return f"{number >> shift} {unit}"
    return f"{number:,} bytes"


def default(model: type[BaseModel], name: str) -> Any:
    """What a key is if nobody sets it."""
    return model.model_fields[name].get_default(call_default_factory=True)


def bound(model: type[BaseModel], name: str, kind: str) -> Any:
    """The bound of a key: "ge", "le" or "max_length"."""
    [value] = [getattr(entry, kind) for entry in model.model_fields[name].metadata if hasattr(entry, kind)]
    return value


def one(*values: int) -> int:
    """What several places of the code agree on."""
    assert len(set(values)) == 1, values
    return values[0]


NAMES = {
    "name of a client, a publisher, a producer, a subscription, the owner of a lease": size(NAME_BYTES_MAX),
    "name of a publisher without one": "`~` and what is drawn",
    "name of a node": f"{bound(NodeSection, 'name', 'max_length')} characters",
    "name of a network": size(NAME_BYTES_MAX),
    "name of a pubend": f"{1 + int(re.findall(r'{0,([0-9]+)}', NAME)[0])} characters",
    "id of a pubend (`name@epoch`) in a request, or in a token of many": size(token_room.ID_BYTES_MAX),
    "pubends of one `[[phb.pubends]]` entry": f"{bound(PubendSection, 'count', 'le'):,}",
}
SELECTOR_KEYS = ("selector_characters", "selector_tokens")
SELECTING = {
    "topic, or pattern of topics": size(topics.TOPIC_BYTES_MAX),
    "patterns of a subscription": f"{topics.TOPICS_MAX:,}",
    "selector of a new subscription": f"{default(LimitsSection, 'selector_characters'):,} characters",
    "… and its words, literals and signs": f"{default(LimitsSection, 'selector_tokens'):,}",
    "any selector, and either setting": (
        f"{one(parser.CHARACTERS_MAX, *(bound(LimitsSection, key, 'le') for key in SELECTOR_KEYS)):,} characters"
    ),
    "parentheses and right-hand sides within one another, in a selector": f"{parser.NESTING_MAX}",
    "integer in a selector": f"{lexer.EXACT_LITERAL_MAX.bit_length()} bits",
}
EVENTS = {
    "event: topic, properties, headers and body": size(
        one(default(LimitsSection, "max_event_bytes"), SessionLimits().event_bytes)
    ),
    "… at most": size(bound(LimitsSection, "max_event_bytes", "le")),
    "key and value of a property": "the event's",
    "integer of a property": f"{EXACT_MAX.bit_length() + 1} bits, with its sign",
    "number of a property": "finite",
    "priority": "0 to 9",
    "expiration": "before the year 10000",
    "batch of `send_batch`, with its frame": size(default(LimitsSection, "max_frame_bytes")),
    "record batch of a Kafka topic, decompressed": size(unpacking.UNPACKED_MAX),
    "record of a Kafka topic, decompressed, with its frame": size(default(LimitsSection, "max_frame_bytes")),
}
PUBLISHERS = {
    "batches that a publisher may have unanswered": f"{default(LimitsSection, 'window_batches')}",
    "… at most": f"{bound(LimitsSection, 'window_batches', 'le')}",
    "bytes that it may have unanswered": size(default(LimitsSection, "window_bytes")),
    "publishers of a session": f"{default(LimitsSection, 'publishers'):,}",
    "publishers that a pubend knows": f"{default(PhbSection, 'max_publishers'):,}",
    "subscriptions of which a publisher stores a token": f"{consumed.SUBSCRIPTIONS_MAX}",
    "pubends that a stored token may name": f"{consumed.PUBENDS_MAX}",
    "… and its text": f"{consumed.CHARACTERS_MAX:,} characters",
    "batches that wait for the disk, of a pubend": size(default(PhbSection, "max_pending_bytes")),
    "epoch and index of keyed publishing": f"{keyed.KEY_MAX:,}",
    "keyed batches that a session may have unanswered": f"{publishing.UNANSWERED_MAX}",
}
SUBSCRIBERS = {
    "events on their way to a subscription, or not taken yet": f"{subscribing.WINDOW_EVENTS:,}",
    "… and their bytes": size(subscribing.WINDOW_BYTES),
    "`prefetch` of a subscription": f"1 to {options.PREFETCH_MAX:,} events",
    "… of a consumer of a shared subscription": f"{options.SHARED_PREFETCH} events",
    "`window` of a shared subscription": (f"1 to {sharing.WINDOW_MAX:,} events, {options.SHARED_WINDOW:,} by default"),
    "settlements of a consumer without an answer": f"{sharing.UNANSWERED_MAX}",
    "events that are taken at once before they are handed out again": f"{sharing.RUN_MAX}",
    "`hold_seconds`, `resume_seconds` and the delay of `retry`": f"{sharing.MILLISECONDS_MAX // 1000:,} seconds",
    "events of a range that is read, likewise": f"{reading.WINDOW_EVENTS:,}",
    "… and the bytes of these": size(reading.WINDOW_BYTES),
    "ranges that a session reads at a time": f"{reads.READS_MAX}",
    "`wait` of `heads`": f"{ranges.WAIT_MOST:g} seconds",
    "text of a token": f"{token_room.TEXT_MAX:,} characters",
    "pubends that a token names, or a request has positions of": f"{token_room.PUBENDS_MAX:,}",
    "subscriptions that have expired, of which the position is remembered": f"{expiry.LAPSED_MAX:,}",
}
LIMITS = SessionLimits()
CONNECTIONS = {
    "connections of clients": f"{one(default(LimitsSection, 'connections'), LIMITS.links):,}",
    "connections of a listener with `tcp`": "what the storage leaves of the open-file limit",
    "frame before a client is known": f"{HELLO_BYTES_MAX:,} bytes",
    "… as the transport takes it": f"{default(TcpOptions, 'frame_limit'):,} bytes",
    "frame behind that": size(one(default(LimitsSection, "max_frame_bytes"), LIMITS.frame_bytes)),
    "… at least": f"{bound(LimitsSection, 'max_frame_bytes', 'ge'):,} bytes, and 1,024 more than an event",
    "… at most": size(bound(LimitsSection, "max_frame_bytes", "le")),
    "frame of the framing over streams of bytes, and of `memory`": f"{framing.PAYLOAD_BYTES_MAX:,} bytes",
    "frame with nothing in it": "none",
    "times that a client is asked who it is": f"{handshake.ROUNDS_MAX}",
    "time to say who it is": f"{default(LimitsSection, 'handshake'):g} seconds",
    "silence of either side": f"{LIMITS.heartbeats_missed} times {default(LimitsSection, 'heartbeat'):g} seconds",
    "bytes that wait for a client, above which it is not listened to": size(LIMITS.pending_bytes),
    "… of events": f"{size(default(ShbConfig, 'link_bytes'))}, and one delivery",
    "… above which it is disconnected": size(LIMITS.pending_bytes_max),
    "bytes of what is published that wait in a client": f"{size(ClientSettings().link_bytes)}, and one batch",
    "bytes that wait for one link with `tcp`": size(default(TcpOptions, "pending_max")),
    "unfinished frames of a listener with `tcp`": size(default(TcpOptions, "unfinished_max")),
}
HTTP = {
    "connections": f"{http.CONNECTIONS_MAX}",
    "head of a request": size(http.HEAD_BYTES_MAX),
    "body of a request": "none is kept",
    "time for a head, the first or the next": f"{http.HEAD_SECONDS:g} seconds",
    "time for an answer, until it has left": f"{http.ANSWER_SECONDS:g} seconds",
    "requests for figures that are answered at a time": f"{pages.WORKING_MAX}",
    "figures": f"one snapshot in {snapshot.AGE_MAX:g} second",
}
MEMORY = {
    "records that are in no data file yet, with `rocksdb`": (
        f"2 times {size(default(RocksdbOptions, 'write_buffer_bytes'))}: for logs, and for the rest"
    ),
    "blocks of data files that were read, with `rocksdb`": "2 times 32 MiB",
    "events that a router `knowledge` or `delta` keeps, of all pubends together": size(Sizes().cache_bytes),
    "what is read for subscribers, or waits for them": size(default(ShbConfig, "memory_bytes")),
    "… of it what those of a pubend share": size(default(ShbConfig, "catchup_bytes")),
}
PLUGINS = {
    "index of a record": f"1 to {one(FOREVER, layout.INDEX_MAX, memory_disk._INDEX_MAX):,}",
    "record of a log": f"a publisher's batch, and less than 1 KiB: {size(default(LimitsSection, 'max_frame_bytes'))}",
    "key of a row": size(shb_rows._SID.size + token_room.ID_BYTES_MAX),
    "streams of a volume with `rocksdb`": f"{layout.STREAM_ID_MAX:,}",
    "position in a Kafka topic": (f"{EPOCHS_MAX:,} leader epochs, {OFFSETS_MAX / 10**12:.1f} T records of a partition"),
    "frame of a router": size(frames.FRAME_BYTES_MAX),
    "address in a router's envelope": f"{frames.ADDRESS_MAX:,} parts",
    "mail from role to role": size(facts.MAIL_BYTES_MAX),
    "silence of a node that is asked for a listing, a retirement or its status": (f"{inquiries.SILENT // SECOND} s"),
    "such requests of clients that a node has under way": f"{inquiries.INQUIRIES_MAX}",
    "answers to other nodes that a node keeps": (
        f"{answering.ANSWERS_MAX}, of {size(answering.ANSWERS_BYTES_MAX)} beside the newest"
    ),
    "alarms that a broker remembers": f"{alarms.ALARMS_MAX}",
    "text of an alarm": f"{alarms.TEXT_MAX:,} characters",
}
EXPECTED: Mapping[str, Mapping[str, str]] = {
    "Names": NAMES,
    "Topics and selectors": SELECTING,
    "Events": EVENTS,
    "Publishers": PUBLISHERS,
    "Subscribers and tokens": SUBSCRIBERS,
    "Connections and frames": CONNECTIONS,
    "HTTP": HTTP,
    "Memory of a node": MEMORY,
    "For plugins": PLUGINS,
}


@pytest.mark.parametrize("section", EXPECTED)
def test_the_page_has_the_values_of_the_code(section: str) -> None:
    found = {row.limit: row.value for row in documented()[section]}

    assert found == EXPECTED[section]


def test_the_page_has_no_other_section() -> None:
    assert list(documented()) == list(EXPECTED)


def test_what_sets_a_limit_is_a_key_of_the_configuration() -> None:
    models: dict[str, type[BaseModel]] = {
        "limits": LimitsSection,
        "phb": PhbSection,
        "shb": ShbConfig,
        "storage": RocksdbOptions,
    }

    for row in (row for rows in documented().values() for row in rows if row.set_by):
        [key, *_] = re.findall(r"`([a-z_.]+)`", row.set_by)
        section, _, name = key.rpartition(".")
        if section == "routing":
            assert hasattr(Sizes(), name), row
            continue
        elsewhere: type[BaseModel] = TcpOptions if "[[listen]]" in row.set_by else PubendSection
        model = models.get(section, elsewhere)
        assert name in model.model_fields, row


def test_an_error_that_the_page_names_is_one() -> None:
    named = {name for rows in documented().values() for row in rows for name in re.findall(r"`(\w+Error)`", row.beyond)}

    ours = {error for error in named if issubclass(getattr(errors, error, int), errors.GaplessError)}
    assert named - ours == {"ValueError", "AssertionError"}


# What happens at a limit and beyond it, as far as no broker is needed for that.


def select(expression: str) -> None:
    Selector(expression)


def encode(**fields: Any) -> None:
    Encoder("t", "").encode(Message(fields.pop("body", b""), **fields), default(LimitsSection, "max_event_bytes"))


def encode_event_of(length: int) -> None:
    """An event of exactly so many bytes."""
    around = len(encode_event("t", {}, None, b"x" * (1 << 20))) - (1 << 20)  # so long a body has a head of five bytes
    assert len(encode_event("t", {}, None, b"x" * (length - around))) == length
    encode(body=b"x" * (length - around))


def token_of(length: int) -> str:
    """The text of a token that has exactly so many characters, if it may have."""
    starts = list(map("".join, islice(product(ascii_lowercase, repeat=3), length // 340)))
    each, more = divmod(length - len(str(CheckpointToken("n", {f"{start:n<300}": 0 for start in starts}))), len(starts))
    return str(CheckpointToken("n", {f"{start:n<{300 + each + (at < more)}}": 0 for at, start in enumerate(starts)}))


def put(index: int) -> None:
    volume = MemoryDisk().open(VolumeIdentity("net", "node"))
    volume.stream("log").put(index, b"")


def configure(key: str) -> Callable[[int], object]:
    return lambda value: make_config({"limits": {"max_frame_bytes": 64 << 20, key: value}})


class Payload(bytes):
    """As long as it says, and takes no memory."""

    def __new__(cls, length: int) -> Self:
        made = super().__new__(cls)
        made.length = length
        return made

    length: int

    def __len__(self) -> int:
        return self.length


BEYOND: Mapping[str, tuple[Callable[[int], object], int]] = {
    next(iter(NAMES)): (lambda n: check_name("ä" * (n // 2) + "a" * (n % 2), "the name"), NAME_BYTES_MAX),
    "topic, or pattern of topics": (lambda n: check_topic("a" * n), topics.TOPIC_BYTES_MAX),
    "patterns of a subscription": (lambda n: check_patterns(["a"] * n), topics.TOPICS_MAX),
    "selector of a new subscription": (
        lambda n: parser.SelectorLimits().check("a" * n),
        default(LimitsSection, "selector_characters"),
    ),
    "… and its words, literals and signs": (
        lambda n: parser.SelectorLimits().check("a " * n),
        default(LimitsSection, "selector_tokens"),
    ),
    "any selector, and either setting": (lambda n: select("a" * (n - 5) + " = 1 "), parser.CHARACTERS_MAX),
    "parentheses and right-hand sides within one another, in a selector": (
        lambda n: select("(" * (n - 1) + "a" + ")" * (n - 1)),
        parser.NESTING_MAX,
    ),
    "integer in a selector": (lambda n: select(f"a = {n}"), LONG),
    "event: topic, properties, headers and body": (encode_event_of, default(LimitsSection, "max_event_bytes")),
    "integer of a property": (lambda n: encode(properties={"a": n}), EXACT_MAX),
    "priority": (lambda n: encode(priority=n), 9),
    "`prefetch` of a subscription": (options.check_prefetch, options.PREFETCH_MAX),
    "`window` of a shared subscription": (
        lambda n: options.wanted_shared(("t",), "n", name="s", window=n),
        sharing.WINDOW_MAX,
    ),
    "`hold_seconds`, `resume_seconds` and the delay of `retry`": (
        lambda n: options.wanted_shared(("t",), "n", name="s", hold_seconds=n),
        sharing.MILLISECONDS_MAX // 1000,
    ),
    "text of a token": (token_of, token_room.TEXT_MAX),
    "pubends that a token names, or a request has positions of": (
        lambda n: str(CheckpointToken("n", {f"p.{number}@x": 1 for number in range(n)})),
        token_room.PUBENDS_MAX,
    ),
    "frame of the framing over streams of bytes, and of `memory`": (
        lambda n: encode_header(Payload(n)),
        framing.PAYLOAD_BYTES_MAX,
    ),
    "index of a record": (put, LONG),
}


@pytest.mark.parametrize("limit", BEYOND)
def test_a_limit_is_where_the_page_says_and_so_is_the_error(limit: str) -> None:
    [row] = [row for rows in documented().values() for row in rows if row.limit == limit]
    act, most = BEYOND[limit]

    act(most)
    with pytest.raises((errors.GaplessError, ValueError)) as caught:
        act(most + 1)

    assert f"`{type(caught.value).__name__}`" in row.beyond


@pytest.mark.parametrize(
    ("section", "limit", "key"),
    [
        ("Events", "… at most", "max_event_bytes"),
        ("Publishers", "… at most", "window_batches"),
        ("Connections and frames", "… at most", "max_frame_bytes"),
        *(("Topics and selectors", "any selector, and either setting", key) for key in SELECTOR_KEYS),
    ],
)
def test_a_setting_beyond_its_own_limit_is_refused_at_start_up(section: str, limit: str, key: str) -> None:
    [row] = [row for row in documented()[section] if row.limit == limit]
    most = bound(LimitsSection, key, "le")

    configure(key)(most)
    with pytest.raises(errors.ConfigurationError):
        configure(key)(most + 1)

    assert row.beyond.endswith("`ConfigurationError` at start-up")


def test_a_record_is_hardly_more_than_its_batch() -> None:
    columns = EventColumns.of([encode_event("t", {}, None, b"x" * 100)] * 10, [100] * 10)
    record = encode_record(1, "p" * 255, LONG, LONG, LONG, 0, columns, b"", 1)

    assert len(record) - columns.size < 1 << 10


def test_no_row_of_a_role_has_a_longer_key() -> None:
    longest = shb_rows._SID.size + token_room.ID_BYTES_MAX

    assert len(phb_rows.key(1, "p" * NAME_BYTES_MAX)) <= longest


def test_text_of_a_token_has_room_for_10_000_partitions() -> None:
    """Whatever their offsets are: and of those of one topic all that a request may name."""
    for count in (10_000, token_room.PUBENDS_MAX):
        topic = [f"orders.{number}@YmFzZTY0b2ZhdG9waWNpZA" for number in range(count)]

        room = token_room.TokenRoom(topic)
        assert not room.problem
        assert room.request_bytes < default(LimitsSection, "max_frame_bytes")
