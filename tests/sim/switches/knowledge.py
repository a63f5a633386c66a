"""Broken rules of the router `knowledge`, on trees of cells (traps T7, T51 to T57)."""

from __future__ import annotations

from sim.switches.edits import Edit, Replace
from sim.switches.switch import Switch

_STREAMS = "gapless_routing.knowledge.streams:Streams"
_PEERS = "gapless_routing.knowledge.peers:Peers"
_KNOWLEDGE = ("knowledge",)

PUSHING = (
    Switch(
        "push_has_its_own_events_alone",
        ("T51",),
        "A push that reaches back over known silence has only the events of the frame at hand.",
        (
            Edit(
                f"{_STREAMS}._first",
                "    if said is None:\n            continue\n",
                "    if said is None:\n            continue\n"
                "        own = [knowledge.lo < tick <= knowledge.hi for tick in said.data.ticks]\n"
                "        mask = sum(1 << at for at, is_own in enumerate(own) if is_own)\n"
                "        said = replace(said, data=said.data.select(mask))\n",
            ),
        ),
        ("C1", "I9", "I3"),
        "An IB, or a PHB with several directions, that caches an event as an answer or past an older filter, and"
        " then pushes what lies above it.",
        routers=_KNOWLEDGE,
    ),
    Switch(
        "late_silence_has_no_events",
        ("T52",),
        "Silence that has waited is said under the table of now, but stays what it was under the table of then.",
        (
            Edit(
                f"{_STREAMS}.say_silence",
                "if said is not None:\n",
                "if said is not None:\n        said = replace(said, data=said.data.slice(0, 0))\n",
            ),
        ),
        ("C1", "I9", "I3"),
        "A subscription comes to be known while silence waits that was an event which nobody wanted.",
        routers=_KNOWLEDGE,
    ),
    Switch(
        "full_link_is_pushed_to",
        ("T57",),
        "Nobody notices that a link is full: everything is pushed there, and waits.",
        (Replace(f"{_PEERS}.room", "pass"),),
        ("K6",),
        "A link that is slow for a while, and more than that is published.",
        routers=_KNOWLEDGE,
    ),
)

ASKING = (
    Switch(
        "answer_goes_to_the_cell",
        ("T54",),
        "An answer goes to the broker of the cell that a hash chooses, and not to the one that asked.",
        (
            Edit(
                f"{_STREAMS}._reply",
                "    self._peers.send(asker, replace(fitting, stamp=stamp, reply=True))",
                "    answer = replace(fitting, stamp=stamp, reply=True)\n"
                "        if cell in stream.bundles:\n"
                "            self._peers.push(cell, answer)\n"
                "        else:\n"
                "            self._peers.send(asker, answer)",
            ),
        ),
        ("K5", "V1", "V2"),
        "A cell of several IBs, of which one asks and another is chosen.",
        routers=_KNOWLEDGE,
    ),
    Switch(
        "asker_forgotten_early",
        ("T55",),
        "Who asked is forgotten when the want may be repeated.",
        (
            Edit(
                "gapless_routing.knowledge.askers:Askers.add",
                "until = now + REMEMBERED_FOR",
                "until = now + REMEMBERED_FOR // 150",
            ),
        ),
        ("K5", "V1", "V2"),
        "An answer that takes longer than 400 ms: slow links, or what was asked for is not yet published.",
        routers=_KNOWLEDGE,
    ),
    Switch(
        "need_of_one_shb_asked",
        ("T56",),
        "A broker asks with the version of the SHB that wants something, which never covers that of another.",
        (
            Edit(
                f"{_STREAMS}._ask_on",
                "need = join(need, self._interests.versions([CORE, *stream.bundles]))",
                "need = dict(need)",
            ),
        ),
        ("K7",),
        "Several SHBs behind one broker miss the same.",
        routers=_KNOWLEDGE,
    ),
)

SENDING = (
    Switch(
        "asked_on_for_ever",
        ("T7",),
        "What a broker has asked on for once it never asks for again, though the want may have been lost.",
        (
            Edit(
                "gapless.core.stream.curiosity:RecentWants.pass_on",
                "if now < until and covers(asked, need):",
                "if covers(asked, need):",
            ),
            Replace("gapless.core.stream.curiosity:RecentWants._prune", "pass"),
        ),
        ("V1", "V2"),
        "A want is lost between two brokers.",
        routers=_KNOWLEDGE,
    ),
)
