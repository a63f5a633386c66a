"""Publishing over as many connections as it takes (protocol: publishers, publishing)."""

from __future__ import annotations

from random import Random

import pytest

from gapless.core.client.link import effects as e
from gapless.core.stream.ticks import STEP
from gapless.core.wire import messages as m
from gapless.core.wire.tokens import CheckpointToken, split_tokens
from gapless.errors import PublisherFencedError, PublishRejectedError, PublishUncertainError, StaleTokenError
from unit.gapless.client.fake_broker import BASE, PUBEND, FakeBroker
from unit.gapless.core.client.harness import World, columns, joined


def bodies(world: World) -> list[bytes]:
    """What is logged, in order."""
    stream = world.broker.streams[PUBEND]
    return [event[-length:] for event, length in zip(stream.events, stream.body_lengths, strict=True)]


def test_a_batch_gets_the_ticks_of_its_events() -> None:
    world = World().start()
    publisher = world.open()
    first = world.publish(publisher, b"a", b"b")
    second = world.publish(publisher, b"c")

    assert world.answer(publisher) == e.PublisherReady(PUBEND, 0)
    assert world.receipts(publisher) == {first: [BASE + STEP, BASE + 2 * STEP], second: [BASE + 3 * STEP]}
    assert all(effect.durable for effect in world.effects(e.Receipted))
    assert bodies(world) == [b"a", b"b", b"c"]


def test_publishers_that_share_a_link_wait_for_room_there() -> None:
    world = World(link_bytes=100).start()
    first, second = world.open("first"), world.open("second")
    link = max(world.links)

    for publisher in (first, second, first):
        world.publish(publisher, b"x" * 120)
    assert world.effects(e.AskRoom) == [e.AskRoom(link, 50)]
    assert [batch.publisher for batch in world.broker.messages(m.Publish)] == [first]

    world.core.on_room(link - 1, world.now)  # of an earlier link
    world.core.on_room(link, world.now)
    world.pump()
    assert [batch.publisher for batch in world.broker.messages(m.Publish)] == [first, second]
    world.core.on_room(link, world.now)
    world.pump()
    assert [batch.publisher for batch in world.broker.messages(m.Publish)] == [first, second, first]
    assert [len(world.receipts(publisher)) for publisher in (first, second)] == [2, 1]


def test_on_another_link_nothing_waits() -> None:
    world = World(link_bytes=100).start()
    publisher = world.open("p")
    for _ in range(2):
        world.publish(publisher, b"x" * 120)
    assert len(world.receipts(publisher)) == 1

    world.reconnect()
    assert len(world.receipts(publisher)) == 2


def test_in_memory_no_receipt_is_durable() -> None:
    world = World(FakeBroker(durable=False)).start()
    publisher = world.open()
    world.publish(publisher, b"a")

    assert [effect.durable for effect in world.effects(e.Receipted)] == [False]


def test_what_is_published_before_there_is_a_session_is_sent_then() -> None:
    world = World()
    publisher = world.core.open_publisher("p", "i", "t", world.now)
    ticket = world.core.publish(publisher, columns(b"early"), (), world.now)
    world.start()

    assert list(world.receipts(publisher)) == [ticket]


def test_a_name_goes_on_where_it_stopped() -> None:
    world = World().start()
    world.publish(world.open("loader"), b"a", b"b")
    again = world.open("loader")
    world.publish(again, b"c")

    assert world.answer(again) == e.PublisherReady(PUBEND, 2)
    assert [batch.first for batch in world.broker.messages(m.Publish)] == [1, 3]


def test_every_connection_is_a_new_attempt_of_the_same_instance_on_the_same_pubend() -> None:
    world = World().start()
    world.open("loader")
    world.reconnect()
    world.reconnect()

    opened = world.broker.messages(m.OpenPublisher)
    assert [message.attempt for message in opened] == [1, 2, 3]
    assert len({message.instance for message in opened}) == 1
    assert [message.pubend for message in opened] == ["", PUBEND, PUBEND]


def test_unanswered_batches_are_sent_again_in_order_and_logged_once() -> None:
    """The broker logged them, but its answers were lost."""
    world = World().start()
    publisher = world.open()
    tickets = [world.core.publish(publisher, columns(b"%d" % i), (), world.now) for i in range(3)]
    sends = [effect for effect in world.core.take_effects() if isinstance(effect, e.SendFrames)]
    for send in sends:
        world.broker.frames(send.link, [joined(payload) for payload in send.payloads])
    assert bodies(world) == [b"0", b"1", b"2"]

    world.reconnect()

    assert bodies(world) == [b"0", b"1", b"2"]
    assert list(world.receipts(publisher)) == tickets
    assert world.receipts(publisher)[tickets[2]] == [BASE + 3 * STEP]


