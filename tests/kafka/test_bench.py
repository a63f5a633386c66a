"""`python -m bench kafka` runs, in a size that shows no more than that; the race's works have tests of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from documents import ROOT
from gapless_testing.kafka import KafkaCluster


def bench(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench", "kafka", *arguments]
    env = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(command, capture_output=True, text=True, timeout=110, check=False, cwd=ROOT, env=env)


@pytest.mark.large
@pytest.mark.timeout(120)
def test_intake_has_its_figures_and_bars(kafka: KafkaCluster) -> None:
    """It starts a Kafka of its own; the fixture skips where there can be none."""
    done = bench("--parts", "intake", "--quick", "--json")

    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    layers = [f"{layer}_cpu_us_per_record" for layer in ("fetch", "parse", "map", "node")]
    assert said["intake"].keys() >= {*layers, "node_records_per_second"}
    assert {key: bar["value"] for key, bar in said["bars"].items()} == {
        f"intake_{key}": said["intake"][key] for key in ("node_cpu_us_per_record", "node_records_per_second")
    }


def test_it_says_what_is_missing() -> None:
    done = bench("--parts", "intake", PATH="", JAVA_HOME="")

    assert done.returncode != 0
    assert "bench kafka cannot run: " in done.stderr
    assert "Java" in done.stderr
