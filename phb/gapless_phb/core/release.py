"""What of a log may go: members, holds, minima and retention (protocol: members, release)."""

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
    """An SHB that is being enrolled: its `at` bounds the release until the minima count it (T41)."""

    at: Tick
    enrolled_at: int | None = None
    """The time of the turn in which the router was told; None while the membership is not durable."""


class Release:
    """Computes how far the log may be given up. Decides nothing durable itself.

    Why `joining` ends when it does: the router says Released(p, r, d) as the minima over all members since
    `enrolled()` was said to it (C4). A minimum computed before may still be on its way within the node
    in the turn in which we say Enrolled, even behind it; in a later turn it cannot. So the first Released of
    a later turn counts the new member, and its bound goes. A node's turn has one time: a later time is a later
    turn, and two turns of the same time only keep the bound for longer.
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
        """T_r: every member, and so every durable subscription, is done with everything up to here."""
        self.delivered: Tick = 0
        """T_d: every member has everything up to here in its PFS."""
        self.space_low = False
        """Whether the disk is nearly full: then what nobody is owed gives way before publishers have to wait."""

    # ------------------------------------------------------------------------------------ who is counted

    def is_member(self, shb: ShbId) -> bool:
        """Whether the SHB is enrolled, or is about to be."""
        return shb in self.members or shb in self._joining

    def join(self, shb: ShbId) -> Tick:
        """An SHB asks to be enrolled: from this step on nothing above the returned tick is released (T41)."""
        at = max(self._log.stable, self._log.lost_asked)
        self._joining[shb] = PendingMember(at)
        return at

    def enrolled(self, shb: ShbId, now: int) -> Tick:
        """The membership is durable, and the router is told in this turn. Returns from where it counts."""
        joining = self._joining[shb]
        joining.enrolled_at = now
        self.members[shb] = joining.at
        return joining.at

    def retire(self, shb: ShbId) -> None:
        """An SHB is given up for good: it no longer bounds anything (T10)."""
        for rows in (self.members, self.holds, self._joining):
            rows.pop(shb, None)

    def hold(self, shb: ShbId, version: int, at: Mapping[int, Tick]) -> Holds:
        """Takes an SHB's whole row of holds, each raised to what is still there; 0 is the earliest there is.

        It bounds the release from this step on, before it is durable.
        """
        known = self.holds.get(shb)
        assert known is None or version > known.version, "an older row of holds takes the place of no newer one"
        row = Holds(version, {sid: max(tick, self._log.lost_asked) for sid, tick in at.items()})
        self.holds[shb] = row
        return row

    # --------------------------------------------------------------------------------------- what may go

    def on_released(self, released: Tick, delivered: Tick, now: int) -> None:
        """The minima over all members that the router has been told of (protocol: release).

        They are bounded by those who join *before* they are merged: a maximum would remember a minimum that
        did not count the new member beyond the end of its bound, and chop its events then (T41, T48).
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
        """From where each SHB that has holds needs the log."""
        return {shb: min(row.at.values()) for shb, row in self.holds.items() if row.at}

    @property
    def policy(self) -> str:
        """What goes early, for people; "" where nothing does."""
        policy = self._settings.policy
        if policy is None:
            return ""
        # Who describes itself in no way is called by its class, not by where it lies in memory.
        kind = type(policy)
        is_nameless = kind.__str__ is object.__str__ and kind.__repr__ is object.__repr__
        return kind.__name__ if is_nameless else str(policy)

    def target(self, time: Tick) -> Tick:
        """L': up to where the log may be given up. While nobody is counted, nothing may.

        What everybody is done with goes when it is expendable. What a policy gives up goes at once: the
        shorter of two promises wins. `time` is the present that events grow old by.
        """
        if not self.members:
            return 0
        return max(min(self.needless, self._expendable(time)), self._early(time))

    @property
    def needless(self) -> Tick:
        """Up to where everybody is done with everything, those who hold what lies further back too."""
        return min(self.released, self.held)

    def _early(self, time: Tick) -> Tick:
        """Early release: what the policy gives up, as far as it is delivered to every SHB, acknowledged or not.

        Suspended while the wall clock leaps, for then nobody knows how old an event is (C01).
        """
        policy, log = self._settings.policy, self._log
        if policy is None or log.suspect:
            return 0
        state = PubendState(
            log.pubend, time, self._log.lost_asked, log.newest, self.needless, self.delivered, log.index
        )
        return min(self.delivered, policy.release(state))

    def _expendable(self, time: Tick) -> Tick:
        """What "earliest" need not find: older than min_retain, or below more than min_retain_bytes.

        While space is short nothing is kept for it. All of it goes at once: to give a part of a file back to the disk,
        the rest of it has to be written anew, and for that there is no room.
        """
        if self.space_low:
            return FOREVER
        least = self._settings.min_retain
        old = time - least - 1 if least else self._log.stable  # an event may be stamped ahead of `time`
        return max(old, self._log.index.covered(self._settings.min_retain_bytes))
