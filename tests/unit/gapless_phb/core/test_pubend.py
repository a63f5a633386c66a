"""One pubend from its beginning on, as transcripts: what happens, and what it says then."""

from __future__ import annotations

import msgspec

from gapless.core.network.facts import Held, Opened
from gapless.core.ports import Set
from gapless.core.stream.ticks import STEP
from gapless_phb.core import rows
from gapless_phb.core.settings import PubendSettings
from gapless_phb.policies import Limits
from unit.gapless_phb.harness import TABLES, Harness, at, knows, lines


def ready(*members: str) -> Harness:
    harness = Harness(members=members)
    harness.sync()
    harness.said.clear()
    return harness


class TestBeginning:
    def test_it_is_opened_when_it_is_durable(self) -> None:
        harness = Harness(members=("shb1", "shb2"))

        assert harness.said == []
        opened, note = lines(harness.sync())
        assert opened == "opened stable=1000 members: shb1@1000 shb2@1000"
        assert note == f"note: pubend {harness.pubend} was created, for #"

    def test_its_rows_its_members_and_its_reservation_are_one_write(self) -> None:
        harness = Harness(members=("shb1",))

        assert len(harness.unsynced) == 1
        harness.sync()
        assert harness.row(TABLES.pubends) is not None
        assert harness.row(TABLES.members, "shb1") == rows.encode(at(1000))
        assert harness.row(TABLES.reservations) == rows.encode(at(3000))

    def test_one_whose_creation_a_crash_took_never_was(self) -> None:
        harness = Harness()
        first = harness.pubend

        harness.wall += 5000
        harness.crash()
        harness.sync()

        assert harness.pubend != first

    def test_the_time_of_an_outage_is_void(self) -> None:
        """U03: an event in there can only come from data that this log has lost."""
        harness = ready()
        harness.advance(500)
        harness.wall += 60_000
        harness.crash()
        said = harness.sync()

        (opened,) = [effect for effect in said if isinstance(effect, Opened)]
        assert opened.meta.voids == ((at(3000), at(61_500) - 1),)
        assert opened.meta.stable == at(3000)
        assert lines(said)[1:] == ["know (3000, 61500] silence"]

    def test_voids_of_before_silence_ended_beside_the_places_of_events_are_not_told(self) -> None:
        """Positions were told in there as if events stood there: they are good for ever."""
        harness = ready()
        harness.wall += 60_000
        row = msgspec.msgpack.decode(harness.row(TABLES.pubends) or b"")
        row = [*row[:3], [[at(1000), at(2000)]]]
        harness.role._outbox.write([Set(TABLES.pubends, rows.key(0), msgspec.msgpack.encode(row))])
        harness.sync()
        harness.crash()
        said = harness.sync()

        (opened,) = [effect for effect in said if isinstance(effect, Opened)]
        assert opened.meta.voids == ((at(3000), at(61_000) - 1),)

    def test_where_its_events_stand_is_told(self) -> None:
        harness = Harness()
        (opened,) = [effect for effect in harness.sync() if isinstance(effect, Opened)]
        publisher = harness.publisher()
        publisher.send()
        (know,) = knows(harness.sync())

        assert know.knowledge.data.ticks[0] % STEP == opened.meta.residue

    def test_who_asks_for_a_row_of_holds_is_told_how_far_the_pubend_is(self) -> None:
        """Nothing that anybody was told before lies above."""
        harness = ready("shb1")
        harness.advance(500)
        harness.hold("shb1", 1, {})
        said = harness.sync()

        (held,) = [effect for effect in said if isinstance(effect, Held)]
        assert held.stable == harness.role._pubends[harness.pubend].log.stable > 0

    def test_every_event_is_above_the_void(self) -> None:
        harness = ready()
        harness.wall += 60_000
        harness.crash()
        harness.sync()
        publisher = harness.publisher()
        publisher.send()
        (know,) = knows(harness.sync())

        assert know.knowledge.data.ticks[0] > harness.role._pubends[harness.pubend].row.voids[0][1]

    def test_the_latest_voids_are_remembered(self) -> None:
        harness = Harness(void_limit=3)
        harness.sync()
        for _ in range(5):
            harness.wall += 10_000
            harness.crash()
            harness.sync()

        voids = harness.role._pubends[harness.pubend].row.voids
        assert [hi + 1 for _, hi in voids] == [at(31_000), at(41_000), at(51_000)]

    def test_a_quick_restart_within_the_reservation_makes_no_void(self) -> None:
        harness = ready()
        harness.crash()
        harness.sync()

        assert harness.role._pubends[harness.pubend].row.voids == ()

    def test_members_and_holds_survive(self) -> None:
        harness = ready("shb1")
        harness.enrol("shb2")
        harness.hold("shb2", 3, {7: at(1), 8: 0})
        harness.sync()
        harness.crash()

        assert lines(harness.sync()) == ["opened stable=3000 members: shb1@1000 shb2@1000"]
        assert lines(harness.hold("shb2", 3, {7: at(1), 8: 0})) == ["held shb2 version 3: 7@1 8@0"]


