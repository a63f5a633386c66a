"""The router `local`: publisher-hosting and subscriber-hosting broker in one node, and nobody else.

There is no path to find and no link to spare, so nothing is filtered on the way: all knowledge is
delivered as the pubend said it, RAW, and the SHB matches it once. What is left of the contract
(protocol: contract) is who is counted: membership, and minima over all members.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from gapless.core.gauges import Family, Gauge
from gapless.core.network.facts import (
    AskInterest,
    AskPubend,
    BrokerId,
    Enrol,
    Enrolled,
    Held,
    Hold,
    Interest,
    Know,
    Opened,
    Outcome,
    Post,
    Posted,
    Probe,
    Progress,
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
from gapless.core.stream.ticks import PubendId, ShbId, Tick
from gapless.errors import ConfigurationError
from gapless.plugins import hookimpl

MEMBERS = Family("gapless_router_members", "SHBs that are counted at the pubend.", ("pubend",))


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
        seen = Seen(replace(self.meta, stable=self.stable, reach=self.stable), at)
        return [seen] if at is not None else [seen, Enrol(self.meta.pubend, shb)]

    def report(self, progress: Progress) -> Effects:
        """A member's progress; told onwards when it moves a minimum, which never falls."""
        self.releases.report(progress)
        minima = self.releases.take_risen()
        return () if minima is None else [Released(self.meta.pubend, *minima)]


class LocalRouter(RouterBase):
    """A `Router` between the roles of one node.

    All its state may vanish: it comes back with the calls that begin every router's life (C7).
    """

    name = "local"
    networks = "one"

    def __init__(self) -> None:
        self._pubends: dict[PubendId, LocalPubend] = {}
        self._broker: BrokerId = ""
        self._versions: dict[ShbId, int] = {}
        """The version of each SHB's interest, as far as it is known without a hole (T4)."""

    def gauges(self) -> Iterator[Gauge]:
        """Who is counted."""
        for name, pubend in self._pubends.items():
            yield MEMBERS.gauge(len(pubend.members), name)

    def start(self, now: int, context: RouterContext) -> Effects:
        """It is told who it is."""
        self._broker = context.broker
        return ()

    # The local PHB core.

    def pubend(self, now: int, opened: Opened) -> Effects:
        """A pubend is open or read-only here, with this durable membership, which replaces the one before."""
        meta = opened.meta
        pubend = self._pubends.setdefault(meta.pubend, LocalPubend(meta, {}, meta.stable))
        pubend.hand_over(meta, opened.members)
        return [effect for shb in self._versions for effect in pubend.introduce(shb)]

    def know(self, now: int, said: Know) -> Effects:
        """Facts go to the SHB as they are, whether it asked or not."""
        knowledge = said.knowledge
        pubend = self._pubends.get(knowledge.pubend)
        if pubend is not None:
            pubend.stable = max(pubend.stable, knowledge.hi)
        if not self._versions:
            return ()
        return (said if said.reply_to is None else Know(knowledge),)

    def probe(self, now: int, probe: Probe) -> Effects:
        """Progress up to here is overdue."""
        return (probe,)

    def enrolled(self, now: int, enrolled: Enrolled) -> Effects:
        """The membership is durable: from now on the SHB counts, and nothing is released unheard of it."""
        pubend = self._pubends.get(enrolled.pubend)
        if pubend is None:
            return ()
        pubend.enrol(enrolled.shb, enrolled.at)
        return pubend.introduce(enrolled.shb)

    def held(self, now: int, held: Held) -> Effects:
        """A row of holds is durable."""
        return (held,)

    def submitted(self, now: int, submitted: Submitted) -> Effects:
        """How an opening or a batch ended."""
        return (submitted,)

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
        return (row,) if row.pubend in self._pubends else ()

    def want(self, now: int, want: Want) -> Effects:
        """The pubend itself answers."""
        return (AskPubend(want, want.shb),) if want.pubend in self._pubends else ()

    def progress(self, now: int, progress: Progress) -> Effects:
        """The SHB's durable progress."""
        pubend = self._pubends.get(progress.pubend)
        return () if pubend is None else pubend.report(progress)

    # Local clients.

    def open(self, now: int, opening: SubmitOpen) -> Effects:
        """The PHB of this node decides which pubend it is."""
        return (opening if self._pubends else _nothing_here(opening.reply_to, opening.request.pubend),)

    def place(self, now: int, batch: Submit) -> Effects:
        """The PHB of this node logs it, or says why not."""
        return (batch if self._pubends else _nothing_here(batch.reply_to, batch.pub.pubend),)

    # Mail.

    def post(self, now: int, mail: Post) -> Effects:
        """There is no other node that mail could go to."""
        return (Posted(mail.to_node, mail.role, mail.data),) if mail.to_node == self._broker else ()


def _nothing_here(reply_to: Hashable, pubend: PubendId) -> Submitted:
    return Submitted(reply_to, pubend, Outcome(Verdict.RETRY, "no pubend is open at this broker"))


@hookimpl
def open_routing(options: Mapping[str, Any]) -> Router:
    """A fresh router; it has no options. Raises ConfigurationError when it is given one."""
    if options:
        raise ConfigurationError(f"the router 'local' has no option {min(options)!r}")
    return LocalRouter()
