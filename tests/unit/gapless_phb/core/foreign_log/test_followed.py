"""A pubend over a log that numbers its records itself: what it tells, what it answers, and what it never says."""

from __future__ import annotations

from dataclasses import replace

from gapless.core.alarms import Alarm, AlarmCode, Note
from gapless.core.network.facts import AskPubend, Held, Hold, Know, Opened, Want
from gapless.core.ports import Follow, Grown, Locate, LogRead, LogsFound, LogTrouble, OpenLogs, ReadLog, Taken, Trim
from gapless_phb.core.foreign_log.followed import END
from unit.gapless_phb.model_log import LOG, ModelLog, NumberedRig, at, place, told


def followed(*logs: ModelLog) -> NumberedRig:
    rig = NumberedRig(*logs)
    rig.open()
    return rig


def test_logs_are_opened_and_followed_from_what_is_decided_and_nothing_older_is_read() -> None:
    log = ModelLog()
    log.add("old", "older")

    rig = followed(log)

    assert [type(one) for one in rig.said] == [OpenLogs, Opened, Note, Follow, ReadLog, Locate]
    (opened,) = rig.sent(Opened)
    assert (opened.meta.pubend, opened.meta.topics, opened.meta.created, opened.meta.stable) == (LOG, ("orders",), 2, 2)
    assert (opened.meta.grain, opened.meta.residue) == (1, None)
    assert rig.sent(Follow)[0].after == 2


def test_what_grows_is_told_whoever_put_it_there_and_its_window_is_given_back() -> None:
    rig = followed()

    rig.log.add("one", "two")
    rig.log.put(1, None)
    said = rig.serve()

    assert told(said) == ["(0, 3] 1=one 2=two"]
    assert [(one.log, one.size) for one in said if isinstance(one, Taken)] == [
        (LOG, len(rig.log.batches[0].raw or b""))
    ]
    assert (rig.status()["stable"], rig.status()["newest"]) == (3, 2)


def test_silence_is_said_of_what_was_read_and_of_nothing_ahead_of_the_log() -> None:
    rig = followed()
    rig.log.put(2, None)
    rig.serve()

    rig.advance(60_000)

    assert told(rig.said) == ["(0, 2] silence"]
    assert told(rig.ask((0, 1 << 50))) == ["(0, 2] silence"]


def test_a_void_is_in_the_description_before_anything_above_it() -> None:
    """TK20."""
    rig = followed()
    rig.log.add("one", "two")
    rig.serve()
    rig.said.clear()

    rig.log.elect(1)
    rig.log.add("other")
    rig.find()
    rig.serve()

    opened, know = [one for one in rig.said if isinstance(one, Opened | Know)]
    assert isinstance(opened, Opened)
    assert opened.meta.voids == ((at(0, 0), at(1, 0)),)
    assert told([know]) == ["(2, 1/2] 1/2=other"]


def test_no_answer_ends_inside_a_void() -> None:
    """Whoever stood there would seem to have read what was cut off."""
    rig = followed()
    rig.log.add("one", "two")
    rig.serve()
    rig.log.elect(1)
    rig.log.add("other")
    rig.find()
    rig.serve()

    assert told(rig.ask((1, 1000))) == ["(1, 1/1] silence"]


def test_what_was_told_and_cut_off_is_answered_although_nothing_has_come_since() -> None:
    """Hostile 30277: who had matched some of it waited for the log to grow."""
    rig = followed()
    rig.log.add("one", "two")
    rig.log.add("gone")
    rig.serve()

    rig.log.elect(2)
    rig.find()

    assert told(rig.ask((0, 3))) == ["(0, 3] 1=one 2=two"]


def test_a_hole_is_neither_silence_nor_skipped() -> None:
    """TK6: a compacted topic answers without an error."""
    rig = followed()
    rig.log.add("one", "two")
    rig.log.add("gone")
    rig.log.add("four")
    del rig.log.batches[1]

    said = rig.serve()

    assert told(said) == ["(0, 2] 1=one 2=two", "(3, 4] 4=four"]
    assert [alarm.code for alarm in rig.sent(Alarm)] == [AlarmCode.LOG_UNREADABLE]
    assert rig.status()["damaged_ranges"] == 1
    assert told(rig.ask((0, 4))) == ["(0, 2] 1=one 2=two", "(3, 4] 4=four"]


