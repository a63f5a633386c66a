"""The durable rows come back as they were written."""

from __future__ import annotations

from gapless.core.ports import Set
from gapless_phb.core import rows
from unit.gapless_phb.harness import TABLES
from unit.rig import disk_with


def saved(*operations: Set) -> list[rows.SavedPubend]:
    return rows.saved_pubends(disk_with(*operations), TABLES)


def test_nothing_is_saved_on_a_new_volume() -> None:
    assert saved() == []


def test_a_new_pubend_has_nothing_but_itself() -> None:
    row = rows.PubendRow("default@1", 5, ("#",))

    (one,) = saved(Set(TABLES.pubends, rows.key(0), rows.encode(row)))

    assert one == rows.SavedPubend(0, row)


def test_everything_of_a_pubend_comes_back_and_nothing_of_its_neighbours() -> None:
    row = rows.PubendRow("default@1", 5, ("a", "b.#"), ((1, 2), (7, 9)))
    publisher = rows.PublisherRow(3, "i", 2, 99, 41, 1000, b"recent")
    checkpoint = rows.Checkpoint(1000, 12, [(0, 0), (1000, 555)])
    values: dict[tuple[str, str], rows.Row] = {
        (TABLES.pubends, ""): row,
        (TABLES.reservations, ""): 2000,
        (TABLES.lost, ""): 500,
        (TABLES.ages, ""): 1500,
        (TABLES.clocks, ""): rows.AgeRow(1500, "boot", 7, 3, 99),
        (TABLES.members, "shb"): 7,
        (TABLES.holds, "shb"): rows.Holds(4, {1: 10, 2: 20}),
        (TABLES.publishers, "añn"): publisher,
        (TABLES.checkpoints, ""): checkpoint,
    }
    mine = [Set(table, rows.key(258, name), rows.encode(value)) for (table, name), value in values.items()]
    other = rows.encode(rows.PubendRow("other@1", 1, ("#",)))

    found = saved(
        *mine, Set(TABLES.pubends, rows.key(1), other), Set(TABLES.reservations, rows.key(257), rows.encode(9))
    )

    assert [one.number for one in found] == [1, 258]
    assert found[0].reserved == 0
    assert found[1] == rows.SavedPubend(
        258,
        row,
        2000,
        500,
        {"shb": 7},
        {"shb": rows.Holds(4, {1: 10, 2: 20})},
        {"añn": publisher},
        checkpoint,
        age=rows.AgeRow(1500, "boot", 7, 3, 99),
    )


def test_what_an_earlier_version_has_written_since_is_newer_than_what_it_does_not_know() -> None:
    """It knows the tick alone, and leaves the other row as it is."""
    row = Set(TABLES.pubends, rows.key(1), rows.encode(rows.PubendRow("p@1", 5, ("#",))))
    clock = Set(TABLES.clocks, rows.key(1), rows.encode(rows.AgeRow(1500, "boot", 7)))

    [before] = saved(row, clock, Set(TABLES.ages, rows.key(1), rows.encode(1500)))
    [after] = saved(row, clock, Set(TABLES.ages, rows.key(1), rows.encode(1501)))
    [without] = saved(row, Set(TABLES.ages, rows.key(1), rows.encode(1501)))

    assert before.age == rows.AgeRow(1500, "boot", 7)
    assert after.age == without.age == rows.AgeRow(1501)
