"""Errors for users: each text begins with a code, because Spark keeps only the text of an error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gapless.errors import SubscriptionMismatchError, SubscriptionNotFoundError, TokenAheadError, TokenMismatchError


@contextmanager
def coded(brokers: str, subscription: str, timeout: float) -> Iterator[None]:
    """Turns a broker's refusal, or its silence, into an error with a code and with what to do about it."""
    try:
        yield
    except TimeoutError as error:
        if str(error).startswith("GAPLESS_"):
            raise
        raise unreachable(brokers, timeout) from error
    except SubscriptionMismatchError as error:
        raise SubscriptionMismatchError(
            f"GAPLESS_MISMATCH subscription={subscription}: {error}. Topics and selector are fixed for its life: say "
            "them as they were, or take another name and another checkpoint."
        ) from error
    except SubscriptionNotFoundError as error:
        raise SubscriptionNotFoundError(
            f"GAPLESS_NOT_FOUND subscription={subscription}: {error}. If it was removed, or has gone with its broker's "
            "volume, another checkpoint with startingOffsets as the last offset of this one goes on from there."
        ) from error
    except TokenAheadError as error:
        raise TokenAheadError(
            f"GAPLESS_AHEAD subscription={subscription}: {error}. The broker has lost what the query has read: begin "
            "with a new checkpoint."
        ) from error
    except TokenMismatchError as error:
        raise TokenMismatchError(
            f"GAPLESS_WRONG_CHECKPOINT subscription={subscription}: {error}. Is the checkpoint another query's?"
        ) from error


def unreachable(brokers: str, timeout: float, why: str = "") -> TimeoutError:
    """Returns the error for brokers that did not answer in time; `why`: the last thing that one of them has said."""
    reason = f"; {why}" if why else ""
    return TimeoutError(f"GAPLESS_UNREACHABLE {brokers}: not within {timeout:g} s (brokerTimeout){reason}")
