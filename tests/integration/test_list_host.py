"""A pubend whose log is a list serves subscribers like any other, under the eyes of the routers' contract."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import gapless
from gapless import plugins
from gapless.core.network.facts import OpenRequest, Pub, Submitted, Verdict
from gapless.core.outbox import Outbox
from gapless.core.stream.columns import EventColumns
from gapless.core.stream.events import encode_event
from gapless_testing.routing import Contract
from integration.nodes_in_process import running_node
from list_host import RECORD_MAX, ListHost, ListLog, ListSource, record_of


class Watched:
    """A router whose every fact and effect the contract sees."""

    def __init__(self, router: Any, contract: Contract) -> None:
        self._router = router
        self._contract = contract

    def __getattr__(self, name: str) -> Any:
        return getattr(self._router, name)

    def handlers(self) -> dict[type, Any]:
        return {kind: self._watched(handler) for kind, handler in self._router.handlers().items()}

    def _watched(self, handler: Callable[[int, Any], Any]) -> Callable[[int, Any], Any]:
        def watched(now: int, fact: Any) -> list[Any]:
            self._contract.informed("node", now, fact)
            effects = list(handler(now, fact))
            for effect in effects:
                self._contract.said("node", now, effect)
            return effects

        return watched


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[ListLog]:
    """The list, of a node that hosts it under the role `list`; at the end nothing is left open at the seam."""
    installed, contract, log = plugins.load, Contract(), ListLog()

    def load(kind: str, name: str) -> Any:
        if (kind, name) == ("role", "list"):
            return lambda context: ListHost(context, log, ("#",))
        if kind == "routing":
            return lambda options: Watched(installed(kind, name)(options=options), contract)
        return installed(kind, name)

    monkeypatch.setattr(plugins, "load", load)
    yield log
    contract.check_quiet()


def running() -> Any:
    return running_node(node={"roles": ["list", "shb"]})


def strangers(*numbers: int) -> bytes:
    """What somebody else appends."""
    events = [encode_event("numbers", {"n": number}, None, b"%d" % number) for number in numbers]
    return record_of(EventColumns.of(events, [len(b"%d" % number) for number in numbers]))


async def bodies(subscription: Any, count: int) -> list[tuple[int, bytes]]:
    """So many events, and where they stand."""
    found: list[tuple[int, bytes]] = []
    while len(found) < count:
        event = await anext(subscription)
        found.append((event.tick, event.body))
    return found


async def test_what_is_in_the_list_is_delivered_whoever_put_it_there(log: ListLog) -> None:
    log.add(strangers(1))
    async with running() as node, gapless.connect(node.url) as connection, connection.session() as session:
        async with session.subscribe("numbers", name="all", start="earliest") as subscription:
            publisher = session.publisher("numbers")
            receipt = await publisher.send(b"ours", properties={"n": 2})
            log.add(strangers(3, 4))
            assert await bodies(subscription, 4) == [(1, b"1"), (2, b"ours"), (3, b"3"), (4, b"4")]
            await subscription.acknowledge()
        assert receipt.tick == 2

        (row,) = await connection.pubends()
        assert (row.newest, row.stable) == (4, 4)


async def test_who_was_away_catches_up_by_the_pfs_and_the_answers_of_the_log(log: ListLog) -> None:
    async with running() as node, gapless.connect(node.url) as connection, connection.session() as session:
        async with session.subscribe("numbers", name="rare", selector="n = 7", start="latest"):
            publisher = session.publisher("numbers")
            await publisher.send(b"first", properties={"n": 7})
        for number in range(20):
            log.add(strangers(*range(10 * number, 10 * number + 10)))
            await publisher.send(b"ours", properties={"n": 7 if number % 5 == 0 else 0})
        async with session.subscribe("numbers", name="rare", selector="n = 7") as subscription:
            found = await bodies(subscription, 6)

    assert [body for _, body in found] == [b"first", b"7", b"ours", b"ours", b"ours", b"ours"]
    assert [tick for tick, _ in found] == [1, 9, 12, 67, 122, 177]


async def test_what_the_list_refuses_is_not_published(log: ListLog) -> None:
    async with running() as node, gapless.connect(node.url) as connection, connection.session() as session:
        publisher = session.publisher("numbers")
        with pytest.raises(gapless.PublishRejectedError, match="a record has more than"):
            await publisher.send(bytes(RECORD_MAX))

    assert log.records == []


def test_what_the_list_does_not_know_the_publisher_is_told_to_be_uncertain() -> None:
    log, outbox = ListLog(), Outbox()
    source = ListSource("list@list", log, outbox)
    source.open_publisher(OpenRequest("ann", "i", 1, None, principal="p"), "opened", 0, 0)
    events = EventColumns.of([encode_event("numbers", {}, None, b"x")], [1])
    source.submit(Pub("ann", 1, 1, events, "list@list", b"", principal="p"), "sent", "", 0, 0)
    _, append = outbox.take()

    log.broken = "the list is on fire"
    log.append(append)  # type: ignore[arg-type]
    source.on_answer(log.answers.pop(), 0)

    (submitted,) = outbox.take()
    assert isinstance(submitted, Submitted)
    assert (submitted.outcome.verdict, submitted.outcome.reason) == (Verdict.UNCERTAIN, "the list is on fire")
