"""Broken rules of shared subscriptions (protocol: shared-subscriptions)."""

from __future__ import annotations

from sim.switches.edits import Edit
from sim.switches.switch import Switch

_SHARED = "gapless_shb.core.shared.consumers:SharedSubscription"
_WINDOW = "gapless_shb.core.shared.window:Window"
_DISPATCH = "gapless_shb.core.shared.dispatch:Dispatch"
_CEILING = "gapless_shb.core.shared.settling:Ceiling"
_LOCAL = ("local",)

SHARING = (
    Switch(
        "sharing_noted_after_the_first_delivery",
        ("TS2",),
        "Events are delivered before it is durable that somebody may have been sent something: a crash leaves no"
        " doubt.",
        (Edit(f"{_CEILING}.room", "if self.is_open and tick", "if tick"),),
        ("J12",),
        "All consumers have left once. A broker crashes right after the first one has come back, and what that was"
        " handed comes unmarked.",
        "sharing",
        _LOCAL,
        "a run that comes upon it: 60 seeds did not",
    ),
    Switch(
        "no_doubt_after_a_crash_of_who_shares",
        ("TS3",),
        "After a crash of the broker what was delivered is as if it never had been.",
        (Edit(f"{_SHARED}.start", "window.begin_in_doubt(sent)", "window.doubted_upto = 0"),),
        ("J12",),
        "A broker crashes while somebody works on something, and that process never comes back.",
        "sharing",
        _LOCAL,
    ),
    Switch(
        "no_doubt_after_the_end_of_a_consumer",
        ("TS3",),
        "What a consumer held that has died is as if it never had been delivered.",
        (Edit(f"{_SHARED}._die", "doubt=True", "doubt=False"),),
        ("J12",),
        "A process dies with something in hand.",
        "sharing",
        _LOCAL,
    ),
    Switch(
        "shared_attempt_is_not_durable",
        ("TS4",),
        "Take is answered before the attempt is durable.",
        (
            Edit(
                f"{_SHARED}.take",
                "self._say(member, Taken(self.record.sid, first, tuple(lost)))",
                "self._host.tell(member.channel.session, Taken(self.record.sid, first, tuple(lost)))",
            ),
        ),
        ("J12",),
        "A broker crashes after something was handed out that may have been handed out before.",
        "sharing",
        _LOCAL,
    ),
    Switch(
        "deliveries_count_as_attempts",
        ("TS5",),
        "What is delivered counts as an attempt.",
        (
            Edit(
                f"{_DISPATCH}._hold",
                "window.hold(chunk, mask)",
                "window.hold(chunk, mask)\n    window.attempt(chunk, mask)",
            ),
        ),
        ("J12",),
        "A process dies before it is handed what is delivered.",
        "sharing",
        _LOCAL,
    ),
    Switch(
        "died_with_has_company",
        ("TS15",),
        "What a consumer has died with is delivered together with other events.",
        (Edit(f"{_WINDOW}._open", " & ~chunk.deaths", ""),),
        ("J12",),
        "A process dies with something in hand that it had taken, and somebody who is busy gets it next.",
        "sharing",
        _LOCAL,
        "a run that comes upon it: 60 seeds did not",
    ),
    Switch(
        "verdict_of_who_has_lost_it",
        ("TS16",),
        "A verdict counts whoever holds the event.",
        (
            Edit(
                f"{_SHARED}._claim",
                "if other is None or other.first + other.places.index(place) >= number or number >"
                " self.ceiling.before:",
                "if other is None:",
            ),
        ),
        ("J11",),
        "A hold runs out, somebody else gets the event, and the first one settles it.",
        "sharing",
        _LOCAL,
        "a run that comes upon it: 60 seeds did not",
    ),
    Switch(
        "settled_before_durable",
        ("TS17",),
        "Settle is answered before the verdicts are durable.",
        (
            Edit(
                f"{_SHARED}._say",
                "self._answers.told.append((member.channel.session, message))",
                "if isinstance(message, Settled):\n"
                "        self._host.tell(member.channel.session, message)\n"
                "    else:\n"
                "        self._answers.told.append((member.channel.session, message))",
            ),
        ),
        ("J11",),
        "A broker crashes after the answer.",
        "sharing",
        _LOCAL,
    ),
    Switch(
        "repeated_settlement_is_judged_anew",
        ("TS22",),
        "A settlement that is repeated is judged as if it came for the first time.",
        (Edit(f"{_SHARED}.settle", "if repeated is not None:", "if repeated is not None and number < 0:"),),
        ("J11", "V1"),
        "A link or a broker is lost after a settlement became durable, and before its answer came.",
        "sharing",
        _LOCAL,
    ),
    Switch(
        "window_counts_what_is_settled",
        ("TS24",),
        "Everything above the floor counts, settled or not.",
        (
            Edit(
                f"{_WINDOW}.finish",
                "self._raise_floor()",
                "self._raise_floor()\n"
                "    self.count = sum(tick > self.floor for each in self._chunks for tick in each.ticks)",
            ),
        ),
        ("V1",),
        "One consumer is busy with one event, and the others have settled as many as the window has room for.",
        "sharing",
        _LOCAL,
    ),
    Switch(
        "frontier_passes_chunks_without_rows",
        ("TS25",),
        "A write that moves the frontier has the rows of those chunks alone that its verdicts have touched.",
        (
            Edit(
                f"{_WINDOW}.rows",
                "first in self._dirty or chunk.ticks[-1] > self.written or not chunk.is_stored",
                "first in self._dirty",
            ),
        ),
        ("J11", "V1"),
        "All have left, and a broker ends before somebody comes back.",
        "sharing",
        _LOCAL,
    ),
    Switch(
        "nobody_is_waited_for",
        ("TS26",),
        "After a crash what may be in somebody's hands goes to whoever comes first.",
        (Edit(f"{_SHARED}.finish_turn", "hidden=self.hidden_until > 0", "hidden=False"),),
        ("J11",),
        "A broker crashes while two work, and one of them comes back sooner.",
        "sharing",
        _LOCAL,
    ),
    Switch(
        "lost_link_is_a_death",
        ("TS27",),
        "What a consumer held goes to others as soon as its link is lost.",
        (Edit(f"{_SHARED}.lose_link", "now + member.sharing.resume_ms * _MILLISECOND", "now"),),
        ("J11",),
        "A link breaks while its process works.",
        "sharing",
        _LOCAL,
    ),
    Switch(
        "delivery_numbers_begin_anew",
        ("TS28",),
        "The numbers of deliveries are counted from one on in each life of a broker.",
        (Edit(f"{_CEILING}.restored", "top = row.ceiling", "top = 0"),),
        ("J11",),
        "A broker ends, and delivers something.",
        "sharing",
        _LOCAL,
    ),
    Switch(
        "all_of_the_window_is_in_doubt",
        ("TS29",),
        "After a crash all that is not settled may have been handed out, and so may all that comes.",
        (Edit(f"{_SHARED}.start", "window.begin_in_doubt(sent)", "window.begin_in_doubt(1 << 62)"),),
        ("J12",),
        "Something is published after a crash.",
        "sharing",
        _LOCAL,
    ),
)
