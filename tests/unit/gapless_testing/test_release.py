"""The suite for release policies notices each broken promise, and says what was expected and what came."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conformance import broken_policies as broken
from conformance.broken_policies import AgeAboveBytes, BrokenHarness
from gapless.core.ports import PubendState
from gapless.core.stream.ticks import SECOND
from gapless_testing.release import PolicyError, Records, ReleaseHarness, ReleaseSuite, states, touched_by

Test = Callable[[ReleaseSuite, ReleaseHarness], None]
Suite = ReleaseSuite

STATE = PubendState("p@1", 100 * SECOND, 0, 0, 0, 0, Records())


class CasesHarness(BrokenHarness):
    cases = (({"age": 60}, STATE, 40 * SECOND - 1),)


BREACHES: list[tuple[type[AgeAboveBytes], Test, str]] = [
    (broken.LooksAtItsWatch, Suite.test_it_touches_nothing, r"it touches time\.time_ns"),
    (broken.SpreadsTheLoad, Suite.test_the_same_state_is_answered_the_same, r"it answers -?\d+, then -?\d+"),
    (broken.SpreadsTheLoad, Suite.test_it_touches_nothing, r"it touches random\."),
    (broken.SpreadsTheLoadByName, Suite.test_it_touches_nothing, r"hash\(\), which differs"),
    (broken.NeverGoesBack, Suite.test_the_same_state_is_answered_the_same, "shown PubendState"),
    (broken.EverySecondTime, Suite.test_the_same_state_is_answered_the_same, "shown PubendState"),
    (broken.SharesItsMemory, Suite.test_the_same_state_is_answered_the_same, "one more such policy"),
    (broken.DividesByTheLog, Suite.test_it_answers_whatever_it_is_shown, "it raises ZeroDivisionError"),
    (broken.AnswersAFraction, Suite.test_it_answers_whatever_it_is_shown, "no tick but a float"),
    (broken.AnswersNothing, Suite.test_it_answers_whatever_it_is_shown, "answers None, which is no tick"),
    (broken.AnswersYes, Suite.test_it_answers_whatever_it_is_shown, "no tick but a bool"),
    (broken.AnswersBeyondTime, Suite.test_it_answers_whatever_it_is_shown, "no tick is above"),
    (broken.SearchesTheLog, Suite.test_it_answers_whatever_it_is_shown, "asks the log more than 1,000 times"),
    (broken.OpensTheLog, Suite.test_it_answers_whatever_it_is_shown, "it raises AttributeError"),
    (broken.ReadsAFile, Suite.test_it_touches_nothing, "it touches .*open"),
    (broken.Talks, Suite.test_it_touches_nothing, "it touches print"),
    (broken.GivesBack, Suite.test_time_gives_nothing_back, r"it answers -?\d+, and -?\d+ at \d+"),
    (broken.TakesAnyOption, Suite.test_an_option_that_there_is_not_is_refused, "are taken, and should be refused"),
    (broken.TakesAnyValue, Suite.test_options_that_are_wrong_are_refused, "'60'} are taken"),
    (broken.RefusesInItsOwnWay, Suite.test_an_option_that_there_is_not_is_refused, "refused with ValueError"),
    (broken.RefusesWithoutAWord, Suite.test_options_that_are_wrong_are_refused, "does not name 'age'"),
    (broken.KeepsTheOptions, Suite.test_options_that_change_afterwards_change_nothing, "the caller's options"),
    (broken.TakesMilliseconds, Suite.test_it_is_right_where_its_author_says_what_is, r"it answers \d+, not \d+"),
    (broken.WritesAnEssay, Suite.test_it_can_be_named, "it calls itself"),
]


@pytest.mark.parametrize(("policy", "test", "words"), BREACHES, ids=lambda it: getattr(it, "__name__", None))
def test_a_breach_is_noticed(policy: type[AgeAboveBytes], test: Test, words: str) -> None:
    with pytest.raises(PolicyError, match=words):
        test(ReleaseSuite(), CasesHarness(policy))


TESTS = [test for name, test in vars(ReleaseSuite).items() if name.startswith("test_")]


@pytest.mark.parametrize("test", TESTS)
def test_the_right_policy_passes_and_every_test_can_fail(test: Test) -> None:
    test(ReleaseSuite(), CasesHarness())
    assert test in {failing for _, failing, _ in BREACHES}


def test_what_has_nothing_to_test_says_so() -> None:
    bare = BrokenHarness()
    bare.refused, bare.grows = (), False
    for test, words in (
        (Suite.test_options_that_are_wrong_are_refused, "refused"),
        (Suite.test_it_is_right_where_its_author_says_what_is, "cases"),
        (Suite.test_time_gives_nothing_back, "grows"),
    ):
        with pytest.raises(pytest.skip.Exception, match=words):
            test(ReleaseSuite(), bare)


def test_states_are_the_same_each_time_and_possible() -> None:
    shown = states()

    assert [repr(state) for state in shown] == [repr(state) for state in states()]
    assert all(max(state.lost, state.released) <= state.delivered for state in shown)


def test_records() -> None:
    log = Records({10: 5, 20: 7, 30: 1})

    assert (log.size, log.above(9), log.above(10), log.above(30)) == (13, 13, 8, 0)
    assert (log.covered(0), log.covered(1), log.covered(7), log.covered(8)) == (20, 10, 10, 0)


def test_what_is_touched() -> None:
    assert touched_by(lambda: sorted([2, 1])) == []
    assert touched_by(lambda: hash("p")) == ["hash(), which differs in each process"]
