"""Broken rules of the router `delta`, on trees of single nodes (traps T17 and T18, and others)."""

from __future__ import annotations

from sim.switches.edits import Edit, Replace
from sim.switches.switch import Switch

_COPIES = "gapless_routing.delta.copies:Copies"
_SERVING = "gapless_routing.delta.serving:Serving"
_INTERESTS = "gapless_routing.delta.interest:SideInterests"
_RELAY = "gapless_routing.common.relay:Relay"
_DELTA = ("delta",)

KEEPING = (
    Switch(
        "gone_is_silence_for_all",
        ("gone events",),
        "Where an event was let go of there is silence for everybody, whoever wants it.",
        (
            Edit(
                f"{_COPIES}._let_go",
                "left = self._without(pubend, stamp, groups, losers)",
                "left = self._without(pubend, stamp, groups, [])",
            ),
        ),
        ("C1", "I3", "I9"),
        "An SHB that is away while events go for lack of room, and asks when it is back.",
        routers=_DELTA,
    ),
    Switch(
        "ib_stamps_raw",
        ("stamped where it is",),
        "A broker on the way turns silence that nobody filtered into silence under the versions that it knows.",
        (
            Edit(
                f"{_INTERESTS}.decide_for",
                "if not pubend.is_here or not self._ring.ready or any(shb not in pubend.enrolled for shb in versions):",
                "if not self._ring.ready:",
            ),
        ),
        ("C5",),
        "An SHB of which others hear before it is durable that the pubend counts it.",
        routers=_DELTA,
    ),
    Switch(
        "body_dropped_at_push",
        ("copies at push",),
        "An event goes when the next broker has it.",
        (
            Edit(
                f"{_COPIES}.beat",
                "        if upto:\n",
                "        if pubend.outward and not pubend.is_here:\n"
                "            pushed = min(self._told(pubend, broker) for broker in pubend.outward)\n"
                "            pubend.cache.forget(pubend.cache.base, pushed)\n"
                "            pubend.looked_upto = max(pubend.looked_upto, pushed)\n"
                "        if upto:\n",
            ),
        ),
        ("D1", "D7", "K11"),
        "A broker that dies with events that it has not passed on.",
        routers=_DELTA,
    ),
    Switch(
        "root_keeps_no_copy",
        ("copies at the pubend",),
        "The pubend's own broker keeps nothing of what it has pushed: its log has it.",
        (
            Edit(
                f"{_COPIES}.beat",
                "        if upto:\n",
                "        if pubend.outward and pubend.is_here:\n"
                "            pushed = min(self._told(pubend, broker) for broker in pubend.outward)\n"
                "            pubend.cache.forget(pubend.cache.base, pushed)\n"
                "        if upto:\n",
            ),
        ),
        ("D1", "D7", "K11"),
        "A neighbour of the pubend's broker that dies with the push in its queue.",
        routers=_DELTA,
    ),
    Switch(
        "purge_inside_window",
        ("the window",),
        "Events go as soon as they are safe, however young they are.",
        (
            Edit(
                f"{_COPIES}.beat",
                "        if upto:\n",
                "        upto = pubend.cache.known_upto\n        if upto:\n",
            ),
        ),
        ("D1", "D7", "K11"),
        "A broker that is served anew, and had not all of what was just published.",
        routers=_DELTA,
    ),
    Switch(
        "dead_life_counts",
        ("T17",),
        "What a broker reported before it came back empty counts as a copy still.",
        (Replace(f"{_COPIES}.forget_lives_but", "pass"),),
        ("D5",),
        "A broker on the way that comes back while events of before are kept above it.",
        routers=_DELTA,
    ),
    Switch(
        "evicted_is_a_copy",
        ("evicted copies",),
        "A run reaches below what was let go of for lack of room.",
        (
            Edit(
                f"{_COPIES}.run",
                "floor = max(pubend.cache.base, pubend.evicted)",
                "floor = pubend.cache.base",
            ),
        ),
        ("D5",),
        "A broker with little room.",
        routers=_DELTA,
    ),
)

PILING = (
    Switch(
        "all_keep_for_who_is_away",
        ("piles for who is away",),
        "What an SHB lacks that is away is kept by all brokers on the way to it, however far off they are.",
        (
            Edit(
                f"{_COPIES}._safe",
                "if all_have is not None:",
                "if False:",
            ),
        ),
        ("D8",),
        "An SHB that is away for longer than the window.",
        routers=_DELTA,
    ),
)

