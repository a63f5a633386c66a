"""A cache of what passed by: bounded, and never wrong."""

from __future__ import annotations

from gapless.core.stream.stamps import RAW
from gapless_sim.hostile.cache import CACHED_EVENTS, Cache
from unit.gapless_sim.hostile.parts import P, knowledge


def test_it_answers_what_passed_by_and_leaves_the_rest() -> None:
    cache = Cache(P)
    cache.remember(knowledge(10, 20, "a"))

    (reply,), rest = cache.answer(((5, 25),), RAW)

    assert (reply.lo, reply.hi, reply.reply, len(reply.data)) == (10, 20, True, 1)
    assert rest == ((5, 10), (20, 25))


def test_it_is_bounded_and_forgets_events_with_the_silence_around_them() -> None:
    cache = Cache(P)
    for number in range(CACHED_EVENTS + 10):
        cache.remember(knowledge(10 * number, 10 * number + 10, "a"))

    replies, rest = cache.answer(((0, 10 * CACHED_EVENTS + 100),), RAW)

    held = sum(len(reply.data) for reply in replies)
    assert CACHED_EVENTS // 3 < held <= CACHED_EVENTS
    assert rest == ((0, replies[0].lo),), "what it has forgotten it leaves to others"


def test_it_begins_anew_when_it_is_contradicted() -> None:
    cache = Cache(P)
    cache.remember(knowledge(10, 20, "a"))
    cache.remember(knowledge(10, 20))

    assert cache.answer(((10, 20),), RAW) == ([], ((10, 20),))
