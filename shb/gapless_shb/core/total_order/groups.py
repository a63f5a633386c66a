"""The groups in total order at an SHB: which pubends stand for their members, and which group carries which topics.

A group names its members by node and name (protocol: groups, late-members). The pubend that stands for a member is its
newest incarnation. An older one is not merged: nothing comes from it any more but what readers still find.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gapless.core.gauges import Gauge
from gapless.core.network.facts import OrderedGroup
from gapless.core.stream.ticks import PubendId, Tick
from gapless.core.wire.messages import Code
from gapless.selectors.topics import patterns_meet
from gapless_shb.core.live.constream import Constream
from gapless_shb.core.state import gauges
from gapless_shb.core.state.refusals import RefusedError
from gapless_shb.core.state.registry import SubscriptionRecord
from gapless_shb.core.total_order.merge import late_start


class Groups:
    """All groups of the configuration; see the module."""

    def __init__(self, groups: Iterable[OrderedGroup], streams: Mapping[PubendId, Constream]) -> None:
        self._groups = {group.name: group for group in groups}
        self._group_of = {member: group.name for group in self._groups.values() for member in group.members}
        self._streams = streams

    def members(self, group: str) -> dict[PubendId, Constream]:
        """Returns the pubends of a group that are known here, for each member the newest incarnation."""
        newest: dict[str, Constream] = {}
        for stream in self._streams.values():
            name = stream.meta.member
            if self._group_of.get(name) == group:
                other = newest.get(name)
                newest[name] = stream if other is None or _age(stream) > _age(other) else other
        return {stream.pubend: stream for stream in newest.values()}

    def group_of(self, topics: Sequence[str]) -> str:
        """Returns the group of all pubends that may carry these topics; all its members are known here.

        Raises RefusedError: for good if the topics are not all of one group; for the moment if a member is unknown, or
        if a pubend has come in the place of one, and it is not known yet which of them is there.
        """
        if not self._groups:
            raise RefusedError(Code.CONFIGURATION, "order='total' needs a group of pubends: none is configured here")
        what = f"order='total' with topics {', '.join(topics)}"
        carrying = {group: member for member, group in self._carrying(topics)}
        if len(carrying) > 1:
            places = " and to ".join(
                f"{member}, which is in {f'the group {group!r}' if group else 'no group'}"
                for group, member in sorted(carrying.items(), reverse=True)
            )
            raise RefusedError(Code.CONFIGURATION, f"{what}: events may be published to {places}")
        if unknown := self._unknown(*carrying):
            raise RefusedError(Code.RETRY, f"{what}: nothing is known yet of {', '.join(unknown)}")
        if undecided := self._undecided(*carrying):
            which = ", ".join(undecided)
            raise RefusedError(Code.RETRY, f"{what}: it is not known yet which volume the node has of {which}")
        group, member = next(iter(carrying.items()), ("", "no pubend that is known here"))
        if not group:
            raise RefusedError(
                Code.CONFIGURATION, f"{what}: such events are published to {member}, and to no member of a group"
            )
        return group

    def group_of_member(self, stream: Constream) -> str:
        """Returns the group that a pubend is in; "" for none."""
        return self._group_of.get(stream.meta.member, "")

    def replaces_another(self, stream: Constream) -> bool:
        """Whether an older incarnation of the same member is known here."""
        others = (other for other in self._streams.values() if other is not stream)
        return any(other.meta.member == stream.meta.member for other in others)

    def _carrying(self, topics: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Yields (member, its group or "") for each pubend that may carry new events of these topics."""
        current = {pubend for group in self._groups for pubend in self.members(group)}
        for pubend, stream in self._streams.items():
            group = self._group_of.get(stream.meta.member, "")
            is_over = stream.meta.read_only or stream.gone_upto or (group and pubend not in current)
            if not is_over and any(patterns_meet(one, other) for one in topics for other in stream.meta.topics):
                yield stream.meta.member, group

    def _unknown(self, *groups: str) -> list[str]:
        """Returns the members of these groups that this SHB has not heard of; without a group, those of all.

        Of a member that is gone, what its node has made in its place has to be heard of.
        """
        known = {stream.meta.member for stream in self._streams.values() if not stream.gone_upto}
        return [
            member
            for member, group in self._group_of.items()
            if member not in known and (group in groups or not any(groups))
        ]

    def _undecided(self, *groups: str) -> list[str]:
        """Returns the members of these groups of which two incarnations are known here, and none is gone yet.

        An event of the one that is there must not leave beside the order.
        """
        there = Counter(s.meta.member for s in self._streams.values() if s.meta.timed and not s.gone_upto)
        return [member for member, group in self._group_of.items() if group in groups and there[member] > 1]

    def start_of_late(self, stream: Constream, group: str) -> Tick:
        """Returns from where a member that is found late is merged: no merge of its group has come further.

        A merge waits for each member that it has, so none is ahead of the lowest head. Merges have waited for an
        incarnation that is lost up to there, so all that the new one has comes behind them.
        """
        if self.replaces_another(stream):
            return 0
        heads = [other.head for pubend, other in self.members(group).items() if pubend != stream.pubend]
        return min(heads, default=0)

    def late_starts(
        self,
        subscription: SubscriptionRecord,
        members: Mapping[PubendId, Constream],
        at: Mapping[PubendId, Tick],
        given: Mapping[PubendId, Tick],
    ) -> dict[PubendId, Tick]:
        """Returns where a consumer goes on on members that were found after its subscription was created.

        A token that does not name such a member was made when its order had come to the highest place that it does
        name. A member in place of a lost one begins at its beginning.
        """
        places = [(tick, pubend) for pubend, tick in given.items() if pubend in members]
        if not places:
            return {}
        return {
            pubend: max(at[pubend], stream.client_position(late_start(pubend, max(places))))
            for pubend, stream in members.items()
            if pubend not in given and pubend not in subscription.start and not self.replaces_another(stream)
        }

    def too_late(
        self, members: Mapping[PubendId, Constream], at: Mapping[PubendId, Tick], starts: Mapping[PubendId, Tick]
    ) -> dict[PubendId, Tick]:
        """Returns up to where what a member has comes too late for a consumer that goes on at `at`.

        A merge waits for each of its members, so nothing does. But a member may be in place of a lost one, with a clock
        that was set back: then it publishes before the place that the order has come to. `starts`: where the
        subscription began, as far as that is known; where it still stands there, no order has come to.
        """
        found = {}
        for pubend, stream in members.items():
            places = [
                (at[other], other) for other in members if other != pubend and at[other] > starts.get(other, at[other])
            ]
            if places and self.replaces_another(stream):
                found[pubend] = late_start(pubend, max(places))
        return found

    def gauges(self) -> Iterator[Gauge]:
        """Yields how far each member is known: the lowest holds its group. One that is not known at all has 0."""
        heads = {stream.meta.member: stream.head for group in self._groups for stream in self.members(group).values()}
        for member, group in self._group_of.items():
            yield gauges.GROUP.gauge(heads.get(member, 0), group, member)


def _age(stream: Constream) -> tuple[bool, Tick]:
    """Orders the incarnations of a member: the newest one that is not gone is the last."""
    return not stream.gone_upto, stream.meta.created
