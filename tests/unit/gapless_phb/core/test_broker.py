"""All pubends of a broker: which there are, who goes where, and what the operator sees."""

from __future__ import annotations

from operator import attrgetter

import msgspec
import pytest
from msgspec.structs import replace

from gapless.core.alarms import Alarm
from gapless.core.gauges import value_of
from gapless.core.network.bytes_above import TICKS_MAX, AskBytesAbove, BytesAbove, encode
from gapless.core.network.facts import (
    AskPubend,
    Enrol,
    Hold,
    Opened,
    OpenRequest,
    OrderedGroup,
    Post,
    Posted,
    Pub,
    Released,
    Submit,
    SubmitOpen,
    Verdict,
    Want,
)
from gapless.core.ports import Action, Tell
from gapless.core.principals import Principal
from gapless.core.resources import Resource
from gapless.core.stream.ticks import EPOCH_MS, FOREVER, STEP
from gapless.core.wire.messages import ListPubends, PubendList
from gapless.errors import ConfigurationError
from gapless_phb.core import gauges
from gapless_phb.core.settings import PubendSettings
from unit.gapless_phb.harness import (
    NO_RETENTION,
    Harness,
    TestPublisher,
    at,
    bodies,
    columns,
    knows,
    lines,
    outcomes,
    with_settings,
)

FLIGHTS = PubendSettings("flights", topics=("flights.#",))
REST = PubendSettings("rest")


def opened(effects: list[object]) -> dict[str, Opened]:
    return {effect.meta.pubend.partition("@")[0]: effect for effect in effects if isinstance(effect, Opened)}


