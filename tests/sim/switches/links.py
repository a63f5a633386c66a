"""Broken rules of the links between nodes, on trees of cells whose nodes have the link cores of production."""

from __future__ import annotations

from sim.switches.edits import Edit, Replace
from sim.switches.switch import Switch

_LINK = "gapless.core.network.links:BrokerLink"
_LINKS = "gapless.core.network.peers:BrokerLinks"
_PUBEND = "gapless_phb.core.pubend:Pubend"
_KNOWLEDGE = ("knowledge",)

LINKS = (
    Switch(
        "link_proof_not_checked",
        ("links",),
        "Whoever says that it is a node of the network is believed, whatever its proof is.",
        (Replace(f"{_LINK}._check_proof", "pass"),),
        ("K10",),
        "A stranger that does not know the network's secret connects, and calls itself a node of the map.",
        routers=_KNOWLEDGE,
    ),
    Switch(
        "link_takes_what_was_said_on_an_earlier_one",
        ("links",),
        "A payload is taken whatever link it was said on.",
        (Edit(f"{_LINK}.on_payload", "if session != self._session:", "if False:"),),
        ("K10",),
        "A payload of an earlier connection turns up on a later one.",
        routers=_KNOWLEDGE,
    ),
    Switch(
        "both_crossing_dials_stay",
        ("links",),
        "Of two links between the same two nodes none is closed.",
        (
            Edit(f"{_LINKS}._on_proven", "if other.phase is LinkPhase.UP or self._me.node < link.peer:", "if False:"),
            Edit(f"{_LINKS}._come_up", "    assert peer.link is None\n", ""),
            Edit(f"{_LINKS}._come_up", "if peer.dial is not None and peer.dial != link.number:", "if False:"),
        ),
        ("K10",),
        "Two nodes dial each other at the same moment.",
        routers=_KNOWLEDGE,
    ),
    Switch(
        "every_earlier_process_is_shut_out",
        ("two processes",),
        "A process that has come after another one is proof enough that both run.",
        (
            Edit(
                "gapless.core.network.incarnations:Incarnations.answered",
                "if other != incarnation and mine.first < theirs.asked and theirs.answered < asked",
                "if other != incarnation",
            ),
        ),
        ("N1",),
        "A node is started again.",
        routers=_KNOWLEDGE,
    ),
    Switch(
        "a_second_process_gets_a_link_beside_the_first",
        ("two processes",),
        "A node that comes as another process is let in at once, and its older link stays.",
        (
            Edit(f"{_LINKS}._on_proven", "elif other.phase is LinkPhase.UP:", "elif False:"),
            Edit(f"{_LINKS}._come_up", "    assert peer.link is None\n", ""),
        ),
        ("K10",),
        "A node is started again before its older link is over, or is run twice.",
        routers=_KNOWLEDGE,
    ),
    Switch(
        "a_fork_is_not_told",
        ("two processes",),
        "A PHB that is told that another process of it ran goes on as if that had logged nothing.",
        (
            Edit(f"{_PUBEND}.ran_twice", "if all(known != other for _, _, known in self.row.forks):", "if False:"),
            Edit(f"{_PUBEND}.ask", "if self.log.ready and told > decided and", "if False and"),
        ),
        ("N2",),
        "A PHB is run twice, on a copy of its volume, and both processes log events.",
        routers=_KNOWLEDGE,
    ),
    Switch(
        "silence_of_the_other_process_is_believed",
        ("two processes",),
        "An SHB that hears of a second process of a PHB keeps what it was told to be silence: it may be that process's"
        " word.",
        (Edit("gapless_shb.core.live.constream:Constream.forget_forks", "if fork not in before:", "if False:"),),
        ("N2",),
        "A PHB is run twice, and an SHB was told of silence that it has not passed, because of a hole before it.",
        routers=_KNOWLEDGE,
    ),
    Switch(
        "one_way_link_stays_up",
        ("links",),
        "Nobody misses beats, nor notices that they say that nothing arrives.",
        (
            Edit(f"{_LINK}.on_beat_due", "if self._silent >= BEATS_MISSED_MAX:", "if False:"),
            Edit(f"{_LINK}._on_beat", "if self._unheard >= BEATS_MISSED_MAX:", "if False:"),
        ),
        ("K10",),
        "A link that lets nothing through in one direction, or in none, for a few seconds.",
        routers=_KNOWLEDGE,
    ),
    Switch(
        "parts_of_frames_are_mixed",
        ("links",),
        "Parts of urgent frames and of others are put together in one place.",
        (Edit(f"{_LINK}._on_data", "self._parts[kind >= _LAST_URGENT]", "self._parts[False]"),),
        ("K10",),
        "An urgent frame overtakes between the parts of a large one, on a link that is full.",
        routers=_KNOWLEDGE,
    ),
    Switch(
        "undial_ignored",
        ("links",),
        "A router lets go of a node, and its links go on as if nothing had been said: they dial for ever.",
        (Replace(f"{_LINKS}.on_undial", "pass"),),
        ("K10",),
        "A router that lets go of a node: one that is down, or one whose router does not wish for the link either.",
        awaits="a router that lets go of nodes; until there is one, tests/sim/test_wishes.py has its own",
    ),
)
