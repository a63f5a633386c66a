from __future__ import annotations

from itertools import count
from math import prod

from gapless_sim.workloads.publications import (
    FLAGS,
    NUMBERS,
    PRICES,
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


def test_publications_have_headers() -> None:
    publications = generator(Choices(1))

    assert {name for _ in range(50) for name in publications.write().headers} == {"priority", "type", "correlation_id"}
