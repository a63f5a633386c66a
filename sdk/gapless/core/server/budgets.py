"""What each principal may have and use at a node: counts, and rates of events and bytes in and out.

A section of the configuration says it of many principals, and each of them has a budget of its own. A count that is
reached refuses one more. A rate that is exceeded makes wait: what comes in is not read on, and what goes out is not
asked for, until the budget is even again. Nobody is disconnected for that.

A rate is a bucket that holds what may be used in one second. A batch is taken whole as soon as the bucket is not in
debt, however large it is, and the debt is waited for before the next one. So over any time no more passes than the rate
allows, but for one second and one batch.

Pure: times are monotonic nanoseconds, and whoever hosts this asks at `due` (`purge`), so that it forgets who is gone
and owes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Final

from gapless.core.principal_limits import Limit, PrincipalLimits
from gapless.core.principals import Principal
from gapless.core.wire.codec import events_in

SECOND: Final = 1_000_000_000


class Bucket:
    """A rate: so much in a second, of which one second's worth may be used at once."""

    __slots__ = ("_at", "_level", "_rate")

    def __init__(self, rate: int, now: int) -> None:
        self._rate = rate
        self._level = rate * SECOND
        """What may be used, times a second in nanoseconds; below 0 that is a debt."""
        self._at = now

    def charge(self, amount: int, now: int) -> None:
        """So much is used."""
        self._level = self._level_at(now) - amount * SECOND
        self._at = max(now, self._at)

    def even_at(self, now: int) -> int:
        """When there is no debt any more; `now` if there is none."""
        return now + max(0, -(self._level_at(now) // self._rate))

    def full_at(self, now: int) -> int:
        """When it is as if nothing had been used."""
        return now - (self._level_at(now) - self._rate * SECOND) // self._rate

    def _level_at(self, now: int) -> int:
        return min(self._rate * SECOND, self._level + self._rate * max(0, now - self._at))


class Budget:
    """What one principal has and has used."""

    __slots__ = (
        "_bytes_in",
        "_bytes_out",
        "_events_in",
        "_events_out",
        "connections",
        "limit",
        "name",
        "publishers",
        "queued",
    )

    def __init__(self, principal: Principal, limit: Limit, now: int) -> None:
        self.name = principal.name
        self.limit = limit
        self.connections = 0
        self.publishers = 0
        self.queued = False
        """Whether `Budgets` will look whether it can be forgotten."""
        self._events_in = _bucket(limit.events_per_second_in, now)
        self._bytes_in = _bucket(limit.bytes_per_second_in, now)
        self._events_out = _bucket(limit.events_per_second_out, now)
        self._bytes_out = _bucket(limit.bytes_per_second_out, now)

    def refuses_connection(self, principal: Principal) -> str:
        """Why there may be no more connections; "" if there may."""
        most = self.limit.connections
        if most is None or self.connections < most:
            return ""
        return self.limit.reached("connections", principal, most, "connections")

    def refuses_publisher(self, principal: Principal) -> str:
        """Why there may be no more publishers; "" if there may."""
        most = self.limit.publishers
        if most is None or self.publishers < most:
            return ""
        return self.limit.reached("publishers", principal, most, "open publishers")

    @property
    def rates_in(self) -> bool:
        """Whether there is a rate for what comes in."""
        return self._events_in is not None or self._bytes_in is not None

    @property
    def rates_out(self) -> bool:
        """Whether there is a rate for what goes out."""
        return self._events_out is not None or self._bytes_out is not None

    def charge_in(self, events: int, size: int, now: int) -> None:
        """Events have come in."""
        _charge(self._events_in, events, now)
        _charge(self._bytes_in, size, now)

    def charge_out(self, payloads: Sequence[tuple[bytes, bytes]], now: int) -> None:
        """Deliveries go out, or events of ranges."""
        _charge(self._events_out, sum(events_in(shared) for _, shared in payloads), now)
        _charge(self._bytes_out, sum(len(head) + len(shared) for head, shared in payloads), now)

    def in_at(self, now: int) -> int:
        """When more may come in; `now` if it may."""
        return _even_at(now, self._events_in, self._bytes_in)

    def out_at(self, now: int) -> int:
        """When more may go out; `now` if it may."""
        return _even_at(now, self._events_out, self._bytes_out)

    def forgotten_at(self, now: int) -> int:
        """When nothing is lost if it is forgotten, unless it is used until then."""
        buckets = (self._events_in, self._bytes_in, self._events_out, self._bytes_out)
        return max([now, *(bucket.full_at(now) for bucket in buckets if bucket is not None)])


def _bucket(rate: int | None, now: int) -> Bucket | None:
    return None if rate is None else Bucket(rate, now)


def _charge(bucket: Bucket | None, amount: int, now: int) -> None:
    if bucket is not None:
        bucket.charge(amount, now)


def _even_at(now: int, *buckets: Bucket | None) -> int:
    return max([now, *(bucket.even_at(now) for bucket in buckets if bucket is not None)])


class Budgets:
    """The budgets of those who are connected, and of those who have gone and still owe something."""

    def __init__(self, limits: PrincipalLimits) -> None:
        self._limits = limits
        self._budgets: dict[str, Budget] = {}
        self._left: list[Budget] = []
        """Those whose last connection has ended since the last `purge`."""
        self._gone: list[tuple[int, str]] = []
        """A heap: when to look whether somebody who has gone can be forgotten."""

    def __len__(self) -> int:
        return len(self._budgets)

    @property
    def due(self) -> int | None:
        """When `purge` has to be called."""
        if self._left:
            return 0
        return self._gone[0][0] if self._gone else None

    def of(self, principal: Principal, now: int) -> Budget | None:
        """Returns the budget of a principal; None if there is no limit for it.

        The limit of its first connection holds as long as it has one: groups may come and go with its credentials.
        """
        budget = self._budgets.get(principal.name)
        if budget is None:
            limit = self._limits.of(principal)
            if limit is None:
                return None
            budget = self._budgets[principal.name] = Budget(principal, limit, now)
            self._look_at(budget)  # unless somebody connects with it
        return budget

    def leave(self, budget: Budget) -> None:
        """A connection has ended."""
        budget.connections -= 1
        assert budget.connections >= 0, "what has ended was counted once"
        if not budget.connections:
            self._look_at(budget)

    def purge(self, now: int) -> None:
        """Forgets who has no connection and owes nothing."""
        for budget in self._left:
            heappush(self._gone, (budget.forgotten_at(now), budget.name))
        self._left.clear()
        while self._gone and self._gone[0][0] <= now:
            _, name = heappop(self._gone)
            found = self._budgets[name]
            found.queued = False
            if found.connections:
                continue
            if (at := found.forgotten_at(now)) > now:
                found.queued = True
                heappush(self._gone, (at, name))
            else:
                del self._budgets[name]

    def _look_at(self, budget: Budget) -> None:
        if not budget.queued:
            budget.queued = True
            self._left.append(budget)
