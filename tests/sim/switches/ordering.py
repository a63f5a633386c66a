"""Broken rules of total order: what is awaited, and who may go past the merge (protocol: merging, ordered-delivery)."""

from __future__ import annotations

from sim.switches.edits import Edit, Replace
from sim.switches.switch import Switch

_MERGE = "gapless_shb.core.total_order.merge"
_WIPED = "A member of a group whose PHB loses its disk, and has its clock set back; a subscriber in total order."
_SEVERAL = "A group with several members, and a subscriber in total order."

ORDERING = (
    Switch(
        "silent_member_is_not_awaited",
        ("T14",),
        "An idle or dead member stops nobody: what it still has comes behind what should have waited for it.",
        (
            Edit(
                f"{_MERGE}:OrderedMerge.take",
                "for each in self._members.values()",
                "for each in sorted(self._members.values(), key=lambda each: not each.waiting)[:1]"
                " + [each for each in self._members.values() if each.waiting]",
            ),
        ),
        ("I11",),
        _SEVERAL,
        workload="churn",
    ),
    Switch(
        "readers_go_past_the_merge",
        ("T14",),
        "A consumer that catches up on a member is sent what is found there at once, whatever the other members have.",
        (
            Edit(
                "gapless_shb.core.catch_up.scheduler:Scheduler._reader",
                "consumer.ordered is not None and pubend in consumer.ordered",
                "False",
            ),
        ),
        ("I11",),
        "A subscriber in total order that was away, or is slow.",
        workload="churn",
    ),
    Switch(
        "live_events_go_past_the_merge",
        ("T14",),
        "A live consumer is sent each member's events as they come.",
        (
            Edit(
                "gapless_shb.core.live.delivery:LiveDelivery._send",
                "consumer.ordered is not None and self._stream.pubend in consumer.ordered",
                "False",
            ),
        ),
        ("I11",),
        _SEVERAL,
        workload="churn",
    ),
    Switch(
        "client_takes_turns_in_a_total_order",
        ("T14",),
        "The client lets the pubends take turns, whatever order they arrived in.",
        (
            Edit(
                "gapless.core.client.consuming.subscription:SubscriptionCore._arrived",
                "self.wanted.order is Order.TOTAL",
                "False",
            ),
        ),
        ("I11",),
        "More than one event at a time, of several pubends.",
        workload="churn",
    ),
    Switch(
        "gap_that_is_open_counts_as_known",
        ("T14",),
        "While a member's gap is not sent yet, because it may become longer, others go on behind its beginning.",
        (Replace("gapless_shb.core.catch_up.readers:CatchUpReader.settled", "return self.horizon"),),
        ("I11",),
        "Early release, and a subscriber in total order that comes back with an old token.",
        workload="churn",
    ),
    Switch(
        "gap_leaves_at_its_end",
        ("T14",),
        "A gap stands where it ends: whoever comes back meanwhile may be sent events from within it, out of order.",
        (
            Replace(
                f"{_MERGE}:MergedMember.next_place",
                "if not self.waiting:\n"
                "    return self.known + 1, self.pubend\n"
                "first = self.waiting[0]\n"
                "return first.end if isinstance(first, GapSegment) else first.ticks[self.taken], self.pubend",
            ),
        ),
        ("I11",),
        "Early release, and a subscriber in total order that comes back with an old token.",
        workload="churn",
    ),
    Switch(
        "what_comes_too_late_leaves_late",
        ("lost volumes",),
        "What the pubend in place of a lost member has before the place of the order is delivered behind that place.",
        (Edit(f"{_MERGE}:OrderedMerge.put", "bisect_right(events.ticks, member.too_late)", "0"),),
        ("I11",),
        _WIPED,
        workload="churn",
        routers=("hostile", "knowledge"),
    ),
    Switch(
        "what_comes_too_late_is_passed_over",
        ("lost volumes",),
        "The pubend in place of a lost member is merged from the place of the order, and what it has before that is not"
        " told.",
        (
            Edit(
                "gapless_shb.core.total_order.groups:Groups.late_starts",
                "pubend not in subscription.start and not self.replaces_another(stream)",
                "pubend not in subscription.start",
            ),
        ),
        ("I10", "I3"),
        _WIPED,
        workload="churn",
        routers=("hostile", "knowledge"),
    ),
    Switch(
        "two_stand_for_one_member",
        ("lost volumes",),
        "While nobody can tell which of two volumes a node has, one pubend is merged, and the other one's events"
        " leave beside the order.",
        (Replace("gapless_shb.core.total_order.groups:Groups._undecided", "return []"),),
        ("I11",),
        _WIPED,
        workload="churn",
        routers=("hostile", "knowledge"),
    ),
)