def test_batches_that_were_lost_on_the_way_are_logged_after_the_reconnect() -> None:
    world = World().start()
    publisher = world.open()
    tickets = [world.core.publish(publisher, columns(b"%d" % i), (), world.now) for i in range(3)]
    world.core.take_effects()

    world.reconnect()

    assert bodies(world) == [b"0", b"1", b"2"]
    assert list(world.receipts(publisher)) == tickets


def test_an_answer_twice_is_one_receipt() -> None:
    world = World().start()
    publisher = world.open()
    world.publish(publisher, b"a")
    world.publish(publisher, b"b")
    for sequence in (1, 2, 2):
        runs = [m.TickRun(BASE + STEP * sequence, STEP, 1)]
        world.broker.tell(world.broker.session, m.Published(publisher, sequence, runs))
    world.pump()

    assert len(world.receipts(publisher)) == 2
    assert world.core.connected


def test_one_answer_for_several_batches_is_shared_out() -> None:
    world = World().start()
    publisher = world.open()
    world.broker.silent = True
    tickets = [world.publish(publisher, *(b"x" for _ in range(n))) for n in (1, 3, 2)]
    runs = [m.TickRun(1000, 10, 2), m.TickRun(5000, 1, 4)]
    world.broker.tell(world.broker.session, m.Published(publisher, 6, runs))
    world.pump()

    assert world.receipts(publisher) == dict(zip(tickets, ([1000], [1010, 5000, 5001], [5002, 5003]), strict=True))


@pytest.mark.parametrize(("said", "durable"), [(True, True), (False, False), (None, True)])
def test_a_receipt_says_what_the_answer_says_or_an_older_broker_of_itself(*, said: bool | None, durable: bool) -> None:
    world = World().start()
    publisher = world.open()
    world.broker.silent = True
    world.publish(publisher, b"a")
    world.broker.tell(world.broker.session, m.Published(publisher, 1, [m.TickRun(7, 1, 1)], said))
    world.pump()

    (receipted,) = [effect for effect in world.told if isinstance(effect, e.Receipted)]
    assert receipted.durable is durable


def test_ticks_that_the_broker_has_forgotten_are_zero() -> None:
    world = World().start()
    publisher = world.open()
    world.broker.silent = True
    ticket = world.publish(publisher, b"a", b"b", b"c")
    world.broker.tell(world.broker.session, m.Published(publisher, 3, [m.TickRun(7, 1, 2)]))
    world.pump()

    assert world.receipts(publisher) == {ticket: [0, 7, 8]}


def test_no_more_than_the_window_is_on_its_way() -> None:
    world = World().start()
    publisher = world.open()
    world.broker.silent = True
    for i in range(20):
        world.publish(publisher, b"%d" % i)
    assert len(world.broker.messages(m.Publish)) == world.broker.window_batches

    world.broker.silent = False
    world.reconnect()
    assert len(world.receipts(publisher)) == 20
    assert bodies(world) == [b"%d" % i for i in range(20)]


def test_the_window_counts_bytes_but_lets_one_batch_pass() -> None:
    broker = FakeBroker()
    broker.window_bytes = 300
    world = World(broker).start()
    publisher = world.open()
    broker.silent = True
    world.publish(publisher, b"x" * 1000)
    world.publish(publisher, b"y")
    assert len(broker.messages(m.Publish)) == 1

    broker.silent = False
    world.reconnect()
    assert len(world.receipts(publisher)) == 2


def test_a_full_disk_makes_it_wait_and_say_so_once() -> None:
    world = World().start()
    publisher = world.open()
    world.broker.full_disk = True
    tickets = [world.publish(publisher, b"%d" % i) for i in range(4)]
    world.advance(60)
    core = world.core.publisher(publisher)
    assert core is not None
    assert core.stalled
    assert world.receipts(publisher) == {}
    assert len(world.broker.messages(m.Publish)) < 4 * 50
    assert [notice.text for notice in world.effects(e.Notice)] == [
        "publisher 'loader' waits and will try again: the disk is full"
    ]

    world.broker.full_disk = False
    world.advance(6)
    assert list(world.receipts(publisher)) == tickets
    assert bodies(world) == [b"0", b"1", b"2", b"3"]
    assert not core.stalled


