"""Other rules are found in a thread and handed on; what is wrong with them is told once, until it is over."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from gapless.core.alarms import Alarm, AlarmCode
from gapless.core.ports import Action, Authorizer
from gapless.core.principals import Principal
from gapless.core.resources import Resource
from gapless.core.server.authority import Authority
from gapless.errors import ConfigurationError
from gapless.node.rules_watch import RulesWatch
from gapless.security.allow_all import AllowAll


class Changing:
    """An authorizer that may have a successor, or something to say instead."""

    asks = True

    def __init__(self, *doubts: str) -> None:
        self.doubts = doubts
        self.next: Authorizer | Exception | None = None
        self.asked: list[int] = []
        """The threads that it was asked in."""
        self.may_answer = threading.Event()
        self.may_answer.set()

    def refusal(self, principal: Principal, action: Action, resource: Resource) -> str:
        return ""

    def successor(self) -> Authorizer | None:
        self.asked.append(threading.get_ident())
        self.may_answer.wait(10)
        if isinstance(self.next, Exception):
            raise self.next
        return self.next


class Office:
    """A watch, and what it says; what follows counts at once."""

    def __init__(self, first: Authorizer, *, counts: bool = True) -> None:
        self.authority = Authority(first)
        self.counts = counts
        self.found: list[Authorizer] = []
        self.alarms: list[Alarm] = []
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        self.watch = RulesWatch(self.authority, doubts_of, self._on_successor, self.alarms.append)

    def _on_successor(self, successor: Authorizer) -> None:
        self.found.append(successor)
        if self.counts:
            self.authority.replace(successor, ())

    async def look(self) -> None:
        """One look, and its end."""
        self.watch.look()
        await self.ended()

    async def ended(self) -> None:
        """There is one thread, so whoever looks has ended before this does, and the watch was told."""
        await asyncio.get_running_loop().run_in_executor(None, int)
        await asyncio.sleep(0)

    @property
    def told(self) -> list[tuple[AlarmCode, str, bool]]:
        """The alarms: of what kind, about what, and whether they are over."""
        return [(alarm.code, alarm.about, alarm.over) for alarm in self.alarms]


def doubts_of(authorizer: Authorizer) -> Sequence[str]:
    return authorizer.doubts if isinstance(authorizer, Changing) else ()


@pytest.fixture
def rules() -> Changing:
    return Changing()


async def test_what_follows_is_asked_for_in_a_thread_and_handed_on(rules: Changing) -> None:
    """Rules may be many, and disks slow: the node goes on meanwhile."""
    office = Office(rules)
    office.watch.start()
    await office.look()
    assert office.found == []

    rules.next = newer = Changing()
    await office.look()
    await office.look()

    assert office.found == [newer]
    assert office.alarms == []
    assert (len(rules.asked), len(newer.asked)) == (2, 1), "the one that counts is asked"
    assert threading.get_ident() not in rules.asked


async def test_an_authorizer_that_has_no_successors_is_asked_nothing() -> None:
    office = Office(AllowAll())
    office.watch.start()
    await office.look()

    assert (office.found, office.alarms) == ([], [])


async def test_what_did_not_come_to_count_is_found_once_more(rules: Changing) -> None:
    """The node has just begun anew, and what was handed on is forgotten."""
    office = Office(rules, counts=False)
    rules.next = Changing()
    await office.look()
    await office.look()

    assert office.found == [rules.next] * 2


async def test_rules_that_cannot_be_used_are_told_once_per_text_and_when_they_can_again(rules: Changing) -> None:
    office = Office(rules)
    for said in ("a.toml: no", "a.toml: no", "a.toml: never", None, None):
        rules.next = None if said is None else ConfigurationError(said)
        await office.look()

    unusable, kept = AlarmCode.RULES_UNUSABLE, "\nthe rules that there were before count"
    assert office.alarms == [
        Alarm(unusable, f"a.toml: no{kept}"),
        Alarm(unusable, f"a.toml: never{kept}"),
        Alarm(unusable, "the rules can be used again", over=True),
    ]
    assert office.found == []


async def test_they_can_be_used_again_also_when_others_follow(rules: Changing) -> None:
    office = Office(rules)
    rules.next = ConfigurationError("a.toml: no")
    await office.look()
    rules.next = newer = Changing()
    await office.look()

    assert office.told == [(AlarmCode.RULES_UNUSABLE, "", False), (AlarmCode.RULES_UNUSABLE, "", True)]
    assert office.found == [newer]


async def test_there_is_one_look_at_a_time(rules: Changing) -> None:
    office = Office(rules)
    rules.may_answer.clear()
    for _ in range(5):
        office.watch.look()
        await asyncio.sleep(0)
    rules.may_answer.set()
    await office.ended()
    assert len(rules.asked) == 1

    await office.look()

    assert len(rules.asked) == 2


async def test_an_authorizer_that_fails_is_told_and_not_asked_again(
    rules: Changing, caplog: pytest.LogCaptureFixture
) -> None:
    """It is foreign code: what it says next second would be the same, and nobody wants that in the log each second."""
    office = Office(rules)
    rules.next = LookupError("of a secret")
    for _ in range(3):
        await office.look()

    assert len(rules.asked) == 1
    [alarm] = office.alarms
    assert (alarm.code, alarm.over) == (AlarmCode.RULES_UNUSABLE, False)
    assert "(LookupError)" in alarm.text
    assert "secret" not in alarm.text
    [record] = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert record.exc_info is not None
    assert record.exc_info[1] is rules.next


async def test_each_doubt_is_told_and_is_over_when_the_rules_that_follow_have_fewer() -> None:
    rules = Changing("[[allow]] 1 is for nobody", "[[allow]] 2 is for nobody")
    office = Office(rules)
    doubtful = AlarmCode.RULES_DOUBTFUL
    await office.look()
    assert office.alarms == [], "the watch has not begun"
    office.watch.start()
    assert office.alarms == [
        Alarm(doubtful, "[[allow]] 1 is for nobody", "doubt 1"),
        Alarm(doubtful, "[[allow]] 2 is for nobody", "doubt 2"),
    ]
    office.alarms.clear()

    rules.next = better = Changing("[[allow]] 2 is for nobody")
    await office.look()
    better.next = Changing()
    await office.look()

    assert office.told == [
        (doubtful, "doubt 1", False),
        (doubtful, "doubt 2", True),
        (doubtful, "doubt 1", True),
    ]
    assert office.alarms[0].text == "[[allow]] 2 is for nobody"


@pytest.mark.parametrize("found", [Changing("doubt"), ConfigurationError("no"), LookupError("no")], ids=type)
async def test_when_it_is_stopped_nothing_comes_of_a_look_and_there_is_none_any_more(
    rules: Changing, found: Authorizer | Exception, caplog: pytest.LogCaptureFixture
) -> None:
    office = Office(rules)
    rules.next = found
    rules.may_answer.clear()
    office.watch.look()
    office.watch.stop()
    rules.may_answer.set()
    await office.ended()
    await office.look()

    assert len(rules.asked) == 1
    assert (office.found, office.alarms) == ([], [])
    assert [record for record in caplog.records if record.name.startswith("gapless")] == []


async def test_nothing_is_logged_of_a_look_that_fails_after_the_stop(caplog: pytest.LogCaptureFixture) -> None:
    rules = Changing()
    watch = Office(rules)
    rules.next = LookupError("no")
    rules.may_answer.clear()
    watch.watch.look()
    watch.watch.stop()
    rules.may_answer.set()
    await watch.ended()
    gc.collect()

    assert caplog.records == []
