"""What clients and brokers say about shared subscriptions, in short human words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gapless.core.wire import messages as m
from gapless_sim.recording.message_text_ranges import Formatter
from gapless_sim.recording.short_names import Names, count_of
from gapless_sim.world.producer import key_of


def _holds(names: Names, holds: Iterable[m.Holds]) -> str:
    return ", ".join(f"{names.pubend(each.pubend)} {' '.join(map(names.tick, each.ticks))}" for each in holds)


def _verdict(names: Names, said: m.Verdict) -> str:
    delay = f" in {said.delay_ms:,} ms" if said.delay_ms else ""
    return f"{said.kind.value} {_holds(names, [said.holds])}{delay}"


def _settle(names: Names, said: m.Settle) -> tuple[str, str]:
    return "acknowledge", f"settle {said.number}: {'; '.join(_verdict(names, each) for each in said.verdicts)}"


def _deliver(names: Names, said: m.DeliverHeld) -> tuple[str, str]:
    keys = [key_of(event.body) for event in said.columns.events("")]
    events = names.events(keys, said.columns.ticks())
    careful = ", which may have been handed out before" if said.careful else ""
    return "deliver", f"deliver {events} to be held, from number {said.first} on{careful}"


def _settled(names: Names, said: m.Settled) -> tuple[str, str]:
    lost = f", but for {_holds(names, said.lost)}" if said.lost else ""
    return "acknowledge", f"settlement {said.number} is {'uncertain' if said.uncertain else f'durable{lost}'}"


FROM_CLIENT: Final[dict[type, Formatter]] = {
    m.Take: lambda names, said: ("acknowledge", f"take {_holds(names, [said.holds])}"),
    m.Settle: _settle,
    m.Extend: lambda names, said: ("acknowledge", f"still at work on {_holds(names, [said.holds])}"),
}
"""What a client says."""

FROM_BROKER: Final[dict[type, Formatter]] = {
    m.DeliverHeld: _deliver,
    m.DeliverHeldGap: lambda names, said: (
        "gap",
        f"a GAP in {names.range(said.start, said.end)}, to be held as number {said.held}: {said.reason}",
    ),
    m.Taken: lambda _, said: (
        "acknowledge",
        f"taken from number {said.first} on" + (f", but for {count_of(len(said.lost), 'event')}" if said.lost else ""),
    ),
    m.Settled: _settled,
    m.HoldLost: lambda names, said: ("acknowledge", f"no longer held: {_holds(names, said.holds)}"),
}
"""What a broker says."""
