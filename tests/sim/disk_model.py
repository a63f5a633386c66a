"""Plays histories on a disk in memory, in every way that the model allows, and compares with what was seen.

A model that is right about real disks has to allow everything that they do, and to forbid as much else as
it can. So a history that was seen has to be one of those that the model can tell; and what the model claims
to be possible should have been seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from gapless_storage.memory import MemoryDisk, MemoryVolume
from sim.disk_player import Outcome, Player, Step, said


class Choices:
    """Decides by a choice sequence; beyond its end always for the first. `next` moves on to the next sequence."""

    def __init__(self) -> None:
        self._sequence: list[tuple[int, int]] = []
        self._at = 0

    def pick(self, count: int) -> int:
        """A number below `count`."""
        if self._at == len(self._sequence):
            self._sequence.append((0, count))
        self._at += 1
        return self._sequence[self._at - 1][0]

    def next(self) -> bool:
        """Rewinds, with the last decision that can be another one changed. False when all were tried."""
        del self._sequence[self._at :]
        while self._sequence and self._sequence[-1][0] + 1 == self._sequence[-1][1]:
            self._sequence.pop()
        self._at = 0
        if not self._sequence:
            return False
        number, count = self._sequence[-1]
        self._sequence[-1] = number + 1, count
        return True


class ModelDisk:
    """A disk in memory; the steps that `disk_real.RealDisk` has, by the calls that a simulator makes for them.

    `claims` are what it has claimed to be possible, each in the words of docs/topics/simulated-disk.md.
    """

    def __init__(self, choices: Choices) -> None:
        self.claims: set[str] = set()
        self._choices = choices
        self._disk = MemoryDisk(durable=True)
        self._player = Player(self._disk.open)
        self._copies: dict[str, MemoryDisk] = {}
        self._limited = False
        self._changed = ""  # what was done to the files since the last opening
        self._promised = 0  # how many batches a lying disk has synced

    def play(self, step: Step) -> Outcome:
        """Plays a step."""
        name, *arguments = step
        act: Callable[..., Outcome] | None = getattr(self, f"_play_{name}", None)
        outcome = act(*arguments) if act is not None else self._player.play(step)
        self._claim(name, outcome[0])
        return outcome

    def _claim(self, name: str, told: object) -> None:
        """What it means that a step said this."""
        faults = self._disk.faults
        if name == "sync" and told == "done" and faults.lying:
            self._promised = self._disk.unsynced
        if told == "VolumeFullError":
            self.claims.add(f"a full disk fails: {name}")
        elif name == "sync" and told == "done" and faults.full and not faults.full_syncs:
            self.claims.add("a full disk lets a sync pass")
        elif told in ("VolumeLockedError", "VolumeForeignError"):
            self.claims.add(f"{told}: {name}")
        elif name == "open" and self._changed:
            self.claims.add(f"{self._changed}: {told}")
            self._changed = ""
        elif faults.unreadable and name in {"read", "put"}:
            self.claims.add(f"a record is damaged, {name}: {told if told == 'VolumeCorruptError' else 'done'}")

    def _either(self, *claims: str) -> str:
        claim = claims[self._choices.pick(len(claims))]
        self.claims.add(claim)
        return claim

    # Faults.

    def _play_eio(self, file: str, step: Step) -> Outcome:
        with self._failing_sync():
            outcome = self.play(step)
        if outcome[0] == "VolumeFailedError":
            self.claims.add(f"a sync fails in: {step[0]}")
        return outcome

    @contextmanager
    def _failing_sync(self) -> Iterator[None]:
        faults = self._disk.faults
        claim = self._either("a sync fails, and its batches are there", "a sync fails, and its batches are gone")
        faults.sync = "lost" if claim.endswith("gone") else "kept"
        before = self._disk.unsynced
        yield
        if self._disk.faults.sync or not before:  # then it makes no difference
            self.claims.discard(claim)
        faults.sync = ""

    def _play_unwritable(self, step: Step) -> Outcome:
        faults = self._disk.faults
        claim = self._either("a write fails, and its batch is there", "a write fails, and its batch is gone")
        faults.write = "lost" if claim.endswith("gone") else "kept"
        outcome = self._player.play(step)
        faults.write = ""
        return outcome

    def _play_fill(self) -> Outcome:
        self._disk.faults.full = self._disk.faults.full_syncs = True
        return "done", None

    def _play_room(self) -> Outcome:
        self._disk.faults.full = self._disk.faults.full_syncs = False
        return "done", None

    def _play_limit(self, more: int) -> Outcome:
        self._disk.faults.full = self._limited = True
        return "done", self._player.seen()

    def _play_two_syncs(self, hold: str, fail: str, *steps: Step) -> Outcome:
        begun = [self._disk.written]
        for step in steps:
            self.play(step)
        begun.append(self._disk.written)
        volume = self._player.the_volume
        assert isinstance(volume, MemoryVolume)
        failing = self._choices.pick(2) if fail else -1
        told = []
        for number, upto in enumerate(begun):
            if number == failing:
                with self._failing_sync():
                    told.append(said(lambda upto=upto: volume.sync(upto)))  # type: ignore[misc]
            else:
                told.append(said(lambda upto=upto: volume.sync(upto)))  # type: ignore[misc]
        return told, self._player.seen()

    # Ends.

    def _play_close(self) -> Outcome:
        outcome = self._player.play(("close",))
        self._end_limit()
        return outcome

    def _play_kill(self, during_sync_of: str = "") -> Outcome:
        if self._disk.unsynced:
            self.claims.add("a killed process leaves what was not synced")
        self._disk.kill()
        return self._ended()

    def _play_power(self, how: str, seed: int, during_sync_of: str = "") -> Outcome:
        unsynced = self._disk.unsynced
        fence = bool(self._choices.pick(2)) if self._disk.faults.lying else False
        keep = self._choices.pick(unsynced + 1)
        if unsynced and not self._disk.faults.lying:
            left = "none" if keep == 0 else "all" if keep == unsynced else "some"
            self.claims.add(f"a power cut leaves {left} of what was not synced")
        if keep < self._promised:
            self._changed = "a lying disk loses what was synced"
        self._disk.crash(keep, fence=fence)
        self._disk.faults.lying, self._promised = False, 0
        return self._ended()

    def _ended(self) -> Outcome:
        self._player.volume = None
        self._end_limit()
        return "done", None

    def _end_limit(self) -> None:
        """It was the process' own."""
        if self._limited:
            self._disk.faults.full = self._limited = False

    def _play_evict(self) -> Outcome:
        return "done", None

    def _play_lie(self) -> Outcome:
        self._disk.faults.lying = True
        return "done", None

    # Copies.

    def _play_copy(self, name: str) -> Outcome:
        self._copies[name] = self._disk.copy()
        return "done", None

    def _play_beside(self, name: str, *steps: Step) -> Outcome:
        player = Player(self._copies[name].open)
        outcomes = [player.play(step) for step in steps]
        self._copies[name].kill()
        return outcomes, None

    def _play_other(self) -> Outcome:
        told, _ = Player(self._disk.open).play(("open",))
        return told, None

    def _play_restore(self, name: str, part: str) -> Outcome:
        self._disk.restore(self._copies[name], part)  # type: ignore[arg-type]
        self._changed = f"an old copy, {part}"
        return "done", None

    def _play_wipe(self, part: str) -> Outcome:
        self._disk.wipe(part)  # type: ignore[arg-type]
        self._changed = f"wiped, {part}"
        return "done", None

    def _play_damage(self, stream: str, index: int) -> Outcome:
        self._disk.faults.unreadable.add((stream, index))
        return "done", None


@dataclass
class Verdict:
    """What the model says of a history."""

    explanations: list[set[str]]
    """The claims made in each way to tell the history."""
    told: int
    """How many steps the best way comes to."""
    instead: list[Outcome]
    """What the model can say to the step after these."""


def judge(script: Sequence[Step], outcomes: Sequence[Outcome]) -> Verdict:
    """Tries all ways. A way ends where it departs from what was seen."""
    verdict = Verdict([], 0, [])
    choices = Choices()
    more = True
    while more:
        _try(script, outcomes, choices, verdict)
        more = choices.next()
    return verdict


def _try(script: Sequence[Step], outcomes: Sequence[Outcome], choices: Choices, verdict: Verdict) -> None:
    model = ModelDisk(choices)
    for number, (step, outcome) in enumerate(zip(script, outcomes, strict=True)):
        told = model.play(step)
        if told != outcome:
            if number > verdict.told or not verdict.instead:
                verdict.told, verdict.instead = number, []
            if number == verdict.told and told not in verdict.instead:
                verdict.instead.append(told)
            return
    verdict.explanations.append(model.claims)