def test_what_cannot_be_decoded_is_a_hole() -> None:
    rig = followed()
    rig.log.add("one")
    rig.log.put(1, b"garbage")

    said = rig.serve()

    assert told(said) == ["(0, 1] 1=one"]
    assert "garbage" in rig.sent(Alarm)[0].text


def test_a_read_says_silence_only_of_what_it_covers() -> None:
    """And each chunk is answered when it is read."""
    log = ModelLog()
    for number in range(4):
        log.add(f"{number}a", f"{number}b")
    rig = followed(log)
    rig.read_batches = 2

    assert told(rig.ask((0, 8))) == ["(0, 4] 1=0a 2=0b 3=1a 4=1b", "(4, 8] 5=2a 6=2b 7=3a 8=3b"]
    assert told(rig.ask((2, 3))) == ["(2, 3] 3=1a"]
    assert told(rig.ask((2, 3), (5, 6))) == ["(2, 6] 3=1a 4=1b 5=2a 6=2b"]  # with so little between them


def test_a_read_asks_for_about_what_lies_there_and_of_one_record_for_its_piece() -> None:
    rig = followed()
    for _ in range(10):
        rig.log.add(*"abcd")
    rig.serve()
    sizes = [len(batch.raw or b"") for batch in rig.log.batches]

    assert told(rig.ask((6, 7))) == ["(6, 7] 7=c"]
    assert told(rig.ask((8, 24)))[0].startswith("(8, 24] 9=a 10=b")

    one, some = rig.sent(ReadLog)[-2:]
    assert one.max_bytes == 1
    assert sum(sizes[2:6]) <= some.max_bytes <= sum(sizes[1:7])


def test_what_retention_removed_is_lost_and_only_that() -> None:
    log = ModelLog()
    log.add("one", "two")
    log.add("three")
    rig = followed(log)

    log.first = 1
    assert told(rig.ask((0, 3))) == ["(0, 3] 2=two 3=three lost=1"]

    log.first = 3
    assert told(rig.ask((0, 3))) == ["(0, 3] silence lost=3"]


def test_retention_that_passes_the_reader_is_told_as_lost() -> None:
    rig = followed()
    rig.log.add("one", "two")
    rig.log.add("three")
    rig.log.first = 2

    assert told(rig.serve()) == ["(0, 3] 3=three lost=2"]


def test_a_log_that_is_made_anew_is_another_pubend_and_the_former_one_is_lost() -> None:
    rig = followed()
    rig.log.add("one")
    rig.serve()
    rig.logs["orders.0@new"] = new = ModelLog("orders.0@new", "new family")
    new.add("first")

    rig.end()
    rig.find("orders.0@new")
    rig.sync()
    rig.serve()

    ended, opened = rig.sent(Opened)[-2:]
    assert ended.meta.read_only or opened.meta.read_only
    later = opened if ended.meta.read_only else ended
    assert (later.meta.pubend, later.meta.created, later.meta.stable) == ("orders.0@new", 0, 1)
    assert (opened if later is ended else ended).meta.stable == END
    assert told(rig.ask((0, 1))) == [f"(0, 1] silence lost={place(END)}"]


def test_a_read_that_fails_because_its_log_has_ended_is_no_alarm() -> None:
    """Found by the simulator: all of it is lost then, and that is the answer."""
    rig = followed()
    rig.log.add("one", "two")
    rig.serve()
    rig.feed(AskPubend(Want(LOG, ((0, 2),), None, "shb", again=False), "shb"))
    (read,) = rig.asked
    rig.asked = []

    rig.end()
    said = rig.feed(LogRead(read.cookie, 0, 0, (), 0, "the log is gone"))

    assert [effect.text for effect in rig.sent(Alarm) if effect.code is AlarmCode.LOG_UNREADABLE] == []
    assert told(said) == [f"(0, 2] silence lost={place(END)}"]


