"""Broken rules of how a subscription begins: versions, starts, joining, holds (protocol: subscribing, holds)."""

from __future__ import annotations

from sim.switches.edits import Edit, Replace
from sim.switches.switch import Switch

_BROKER = "gapless_shb.core.broker"
_SHB = f"{_BROKER}:SubscriberHostingBroker"
_CHECKPOINTS = "gapless_shb.core.checkpoint:ShbCheckpoints"
_CONSTREAM = "gapless_shb.core.live.constream:Constream"
_SCHEDULER = "gapless_shb.core.catch_up.scheduler:Scheduler"
_POSITION = "gapless_shb.core.state.positions:SubscriptionPosition"
_JOINING = "gapless_shb.core.live.joining:JoiningSubscriptions"
_SUBSCRIBING = "gapless_shb.core.subscriptions.attach:Subscribing"
_READER = "gapless_shb.core.catch_up.readers:Reader"
_RANGE = "gapless_shb.core.catch_up.fetches:RangeFetch"

_SINCE = "max(position.start, head, run.lo, under_lower)"
_LATE_INTEREST = (
    "a router that filters and hears of new interest late (hostile: delay_interest, drop_interest, understate, with"
    " delay and reorder)"
)

JOINING = (
    Switch(
        "under_stamped_silence_believed",
        ("T3",),
        "The constream believes silence whatever version of the interest it was filtered with.",
        (Edit(f"{_JOINING}.passed", "self.need = {self._shb: version}", "self.need = {}"),),
        ("I3", "I10"),
        f"Subscriptions are created while events flow, through {_LATE_INTEREST}.",
    ),
    Switch(
        "since_without_earlier_silence",
        ("T45",),
        "A subscription is covered from the first run that honours it, although silence above that is held already"
        " that was filtered without it and goes on to be believed.",
        (
            Edit(f"{_JOINING}.activate", _SINCE, "max(position.start, head, run.lo)"),
            Edit(
                f"{_JOINING}.activate",
                "self._cover_from(sid, position.since, version)",
                "self._cover_from(sid, max(position.since, under_lower), version)",
            ),
        ),
        ("I3", "I10"),
        "A hole below the knowledge that arrives while subscriptions are created (lose, delay, reorder), so that"
        f" silence waits above it, through {_LATE_INTEREST}; the hole is filled by an answer.",
    ),
    Switch(
        "since_below_head",
        ("T49",),
        "A subscription counts as covered from its start on, also where the head had passed before it joined.",
        (Edit(f"{_JOINING}.activate", _SINCE, "max(position.start, under_lower)"),),
        ("I3", "I10"),
        "A subscription from `earliest`, a time or a token; or one at `latest` while the head moves on under-stamped"
        f" silence, through {_LATE_INTEREST}.",
    ),
    Switch(
        "unknown_before_since_is_silence",
        ("T46",),
        "Where the PFS does not cover a subscription yet, no record reads as silence.",
        (
            Replace(
                f"{_READER}._unknown_upto",
                "return max(self.stream.pfs.chopped, self._unreadable_upto)",
            ),
        ),
        ("I3", "I10"),
        "A durable subscription from `earliest`, a time or a token, with events between that and the head.",
    ),
    Switch(
        "reader_ends_while_joining",
        ("T49",),
        "A reader that has reached the head ends although its subscription is still joining.",
        (
            Edit(f"{_CONSTREAM}.attach", "if at >= self.head and position.since <= at:", "if at >= self.head:"),
            Edit(
                f"{_SCHEDULER}._stepped",
                "if position.since <= reader.horizon and not reader.is_blocked:",
                "if not reader.is_blocked:",
            ),
            Edit(
                f"{_SCHEDULER}.promote_waiting",
                "if reader.position.since <= reader.horizon:",
                "if reader.horizon >= 0:",
            ),
        ),
        ("I3", "I10"),
        f"A new subscription at the head, connected, while events flow, through {_LATE_INTEREST}: the head passes"
        " events under a stamp that does not honour it.",
    ),
    Switch(
        "quiet_while_joining",
        ("T49",),
        "A subscription without a record is quiet, and releases, also while it is joining.",
        (
            Replace(
                f"{_POSITION}.is_idle",
                "settled = self.done_upto\nreturn not self.reading and self.last_tick <= settled",
            ),
        ),
        ("I8", "I5"),
        "A durable subscription at `latest` whose consumer leaves, or has no credit, while the head moves past"
        f" events that match it and it is still joining, through {_LATE_INTEREST}; min_retain = 0.",
    ),
    Switch(
        "reader_believes_filtered_silence",
        ("T13",),
        "A reader that fetches a range takes silence that was filtered for others.",
        (
            Edit(f"{_SCHEDULER}.on_knowledge", "if knowledge.stamp is not RAW:", "if knowledge.hi <= knowledge.lo:"),
            Replace(f"{_SCHEDULER}.fetch", "self._curiosity.add(ranges, self.stream._joining.need, now, urgent=True)"),
            Replace(f"{_RANGE}.upto", "return min(self._known.horizon(self.start, {}), self._asked_upto)"),
            Edit(
                f"{_RANGE}.segments",
                "self._known.lost_in(self.start, upto, RAW)",
                "self._known.lost_in(self.start, upto, {})",
            ),
        ),
        ("I3", "I10"),
        "A subscription that reads a range (from `earliest`, or not durable and slow) while pushes or cached answers"
        " that were filtered before it was known arrive (hostile: thin_reply, stale_answer, delay, repeat_late,"
        " delay_interest).",
    ),
    Switch(
        "late_pubend_from_now",
        ("T22",),
        "On a pubend that is discovered later, subscriptions begin where the SHB was enrolled, not at their creation.",
        (
            Edit(
                f"{_SHB}._discover",
                "start = stream.client_position(at) if too_late else start",
                "start = stream.client_position(at)",
            ),
        ),
        ("I10",),
        "Two PHBs, one of which the SHB has never reached: subscribe, publish there, then let the SHB reach it. The"
        " model owes events of a pubend that is discovered later from max(its creation, the subscription's creation"
        " less 60 s) on, whatever start is reported.",
    ),
)

