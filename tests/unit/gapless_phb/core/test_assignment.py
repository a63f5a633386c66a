"""Which pubends there are, and who belongs where."""

from __future__ import annotations

from collections import Counter

import pytest

from gapless.core.stream.ticks import name_of
from gapless_phb.core.assignment import (
    assign,
    is_out_of_reach,
    merged_topics,
    options_by_name,
    pubend_id,
)
from gapless_phb.core.settings import PubendSettings

WALL = 1_790_000_000_123
PUBENDS = (
    PubendSettings("flights", topics=("flights.#",)),
    PubendSettings("audit", publishers=("audit-*", "boss")),
    PubendSettings("trains", topics=("trains.*", "stations")),
    PubendSettings("rest", topics=("#",), publishers=("web*", "*"), count=4),
)


def test_an_identity_is_the_name_and_an_epoch() -> None:
    identity = pubend_id("default", WALL, "storage-1")

    assert identity == pubend_id("default", WALL + 800, "storage-1")
    assert name_of(identity) == "default"
    assert len(identity) <= len("default@") + 11
    assert identity.partition("@")[2].isalnum()


def test_another_second_or_another_volume_is_another_pubend() -> None:
    identities = {
        pubend_id("default", wall, storage) for wall in (WALL, WALL + 1000) for storage in ("storage-1", "storage-2")
    }

    assert len(identities) == 4


@pytest.mark.parametrize(
    ("publisher", "topic", "pubend"),
    [
        ("ann", "flights.jfk", "flights"),
        ("boss", "flights.jfk", "flights"),
        ("boss", "trains.x", "audit"),
        ("audit-7", None, "audit"),
        ("ann", "trains.x", "trains"),
        ("ann", "stations", "trains"),
    ],
)
def test_the_first_that_takes_publisher_and_topic(publisher: str, topic: str | None, pubend: str) -> None:
    assert assign(PUBENDS, publisher, topic) == pubend


def test_a_publisher_without_a_topic_goes_where_every_topic_goes() -> None:
    assert (assign(PUBENDS, "ann", None) or "").startswith("rest-")
    assert assign(PUBENDS[:1], "ann", None) is None
    assert assign(PUBENDS[:1], "ann", "ships") is None


def test_several_share_publishers_by_hash_evenly_and_for_ever() -> None:
    found = Counter(assign(PUBENDS, f"p{number}", "ships") for number in range(1000))

    assert sorted(map(str, found)) == ["rest-0", "rest-1", "rest-2", "rest-3"]
    assert min(found.values()) > 200
    assert assign(PUBENDS, "p1", "ships") == assign(PUBENDS, "p1", "other") == "rest-1"


def test_options_by_name() -> None:
    names = list(options_by_name(PUBENDS))

    assert names == ["flights", "audit", "trains", "rest-0", "rest-1", "rest-2", "rest-3"]


@pytest.mark.parametrize(
    ("before", "configured", "merged"),
    [
        ((), ("a", "b"), ("a", "b")),
        (("a", "b"), ("b", "c"), ("a", "b", "c")),
        (("#",), ("a",), ("#",)),
        (("a",), ("#", "b"), ("#",)),
    ],
)
def test_a_pubend_carries_whatever_it_ever_took(
    before: tuple[str, ...], configured: tuple[str, ...], merged: tuple[str, ...]
) -> None:
    assert merged_topics(before, configured) == merged


@pytest.mark.parametrize(
    ("earlier", "later", "out_of_reach"),
    [
        (PubendSettings("a"), PubendSettings("b"), True),
        (PubendSettings("a"), PubendSettings("b", topics=("t.#", "u")), True),
        (PubendSettings("a"), PubendSettings("b", publishers=("web-*",)), True),
        (PubendSettings("a", topics=("t.#",)), PubendSettings("b"), False),
        (PubendSettings("a", topics=("t.#",)), PubendSettings("b", topics=("t", "t.u", "t.*.v", "t.u.#")), True),
        (PubendSettings("a", topics=("t.#",)), PubendSettings("b", topics=("t.u", "v")), False),
        (PubendSettings("a", topics=("t.*",)), PubendSettings("b", topics=("t.u",)), True),
        (PubendSettings("a", topics=("t.*",)), PubendSettings("b", topics=("t.u.v",)), False),
        (PubendSettings("a", topics=("t.*",)), PubendSettings("b", topics=("t.#",)), False),
        (PubendSettings("a", topics=("t.u",)), PubendSettings("b", topics=("t.*",)), False),
        (PubendSettings("a", publishers=("web*",)), PubendSettings("b", publishers=("web-7", "web-*")), True),
        (PubendSettings("a", publishers=("web-7",)), PubendSettings("b", publishers=("web*",)), False),
        # A publisher without a topic of its own comes to where its name is listed.
        (PubendSettings("a", topics=("t",)), PubendSettings("b", topics=("t",), publishers=("web",)), False),
    ],
)
def test_a_narrow_entry_behind_a_wide_one_gets_nothing(
    earlier: PubendSettings, later: PubendSettings, *, out_of_reach: bool
) -> None:
    assert is_out_of_reach(later, earlier) is out_of_reach