class TestSilence:
    def test_an_idle_pubend_says_so_every_second(self) -> None:
        harness = ready()

        assert lines(harness.advance(3500)) == [
            "know (1000, 2000] silence",
            "know (2000, 3000] silence",
            "know (3000, 4000] silence",
        ]

    def test_a_busy_one_says_nothing_extra(self) -> None:
        harness = ready()
        publisher = harness.publisher()
        harness.said.clear()
        for _ in range(30):
            publisher.send()
            harness.advance(100)
            harness.sync()

        assert all(len(know.knowledge.data) for know in knows(harness.said))
        assert len(knows(harness.said)) == 30

    def test_whoever_asks_beyond_what_is_stable_is_told_the_present(self) -> None:
        harness = ready()
        harness.advance(200)

        assert lines(harness.ask((at(1000), at(9000)))) == [
            "know (1000, 1200] silence",
            "answer shb: (1000, 1200] silence",
        ]

    def test_while_something_is_pending_nothing_is_promised(self) -> None:
        harness = ready()
        harness.publisher().send()
        harness.said.clear()

        harness.advance(5000, sync=False)

        assert harness.said == []
        assert harness.role.deadline() is not None

    def test_an_idle_pubend_writes_its_reservation_every_other_second(self) -> None:
        harness = ready()
        writes = 0
        for _ in range(20):
            harness.advance(1000, sync=False)
            writes += len(harness.unsynced)
            harness.sync()

        assert 9 <= writes <= 11


class TestEnrolling:
    def test_a_new_member_is_answered_when_it_is_durable(self) -> None:
        harness = ready()
        harness.advance(1500)
        harness.said.clear()

        assert lines(harness.enrol("shb1")) == []
        assert lines(harness.enrol("shb1")) == []
        assert lines(harness.sync()) == ["enrolled shb1 at 2000"]

    def test_a_member_is_told_again_from_where_it_counts(self) -> None:
        harness = ready("shb1")
        harness.advance(1500)
        harness.said.clear()

        assert lines(harness.enrol("shb1")) == ["enrolled shb1 at 1000"]

    def test_one_that_was_given_up_meanwhile_is_not_answered(self) -> None:
        harness = ready()
        harness.enrol("shb1")

        harness.role.retire("shb1")
        harness.pump()

        assert lines(harness.sync()) == ["opened stable=1000 members: none"]
        harness.crash()
        assert lines(harness.sync())[0] == "opened stable=3000 members: none"


class TestHolding:
    def test_the_row_is_answered_when_it_is_durable_with_what_it_became(self) -> None:
        harness = ready("shb1")

        assert lines(harness.hold("shb1", 1, {5: 0, 6: at(990)})) == []
        assert lines(harness.hold("shb1", 1, {5: 0, 6: at(990)})) == []
        assert lines(harness.sync()) == ["held shb1 version 1: 5@0 6@990"]
        assert lines(harness.hold("shb1", 1, {})) == ["held shb1 version 1: 5@0 6@990"]

    def test_a_higher_version_replaces_the_row_and_a_lower_one_is_late(self) -> None:
        harness = ready("shb1")
        harness.hold("shb1", 2, {5: at(1)})
        harness.hold("shb1", 1, {9: at(2)})
        harness.hold("shb1", 3, {})

        assert lines(harness.sync()) == ["held shb1 version 2: 5@1", "held shb1 version 3: nothing"]
        assert harness.status()["holds"] == {}

    def test_holds_keep_the_log(self) -> None:
        harness = ready("shb1")
        publisher = harness.publisher()
        for _ in range(3):
            publisher.send()
            harness.sync()
            harness.advance(100)
        harness.hold("shb1", 1, {5: at(1110)})
        harness.sync()

        harness.release(at(1210))
        harness.advance(2000)
        assert [index for index, _ in harness.logged] == [at(1210)]
        assert harness.status()["lost"] == at(1110)

        harness.hold("shb1", 2, {})
        harness.release(at(1210))
        harness.advance(2000)
        assert harness.logged == []


