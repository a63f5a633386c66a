"""From a run that fails to a small one that fails in the same way.

1. The run is repeated: unless it comes out the same to the last step, that is the bug to be found first.
2. The phase with faults is cut to just behind the failure.
3. Whole classes of faults, then single options go back to their plain values, and there are fewer and
   fewer nodes, clients, subscriptions and operations.
4. What was drawn is set to 0, which is always the benign choice: whole streams, halves of them, halves of
   those, single draws. What is behind goes first, since it shifts nothing before it.
5. 3 and 4 again, until nothing more can be left out, or the limit of runs or time is reached.

"In the same way" means that the same oracle objects, or an exception of the same type comes out. A run that
takes many more steps to get there is not smaller, however little was drawn in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from gapless_sim.world.options import MILLISECOND, NetworkFaults, Options
from gapless_sim.world.topology import Cell, topology_of

if TYPE_CHECKING:
    from gapless_sim.search.result import Failure, Result
    from gapless_sim.world.choices import ChoiceSequences

Run: TypeAlias = "Callable[[Options, ChoiceSequences | None], Result]"
"""Runs these options: with choice sequences, these are replayed; without, the seed makes them."""

RUNS_MAX = 500
STEPS_HARMLESS = 300
"""A run that is not longer is short enough."""
LEAST_DURATION = 100 * MILLISECOND
_PARTS = ("disk", "clock", "process", "network")
_CLASSES = (*_PARTS, "hostility")
_COUNTS = ("phbs", "shbs", "pubends", "clients", "subscriptions")
_NODES = ("topology", "cells", "phbs", "shbs", "together")
"""What belongs together in a drawn topology: none of it can be changed alone."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far shrinking is."""

    runs: int
    smallest: Result
    left_out: str
    """What the smallest run so far could do without, last; "" where a try was in vain."""


@dataclass(frozen=True, slots=True)
class Shrunk:
    """What came of shrinking."""

    first: Result
    smallest: Result
    runs: int
    left_out: tuple[str, ...]
    """What the failure did without, in the order in which that was found."""
    unstable: str = ""
    """Why nothing was shrunk: the same run came out differently. "" if it did not."""
    complete: bool = True
    """Whether nothing more can be left out; else the limit was reached before that was known."""

    def __str__(self) -> str:
        if self.unstable:
            return f"not deterministic: {self.unstable}"
        one, other = self.first, self.smallest
        return (
            f"{one.steps:,} → {other.steps:,} steps, "
            f"{draws(one.choice_sequences):,} → {draws(other.choice_sequences):,} draws, "
            f"{one.now / 1e9:.1f} → {other.now / 1e9:.1f} s, in {self.runs} runs"
            + ("" if self.complete else " (there may be a smaller one)")
        )


