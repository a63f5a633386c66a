"""The suite's tests of service notice each broken promise."""

from __future__ import annotations

import pytest

from conformance import broken_by_change
from conformance import broken_routers as broken
from conformance.broken_routers import Breach, covers, noticed
from gapless_routing.local import LocalRouter
from gapless_sim.hostile.router import HostileRouter
from gapless_testing.routing.breaches import Clause
from gapless_testing.routing.service import ServiceTests as Suite

BREACHES = [
    Breach(broken.NeverEnrols, Suite.test_an_shb_is_counted_at_every_pubend, Clause.ENROL),
    Breach(broken.SaysOnce, Suite.test_what_an_shb_says_again_is_answered_again, Clause.ENROL),
    Breach(broken.NeverPushes, Suite.test_events_come_without_being_asked_for, Clause.PUSH),
    Breach(broken.PushesWantedEventsAlone, Suite.test_events_that_nobody_wants_come_as_silence, Clause.PUSH),
    Breach(broken.PushesEventsAlone, Suite.test_the_silence_of_an_idle_pubend_comes, Clause.PUSH),
    Breach(broken.FiltersByTheFirstInterest, Suite.test_a_new_interest_is_served_without_being_asked_for, Clause.PUSH),
    Breach(broken.SaysAllAtOnce, Suite.test_an_interest_larger_than_a_frame_is_served, Clause.BOUNDED),
    Breach(broken.TakesTheFirstPartForTheWhole, Suite.test_an_interest_larger_than_a_frame_is_served, Clause.TRUTH),
    Breach(broken.NeverAsksForALostPart, Suite.test_of_a_large_interest_what_is_lost_comes_again, Clause.PUSH),
    Breach(broken.ForgetsWants, Suite.test_a_want_is_answered, Clause.ANSWER),
    Breach(broken.TakesEveryWantForARepetition, Suite.test_whoever_asks_anew_is_answered_anew, Clause.ANSWER),
    Breach(broken.AnswersOnce, Suite.test_whoever_asks_again_for_long_is_answered_again, Clause.ANSWER),
    Breach(broken_by_change.NeverAsks, Suite.test_what_nobody_pushed_is_there_for_the_asking, Clause.ANSWER),
    Breach(
        broken_by_change.AnswersForItself,
        Suite.test_a_want_with_the_version_of_another_shb_is_answered,
        Clause.ANSWER,
    ),
    Breach(broken.KeepsProbes, Suite.test_a_probe_arrives, Clause.PUSH),
    Breach(broken.KeepsHolds, Suite.test_a_hold_is_answered, Clause.HOLD),
    Breach(broken.NeverReleases, Suite.test_a_release_waits_for_all_and_then_comes, Clause.MINIMA),
    Breach(broken.LosesMail, Suite.test_mail_arrives_where_it_was_sent, Clause.MAIL),
    Breach(broken_by_change.ResendsNoMail, Suite.test_mail_arrives_where_it_was_sent, Clause.MAIL),
    Breach(broken.ChangesMail, Suite.test_mail_arrives_where_it_was_sent, Clause.MAIL),
    Breach(broken.DeliversMailToAnybody, Suite.test_mail_arrives_where_it_was_sent, Clause.MAIL),
    Breach(broken.NeverLogs, Suite.test_a_publisher_is_served_where_the_pubend_is, Clause.PLACE),
    Breach(broken_by_change.PushesAnswers, Suite.test_events_come_without_being_asked_for, Clause.PUSH),
    Breach(broken_by_change.PushesAnswers, Suite.test_an_answer_says_that_it_is_one, Clause.ANSWER),
    Breach(broken_by_change.ReleasesAsOne, Suite.test_a_release_waits_for_all_and_then_comes, Clause.MINIMA),
    Breach(broken_by_change.ForgetsWhoAsks, Suite.test_a_batch_goes_through_as_it_is, Clause.PLACE),
    Breach(broken.NeverAnswers, Suite.test_every_call_to_place_something_ends_everywhere, Clause.PLACE),
]


@pytest.mark.parametrize("breach", BREACHES, ids=str)
def test_a_breach_is_noticed(breach: Breach) -> None:
    breach.check()


def test_every_test_can_fail() -> None:
    covers(BREACHES, Suite)


@pytest.mark.parametrize("router", [broken.Filtering, HostileRouter])
def test_a_router_that_filters_or_takes_interest_in_parts_is_right(router: type[LocalRouter | HostileRouter]) -> None:
    """Those that do so wrongly differ from it in that alone."""
    for test in {breach.test for breach in BREACHES}:
        assert noticed(test, router) == []
