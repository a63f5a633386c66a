from __future__ import annotations

from math import prod

from gapless.selectors.topics import check_topic
from gapless_sim.choices import Choices
from gapless_sim.workloads.letters import FLAGS, NUMBERS, PRICES, TOPICS, TREES, Letters, properties_of

ALL = prod(map(len, (NUMBERS, FLAGS, PRICES, TREES)))


def test_no_key_occurs_twice() -> None:
    letters = Letters(Choices(1).stream("letters"), Choices(1).stream("headers"))
    keys = [letters.write().key for _ in range(50)] + [letters.write_bad().key]

    assert len(set(keys)) == 51


def test_every_number_has_its_own_properties() -> None:
    assert len({tuple(properties_of(number).items()) for number in range(ALL)}) == ALL


def test_the_benign_letter_has_all_properties_and_no_padding() -> None:
    letter = Letters(Choices(1, {}).stream("letters"), Choices(1, {}).stream("headers")).write()

    assert (letter.topic, set(letter.properties), letter.padding) == ("a", {"k", "flag", "price", "tree"}, 0)
    assert letter.headers == {}


def test_letters_have_headers() -> None:
    letters = Letters(Choices(1).stream("letters"), Choices(1).stream("headers"))

    assert {name for _ in range(50) for name in letters.write().headers} == {"priority", "type", "correlation_id"}


def test_topics_may_be_published_to() -> None:
    for topic in TOPICS:
        check_topic(topic)
