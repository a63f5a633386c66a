"""Broken rules of release: who is counted, what is held, and how far a log is given up (protocol: members, release)."""

from __future__ import annotations

from sim.switches.edits import Edit, Replace
from sim.switches.switch import Switch

_PUBEND = "gapless_phb.core.pubend:Pubend"
_KEEPING = "gapless_phb.core.retention.members:Retention"
_OWN = "gapless_phb.core.own_log.source:OwnLogSource"
_RELEASE = "gapless_phb.core.retention.release:Release"
_TABLE = "gapless_routing.common.release:ReleaseTable"

_MINIMA = "return _lowest(self._rows.values()) if len(self._rows) == len(self._members) else None"
_BOUND = "min((joining.at for joining in self._joining.values()), default=self._log.stable)"
_UNTIL_DURABLE = (
    "min((joining.at for joining in self._joining.values() if joining.enrolled_at is None), default=self._log.stable)"
)
_WANTED = "return max(min(self.needless, self._expendable(time)), self._early(time))"

MEMBERS = (
    Switch(
        "enrolment_does_not_bound",
        ("T41",),
        "An SHB whose membership is being written does not bound the release yet.",
        (Edit(f"{_RELEASE}.on_released", f"bound = {_BOUND}", "bound = self._log.stable"),),
        ("I8", "I5"),
        "Two SHBs and min_retain = 0: the second one's first interest arrives while its membership waits for a slow"
        " sync of the PHB (some seconds), and the first SHB goes on to be published to, acknowledges and reports.",
    ),
    Switch(
        "minimum_outlives_enrolment",
        ("T41", "T48"),
        "A minimum over the old members is remembered while a new one joins, and counts again once that is durable.",
        (
            Edit(
                f"{_RELEASE}.on_released",
                "delivered = min(delivered, bound, self._log.stable)",
                "delivered = min(delivered, self._log.stable)",
            ),
            Replace(
                f"{_RELEASE}.target",
                "if not self.members:\n"
                "    return 0\n"
                "asked = (joining.at for joining in self._joining.values() if joining.enrolled_at is None)\n"
                "kept = max(min(self.needless, self._expendable(time)), self._early(time))\n"
                "return min(kept, min(asked, default=self._log.stable))",
            ),
        ),
        ("I8", "I5"),
        "As enrolment_does_not_bound. To be remembered for longer, until a minimum counts the new member, does no harm:"
        " minima of one router never fall, so that one is not below any that was said before.",
    ),
    Switch(
        "minimum_of_the_heard",
        ("T20",),
        "The minimum is taken over the members that have reported, not over all.",
        (Replace(f"{_TABLE}.minima", "return _lowest(self._rows.values())"),),
        ("C4", "I8"),
        "Two SHBs, the PHB restarts (or its router forgets) while one of them cannot be reached and has a subscriber"
        " behind; the other one reports.",
    ),
    Switch(
        "enrolled_member_not_counted",
        ("T20",),
        "The router goes on to count the members that it was handed, without one that was enrolled since.",
        (Replace(f"{_TABLE}.enrol", "self._members.get(shb)\nself._rows.pop(shb, None)"),),
        ("C4", "I8"),
        "Two SHBs, of which the second one is enrolled while the PHB runs, and has a subscriber that lags.",
    ),
    Switch(
        "enrolled_before_durable",
        ("before ENROLLED",),
        "An SHB is told that it is a member before that is durable.",
        (
            Edit(
                f"{_KEEPING}.enrol",
                "self._outbox.write([row], durable)",
                "self._outbox.write([row])\n        durable(0, 0)",
            ),
        ),
        ("I8", "I5"),
        "Two SHBs, min_retain = 0: the second one's first subscription is acknowledged, the PHB loses power before"
        " the membership is durable; after the restart the second SHB cannot be reached for a while, and the first"
        " one reports.",
    ),
    Switch(
        "new_pubend_counts_nobody",
        ("T20", "T22"),
        "A pubend that is added to a PHB counts no SHB from its beginning.",
        (
            Edit(
                "gapless_phb.core.broker:PublisherHostingBroker._create",
                "members=dict.fromkeys(members, at)",
                "members={}",
            ),
        ),
        ("I8", "I10"),
        "Two SHBs with subscriptions, min_retain = 0: the PHB is restarted with one more pubend while one SHB is"
        " away; the other one enrols there, gets events and releases them; the first one returns.",
    ),
    Switch(
        "pubend_id_reused",
        ("T34",),
        "A pubend that begins anew on an empty volume has the identity of the one that is gone.",
        (Replace("gapless_phb.core.assignment:pubend_id", 'return f"{name}@1"'),),
        ("I12", "I3"),
        "A PHB whose volume is wiped, restarted with a wall clock that stepped back behind what was said: ticks of the"
        " dead pubend are used again. The model must know pubends by their incarnation, not by their id.",
    ),
)