class TestPubends:
    def test_there_is_one_by_default(self) -> None:
        harness = Harness(PubendSettings())
        (one,) = opened(harness.sync()).values()

        assert one.meta.pubend.startswith("default@")
        assert (one.meta.topics, one.meta.group, one.meta.created) == (("#",), None, at(1000))
        assert one.meta.broker == "broker"

    def test_their_numbers_tell_their_ticks_apart_and_are_never_used_again(self) -> None:
        harness = Harness(REST, FLIGHTS)
        harness.sync()
        with_settings(harness, pubends=(FLIGHTS, PubendSettings("new")))
        harness.crash()
        harness.sync()

        assert [harness.hosted(name).number for name in harness.pubends] == [0, 1, 2]
        assert [name.partition("@")[0] for name in harness.pubends] == ["rest", "flights", "new"]

    def test_there_can_be_1024_in_a_volumes_life(self) -> None:
        with pytest.raises(ConfigurationError, match=r"phb\.pubends"):
            Harness(PubendSettings("a", count=STEP + 1))

    def test_a_new_one_counts_every_shb_that_was_ever_enrolled(self) -> None:
        """A pubend born while an SHB is away must not forget for it."""
        harness = Harness(REST, members=("own",))
        harness.sync()
        harness.enrol("away")
        harness.sync()
        with_settings(harness, pubends=(REST, FLIGHTS))
        harness.crash()
        created = at(harness.wall - EPOCH_MS)

        members = opened(harness.sync())["flights"].members

        assert members == {"away": created, "own": created}

    def test_one_in_a_group_says_its_silence_sooner_and_tells_its_group(self) -> None:
        harness = Harness(REST, FLIGHTS)
        harness.sync()
        harness.groups = (OrderedGroup("book", ("broker/flights", "elsewhere/rest"), 0.02),)
        harness.crash()
        metas = {name: effect.meta for name, effect in opened(harness.sync()).items()}
        before = len(harness.said)
        for _ in range(100):
            harness.advance(1)
            harness.sync()

        said = [know.pubend.partition("@")[0] for know in map(attrgetter("knowledge"), knows(harness.said[before:]))]
        assert {name: (meta.group, meta.member) for name, meta in metas.items()} == {
            "rest": (None, "broker/rest"),
            "flights": ("book", "broker/flights"),
        }
        assert said == 5 * ["flights"]

    def test_a_group_that_names_a_pubend_which_is_not_configured_is_refused(self) -> None:
        harness = Harness(REST)
        harness.groups = (OrderedGroup("book", ("broker/flights",)),)

        with pytest.raises(ConfigurationError, match=r"no pubend 'flights' \(phb\.pubends\); 'rest' would be"):
            harness.crash()

    def test_one_that_is_no_longer_configured_is_served_and_takes_no_new_publishers(self) -> None:
        harness = Harness(REST, FLIGHTS)
        harness.sync()
        known = harness.publisher()
        known.send()
        harness.sync()
        with_settings(harness, pubends=(FLIGHTS,))
        harness.crash()

        said = opened(harness.sync())
        assert (said["rest"].meta.read_only, said["flights"].meta.read_only) == (True, False)
        assert (said["rest"].meta.places, said["flights"].meta.places) == (1, 1)
        known.epoch = 0
        known.open()
        assert outcomes(harness.sync())[-1].verdict is Verdict.OK
        stranger = TestPublisher(harness, "stranger")
        stranger.pubend = harness.pubend
        assert "no longer configured" in outcomes(stranger.open())[0].reason
        harness.ask((0, FOREVER))
        assert bodies(knows(harness.read())[-1].knowledge.data) == "1010=ann/1"

    def test_topics_that_were_ever_carried_stay_announced(self) -> None:
        harness = Harness(FLIGHTS)
        harness.sync()
        with_settings(harness, pubends=(PubendSettings("flights", topics=("trains",)),))
        harness.crash()
        harness.sync()
        harness.crash()

        assert opened(harness.sync())["flights"].meta.topics == ("flights.#", "trains")

    def test_a_volume_that_was_wiped_has_other_pubends(self) -> None:
        first, second = Harness(), Harness()
        second.storage_id = "storage-2"
        second.crash()

        assert first.pubend != second.pubend
        publisher = TestPublisher(second, "ann")
        publisher.pubend = first.pubend
        (gone,) = outcomes(publisher.open())
        assert gone.verdict is Verdict.REJECTED
        assert "was lost or made anew" in gone.reason

    def test_what_was_sent_to_a_pubend_that_is_gone_is_uncertain_and_keyed_batches_come_again(self) -> None:
        harness = Harness()
        former = "default@former"
        batch = Pub("ann", 1, 1, columns([b"event"]), former, b"", principal="anonymous")
        asked = [batch, replace(batch, keyed=True), replace(batch, pubend="another@former")]

        (verdicts,) = [[outcome.verdict for pub in asked for outcome in outcomes(harness.feed(Submit(pub, "me")))]]

        assert verdicts == [Verdict.FORGOTTEN, Verdict.RETRY, Verdict.REJECTED]

    def test_a_claim_on_a_pubend_that_is_gone_is_granted(self) -> None:
        """Nobody will store anything there: a consumer must not wait for it."""
        harness = Harness()
        claim = OpenRequest("shb/1/1", "seal", 0, None, "default@former", 7, claims=True, principal="")

        (outcome,) = outcomes(harness.feed(SubmitOpen(claim, "me")))

        assert (outcome.verdict, outcome.epoch, outcome.tokens) == (Verdict.OK, 7, ())

    def test_a_wall_clock_beyond_all_ticks_is_refused(self) -> None:
        harness = Harness()
        harness.wall = EPOCH_MS + 69 * 365 * 86_400_000

        with pytest.raises(ConfigurationError, match="2088"):
            harness.crash()


