from __future__ import annotations

from itertools import count
from math import prod

from gapless.selectors.topics import check_topic
from gapless_sim.workloads.publications import (
    FLAGS,
    NUMBERS,
    PRICES,
    TOPICS,
    TREES,
    PublicationGenerator,
    properties_of,
)
from gapless_sim.world.choices import Choices

ALL = prod(map(len, (NUMBERS, FLAGS, PRICES, TREES)))


def generator(choices: Choices) -> PublicationGenerator:
    return PublicationGenerator(choices.stream("letters"), choices.stream("headers"), count(1).__next__)


def test_no_key_occurs_twice() -> None:
    publications = generator(Choices(1))
    keys = [publications.write().key for _ in range(50)] + [publications.write_bad().key]

    assert len(set(keys)) == 51


def test_every_number_has_its_own_properties() -> None:
    assert len({tuple(properties_of(number).items()) for number in range(ALL)}) == ALL


def test_the_benign_publication_has_all_properties_and_no_padding() -> None:
    publication = generator(Choices(1, {})).write()

    assert (publication.topic, set(publication.properties), publication.padding) == (
        "a",
        {"k", "flag", "price", "tree"},
        0,
    )
    assert publication.headers == {}


def test_publications_have_headers() -> None:
    publications = generator(Choices(1))

    assert {name for _ in range(50) for name in publications.write().headers} == {"priority", "type", "correlation_id"}


def test_topics_may_be_published_to() -> None:
    for topic in TOPICS:
        check_topic(topic)
