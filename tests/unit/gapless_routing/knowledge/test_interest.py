"""What SHBs want, on its way to those who filter, and the census that finds holes (protocol: census; T58, T60, C5)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from gapless.core.network.facts import AskInterest, Enrol, Enrolled, Interest
from gapless.core.network.frames import InterestPart, InterestQuestion, Private, encode
from gapless.core.network.timer_queue import MILLISECOND
from gapless.core.stream.stamps import RAW
from gapless.selectors.filters import Filter
from gapless_routing.common.census import FORGOTTEN_AFTER, Census, CensusRow
from gapless_routing.common.interest import InterestTable, parts_in_turn, parts_of
from gapless_routing.knowledge.interest import CENSUS, CENSUS_EVERY, Interests
from gapless_routing.knowledge.options import Sizes
from unit.gapless_routing.knowledge.net import (
    CHAIN,
    DIAMOND,
    FORK,
    PHB,
    SECOND,
    SHB,
    Net,
    P,
    Sent,
    events,
    full,
    hung_up,
    network_map,
    private,
    subscribed,
)
from unit.held import held

TWO_PHBS = network_map({"P": {"p": PHB}, "M": {"i": ()}, "Q": {"q": PHB}, "S": {"s": SHB}}, "p-i", "q-i", "s-i")


def censuses(net: Net, source: str, to: str) -> list[Census]:
    return [msgspec.msgpack.decode(data, type=Census) for data in private(net, CENSUS, source, to)]


def census(*rows: CensusRow, total: int | None = None, direction: str = "") -> Private:
    said = Census(rows, len(rows) if total is None else total, direction)
    return Private(CENSUS, msgspec.msgpack.encode(said))


def wants(net: Net, at: str, cell: str) -> dict[str, int]:
    """The versions that a broker knows of the SHBs in a direction."""
    return net.interests(at).versions([cell])


def delta(base: int, version: int, shb: str = "s@disk", **add: str) -> Interest:
    filters = {int(number[1:]): Filter((topic,)) for number, topic in add.items()}
    return Interest(shb, base, version, filters)


def test_an_interest_goes_to_every_broker_of_every_cell_that_filters_and_to_no_other() -> None:
    net = Net(DIAMOND)
    net.forget()
    net.tell("s", full(1, "s@disk", "a"))
    assert sorted(net.ways(InterestPart)) == [("i", "p"), ("j", "p"), ("s", "i"), ("s", "j")]

    net = Net(TWO_PHBS)
    net.forget()
    net.tell("s", full(1, "s@disk", "a"))
    assert sorted(net.ways(InterestPart)) == [("i", "p"), ("i", "q"), ("s", "i")]


def test_what_is_known_already_goes_no_further() -> None:
    net = subscribed(DIAMOND)
    net.tell("s", full(1, "s@disk", "a"))

    assert net.messages(InterestPart) == []


def test_a_change_is_passed_on_as_it_came() -> None:
    net = subscribed()
    net.tell("s", delta(1, 2, s7="b"))

    assert net.messages(InterestPart, "i", "p") == parts_of(delta(1, 2, s7="b"))
    assert wants(net, "p", "M") == {"s@disk": 2}


def test_a_change_that_misses_one_before_it_is_not_taken_and_the_whole_is_asked_for() -> None:
    net = subscribed()
    net.lost = lambda sent: (sent.source, type(sent.message)) == ("i", InterestPart)
    net.tell("s", delta(1, 2, s7="b"))
    net.lost = lambda _: False

    net.tell("s", delta(2, 3, s8="c"))

    assert net.messages(InterestQuestion, "p", "i") == [InterestQuestion("s@disk")]
    assert wants(net, "p", "M") == {"s@disk": 3}


def test_an_shb_whose_own_change_misses_one_is_asked_by_its_router() -> None:
    net = subscribed()
    net.tell("s", delta(2, 3, s8="c"))

    assert net.take(AskInterest, "s") == [AskInterest()]


def test_a_lost_interest_is_found_by_the_census() -> None:
    net = subscribed()
    net.lost = lambda sent: isinstance(sent.message, InterestPart)
    net.tell("s", delta(1, 2, s7="b"))
    net.lost = lambda _: False
    assert wants(net, "i", "S") == {"s@disk": 1}

    net.pass_time(2 * CENSUS_EVERY)
    assert (wants(net, "i", "S"), wants(net, "p", "M")) == ({"s@disk": 2}, {"s@disk": 2})


def test_the_same_version_with_other_filters_is_found_too() -> None:
    net = subscribed()
    net.arrive("s", "i", parts_of(full(1, "s@disk", "z"))[0], (0, "", "S"))
    net.pass_time(2 * CENSUS_EVERY)

    assert net.messages(InterestQuestion, "i", "s") != []
    assert net.interests("i").matches("S", P, events("a", "z")) == 0b01


def test_where_nobody_is_reached_the_mates_pass_an_interest_on() -> None:
    net = Net(DIAMOND, cut=("p-i", "j-s"))
    net.forget()
    net.tell("s", full(1, "s@disk", "a"))

    assert net.ways(InterestPart) == [("s", "i"), ("i", "j"), ("j", "p")]
    assert wants(net, "p", "M") == {"s@disk": 1}


def test_a_mate_passes_an_interest_only_to_the_cell_that_was_not_reached() -> None:
    cells: dict[str, dict[str, tuple[str, ...]]]
    cells = {"P": {"p": PHB}, "Q": {"q": PHB}, "M": {"i": (), "j": ()}, "S": {"s": SHB}}
    net = Net(network_map(cells, "p-i", "p-j", "q-i", "q-j", "i-j", "s-i", "s-j"), cut=("p-i", "s-j"))
    net.forget()
    net.tell("s", full(1, "s@disk", "a"))

    assert sorted(net.ways(InterestPart)) == [("i", "j"), ("i", "q"), ("j", "p"), ("s", "i")]


def test_where_the_way_goes_over_mates_nobody_is_forgotten() -> None:
    """The mate that has the way up hears of the SHB from the one that has the way down, as long as it is there."""
    net = Net(DIAMOND, cut=("p-i", "j-s"))
    net.tell("s", full(1, "s@disk", "a"))
    net.pass_time(3 * FORGOTTEN_AFTER)

    assert wants(net, "p", "M") == {"s@disk": 1}


def test_what_a_census_from_a_mate_lacks_is_asked_of_the_mate() -> None:
    net = Net(DIAMOND, cut=("p-i", "j-s"))
    net.lost = lambda sent: (sent.source, sent.to, type(sent.message)) == ("i", "j", InterestPart)
    net.tell("s", full(1, "s@disk", "a"))
    net.lost = lambda _: False
    assert wants(net, "p", "M") == {}

    net.pass_time(2 * CENSUS_EVERY)
    assert wants(net, "p", "M") == {"s@disk": 1}


# ---------------------------------------------------------------------------------- who is there


def test_a_census_carries_how_long_ago_the_shb_itself_spoke() -> None:
    net = subscribed()
    net.lost = lambda sent: sent.source == "s"
    net.pass_time(4 * CENSUS_EVERY)

    ages = [row.age for said in censuses(net, "i", "p") for row in said.rows]
    assert ages == sorted(ages)
    assert 10_000 < ages[-1] < 25_000
    assert [row.age for said in censuses(net, "s", "i") for row in said.rows] == [0] * 4


def test_an_shb_that_is_silent_for_thirty_seconds_is_forgotten_everywhere() -> None:
    net = subscribed(FORK)
    net.lost = lambda sent: "s" in (sent.source, sent.to)
    net.pass_time(FORGOTTEN_AFTER + 2 * CENSUS_EVERY)

    assert (wants(net, "i", "S"), wants(net, "p", "M")) == ({}, {"t@disk": 1})
    assert net.interests("p").direction_of("s@disk") is None


def test_an_old_row_of_a_census_is_not_even_heard_of() -> None:
    net = Net(CHAIN)
    net.open()
    net.arrive("i", "p", census(CensusRow("x@disk", 4, 4, FORGOTTEN_AFTER // 1_000_000 + 1)))

    assert net.take(Enrol, "p") == []
    assert net.interests("p").direction_of("x@disk") is None


def test_an_shb_that_moved_is_where_it_was_heard_last() -> None:
    net = subscribed(FORK)
    interests = net.interests("i")
    assert interests.direction_of("s@disk") == "S"

    net.pass_time(SECOND)
    net.arrive("t", "i", census(CensusRow("s@disk", 1, 1, 0)))
    assert interests.direction_of("s@disk") == "T"


def test_nobody_speaks_in_the_future() -> None:
    net = subscribed()
    net.arrive("i", "p", parts_of(full(2, "s@disk", "a"))[0], (-1, "", "M"))

    assert hung_up(net, "p")
    assert wants(net, "p", "M") == {"s@disk": 1}


# ------------------------------------------------------------------------------------------ synced


def decision(net: Net, enrolled: dict[str, int], stamp: Any = RAW, at: str = "p", cell: str = "M") -> tuple[bool, Any]:
    flood, passed_on = net.interests(at).decide(cell, stamp, enrolled)
    return flood, passed_on


def test_before_a_census_everything_is_flooded_and_stays_raw() -> None:
    net = Net(CHAIN, cut=("p-i",))
    assert decision(net, {"s@disk": 0}) == (True, RAW)
    assert not net.interests("p").wants_nothing("M"), "it is not known that nobody is there"


def test_raw_becomes_versions_only_of_shbs_that_are_enrolled() -> None:
    net = subscribed(FORK)

    assert decision(net, {"s@disk": 0, "t@disk": 0}) == (False, {"s@disk": 1, "t@disk": 1})
    assert decision(net, {"s@disk": 0}) == (True, RAW)


def test_what_was_filtered_by_a_later_table_is_flooded() -> None:
    net = subscribed()

    assert decision(net, {}, {"s@disk": 1}) == (False, {"s@disk": 1})
    assert decision(net, {}, {"s@disk": 2, "elsewhere": 9}) == (True, {"s@disk": 2})


def test_a_direction_is_known_when_all_that_a_census_named_is_there() -> None:
    net = Net(CHAIN, cut=("p-i",))
    net.tell("s", full(1, "s@disk", "a"))
    net.lost = lambda sent: isinstance(sent.message, InterestPart)
    net.connect("p", "i")
    net.pass_time(2 * CENSUS_EVERY)
    assert decision(net, {"s@disk": 0}) == (True, RAW)

    net.lost = lambda _: False
    net.pass_time(3 * CENSUS_EVERY)
    assert decision(net, {"s@disk": 0}) == (False, {"s@disk": 1})


def test_a_census_in_several_frames_is_whole_when_all_of_it_is_there() -> None:
    net = Net(FORK, cut=("p-i",))
    net.lost = lambda sent: sent.source == "i"
    net.connect("p", "i")
    table = InterestTable()
    for shb in ("s@disk", "t@disk"):
        interest = full(1, shb, "a")
        table.apply(interest)
        assert decision(net, {}, {}) == (True, {})
        net.arrive("i", "p", parts_of(interest)[0], (0, "", "M"))
        net.arrive("i", "p", census(CensusRow(shb, *table.summary(shb), 0), total=2))

    assert decision(net, {}, {}) == (False, {})


def test_without_an_shb_in_a_direction_nothing_is_wanted_there() -> None:
    net = Net(CHAIN)
    net.pass_time(2 * CENSUS_EVERY)

    assert net.interests("p").wants_nothing("M")


def test_nonsense_in_a_census_hangs_up() -> None:
    net = Net(CHAIN)
    net.arrive("i", "p", Private(CENSUS, b"\x93\x01"))

    assert hung_up(net, "p")


def test_a_mates_direction_that_it_does_not_know_itself_is_no_census() -> None:
    net = Net(DIAMOND, cut=("j-s",))

    net.arrive("i", "j", replace(census(direction="S"), data=msgspec.msgpack.encode(Census((), None, "S"))))
    assert decision(net, {}, {}, "j", "S") == (True, {})
    net.arrive("i", "j", census(direction="S"))
    assert decision(net, {}, {}, "j", "S") == (False, {})
    net.arrive("i", "j", census(CensusRow("x@disk", 1, 1, 0), direction="nowhere"))
    assert not hung_up(net, "j")


# ------------------------------------------------------------------------------------------ enrolled


def test_an_shb_that_is_heard_of_is_enrolled() -> None:
    net = Net(CHAIN)
    net.open()
    net.tell("s", full(1, "s@disk", "a"))

    assert net.take(Enrol, "p") == [Enrol("p@1", "s@disk")]


def test_a_member_is_not_enrolled_again() -> None:
    net = subscribed()
    net.pass_time(3 * CENSUS_EVERY)

    assert net.take(Enrol, "p") == []


@pytest.mark.parametrize("lost_kind", [InterestPart, Private])
def test_an_shb_is_enrolled_whatever_was_lost(lost_kind: type) -> None:
    net = Net(CHAIN)
    net.open()

    def lost(sent: Sent) -> bool:
        return isinstance(sent.message, lost_kind)

    net.lost = lost
    net.tell("s", full(1, "s@disk", "a"))
    net.lost = lambda _: False
    net.pass_time(3 * CENSUS_EVERY)

    assert Enrol("p@1", "s@disk") in net.take(Enrol, "p")
    net.tell("p", Enrolled("p@1", "s@disk", 5))
    net.pass_time(6 * SECOND)
    assert wants(net, "p", "M") == {"s@disk": 1}


# ------------------------------------------------------------------------------------------- large

LARGE = 1_500


def many(version: int, count: int = LARGE, letter: str = "t") -> Interest:
    return full(version, "s@disk", *(f"{letter}.{number}" for number in range(count)))


def table_at(net: Net, at: str, cell: str) -> InterestTable:
    return net.interests(at)._directions[cell].table


def filters_at(net: Net, at: str, cell: str) -> dict[int, Filter]:
    return dict(table_at(net, at, cell).filters("s@disk"))


def test_a_large_interest_comes_through_two_hops_in_small_parts() -> None:
    net = Net(CHAIN)
    net.forget()
    net.tell("s", many(1))
    net.pass_time(CENSUS_EVERY)

    parts = net.messages(InterestPart, "s", "i")
    assert len(parts) > 2
    assert all(len(encode(part)) <= Sizes().turn_bytes + 200 for part in parts)
    assert net.messages(InterestQuestion) == [InterestQuestion("s@disk")] * 2, "each hop once"
    assert filters_at(net, "i", "S") == filters_at(net, "p", "M") == many(1).add


def test_no_turn_says_or_reads_much_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    said: dict[int, int] = {}
    read: dict[int, int] = {}
    on_part = Interests.on_part

    def count(interests: Interests, broker: str, part: InterestPart, address: Any) -> None:
        if broker == "s":
            read[net.now] = read.get(net.now, 0) + len(part.add)
        on_part(interests, broker, part, address)

    monkeypatch.setattr(Interests, "on_part", count)
    net = Net(CHAIN)
    net.tell("s", many(1))
    net.forget()
    net.lost = lambda sent: bool(
        isinstance(sent.message, InterestPart)
        and sent.source == "s"
        and said.update({net.now: said.get(net.now, 0) + len(sent.message.add)})
    )
    net.pass_time(CENSUS_EVERY)

    assert sum(said.values()) == sum(read.values()) == LARGE
    assert max(*said.values(), *read.values()) < LARGE / 2


def test_frames_that_come_together_are_read_in_many_turns_and_in_order() -> None:
    net = Net(CHAIN)
    whole = [*parts_in_turn(many(1), Sizes().turn_bytes), *parts_of(delta(1, 2, s7="b"))]
    for part in whole:
        net.arrive("i", "p", part, (0, "", "M"))
    assert wants(net, "p", "M") == {}

    net.pass_time(20 * MILLISECOND)
    assert wants(net, "p", "M") == {"s@disk": 2}
    assert filters_at(net, "p", "M") == {**many(1).add, 7: Filter(("b",))}
    assert net.messages(InterestQuestion, "p", "i") == []


def test_changes_while_the_whole_is_under_way_go_behind_it() -> None:
    net = Net(CHAIN)
    net.tell("s", many(1))
    net.pass_time(4 * MILLISECOND)
    for version in range(2, 12):
        net.tell("s", delta(version - 1, version, **{f"s{version}": "b"}))
        net.pass_time(MILLISECOND)
    net.pass_time(2 * CENSUS_EVERY)

    assert wants(net, "i", "S") == wants(net, "p", "M") == {"s@disk": 11}
    expected = {**many(1).add, **{version: Filter(("b",)) for version in range(2, 12)}}
    assert filters_at(net, "i", "S") == filters_at(net, "p", "M") == expected


def test_a_link_that_goes_down_while_a_large_interest_is_said_begins_anew() -> None:
    net = Net(CHAIN)
    net.tell("s", many(1))
    net.pass_time(4 * MILLISECOND)
    net.cut("i", "s")
    net.connect("i", "s")
    net.flow()
    net.pass_time(2 * CENSUS_EVERY)

    assert filters_at(net, "p", "M") == many(1).add


def test_nonsense_that_waited_for_its_turn_hangs_up() -> None:
    net = Net(CHAIN)
    for part in parts_in_turn(many(1), Sizes().turn_bytes):
        net.arrive("i", "p", part, (0, "", "M"))
    net.arrive("i", "p", parts_of(full(2, "s@disk", "a"))[0], (-1, "", "M"))
    assert not hung_up(net, "p")

    net.pass_time(20 * MILLISECOND)
    assert hung_up(net, "p")


def test_a_large_interest_that_is_forgotten_leaves_nothing_behind() -> None:
    net = Net(CHAIN)
    net.tell("s", many(1))
    net.pass_time(CENSUS_EVERY)
    table = table_at(net, "i", "S")
    net.lost = lambda sent: "s" in (sent.source, sent.to)
    net.pass_time(FORGOTTEN_AFTER + 2 * CENSUS_EVERY)

    assert len(table) == 0
    assert held(table) < LARGE
