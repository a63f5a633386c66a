"""Claims of subscriptions at pubends where transactions store their positions (protocol: transactions; TS12 to TS14).

A transaction that has outputs stores what it has consumed with them, at the pubend of the outputs. So where such a
subscription stands is known there, and only later here. Its home claims it at each such pubend:

- before the first transaction stores anything there: the pubend is *enlisted*, durably here, and then claimed;
- whenever anybody attaches to the subscription: the answers name what was stored, and nothing is handed out before.

A claim carries an epoch of the commit record, and fences those of lower epochs: who was there before stores nothing any
more. The home counts them, so a claim that comes late cannot fence one that was made after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import msgspec

from gapless.core.network.facts import Ending, OpenRequest, RoleAsks, SubmitOpen, Submitted, Verdict
from gapless.core.ports import Delete, Operation, RecoveryReader, Set
from gapless.core.principals import NOBODY
from gapless.core.stream.ticks import PubendId, ShbId, Tick
from gapless.core.wire.tokens import SEAL_BYTES, CheckpointToken
from gapless.errors import InvalidTokenError
from gapless_shb.core.hosting import Hosting
from gapless_shb.core.state.registry import SubscriptionRecord

FORGETTING: Final = "shb/forgetting"
"""Key of a removed subscription → the pubends that have not forgotten it yet."""
ROLE: Final = "shb"

Claimed: TypeAlias = "Callable[[dict[PubendId, Tick], str, int, int], None]"
"""(the highest ticks that are stored, why it could not be claimed or "", now, wall)."""


@dataclass(slots=True)
class Round:
    """One claim, at several pubends."""

    left: dict[PubendId, None]
    then: Claimed
    ticks: dict[PubendId, Tick] = field(default_factory=dict)


@dataclass(slots=True)
class Asked:
    """A question to a pubend that has no answer yet."""

    request: OpenRequest
    round: Round | None
    """None: it is to forget."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[PubendId, ...]).decode


def key_of(shb: ShbId, subscription: SubscriptionRecord) -> str:
    """Returns how pubends know a subscription of an SHB."""
    return f"{shb}/{subscription.sid}/{subscription.generation}"


class Claims:
    """All claims of an SHB that are under way."""

    def __init__(self, hosting: Hosting, reader: RecoveryReader) -> None:
        """Restores what is to be forgotten."""
        self._hosting = hosting
        self._numbers = 0
        self._asked: dict[int, Asked] = {}
        self._forgetting = {key.decode(): _decode(value) for key, value in reader.scan(FORGETTING)}

    def claim(self, subscription: SubscriptionRecord, epoch: int, pubends: Iterable[PubendId], then: Claimed) -> None:
        """Claims a subscription. The epoch is durable."""
        claim = Round(dict.fromkeys(pubends), then)
        seal = self._hosting.seals.of(subscription)[:SEAL_BYTES].hex()
        for pubend in claim.left:
            self._ask(self._request(key_of(self._hosting.shb, subscription), seal, epoch, pubend, None), claim)

    def forget(self, subscription: SubscriptionRecord, pubends: Sequence[PubendId]) -> list[Operation]:
        """A subscription is removed: these pubends are told, until they have answered. Returns what to write."""
        key = key_of(self._hosting.shb, subscription)
        self._forgetting[key] = tuple(pubends)
        self._hosting.outbox.write((), lambda _now, _wall: self._ask_to_forget(key))
        return [Set(FORGETTING, key.encode(), _encode(self._forgetting[key]))]

    def start(self) -> None:
        """What was to be forgotten in a former life still is."""
        for key in self._forgetting:
            self._ask_to_forget(key)

    def on_beat(self) -> None:
        """A few seconds have passed: repeats what has no answer."""
        asked, self._asked = self._asked, {}
        for question in asked.values():
            if question.round is not None:
                self._ask(question.request, question.round)
        self.start()

    def on_submitted(self, placed: Submitted, now: int, wall: int) -> None:
        """A pubend has answered, or could not be asked."""
        assert isinstance(placed.reply_to, RoleAsks)
        question = self._asked.pop(placed.reply_to.number, None)
        if question is None:
            return
        request, claim, outcome = question.request, question.round, placed.outcome
        if claim is None:
            if outcome.verdict in {Verdict.OK, Verdict.REJECTED}:
                self._forgotten(request.publisher, request.pubend)
            return
        ticks: dict[PubendId, Tick] = {}
        reason = "" if outcome.verdict is Verdict.OK else outcome.reason or "it does not answer"
        try:
            for token in map(CheckpointToken.parse, outcome.tokens):
                ticks.update({pubend: max(tick, ticks.get(pubend, 0)) for pubend, tick in token.ticks.items()})
        except InvalidTokenError as error:
            reason = str(error)
        if reason:
            # A claim is whole or none: what the other pubends answer does not matter any more.
            self._asked = {number: other for number, other in self._asked.items() if other.round is not claim}
            claim.then({}, f"pubend {request.pubend}, where transactions store its position: {reason}", now, wall)
            return
        claim.ticks.update({pubend: max(tick, claim.ticks.get(pubend, 0)) for pubend, tick in ticks.items()})
        del claim.left[request.pubend]
        if not claim.left:
            claim.then(claim.ticks, "", now, wall)

    # How it is done.

    def _request(self, key: str, seal: str, epoch: int, pubend: PubendId, ending: Ending | None) -> OpenRequest:
        stream = self._hosting.streams.get(pubend)
        node = "" if stream is None else stream.meta.broker  # it alone can say that the pubend is gone
        return OpenRequest(key, seal, 0, None, pubend, epoch, ending, claims=True, principal=NOBODY.sent, node=node)

    def _ask(self, request: OpenRequest, claim: Round | None) -> None:
        self._numbers += 1
        self._asked[self._numbers] = Asked(request, claim)
        self._hosting.outbox.emit(SubmitOpen(request, RoleAsks(ROLE, self._numbers)))

    def _ask_to_forget(self, key: str) -> None:
        for pubend in self._forgetting.get(key, ()):
            self._ask(self._request(key, "", 0, pubend, Ending.CLOSED), None)

    def _forgotten(self, key: str, pubend: PubendId) -> None:
        left = tuple(other for other in self._forgetting.get(key, ()) if other != pubend)
        row = key.encode()
        if left:
            self._forgetting[key] = left
            self._hosting.outbox.write([Set(FORGETTING, row, _encode(left))])
        elif self._forgetting.pop(key, None) is not None:
            self._hosting.outbox.write([Delete(FORGETTING, row)])