def test_a_full_disk_and_a_reconnect() -> None:
    world = World().start()
    publisher = world.open()
    world.broker.full_disk = True
    world.publish(publisher, b"a")
    world.cut()
    world.broker.full_disk = False
    world.advance(20)

    assert bodies(world) == [b"a"]
    assert len(world.receipts(publisher)) == 1


def test_an_opening_that_is_put_off_is_asked_for_again() -> None:
    world = World().start()
    world.broker.put_off = [m.OpenPublisher, m.OpenPublisher]
    publisher = world.open()
    ticket = world.publish(publisher, b"a")
    world.advance(1)

    assert list(world.receipts(publisher)) == [ticket]
    assert [message.attempt for message in world.broker.messages(m.OpenPublisher)] == [1, 1, 1]


def test_a_refused_batch_takes_no_sequence_from_those_behind_it() -> None:
    world = World().start()
    publisher = world.open()
    world.broker.rejects = b"bad"
    tickets = [world.core.publish(publisher, columns(body), (), world.now) for body in (b"a", b"bad", b"b", b"c")]
    world.pump()
    world.advance(1)

    found = world.receipts(publisher)
    assert sorted(found) == tickets
    assert isinstance(found[tickets[1]], PublishRejectedError)
    assert str(found[tickets[1]]) == "not allowed"
    assert bodies(world) == [b"a", b"b", b"c"]
    core = world.core.publisher(publisher)
    assert core is not None
    assert core.logged == 3


def test_behind_a_refused_batch_sequences_are_used_again_under_another_epoch() -> None:
    """Or a late copy of a batch, under the sequence it had first, would be logged as the next one."""
    world = World().start()
    publisher = world.open()
    world.broker.rejects = b"bad"
    for body in (b"a", b"bad", b"b"):
        world.core.publish(publisher, columns(body), (), world.now)
    world.pump()
    world.advance(1)

    assert [message.attempt for message in world.broker.messages(m.OpenPublisher)] == [1, 2]
    sent = [(message.epoch, message.first) for message in world.broker.messages(m.Publish)]
    assert len(set(sent)) == len(sent)
    assert {first for epoch, first in sent if epoch == max(epoch for epoch, _ in sent)} == {2}


def test_two_refused_batches_and_a_reconnect_between_them() -> None:
    world = World().start()
    publisher = world.open()
    world.broker.rejects = b"bad"
    for body in (b"bad1", b"a", b"bad2", b"b"):
        world.core.publish(publisher, columns(body), (), world.now)
    world.pump()
    world.cut()
    world.advance(20)

    assert bodies(world) == [b"a", b"b"]
    assert sorted(type(found).__name__ for found in world.receipts(publisher).values()) == [
        "PublishRejectedError",
        "PublishRejectedError",
        "list",
        "list",
    ]


def test_a_newer_rival_ends_it() -> None:
    world = World().start()
    older = world.open("loader")
    world.publish(older, b"a")
    newer = world.open("loader")
    ticket = world.publish(older, b"b")

    assert type(world.receipts(older)[ticket]) is PublisherFencedError
    assert isinstance(world.failure(older), PublisherFencedError)
    assert world.core.publisher(older) is None
    assert world.publish(newer, b"c") in world.receipts(newer)


def test_what_a_former_one_has_logged_late_ends_it() -> None:
    """Local 70428: a produce came late to Kafka, and its events were given to the next publisher of the name, too."""
    world = World().start()
    publisher = world.open("loader")
    world.cut()
    world.broker.names["loader"].sequence += 1
    ticket = world.core.publish(publisher, columns(b"a"), (), world.now)
    world.advance(20)

    assert type(world.receipts(publisher)[ticket]) is PublisherFencedError
    assert "events up to 1 of publisher 'loader' were logged late" in str(world.failure(publisher))


def test_what_an_earlier_session_took_with_it_is_uncertain_when_fenced() -> None:
    """It may have been logged before the rival came."""
    world = World().start()
    publisher = world.open("loader")
    ticket = world.core.publish(publisher, columns(b"a"), (), world.now)
    world.core.take_effects()
    world.cut()
    world.broker.names["loader"].instance = "a rival"
    late = world.core.publish(publisher, columns(b"b"), (), world.now)
    world.advance(20)

    found = world.receipts(publisher)
    assert type(found[ticket]) is PublishUncertainError
    assert type(found[late]) is PublisherFencedError


