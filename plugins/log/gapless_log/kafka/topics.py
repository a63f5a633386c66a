"""What a topic of Kafka's is, and what of its settings a durable receipt needs."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from gapless.core.ports import LogCapabilities, NumberedLog
from gapless.core.stream.ticks import Tick
from gapless_log.kafka.format import KafkaFormat
from gapless_log.kafka.lineage import offset_of
from gapless_log.kafka.messages import Topic
from gapless_log.kafka.options import TopicSection
from gapless_log.kafka.tail import PartitionLog

RECORD_BYTES_MIN: Final = 64 << 10
"""Nothing is published to a topic that takes less at once."""
JOINED: Final = 0.95
"""So much of `max.message.bytes` the batches of one append may have together: joined, each record may grow a little."""


@dataclass(slots=True)
class OpenTopic:
    """A topic, by the id that it had when it was opened: one of the same name that is made later is another one."""

    section: TopicSection
    cluster: str
    id: bytes
    settings: Mapping[str, str]
    replicas: int
    """Of the partition that has the fewest."""
    logs: dict[int, PartitionLog] = field(default_factory=dict)
    """By partition."""
    decided: dict[int, Tick] = field(default_factory=dict)
    """How far each partition was decided when it was found."""

    @property
    def topic(self) -> Topic:
        """Its name and its id."""
        return Topic(self.section.name, self.id)

    @property
    def former(self) -> FormerTopic:
        """What is left of it when it is gone."""
        return FormerTopic(self.cluster, self.section.name, self.id)

    @property
    def family(self) -> str:
        """What its partitions have in common: where the topic is, its name, and its id."""
        return f"{self.cluster}/{self.section.name}@{encoded(self.id)}"

    def log_of(self, partition: int) -> str:
        """Returns the identity of a partition's log."""
        return f"{self.section.name}.{partition}@{encoded(self.id)}"

    @property
    def record_max(self) -> int:
        """The limit of one append, in bytes."""
        return int(int(self.settings.get("max.message.bytes", "1048588")) * JOINED)

    @property
    def refuses(self) -> str:
        """Why nothing can be published to it here, or ""."""
        name = self.section.name
        if not self.section.publish:
            return f"this broker only reads the Kafka topic {name}: publish is not set for it"
        if self.record_max < RECORD_BYTES_MIN * JOINED:
            return f"max.message.bytes of the Kafka topic {name} is below {RECORD_BYTES_MIN:,}"
        return ""

    @property
    def warnings(self) -> Sequence[str]:
        """How its log is less safe than a durable receipt promises."""
        settings = self.settings
        warnings = []
        if self.replicas < 3:
            warnings.append(f"it has {self.replicas} of 3 replicas: with the disks of these an event is lost")
        if int(settings.get("min.insync.replicas", "1")) < 2:
            warnings.append("min.insync.replicas is below 2: Kafka may confirm what a single disk has")
        if settings.get("unclean.leader.election.enable") == "true":
            warnings.append("unclean.leader.election.enable is true: Kafka may cut off what it has confirmed")
        return tuple(warnings)

    def numbered(self, partition: int) -> NumberedLog:
        """Describes a partition as it is now."""
        log, rules = self.logs[partition], self.section.rules
        return NumberedLog(
            log=log.log,
            family=self.family,
            topic=rules.topic,
            first=log.first,
            decided=max(self.decided[partition], log.first),
            voids=log.lineage.voids,
            capabilities=LogCapabilities(
                "log",
                alone=False,
                atomic=False,
                timed=False,
                trims=self.section.retention == "delete",
                record_max=self.record_max,
            ),
            format=KafkaFormat(rules.topic),
            rules=rules.encode(),
            refuses=self.refuses,
            warnings=self.warnings,
            place=place_of,
        )


@dataclass(frozen=True, slots=True)
class FormerTopic:
    """A topic that was found before, perhaps in a former life of this node."""

    cluster: str
    name: str
    id: bytes

    @classmethod
    def parse(cls, family: str) -> FormerTopic:
        """The other way round from `OpenTopic.family`; a family of another form is nowhere."""
        rest, _, topic_id = family.rpartition("@")
        cluster, _, name = rest.rpartition("/")
        return cls(cluster, name, base64.urlsafe_b64decode(f"{topic_id}=="))


def encoded(topic_id: bytes) -> str:
    """Returns an id as it stands in names."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def place_of(tick: Tick) -> str:
    """Says where the record of a tick is, to people who know Kafka."""
    return f"offset {offset_of(tick) - 1}"


def unfit(settings: Mapping[str, str]) -> str:
    """Returns why a topic with these settings cannot be a pubend, or ""."""
    if "compact" in settings.get("cleanup.policy", "delete").split(","):
        return "its cleanup.policy is compact: Kafka removes records from its middle, and nobody can tell which"
    if settings.get("message.format.version", "4").split("-")[0] in ("0.8", "0.9", "0.10"):
        return "its message.format.version is older than 0.11: such records have no leader epoch"
    return ""
