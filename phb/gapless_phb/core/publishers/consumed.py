"""The positions of subscriptions that a publisher stores with its batches (protocol: publishers; TS6 to TS11).

A batch may carry the token of the input that it was made of. The pubend keeps the last token of each subscription with
the publisher, in the write that logs the batch. So after any crash both are there or neither, and whoever opens the
publisher next learns up to where the input is done with.

The key of a stored token is the publisher's name with the subscription, and its epoch is the publisher's: whoever was
fenced as a publisher cannot move it.

A transaction stores for a subscription alone, whoever its publisher is (protocol: transactions; TS12 to TS14). That is
another kind of key, which the subscription's home claims before anybody stores anything under it. Its epoch is that of
the claim: whoever consumes the subscription next claims it anew, and learns what was stored before.
"""

from __future__ import annotations

from collections.abc import Mapping

from gapless.core.network.facts import OpenRequest, Outcome, Verdict
from gapless.core.outbox import Outbox, Then
from gapless.core.ports import Delete, Set
from gapless.core.wire.tokens import (
    SEAL_BYTES,
    CheckpointToken,
    ConsumedToken,
    Tokens,
    find_token,
    is_before,
    merge_tokens,
    split_consumed,
    split_tokens,
)
from gapless.errors import InvalidTokenError, StaleTokenError
from gapless_phb.core import rows
from gapless_phb.core.rows import ConsumedRow

SUBSCRIPTIONS_MAX = 8
"""For how many subscriptions a publisher may store tokens."""
PUBENDS_MAX = 64
"""How many pubends a stored token may name."""
CHARACTERS_MAX = 4096
"""How many characters a stored token may have."""


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
    for token in after:
        _check_size(token)
    return tokens


def _check_size(token: CheckpointToken) -> None:
    """Raises InvalidTokenError if a token is too large to be stored with a batch."""
    if len(token.ticks) > PUBENDS_MAX:
        raise InvalidTokenError(
            f"the token would name {len(token.ticks)} pubends; a token with a batch may name {PUBENDS_MAX}"
        )
    # Only long names make the text of so few pubends long: for others it is not made.
    if sum(map(len, token.ticks)) > CHARACTERS_MAX // 4 and (characters := len(str(token))) > CHARACTERS_MAX:
        raise InvalidTokenError(
            f"the token would have {characters:,} characters; a token with a batch may have {CHARACTERS_MAX:,}"
        )


def _is_before(token: CheckpointToken, stored: Tokens) -> bool:
    """Whether a token stands before the stored one of its subscription."""
    before = find_token(stored, token)
    return before is not None and is_before(token, before)


class ClaimedPositions:
    """The positions of subscriptions that transactions store at one pubend.

    What is stored is in the write of the batch that it is stored with, so a row is durable with that batch or not at
    all. `_rows` has what is on its way to the disk, too.
    """

    def __init__(self, number: int, table: str, saved: Mapping[str, ConsumedRow], outbox: Outbox) -> None:
        self._number = number
        self._table = table
        self._rows = dict(saved)
        self._outbox = outbox

    def claim(self, request: OpenRequest, then: Then) -> Outcome:
        """The home of a subscription claims it: from now on nobody stores anything under an earlier epoch (TS13, TS14).

        Returns the answer, to be given by `then`: that is called when the claim is durable. Everything that was stored
        under an earlier epoch is durable before, and named by the answer.
        """
        row = self._rows.get(request.publisher)
        if row is not None and request.epoch < row.epoch:
            # The later claim may still be on its way to the disk, and must not be told before it is there.
            self._outbox.write((), then)
            return Outcome(Verdict.FENCED, "the subscription was claimed under a later epoch", epoch=row.epoch)
        token = "" if row is None else row.token
        self._set(request.publisher, ConsumedRow(request.epoch, request.instance, token), then)
        return Outcome(Verdict.OK, epoch=request.epoch, tokens=(token,) if token else ())

    def forget(self, key: str, then: Then) -> None:
        """A subscription is removed."""
        known = self._rows.pop(key, None)
        self._outbox.write([] if known is None else [Delete(self._table, rows.key(self._number, key))], then)

    def checked(self, raw: bytes) -> tuple[ConsumedToken, ...]:
        """Returns the tokens of a batch that are stored for subscriptions alone. Raises as `checked` of the module."""
        consumed = split_consumed(raw)
        for key, epoch, token in consumed:
            row = self._rows.get(key)
            if row is None or row.epoch != epoch:
                raise StaleTokenError("a subscription was claimed anew, for another consumer of it: nothing was logged")
            if row.seal != token.seal[:SEAL_BYTES].hex():
                raise InvalidTokenError("a token of the batch is not of the subscription for which it is stored")
            if row.token and _is_before(token, (CheckpointToken.parse(row.token),)):
                raise StaleTokenError("a token of the batch stands before the one that is stored: nothing was logged")
            _check_size(token)
        if len(consumed) > SUBSCRIPTIONS_MAX:
            raise InvalidTokenError(
                f"a transaction consumes {len(consumed)} subscriptions; with outputs the most is {SUBSCRIPTIONS_MAX}"
            )
        return consumed

    def store(self, consumed: tuple[ConsumedToken, ...]) -> None:
        """Stores tokens that were checked; they become durable with what else is written in this turn."""
        for key, epoch, token in consumed:
            row = self._rows[key]
            before = (CheckpointToken.parse(row.token),) if row.token else ()
            self._set(key, ConsumedRow(epoch, row.seal, str(merge_tokens(before, (token,))[-1])), None)

    def _set(self, key: str, row: ConsumedRow, then: Then | None) -> None:
        self._rows[key] = row
        self._outbox.write([Set(self._table, rows.key(self._number, key), rows.encode(row))], then)