def test_a_closed_publisher_leaves_what_is_unanswered_uncertain() -> None:
    world = World().start()
    publisher = world.open()
    world.broker.silent = True
    ticket = world.publish(publisher, b"a")
    world.core.close_publisher(publisher, world.now)
    world.pump()

    assert isinstance(world.receipts(publisher)[ticket], PublishUncertainError)
    assert world.core.publisher(publisher) is None


def test_a_broker_that_lost_what_it_had_acknowledged_is_told_on_and_followed() -> None:
    world = World().start()
    publisher = world.open("loader")
    world.publish(publisher, b"a", b"b")
    world.broker.names.clear()
    ticket = world.core.publish(publisher, columns(b"c"), (), world.now)
    world.core.take_effects()
    world.reconnect()

    assert ticket in world.receipts(publisher)
    assert any("had acknowledged 2 events" in notice.text for notice in world.effects(e.Notice))


def test_a_resume_below_what_was_acknowledged_is_followed_too() -> None:
    world = World().start()
    publisher = world.open("loader")
    world.publish(publisher, b"a", b"b")
    world.broker.names["loader"].sequence = 0
    ticket = world.publish(publisher, b"c")
    world.advance(1)

    assert ticket in world.receipts(publisher)
    assert any("had acknowledged 2 events" in notice.text for notice in world.effects(e.Notice))


@pytest.mark.parametrize(
    "message",
    [
        m.Published(1, 99, [m.TickRun(1, 1, 1)]),
        m.Published(1, 2, [m.TickRun(1, 1, 1)]),
        m.Published(1, 3, [m.TickRun(1, 0, 3)]),
        m.Published(1, 3, [m.TickRun(1, 1, 0)]),
        m.PublishRefused(1, 4, m.Code.RESUME, ""),
        m.PublishRefused(1, 2, m.Code.RETRY, ""),
        m.PublishRefused(1, 99, m.Code.REJECTED, ""),
        m.PublishRefused(1, 0, m.Code.REJECTED, ""),
    ],
    ids=str,
)
def test_an_answer_that_makes_no_sense_ends_the_link_and_changes_nothing(message: m.ServerMessage) -> None:
    world = World().start()
    publisher = world.open()
    assert publisher == 1
    world.broker.silent = True
    ticket = world.publish(publisher, b"a", b"b", b"c")
    world.broker.tell(world.broker.session, message)
    world.pump()
    assert not world.core.connected
    assert world.receipts(publisher) == {}

    world.broker.silent = False
    world.advance(5)
    assert world.receipts(publisher) == {ticket: [BASE + STEP, BASE + 2 * STEP, BASE + 3 * STEP]}


def test_a_huge_run_of_ticks_costs_nothing() -> None:
    world = World().start()
    publisher = world.open()
    world.broker.silent = True
    ticket = world.publish(publisher, b"a", b"b")
    world.broker.tell(world.broker.session, m.Published(publisher, 2, [m.TickRun(0, 1, 1 << 40)]))
    world.pump()

    assert world.receipts(publisher) == {ticket: [(1 << 40) - 2, (1 << 40) - 1]}


def test_what_is_said_of_a_publisher_that_is_over_means_nothing() -> None:
    world = World().start()
    publisher = world.open()
    world.core.close_publisher(publisher, world.now)
    session = world.broker.session
    world.broker.tell(session, m.Published(publisher, 5, []))
    world.broker.tell(session, m.PublisherOpened(publisher, PUBEND, 1, 5, 5))
    world.broker.tell(session, m.PublishRefused(publisher, 5, m.Code.FENCED, ""))
    world.pump()

    assert world.core.connected


@pytest.mark.parametrize("seed", range(60))
def test_whatever_happens_each_batch_is_logged_once_in_order(seed: int) -> None:
    """Links that break at any frame, a disk that fills and empties, batches that are refused."""
    random = Random(seed)
    world = World(seed=seed).start()
    world.broker.rejects = b"bad"
    publisher = world.open()
    sent: list[bytes] = []
    for step in range(120):
        body = b"%d" % step + (b"bad" if random.random() < 0.05 else b"")
        sent.append(body)
        world.core.publish(publisher, columns(body), (), world.now)
        if random.random() < 0.1:
            for effect in world.core.take_effects():
                if isinstance(effect, e.SendFrames):
                    frames = [joined(payload) for payload in effect.payloads]
                    world.broker.frames(effect.link, frames[: random.randrange(len(frames) + 1)])
            if world.links:
                world.cut()
        world.broker.full_disk = random.random() < 0.1
        if random.random() < 0.7:
            world.pump()
        world.advance(random.choice([0, 0.01, 0.3]))
    world.broker.full_disk = False
    world.advance(60)

    assert bodies(world) == [body for body in sent if b"bad" not in body]
    found = world.receipts(publisher)
    assert len(found) == len(sent)
    ticks = [ticks[0] for ticket, ticks in sorted(found.items()) if isinstance(ticks, list)]
    assert ticks == world.broker.streams[PUBEND].ticks
    assert all(isinstance(error, PublishRejectedError) for error in found.values() if not isinstance(error, list))