class TestPlacing:
    def harness(self) -> Harness:
        harness = Harness(FLIGHTS, REST)
        harness.sync()
        return harness

    def place(self, harness: Harness, name: str, topic: str | None) -> str:
        publisher = TestPublisher(harness, name)
        said = publisher.open(topic) or harness.sync()
        publisher.opened()
        assert len(outcomes(said)) == 1
        return publisher.pubend.partition("@")[0]

    def test_by_topic(self) -> None:
        harness = self.harness()

        assert self.place(harness, "ann", "flights.jfk") == "flights"
        assert self.place(harness, "bob", "ships") == "rest"
        assert self.place(harness, "cid", None) == "rest"

    def test_a_named_publisher_stays_where_it_is(self) -> None:
        harness = self.harness()
        self.place(harness, "ann", "flights.jfk")
        with_settings(harness, pubends=(REST, FLIGHTS))
        harness.crash()
        harness.sync()

        assert self.place(harness, "ann", "flights.lax") == "flights"
        (elsewhere,) = outcomes(TestPublisher(harness, "ann").open("ships"))
        assert elsewhere.verdict is Verdict.REJECTED, "its sequences are here, so it may go nowhere else"
        assert "flights.#" in elsewhere.reason

    def test_where_nobody_takes_it_it_is_rejected(self) -> None:
        harness = Harness(FLIGHTS)
        harness.sync()

        for topic in ("ships", None):
            (refused,) = outcomes(TestPublisher(harness, "ann").open(topic))
            assert refused.verdict is Verdict.ELSEWHERE
            assert "phb.pubends" in refused.reason

    def test_a_batch_for_a_pubend_that_is_not_here_is_rejected(self) -> None:
        harness = self.harness()

        (refused,) = outcomes(
            harness.feed(Submit(Pub("ann", 1, 1, columns([b"x"]), "nowhere@1", b"", principal="anonymous"), "reply"))
        )

        assert (refused.verdict, refused.reason) == (Verdict.REJECTED, "there is no pubend 'nowhere@1' here")


def test_what_is_said_of_pubends_that_are_not_here_is_ignored() -> None:
    harness = Harness()
    harness.sync()
    harness.said.clear()

    harness.feed(AskPubend(Want("nowhere@1", ((0, 9),), None, "shb", again=False), "reply"))
    harness.feed(Enrol("nowhere@1", "shb"))
    harness.feed(Hold("shb", "nowhere@1", 1, {}))
    harness.feed(Released("nowhere@1", 1, 1))

    assert harness.said == []
    assert harness.unsynced == []


def test_before_it_is_ready_it_hears_nothing_of_shbs() -> None:
    harness = Harness(NO_RETENTION)

    harness.ask((0, FOREVER))
    harness.enrol("shb")
    harness.hold("shb", 1, {})

    assert harness.said == []
    assert harness.reads == []


def test_clients_may_list_the_pubends() -> None:
    harness = Harness(FLIGHTS, REST, members=("shb1",))
    harness.sync()
    publisher = harness.publisher()
    publisher.send(3)
    harness.sync()

    (tell,) = harness.request(ListPubends(7))

    assert isinstance(tell, Tell)
    assert isinstance(tell.message, PubendList)
    assert (tell.session, tell.message.request) == (1, 7)
    flights, rest = tell.message.rows
    assert (flights.topics, flights.newest, flights.publishers) == (("flights.#",), 0, 0)
    assert (rest.newest, rest.stable, rest.publishers) == (publisher_last(harness), publisher_last(harness), 1)
    assert flights.shbs == rest.shbs == ("shb1",)
    assert rest.log_bytes == sum(len(raw) for _, raw in harness.records(f"phb.{rest.pubend}"))


def test_a_pubend_is_listed_when_the_network_hears_of_it() -> None:
    """Whoever saw it in the list before subscribed at a broker that could not have heard of it yet."""
    harness = Harness(FLIGHTS)

    def listed() -> int:
        (tell,) = harness.request(ListPubends(7))
        assert isinstance(tell, Tell)
        assert isinstance(tell.message, PubendList)
        return len(tell.message.rows)

    assert (listed(), harness.sent(Opened)) == (0, [])
    harness.sync()
    assert (listed(), len(harness.sent(Opened))) == (1, 1)


def test_a_list_leaves_out_pubends_that_one_may_not_know_of_and_counts_them() -> None:
    class Rules:
        asks = True

        def refusal(self, principal: Principal, action: Action, resource: Resource) -> str:
            assert (principal, action) == (Principal("somebody"), Action.OBSERVE)
            return "" if resource == "topic b.#" else "no"

    harness = Harness(PubendSettings("one", topics=("a",)), PubendSettings("two", topics=("a.x", "b.#")))
    harness.rules = Rules()
    harness.sync()
    harness.crash()
    harness.sync()

    (tell,) = harness.request(ListPubends(7))

    assert isinstance(tell, Tell)
    assert isinstance(tell.message, PubendList)
    assert ([row.topics for row in tell.message.rows], tell.message.hidden) == ([("a.x", "b.#")], 1)


