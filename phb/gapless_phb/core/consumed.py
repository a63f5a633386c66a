"""The positions of subscriptions that a publisher stores with its batches (protocol: publishers; TS6 to TS11).

A batch may carry the token of the input that it was made of. The pubend keeps the last token of each subscription with
the publisher, in the write that logs the batch. So after any crash both are there or neither, and whoever opens the
publisher next learns up to where the input is done with.

The key of a stored token is the publisher's name with the subscription, and its epoch is the publisher's: whoever was
fenced as a publisher cannot move it. A subscription alone would be another kind of key, with an epoch of its own; its
rows would stand in a table beside the publishers', and `checked` would look at them, too.
"""

from __future__ import annotations

from gapless.core.wire.tokens import CheckpointToken, Tokens, find_token, merge_tokens, split_tokens
from gapless.errors import InvalidTokenError, StaleTokenError

SUBSCRIPTIONS_MAX = 8
"""For how many subscriptions a publisher may store tokens."""
PUBENDS_MAX = 64
"""How many pubends a stored token may name."""


def checked(raw: bytes, stored: Tokens) -> Tokens:
    """Returns the tokens of a batch.

    `stored`: the tokens of its publisher, with those that are on their way to the disk. Raises StaleTokenError if one
    of the batch stands before the stored one of its subscription, and InvalidTokenError if they cannot be stored.
    """
    tokens = split_tokens(raw)
    for token in tokens:
        if _is_before(token, stored):
            raise StaleTokenError("a token of the batch stands before the one that is stored: nothing was logged")
    after = merge_tokens(stored, tokens)
    if len(after) > SUBSCRIPTIONS_MAX:
        raise InvalidTokenError(
            f"with these tokens the publisher would keep those of {len(after)} subscriptions; the most is"
            f" {SUBSCRIPTIONS_MAX}: use another publisher, with another name"
        )
    named = max((len(token.ticks) for token in after), default=0)
    if named > PUBENDS_MAX:
        raise InvalidTokenError(f"the token would name {named} pubends; a token with a batch may name {PUBENDS_MAX}")
    return tokens


def _is_before(token: CheckpointToken, stored: Tokens) -> bool:
    """Whether a token stands before the stored one of its subscription, in a pubend that both name."""
    before = find_token(stored, token)
    if before is None:
        return False
    ticks = before.ticks
    return any(tick < ticks.get(pubend, 0) for pubend, tick in token.ticks.items())
