"""What each SHB wants, and what silence under a version of its interest has to leave in."""

from __future__ import annotations

from typing import NamedTuple

from gapless.core.network.facts import Interest
from gapless.core.stream.events import Event
from gapless.core.stream.ticks import ShbId
from gapless.selectors.filters import Filter
from gapless_testing.routing.breaches import Clause, ContractError


class WantedFilter(NamedTuple):
    """A filter of one subscription, and the version in which it came."""

    filter: Filter
    since: int


class InterestHistory:
    """The interest of one SHB, as it announced it.

    Silence under version v promises that there is no event that a subscription wants which came with
    version v or before. One that was dropped since then wants nothing: so silence that was computed under
    a higher version is silence under a lower one too, which is what the order of stamps says.
    """

    def __init__(self, shb: ShbId) -> None:
        self._shb = shb
        self.version = 0
        """The highest version announced."""
        self._versions: dict[int, None] = {}
        self._wanted: dict[int, WantedFilter] = {}
        self._distinct: dict[Filter, int] | None = None

    def announce(self, interest: Interest) -> None:
        """The SHB says its interest. Raises ContractError (CORES) if it contradicts itself.

        What is older than the newest version is a repetition that was overtaken, and changes nothing.
        """
        if interest.version < self.version:
            return
        if interest.full:
            self._replace(interest)
        elif interest.base == self.version:
            self._change(interest)
        else:
            what = f"{self._shb} changed version {interest.base}, having announced {self.version} last"
            raise ContractError(Clause.CORES, what)
        self.version = interest.version
        self._versions[interest.version] = None

    def _replace(self, interest: Interest) -> None:
        before = {subscription: wanted.filter for subscription, wanted in self._wanted.items()}
        if before == dict(interest.add):
            return
        self._check_new(interest)
        for subscription in before:
            if subscription not in interest.add:
                self._drop(subscription)
        self._put_all(interest)

    def _change(self, interest: Interest) -> None:
        if not interest.add and not interest.drop:
            return
        self._check_new(interest)
        for subscription in sorted(interest.drop):
            self._drop(subscription)
        self._put_all(interest)

    def _check_new(self, interest: Interest) -> None:
        if interest.version == self.version:
            raise ContractError(Clause.CORES, f"{self._shb} said version {interest.version} twice, not alike")

    def _drop(self, subscription: int) -> None:
        self._wanted.pop(subscription, None)
        self._distinct = None

    def _put_all(self, interest: Interest) -> None:
        for subscription, wanted in interest.add.items():
            known = self._wanted.get(subscription)
            if known is None or known.filter != wanted:
                self._wanted[subscription] = WantedFilter(wanted, interest.version)
                self._distinct = None

    def knows(self, version: int) -> bool:
        """Whether this version, or a later one, was announced: honouring less than was wanted is no lie."""
        return version <= max(self._versions, default=0)

    def wanted(self, version: int, event: Event) -> Filter | None:
        """A filter that came with this version or before, is still there, and matches the event; or None."""
        if self._distinct is None:
            self._distinct = {}
            for wanted in self._wanted.values():
                since = self._distinct.get(wanted.filter, wanted.since)
                self._distinct[wanted.filter] = min(since, wanted.since)
        found = (wanted for wanted, since in self._distinct.items() if since <= version and matches(wanted, event))
        return next(found, None)


def matches(wanted: Filter, event: Event) -> bool:
    """Whether an SHB would deliver the event under this filter; its body does not matter."""
    return wanted.matches(event.topic, event.properties, event.headers)