def publisher_last(harness: Harness) -> int:
    return at(1010, 2) + 1


def test_c01_a_leap_of_the_wall_clock_is_told_once_and_taken_back() -> None:
    harness = Harness(FLIGHTS, REST)
    harness.sync()
    harness.said.clear()

    harness.wall += 10**9
    harness.advance(5000)
    leapt = [effect.text for effect in harness.said if isinstance(effect, Alarm)]
    harness.wall -= 10**9
    harness.advance(5000)
    alarms = [effect.text for effect in harness.said if isinstance(effect, Alarm)]

    assert len(leapt) == 1
    assert "early release is suspended" in leapt[0]
    assert len(alarms) == 2
    assert "believed again" in alarms[1]
    assert max(know.knowledge.hi for know in knows(harness.said)) <= at(11_000)


def alarms_after(harness: Harness, ms: int) -> list[str]:
    """What is said of the clock within some time."""
    harness.said.clear()
    harness.advance(ms)
    return [effect.text for effect in harness.said if isinstance(effect, Alarm)]


def test_c01_what_the_wall_clock_did_across_a_stop_is_told_once_and_taken_back() -> None:
    harness = Harness(FLIGHTS, REST, clock_doubt_seconds=60.0)
    harness.sync()
    harness.wall += 7_200_000
    harness.crash()
    harness.sync()

    (doubted,) = alarms_after(harness, 10_000)
    assert "was down for so long, or the clock is wrong" in doubted
    assert "until 60 s (phb.clock_doubt_seconds)" in doubted
    assert alarms_after(harness, 60_000) == ["the wall clock is believed: what is too old is given up again"]

    harness.wall -= 7_200_000
    harness.crash()
    harness.sync()

    (behind,) = alarms_after(harness, 10_000)
    assert "stamped 2:00:02 ahead of the wall clock" in behind  # a lease further
    assert value_of(harness.role.gauges(), gauges.CLOCK_BEHIND) == 1
    harness.wall += 7_200_000
    assert alarms_after(harness, 10_000) == ["the wall clock has caught up with the ticks"]


def test_an_shb_is_told_how_many_bytes_lie_above_ticks() -> None:
    harness = Harness()
    harness.sync()
    harness.publisher().send(3, text="x" * 1000)
    harness.sync()
    (newest,) = [gauge.value for gauge in harness.role.gauges() if gauge.name == gauges.NEWEST.name]
    asked = AskBytesAbove(harness.pubend, (0, int(newest)))
    (post,) = harness.feed(Posted("far", "phb", encode(asked)))
    assert isinstance(post, Post)
    assert (post.to_node, post.role) == ("far", "shb")
    answer = msgspec.msgpack.decode(post.data, type=BytesAbove)
    whole, none = answer.above
    assert (answer.pubend, answer.ticks, none) == (harness.pubend, asked.ticks, 0)
    assert 3000 < whole < 4000

    assert harness.feed(Posted("far", "phb", encode(AskBytesAbove("unknown@1", (0,))))) == []
    for nonsense in (b"", b"\xc1", encode(answer), encode(AskBytesAbove(harness.pubend, (0,) * (TICKS_MAX + 1)))):
        assert harness.feed(Posted("far", "phb", nonsense)) == []


def test_a_broker_that_sleeps_is_woken_for_what_is_next() -> None:
    harness = Harness()
    assert harness.role.deadline() is None

    harness.sync()

    assert harness.role.deadline() == 1_000_000_000
    harness.publisher().send()
    harness.sync()
    assert harness.role.deadline() == 1_000_000_000


def test_one_history_gives_one_sequence_of_effects() -> None:
    def history() -> list[str]:
        harness = Harness(FLIGHTS, REST, members=("b", "a", "c"))
        harness.sync()
        for name in ("ann", "bob", "~cid"):
            harness.publisher(name).send(2)
        harness.advance(2500)
        harness.release(at(5000))
        harness.ask((0, FOREVER))
        harness.read()
        harness.crash()
        harness.sync()
        return [*lines(harness.said), repr(harness.everything())]

    assert history() == history()
