"""Publishers of a session (protocol: publishing; C9, T39)."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.core.network.facts import Ending, OpenRequest, Outcome, SubmitOpen, Verdict
from gapless.core.ports import Action
from gapless.core.resources import Publisher
from gapless.core.server import SessionLimits
from gapless.core.server.audit import WITHOUT_END
from gapless.core.server.limits import PUBLISHERS
from gapless.core.server.publishing import append_runs
from gapless.core.wire.messages import (
    ClosePublisher,
    Code,
    Goodbye,
    OpenPublisher,
    PositionsStored,
    Publish,
    Published,
    PublisherOpened,
    PublishRefused,
    TickRun,
)
from unit.gapless.core.server.conftest import Rules
from wire import columns, kinds


def ok(sequence: int, *ticks: int) -> Outcome:
    return Outcome(Verdict.OK, sequence=sequence, ticks=tuple(TickRun(tick, 1024, 1) for tick in ticks))


def test_an_opening_goes_to_the_router_and_its_answer_back(broker: Any) -> None:
    client = broker.client()
    assert client.say(OpenPublisher(5, "loader", "instance", 2, "flights", "default@1")) == []
    (asked,) = broker.placed()

    broker.answer(asked, Outcome(Verdict.OK, epoch=4, sequence=120, tick=99))

    assert isinstance(asked, SubmitOpen)
    assert asked.request == OpenRequest("loader", "instance", 2, "flights", "default@1", principal="anonymous")
    assert client.hear() == [PublisherOpened(5, "default@1", 4, 120, 99)]


def test_a_batch_goes_to_the_pubend_where_its_publisher_was_opened(broker: Any) -> None:
    client = broker.client()
    client.open(pubend="other@1")

    asked = client.publish(1, b"a", b"b")

    pub = asked.pub
    assert (pub.publisher, pub.epoch, pub.first, pub.pubend) == ("loader", 1, 1, "other@1")
    assert pub.events.count == 2


def test_batches_answered_in_one_step_share_a_message(broker: Any) -> None:
    client = broker.client()
    client.open()
    asked = [client.publish(1 + number, b"x") for number in range(3)]

    for number, batch in enumerate(asked[:2]):
        broker.answer(batch, ok(1 + number, 1024 * number))
    assert client.hear() == [Published(1, 2, [TickRun(0, 1024, 2)])]

    broker.answer(asked[2], ok(3, 9000))
    assert client.hear() == [Published(1, 3, [TickRun(9000, 1024, 1)])]
    assert client.hear() == []


@pytest.mark.parametrize("durable", [True, False])
def test_a_receipt_says_whether_the_pubends_log_is_durable(broker: Any, *, durable: bool) -> None:
    """Of the pubend, not of this broker."""
    client = broker.client()
    client.open()

    broker.answer(client.publish(1, b"x"), Outcome(Verdict.OK, sequence=1, durable=durable))

    assert client.hear() == [Published(1, 1, [], durable)]


def test_answers_are_given_in_the_order_of_the_batches(broker: Any) -> None:
    client = broker.client()
    client.open()
    first, second, third = (client.publish(number, b"x") for number in (1, 2, 3))

    broker.answer(third, Outcome(Verdict.REJECTED, "not allowed"))
    broker.answer(second, ok(2, 20))
    assert client.hear() == []
    broker.answer(first, ok(1, 10))

    published, refused = client.hear()
    assert published == Published(1, 2, [TickRun(10, 1024, 1), TickRun(20, 1024, 1)])
    assert refused == PublishRefused(1, 3, Code.REJECTED, "not allowed")


def test_what_is_durable_is_told_before_a_refusal_that_follows_it(broker: Any) -> None:
    client = broker.client()
    client.open()
    first, second = client.publish(1, b"x"), client.publish(2, b"x")

    broker.answer(first, ok(1, 10))
    broker.answer(second, Outcome(Verdict.INVALID, "no"))

    assert kinds(client.hear()) == ["Published", "PublishRefused"]


@pytest.mark.parametrize(
    ("outcome", "refused"),
    [
        (Outcome(Verdict.REJECTED, "why", sequence=9), PublishRefused(1, 2, Code.REJECTED, "why")),
        (Outcome(Verdict.INVALID, "why"), PublishRefused(1, 2, Code.INVALID_MESSAGE, "why")),
        (Outcome(Verdict.FENCED, "why"), PublishRefused(1, 2, Code.FENCED, "why")),
        (Outcome(Verdict.RESUME, "why", sequence=1), PublishRefused(1, 1, Code.RESUME, "why")),
        (Outcome(Verdict.RETRY, "why", sequence=1), PublishRefused(1, 1, Code.RETRY, "why")),
        (Outcome(Verdict.RETRY, "why"), PublishRefused(1, 2, Code.RETRY, "why")),
        (Outcome(Verdict.UNCERTAIN, "why", sequence=9), PublishRefused(1, 2, Code.RETRY, "why")),
    ],
    ids=["rejected", "invalid", "fenced", "resume", "retry", "retry of itself", "uncertain"],
)
def test_a_refused_batch(broker: Any, outcome: Outcome, refused: PublishRefused) -> None:
    client = broker.client()
    client.open()

    broker.answer(client.publish(2, b"x"), outcome)

    assert client.hear() == [refused]


@pytest.mark.parametrize("verdict", [verdict for verdict in Verdict if verdict is not Verdict.OK])
def test_one_refusal_speaks_for_all_batches_behind_the_gap(make_broker: Any, verdict: Verdict) -> None:
    """A client that sends them again at once must neither be refused again for each nor break its window."""
    broker = make_broker(SessionLimits(window_batches=3))
    client = broker.client()
    client.open()
    earlier = [client.publish(number, b"x") for number in (5, 6, 7)]

    broker.answer(earlier[0], Outcome(verdict, sequence=5))
    assert kinds(client.hear()) == ["PublishRefused"]
    again = [client.publish(number, b"x") for number in (5, 6, 7)]
    broker.answer(earlier[1], Outcome(Verdict.RESUME, sequence=5))
    broker.answer(earlier[2], Outcome(Verdict.RESUME, sequence=5))
    assert client.hear() == []
    for number, asked in enumerate(again):
        broker.answer(asked, ok(5 + number, 10 + number))

    assert client.hear()[0].sequence == 7


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (Outcome(Verdict.INVALID, "a wildcard"), Code.INVALID_TOPIC),
        (Outcome(Verdict.RETRY, "no pubend yet"), Code.RETRY),
        (Outcome(Verdict.FENCED, "a newer rival"), Code.FENCED),
    ],
    ids=lambda value: value.name if isinstance(value, Code) else "",
)
def test_a_refused_opening(broker: Any, outcome: Outcome, code: Code) -> None:
    client = broker.client()
    client.say(OpenPublisher(1, "loader", "instance", 1, "a.*"))
    (asked,) = broker.placed()

    broker.answer(asked, outcome)

    assert client.hear() == [PublishRefused(1, 0, code, outcome.reason)]
    (closing,) = client.say(Publish(1, 1, 1, columns(b"x"), b""))
    assert "not open" in closing.reason


@pytest.mark.parametrize(
    ("name", "instance", "reason"),
    [("", "i", "is empty"), ("n" * 256, "i", "longer"), ("a\0b", "i", "printed"), ("n", "", "is empty")],
    ids=["empty", "long", "unprintable", "instance"],
)
def test_a_publisher_needs_a_name(broker: Any, name: str, instance: str, reason: str) -> None:
    client = broker.client()

    (refused,) = client.say(OpenPublisher(1, name, instance, 1, None))

    assert refused.code is Code.REJECTED
    assert reason in refused.reason
    assert broker.effects == []


def test_a_batch_of_a_publisher_that_was_never_opened_is_a_violation(broker: Any) -> None:
    client = broker.client()

    (closing,) = client.say(Publish(3, 1, 1, columns(b"x"), b""))

    assert "publisher 3, which is not open" in closing.reason
    assert broker.placed() == []


def test_more_batches_than_the_window_are_a_violation(make_broker: Any) -> None:
    broker = make_broker(SessionLimits(window_batches=2))
    client = broker.client()
    client.open()
    client.publish(1, b"x")
    client.publish(2, b"x")

    (closing,) = client.say(Publish(1, 1, 3, columns(b"x"), b""))

    assert "more than 2 batches" in closing.reason
    assert [asked.request.ending for asked in broker.placed()] == [Ending.LEFT]
    assert broker.ended() == [client.session]


@pytest.mark.parametrize("code", [Verdict.RETRY, Verdict.RESUME, Verdict.UNCERTAIN], ids=lambda code: code.name)
def test_what_was_sent_before_the_refusal_was_known_is_ignored(make_broker: Any, code: Verdict) -> None:
    """So it takes no room in the window, and is not refused for itself (P1)."""
    broker = make_broker(SessionLimits(window_batches=3))
    client = broker.client()
    client.open()
    broker.answer(client.publish(1, b"x"), Outcome(code, "later"))
    assert kinds(client.hear()) == ["PublishRefused"]

    assert client.say(*(Publish(1, 1, first, columns(b"x"), b"") for first in (2, 3))) == []
    assert broker.placed() == []
    for first, batch in enumerate([client.publish(first, b"x") for first in (1, 2, 3)], 1):
        broker.answer(batch, ok(first, first))

    assert client.hear() == [Published(1, 3, [TickRun(tick, 1024, 1) for tick in (1, 2, 3)])]


def test_more_bytes_than_the_window_are_a_violation_but_one_batch_may_be_larger(make_broker: Any) -> None:
    broker = make_broker(SessionLimits(window_bytes=1000))
    client = broker.client()
    client.open()
    broker.answer(client.publish(1, bytes(2000)), ok(1, 10))
    client.hear()
    client.publish(2, bytes(600))

    (closing,) = client.say(Publish(1, 1, 3, columns(bytes(600)), b""))

    assert "more than 1000 bytes" in closing.reason


def test_an_answer_opens_the_window_again(make_broker: Any) -> None:
    broker = make_broker(SessionLimits(window_batches=1, window_bytes=500))
    client = broker.client()
    client.open()
    for sequence in range(1, 20):
        broker.answer(client.publish(sequence, bytes(400)), ok(sequence, sequence))

        assert client.hear()[0].sequence == sequence


def test_a_publisher_has_one_opening_unanswered(broker: Any) -> None:
    client = broker.client()
    opening = OpenPublisher(1, "loader", "instance", 1, None)

    (closing,) = client.say(opening, opening)

    assert "opened again before the answer" in closing.reason


def test_a_batch_before_the_answer_of_an_opening_is_a_violation(broker: Any) -> None:
    client = broker.client()
    client.open()

    opening = OpenPublisher(1, "loader", "instance", 2, None, "default@1")
    (closing,) = client.say(opening, Publish(1, 1, 1, columns(b"x"), b""))

    assert "not open" in closing.reason


def test_a_session_has_a_limited_number_of_publishers(make_broker: Any) -> None:
    broker = make_broker(SessionLimits(publishers=2))
    client = broker.client()
    for number in (1, 2):
        assert client.say(OpenPublisher(number, "loader", "instance", 1, None)) == []

    (refused,) = client.say(OpenPublisher(3, "loader", "instance", 1, None))

    assert refused == PublishRefused(3, 0, Code.REJECTED, f"a session may have 2 publishers ({PUBLISHERS})")


def test_answers_for_a_session_that_is_over_mean_nothing(broker: Any) -> None:
    client = broker.client()
    client.open()
    first, second = client.publish(1, b"x"), client.publish(2, b"x")

    broker.answer(first, ok(1, 10))
    client.say(Goodbye())
    broker.answer(second, ok(2, 20))

    assert client.hear() == []


def test_runs_are_joined_only_where_they_go_on() -> None:
    runs: list[TickRun] = []
    append_runs(runs, [TickRun(0, 4, 2)])
    append_runs(runs, [TickRun(8, 4, 1), TickRun(100, 4, 1)])
    append_runs(runs, [TickRun(104, 8, 2)])
    append_runs(runs, [])

    assert runs == [TickRun(0, 4, 3), TickRun(100, 4, 1), TickRun(104, 8, 2)]


def test_where_to_resume_is_the_pubends_to_say(broker: Any) -> None:
    """Also below what was acknowledged: a batch came late, or the pubend has lost something; the client asks which."""
    client = broker.client()
    client.open()
    first, second, third = (client.publish(number, b"x") for number in (1, 2, 3))

    broker.answer(third, Outcome(Verdict.RESUME, "event 2 is missing", sequence=2))
    broker.answer(first, ok(1, 10))
    broker.answer(second, ok(2, 20))

    published, refused = client.hear()
    assert published == Published(1, 2, [TickRun(10, 1024, 1), TickRun(20, 1024, 1)])
    assert refused == PublishRefused(1, 2, Code.RESUME, "event 2 is missing")


@pytest.mark.parametrize(("first", "bodies"), [(0, [b"x"]), (1, [b"x", b"y"]), (2, [b"y", b"z"])])
def test_repetitions_are_the_pubends_to_judge(broker: Any, first: int, bodies: list[bytes]) -> None:
    client = broker.client()
    client.open()
    broker.answer(client.publish(1, b"x", b"y"), ok(2, 10, 20))
    client.hear()

    broker.answer(client.publish(first, *bodies), Outcome(Verdict.INVALID, "sent before, with other content"))

    assert kinds(client.hear()) == ["PublishRefused"]


def test_another_opening_needs_no_answers_to_what_was_sent_before(make_broker: Any) -> None:
    """A full window of batches leaves room for it, and for as many batches behind it (P1)."""
    broker = make_broker(SessionLimits(window_batches=2))
    client = broker.client()
    client.open()
    before = [client.publish(first, b"x") for first in (1, 2)]

    assert client.say(OpenPublisher(1, "loader", "instance", 2, None, "default@1")) == []
    (opening,) = broker.placed()
    broker.answer(before[0], ok(1, 10))
    broker.answer(opening, Outcome(Verdict.OK, epoch=2, sequence=1, tick=10))
    broker.answer(before[1], Outcome(Verdict.FENCED, "opened anew"))
    assert client.hear() == [PublisherOpened(1, "default@1", 2, 1, 10)]

    for sequence, asked in enumerate([client.publish(first, b"y") for first in (2, 3)], 2):
        broker.answer(asked, ok(sequence, 10 * sequence))
    assert client.hear()[0].sequence == 3


def test_what_became_durable_with_another_opening_is_sent_before_its_answer(broker: Any) -> None:
    client = broker.client()
    client.open()
    asked = client.publish(1, b"x")
    broker.answer(asked, ok(1, 10))

    assert kinds(client.say(OpenPublisher(1, "loader", "instance", 2, None, "default@1"))) == ["Published"]


class TestEnding:
    """The pubend is told when a publisher is over, and when its session is."""

    def test_a_publisher_that_is_closed_leaves_its_place_and_says_so_to_the_router(self, make_broker: Any) -> None:
        broker = make_broker(SessionLimits(publishers=1))
        client = broker.client()
        for number in range(3):
            client.open(number)
            broker.answer(client.publish(1, b"x", number=number), ok(1, 10))
            assert client.hear() == [Published(number, 1, [TickRun(10, 1024, 1)])]
            assert client.say(ClosePublisher(number)) == []
            (asked,) = broker.placed()
            assert asked.request == OpenRequest(
                "loader", "instance", 1, None, "default@1", ending=Ending.CLOSED, principal="anonymous"
            )
            broker.answer(asked, Outcome(Verdict.OK))
            assert client.hear() == []

    def test_what_is_answered_after_it_was_closed_means_nothing(self, broker: Any) -> None:
        client = broker.client()
        client.open()
        batch = client.publish(1, b"x")
        client.say(ClosePublisher(1))
        broker.placed()
        client.open()

        broker.answer(batch, ok(1, 10))

        assert client.hear() == []

    def test_one_that_is_not_open_may_be_closed(self, broker: Any) -> None:
        assert broker.client().say(ClosePublisher(7)) == []
        assert broker.placed() == []

    @pytest.mark.parametrize(("goodbye", "ending"), [(True, Ending.CLOSED), (False, Ending.LEFT)])
    def test_a_session_ends_all_of_its_publishers(self, broker: Any, goodbye: bool, ending: Ending) -> None:
        """Who says goodbye does not come back; who is cut off may."""
        client = broker.client()
        client.open(1, "one")
        client.open(2, "two")

        if goodbye:
            client.say(Goodbye())
        else:
            broker.sessions.on_link_closed(client.link)
            broker.take()

        ended = [(asked.request.publisher, asked.request.ending) for asked in broker.placed()]
        assert ended == [("one", ending), ("two", ending)]


def test_tokens_go_to_the_router_and_those_without_events_have_an_answer_of_their_own(broker: Any) -> None:
    client = broker.client()
    client.open()
    first = client.publish(1, b"x")
    assert client.say(Publish(1, 1, 2, columns(), b"token")) == []
    (asked,) = broker.placed()

    assert (asked.pub.first, asked.pub.events.count, asked.pub.tokens) == (2, 0, b"token")
    broker.answer(asked, Outcome(Verdict.OK, sequence=1))
    assert client.hear() == []
    broker.answer(first, ok(1, 10))
    assert client.hear() == [Published(1, 1, [TickRun(10, 1024, 1)]), PositionsStored(1)]


def test_tokens_count_for_the_window(make_broker: Any) -> None:
    broker = make_broker(SessionLimits(window_bytes=1000))
    client = broker.client()
    client.open()
    client.publish(1, bytes(600))

    (closing,) = client.say(Publish(1, 1, 2, columns(), bytes(600)))
    assert "unanswered" in closing.reason


class TestOtherRules:
    """A publisher that is open when other rules count is judged by them with its next batch."""

    def opened(self, broker: Any, topic: str | None = "flights") -> Any:
        """A client whose publisher was allowed to open."""
        client = broker.client()
        client.say(OpenPublisher(1, "loader", "instance", 1, topic))
        (asked,) = broker.placed()
        broker.answer(asked, Outcome(Verdict.OK, epoch=1))
        assert kinds(client.hear()) == ["PublisherOpened"]
        return client

    def replace(self, broker: Any, *forbidden: str) -> Rules:
        """Other rules count from now on."""
        rules = Rules()
        rules.forbidden = {(Action.PUBLISH, topic) for topic in forbidden}
        broker.authority.replace(rules, ())
        return rules

    def test_its_next_batch_is_refused_and_nothing_of_it_reaches_the_router(self, broker: Any) -> None:
        client = self.opened(broker)
        broker.answer(client.publish(1, b"x"), ok(1, 10))
        client.hear()
        self.replace(broker, "flights")

        refused = client.say(Publish(1, 1, 2, columns(b"x"), b""))

        assert refused == [PublishRefused(1, 2, Code.FORBIDDEN, "anonymous may not publish flights")]
        assert client.say(Publish(1, 1, 3, columns(b"x"), b"")) == [], "it was sent before that was known"
        assert kinds(client.say(Publish(1, 1, 2, columns(b"x"), b""))) == ["PublishRefused"], "sent again"
        assert broker.placed() == []

    def test_the_receipts_of_the_batches_before_it_come_first(self, broker: Any) -> None:
        """They were allowed, and reached the router: whether they are logged is still to be said."""
        client = self.opened(broker)
        before = [client.publish(number, b"x") for number in (1, 2)]
        self.replace(broker, "flights")
        assert client.say(*(Publish(1, 1, first, columns(b"x"), b"") for first in (3, 4))) == []
        assert broker.placed() == []

        broker.answer(before[0], ok(1, 10))
        assert client.hear() == [Published(1, 1, [TickRun(10, 1024, 1)])]
        broker.answer(before[1], ok(2, 20))

        assert client.hear() == [
            Published(1, 2, [TickRun(20, 1024, 1)]),
            PublishRefused(1, 3, Code.FORBIDDEN, "anonymous may not publish flights"),
        ]

    def test_a_refused_batch_makes_room_in_the_window(self, make_broker: Any) -> None:
        broker = make_broker(SessionLimits(window_batches=1))
        client = self.opened(broker)
        self.replace(broker, "flights")

        for _ in range(3):
            assert kinds(client.say(Publish(1, 1, 1, columns(b"x"), b""))) == ["PublishRefused"]

    def test_one_that_may_go_on_does_and_they_are_asked_once(self, broker: Any) -> None:
        client = self.opened(broker)
        asked = [("anonymous", Action.PUBLISH, "flights"), ("anonymous", Action.PUBLISH, Publisher("loader"))]
        assert broker.rules.asked == asked
        client.publish(1, b"x")
        assert len(broker.rules.asked) == 2, "the opening was allowed under them"
        rules = self.replace(broker, "trains")

        for first in (2, 3, 4):
            client.publish(first, b"x")

        assert rules.asked == asked
        assert len(broker.rules.asked) == 2

    def test_rules_that_allow_it_again_let_it_go_on(self, broker: Any) -> None:
        client = self.opened(broker)
        self.replace(broker, "flights")
        client.say(Publish(1, 1, 1, columns(b"x"), b""))
        self.replace(broker)

        broker.answer(client.publish(1, b"x"), ok(1, 10))

        assert client.hear() == [Published(1, 1, [TickRun(10, 1024, 1)])]

    def test_without_a_topic_its_name_alone_is_judged_here(self, broker: Any) -> None:
        """The host of its pubend judges each topic in a batch."""
        client = self.opened(broker, None)
        rules = self.replace(broker, "flights")
        broker.answer(client.publish(1, b"x"), ok(1, 10))
        client.hear()
        assert rules.asked == [("anonymous", Action.PUBLISH, Publisher("loader"))]

        self.replace(broker).forbidden.add((Action.PUBLISH, Publisher("loader")))
        assert kinds(client.say(Publish(1, 1, 2, columns(b"x"), b""))) == ["PublishRefused"]

    def test_one_that_opens_while_other_rules_come_is_judged_by_them_as_well(self, broker: Any) -> None:
        client = broker.client()
        client.say(OpenPublisher(1, "loader", "instance", 1, "flights"))
        (asked,) = broker.placed()
        self.replace(broker, "flights")
        broker.answer(asked, Outcome(Verdict.OK, epoch=1))
        client.hear()

        assert kinds(client.say(Publish(1, 1, 1, columns(b"x"), b""))) == ["PublishRefused"]
        assert broker.placed() == []

    def test_opened_again_it_is_refused_too(self, broker: Any) -> None:
        client = self.opened(broker)
        self.replace(broker, "flights")

        (refused,) = client.say(OpenPublisher(1, "loader", "instance", 2, "flights", "default@1"))

        assert refused == PublishRefused(1, 0, Code.FORBIDDEN, "anonymous may not publish flights")
        assert broker.placed() == []

    def test_the_audit_is_told_of_the_batch_that_was_refused(self, make_broker: Any) -> None:
        broker = make_broker(audited=True)
        client = self.opened(broker)
        broker.audit.begin_turn(7, WITHOUT_END)
        before = len(broker.audit.lines)
        self.replace(broker, "flights")
        client.say(Publish(1, 1, 1, columns(b"x"), b""))

        [line] = broker.audit.lines[before:]
        assert (line.kind, line.action, line.resource, line.name) == ("request", "publish", "flights", "loader")
        assert (line.outcome, line.reason) == ("refused", "anonymous may not publish flights")
