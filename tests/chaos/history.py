"""What everybody has written down, put together for the judge."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final

import gapless
from chaos.effects import read_effects
from chaos.journal import Line, lines
from chaos.judge import EventId, History, Item, Published, Session, Subscribed, Ticks
from chaos.plan import SOURCES, Plan, event_of, subscriptions

RESUMES: Final = {"token": "acked", "auto": "handed", "fleeting": "", "brief": ""}
"""How sessions follow each other that are in journals."""
EXACT: Final = ("named", "keyed")
"""Kinds of publishers that know what they have published, whatever happened, and go on behind it."""


def gathered(
    directory: Path, seed: int, workers: Sequence[str], heads: Ticks, lost: Ticks, kept: Mapping[str, list[Item]]
) -> History:
    """The history of a run. `workers`: those that consume."""
    told: list[tuple[str, str]] = []
    plans = subscriptions(seed)
    published = _published(directory, told)
    sessions: dict[str, list[Session]] = {plan.name: [] for plan in plans}
    for worker in workers:
        _read(lines(directory, worker), sessions, told)
    return History(
        event_of=lru_cache(maxsize=None)(partial(event_of, seed)),
        published=published,
        subscribed=[_subscribed(plan, sessions[plan.name], directory) for plan in plans],
        heads=heads,
        lost=lost,
        kept=kept,
        told=told,
        named=frozenset(source.name for source in SOURCES if source.kind in EXACT),
    )


def _published(directory: Path, told: list[tuple[str, str]]) -> Published:
    """What publishers did and were told."""
    published = Published()
    for source in SOURCES:
        recovered, highest = 0, -1
        for line in lines(directory, source.name):
            kind = line["kind"]
            if kind == "sent":
                for number in range(line["first"], line["end"]):
                    published.sent.setdefault((source.name, number), line["instance"])
            elif kind == "receipt":
                ticks = line["ticks"] or [None] * len(line["numbers"])
                for number, tick in zip(line["numbers"], ticks, strict=True):
                    _note_receipt(published, (source.name, number), line["pubend"], tick)
                    highest = max(highest, number)
            elif kind == "rejected":
                published.rejected.add((source.name, line["number"]))
            elif kind == "recovered":
                published.recovered.append((source.name, line["count"], highest))
                recovered = max(recovered, line["count"])
            elif kind == "error":
                told.append(("unexpected error", f"{source.name}, {line['what']}: {line['error']}"))
        for number in range(recovered):
            published.receipts.setdefault((source.name, number), ("", None))
    return published


def _note_receipt(published: Published, event: EventId, pubend: str, tick: int | None) -> None:
    """Of a repetition it is not told where the event is."""
    if tick is not None or event not in published.receipts:
        published.receipts[event] = pubend, tick


def _read(written: Iterable[Line], sessions: dict[str, list[Session]], told: list[tuple[str, str]]) -> None:
    """What a process wrote that consumes."""
    by_attach: dict[int, Session] = {}
    for line in written:
        kind = line["kind"]
        if kind == "attached":
            session = by_attach[line["attach"]] = Session(line["name"], line["ticks"])
            sessions[line["plan"]].append(session)
        elif kind == "got":
            by_attach[line["attach"]].items += map(item_of, line["rows"])
        elif kind == "acked":
            acked = by_attach[line["attach"]].acked
            for pubend, tick in line["ticks"].items():
                acked[pubend] = max(tick, acked.get(pubend, 0))
        elif kind == "left":
            by_attach[line["attach"]].end = line["ticks"]
        elif kind == "refused":
            told.append(("position refused", f"{line['name']}: {line['error']}"))
        elif kind == "error":
            told.append(("unexpected error", f"{line['what']}: {line['error']}"))


def _subscribed(plan: Plan, sessions: list[Session], directory: Path) -> Subscribed:
    """What a subscription was handed: out of its database, where it has one."""
    if plan.kind in RESUMES:
        return Subscribed(plan, sessions, RESUMES[plan.kind])
    start, end, rows = read_effects(directory / f"{plan.name}.sqlite")
    if start is None or end is None:
        return Subscribed(plan, [])
    first, last = (dict(gapless.CheckpointToken.parse(text).ticks) for text in (start, end))
    return Subscribed(plan, [Session(plan.name, first, list(map(item_of, rows)), last)])


def item_of(row: Sequence[Any]) -> Item:
    """An item as it was written down."""
    pubend, tick, event, checksum, start, reason, attach = row
    if event is None:
        return Item(pubend, tick, start=start, reason=reason, attach=attach)
    publisher, _, number = event.partition(":")
    return Item(pubend, tick, (publisher, int(number)), checksum, attach=attach)