SERVING = (
    Switch(
        "serve_unnumbered",
        ("numbers of services",),
        "Whatever is said of a service counts, however late it comes.",
        (
            Edit(
                f"{_SERVING}.on_serve",
                "if not self.is_told(broker, stream) or service.number < before:",
                "if not self.is_told(broker, stream):",
            ),
            Edit(
                f"{_SERVING}.on_unserve",
                "if stream.numbers.get(broker, 0) <= service.number:",
                "if True:",
            ),
        ),
        ("V1", "V2", "D4"),
        "A frame that ends a service, comes late, and meets a newer one.",
        routers=_DELTA,
    ),
    Switch(
        "served_twice_unserves",
        ("said again",),
        "Who agrees to serve a second time is told that it need not.",
        (
            Edit(
                f"{_SERVING}.on_served",
                "if said == stream.server:\n            continue",
                "if said == stream.server:\n            self._end(stream, broker)\n            continue",
            ),
        ),
        ("V1", "V2", "D4"),
        "A frame that comes twice, or an answer that was asked for again.",
        routers=_DELTA,
    ),
    Switch(
        "break_before_make",
        ("T18",),
        "The one that bypassed is let go of when the nearer one is back, before that is ready and agrees.",
        (
            Edit(
                f"{_SERVING}._choose",
                "key=lambda x: (not self._ring.is_cut(x, pubend), self._ring.is_ready(x), -self._tree.distance(x)),",
                "key=lambda x: -self._tree.distance(x),",
            ),
            Edit(
                f"{_SERVING}._ask",
                "self._numbers += 1\n",
                "self._numbers += 1\n"
                "    if stream.server is not None and stream.server.broker != broker:\n"
                "        self._end(stream, stream.server.broker)\n"
                "        stream.server = None\n",
            ),
        ),
        ("D7", "D1", "D4"),
        "A broker that comes back, and has nothing to say yet.",
        routers=_DELTA,
    ),
    Switch(
        "reply_is_pushed",
        ("answers to who asked",),
        "An answer is pushed to all that are served.",
        (
            Edit(
                f"{_RELAY}.take",
                "if not knowledge.reply:\n        pushed[CORE]",
                "if True:\n        pushed[CORE]",
            ),
        ),
        ("V4",),
        "Somebody who asks for what others have had.",
        routers=_DELTA,
    ),
    Switch(
        "silence_waits_at_each_hop",
        ("silence in all",),
        "Silence may wait a whole second at each broker, whatever it has waited before.",
        (Edit(f"{_RELAY}._first", "may_wait = slack > 0", "slack = SILENCE_AFTER\n        may_wait = slack > 0"),),
        ("D9", "K12"),
        "Silence that waits, and an event that follows it and turns off at a later broker.",
        routers=_DELTA,
    ),
)

KNOWING = (
    Switch(
        "complete_from_all",
        ("a census by the others",),
        "A census is whole for a broker when all directions are known, that of this broker, too.",
        (
            Edit(
                f"{_INTERESTS}._is_whole_for",
                "if other != own",
                "if other",
            ),
        ),
        ("D6",),
        "Neighbours of each other that start, or come back, at the same time.",
        routers=_DELTA,
    ),
    Switch(
        "lost_changes_stay_lost",
        ("rows that are owed",),
        "Whoever has an SHB's interest asks for no later one that a census names: a change that was lost stays lost.",
        (
            Edit(
                "gapless_routing.common.census:InterestByDirection.take_row",
                "if version < row.version or",
                "if row.shb not in direction.table.versions or",
            ),
        ),
        ("D2",),
        "A change of an interest that is lost.",
        routers=_DELTA,
    ),
    Switch(
        "wish_is_kept",
        ("wishes that end",),
        "A link that nobody needs any more is wished for still, and dialled when it is gone.",
        (
            Edit(
                "gapless_routing.delta.ring:Ring.reconsider",
                "            self.links.let_go(broker)\n",
                "",
            ),
            Edit(
                "gapless_routing.delta.ring:Ring.reconsider",
                "if self._is_needless(broker):",
                "if False:",
            ),
        ),
        ("D4",),
        "A broker that was away, and is back.",
        routers=_DELTA,
    ),
    Switch(
        "sides_never_forget",
        ("sides that forget",),
        "Nobody forgets an SHB of which its own broker speaks no more.",
        (
            Replace("gapless_routing.common.census:InterestByDirection.forget_silent", "return []"),
            Replace(f"{_INTERESTS}.retire", "pass"),
        ),
        ("K9",),
        "An SHB whose machine is lost and replaced.",
        routers=_DELTA,
    ),
    Switch(
        "gone_is_asked_for_ever",
        ("lost volumes in a tree",),
        "A pubend that is gone with its broker's volume is asked for still, past one broker after the other.",
        (Replace(f"{_SERVING}.heard_from", "pass"),),
        ("D4",),
        "A PHB whose machine is lost and replaced.",
        routers=_DELTA,
    ),
)
