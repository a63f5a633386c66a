"""Interest tables: no silence is asserted that a filter in force would contradict (protocol: interest; C1)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.core.network.facts import Interest
from gapless.core.network.frames import FRAME_BYTES_MAX, InterestPart, encode
from gapless.core.network.interest import digest
from gapless.core.stream.columns import EventColumns
from gapless.core.stream.events import Extras, encode_event
from gapless.core.stream.stamps import RAW, Stamp, covers
from gapless.selectors import Filter
from gapless_routing.common.interest import Decision, InterestParts, InterestTable, parts_of

PUBEND = "p@1"
SHBS = ("a", "b")
EVENTS = EventColumns.of([encode_event("t", {"n": n}, None, b"") for n in range(4)], [0] * 4).batch([1, 2, 3, 4])
"""One event for each filter that the tests use."""


def wants(number: int) -> Filter:
    return Filter(("t",), f"n = {number}")


def delta(shb: str, base: int, version: int, add: Mapping[int, Filter] = {}, *drop: int) -> Interest:
    return Interest(shb, base, version, add, frozenset(drop))


def full(shb: str, version: int, filters: Mapping[int, Filter] = {}) -> Interest:
    return Interest(shb, 0, version, filters, full=True)


def selected(table: InterestTable) -> set[int]:
    """Which of the events match."""
    mask = table.matches(PUBEND, EVENTS)
    return {number for number in range(4) if mask >> number & 1}


# ------------------------------------------------------------------------------- a history, half of it lost

History = list[dict[int, Filter]]
"""What one SHB wants at each version, from 0 on."""

changes = st.dictionaries(st.integers(1, 3), st.sampled_from((None, 0, 1, 2, 3)), min_size=1, max_size=3)
histories = st.lists(changes, min_size=2, max_size=5)
messages = st.lists(st.tuples(st.sampled_from(SHBS), st.integers(0, 5), st.booleans()), max_size=12)


def history(changes: list[dict[int, int | None]]) -> History:
    versions: History = [{}]
    for change in changes:
        after = {**versions[-1], **{sid: wants(number) for sid, number in change.items() if number is not None}}
        versions.append({sid: after[sid] for sid in after if change.get(sid, 0) is not None})
    return versions


def message(shb: str, versions: History, version: int, *, whole: bool) -> Interest:
    """What the SHB says when it has come to this version."""
    version = max(1, min(version, len(versions) - 1))
    if whole:
        return full(shb, version, versions[version])
    before, after = versions[version - 1], versions[version]
    add = {sid: wanted for sid, wanted in after.items() if before.get(sid) != wanted}
    return delta(shb, version - 1, version, add, *(sid for sid in before if sid not in after))


@given(histories, histories, messages, st.none() | st.dictionaries(st.sampled_from(SHBS), st.integers(0, 5)))
def test_no_filter_that_was_honoured_contradicts_the_silence(
    first: list[dict[int, int | None]],
    second: list[dict[int, int | None]],
    said: list[tuple[str, int, bool]],
    stamp: Stamp,
) -> None:
    """I9: what is left out matches no filter that was in force at the version that the stamp names.

    One that the SHB has dropped meanwhile binds nobody.
    """
    told, table = {"a": history(first), "b": history(second)}, InterestTable()
    for shb, version, whole in said:
        table.apply(message(shb, told[shb], version, whole=whole))
    decision = table.decide(stamp, SHBS)
    left_out = set() if decision.flood else {0, 1, 2, 3} - selected(table)

    assert covers(stamp, decision.stamp), "nobody may say more than he was told"
    if decision.stamp is None:
        assert left_out == set()
        return
    for shb, version in decision.stamp.items():
        honoured = told[shb][min(version, len(told[shb]) - 1)]
        now = told[shb][table.versions.get(shb, 0)]
        in_force = [wanted for sid, wanted in honoured.items() if now.get(sid) == wanted]
        assert not any(wants(number) in in_force for number in left_out)


# ------------------------------------------------------------------------------------------- the decision


@pytest.fixture
def table() -> InterestTable:
    """Knows version 3 of a and 5 of b."""
    table = InterestTable()
    assert table.apply(full("a", 3, {1: wants(0)}))
    assert table.apply(full("b", 5, {1: wants(2)}))
    return table


@pytest.mark.parametrize(
    ("stamp", "shbs", "flood", "passed_on"),
    [
        (RAW, ("a", "b"), False, {"a": 3, "b": 5}),
        (RAW, ("b",), False, {"b": 5}),
        (RAW, ("a", "c"), True, RAW),
        (RAW, (), True, RAW),
        ({"a": 3, "b": 5}, ("a", "b"), False, {"a": 3, "b": 5}),
        ({"a": 2}, ("a", "b"), False, {"a": 2}),
        ({"a": 4, "b": 5}, ("a", "b"), True, {"a": 4, "b": 5}),
        ({"a": 4, "b": 5}, ("b",), False, {"b": 5}),
        ({"a": 1}, ("a", "c"), True, {"a": 1}),
    ],
)
def test_a_decision_filters_only_what_the_table_has_reached(
    table: InterestTable, stamp: Stamp, shbs: tuple[str, ...], flood: bool, passed_on: Stamp
) -> None:
    assert table.decide(stamp, shbs) == Decision(flood, passed_on)


def test_the_stamp_does_not_depend_on_the_order_of_a_set(table: InterestTable) -> None:
    stamps = [table.decide(RAW, shbs).stamp for shbs in ({"a", "b"}, {"b", "a"}, ("b", "a"))]

    assert [list(stamp or ()) for stamp in stamps] == [["a", "b"]] * 3


# -------------------------------------------------------------------------------------------- the changes


def test_a_change_before_the_whole_must_be_asked_for() -> None:
    table = InterestTable()

    assert not table.apply(delta("a", 0, 1, {1: wants(0)}))
    assert table.summary("a") == (0, 0)


def test_a_repeated_version_tells_that_something_is_missing(table: InterestTable) -> None:
    """An SHB repeats its version alone now and then: base and version are the same."""
    assert table.apply(delta("a", 3, 3))
    assert table.apply(delta("a", 2, 2))
    assert not table.apply(delta("a", 4, 4))
    assert not table.apply(delta("c", 4, 4))


def test_the_whole_replaces_what_was_there(table: InterestTable) -> None:
    assert table.apply(full("a", 4, {2: wants(1)}))
    assert selected(table) == {1, 2}
    assert table.filters("a") == {2: wants(1)}
    assert table.summary("a") == (4, digest({2: wants(1)}))
    assert len(table) == 2


def test_the_whole_of_an_older_version_is_late(table: InterestTable) -> None:
    assert table.apply(full("a", 2, {2: wants(1)}))
    assert table.filters("a") == {1: wants(0)}
    assert table.versions == {"a": 3, "b": 5}


def test_one_number_in_two_shbs_is_two_subscriptions(table: InterestTable) -> None:
    assert table.apply(delta("a", 3, 4, {}, 1))
    assert selected(table) == {2}
    assert table.filters("b") == {1: wants(2)}
    assert table.filters("c") == {}


def test_a_changed_selector_replaces_the_old_one(table: InterestTable) -> None:
    assert table.apply(delta("a", 3, 4, {1: wants(1)}))
    assert selected(table) == {1, 2}


def test_an_shb_that_is_gone_wants_nothing(table: InterestTable) -> None:
    table.forget("a")
    table.forget("c")

    assert selected(table) == {2}
    assert table.versions == {"b": 5}
    assert table.decide(RAW, ("a", "b")).flood


@pytest.mark.parametrize(
    ("selector", "mask"),
    [
        ("JMSPriority > 5", 0b1010),
        ("JMSPriority = 4", 0b0001),
        ("JMSType = 'x'", 0b0010),
        ("JMSType IS NULL", 0b1101),
        (f"JMSMessageID = 'ID:{PUBEND}:3'", 0b0100),
        ("JMSTimestamp = 1577836800000", 0b1111),
    ],
)
def test_a_table_matches_with_header_fields(selector: str, mask: int) -> None:
    """As the SHBs do: a table that sees fewer of them would filter out what an SHB wants."""
    extras = [None, Extras(priority=9, type="x"), Extras(priority=5), Extras(priority=6)]
    events = [encode_event("t", {}, each, b"") for each in extras]
    table = InterestTable()
    table.apply(full("a", 1, {1: Filter(("t",), selector)}))

    assert table.matches(PUBEND, EventColumns.of(events, [0] * 4).batch([1, 2, 3, 4])) == mask


# ---------------------------------------------------------------------------------------------- the digest


def test_a_digest_tells_interests_apart_and_not_their_histories() -> None:
    one = {1: wants(0), 2: wants(1)}

    assert digest(one) == digest({2: wants(1), 1: wants(0)})
    assert digest({}) == 0
    assert len({digest(one), digest({1: wants(0)}), digest({1: wants(1), 2: wants(0)}), digest({3: wants(0)})}) == 4


def test_a_digest_is_the_same_everywhere() -> None:
    """Brokers of different versions compare it."""
    assert digest({1: Filter(("a.*", "b"), "n = 1")}) == 4692049838518544586


# ------------------------------------------------------------------------------------------ in parts

LONG = "k = '" + "x" * 15_000 + "'"
"""A dozen of these fit a frame."""


def large(version: int = 5, shb: str = "s", *, count: int = 40) -> Interest:
    add = {2 * number: Filter(("a",), LONG) for number in range(1, count + 1)}
    return Interest(shb, 3, version, add, frozenset({1, 2, 39}))


def test_what_fits_a_frame_is_one_part_and_so_is_nothing() -> None:
    for interest in (Interest("s", 3, 3, {}), Interest("s", 0, 4, {1: Filter(("a",))}, full=True)):
        (part,) = parts_of(interest)

        assert (part.start, part.end) == (0, None)
        assert InterestParts().take(part) == interest


def test_parts_fit_frames_and_make_the_whole_in_any_order() -> None:
    parts = parts_of(large())

    assert len(parts) > 2
    assert all(len(encode(part)) <= FRAME_BYTES_MAX for part in parts)
    for order in (parts, parts[::-1], [parts[1], parts[1], *parts]):
        collected = InterestParts()
        assert [whole for part in order if (whole := collected.take(part))] == [large()]


def test_a_part_that_is_missing_is_waited_for_and_the_first_is_not_the_whole() -> None:
    collected, parts = InterestParts(), parts_of(large())

    assert [collected.take(part) for part in parts[:-1]] == [None] * (len(parts) - 1)
    assert collected.take(parts[-1]) == large()


def test_another_version_begins_anew_and_an_older_one_is_overtaken() -> None:
    collected, older, newer = InterestParts(), parts_of(large(5)), parts_of(large(6))
    for part in (older[0], newer[0], *older[1:]):
        assert collected.take(part) is None

    assert [collected.take(part) for part in newer[1:]][-1] == large(6)


def test_the_whole_of_a_version_does_not_mix_with_the_change_to_it() -> None:
    collected, change = InterestParts(), parts_of(large())
    whole = parts_of(Interest("s", 0, 5, large().add, full=True))
    assert collected.take(change[0]) is None
    assert collected.take(whole[0]) is None
    assert [collected.take(part) for part in change[1:]] == [None] * (len(change) - 1)

    assert [collected.take(part) for part in whole[1:]][-1] == Interest("s", 0, 5, large().add, full=True)


def test_parts_that_were_cut_elsewhere_do_not_leave_anything_out() -> None:
    """As when another router, with other frames, says the same version again."""
    collected = InterestParts()
    mine, theirs = parts_of(large()), []
    for start, end in ((0, 5), (5, 44), (44, None)):
        add = {sid: wanted for sid, wanted in large().add.items() if start <= sid < (end or 999)}
        drop = frozenset(sid for sid in large().drop if start <= sid < (end or 999))
        theirs.append(InterestPart("s", 3, 5, start, end, add, drop, full=False))
    for order in ([mine[0], theirs[1], mine[-1], theirs[2], theirs[0]], [*theirs[1:], *mine]):
        assert next(whole for part in order if (whole := collected.take(part))) == large()
        collected.forget("s")


def test_each_shb_has_its_own_parts_and_who_is_gone_has_none() -> None:
    collected, one, other = InterestParts(), parts_of(large(5, "s")), parts_of(large(5, "t"))
    for part in (*one[:-1], *other[:-1]):
        assert collected.take(part) is None
    assert collected.take(one[-1]) == large(5, "s")

    collected.forget("t")
    collected.forget("nobody")
    assert collected.take(other[-1]) is None


# ---------------------------------------------------------------------------------- more filters than are kept


def test_of_an_shb_with_too_many_filters_everything_matches_at_any_version() -> None:
    table = InterestTable(bytes_max=20)
    assert table.apply(full("a", 1, {1: wants(0), 2: wants(1)}))
    assert selected(table) == {0, 1}
    assert table.apply(delta("a", 1, 2, {3: wants(2), 4: wants(3), 5: wants(7)}))
    assert table.wants_all("a")
    assert list(table.filters("a").values()) == [Filter(("#",))]
    assert selected(table) == {0, 1, 2, 3}
    assert table.apply(delta("a", 2, 3, {}, 1, 2))
    assert table.versions == {"a": 3}
    table.reach("a", 5)
    assert table.versions == {"a": 5}
    assert not table.apply(delta("a", 6, 7, {}))


def test_the_whole_of_it_says_when_they_are_few_again_or_still_too_many() -> None:
    table = InterestTable(bytes_max=20)
    many = {number: wants(number) for number in range(1, 9)}
    assert table.apply(full("a", 1, many))
    assert table.wants_all("a")
    assert table.apply(full("a", 2, many))
    assert (table.wants_all("a"), table.versions) == (True, {"a": 2})
    assert table.apply(full("a", 1, {}))  # it is late
    assert table.wants_all("a")
    assert table.apply(full("a", 3, {1: wants(1)}))
    assert not table.wants_all("a")
    while table.tidy():
        pass
    assert selected(table) == {1}


@pytest.mark.parametrize("shuffled", [False, True])
def test_parts_of_too_many_filters_are_not_prepared_any_further(*, shuffled: bool) -> None:
    many = {number: wants(number) for number in range(1, 40)}
    table, whole = InterestTable(bytes_max=40), full("a", 1, many)
    parts = parts_of(whole, bytes_max=60)
    assert len(parts) > 3
    for part in reversed(parts) if shuffled else parts:
        table.prepare(part)
        assert sum(len(row.filters) for row in table._preparing.values()) < 12
    assert table.apply(whole)
    assert table.wants_all("a")
    while table.tidy():
        pass
    assert selected(table) == {0, 1, 2, 3}
