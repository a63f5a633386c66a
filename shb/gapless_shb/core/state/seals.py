"""The seals of tokens: which subscription a token is of, and that a broker has issued it (protocol: tokens).

A home knows its tokens by the secret of its own volume, so they stay good there whatever becomes of the network. In a
network with a secret a second seal follows the first one: every SHB of the network can check it.
"""

from __future__ import annotations

from gapless.core.ports import Roaming
from gapless.core.stream.ticks import ShbId
from gapless.core.wire.tokens import SEAL_BYTES, network_seal, same_seal, seal
from gapless.selectors.filters import leaving_out
from gapless.selectors.lexer import canonical
from gapless_shb.core.state.registry import SubscriptionRecord


class Seals:
    """The seals of one SHB."""

    def __init__(self, shb: ShbId, network: str, secret: bytes, roaming: Roaming | None) -> None:
        """`secret`: that of the own volume."""
        self.home = "" if roaming is None else shb
        """The home that the tokens of this SHB name; "" if it is in no network."""
        self._network = network
        self._secret = secret
        self._roaming = roaming

    def of(self, subscription: SubscriptionRecord) -> bytes:
        """Returns the seal for tokens of a subscription that is at home here."""
        sid, generation = subscription.sid, subscription.generation
        own = seal(self._secret, self._network, sid, generation)
        if self._roaming is None or not self._roaming.secret:
            return own
        selector = canonical(subscription.selector)
        return own + self._common(self._roaming.secret, self.home, sid, generation, subscription, selector)

    def check(self, subscription: SubscriptionRecord, home: ShbId, offered: bytes) -> bool:
        """Whether a token that names a subscription of this SHB was issued by it. `home`: that in the token.

        A token without a home may be older than this node's membership in its network.
        """
        own = seal(self._secret, self._network, subscription.sid, subscription.generation)
        return home in {"", self.home} and same_seal(own, offered[:SEAL_BYTES])

    def vouch(self, subscription: SubscriptionRecord, home: ShbId, sid: int, generation: int, offered: bytes) -> bool:
        """Whether another SHB has issued a token for a subscription with this client id, name and filter, which parses.

        `home`, `sid`, `generation`: those in the token.
        """
        if self._roaming is None or not self._roaming.secret or not home:
            return False
        secret, common = self._roaming.secret, offered[SEAL_BYTES:]
        # Brokers sealed the selector as it was written, before a blank made no difference.
        spellings = canonical(subscription.selector), subscription.selector
        expected = [self._common(secret, home, sid, generation, subscription, each) for each in spellings]
        return any(same_seal(each, common) for each in expected)

    def _common(
        self, secret: bytes, home: ShbId, sid: int, generation: int, of: SubscriptionRecord, selector: str
    ) -> bytes:
        selects = leaving_out(selector, of.not_from)
        what = (of.client_id, of.name, "in total order" if of.group else "", selects, *of.topics)
        return network_seal(secret, self._network, home, sid, generation, *what)
