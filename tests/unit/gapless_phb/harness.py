"""A PHB core on a rig, and publishers.

Ticks are written `ms`, `ms.counter` or, off the grid of a pubend's own ticks, `ms.counter+rest`, where ms
counts from the beginning of the world; so a transcript can be read aloud.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gapless.core.alarms import Alarm, Note
from gapless.core.gauges import values_by
from gapless.core.network.facts import (
    AskPubend,
    Ending,
    Enrol,
    Enrolled,
    Held,
    Hold,
    Know,
    Opened,
    OpenRequest,
    Outcome,
    Probe,
    Pub,
    Released,
    Submit,
    SubmitOpen,
    Submitted,
    Verdict,
    Want,
)
from gapless.core.ports import ClientSession, RoleContext, Tell
from gapless.core.principals import Principal
from gapless.core.stream.columns import EventColumns
from gapless.core.stream.events import encode_event
from gapless.core.stream.ticks import EPOCH_MS, MILLISECOND, STEP, Tick
from gapless_phb.core import gauges, rows
from gapless_phb.core.broker import PublisherHostingBroker
from gapless_phb.core.pubend import Pubend
from gapless_phb.core.publishers.table import term_of
from gapless_phb.core.settings import PubendSettings, Settings
from unit.rig import Rig

BEGINNING = 1000
"""Milliseconds since 2020 at which every world begins."""
TABLES = rows.Tables("phb")
NO_RETENTION = PubendSettings("default", min_retain_seconds=0, min_retain_bytes=0)


class Harness(Rig[PublisherHostingBroker]):
    """A PHB, its disk and its clocks."""

    def __init__(self, *pubends: PubendSettings, **settings: Any) -> None:
        self.settings = Settings(pubends=pubends or (NO_RETENTION,), **settings)
        super().__init__(self._make, role="phb", now=0, wall=EPOCH_MS + BEGINNING)

    def _make(self, context: RoleContext) -> PublisherHostingBroker:
        return PublisherHostingBroker(context, self.settings)

    # What routers and clients say.

    def request(self, message: object) -> list[object]:
        """A client asks something."""
        return self.feed(message, ClientSession(1, "client", "instance", Principal("somebody")))

    def ask(self, *ranges: tuple[Tick, Tick], reply_to: str = "shb") -> list[object]:
        """An SHB wants ranges."""
        return self.feed(AskPubend(Want(self.pubend, ranges, None, "shb", again=False), reply_to))

    def enrol(self, shb: str) -> list[object]:
        return self.feed(Enrol(self.pubend, shb))

    def hold(self, shb: str, version: int, at: Mapping[int, Tick]) -> list[object]:
        return self.feed(Hold(shb, self.pubend, version, at))

    def release(self, released: Tick, delivered: Tick | None = None) -> list[object]:
        """The router says minima; if time must pass before the broker chops, it passes."""
        return self.feed(Released(self.pubend, released, released if delivered is None else delivered))

    # Looking.

    @property
    def pubend(self) -> str:
        """The only pubend, or the first."""
        return self.pubends[0]

    def hosted(self, pubend: str | None = None) -> Pubend:
        """A pubend, as the broker has it."""
        return self.role._pubends[pubend or self.pubend]

    @property
    def pubends(self) -> list[str]:
        return list(values_by(self.role.gauges(), gauges.READ_ONLY, "pubend"))

    def status(self, pubend: str | None = None) -> dict[str, Any]:
        """The gauges of a pubend by what is between `gapless_pubend_` and the unit; those of SHBs by the SHB.

        Without those that count answers: a refusal changes nothing else.
        """
        pubend = pubend or self.pubend
        status: dict[str, Any] = {"members": {}, "holds": {}, "hold_bytes": {}}
        for gauge in self.role.gauges():
            labels = dict(gauge.labels)
            if labels.get("pubend") != pubend or "verdict" in labels:
                continue
            name = gauge.name.removeprefix("gapless_pubend_").removesuffix("_ticks")
            if "shb" in labels:
                status[{"member": "members", "hold": "holds"}.get(name, name)][labels["shb"]] = gauge.value
            else:
                status[name] = gauge.value
        return status

    @property
    def stream(self) -> str:
        """The name of the pubend's log."""
        return f"phb.{self.pubend}"

    @property
    def logged(self) -> list[tuple[int, bytes]]:
        """The visible records of the pubend's log."""
        return self.records(self.stream)

    @property
    def chopped(self) -> Tick:
        """Its visible chop point."""
        return self.volume.stream(self.stream).first

    def row(self, table: str, name: str = "") -> bytes | None:
        """A durable row of pubend number 0."""
        return self.durable(table).get(rows.key(0, name))

    def spoil(self, *indexes: Tick, garbled: bool = False) -> None:
        """These records of the pubend's log cannot be read any more, or are other ones than were written."""
        if garbled:
            self.change_records(
                self.stream,
                lambda records: records.__setitem__(
                    slice(None), [(index, raw[:-1] + b"?" if index in indexes else raw) for index, raw in records]
                ),
            )
        else:
            self.disk.faults.unreadable.update((self.stream, index) for index in indexes)

    def give_up(self, *ranges: tuple[Tick, Tick]) -> None:
        """An operator gives up what is in these ranges (after, upto] of the pubend's log."""
        with self.repairing() as volume:
            for after, upto in ranges:
                volume.stream(self.stream).give_up(after, upto)

    def publisher(self, name: str = "ann") -> TestPublisher:
        """A publisher that is open, durably; ten milliseconds later."""
        publisher = TestPublisher(self, name)
        publisher.open()
        self.sync()
        publisher.opened()
        self.advance(10)
        return publisher


