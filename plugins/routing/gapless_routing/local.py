"""The router `local`: publisher-hosting and subscriber-hosting broker in one node, and nobody else.

There is no path to find and no link to spare, so nothing is filtered on the way: all knowledge is
delivered as the pubend said it, RAW, and the SHB matches it once. What is left of the contract
(protocol: contract) is who is counted: membership, and minima over all members.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from gapless.core.network.facts import (
    AskInterest,
    AskPubend,
    BrokerId,
    Enrol,
    Held,
    Hold,
    Interest,
    Know,
    OpenRequest,
    Outcome,
    Posted,
    Probe,
    Progress,
    Pub,
    PubendMeta,
    Released,
    Seen,
    Submit,
    SubmitOpen,
    Submitted,
    Verdict,
    Want,
)
from gapless.core.network.release import ReleaseTable
from gapless.core.network.seam import Effects, Router, RouterBase, RouterContext
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.ticks import PubendId, ShbId, Tick
from gapless.errors import ConfigurationError
from gapless.plugins import hookimpl


@dataclass(slots=True)
class LocalPubend:
    """A pubend of this node: who counts, and how far each is."""

    meta: PubendMeta
    members: dict[ShbId, Tick]
    """The durable membership, and from where each member counts."""
    stable: Tick
    releases: ReleaseTable = field(default_factory=ReleaseTable)

    def hand_over(self, meta: PubendMeta, members: Mapping[ShbId, Tick]) -> None:
        """The pubend as its PHB describes it now; every member must be heard again (C4)."""
        self.meta = meta
        self.members = dict(members)
        self.stable = max(self.stable, meta.stable)
        self.releases.replace_members(members)

    def enrol(self, shb: ShbId, at: Tick) -> None:
        """A membership is durable: nothing is released before this SHB was heard (T20)."""
        self.members[shb] = at
        self.releases.enrol(shb)

    def introduce(self, shb: ShbId) -> Effects:
        """What an SHB learns of the pubend: that it is counted there, or first that it asks to be."""
        at = self.members.get(shb)
        seen = Seen(replace(self.meta, stable=self.stable), at)
        return [seen] if at is not None else [seen, Enrol(self.meta.pubend, shb)]

    def report(self, progress: Progress) -> Effects:
        """A member's progress; told onwards when it moves a minimum, which never falls."""
        self.releases.report(progress)
        minima = self.releases.take_risen()
        return [] if minima is None else [Released(self.meta.pubend, *minima)]


class LocalRouter(RouterBase):
    """A `Router` between the roles of one node.

    All its state may vanish: it comes back with the calls that begin every router's life (C7).
    """

    name = "local"

    def __init__(self) -> None:
        self._pubends: dict[PubendId, LocalPubend] = {}
        self._broker: BrokerId = ""
        self._versions: dict[ShbId, int] = {}
        """The version of each SHB's interest, as far as it is known without a hole (T4)."""

    def start(self, now: int, context: RouterContext) -> Effects:
        """It is told who it is."""
        self._broker = context.broker
        return []

    # The local PHB core.

    def pubend(self, now: int, meta: PubendMeta, members: Mapping[ShbId, Tick]) -> Effects:
        """A pubend is open or sealed here, with this durable membership, which replaces the one before."""
        pubend = self._pubends.setdefault(meta.pubend, LocalPubend(meta, {}, meta.stable))
        pubend.hand_over(meta, members)
        return [effect for shb in self._versions for effect in pubend.introduce(shb)]

    def know(self, now: int, knowledge: Knowledge, reply_to: Hashable = None) -> Effects:
        """Facts go to the SHB as they are, whether it asked or not."""
        pubend = self._pubends.get(knowledge.pubend)
        if pubend is not None:
            pubend.stable = max(pubend.stable, knowledge.hi)
        return [Know(knowledge)] if self._versions else []

    def probe(self, now: int, pubend: PubendId, upto: Tick) -> Effects:
        """Progress up to here is overdue."""
        return [Probe(pubend, upto)]

    def enrolled(self, now: int, pubend: PubendId, shb: ShbId, at: Tick) -> Effects:
        """The membership is durable: from now on the SHB counts, and nothing is released unheard of it."""
        known = self._pubends.get(pubend)
        if known is None:
            return []
        known.enrol(shb, at)
        return known.introduce(shb)

    def held(self, now: int, held: Held) -> Effects:
        """A row of holds is durable."""
        return [held]

    def submitted(self, now: int, reply_to: Hashable, pubend: PubendId, outcome: Outcome) -> Effects:
        """How an opening or a batch ended."""
        return [Submitted(reply_to, pubend, outcome)]

    # The local SHB core.

    def interest(self, now: int, interest: Interest) -> Effects:
        """Only its version matters here: a hole in it is asked about, and the whole of it is answered.

        A change, or the version repeated, asks once more to be counted where that may have been lost.
        """
        shb, known = interest.shb, self._versions.get(interest.shb)
        if interest.full:
            self._versions[shb] = max(interest.version, known or 0)
            return [effect for pubend in self._pubends.values() for effect in pubend.introduce(shb)]
        if known is None or (interest.base != known and interest.version > known):
            return [AskInterest()]
        self._versions[shb] = max(interest.version, known)
        return [Enrol(name, shb) for name, pubend in self._pubends.items() if shb not in pubend.members]

    def hold(self, now: int, row: Hold) -> Effects:
        """The SHB needs more kept than it reported."""
        return [row] if row.pubend in self._pubends else []

    def want(self, now: int, want: Want) -> Effects:
        """The pubend itself answers."""
        return [AskPubend(want, want.shb)] if want.pubend in self._pubends else []

    def progress(self, now: int, progress: Progress) -> Effects:
        """The SHB's durable progress."""
        pubend = self._pubends.get(progress.pubend)
        return [] if pubend is None else pubend.report(progress)

    # Local clients.

    def open(self, now: int, request: OpenRequest, reply_to: Hashable) -> Effects:
        """The PHB of this node decides which pubend it is."""
        if not self._pubends:
            return [self._nothing_here(reply_to, request.pubend)]
        return [SubmitOpen(request, reply_to)]

    def place(self, now: int, pub: Pub, reply_to: Hashable) -> Effects:
        """The PHB of this node logs it, or says why not."""
        if not self._pubends:
            return [self._nothing_here(reply_to, pub.pubend)]
        return [Submit(pub, reply_to)]

    # Mail.

    def post(self, now: int, to_node: BrokerId, role: str, data: bytes) -> Effects:
        """There is no other node that mail could go to."""
        return [Posted(to_node, role, data)] if to_node == self._broker else []

    def _nothing_here(self, reply_to: Hashable, pubend: PubendId) -> Submitted:
        return Submitted(reply_to, pubend, Outcome(Verdict.RETRY, "no pubend is open at this broker"))


@hookimpl
def open_routing(options: Mapping[str, Any]) -> Router:
    """A fresh router; it has no options. Raises ConfigurationError when it is given one."""
    if options:
        raise ConfigurationError(f"the router 'local' has no option {min(options)!r}")
    return LocalRouter()
