"""One Kafka broker of `kafka.KafkaCluster`: its configuration, and its process."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gapless_testing.jars import Jars, java

VERSION: Final = "4.3.1"
JARS: Final = Jars(f"kafka-{VERSION}", Path(__file__).with_name("kafka_pom.xml"))
_HEAP: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_PORT_TAKEN: Final = ("Address already in use", "BindException")

_LOGGING: Final = """\
appender.all.type = Console
appender.all.name = all
appender.all.layout.type = PatternLayout
appender.all.layout.pattern = %d %p %m (%c{1})%n
rootLogger.level = info
rootLogger.appenderRef.all.ref = all
"""


class KafkaUnavailableError(Exception):
    """No Kafka can be started here; says what to install."""


class KafkaFailedError(Exception):
    """A broker did not start, or did not do what was asked of it."""


class PortTakenError(Exception):
    """Somebody else has taken a port since it was found free."""


def properties(number: int, ports: Mapping[int, tuple[int, int]], directory: Path, config: Mapping[str, object]) -> str:
    """The configuration of a node that is broker and controller.

    `ports`: of all nodes, where clients and where controllers connect. `config` adds to it, or replaces.
    """
    port, controller = ports[number]
    copies = len(ports)
    settings: dict[str, object] = {
        "process.roles": "broker,controller",
        "node.id": number,
        "controller.quorum.voters": ",".join(f"{node}@127.0.0.1:{ports[node][1]}" for node in sorted(ports)),
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": directory / "data",
        "default.replication.factor": copies,
        "min.insync.replicas": 2 if copies > 2 else 1,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": 2 if copies > 2 else 1,
        "group.initial.rebalance.delay.ms": 0,
        **config,
    }
    return "".join(f"{name}={setting_value(value)}\n" for name, value in settings.items())


@dataclass(frozen=True)
class Secured:
    """What a second listener asks for: TLS, and a name with its password (SASL, PLAIN and SCRAM-SHA-256)."""

    chain: Path
    """A PEM file with the broker's key, in PKCS 8, and its certificate with those that signed it."""
    users: Mapping[str, str]
    """Passwords by names."""

    def properties(self, ports: tuple[int, int], secured: int) -> dict[str, object]:
        """What a node's configuration has then. `ports`: where its other listeners are."""
        port, controller = ports
        plain = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        plain += "".join(f' user_{name}="{password}"' for name, password in self.users.items()) + ";"
        listener = f"SASL_SSL://127.0.0.1:{secured}"
        return {
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller},{listener}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port},{listener}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.chain,
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": plain,
            "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
        }

    def format_options(self) -> list[str]:
        """What a node's storage is formatted with then."""
        users = [f"SCRAM-SHA-256=[name={name},password={password}]" for name, password in self.users.items()]
        return [option for user in users for option in ("--add-scram", user)]


def setting_value(value: object) -> str:
    """A value, as Kafka reads it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def setting_name(name: str) -> str:
    """Kafka's name of a setting that a keyword names."""
    return name.replace("_", ".")


class Node:
    """One broker: a process that can be killed and started again, on the same data and ports."""

    def __init__(self, number: int, directory: Path) -> None:
        self.number = number
        self.directory = directory
        self.log = directory / "kafka.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._logged_before = 0

    @property
    def runs(self) -> bool:
        """Whether its process lives."""
        return self.process is not None and self.process.poll() is None

    @property
    def data(self) -> Path:
        """Where its logs of topics are."""
        return self.directory / "data"

    def configure(self, settings: str) -> None:
        """Writes its configuration, and deletes what it may have had."""
        shutil.rmtree(self.data, ignore_errors=True)
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "server.properties").write_text(settings, "utf-8")
        (self.directory / "log4j2.properties").write_text(_LOGGING, "utf-8")

    def command(self, *arguments: str) -> list[str]:
        """What runs a program of Kafka's in a JVM."""
        logging = f"-Dlog4j2.configurationFile={self.directory / 'log4j2.properties'}"
        return [java(), *_HEAP, logging, "-cp", JARS.class_path, *arguments]

    def spawn(self, *arguments: str) -> subprocess.Popen[bytes]:
        """A JVM of this node; what it says goes to the log."""
        self._logged_before = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as output:
            return subprocess.Popen(  # noqa: S603 - a program of ours
                self.command(*arguments),
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # an interrupt is for whoever runs the tests
            )

    def said(self) -> str:
        """What it has logged since the last start."""
        with self.log.open("rb") as log:
            log.seek(self._logged_before)
            return log.read().decode("utf-8", "replace")

    def failure(self, what: str) -> Exception:
        """Why a program of this node's has failed, by what it said."""
        said = self.said()
        if any(sign in said for sign in _PORT_TAKEN):
            return PortTakenError(f"{what}: a port was taken")
        if "UnsupportedClassVersionError" in said:
            return KafkaUnavailableError("this Java is too old for Kafka: install 17 or newer")
        return KafkaFailedError(f"{what}; {self.log} ends with:\n{said[-1500:]}")
