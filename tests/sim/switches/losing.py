"""Broken rules of what is told as lost: it was asked for, answered so, and nobody who was asked had it still (T19)."""

from __future__ import annotations

from sim.switches.edits import Edit, Replace
from sim.switches.switch import Switch

_STREAM = "gapless.core.stream.knowledge:KnowledgeStream"

LOSING = (
    Switch(
        "given_up_is_lost_everywhere",
        ("T19",),
        "That a pubend has given up everything up to a tick makes all of it lost that is not known, wherever it is"
        " heard: caches are not asked, and what they have answered comes too late.",
        (
            Replace(
                f"{_STREAM}._rise",
                "if lost <= self._lost:\n"
                "    return 0\n"
                "self._lost = lost\n"
                "self._gone.add(self._base, lost)\n"
                "return lost",
            ),
        ),
        ("I5",),
        "Early release, and a reader that fetches a range from below what is released while pushes say so.",
    ),
    Switch(
        "ticks_are_lost_unanswered",
        ("T19",),
        "The same for a reader that knows from the PFS which ticks it needs.",
        (
            Edit(
                "gapless_shb.core.catch_up.fetches:TickFetch.offer",
                "for lo, hi in knowledge.gone:",
                "for lo, hi in ((0, knowledge.lost),):",
            ),
            Edit(
                "gapless_shb.core.catch_up.page_cache:PageCache.on_knowledge",
                "for lo, hi in knowledge.gone:",
                "for lo, hi in ((0, knowledge.lost),):",
            ),
        ),
        ("I5",),
        "Early release, and a consumer that comes back to its home, with events below what is released.",
        routers=("local", "hostile", "knowledge"),
    ),
    Switch(
        "filtered_silence_is_lost",
        ("T19",),
        "A cache answers that ticks are lost where it has silence that was filtered for others, if the pubend has given"
        " them up: a reader gets a gap between every two events.",
        (
            Edit(
                f"{_STREAM}._judged",
                "for part in self._outside(run.lo, run.hi):",
                "given_up = min(max(run.lo, self._lost), run.hi)\n"
                "        if run.lo < given_up:\n"
                "            yield Run(run.lo, given_up, Kind.LOST)\n"
                "        for part in self._outside(given_up, run.hi):",
            ),
        ),
        ("K11", "I5"),
        "Early release, and a reader that needs RAW (a guest, or one whose filter has changed) behind an IB.",
        routers=("knowledge",),
    ),
)
