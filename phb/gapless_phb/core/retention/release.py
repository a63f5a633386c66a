"""How far a log may be given up: members, holds, minima and retention (protocol: members, release)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gapless.core.ports import PubendState
from gapless.core.stream.ticks import FOREVER, ShbId, Tick
from gapless_phb.core.rows import Holds
from gapless_phb.core.settings import PubendSettings
from gapless_phb.core.source import Facts


@dataclass(slots=True)
class PendingMember:
    """An SHB that is being enrolled. Its `at` bounds the release until the minima count the SHB (T41)."""

    at: Tick
    enrolled_at: int | None = None
    """The time of the turn in which the router was informed; None while the membership is not durable."""


class Release:
    """Computes how far the log may be given up. Makes nothing durable itself.

    When the bound of a pending member ends, step by step (C4):

    1. The SHB asks to be enrolled. From this step on its `at` bounds the release.
    2. The membership becomes durable, and the router is informed (`Enrolled`). From then on the minima that the router
       computes count the SHB.
    3. A minimum that was computed before may still arrive in the same turn, even after our `Enrolled`. It cannot arrive
       in a later turn.
    4. Therefore the first `Released` of a later turn counts the new member, and its bound can go.

    All that a node does in one turn has the same time. So a later time means a later turn. If two turns happen to have
    the same time, the bound only stays a little longer.
    """

    def __init__(
        self, settings: PubendSettings, log: Facts, members: Mapping[ShbId, Tick], holds: Mapping[ShbId, Holds]
    ) -> None:
        self._settings = settings
        self._log = log
        self.members = dict(members)
        self.holds = dict(holds)
        self._joining: dict[ShbId, PendingMember] = {}
        self.released: Tick = 0
        """T_r: every member, and so every durable subscription, is done with everything up to this tick."""
        self.delivered: Tick = 0
        """T_d: every member has everything up to this tick in its PFS."""
        self.space_low = False
        """Whether the disk is nearly full.

        Then events that no subscription needs go, before publishers have to wait.
        """

    # ------------------------------------------------------------------------------------ who is counted

    def is_member(self, shb: ShbId) -> bool:
        """Whether the SHB is enrolled, or is being enrolled."""
        return shb in self.members or shb in self._joining

    def join(self, shb: ShbId) -> PendingMember:
        """An SHB asks to be enrolled. From this step on nothing above the tick of the result is released (T41)."""
        assert not self.is_member(shb), "who is counted is not enrolled again"
        joining = self._joining[shb] = PendingMember(max(self._log.stable, self._log.lost_asked))
        return joining

    def enrolled(self, shb: ShbId, joining: PendingMember, now: int) -> bool:
        """The membership is durable. Returns whether the router is to be informed, in this turn.

        It is not if the SHB was retired while the write was under way, also if it has asked to be enrolled again since:
        the row that is durable now is deleted by the next write.
        """
        if self._joining.get(shb) is not joining:
            return False
        assert joining.enrolled_at is None, "a membership becomes durable once"
        joining.enrolled_at = now
        self.members[shb] = joining.at
        return True

    def retire(self, shb: ShbId) -> None:
        """Gives an SHB up for good: it no longer bounds anything (T10)."""
        for rows in (self.members, self.holds, self._joining):
            rows.pop(shb, None)

    def hold(self, shb: ShbId, version: int, at: Mapping[int, Tick]) -> Holds:
        """Takes an SHB's whole row of holds, and raises each hold to what is still there.

        A hold at 0 asks for the earliest tick. The row bounds the release from this step on, before it is durable.
        """
        known = self.holds.get(shb)
        assert known is None or version > known.version, "an older row of holds takes the place of no newer one"
        # An SHB that is told of a hold below what is given up would wait there for events that no read brings.
        row = Holds(version, {sid: max(tick, self._log.lost_asked) for sid, tick in at.items()})
        self.holds[shb] = row
        return row

    # --------------------------------------------------------------------------------------- what may go

    def on_released(self, released: Tick, delivered: Tick, now: int) -> None:
        """Takes the minima over all members that the router knows (protocol: release).

        The minima are bounded by the pending members *before* they are merged with `max`. Without that, a minimum that
        did not count a new member would be remembered, and would release the member's events as soon as its bound ends
        (T41, T48).
        """
        counted = [shb for shb, joining in self._joining.items() if joining.enrolled_at not in (None, now)]
        for shb in counted:
            del self._joining[shb]
        bound = min((joining.at for joining in self._joining.values()), default=self._log.stable)
        delivered = min(delivered, bound, self._log.stable)
        self.delivered = max(self.delivered, delivered)
        self.released = max(self.released, min(released, delivered))
        assert self.released <= self.delivered <= self._log.stable, "released, delivered, stable: in this order"

    @property
    def held(self) -> Tick:
        """The lowest hold; FOREVER when there is none."""
        return min((tick for row in self.holds.values() for tick in row.at.values()), default=FOREVER)

    def lowest_holds(self) -> dict[ShbId, Tick]:
        """Returns, for each SHB that has holds, the tick from which it needs the log."""
        return {shb: min(row.at.values()) for shb, row in self.holds.items() if row.at}

    @property
    def policy(self) -> str:
        """What goes early, as a text for people; "" if nothing does."""
        policy = self._settings.policy
        if policy is None:
            return ""
        # A policy without a description of its own is shown by its class: the default repr would show an address in
        # memory.
        kind = type(policy)
        is_nameless = kind.__str__ is object.__str__ and kind.__repr__ is object.__repr__
        return kind.__name__ if is_nameless else str(policy)

    def target(self, time: Tick) -> Tick:
        """L': returns the tick up to which the log may be given up. Without members it is 0: nothing may go.

        Events that every subscription is done with go as soon as they are expendable. Events that a policy gives up go
        at once, so the shorter of the two times wins. `time` is the present by which events grow old.
        """
        if not self.members:
            return 0
        return max(min(self.needless, self._expendable(time)), self._early(time))

    @property
    def needless(self) -> Tick:
        """Up to this tick every subscription is done with everything, those with a hold included."""
        return min(self.released, self.held)

    def _early(self, time: Tick) -> Tick:
        """Early release: returns how far the policy gives events up, acknowledged or not, but never beyond `delivered`.

        It is suspended while the wall clock leaps, because the age of events is unknown then (C01).
        """
        policy, log = self._settings.policy, self._log
        if policy is None or log.suspect:
            return 0
        state = PubendState(
            log.pubend, time, self._log.lost_asked, log.newest, self.needless, self.delivered, log.index
        )
        return min(self.delivered, policy.release(state))

    def _expendable(self, time: Tick) -> Tick:
        """Returns up to where nothing is kept for "earliest": older than min_retain, or beyond min_retain_bytes.

        While the disk is nearly full nothing is kept for "earliest", and all of it goes at once. A storage can give
        back a part of a file only by writing the rest of it anew, and there is no room for that.
        """
        if self.space_low:
            return FOREVER
        least = self._settings.min_retain
        old = time - least - 1 if least else self._log.stable  # not `time`: an event may be stamped ahead of it
        return max(old, self._log.index.covered(self._settings.min_retain_bytes))
