"""A logging handler may wait for a connection, and the connection for no handler."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator

import pytest

from gapless import loggers
from gapless.sync.runner import Runner

LOG = loggers.logger("gapless.client")


@pytest.fixture
def runner() -> Iterator[Runner]:
    runner = Runner()
    yield runner
    runner.stop()


class Publishing(logging.Handler):
    """Does some work in the loop of a connection for each record, and waits for it, as one that publishes does."""

    def __init__(self, runner: Runner) -> None:
        super().__init__()
        self.said: list[tuple[str, str | None]] = []
        self._runner = runner

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()

        async def work() -> None:
            if text == "the application's":
                LOG.warning("the connection's")

        self._runner.call(work, timeout=10)
        self.said.append((text, record.threadName))


@pytest.fixture
def handler(runner: Runner) -> Iterator[Publishing]:
    handler = Publishing(runner)
    logging.getLogger().addHandler(handler)
    yield handler
    logging.getLogger().removeHandler(handler)


def test_a_handler_that_waits_for_a_connection_does_not_wait_for_itself(handler: Publishing) -> None:
    """What the connection logs meanwhile is handled afterwards, by a thread that may wait."""
    logging.getLogger("app").warning("the application's")

    assert loggers.flush(10)
    assert [text for text, _ in handler.said] == ["the application's", "the connection's"]
    assert (handler.said[1][1] or "").startswith("gapless-"), "the record names the thread that it came from"


def test_what_an_application_logs_is_handled_where_it_is_logged(
    runner: Runner, caplog: pytest.LogCaptureFixture
) -> None:
    runner.do(lambda: None)

    LOG.warning("at once")

    assert "at once" in caplog.text


def test_more_than_can_wait_is_dropped_and_counted(monkeypatch: pytest.MonkeyPatch, runner: Runner) -> None:
    held, said = threading.Event(), []

    class Held(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            held.wait(20)
            said.append(record.getMessage())

    def log_ten() -> None:
        for number in range(10):
            logger.warning("%d", number)

    monkeypatch.setattr(loggers, "RECORDS_MAX", 3)
    logger, handler = loggers.logger("gapless.test_loggers"), Held()
    logger.addHandler(handler)
    try:
        runner.do(log_ten)
        held.set()
        assert loggers.flush(10)
        runner.do(lambda: logger.warning("last"))
        assert loggers.flush(10)
    finally:
        logger.removeHandler(handler)

    kept = len(said) - 1
    assert 3 <= kept <= 4, "one may be in hand already"
    assert said[-1] == f"last (and {10 - kept} records before it were dropped)"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_begins_again(runner: Runner) -> None:
    runner.do(lambda: None)
    child = os.fork()
    if not child:
        mine = Runner()
        mine.do(lambda: LOG.info("in the child"))
        os._exit(0 if loggers.flush(10) else 1)

    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 0
