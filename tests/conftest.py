"""What all tests share.

A generated case may take its time, for a slow machine is no fault of what it tries. Each run tries 40 others of each;
GAPLESS_EXAMPLES says how many.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Iterator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "unhurried",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=int(os.environ.get("GAPLESS_EXAMPLES", "40")),
)
settings.load_profile("unhurried")


@pytest.fixture(autouse=True)
def log_is_put_back() -> Iterator[None]:
    """`gapless broker` takes the log of its process for good: run within a test, it would keep it for the others."""
    root = logging.getLogger()
    handlers, level = [*root.handlers], root.level
    yield
    for handler in root.handlers.copy():
        if isinstance(handler, logging.StreamHandler) and handler not in handlers:
            root.removeHandler(handler)
    root.setLevel(level)


@pytest.fixture
async def echo() -> AsyncIterator[str]:
    """The address of somebody who sends back what comes, for what stands between."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1000):
            writer.write(data)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        yield f"{host}:{port}"