def shrink(
    run: Run,
    failing: Result,
    *,
    runs_max: int = RUNS_MAX,
    enough: Callable[[], bool] = lambda: False,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> Shrunk:
    """The smallest run found that fails as this one does, in at most so many runs, or until it is `enough`."""
    if failing.violation is None:
        raise ValueError("a run that does not fail can not be shrunk")
    again = run(failing.options, failing.choice_sequences)
    unstable = _difference(failing, again)
    if unstable:
        return Shrunk(failing, failing, 1, (), unstable=unstable)
    search = _Search(run, failing, failing.violation, runs_max, enough, on_progress)
    search.go()
    return Shrunk(failing, search.best, search.runs, tuple(search.left_out), complete=not search.over)


def draws(choice_sequences: ChoiceSequences) -> int:
    """How many draws are not benign."""
    return sum(1 for drawn in choice_sequences.values() for value in drawn if value)


def sparse(choice_sequences: ChoiceSequences) -> dict[str, list[int]]:
    """The choice sequences without those, and without the ends, that are benign anyway: what must be kept."""
    kept: dict[str, list[int]] = {}
    for label in sorted(choice_sequences):
        values = list(choice_sequences[label])
        while values and not values[-1]:
            values.pop()
        if values:
            kept[label] = values
    return kept


def _difference(one: Result, other: Result) -> str:
    """What is not the same in two runs that should be the same run; "" if nothing."""
    if one.violation != other.violation:
        return f"once {one.violation or 'nothing'}, then {other.violation or 'nothing'}"
    if one.digest != other.digest:
        return f"the same failure, but the digests {one.digest} and {other.digest}"
    return ""


class _Search:
    """The smallest run so far, and attempts to make it smaller."""

    def __init__(
        self,
        run: Run,
        failing: Result,
        failure: Failure,
        runs_max: int,
        enough: Callable[[], bool],
        on_progress: Callable[[Progress], None],
    ) -> None:
        self.best = failing
        self.runs = 1
        self.left_out: list[str] = []
        self.over = False
        self._run = run
        self._failure = failure
        self._runs_max = runs_max
        self._enough = enough
        self._on_progress = on_progress

    def go(self) -> None:
        """Until a whole round was in vain."""
        before = -1
        while before != len(self.left_out) and not self.over:
            before = len(self.left_out)
            self._cut_the_end()
            self._simplify_options()
            self._simplify_choices()

    def _attempt(self, what: str, options: Options, *candidates: ChoiceSequences | None) -> bool:
        """Whether the failure is still there with one of these candidates; if so, that is the smallest run now."""
        for choice_sequences in candidates:
            self.over = self.over or self.runs >= self._runs_max or self._enough()
            if self.over:
                return False
            self.runs += 1
            result = self._run(options, choice_sequences)
            same = self._fails_alike(result)
            if same:
                self.best = result
                self.left_out.append(what)
            self._on_progress(Progress(self.runs, self.best, what if same else ""))
            if same:
                return True
        return False

    def _fails_alike(self, result: Result) -> bool:
        """Whether the failure is still there, and no later: who never waits does a thousand things meanwhile."""
        if result.violation is None or result.violation.oracle != self._failure.oracle:
            return False
        return result.steps <= max(STEPS_HARMLESS, self.best.steps * 5 // 4)

    # Options.

    def _cut_the_end(self) -> None:
        best = self.best
        assert best.violation is not None
        behind = (best.violation.at // LEAST_DURATION + 1) * LEAST_DURATION
        if behind < best.options.duration:
            self._attempt(
                "what comes behind the failure", replace(best.options, duration=behind), best.choice_sequences
            )

    def _simplify_options(self) -> None:
        for propose in (_without_classes, _without_singles, _with_fewer):
            self._try_all(propose)

    def _try_all(self, propose: Callable[[Options], Iterator[tuple[str, Options]]]) -> None:
        """Every proposal once; after each success the proposals are made anew, without those that were in vain."""
        vain: set[str] = set()
        found = True
        while found and not self.over:
            found = False
            for what, options in propose(self.best.options):
                if what in vain:
                    continue
                # An option that is off draws nothing, so sequences may have shifted: the seed's own are a second try.
                if self._attempt(what, options, self.best.choice_sequences, None):
                    found = True
                    break
                vain.add(what)

    # The choice sequences.

    def _simplify_choices(self) -> None:
        for label in sorted(
            self.best.choice_sequences, key=lambda label: (-len(self.best.choice_sequences[label]), label)
        ):
            count = _last_of(self.best.choice_sequences.get(label, ()))
            if count:
                self._zero(label, 0, count)

    def _zero(self, label: str, start: int, stop: int) -> None:
        """Sets as many draws of [start, stop) as possible to 0: all of them, or else by halves, the later first."""
        drawn = self.best.choice_sequences.get(label, ())
        stop = min(stop, len(drawn))
        count = sum(1 for value in drawn[start:stop] if value)
        if not count or self.over:
            return
        values = list(drawn)
        values[start:stop] = [0] * (stop - start)
        what = f"{count} draw{'s' if count > 1 else ''} of {label}"
        if self._attempt(what, self.best.options, {**self.best.choice_sequences, label: values}):
            return
        if count > 1:
            middle = _middle(drawn, start, stop)
            self._zero(label, middle, stop)
            self._zero(label, start, middle)


def _last_of(drawn: Sequence[int]) -> int:
    """Behind the last draw that is not 0."""
    return next((place for place in range(len(drawn), 0, -1) if drawn[place - 1]), 0)


def _middle(drawn: Sequence[int], start: int, stop: int) -> int:
    """Where as many draws that are not 0 stand before as behind."""
    places = [place for place in range(start, stop) if drawn[place]]
    return places[len(places) // 2]


# ------------------------------------------------------------------------------- simpler options


def plain(options: Options) -> Options:
    """The same router and workload without any trouble."""
    return Options(
        options.seed,
        router=options.router,
        workload=options.workload,
        wants_silence=0.0,
        network=NetworkFaults(bytewise=0.0),
    )


def _without_classes(options: Options) -> Iterator[tuple[str, Options]]:
    """Whole classes of faults switched off."""
    gentle = plain(options)
    for name in _CLASSES:
        if getattr(options, name) != getattr(gentle, name):
            yield (
                f"{name} faults" if name != "hostility" else name,
                replace(options, **{name: getattr(gentle, name)}),
            )


def _without_singles(options: Options) -> Iterator[tuple[str, Options]]:
    """Single options set back."""
    gentle = plain(options)
    for name, value in _values(options):
        simple = getattr(gentle, name)
        if name in _PARTS:
            for part, of_part in _values(value):
                if of_part != getattr(simple, part):
                    smaller = replace(value, **{part: getattr(simple, part)})
                    yield f"{name}.{part}", replace(options, **{name: smaller})
        elif name == "hostility":
            for kind, _ in options.hostility:
                yield f"hostility.{kind}", replace(options, hostility=_without(options.hostility, kind))
        elif name not in {*_COUNTS, *_fixed(options), "seed", "duration", "rate"} and value != simple:
            yield name, replace(options, **{name: simple})


def _with_fewer(options: Options) -> Iterator[tuple[str, Options]]:
    """Less of everything that is counted: as little as possible at first, then half."""
    yield from _with_fewer_nodes(options)
    for name in _COUNTS:
        if name in _fixed(options):
            continue
        count = getattr(options, name)
        for fewer in dict.fromkeys((1, count // 2, count - 1)):
            if 0 < fewer < count:
                yield f"{name} {count} → {fewer}", replace(options, **{name: fewer})
    if options.rate > 0.5:
        yield f"rate {options.rate:g} → {options.rate / 2:g}", replace(options, rate=options.rate / 2)
    for shorter in (options.duration // 4, options.duration // 2, options.duration * 7 // 8):
        duration = shorter // LEAST_DURATION * LEAST_DURATION
        if LEAST_DURATION <= duration < options.duration:
            what = f"duration {options.duration / 1e9:g} s → {duration / 1e9:g} s"
            yield what, replace(options, duration=duration)


def _fixed(options: Options) -> tuple[str, ...]:
    return _NODES if options.topology else ()


def _with_fewer_nodes(options: Options) -> Iterator[tuple[str, Options]]:
    """A cell at the rim of a drawn topology less, or a node less in a cell of several."""
    topology = topology_of(options)
    if topology is None:
        return
    cells = list(topology.cells.values())
    for place, cell in enumerate(cells):
        if len(cell.nodes) > 1:
            rest: list[Cell] = [replace(cell, nodes=cell.nodes[:-1])]
        elif place and all(other.up != cell.name for other in cells):
            rest = []
        else:
            continue
        fewer = topology.with_cells([*cells[:place], *rest, *cells[place + 1 :]])
        hosted = [role for roles in fewer.roles.values() for role in roles]
        phbs, shbs = hosted.count("phb"), hosted.count("shb")
        if phbs and shbs:
            yield f"node {cell.nodes[-1]}", replace(options, cells=str(fewer), phbs=phbs, shbs=shbs)


def _without(hostility: Sequence[tuple[str, float]], kind: str) -> tuple[tuple[str, float], ...]:
    return tuple(pair for pair in hostility if pair[0] != kind)


def _values(instance: Any) -> list[tuple[str, Any]]:
    return [(field.name, getattr(instance, field.name)) for field in fields(instance)]
