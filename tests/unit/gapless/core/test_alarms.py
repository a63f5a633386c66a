"""What the operator was told, as a node remembers it."""

from __future__ import annotations

from gapless.core.alarms import ACTIVE, ALARMS, ALARMS_MAX, Alarm, AlarmBook, AlarmCode
from gapless.core.gauges import value_of, values_by

DAMAGED = AlarmCode.LOG_UNREADABLE


def test_of_each_thing_the_latest_alarm_is_kept_with_when_it_was_raised_and_how_often() -> None:
    book = AlarmBook()
    book.note(Alarm(DAMAGED, "first", "p@1"), 1000)
    book.note(Alarm(DAMAGED, "other", "q@1"), 2000)

    book.note(Alarm(DAMAGED, "second", "p@1"), 3000)

    other, alarm = book.alarms()
    assert (other.about, other.count) == ("q@1", 1)
    assert (alarm.code, alarm.about, alarm.text) == ("log_unreadable", "p@1", "second")
    assert (alarm.count, alarm.first, alarm.last, alarm.over) == (2, 1000, 3000, False)
    assert (alarm.meaning, alarm.remedy) == (DAMAGED.meaning, DAMAGED.remedy)
    assert value_of(book.gauges(), ALARMS, code="log_unreadable") == 3


def test_what_is_over_is_said_so_until_it_is_raised_again() -> None:
    book = AlarmBook()
    book.note(Alarm(AlarmCode.DISK_LOW, "low"), 1000)

    book.note(Alarm(AlarmCode.DISK_LOW, "enough", over=True), 2000)
    [over] = book.alarms()
    book.note(Alarm(AlarmCode.DISK_LOW, "low again"), 3000)
    [again] = book.alarms()

    assert (over.text, over.count, over.over) == ("enough", 1, True)
    assert (again.text, again.count, again.over) == ("low again", 2, False)


def test_what_lasts_is_a_figure_until_it_is_over() -> None:
    book = AlarmBook()
    book.note(Alarm(AlarmCode.NODE_UNREACHABLE, "no link", "shb"), 1000)
    book.note(Alarm(AlarmCode.NODE_UNREACHABLE, "no link", "phb"), 1000)
    book.note(Alarm(DAMAGED, "which merely happened", "p@1"), 1000)
    assert values_by(book.gauges(), ACTIVE, "about") == {"shb": 1, "phb": 1}

    book.note(Alarm(AlarmCode.NODE_UNREACHABLE, "a link", "shb", over=True), 2000)
    assert values_by(book.gauges(), ACTIVE, "about", code="node_unreachable") == {"phb": 1}


def test_when_the_broker_starts_over_what_lasted_has_to_be_raised_anew() -> None:
    book = AlarmBook()
    book.note(Alarm(AlarmCode.DISK_LOW, "low"), 1000)
    book.note(Alarm(DAMAGED, "damaged", "p@1"), 1000)

    book.on_restart(2000)

    assert {alarm.code: (alarm.lasts, alarm.over, alarm.last) for alarm in book.alarms()} == {
        "disk_low": (True, True, 2000),
        "log_unreadable": (False, False, 1000),
    }


def test_what_was_never_raised_is_not_over() -> None:
    book = AlarmBook()

    book.note(Alarm(AlarmCode.DISK_LOW, "enough", over=True), 1000)

    assert book.alarms() == []
    assert list(book.gauges()) == []


def test_it_is_bounded_and_no_kind_of_trouble_makes_another_one_forgotten() -> None:
    book = AlarmBook()
    book.note(Alarm(DAMAGED, "damaged", "p@1"), 0)

    for number in range(ALARMS_MAX + 1):
        book.note(Alarm(AlarmCode.CLIENT_REFUSED, "refused", f"host-{number}"), 1 + number)

    abouts = [alarm.about for alarm in book.alarms() if alarm.about != "others"]
    assert abouts == ["p@1", *(f"host-{n}" for n in range(1, ALARMS_MAX + 1))]
    assert value_of(book.gauges(), ALARMS, code="client_refused") == ALARMS_MAX + 1


def test_more_than_are_kept_are_counted() -> None:
    """A thousand partitions that stand still are not twenty; when all of those that are listed are over, it is over."""
    book = AlarmBook()
    code = AlarmCode.LOG_STANDS_STILL
    for number in range(1000):
        book.note(Alarm(code, "stands still", f"p-{number}"), 1 + number)

    [others] = [alarm for alarm in book.alarms() if alarm.about == "others"]
    left_out = 1000 - ALARMS_MAX
    assert (others.count, others.first, others.last, others.over) == (left_out, 1, left_out, False)
    assert others.text == f"{1000 - ALARMS_MAX} more were raised, about others: the latest {ALARMS_MAX} are listed"
    assert (others.code, others.lasts, others.remedy) == (code.label, True, code.remedy)
    for number in range(1000):
        book.note(Alarm(code, "goes on", f"p-{number}", over=True), 2000 + number)
    assert all(alarm.over for alarm in book.alarms())


def test_what_is_over_makes_room_first() -> None:
    book = AlarmBook()
    for number in range(ALARMS_MAX):
        book.note(Alarm(AlarmCode.LOG_STANDS_STILL, "stands still", f"p-{number}"), number)
    book.note(Alarm(AlarmCode.LOG_STANDS_STILL, "goes on", "p-7", over=True), 100)

    book.note(Alarm(AlarmCode.LOG_STANDS_STILL, "stands still", "new"), 101)

    assert {alarm.about for alarm in book.alarms()} == {"new", *(f"p-{n}" for n in range(ALARMS_MAX) if n != 7)}


def test_an_alarm_may_have_a_remedy_of_its_own() -> None:
    book = AlarmBook()
    book.note(Alarm(AlarmCode.LOG_UNREADABLE, "unreadable", "orders-0@kafka", remedy="Look at Kafka."), 1)
    book.note(Alarm(AlarmCode.LOG_UNREADABLE, "unreadable", "p@1"), 2)

    assert [alarm.remedy for alarm in book.alarms()] == ["Look at Kafka.", AlarmCode.LOG_UNREADABLE.remedy]


def test_each_code_has_a_label_of_its_own() -> None:
    assert len({code.label for code in AlarmCode}) == len(AlarmCode)
