"""One run of a seed: first everything goes wrong, then everything has to come right."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from gapless_sim.faults.schedule import Faults
from gapless_sim.oracles import all_oracles
from gapless_sim.oracles.liveness import V1LiveDelivery
from gapless_sim.oracles.sharing import V1SharedDelivery
from gapless_sim.recording.observation import Violation
from gapless_sim.recording.trace import Trace
from gapless_sim.recording.trace_recorder import record_trace
from gapless_sim.search.determinism_guards import determinism_guards
from gapless_sim.search.result import Failure, Result
from gapless_sim.workloads import WORKLOADS
from gapless_sim.world.choices import Choices, ChoiceSequences
from gapless_sim.world.disk import Disk
from gapless_sim.world.options import SECOND, Options
from gapless_sim.world.world import World
from gapless_sim.world.world_builder import build
from gapless_testing.routing import ContractError

RECOVERY_LIMIT = 240 * SECOND
"""Virtual time within which everything has to come right, once faults have stopped, …"""
PROGRESS_WITHIN = 30 * SECOND
"""… or in which something has to have come, …"""
EXTENSIONS_MAX = 4
"""… so many times as long at most: a reader that has memory for three events, over slow links, takes its time."""
LOOK = SECOND // 2
"""How often it is looked whether it has."""


@contextmanager
def undisturbed() -> Iterator[None]:
    """No garbage collection within: a run is short, and its objects live as long as it does.

    To be put around all of a run, its world included: at its end that is garbage, and is collected once.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@undisturbed()
def run_seed(
    options: Options,
    choice_sequences: ChoiceSequences | None = None,
    *,
    keep: bool = False,
    steps_max: int | None = None,
    new_disk: Callable[[], Disk] | None = None,
) -> Result:
    """Runs a world to its end, or to the first violation.

    `keep`: with the lines that people read. `steps_max`: a run that takes longer is given up. `new_disk`:
    makes the brokers' disks, if not in memory; then the determinism guards are off, for a real storage touches files.
    """
    choices = Choices(options.seed, choice_sequences)
    trace = Trace(keep=keep)
    world = build(options, choices, trace, new_disk)
    world.steps_max = steps_max
    if keep:
        record_trace(world)
    failure = watched(world, _run, pure=new_disk is None)
    return Result(
        options=options,
        digest=trace.digest(),
        steps=trace.steps,
        node_events=trace.steps,
        now=world.now,
        hits=world.hits,
        violation=failure,
        choice_sequences=choices.choice_sequences(),
        lines=trace.lines,
    )


def watched(world: World, run: Callable[[World], None], *, pure: bool = True) -> Failure | None:
    """Runs a world under all oracles, and says what was wrong."""
    try:
        for oracle in all_oracles(world):
            world.observe.add(oracle)
        with determinism_guards() if pure else nullcontext():
            run(world)
    except Violation as violation:
        return Failure(violation.oracle, violation.what, world.now)
    except ContractError as error:
        return Failure(error.clause.value.split()[0], str(error), world.now)
    except Exception as error:  # noqa: BLE001 - whatever a core raises is what we are looking for
        return Failure(f"exception {type(error).__name__}", _where(error), world.now)
    return None


def _run(world: World) -> None:
    observe = world.observe
    workloads = [WORKLOADS[name](world) for name in (world.options.workload, *world.options.beside)]
    faults = Faults(world)
    for workload in workloads:
        workload.begin()
    faults.begin()
    start = world.choices.stream("start")
    for broker in world.brokers.values():
        world.after(start.draw(3) * start.draw(SECOND), broker.name, "boot", broker.boot)
    duration = world.options.duration
    while world.now < duration and not world.is_too_long:
        world.run_until(min(world.now + SECOND, duration))
        observe.checkpoint()
    faults.stop()
    for workload in workloads:
        workload.begin_liveness()
    come_right(world)


def come_right(world: World) -> None:
    """Faults are over: within a while everything must be as it should. Raises Violation where it is not."""
    world.observe.liveness_begins()
    wait_until_settled(world)
    spoilt = [broker for broker in world.brokers.values() if broker.disk.spoilt]
    if spoilt:  # so far pubends were excused of which something cannot be read, and no others
        for broker in spoilt:
            world.sometimes("operator.repaired at last")
            broker.repair()
        wait_until_settled(world)
    if not world.is_too_long:
        world.observe.ended()


def wait_until_settled(world: World) -> None:
    """Goes on until no oracle waits for anything. Raises Violation when it has lasted too long."""
    oracles = world.observe.oracles
    end, before = world.now + RECOVERY_LIMIT, ""
    longest = end + EXTENSIONS_MAX * RECOVERY_LIMIT
    while not world.is_too_long:
        while world.now < end and not world.is_too_long:
            world.run_until(world.now + LOOK)
            if all(oracle.settled() for oracle in oracles):
                return
        stuck = next(oracle for oracle in oracles if not oracle.settled())
        text = stuck.unsettled()
        if text == before or end >= longest or not isinstance(stuck, V1LiveDelivery | V1SharedDelivery):
            raise Violation(type(stuck).__name__, text)
        end, before = end + PROGRESS_WITHIN, text


def _where(error: BaseException) -> str:
    """What was raised, and the innermost places it came from."""
    places = []
    traceback = error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        places.append(f"{code.co_filename.rsplit('/', 1)[-1]}:{traceback.tb_lineno} {code.co_name}")
        traceback = traceback.tb_next
    return f"{error}; in {' < '.join(reversed(places[-6:]))}"