class TestReleasing:
    def test_everything_released_is_chopped_and_said(self) -> None:
        """V3: all acked, min_retain = 0: the log shrinks to nothing."""
        harness = ready("shb1")
        publisher = harness.publisher()
        for _ in range(10):
            publisher.send(5)
            harness.sync()
        newest = harness.status()["newest"]

        harness.release(newest)
        harness.advance(2500)

        assert harness.logged == []
        assert harness.status()["lost"] == newest
        assert harness.status()["log_bytes"] == 0
        assert knows(harness.said)[-1].knowledge.lost == newest

    def test_it_is_chopped_at_most_once_a_second(self) -> None:
        harness = ready("shb1")
        publisher = harness.publisher()
        chops = set()
        for _ in range(100):
            publisher.send()
            harness.sync()
            harness.release(harness.status()["newest"])
            harness.advance(50)
            chops.add(harness.chopped)

        assert 4 <= len(chops) <= 7

    def test_early_release_goes_on_without_anybody_saying_so(self) -> None:
        """An event grows old by itself: the chop comes with time, not with the next Released."""
        options = PubendSettings(policy=Limits(2), min_retain_bytes=0)
        harness = Harness(options, members=("shb1",))
        harness.sync()
        harness.publisher().send()
        harness.sync()
        harness.release(at(1), delivered=at(1010))

        harness.advance(1900)
        assert len(harness.logged) == 1
        harness.advance(2500)
        assert harness.logged == []
        assert harness.status()["lost"] == at(1010)

    def test_without_the_policy_age_takes_nothing(self) -> None:
        harness = ready("shb1")
        harness.publisher().send()
        harness.sync()
        harness.release(at(1), delivered=at(1010))

        harness.advance(3_600_000)

        assert len(harness.logged) == 1
        assert harness.status()["lost"] == 0

    def test_the_default_keeps_an_hour_for_whoever_asks_for_the_earliest(self) -> None:
        harness = Harness(PubendSettings(), members=("shb1",))
        harness.sync()
        harness.publisher().send()
        harness.sync()
        harness.release(at(1010))

        harness.advance(3_590_000)
        assert len(harness.logged) == 1
        harness.advance(20_000)
        assert harness.logged == []


def test_probing_ends_when_everything_is_delivered() -> None:
    harness = ready("shb1")
    publisher = harness.publisher()
    publisher.send()
    harness.sync()
    harness.advance(3500)
    assert "probe up to 1010" in lines(harness.said)
    harness.said.clear()

    harness.release(at(1), delivered=at(1010))
    harness.advance(60_000)
    assert [line for line in lines(harness.said) if "probe" in line] == []
    publisher.send()
    harness.sync()
    said = lines(harness.advance(3500))
    assert [line for line in said if "probe" in line] == ["probe up to 64510"]


def test_a_pubend_without_members_probes_nobody() -> None:
    harness = ready()
    harness.publisher().send()
    harness.sync()

    assert [line for line in lines(harness.advance(60_000)) if "probe" in line] == []


def test_events_that_nobody_acknowledged_are_probed_for_after_a_restart() -> None:
    harness = ready("shb1")
    harness.publisher().send()
    harness.sync()
    harness.crash()
    harness.sync()

    assert "probe up to 1010" in lines(harness.advance(3500))


def test_its_status_says_who_pins_what() -> None:
    harness = ready("shb1")
    publisher = harness.publisher()
    for _ in range(4):
        publisher.send()
        harness.sync()
    size = harness.status()["log_bytes"] // 4
    harness.hold("shb1", 1, {5: at(1010), 6: at(1010) + 2 * STEP})
    harness.sync()
    harness.release(at(1010) + STEP, delivered=at(1010) + 3 * STEP)
    publisher.send()

    status = harness.status()

    assert status["released"] == at(1010) + STEP
    assert status["delivered"] == at(1010) + 3 * STEP
    assert (status["holds"], status["hold_bytes"]) == ({"shb1": at(1010)}, {"shb1": 4 * size})
    assert status["unreleased_bytes"] == 3 * size
    assert status["members"] == {"shb1": at(1000)}
    assert (status["pending_batches"], status["publishers"]) == (1, 1)
