"""Spark offsets are checkpoint tokens in another spelling: canonical JSON, and back without loss.

    {"$token": "gl1.…", "<pubend>": <tick>, …}

Spark compares offsets as strings, so there is exactly one text for a position: keys in order, nothing between them.
What a token says beside its ticks, the network and the subscription it was issued for, stands under `$token`, as the
text of that token without a tick. Keys that begin with `$` are ours; a pubend's name never does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from gapless.core.stream.ticks import FOREVER, PubendId, Tick
from gapless.core.wire.tokens import CheckpointToken
from gapless.errors import InvalidTokenError

ORIGIN = "$token"


def offset_of(token: CheckpointToken) -> str:
    """The offset of a position."""
    origin = CheckpointToken(token.network, {}, token.sid, token.generation, token.seal)
    return json.dumps({ORIGIN: str(origin), **token.ticks}, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def token_of(offset: str | Mapping[str, object]) -> CheckpointToken:
    """The position of an offset, as text or as what JSON makes of it. Raises InvalidTokenError."""
    try:
        found = json.loads(offset) if isinstance(offset, str) else dict(offset)
    except ValueError as error:
        raise InvalidTokenError(f"an offset is a JSON object, not {offset!r}") from error
    if not isinstance(found, dict) or not isinstance(found.get(ORIGIN), str):
        raise InvalidTokenError(f"an offset is a JSON object with a text under {ORIGIN!r}, not {offset!r}")
    origin = CheckpointToken.parse(found[ORIGIN])
    ticks: dict[PubendId, Tick] = {}
    for pubend, tick in found.items():
        if pubend.startswith("$"):
            continue
        if type(tick) is not int or not 0 <= tick <= FOREVER:
            raise InvalidTokenError(f"the offset of {pubend!r} is a tick, not {tick!r}")
        ticks[pubend] = tick
    return origin.advance(ticks)


def carried_on(before: CheckpointToken, later: CheckpointToken) -> CheckpointToken:
    """The later position, which drops no pubend that the one before names: one that is retired keeps its tick."""
    kept = {pubend: tick for pubend, tick in before.ticks.items() if pubend not in later.ticks}
    return later.advance(kept) if kept else later


def went_back(start: CheckpointToken, end: CheckpointToken) -> dict[PubendId, tuple[Tick, Tick]]:
    """The pubends on which an end is before its start, and both. Spark itself plans such a range without a word."""
    return {
        pubend: (tick, end.ticks[pubend])
        for pubend, tick in start.ticks.items()
        if pubend in end.ticks and end.ticks[pubend] < tick
    }
