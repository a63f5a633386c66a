"""What a PHB can be told by its configuration; `gapless_phb.config` checks and makes these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gapless.core.ports import ReleasePolicy
from gapless.core.stream.ticks import SECOND, ShbId, Tick


@dataclass(frozen=True, slots=True)
class PubendSettings:
    """One `[[phb.pubends]]` of the configuration: a pubend, or several that share publishers by hash."""

    name: str = "default"
    topics: tuple[str, ...] = ("#",)
    """Patterns of the topics that are published here."""
    publishers: tuple[str, ...] = ("*",)
    """Names of the publishers that publish here; one that ends in `*` stands for all that begin so."""
    count: int = 1
    """With more than 1: that many pubends, called name-0, name-1, …"""
    policy: ReleasePolicy | None = None
    """Early release: what goes even if somebody has not acknowledged it. None: nothing, ever."""
    min_retain_seconds: float = 3600.0
    """Events that everybody is done with stay so long, or until `min_retain_bytes` of younger ones are there."""
    min_retain_bytes: int = 1 << 30

    @property
    def names(self) -> Sequence[str]:
        """The names of the pubends that this asks for."""
        return [self.name] if self.count == 1 else [f"{self.name}-{index}" for index in range(self.count)]

    @property
    def min_retain(self) -> Tick:
        """`min_retain_seconds` as a distance of ticks."""
        return round(self.min_retain_seconds * SECOND)


@dataclass(frozen=True, slots=True)
class Settings:
    """All that a PHB can be told. Times are in seconds, sizes in bytes."""

    pubends: tuple[PubendSettings, ...] = (PubendSettings(),)
    members: tuple[ShbId, ...] = ()
    """SHBs that every new pubend counts from its creation on (the node's own, where it hosts both roles)."""
    max_event_bytes: int = 1 << 20
    """The node's own limit, which clients are told as well."""
    max_publishers: int = 100_000
    """Of one pubend. Beyond it those without a name of their own whose session has ended give way; then one more
    is refused."""
    publisher_lease_seconds: float = 900.0
    """A publisher without a name of its own that was not closed is known for so long after its session ended."""
    max_pending_bytes: int = 64 << 20
    """Of one pubend, published and not yet durable; beyond it publishers are told to try again."""
    silence_seconds: float = 1.0
    """SIL: how soon an idle pubend says that it is silent."""
    lease_seconds: float = 2.0
    """How far ahead of the present silence may be promised (protocol: tick-reservation)."""
    ack_expected_seconds: float = 3.0
    """AET: how long an event may wait for an acknowledgement before it is asked for."""
    ack_expected_seconds_max: float = 48.0
    """Up to where AET doubles."""
    release_seconds: float = 1.0
    """At most once in this time the log is chopped."""
    checkpoint_bytes: int = 16 << 20
    """How much log a recovery may have to read, when publishers are few."""
    clock_doubt_seconds: float = 600.0
    """How long after a start nothing is given up for its age, when the wall clock has gone on by more than a minute
    since the run before: the broker was down, or the clock is wrong (C01)."""
    void_limit: int = 16
    """How many intervals of past downtime are remembered (`PubendMeta.voids`)."""
