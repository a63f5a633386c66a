"""Broken rules of what cores lend to routers, and of what an SHB may expect of one (protocol: interest, facts)."""

from __future__ import annotations

from sim.switches.edits import Edit, Replace
from sim.switches.switch import Switch

_INTEREST = "gapless_routing.common.interest:InterestTable"
_PARTS = "gapless_routing.common.interest:InterestParts"
_KNOWLEDGE = "gapless.core.stream.knowledge:KnowledgeStream"
_CONSTREAM = "gapless_shb.core.live.constream:Constream"

INTEREST = (
    Switch(
        "interest_with_holes",
        ("T4",),
        "A change of the interest is applied although the one before it is missing.",
        (
            Edit(
                f"{_INTEREST}.apply",
                "return interest.version <= row.version",
                "if interest.version <= row.version:\n            return True",
            ),
        ),
        ("C1", "I9", "I3"),
        "Subscriptions come and go while announcements are lost or overtaken (hostile: lose, reorder, drop_interest,"
        " delay_interest).",
    ),
    Switch(
        "interest_part_taken_for_whole",
        ("T4",),
        "What has come of an interest is taken for the whole of it.",
        (
            Edit(
                f"{_PARTS}.take",
                "if following is None:\n            return None",
                "if following is None:\n            break",
            ),
        ),
        ("C1", "I9", "I3"),
        "Several subscriptions, whose interest is sent in parts (hostile: part_interest).",
    ),
    Switch(
        "change_of_nothing_trusted",
        ("T27",),
        "A router that has lost its table takes the next change for the whole interest.",
        (
            Edit(
                f"{_INTEREST}.apply",
                "if row is None:\n        return False",
                "if row is None:\n        row = self._new_row(interest.shb)\n        row.version = interest.base",
            ),
        ),
        ("C1", "I9", "I3"),
        "Several subscriptions, then the PHB restarts or its router forgets (hostile: forget), and the whole interest"
        " comes later than the next change, or not (drop_interest, lose).",
    ),
    Switch(
        "empty_table_trusted",
        ("T27",),
        "A router that does not know the interest filters everything out, and does not say that it filtered.",
        (
            Edit(
                f"{_INTEREST}.decide",
                "return Decision(flood=True, stamp=passed_on)",
                "return Decision(flood=False, stamp=passed_on)",
            ),
        ),
        ("C1", "I3"),
        "Subscriptions, then the PHB restarts or its router forgets (hostile: forget), and it is published to before"
        " the whole interest has arrived (drop_interest, lose, delay).",
    ),
)

CACHES = (
    Switch(
        "forgotten_events_are_silence",
        ("T1",),
        "A cache that forgets events goes on to know the silence around them, and so calls them silence.",
        (Edit(f"{_KNOWLEDGE}.forget", "self._runs.remove(lo, hi)", "pass"),),
        ("C1", "I3"),
        "A router with a cache that it forgets parts of (hostile: stale_answer), and subscribers that want what was"
        " forgotten (away, or from `earliest`).",
    ),
    Switch(
        "answers_overstate",
        ("T13",),
        "An answer from a cache that joins silences under several stamps claims the highest of them for all.",
        (Edit(f"{_KNOWLEDGE}.answer", "meet(last.stamp, run.stamp)", "join(last.stamp, run.stamp)"),),
        ("C1", "I9", "I3"),
        "A router that answers from a cache (hostile: stale_answer) in which pushes under several versions lie next"
        " to each other, while subscriptions are created.",
    ),
)

CURIOSITY = (
    Switch(
        "want_not_repeated",
        ("T7",),
        "What was asked for once is not asked for again.",
        (
            Replace(
                "gapless.core.stream.curiosity:CuriosityStream._asked",
                "return curious._replace(due_at=now + (1 << 62), tries=curious.tries + 1)",
            ),
        ),
        ("V2", "V1"),
        "A want or its answer is lost (hostile: lose, drop_want; or a broker that restarts with a want in hand).",
    ),
    Switch(
        "silence_after_four_nacks",
        ("T24",),
        "What was asked for four times without an answer is taken for silence.",
        (
            Edit(
                f"{_CONSTREAM}.finish_turn",
                "    if (wants := self._curiosity.deadline()) is not None:",
                "    for lo, hi, curious in tuple(self._curiosity._runs):\n"
                "        if curious.tries >= 4 and hi <= self._target and curious.need is not None:\n"
                "            self._istream.accumulate(Knowledge(self.pubend, lo, hi, stamp=curious.need))\n"
                "            self._curiosity.clear(((lo, hi),), curious.need)\n"
                "    if (wants := self._curiosity.deadline()) is not None:",
            ),
        ),
        ("I3", "I10"),
        "Events are lost on their way, the SHB hears that there were some (Seen, a probe, or later events), and then"
        " its wants are not answered for ten seconds or more (a partition, or a PHB that is down).",
    ),
    Switch(
        "hold_not_repeated",
        ("T46",),
        "A row of holds is sent once, answered or not.",
        (Edit("gapless_shb.core.state.pubend:PubendHolds.due", "self.send_at = now + REPEAT", "self.send_at = None"),),
        ("V1",),
        "A subscription from `earliest` that needs a hold, and the row or its answer is lost (hostile: lose).",
    ),
)

REACH = (
    Switch(
        "any_tick_is_believed",
        ("T61",),
        "Whatever tick another node names, it is believed.",
        (Replace("gapless.core.network.reach:check_tick", "pass"),),
        ("C1", "C4", "I9", "I3"),
        "A neighbour speaks of a tick that no pubend can have reached.",
        routers=("hostile", "knowledge"),
    ),
)
