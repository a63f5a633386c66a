"""How a cluster is configured, started and ended, with a program in the place of Java; `tests/kafka` has a real one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gapless_testing import kafka
from gapless_testing.kafka import KafkaCluster
from gapless_testing.kafka_node import (
    JARS,
    KafkaFailedError,
    KafkaUnavailableError,
)

SERVES = 'echo "Kafka Server started"; exec sleep 60\n'
JAVA = """#!/bin/sh
case "$*" in *StorageTool*) exit 0;; esac
"""
ONE, THREE = {1: (11, 12)}, {1: (11, 12), 2: (21, 22), 3: (31, 32)}


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is run in the place of Java; jars seem to be there."""
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    write(program, SERVES)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    JARS.directory.mkdir(parents=True)
    return program


def write(program: Path, what: str) -> None:
    """Has it do something as a broker."""
    program.write_text(JAVA + what, "utf-8")
    program.chmod(0o755)


def cluster_of(tmp_path: Path, brokers: int = 1) -> KafkaCluster:
    """One that is not started."""
    return KafkaCluster(tmp_path / "kafka", 3 if brokers == 3 else 1, lambda _: None)


def setting(text: str, name: str) -> str:
    """One setting of a configuration."""
    (value,) = (line.partition("=")[2] for line in text.splitlines() if line.startswith(f"{name}="))
    return value


async def test_a_port_that_was_taken_in_the_meantime(tmp_path: Path, java: Path) -> None:
    """It begins anew, with other ports."""
    write(
        java,
        f'if ! [ -e {tmp_path}/tried ]; then touch {tmp_path}/tried; echo "Address already in use"; exit 1; fi\n'
        + SERVES,
    )

    async with cluster_of(tmp_path) as cluster:
        log = cluster.log().read_text("utf-8")

        assert cluster.runs()
    assert log.splitlines() == ["Address already in use", "Kafka Server started"]


async def test_ports_that_are_always_taken(tmp_path: Path, java: Path) -> None:
    write(java, "echo 'java.net.BindException'; exit 1\n")

    with pytest.raises(KafkaFailedError, match="a port was taken"):
        await cluster_of(tmp_path).start()


async def test_a_broker_that_ends_says_why(tmp_path: Path, java: Path) -> None:
    write(java, "echo 'no such setting'; exit 1\n")

    with pytest.raises(KafkaFailedError, match=r"Kafka 1 ended; .*kafka\.log ends with:\nno such setting"):
        await cluster_of(tmp_path).start()


async def test_a_java_that_is_too_old(tmp_path: Path, java: Path) -> None:
    write(java, "echo 'java.lang.UnsupportedClassVersionError: kafka/Kafka'; exit 1\n")

    with pytest.raises(KafkaUnavailableError, match="install 17"):
        await cluster_of(tmp_path).start()


async def test_a_broker_that_never_serves(tmp_path: Path, java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "START_SECONDS_MAX", 0.2)
    write(java, "echo starting; exec sleep 60\n")
    cluster = cluster_of(tmp_path)

    with pytest.raises(KafkaFailedError, match="Kafka 1 does not serve after"):
        await cluster.start()

    assert not cluster.runs()


async def test_without_java_there_is_no_kafka(tmp_path: Path, java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))

    with pytest.raises(KafkaUnavailableError, match="there is no Java"):
        await cluster_of(tmp_path).start()


async def test_a_broker_that_does_not_end_is_killed(
    tmp_path: Path, java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka, "END_SECONDS_MAX", 0.2)
    write(java, 'trap "" TERM; echo "Kafka Server started"; while true; do sleep 0.05; done\n')

    async with cluster_of(tmp_path) as cluster:
        ended_by_itself = await cluster.stop()

        assert not ended_by_itself
        assert not cluster.runs()


def test_brokers_end_with_a_process_that_is_killed(tmp_path: Path, java: Path) -> None:
    program = (
        "import asyncio, os, sys\n"
        "from pathlib import Path\n"
        "from gapless_testing.kafka import KafkaCluster\n"
        "async def main():\n"
        "    cluster = KafkaCluster(Path(sys.argv[1]), 1)\n"
        "    await cluster.start()\n"
        "    print(cluster._nodes[1].process.pid, flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
        "asyncio.run(main())\n"
    )
    killed = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "kafka")],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    pid = int(killed.stdout)

    while Path(f"/proc/{pid}").exists() and " Z " not in Path(f"/proc/{pid}/stat").read_text("utf-8"):
        pass


@pytest.mark.parametrize(("offset", "kept"), [(21, 3), (20, 2), (11, 2), (10, 1), (0, 0)])
async def test_a_log_is_cut_before_a_batch(tmp_path: Path, java: Path, offset: int, kept: int) -> None:
    batches = [offset.to_bytes(8, "big") + (4).to_bytes(4, "big") + b"abcd" for offset in (0, 10, 20)]
    async with cluster_of(tmp_path) as cluster:
        folder = tmp_path / "kafka" / "node-1" / "data" / "t-0"
        folder.mkdir(parents=True)
        for name, content in (("0.log", b"old"), ("5.log", b"".join(batches) + bytes(100)), ("5.index", b"")):
            (folder / name).write_bytes(content)
        await cluster.kill()

        cluster.cut("t", offset)

    assert [path.read_bytes() for path in cluster.segments("t")] == [b"old", b"".join(batches[:kept])]
