"""Broken rules of clients that go elsewhere: to another SHB than a subscription's home, to a pubend's host.

(protocol: roaming, publishing-at-the-host)
"""

from __future__ import annotations

from sim.switches.edits import Edit
from sim.switches.switch import Switch

_GUESTS = "gapless_shb.core.roaming.guests:Guests"
_HOME = "gapless_shb.core.roaming.home:Home"

ROAMING = (
    Switch(
        "guest_is_told_loss_unasked",
        ("roaming",),
        "A guest gets a gap for ticks that are gone, and its home is not asked whether the subscription needs them.",
        (
            Edit(
                "gapless_shb.core.catch_up.scheduler:Scheduler.ask_home",
                "if not reader.position.guest:",
                "if True:",
            ),
        ),
        ("I5",),
        "A subscription is idle, and its position moves on by silence, which the log is released for. Then its client"
        " comes to another SHB, with a position from before that.",
        "roaming",
        ("knowledge",),
    ),
    Switch(
        "guest_is_told_what_its_home_knows_to_be_silent",
        ("roaming",),
        "A guest asks its home what it is done with, and not which of the lost ticks it had matched.",
        (Edit(f"{_HOME}.on_renew", "renew.doubts,", "(),"),),
        ("I5",),
        "Early release, and a pubend's broker that has started anew: what brokers on the way have is filtered, and"
        " between two events of that everything counts as lost for a guest.",
        "roaming",
        ("knowledge",),
    ),
    Switch(
        "guest_acknowledges_to_nobody",
        ("roaming",),
        "What a guest acknowledges, or passes, is not mailed to its home.",
        (
            Edit(
                f"{_GUESTS}._renewal",
                "if position.acked > (0 if row is None else row.acked):",
                "if position.acked < 0:",
            ),
            Edit(
                f"{_GUESTS}._renewal",
                "if position.nothing_upto > max(",
                "if position.nothing_upto < min(-1, ",
            ),
        ),
        ("V3",),
        "A consumer is a guest when nothing more comes, and has acknowledged everything: the log is kept for ever.",
        "roaming",
        ("knowledge",),
    ),
    Switch(
        "moved_publisher_forgets_what_it_sent",
        ("publishers that move",),
        "A publisher that goes on in another session takes what it sent in this one for never sent.",
        (
            Edit(
                "gapless.core.client.publishing.publisher:PublisherCore.move",
                "self.on_session_over()",
                "self.phase = PublisherPhase.UNOPENED",
            ),
        ),
        ("I6",),
        "A publisher finds a session with its pubend's host while a batch is on its way there through another node.",
        "roaming",
        ("knowledge",),
    ),
    Switch(
        "late_acknowledgement_counts",
        ("roaming",),
        "The home takes an acknowledgement that comes late or twice for the newest: the position falls.",
        (
            Edit(
                f"{_HOME}.on_renew",
                "stream.acknowledge(renew.sid, acknowledged.tick, acknowledged.event)",
                "stream.positions[renew.sid].acked = acknowledged.tick",
            ),
        ),
        ("V3",),
        "Two mails with acknowledgements overtake each other.",
        "roaming",
        ("knowledge",),
    ),
    Switch(
        "guest_that_has_gone_keeps_its_attachment",
        ("roaming",),
        "A guest's SHB says that the consumer has gone, and the home keeps the attachment.",
        (
            Edit(
                f"{_HOME}.on_renew",
                "if renew.leaves:",
                "if renew.leaves and renew.sid < 0:",
            ),
        ),
        ("V1",),
        "A consumer leaves, and the next one of another process does not take over, but waits or tries again.",
        "roaming",
        ("knowledge",),
    ),
    Switch(
        "home_takes_no_guest_back",
        ("roaming",),
        "A home that has restarted does not give the attachment to a guest that renews it.",
        (
            Edit(
                f"{_HOME}.on_renew",
                "if attachment is None and is_free and",
                "if attachment is None and renew.sid < 0 and",
            ),
        ),
        ("X1",),
        "A home dies and comes back while its subscription is consumed elsewhere.",
        "roaming",
        ("knowledge",),
    ),
    Switch(
        "attached_where_its_client_is",
        ("roaming",),
        "A subscription that is to be read by ranges is created at the SHB that is asked, beside that at its home.",
        (
            Edit(
                f"{_GUESTS}._places_to_attach",
                "raise elsewhere(places[0], self._hosting)",
                "return []",
            ),
        ),
        ("X2",),
        "Somebody reads by ranges, at another SHB than the home, what was consumed before.",
        "roaming",
        ("knowledge",),
    ),
    Switch(
        "passing_is_acknowledging",
        ("roaming",),
        "What an SHB found nothing in is mailed to the home as if its consumer had acknowledged it.",
        (
            Edit(
                f"{_GUESTS}._renewal",
                "position.acked > (0 if row is None else row.acked)",
                "max(position.acked, position.nothing_upto) > (0 if row is None else row.acked)",
            ),
            Edit(
                f"{_GUESTS}._renewal",
                "Acknowledged(stream.pubend, position.acked, position.acked_event)",
                "Acknowledged(stream.pubend, max(position.acked, position.nothing_upto), position.acked_event)",
            ),
        ),
        ("X3",),
        "The disk of a home is replaced, its application comes elsewhere with its token, and again before it has"
        " committed anything.",
        "roaming",
        ("knowledge",),
    ),
)
