"""Broken rules of a client and of its session (protocol: acknowledging, delivery, session)."""

from __future__ import annotations

from sim.switches.edits import Edit, Replace
from sim.switches.switch import Switch

_SUBSCRIPTION = "gapless.core.client.consuming.subscription:SubscriptionCore"
_BUFFER = "gapless.core.client.consuming.buffer:PubendBuffer"

CONSUMING = (
    Switch(
        "token_counts_received",
        ("before client's CT",),
        "The token stands behind everything that arrived, also behind what was not handed out yet.",
        (
            Replace(
                f"{_SUBSCRIPTION}.positions",
                "return {pubend: buffer.received for pubend, buffer in self._buffers.items() if buffer.received}",
            ),
            Replace(
                f"{_SUBSCRIPTION}.end_positions",
                "return {pubend: buffer.received for pubend, buffer in self._buffers.items() if buffer.received}",
            ),
        ),
        ("I4", "I3"),
        "An application that keeps its token with its effects is killed with events buffered, and starts from it.",
    ),
    Switch(
        "silence_moves_token_past_buffer",
        ("before client's CT",),
        "A silence moves the token at once, although events before it wait to be handed out.",
        (
            Edit(
                f"{_BUFFER}.on_silence",
                "    if last is not None:\n        last.upto = upto\n    else:\n        self.position = upto",
                "    if last is not None:\n        last.upto = upto\n    self.position = upto",
            ),
        ),
        ("I4", "I3"),
        "An application that takes slowly and keeps its token is killed with events buffered, and starts from it.",
    ),
    Switch(
        "buffer_dropped_on_reconnect",
        ("before client's CT",),
        "What is buffered is dropped with the session, and the next one begins behind it.",
        (
            Edit(
                f"{_SUBSCRIPTION}.on_session_over",
                "self.phase = SubscriptionPhase.IDLE",
                "self.phase = SubscriptionPhase.IDLE\n"
                "    self._turns.clear()\n"
                "    self._buffered_events = self._buffered_bytes = 0\n"
                "    for buffer in self._buffers.values():\n"
                "        buffer._entries.clear()",
            ),
        ),
        ("I3", "I4"),
        "A link that breaks, or an SHB that restarts, while a client has events buffered.",
    ),
    Switch(
        "room_made_while_attaching_is_lost",
        ("T26",),
        "What an application takes between a client's request to attach and its answer is never given as credit; and"
        " who asks with anything in its buffer asks for none, which the answer would mend.",
        (
            Edit(f"{_SUBSCRIPTION}.on_subscribed", "    self._grant()", "    pass"),
            Edit(
                f"{_SUBSCRIPTION}._renew_credit",
                "self._credit_events = max(0, self.wanted.window_events - self._buffered_events)",
                "self._credit_events = 0 if self._buffered_events else self.wanted.window_events",
            ),
        ),
        ("V1",),
        "A link that breaks while there is something in the buffer of a client, and an application that then takes all"
        " of it before it is attached anew.",
    ),
    Switch(
        "gap_taken_for_silence",
        ("T1",),
        "A client moves its position over a gap and does not tell the application.",
        (Replace(f"{_BUFFER}.on_gap", "return self.on_silence(end, joins=True)"),),
        ("I3", "I4"),
        "Early release that passes a subscriber.",
    ),
    Switch(
        "acknowledgement_not_repeated",
        ("T42",),
        "A client that connects again does not say again what it has acknowledged; nor does it acknowledge the silence"
        " behind that, which would mend it.",
        (
            Edit(f"{_SUBSCRIPTION}._subscribe", "acknowledged=self.acknowledging.repeat(),", "acknowledged=[],"),
            Replace(f"{_SUBSCRIPTION}._acknowledge_silence", "return"),
        ),
        ("V3",),
        "The last acknowledgement of a run is lost with an SHB that loses power before its checkpoint; the client's"
        " process goes on, nothing more is published, and the application acknowledges only with events; it connects"
        " again before it was told of any silence, for of that its client would say something new.",
    ),
    Switch(
        "last_event_named_too_low",
        ("T47",),
        "An acknowledgement names an earlier event as the last one below it.",
        (
            Replace(
                "gapless.core.client.consuming.acknowledging:History.last_event",
                "if tick < self._known_after:\n"
                "    return tick\n"
                "return next((ticks[0] for ticks in reversed(self._chunks) if ticks[0] <= tick), self._last_below)",
            ),
        ),
        ("I3",),
        "An application takes several events as one delivery and acknowledges them; everything is released and chopped"
        " (min_retain = 0); it returns to a token between the first and the last of them, and must be told a gap.",
    ),
)

