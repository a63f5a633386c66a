"""What a user is told: a code at the beginning, and what to do at the end."""

from __future__ import annotations

import pytest

from gapless.errors import (
    GaplessError,
    SubscriptionMismatchError,
    SubscriptionNotFoundError,
    TokenAheadError,
    TokenMismatchError,
)
from gapless_spark.telling import coded, unreachable


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (TimeoutError("not done"), r"^GAPLESS_UNREACHABLE gapless://h:1: not within 5 s \(brokerTimeout\)$"),
        (SubscriptionMismatchError("other topics"), "^GAPLESS_MISMATCH subscription=s: other topics. .*another name"),
        (SubscriptionNotFoundError("gone"), "^GAPLESS_NOT_FOUND subscription=s: gone. .*startingOffsets"),
        (TokenAheadError("lost"), "^GAPLESS_AHEAD subscription=s: lost. .*new checkpoint"),
        (TokenMismatchError("another"), "^GAPLESS_WRONG_CHECKPOINT subscription=s: another. Is the checkpoint"),
    ],
)
def test_an_error_keeps_its_class_and_gets_a_code(error: Exception, text: str) -> None:
    with pytest.raises(type(error), match=text) as raised, coded("gapless://h:1", "s", 5.0):
        raise error

    assert type(raised.value) is type(error)


def test_what_has_a_code_and_what_needs_none_is_left_alone() -> None:
    for error in (unreachable("gapless://h:1", 3.0), GaplessError("other")):
        with pytest.raises(type(error)) as raised, coded("gapless://elsewhere:1", "s", 5.0):
            raise error
        assert raised.value is error