def test_an_ended_log_is_told_again_after_a_restart() -> None:
    rig = followed()
    rig.log.add("one")
    rig.serve()
    rig.end()
    assert not [one for one in rig.sent(Opened) if one.meta.read_only]  # not before it is durable
    rig.sync()
    del rig.logs[LOG]
    rig.logs["x"] = ModelLog("x.0@y", "x", "x")

    rig.crash()
    rig.sync()

    opened = rig.sent(Opened)[-1]
    assert (opened.meta.pubend, opened.meta.read_only, opened.meta.stable) == (LOG, True, END)


def test_a_log_that_ended_while_the_broker_was_down_is_lost_up_to_wherever_it_had_come() -> None:
    """Nobody here knows how far it had come, or what other gateways have told of it since."""
    rig = followed()
    rig.log.add("one")
    rig.serve()
    assert rig.sent(OpenLogs)[-1].known == {}
    rig.crash()
    assert rig.sent(OpenLogs)[-1].known == {LOG: "orders"}
    rig.logs["orders.0@new"] = ModelLog("orders.0@new", "new family")
    rig.asked.clear()
    before = len(rig.sent(Opened))

    rig.end()
    assert [one for one in rig.sent(Opened) if one.meta.read_only] == []  # not before it is durable
    rig.find("orders.0@new")
    rig.sync()
    rig.sync()

    opened = {one.meta.pubend: one.meta for one in rig.sent(Opened)[before:]}
    assert (opened[LOG].read_only, opened[LOG].stable) == (True, END)
    assert (opened["orders.0@new"].read_only, opened["orders.0@new"].created) == (False, 0)
    assert told(rig.ask((1, END))) == [f"(1, {place(END)}] silence lost={place(END)}"]
    assert [(alarm.code, alarm.about) for alarm in rig.sent(Alarm)] == [(AlarmCode.LOG_GONE, LOG)]
    rig.crash()
    assert rig.sent(OpenLogs)[-1].known == {"orders.0@new": "new family"}


def test_a_log_that_has_ended_is_not_opened_again_when_somebody_still_speaks_of_it() -> None:
    rig = followed()
    rig.log.add("one")
    rig.serve()
    rig.end()
    rig.sync()
    before = len(rig.said)

    rig.log.elect()
    rig.find()
    rig.sync()

    assert rig.said[before:] == []


def test_of_two_sections_with_one_topic_none_knows_its_logs() -> None:
    """Each would call those of the other gone."""
    both = (OpenLogs("model", {"servers": "a"}, ("orders",), {}), OpenLogs("model", {"servers": "b"}, ("orders",), {}))
    rig = NumberedRig(logs=both)
    rig.open()

    rig.crash()

    assert [one.known for one in rig.sent(OpenLogs)[-2:]] == [{}, {}]


def test_a_partition_that_appears_later_begins_at_its_beginning() -> None:
    """TK18: a subscription that was there before gets all of it."""
    log = ModelLog()
    log.add("one")
    rig = followed(log)
    rig.logs["orders.1@id"] = other = ModelLog("orders.1@id")
    other.add("two", "three")

    rig.find()
    rig.sync()

    assert [(one.meta.pubend, one.meta.created, one.meta.stable) for one in rig.sent(Opened)] == [
        (LOG, 1, 1),
        ("orders.1@id", 0, 2),
    ]


def test_rows_are_kept_and_losing_them_loses_nothing() -> None:
    log = ModelLog()
    log.add("one")
    rig = followed(log)
    rig.enrol("shb")
    rig.sync()
    log.add("two")
    rig.serve()

    rig.crash()
    rig.open()

    opened = rig.sent(Opened)[-1]
    assert (opened.meta.created, opened.meta.stable, opened.members) == (1, 2, {"shb": 1})
    assert told(rig.ask((0, 2))) == ["(0, 2] 1=one 2=two"]

    fresh = NumberedRig(log)
    fresh.open()
    assert told(fresh.ask((0, 2))) == ["(0, 2] 1=one 2=two"]
    assert fresh.sent(Opened)[-1].meta.created == 2


