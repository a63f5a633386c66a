"""Converts checkpoint tokens to Spark's offsets, canonical JSON, and back without loss.

    {"$token": "gl1.…", "<pubend>": <tick>, …}

Spark compares offsets as strings, so each position has exactly one text: sorted keys, no spaces. The rest of a token,
the network and the subscription for which it was issued, stands under `$token`, as the text of that token without
ticks. Keys that begin with `$` are ours; the name of a pubend never does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from gapless.core.stream.ticks import FOREVER, PubendId, Tick
from gapless.core.wire.tokens import CheckpointToken
from gapless.errors import InvalidTokenError

ORIGIN = "$token"


def offset_of(token: CheckpointToken) -> str:
    """Returns the offset of a position."""
    origin = CheckpointToken(token.network, {}, token.sid, token.generation, token.seal, token.home)
    return json.dumps({ORIGIN: str(origin), **token.ticks}, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def token_of(offset: str | Mapping[str, object]) -> CheckpointToken:
    """Returns the position of an offset, given as text or as parsed JSON. Raises InvalidTokenError."""
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
    """Returns the later position, with every pubend of the one before: a retired pubend keeps its tick."""
    kept = {pubend: tick for pubend, tick in before.ticks.items() if pubend not in later.ticks}
    return later.advance(kept) if kept else later


def went_back(start: CheckpointToken, end: CheckpointToken) -> dict[PubendId, tuple[Tick, Tick]]:
    """Returns the pubends whose end is before their start, with both ticks.

    Spark itself plans such a range silently.
    """
    return {
        pubend: (tick, end.ticks[pubend])
        for pubend, tick in start.ticks.items()
        if pubend in end.ticks and end.ticks[pubend] < tick
    }