class TestForgotten:
    """A broker that no longer knows a publisher without a name: nothing is said of it that may be untrue."""

    def test_what_may_be_logged_is_uncertain_and_the_rest_is_published(self) -> None:
        world = World().start()
        publisher = world.open("~random")
        done = world.publish(publisher, b"a")
        taken = world.core.publish(publisher, columns(b"b"), (), world.now)
        world.core.take_effects()
        world.cut()
        world.broker.forget("~random")
        queued = world.core.publish(publisher, columns(b"c"), (), world.now)
        world.advance(20)

        found = world.receipts(publisher)
        assert isinstance(found[taken], PublishUncertainError)
        assert [len(found[ticket]) for ticket in (done, queued)] == [1, 1]
        assert bodies(world) == [b"a", b"c"]
        assert not world.effects(e.Notice)

    def test_one_that_was_idle_goes_on_unnoticed(self) -> None:
        world = World().start()
        publisher = world.open("~random")
        world.publish(publisher, b"a")
        world.cut()
        world.broker.forget("~random")
        world.advance(20)

        ticket = world.publish(publisher, b"b")

        assert len(world.receipts(publisher)[ticket]) == 1

    def test_in_the_middle_of_a_session_too(self) -> None:
        """What was sent may have been logged by a pubend elsewhere that has crashed since (hostile 2096)."""
        world = World().start()
        publisher = world.open("~random")
        world.publish(publisher, b"a")
        world.broker.forget("~random")
        world.broker.silent = True
        ticket = world.publish(publisher, b"b")
        world.broker.silent = False
        world.broker.tell(world.broker.session, m.PublishRefused(publisher, 2, m.Code.FORGOTTEN, "crashed"))
        world.pump()
        following = world.publish(publisher, b"c")

        found = world.receipts(publisher)
        assert isinstance(found[ticket], PublishUncertainError)
        assert len(found[following]) == 1
        assert bodies(world) == [b"a", b"c"]

    @pytest.mark.parametrize("rival", [False, True])
    def test_a_named_one_goes_on_unless_another_one_owns_the_name(self, rival: bool) -> None:
        """Another process of its host has had it, on a copy of the volume: here its name has logged less, or more."""
        world = World().start()
        publisher = world.open("loader")
        world.publish(publisher, b"a")
        world.broker.silent = True
        ticket = world.publish(publisher, b"b")
        world.broker.silent = False
        if rival:
            world.broker.names["loader"].instance = "a rival"
        world.broker.tell(world.broker.session, m.PublishRefused(publisher, 2, m.Code.FORGOTTEN, "another volume"))
        world.pump()

        assert isinstance(world.receipts(publisher)[ticket], PublishUncertainError)
        if rival:
            assert type(world.failure(publisher)) is PublisherFencedError
            return
        following = world.publish(publisher, b"c")
        assert len(world.receipts(publisher)[following]) == 1
        assert bodies(world) == [b"a", b"c"]


@pytest.mark.parametrize("fenced", [False, True])
def test_the_end_of_a_publisher_is_told_to_the_broker(fenced: bool) -> None:
    """It takes a place of the session there, and one without a name can be forgotten."""
    world = World().start()
    publisher = world.open("loader")
    if fenced:
        world.broker.tell(world.broker.session, m.PublishRefused(publisher, 1, m.Code.FENCED, "a newer rival"))
    else:
        world.core.close_publisher(publisher, world.now)
    world.pump()

    assert world.broker.session.publishers == {}


# ------------------------------------------------------------------------------------- tokens with batches


def token(tick: int) -> CheckpointToken:
    return CheckpointToken("net", {"in@1": tick}, 1, 1)


def publish(world: World, publisher: int, tick: int, *bodies: bytes) -> int:
    """Publishes a batch with a token."""
    return world.core.publish(publisher, columns(*bodies), (token(tick),), world.now)