IGNORE_NUMBERS = Replace("gapless.core.wire.numbering:Received.is_new", "return True")
"""A frame is taken for what it says, whatever was before it."""

SESSIONS = (
    Switch(
        "no_session_epoch",
        ("T34",),
        "Neither side looks at which session a frame belongs to.",
        (
            Edit(
                "gapless.core.server.service:Sessions._on_frame",
                "        return  # of an earlier session",
                "        pass",
            ),
            Edit(
                "gapless.core.client.session:SessionCore._on_frame",
                "if not payload.startswith(self._outbox.head):",
                "if len(payload) < 8:",
            ),
            IGNORE_NUMBERS,
        ),
        ("I1", "I3", "P1"),
        "Frames of a client's earlier link arrive on its next one (a proxy, or a message queue as transport), with two"
        " pubends whose numbers differ between both sessions; or a stale Credit, or a stale Detach; or a batch of a"
        " publisher that is not open there (yet), a receipt for another batch.",
    ),
    Switch(
        "numbers_of_frames_ignored",
        ("numbers of frames",),
        "Neither side looks at the numbers of the frames of a session.",
        (IGNORE_NUMBERS,),
        ("I1", "V1", "V4", "P1"),
        "A frame with an event vanishes on a client's link on which nothing else breaks before the client has received"
        " something later.",
    ),
)

PUBLISHING = (
    Switch(
        "publishers_that_wait_for_room_are_forgotten",
        ("shared links",),
        "A publisher that has to wait for room on its link is not told when there is some.",
        (
            Edit(
                "gapless.core.client.link.outbox:ClientOutbox.on_room", "while self._waiting and", "while not self and"
            ),
        ),
        ("V1",),
        "A publisher with several batches under way, over a link that may let little wait.",
    ),
    Switch(
        "answers_leave_as_they_come",
        ("order of answers",),
        "The session layer answers a batch as soon as its pubend does, before earlier ones.",
        (
            Edit(
                "gapless.core.server.publishing:PublisherLink.take_answered",
                "if batch.outcome is None:\n            return None",
                "if batch.outcome is None:\n            continue",
            ),
        ),
        ("I7", "P1"),
        "A publisher with several batches under way to a pubend at another node, whose answers overtake each other"
        " (hostile: reorder).",
    ),
    Switch(
        "receipt_tells_of_the_broker_nearby",
        ("durable receipts",),
        "Whether a receipt is durable is what the broker says of itself that one is connected to.",
        (
            Replace(
                "gapless.core.client.publishing.publisher:PublisherCore._says_durable",
                "return self._durable",
            ),
        ),
        ("I7",),
        "A pubend at another node than that of the publisher's session, one of them in memory.",
    ),
    Switch(
        "what_follows_a_refusal_is_placed",
        ("order of answers",),
        "Batches that were sent before the client knew of a refusal are placed and answered like any other.",
        (
            Edit(
                "gapless.core.server.publishing:Publishing.on_publish",
                "if message.first > publisher.resume_at:",
                "if message.first < 0:",
            ),
        ),
        ("P1",),
        "A publisher with several batches under way, one of which is put off (a full disk), and more behind it.",
    ),
    Switch(
        "unanswered_batches_renumbered",
        ("T39", "T44"),
        "A publisher that opens again numbers what is unanswered behind what is logged, although that may be it.",
        (
            Edit(
                "gapless.core.client.publishing.publisher:PublisherCore._settle_sequence",
                "if not ambiguous or sequence < self.logged:",
                "if not ambiguous or sequence != self.logged:",
            ),
        ),
        ("I7", "I6"),
        "A link that breaks, or a PHB that restarts, between the logging of a batch and its receipt. The sequences"
        " differ: the model must know batches by their content.",
    ),
)
