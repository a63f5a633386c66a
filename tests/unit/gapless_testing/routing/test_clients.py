"""The stand-in for a publishing client sends one batch after the other, each until it is logged."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.core.network.facts import OpenRequest, Outcome, Pub, Submitted, Verdict
from gapless_testing.routing import PAIR
from gapless_testing.routing.clients import PATIENCE, PublishingClient, columns
from gapless_testing.routing.faults import MS, SECOND
from gapless_testing.routing.network import BrokerHost, VirtualNetwork
from unit.gapless_testing.routing.scripted import ScriptedHarness, router

RETRY = Outcome(Verdict.RETRY)


class Client:
    """A client at broker p of a network of scripted routers."""

    def __init__(self) -> None:
        self.network = VirtualNetwork(ScriptedHarness(), PAIR, 1)
        self.host: BrokerHost = self.network.hosts["p"]
        self.client = PublishingClient(self.host, "writer", "fish")
        self.host.stand_ins.append(self.client)
        self.network.start()

    def asked(self, method: str) -> list[Any]:
        return [asked for asked, *_ in router(self.network, "p").called(method)]

    def answer(self, outcome: Outcome) -> None:
        calls = [call for call in router(self.network, "p").calls if call[0] in {"open", "place"}]
        _, reply_to, *_ = calls[-1][2]
        self.client.attend(Submitted(reply_to, "p@1", outcome))
        self.network.run(2 * SECOND)

    def log(self) -> None:
        pub = self.asked("place")[-1]
        self.answer(Outcome(Verdict.OK, sequence=pub.first + pub.events.count - 1))


@pytest.fixture
def client() -> Client:
    """A client whose publisher is open, and whose first batch is on its way."""
    made = Client()
    made.answer(Outcome(Verdict.OK, sequence=0, epoch=1))
    return made


def test_columns_are_numbered() -> None:
    batch = columns("fish", 5, 2).batch([1, 2])
    assert [(header.topic, header.properties) for header in batch.headers] == [("fish", {"n": 5}), ("fish", {"n": 6})]


def test_it_opens_its_publisher_until_it_is_open() -> None:
    made = Client()
    made.answer(RETRY)
    made.answer(Outcome(Verdict.REJECTED))

    assert made.asked("open") == [
        OpenRequest("writer", "instance-1", attempt, "fish", principal="anonymous") for attempt in (1, 2, 3)
    ]
    assert made.asked("place") == []


def test_it_sends_one_batch_after_the_other(client: Client) -> None:
    client.log()
    first, second = client.asked("place")

    assert (first.first, second.first) == (1, 1 + first.events.count)
    assert client.client.logged == first.events.count
    assert (first.epoch, first.pubend, first.publisher) == (1, "p@1", "writer")


def test_a_batch_is_sent_again(client: Client) -> None:
    client.answer(RETRY)
    first, second = client.asked("place")

    assert second is first


@pytest.mark.parametrize("verdict", [Verdict.FENCED, Verdict.RESUME, Verdict.UNCERTAIN, Verdict.REJECTED])
def test_a_publisher_that_has_to_ask_opens_again(client: Client, verdict: Verdict) -> None:
    client.answer(Outcome(verdict))
    (first,) = client.asked("place")
    assert client.asked("open")[-1] == OpenRequest("writer", "instance-1", 2, "fish", "p@1", principal="anonymous")
    client.answer(Outcome(Verdict.OK, sequence=0, epoch=2))
    again = client.asked("place")[-1]

    assert isinstance(again, Pub)
    assert (again.first, again.epoch, again.events) == (1, 2, first.events)


def test_what_was_logged_is_not_sent_again(client: Client) -> None:
    (first,) = client.asked("place")
    client.answer(Outcome(Verdict.UNCERTAIN))
    client.answer(Outcome(Verdict.OK, sequence=first.events.count, epoch=2))

    assert client.client.logged == first.events.count
    assert client.asked("place")[-1].first == 1 + first.events.count


def test_it_loses_patience_with_a_router_that_does_not_answer(client: Client) -> None:
    client.network.run(PATIENCE)

    assert client.asked("open")[-1].attempt == 2


def test_it_starts_again_after_a_crash(client: Client) -> None:
    (first,) = client.asked("place")
    client.host.crash()
    client.network.run(SECOND)
    client.host.start()
    assert client.asked("open") == [OpenRequest("writer", "instance-2", 2, "fish", "p@1", principal="anonymous")]
    client.answer(Outcome(Verdict.OK, sequence=0, epoch=2))

    assert client.asked("place")[-1].events is first.events


def test_stopped_it_ends_what_it_began(client: Client) -> None:
    client.client.stopped = True
    before = client.client.idle
    client.log()
    client.network.run(3 * PATIENCE)

    assert (before, client.client.idle) == (False, True)
    assert len(client.asked("place")) == 1
    assert len(client.asked("open")) == 1


def test_answers_to_something_else_are_not_its_own(client: Client) -> None:
    client.client.attend(Submitted(("other", 1), "p@1", RETRY))
    client.network.run(500 * MS)

    assert len(client.asked("place")) == 1