class TestPublisher:
    """An SDK's publisher, reduced: it numbers its events and says whatever it is told to."""

    __test__ = False

    def __init__(self, harness: Harness, name: str, instance: str = "i1") -> None:
        self.harness = harness
        self.name = name
        self.instance = instance
        self.attempt = 0
        self.pubend = ""
        self.epoch = 0
        self.next = 1

    def open(self, topic: str | None = None, *, attempt: int | None = None) -> list[object]:
        """Opens; a newer attempt each time, unless one is given."""
        self.attempt = self.attempt + 1 if attempt is None else attempt
        request = OpenRequest(self.name, self.instance, self.attempt, topic, self.pubend, principal="anonymous")
        return self.harness.feed(SubmitOpen(request, self))

    def end(self, ending: Ending) -> list[object]:
        """Is closed, or its session has ended."""
        request = OpenRequest(
            self.name, self.instance, self.attempt, None, self.pubend, self.epoch, ending, principal="anonymous"
        )
        return self.harness.feed(SubmitOpen(request, "end"))

    def come_back(self) -> list[object]:
        """Opens in another session, naming the epoch that it had."""
        self.opened()
        self.attempt += 1
        request = OpenRequest(
            self.name, self.instance, self.attempt, None, self.pubend, self.epoch, principal="anonymous"
        )
        self.epoch = 0
        return self.harness.feed(SubmitOpen(request, self))

    def take(self, submitted: Submitted) -> None:
        """The answer to an opening."""
        self.pubend, self.epoch = submitted.pubend, submitted.outcome.epoch
        self.next = submitted.outcome.sequence + 1

    def send(self, count: int = 1, *, text: str = "", reply_to: object = "reply") -> list[object]:
        """Sends the next events."""
        self.opened()
        first, self.next = self.next, self.next + count
        return self.repeat(first, count, text=text, reply_to=reply_to)

    def repeat(self, first: int, count: int = 1, *, text: str = "", reply_to: object = "reply") -> list[object]:
        """Sends events under given sequences."""
        self.opened()
        return self.harness.feed(Submit(self.batch(first, count, text), reply_to))

    def batch(self, first: int, count: int, text: str = "") -> Pub:
        """The batch of these sequences; its content follows from them."""
        events = columns([body(self.name, sequence, text) for sequence in range(first, first + count)])
        return Pub(self.name, self.epoch, first, events, self.pubend, b"", principal="anonymous")

    def opened(self) -> None:
        """Takes the answer to its opening, if there is one and it was not taken."""
        if not self.epoch:
            answers = [one for one in self.harness.said if isinstance(one, Submitted) and one.reply_to is self]
            if answers and answers[-1].outcome.verdict is Verdict.OK:
                self.take(answers[-1])


