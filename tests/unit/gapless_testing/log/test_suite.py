"""The suite of logs notices each broken promise."""

from __future__ import annotations

import inspect

import pytest

from conformance import broken_log_writers as writers
from conformance import broken_logs as broken
from conformance.broken_logs import Breach
from gapless_testing.log import LogSuite as Suite

BREACHES = [
    Breach(broken.DecidesAhead, Suite.test_an_empty_log_is_found, "and decided from 0 to 5"),
    Breach(
        broken.DecidesNothing,
        Suite.test_what_is_there_already_is_below_what_is_decided,
        "is decided, and only 0 is told",
    ),
    Breach(broken.NamesItself, Suite.test_two_nodes_are_told_the_same, "and the other of"),
    Breach(
        broken.ReadsNothingOfOldRecords, Suite.test_who_opens_a_log_later_is_told_the_same, "events were told before"
    ),
    Breach(broken.FollowsUnasked, Suite.test_a_log_that_nobody_follows_says_nothing, "nobody follows it"),
    Breach(broken.GivesUp, Suite.test_a_log_that_is_not_there_is_found_when_it_is_made, "0 logs were found"),
    Breach(broken.FindsOnce, Suite.test_a_log_that_is_added_is_found, "1 logs were found"),
    Breach(broken.FindsOneByOne, Suite.test_logs_of_a_family_that_are_there_come_in_one_message, "in messages of [1"),
    Breach(broken.GrowsTwice, Suite.test_everything_comes_once_and_in_order, "has grown from 0, and before"),
    Breach(broken.WeighsNothing, Suite.test_everything_comes_once_and_in_order, "take 0 of the window"),
    Breach(broken.TellsOnAnotherThread, Suite.test_everything_comes_once_and_in_order, "on another thread"),
    Breach(writers.MovesTicks, Suite.test_everything_comes_once_and_in_order, "and has events at"),
    Breach(broken.LeavesOne, Suite.test_what_comes_fast_comes_in_order, "and before it was told up to"),
    Breach(broken.BeginsAtTheBeginning, Suite.test_it_begins_behind_any_tick, "has grown from 0, and before"),
    Breach(broken.BeginsAtTheBeginning, Suite.test_behind_what_is_decided_only_new_events_come, "has grown from 0"),
    Breach(broken.IgnoresTheWindow, Suite.test_the_window_is_kept, "there was room for"),
    Breach(broken.ForgetsWhatIsTaken, Suite.test_the_window_is_kept, "given back in vain"),
    Breach(broken.WaitsForRoom, Suite.test_a_piece_that_is_larger_than_the_window_comes_all_the_same, "0 of 3 events"),
    Breach(broken.FollowsOnce, Suite.test_a_follow_has_its_own_window, "events"),
    Breach(broken.FollowsOnce, Suite.test_a_log_with_a_full_window_does_not_hold_up_others, "0 of 6 events"),
    Breach(broken.ReadsUncommitted, Suite.test_what_is_not_decided_waits, "what is not decided was told"),
    Breach(broken.SaysNothingOfSilence, Suite.test_what_was_aborted_does_not_hold_up_the_end, "it was told up to 0"),
    Breach(broken.DiesWithItsConnections, Suite.test_connections_that_break_cost_nothing, "of 6 events"),
    Breach(broken.LeavesOutTheLastPiece, Suite.test_every_range_is_read, "is in no piece and in no void"),
    Breach(broken.ReadsEverything, Suite.test_a_read_ends_once_max_bytes_are_reached, "bytes were asked for"),
    Breach(broken.SaysSilenceAhead, Suite.test_nothing_is_said_above_what_is_decided, "and a read covers all up to"),
    Breach(broken.ReadsUncommitted, Suite.test_what_is_not_decided_is_not_read, "and a read covers all up to"),
    Breach(broken.ReadsUncommitted, Suite.test_what_was_aborted_is_read_as_silence, "events"),
    Breach(broken.MixesCookies, Suite.test_reads_side_by_side_do_not_mix, "was asked for, and"),
    Breach(broken.DoesOneThing, Suite.test_reads_do_not_disturb_who_follows, "events"),
    Breach(broken.CallsHolesSilence, Suite.test_records_that_are_missing_are_not_covered, "silence is told at ticks"),
    Breach(broken.SkipsWhatItCannotRead, Suite.test_what_cannot_be_read_is_told_and_not_skipped, "has no error"),
    Breach(broken.BeginsAtTheEnd, Suite.test_places_with_names),
    Breach(broken.AnswersAtOnce, Suite.test_places_with_names, "from within the call of Locate"),
    Breach(broken.KnowsNoTimes, Suite.test_the_place_before_a_time, "behind the time"),
    Breach(broken.BelievesWhatIsDecided, Suite.test_the_end_of_everything_lies_behind_what_is_not_decided),
    Breach(broken.LocatesTheLast, Suite.test_places_that_are_asked_for_side_by_side, "15 places were asked for"),
    Breach(writers.CountsFromOne, Suite.test_what_is_appended_comes_at_the_ticks_of_the_answer),
    Breach(writers.AppendsOneByOne, Suite.test_nothing_stands_between_the_events_of_an_append, "was torn apart"),
    Breach(writers.AppendsTheLastFirst, Suite.test_appends_are_logged_in_the_order_of_the_questions, "out of order"),
    Breach(writers.NeverRefuses, Suite.test_what_is_too_large_is_refused_and_never_logged, "bytes were appended"),
    Breach(broken.BoastsOfRoom, Suite.test_the_largest_record_is_taken, "are not taken"),
    Breach(writers.RefusesWhatItLost, Suite.test_an_append_whose_answer_is_lost_is_uncertain, "the answer was lost"),
    Breach(writers.AppendsAgain, Suite.test_an_append_whose_answer_is_lost_is_uncertain, "events"),
    Breach(writers.LosesMarks, Suite.test_a_second_node_reads_what_a_first_has_appended),
    Breach(
        writers.TrimsEverything, Suite.test_trimming_removes_no_more_than_was_asked_for, "was asked for, and all up to"
    ),
    Breach(writers.ConfirmsTwice, Suite.test_every_append_is_answered_once, "is a second answer"),
    Breach(writers.NumbersWhatItDecodes, Suite.test_a_piece_is_always_the_same_events),
    Breach(broken.TakesAnotherTopic, Suite.test_every_event_has_the_topic),
    Breach(writers.KnowsNoTimesOfEvents, Suite.test_an_event_bears_its_time),
    Breach(writers.KnowsTextAlone, Suite.test_a_batch_comes_back_as_it_was_published),
    Breach(writers.LosesPriorities, Suite.test_a_batch_comes_back_as_it_was_published),
    Breach(writers.LosesTokens, Suite.test_every_mark_comes_back),
    Breach(writers.TakesAnyTopic, Suite.test_an_event_that_the_log_cannot_contain_is_a_value_error),
    Breach(writers.Crashes, Suite.test_what_is_no_record_is_a_corrupt_volume),
    Breach(broken.FindsOnce, Suite.test_who_follows_is_told_that_the_beginning_is_gone, "was removed, and 0 is told"),
    Breach(broken.HidesFirst, Suite.test_who_stands_below_the_beginning_goes_on_there, "in no piece and in no void"),
    Breach(broken.HidesFirst, Suite.test_what_was_removed_is_read_as_nothing),
    Breach(broken.RemembersTheBeginning, Suite.test_earliest_is_behind_what_was_removed),
    Breach(broken.BeginsAtNothing, Suite.test_who_opens_it_later_is_told_where_it_begins),
    Breach(writers.StopsAtRetention, Suite.test_a_log_that_was_removed_whole_goes_on, "0 of 1 events"),
    Breach(
        broken.ForgetsVoids,
        Suite.test_what_was_cut_is_a_void_and_its_ticks_never_come_again,
        "in no void that was told",
    ),
    Breach(broken.TellsVoidsLate, Suite.test_a_log_that_goes_on_elsewhere_loses_nothing, "in no void that was told"),
    Breach(writers.LivesForEver, Suite.test_a_log_that_is_deleted_ends, "has not ended"),
    Breach(broken.ReadsTheDead, Suite.test_a_log_that_is_deleted_ends, "the log is gone, and a read has no error"),
    Breach(broken.GoesByName, Suite.test_a_log_that_is_made_anew_is_another_one),
    Breach(writers.EndsOnAGuess, Suite.test_a_log_that_some_do_not_know_has_not_ended, "has ended"),
    Breach(writers.LivesForEver, Suite.test_a_log_that_went_while_nobody_looked_has_ended, "has not ended"),
    Breach(writers.EndsWhatItKnew, Suite.test_a_log_that_was_known_and_is_there_has_not_ended, "were found"),
    Breach(writers.AnswersLate, Suite.test_closing_before_anything_is_found, "came after close()"),
    Breach(writers.LeavesATask, Suite.test_closing_at_every_moment_of_the_beginning, "tasks go on"),
    Breach(writers.ClosesNothing, Suite.test_closing_in_the_midst_of_everything, "came after close()"),
    Breach(writers.ClosesSlowly, Suite.test_closing_while_nothing_happens, "close() did not return"),
    Breach(writers.ClosesInTheEnd, Suite.test_a_closing_that_is_cancelled_has_closed_all_the_same),
    Breach(writers.ClosesForAll, Suite.test_who_closes_does_not_disturb_another_node, "an event did not come"),
]


@pytest.mark.parametrize("breach", BREACHES, ids=str)
def test_a_breach_is_noticed(monkeypatch: pytest.MonkeyPatch, breach: Breach) -> None:
    breach.check(monkeypatch)


def test_every_test_can_fail() -> None:
    tests = {name for name, _ in inspect.getmembers(Suite) if name.startswith("test_")}

    assert {breach.test.__name__ for breach in BREACHES} == tests