@pytest.mark.parametrize("last", [True, False])
def test_no_token_covers_a_batch_of_which_nobody_knows_whether_it_was_logged(last: bool) -> None:
    """The one with the token need not be the last of those that are uncertain."""
    world = World().start()
    publisher = world.open("~random")
    world.publish(publisher, b"a")
    world.broker.forget("~random")
    world.broker.silent = True
    uncertain = [publish(world, publisher, 1, b"b")] + ([] if last else [world.publish(publisher, b"c")])
    world.pump()
    world.cut()
    covering, other = publish(world, publisher, 2, b"d"), world.publish(publisher, b"e")
    world.broker.silent = False
    world.advance(20)

    found = world.receipts(publisher)
    assert [type(found[ticket]) for ticket in uncertain] == [PublishUncertainError] * len(uncertain)
    assert isinstance(found[covering], PublishRejectedError)
    assert len(found[other]) == 1
    assert bodies(world) == [b"a", b"e"]


def test_a_token_is_stored_with_its_batch_or_alone() -> None:
    world = World().start()
    publisher = world.open()
    batches = (b"a", b"b"), (), (), (b"c",)
    tickets = [publish(world, publisher, tick, *sent) for tick, sent in enumerate(batches, 1)]
    world.pump()

    assert list(world.receipts(publisher)) == tickets
    assert [len(ticks) for ticks in world.receipts(publisher).values()] == [2, 0, 0, 1]
    core = world.core.publisher(publisher)
    assert core is not None
    assert (core.logged, core.tokens) == (3, (token(4),))
    assert world.answer(world.open()) == e.PublisherReady(PUBEND, 3, (token(4),))


def test_what_a_lost_connection_left_unanswered_is_answered_whatever_was_stored() -> None:
    for survives in range(4):
        world = World().start()
        publisher = world.open()
        world.broker.silent = True
        tickets = [publish(world, publisher, tick, *sent) for tick, sent in ((1, (b"a",)), (2, ()), (3, (b"b",)))]
        world.pump()
        name = world.broker.names["loader"]
        for message in world.broker.messages(m.Publish)[:survives]:
            name.tokens = split_tokens(message.tokens)
            if message.events.count:
                content = message.events.blob + message.tokens
                name.sequence += 1
                name.log.append((name.sequence, world.broker.streams[PUBEND].append(message.events), content))
        world.broker.silent = False
        world.reconnect()
        world.advance(5)

        assert list(world.receipts(publisher)) == tickets
        assert bodies(world) == [b"a", b"b"]
        assert name.tokens == (token(3),)


def test_what_is_stale_is_an_error_and_so_is_what_stands_behind_it() -> None:
    """A later token would say that the refused events are logged."""
    world = World().start()
    publisher = world.open()
    publish(world, publisher, 9, b"a")
    world.pump()
    tickets = [publish(world, publisher, tick, body) for tick, body in ((8, b"b"), (10, b"c"))]
    plain = world.core.publish(publisher, columns(b"d"), (), world.now)
    world.pump()
    world.advance(1)

    found = world.receipts(publisher)
    assert isinstance(found[tickets[0]], StaleTokenError)
    assert isinstance(found[tickets[1]], PublishRejectedError)
    assert isinstance(found[plain], list)
    assert bodies(world) == [b"a", b"d"]


def test_tokens_without_events_wait_for_the_disk_like_events() -> None:
    world = World().start()
    publisher = world.open()
    world.broker.full_disk = True
    tickets = [publish(world, publisher, tick, *sent) for tick, sent in ((1, ()), (2, (b"a",)))]
    world.pump()
    world.broker.full_disk = False
    world.advance(5)

    assert list(world.receipts(publisher)) == tickets
    assert bodies(world) == [b"a"]


def test_a_stored_token_that_is_none_is_the_brokers_error() -> None:
    world = World().start()
    publisher = world.core.open_publisher("loader", "i", "t", world.now)
    session = world.broker.session
    world.broker.tell(session, m.PublisherOpened(publisher, PUBEND, 1, 5, 5, "", ("no token",)))
    world.pump()

    assert any(isinstance(told, e.Disconnected) and "no token" in told.reason for told in world.told)


def test_however_long_a_pubend_was_away_a_publisher_asks_again_within_two_seconds() -> None:
    """It is to hear within 5 s of its return what became of it; the links of brokers come back meanwhile."""
    world = World().start()
    publisher = world.open()
    world.broker.full_disk = True
    world.publish(publisher, b"x")
    world.advance(300)
    world.broker.full_disk = False
    world.advance(2)

    assert len(world.receipts(publisher)) == 1
