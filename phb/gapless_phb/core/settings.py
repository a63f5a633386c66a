"""The settings of a PHB. `gapless_phb.config` checks the configuration and makes these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gapless.core.ports import OpenLogs, ReleasePolicy
from gapless.core.stream.ticks import SECOND, ShbId, Tick


@dataclass(frozen=True, slots=True)
class PubendSettings:
    """The settings of one `[[phb.pubends]]` entry: a pubend, or several that share publishers by hash."""

    name: str = "default"
    topics: tuple[str, ...] = ("#",)
    """Patterns of the topics that are published to this pubend."""
    publishers: tuple[str, ...] = ("*",)
    """Names of the publishers of this pubend. A name that ends in `*` stands for all names that begin with it."""
    count: int = 1
    """If it is more than 1: so many pubends, with the names name-0, name-1, …"""
    policy: ReleasePolicy | None = None
    """Early release: which events go even if a subscription has not acknowledged them. None: no event ever."""
    min_retain_seconds: float = 3600.0
    """Events that every subscription is done with stay so long, or until `min_retain_bytes` of younger ones exist."""
    min_retain_bytes: int = 1 << 30

    @property
    def names(self) -> Sequence[str]:
        """The names of the pubends that this entry asks for."""
        return [self.name] if self.count == 1 else [f"{self.name}-{index}" for index in range(self.count)]

    @property
    def min_retain(self) -> Tick:
        """`min_retain_seconds` as a distance of ticks."""
        return round(self.min_retain_seconds * SECOND)


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of a PHB. Times are in seconds, sizes in bytes."""

    pubends: tuple[PubendSettings, ...] = (PubendSettings(),)
    logs: tuple[OpenLogs, ...] = ()
    """Sections of the configuration that name a log plugin: their logs become pubends, too."""
    members: tuple[ShbId, ...] = ()
    """SHBs that every new pubend counts from its creation on (the node's own SHB, if the node hosts both roles)."""
    max_event_bytes: int = 1 << 20
    """The node's own limit. Clients are informed of it."""
    max_delivery_bytes: int = 4 << 20
    """Larger events of a log that is not the broker's own are delivered to nobody: who wants one gets a gap."""
    max_publishers: int = 100_000
    """The limit of publishers for each pubend.

    When it is reached, a new publisher takes the place of one without a name
    whose session has ended; if there is none, it is refused."""
    publisher_expiry_seconds: float = 900.0
    """How long a publisher without a name that was not closed is known after its session has ended."""
    max_pending_bytes: int = 64 << 20
    """The limit of published bytes that are not durable yet, for each pubend. Beyond it publishers must retry later."""
    silence_seconds: float = 1.0
    """SIL: the interval at which an idle pubend sends silence."""
    reservation_seconds: float = 2.0
    """How far ahead of the present silence may be promised (protocol: tick-reservation)."""
    ack_expected_seconds: float = 3.0
    """AET: how long the PHB waits for an event to be delivered before it asks the SHBs for progress."""
    ack_expected_seconds_max: float = 48.0
    """The upper limit of AET, which doubles with each question."""
    release_seconds: float = 1.0
    """The log is chopped at most once in this time."""
    checkpoint_bytes: int = 16 << 20
    """How much log a recovery may have to read if there are few publishers."""
    clock_doubt_seconds: float = 600.0
    """For how long no event is given up for its age, if a start has found a wall clock that may be wrong.

    This applies if it is more than a minute ahead of the former run and what the machine's own clock tells of the time
    since: either the broker was down while the machine was started anew, or the wall clock is wrong (C01).
    """
    void_limit: int = 16
    """How many intervals of past downtime are kept (`PubendMeta.voids`)."""

    @property
    def topics_of_logs(self) -> frozenset[str]:
        """The topics that logs have to themselves: no other pubend takes their events."""
        return frozenset(topic for section in self.logs for topic in section.topics)

    @property
    def places(self) -> int:
        """Where a new publisher may be (`PubendMeta.places`), whether that is found yet or not."""
        return sum(entry.count for entry in self.pubends) + len(self.topics_of_logs)