def test_what_was_told_under_former_rules_is_told_so_for_ever() -> None:
    """TK17."""
    rig = followed()
    rig.log.add("one", "two")
    rig.serve()
    rig.log.rules = b"changed"

    rig.crash()
    rig.open()
    rig.log.add("three")
    rig.serve()

    (know,) = [one for one in rig.said if isinstance(one, Know) and one.knowledge.hi == 3]
    assert list(know.knowledge.data.topics) == ["changed"]
    (answer,) = rig.ask((0, 3))
    assert isinstance(answer, Know)
    assert list(answer.knowledge.data.topics) == ["orders", "orders", "changed"]


def test_a_log_that_stands_still_is_the_operators_news() -> None:
    rig = followed()

    rig.feed(LogTrouble(LOG, "no broker answers"))
    rig.feed(LogTrouble(LOG, ""))

    first, second = rig.sent(Alarm)
    assert (first.code, first.over, first.about) == (AlarmCode.LOG_STANDS_STILL, False, LOG)
    assert second.over


def test_how_a_log_is_less_safe_is_one_alarm_until_it_is_over() -> None:
    """A later alarm about the same log takes the place of an earlier one: each has to say all of it."""
    rig = followed()
    found = rig.log.described()

    for warnings in (("one replica", "one in sync"), ("one replica", "one in sync"), ("one replica",), ()):
        rig.feed(LogsFound([replace(found, warnings=warnings)]))

    said = [(alarm.text, alarm.over) for alarm in rig.sent(Alarm) if alarm.code is AlarmCode.LOG_LESS_SAFE]
    assert said == [
        (f"{LOG}: one replica; one in sync", False),
        (f"{LOG}: one replica", False),
        (f"{LOG}: it keeps what publishers have receipts for", True),
    ]


def test_growth_of_a_former_follow_is_passed_over_and_a_jump_is_asked_for_again() -> None:
    rig = followed()
    rig.log.add("one")
    rig.serve()
    before = len(rig.said)

    rig.feed(Grown(LOG, 0, 1, rig.log.pieces(0, 1), 0, 7))
    rig.log.add("two")
    rig.log.add("three")
    rig.feed(Grown(LOG, 2, 3, rig.log.pieces(2, 3), 0, 8))

    assert told(rig.said[before:]) == []
    assert [one.size for one in rig.said[before:] if isinstance(one, Taken)] == [7, 8]
    assert rig.sent(Follow)[-1].after == 1


def test_what_all_are_done_with_is_removed_where_this_gateway_decides_that() -> None:
    """TK21: it does only where it is the only one."""
    log = ModelLog(trims=True)
    rig = followed(log)
    rig.enrol("shb")
    rig.sync()
    log.add("one", "two")
    log.add("three")
    rig.serve()

    rig.release(2)
    rig.advance(2000)
    rig.serve()
    rig.release(2)
    rig.advance(2000)

    assert [one.upto for one in rig.sent(Trim)] == [2]
    assert told(rig.ask((0, 3))) == ["(0, 3] 3=three lost=2"]


def test_nothing_is_removed_from_a_log_of_others() -> None:
    rig = followed()
    rig.enrol("shb")
    rig.sync()
    rig.log.add("one", "two")
    rig.serve()

    rig.advance(10)
    rig.release(2)
    rig.advance(10_000)

    assert rig.sent(Trim) == []
    assert rig.role.deadline() is None


def test_a_hold_by_time_is_resolved_by_the_log() -> None:
    """Its ticks are no times, so nobody else can."""
    log = ModelLog()
    log.add("one")
    log.add("two")
    log.times = {5_000: 1}
    rig = followed(log)
    row = Hold("shb", LOG, 1, {7: 0, 8: 2}, {7: 5_000})

    rig.feed(row)
    rig.feed(row)  # it is repeated until it is answered
    assert rig.sent(Held) == []
    rig.serve()

    assert [one.at for one in rig.sent(Held)] == [{7: 1, 8: 2}]
    assert [one.at for one in rig.sent(Locate)][-1:] == [5_000]


def test_a_newer_row_of_holds_counts_while_a_time_is_being_found() -> None:
    log = ModelLog()
    log.add("one")
    log.times = {5_000: 1}
    rig = followed(log)

    rig.feed(Hold("shb", LOG, 1, {7: 0}, {7: 5_000}))
    rig.feed(Hold("shb", LOG, 2, {}))
    rig.serve()

    assert [(one.version, one.at) for one in rig.sent(Held)] == [(2, {})]