def body(publisher: str, sequence: int, text: str = "") -> bytes:
    """The body of a test's event."""
    return f"{publisher}/{sequence}{text}".encode()


def columns(bodies: Sequence[bytes], topic: str = "topic") -> EventColumns:
    """Events with these bodies."""
    events = [encode_event(topic, {"size": len(one)}, None, one) for one in bodies]
    return EventColumns.of(events, map(len, bodies))


# ------------------------------------------------------------------------------------------ what is said


def at(ms: int, counter: int = 0) -> Tick:
    """The tick of a millisecond of the world."""
    return ms * MILLISECOND + counter * STEP


def spell(tick: Tick) -> str:
    """A tick, written as this module says."""
    ms, rest = divmod(tick, MILLISECOND)
    counter, rest = divmod(rest, STEP)
    return f"{ms}" + (f".{counter}" if counter or rest else "") + (f"+{rest}" if rest else "")


def epoch(term: int, opening: int = 0) -> int:
    """The epoch of an opening of the instance with a term; the first one is 0."""
    return (term << 24) + opening


def spell_epoch(number: int) -> str:
    """An epoch as `term`, or as `term.opening` of an instance that has opened again."""
    opening = number - epoch(term_of(number))
    return f"{term_of(number)}" + (f".{opening}" if opening else "")


def bodies(data: Any) -> str:
    """The bodies of a batch and their ticks."""
    pairs = zip(data.ticks, data.events, data.body_lengths, strict=True)
    return " ".join(f"{spell(tick)}={event[len(event) - length :].decode()}" for tick, event, length in pairs)


def lines(effects: Sequence[object]) -> list[str]:
    """Effects as lines to read."""
    return [line(effect) for effect in effects]


def line(effect: object) -> str:
    """An effect as a line to read."""
    if isinstance(effect, Know):
        k = effect.knowledge
        what = [f"({spell(k.lo)}, {spell(k.hi)}]", bodies(k.data) or "silence"]
        lost = [f"lost={spell(k.lost)}"] if k.lost else []
        return " ".join([f"answer {effect.reply_to}:" if k.reply else "know", *what, *lost])
    if isinstance(effect, Submitted):
        return _submitted(effect.reply_to, effect.outcome)
    if isinstance(effect, Opened):
        members = " ".join(f"{shb}@{spell(tick)}" for shb, tick in effect.members.items())
        return f"opened stable={spell(effect.meta.stable)} members: {members or 'none'}"
    if isinstance(effect, Enrolled):
        return f"enrolled {effect.shb} at {spell(effect.at)}"
    if isinstance(effect, Held):
        held = " ".join(f"{sid}@{spell(tick)}" for sid, tick in effect.at.items())
        return f"held {effect.shb} version {effect.version}: {held or 'nothing'}"
    if isinstance(effect, Probe):
        return f"probe up to {spell(effect.upto)}"
    if isinstance(effect, Alarm):
        return f"alarm: {effect.text}"
    if isinstance(effect, Note):
        return f"note: {effect.text}"
    assert isinstance(effect, Tell)
    return f"tell {effect.session}: {effect.message}"


def _submitted(reply_to: object, outcome: Outcome) -> str:
    who = reply_to.name if isinstance(reply_to, TestPublisher) else str(reply_to)
    runs = ",".join(spell(run.first) + (f"×{run.count}" if run.count > 1 else "") for run in outcome.ticks)
    parts = [f"{who}: {outcome.verdict.value}"]
    parts += [f"epoch {spell_epoch(outcome.epoch)}"] if outcome.epoch else []
    parts += [f"sequence {outcome.sequence}"]
    parts += [f"ticks {runs}"] if runs else []
    parts += [f"({outcome.reason})"] if outcome.reason else []
    return " ".join(parts)


def knows(effects: Sequence[object]) -> list[Know]:
    """The knowledge among effects."""
    return [effect for effect in effects if isinstance(effect, Know)]


def outcomes(effects: Sequence[object]) -> list[Outcome]:
    """The outcomes among effects."""
    return [effect.outcome for effect in effects if isinstance(effect, Submitted)]


def with_settings(harness: Harness, **changes: Any) -> None:
    """Changes the configuration: the next boot takes it."""
    harness.settings = replace(harness.settings, **changes)
