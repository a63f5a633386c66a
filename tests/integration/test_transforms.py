"""Transforms by real processes: whatever is killed or stands still, the output log is f(input), each once (J3)."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from integration.broker_process import BrokerProcess
from integration.outputs_once import Work, line

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="it needs POSIX signals"),
    pytest.mark.timeout(120),
]

KILLS = 6
WORK = Work("transform_process.py", 3_000, 20)


async def test_the_output_log_is_f_of_the_input_whatever_is_killed(tmp_path: Path) -> None:
    async with BrokerProcess(tmp_path) as broker:
        await WORK.under_kills(broker, KILLS, 9)


async def test_a_rival_that_was_stopped_is_fenced_when_it_wakes(tmp_path: Path) -> None:
    async with BrokerProcess(tmp_path) as broker, WORK.running(broker.url) as old:
        publishing = asyncio.ensure_future(WORK.publish(broker.url))
        for _ in range(5):
            assert await line(old)
        old.send_signal(signal.SIGSTOP)
        async with WORK.running(broker.url) as new:
            for _ in range(5):
                assert await line(new)
            old.send_signal(signal.SIGCONT)
            while (said := await line(old)) != "fenced":
                assert said
            await WORK.is_done(broker.url, publishing)
