from __future__ import annotations

import msgspec

from gapless.core.ports import Set
from gapless.core.wire.messages import InUse, StartAt, Subscribe
from gapless_sim.recording.expired_subscriptions import Lapses

ROW = Set("shb/lapsed", b"key", msgspec.msgpack.encode([7, "c", "one", 0, {}, {}]))


def asked(start: StartAt) -> Subscribe:
    return Subscribe(1, "one", ("#",), "", start, 0, [], 0, 0, b"", [], InUse.ERROR, 1, 1)


def test_one_that_lapsed_is_known_by_its_id_and_once_by_its_name() -> None:
    known = Lapses()

    assert known.note("node1", [ROW]) == [7]
    assert (known.has("node1", 7), known.has("node2", 7)) == (True, False)
    assert [known.take("node1", "c", "one", sid) for sid in (8, 9)] == [True, False]


def test_one_that_is_given_to_somebody_has_not_lapsed_after_all() -> None:
    known = Lapses()
    known.note("node1", [ROW])
    known.given("node1", 7)

    assert not known.has("node1", 7)


def test_another_disk_knows_nothing() -> None:
    known = Lapses()
    known.note("node1", [ROW])
    known.forget("node1")

    assert (known.has("node1", 7), known.take("node1", "c", "one", 8)) == (False, False)


def test_a_token_moves_what_is_made_anew() -> None:
    known = Lapses()
    known.received("node1", asked(StartAt.LATEST))
    assert not known.is_moved("node1", "one")
    known.received("node1", asked(StartAt.TOKEN))
    assert known.is_moved("node1", "one")
    known.note("node1", [ROW])
    assert not known.is_moved("node1", "one")


def test_also_if_that_lapses_before_anybody_has_had_it() -> None:
    """Hostile 4101, with leases in every run: the answer to the request with the token was lost."""
    known = Lapses()
    known.note("node1", [ROW])
    known.received("node1", asked(StartAt.TOKEN))
    known.note("node1", [msgspec.structs.replace(ROW, value=msgspec.msgpack.encode([8, "c", "one", 0, {}, {}]))])

    assert known.is_moved("node1", "one")


def test_who_reads_late_that_it_has_what_lapsed_leaves_the_name_to_the_next() -> None:
    """Local 700843: the answer was read after the lease had run out, and took for its own what the next one resumed."""
    known = Lapses()
    known.note("node1", [ROW])

    assert [known.take("node1", "c", "one", sid) for sid in (7, 8)] == [False, True]


def test_what_was_made_anew_and_lapsed_before_anybody_read_of_it_was_resumed() -> None:
    known = Lapses()
    known.note("node1", [ROW])
    known.note("node1", [msgspec.structs.replace(ROW, value=msgspec.msgpack.encode([8, "c", "one", 0, {}, {}]))])

    assert [known.take("node1", "c", "one", sid) for sid in (8, 7)] == [True, False]