GIVING_UP = (
    Switch(
        "holds_ignored",
        ("T46", "before Hold"),
        "Holds are kept and answered, and the release does not look at them.",
        (Replace(f"{_RELEASE}.needless", "return self.released"),),
        ("I8", "I5"),
        "min_retain of some seconds, everybody done with everything; a subscription from `earliest` whose consumer"
        " has little credit or goes away; then min_retain passes.",
    ),
    Switch(
        "held_before_durable",
        ("before Hold",),
        "A row of holds is answered before it is durable.",
        (
            Edit(
                f"{_KEEPING}._hold",
                "    self._outbox.write([Set(self._tables.holds, key, rows.encode(held))], durable)",
                "    self._outbox.write([Set(self._tables.holds, key, rows.encode(held))])\n    durable(0, 0)",
            ),
        ),
        ("I8", "I5"),
        "As holds_ignored, and the PHB loses power between the answer and the sync.",
    ),
    Switch(
        "policy_beyond_delivered",
        ("T9",),
        "A release policy gets all that it wishes, also what an SHB has not got yet.",
        (
            Edit(
                f"{_RELEASE}._early",
                "return min(self.delivered, policy.release(state))",
                "return policy.release(state)",
            ),
            Edit(f"{_KEEPING}._on_release", "assert upto <= self.release.delivered, ", "assert upto >= 0, "),
        ),
        ("I8", "I5"),
        "A policy of some seconds, or a greedy one; an SHB that is down, or cut off, for longer.",
    ),
    Switch(
        "limit_of_half_the_bytes",
        ("T9",),
        "Early release by bytes leaves less than it was told to.",
        (
            Replace(
                "gapless_phb.policies:Limits._too_many",
                "return 0 if self.bytes is None else state.log.covered(self.bytes // 2)",
            ),
        ),
        ("I8", "I5"),
        "A limit of some thousand bytes, and somebody who is away with more than half of that.",
    ),
    Switch(
        "old_by_stamps",
        ("C01",),
        "How old an event is, is told by the present that new events are stamped with.",
        (Replace(f"{_OWN}.present", "self.clock.read(now, wall)\nreturn self.clock.latest"),),
        ("I8", "I5"),
        "A policy of some seconds; a broker is restarted with its clock hours ahead, and perhaps back again.",
    ),
    Switch(
        "leap_is_followed",
        ("C01",),
        "A wall clock that leaps while the broker runs is followed by what new events are stamped with.",
        (
            Edit(
                "gapless_phb.core.own_log.clock:TickClock.read",
                "self.suspect = shown > explained + WALL_LEAD_MAX",
                "self.suspect = False",
            ),
        ),
        ("I12",),
        "A clock that leaps by hours while a broker runs, and anything that is published after that.",
    ),
    Switch(
        "leap_across_a_stop_is_believed",
        ("C01",),
        "A wall clock that is hours ahead at a start is believed at once.",
        (Edit("gapless_phb.core.own_log.clock:TickClock.read", "now < self._believes_at", "now > self._believes_at"),),
        ("I8", "I5"),
        "A policy of some seconds; a broker is restarted with its clock hours ahead.",
    ),
    Switch(
        "probe_on_released",
        ("T8",),
        "The PHB asks for acknowledgements until everything is released, not until it is delivered.",
        (
            Replace(
                f"{_KEEPING}._on_ack_expected",
                "if self.release.members and self._log.newest > self.release.released:\n"
                "    self._outbox.emit(Probe(self.pubend, self._log.newest))\n"
                "    self._timers.wake(Timer.ACKNOWLEDGEMENT, now + self._ack_expected.next())",
            ),
            Edit(
                f"{_KEEPING}.released",
                "if self._log.newest > self.release.delivered:",
                "if self._log.newest > self.release.released:",
            ),
        ),
        ("V4",),
        "A durable subscriber that is away with an event it has not acknowledged, and a minute in which nobody"
        " publishes. The oracle: no Probe (at the seam) once every member has reported that tick as delivered.",
    ),
    Switch(
        "retirement_not_told",
        ("T10",),
        "An SHB that is retired is deleted, and the router goes on to wait for its reports.",
        (Replace(f"{_PUBEND}.retire", "self.retention.retire(shb, lambda _now, _wall: None)"),),
        ("V3",),
        "Two SHBs, one goes for good and is retired (`PublisherHostingBroker.retire`); the other one acknowledges"
        " everything, and the PHB is not restarted.",
    ),
)

_EXPIRY = "gapless_shb.core.subscriptions.expiry:Expiry"

LEASES = (
    Switch(
        "lease_removes_the_attached",
        ("T10",),
        "The lease of a subscription runs also while somebody consumes it.",
        (
            Edit(f"{_EXPIRY}._newly_left", " + len(consumers) >= len(", " >= len("),
            Edit(f"{_EXPIRY}._newly_left", "phase(subscription.sid) in _NOBODY_HAS_IT", "phase(subscription.sid)"),
        ),
        ("I8",),
        "A lease of some seconds, and a consumer that stays for longer.",
    ),
    Switch(
        "lapsed_begins_at_the_latest",
        ("T10",),
        "Whoever comes back after his lease ran out begins anew, and is not told what he has missed.",
        (
            Edit(
                "gapless_shb.core.subscriptions.attach:Subscribing._create",
                "request = self._expiry.resumed(request, lapsed)",
                "pass",
            ),
        ),
        ("I10",),
        "A lease of some seconds; a consumer that keeps no token goes away for longer, while events come for it.",
    ),
)
