"""A seed is the same run everywhere: another hash seed, another process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gapless.core.stream.fast import COMPILED
from sim.digests import digest_of

SEEDS = 1
TESTS = Path(__file__).parents[1]


@pytest.mark.timeout(420)
def test_the_hash_seed_does_not_matter() -> None:
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    command = [sys.executable, "-m", "sim.digests", str(SEEDS)]
    environment["PYTHONHASHSEED"] = "4242" if os.environ.get("PYTHONHASHSEED") == "1" else "1"

    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd=TESTS)

    assert done.stdout.strip() == digest_of(SEEDS)


@pytest.mark.skipif(not COMPILED, reason="gapless_fast is not installed: tox -e fast")
@pytest.mark.timeout(420)
def test_the_compiled_module_does_not_matter() -> None:
    without = (
        f"import sys; sys.modules['gapless_fast'] = None; from sim.digests import digest_of;print(digest_of({SEEDS}))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-c", without], env=environment, capture_output=True, text=True, check=True, cwd=TESTS
    )

    assert done.stdout.strip() == digest_of(SEEDS)
