"""An administrator gives an SHB up for good (protocol: members; T10)."""

from __future__ import annotations

from gapless.core.network.facts import Opened
from gapless.core.ports import Tell
from gapless.core.wire.messages import Code, RequestFailed, Retire, Retired
from gapless_phb.core.settings import PubendSettings
from unit.gapless_phb.harness import NO_RETENTION, Harness

OWN = "broker@storage-1"
"""The SHB of the harness' own node."""


def counting(*shbs: str) -> Harness:
    """A broker of one pubend that counts these SHBs."""
    harness = Harness(NO_RETENTION)
    harness.sync()
    for shb in shbs:
        harness.enrol(shb)
    harness.sync()
    return harness


def answers(said: list[object]) -> list[object]:
    return [effect.message for effect in said if isinstance(effect, Tell)]


def test_it_is_answered_when_it_is_durable_and_the_network_is_told() -> None:
    harness = counting("shb1", "shb2")

    assert answers(harness.request(Retire(7, "shb1"))) == []
    said = harness.sync()

    assert answers(said) == [Retired(7, "shb1", [harness.pubend], before=False)]
    (opened,) = [effect for effect in said if isinstance(effect, Opened)]
    assert list(opened.members) == ["shb2"]
    harness.crash()
    assert list(harness.status()["members"]) == ["shb2"]


def test_the_log_waits_for_it_no_longer() -> None:
    harness = counting("shb1", "shb2")
    publisher = harness.publisher()
    publisher.send(5)
    harness.sync()
    harness.hold("shb1", 1, {1: 0})
    harness.sync()
    newest = harness.status()["newest"]

    harness.request(Retire(7, "shb1"))
    harness.sync()
    harness.release(newest)
    harness.advance(10_000)
    harness.sync()

    assert harness.status()["lost"] >= newest
    assert harness.status()["log_bytes"] == 0


def test_to_look_does_nothing() -> None:
    harness = counting("shb1@disk")

    found = answers(harness.request(Retire(7, "shb1", only_look=True)))

    assert found == [Retired(7, "shb1@disk", [harness.pubend], before=False)]
    harness.sync()
    assert list(harness.status()["members"]) == ["shb1@disk"]


def test_it_may_be_said_twice_and_after_a_crash() -> None:
    harness = counting("shb1@disk")
    harness.request(Retire(7, "shb1"))
    harness.sync()
    harness.crash()
    harness.sync()

    harness.request(Retire(8, "shb1"))

    assert answers(harness.sync()) == [Retired(8, "shb1@disk", [], before=True)]


def test_who_is_not_known_is_an_error_that_says_who_is() -> None:
    harness = counting("shb1@disk", "shb2@disk")

    (failed,) = answers(harness.request(Retire(7, "shb")))

    assert isinstance(failed, RequestFailed)
    assert (failed.request, failed.code) == (7, Code.NOT_FOUND)  # another node may know it
    assert "'shb'" in failed.reason
    assert "shb1@disk, shb2@disk" in failed.reason
    assert not harness.unsynced


def test_a_node_with_another_disk_is_never_taken_for_the_one_that_is_gone() -> None:
    """The old one was retired, the new one runs: the same command again must not retire the new one."""
    harness = counting("shb1@old")
    harness.request(Retire(7, "shb1"))
    harness.enrol("shb1@new")
    harness.sync()

    (failed,) = answers(harness.request(Retire(8, "shb1")))

    assert isinstance(failed, RequestFailed)
    assert "shb1@new, shb1@old" in failed.reason
    harness.request(Retire(9, "shb1@old"))
    assert answers(harness.sync()) == [Retired(9, "shb1@old", [], before=True)]
    assert list(harness.status()["members"]) == ["shb1@new"]


def test_one_that_came_back_is_counted_and_can_be_given_up_again() -> None:
    harness = counting("shb1")
    harness.request(Retire(7, "shb1"))
    harness.sync()
    harness.enrol("shb1")
    harness.sync()

    harness.request(Retire(8, "shb1"))

    assert answers(harness.sync()) == [Retired(8, "shb1", [harness.pubend], before=True)]


def test_the_one_that_runs_in_this_node_is_not_given_up() -> None:
    """Where it ran once, and runs no more, is another matter."""
    harness = counting(OWN)
    harness.roles = frozenset({"phb", "shb"})
    harness.crash()
    harness.sync()
    (looked,) = answers(harness.request(Retire(6, OWN, only_look=True)))
    assert isinstance(looked, Retired)

    (failed,) = answers(harness.request(Retire(7, OWN)))

    assert isinstance(failed, RequestFailed)
    assert "runs in this very node" in failed.reason
    harness.roles = frozenset({"phb"})
    harness.crash()
    harness.sync()
    harness.request(Retire(8, OWN))
    assert answers(harness.sync()) == [Retired(8, OWN, [harness.pubend], before=False)]


def test_a_new_pubend_does_not_wait_for_who_was_given_up() -> None:
    """One that is born later counts every SHB that was ever counted, but for those (1.4 create)."""
    harness = counting("shb1", "shb2")
    harness.request(Retire(7, "shb1"))
    harness.sync()

    harness.settings = type(harness.settings)(pubends=(NO_RETENTION, PubendSettings("another")))
    harness.crash()
    harness.sync()

    assert [list(harness.status(pubend)["members"]) for pubend in harness.pubends] == [["shb2"], ["shb2"]]