HOLDING = (
    Switch(
        "hold_given_up_early",
        ("T49", "before Hold"),
        "A hold goes with the first checkpoint after it was answered, not when the subscription has released enough.",
        (
            Edit(
                f"{_CHECKPOINTS}._drop_holds",
                "if released < max(stream.reported, stream.enrolled_at):",
                "if released < 0:",
            ),
            Edit(
                "gapless_shb.core.checkpoint:held",
                "if position.held and position.done_upto >= stream.reported:",
                "if position.held:",
            ),
            Edit(
                f"{_CONSTREAM}.touch", "if position.held and position.done_upto >= self.reported:", "if position.held:"
            ),
        ),
        ("I8", "I5"),
        "min_retain of some seconds, everybody done with everything; a subscription from `earliest` whose consumer"
        " has little credit or goes away; then min_retain passes.",
    ),
    Switch(
        "hold_never_given_up",
        ("T49",),
        "A hold stays for ever.",
        (
            Edit(
                f"{_CHECKPOINTS}._drop_holds",
                "if released < max(stream.reported, stream.enrolled_at):",
                "if position.held:",
            ),
        ),
        ("V3",),
        "A subscription from `earliest` that needs a hold (released above what is still there: min_retain of some"
        " seconds), then everybody acknowledges everything.",
    ),
    Switch(
        "subscribed_before_held",
        ("T46", "before SubscribeAck"),
        "A subscription that starts in the past is acknowledged before the pubend keeps what it starts with.",
        (
            Replace(
                f"{_SUBSCRIBING}._is_ready",
                "sid = creation.subscription.sid\n"
                "streams = self._hosting.streams.values()\n"
                "return creation.durable and all(stream.enrolled for stream in streams)",
            ),
        ),
        ("I10", "I5"),
        "A subscription from a token or a time below what is released but not gone (min_retain of some seconds),"
        " while the PHB cannot be reached for longer than min_retain, or loses the hold (hostile: lose).",
    ),
    Switch(
        "subscribed_before_record",
        ("before SubscribeAck",),
        "A subscription is acknowledged before its record is durable.",
        (
            Replace(
                f"{_SUBSCRIBING}._is_ready",
                "sid = creation.subscription.sid\n"
                "streams = self._hosting.streams.values()\n"
                "return all(stream.enrolled and not stream.holds.waits_for(sid) for stream in streams)",
            ),
            Edit(
                f"{_SUBSCRIBING}._create",
                "creation = self._creations[subscription.sid] = Creation(subscription)",
                "creation = self._creations[subscription.sid] = Creation(subscription)\n    self.may_complete = True",
            ),
        ),
        ("I10",),
        "An SHB that loses power within one sync of a subscribe. The client that was told Subscribed attaches again"
        " by id, and finds no subscription; or, created anew by name, it begins later than it was told.",
    ),
    Switch(
        "interest_before_durable",
        ("T4", "before Interest"),
        "A version of the interest is announced before it is durable, so after a crash another set of filters gets"
        " its number.",
        (
            Edit(
                "gapless_shb.core.hosting:Hosting.write_interest",
                "    self.outbox.write(operations, lambda _now, _wall: self.announce(version))",
                "    self.announce(version)\n    self.outbox.write(operations)",
            ),
        ),
        ("I9", "I3", "cores"),
        "Unsubscribing (or the end of a consumer that is not durable) is under way when the SHB loses power: the"
        " router has version n without it. After the restart version n has it, and what the SHB says of that is late"
        " or lost (hostile: drop_interest, delay_interest): the router filters without it, stamped n.",
    ),
    Switch(
        "sid_reused",
        ("T34",),
        "The id of the newest subscription is given again when that one is removed.",
        (
            Edit(
                "gapless_shb.core.state.registry:Registry.create",
                "self._meta.last_sid += 1",
                "self._meta.last_sid = max(self._by_sid, default=0) + 1",
            ),
        ),
        ("I1",),
        "The newest subscription is unsubscribed by another client while its own consumer has lost its link; another"
        " one with other topics is created under the same client id; the first consumer comes back by id.",
    ),
    Switch(
        "shb_id_reused",
        ("T34",),
        "An SHB that begins anew on an empty volume has the identity of the one that is gone.",
        (Replace(f"{_BROKER}:shb_id", "return context.broker"),),
        ("I3", "I5", "I8", "cores"),
        "An SHB whose volume is wiped: its versions begin at 1 under an id that has announced higher ones, and what it"
        " reports falls. If its PHB has chopped, it is enrolled from long ago, so its constream meets lost ticks.",
    ),
)
