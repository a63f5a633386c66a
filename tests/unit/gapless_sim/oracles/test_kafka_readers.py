"""KI9: the earliest of a log, and the times of its records."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gapless.core.client import Delivery
from gapless.core.stream.columns import EventColumns
from gapless.core.stream.events import Extras, encode_event
from gapless.core.wire.delivered import DeliveredColumns
from gapless.core.wire.messages import AskEarliest, Position, Ticks
from gapless_sim.oracles.kafka_readers import KI9Readers
from gapless_sim.recording.observation import Violation
from gapless_sim.world.kafka_network import TOPIC
from gapless_sim.world.producer import KEY_BYTES
from unit.gapless_sim.oracles.kafka_rig import Rig


@pytest.fixture
def rig() -> Rig:
    return Rig()


def told(judge: KI9Readers, rig: Rig, tick: int, *, asks: bool = True) -> None:
    """A broker answers a question, perhaps one for the earliest."""
    if asks:
        judge.received("node1", 7, AskEarliest(3, None))
    judge.sent("node1", 7, Ticks(3, [Position(rig.pubend, tick), Position("own@1", 1 << 60)]))


def delivery(rig: Rig, tick: int, extras: Extras | None) -> Delivery:
    body = (1).to_bytes(KEY_BYTES, "big")
    columns = EventColumns.of([encode_event(TOPIC, {}, extras, body)], [len(body)])
    payload = columns.batch([tick]).payload(1)
    return Delivery(rig.pubend, [DeliveredColumns.parse(payload, 0)], [tick])


def test_the_earliest_is_where_the_log_begins(rig: Rig) -> None:
    judge = KI9Readers(rig.world, rig.logs)
    rig.write(1, 2, 3)
    told(judge, rig, 0)
    rig.partition.trim(2)
    rig.kafka.changed()
    told(judge, rig, 0)  # what was heard of it, where it did not answer
    told(judge, rig, 2)
    told(judge, rig, 3, asks=False)  # heads, perhaps

    with pytest.raises(Violation, match=rf"KI9: node1 says that {rig.pubend} has nothing up to 3; 1 records are"):
        told(judge, rig, 3)


def test_a_broker_that_is_gone_answers_no_more(rig: Rig) -> None:
    judge = KI9Readers(rig.world, rig.logs)
    rig.write(1)
    judge.received("node1", 7, AskEarliest(3, None))
    judge.crashed(rig_broker("node1"))

    told(judge, rig, 1, asks=False)


def rig_broker(name: str) -> Any:
    """As much of a broker as the judge looks at."""
    return SimpleNamespace(name=name)


def test_an_event_has_the_time_of_its_record(rig: Rig) -> None:
    judge = KI9Readers(rig.world, rig.logs)
    rig.write(1)
    judge.handed_out(rig.consumer(), delivery(rig, 1, Extras(timestamp=1)))

    with pytest.raises(Violation, match=r"KI9: c was handed 1 of .* with 1577836800000, and it bears 1"):
        judge.handed_out(rig.consumer(), delivery(rig, 1, None))
