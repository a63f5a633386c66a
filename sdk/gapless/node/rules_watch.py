"""Looks every second whether the rules about who may do what have changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gapless import loggers
from gapless.core.alarms import Alarm, AlarmCode
from gapless.errors import ConfigurationError
from gapless.spi import HasSuccessor

if TYPE_CHECKING:
    from gapless.core.ports import Authorizer
    from gapless.core.server.authority import Authority

log = loggers.logger("gapless.node")


class RulesWatch:
    """Asks the authorizer that counts for its successor, in a thread: rules may be many, and disks slow.

    What is wrong with them is an alarm as long as it is so, and so is each doubt about those that count. Nothing is
    kept from one look to the next but what the operator was told: an authorizer that did not come to count, because
    the node has just begun anew, is found once more.
    """

    def __init__(
        self,
        authority: Authority,
        doubts: Callable[[Authorizer], Sequence[str]],
        on_successor: Callable[[Authorizer], None],
        on_alarm: Callable[[Alarm], None],
    ) -> None:
        """`doubts`: says what is to be looked at in an authorizer's rules."""
        self._loop = asyncio.get_running_loop()
        self._authority = authority
        self._doubts = doubts
        self._on_successor = on_successor
        self._on_alarm = on_alarm
        self._doubted = 0
        """How many doubts the operator was told."""
        self._looking: asyncio.Future[Authorizer | None] | None = None
        self._unusable = ""
        """What the operator was told of rules that cannot be used."""
        self._has_failed = False
        self._stopped = False

    def start(self) -> None:
        """Tells what is to be looked at in the rules that count."""
        self._tell_doubts(self._authority.authorizer)

    def stop(self) -> None:
        """What a thread finds from now on counts for nothing."""
        self._stopped = True

    def look(self) -> None:
        """Looks now, unless it does."""
        authorizer = self._authority.authorizer
        if self._looking is None and isinstance(authorizer, HasSuccessor) and not (self._stopped or self._has_failed):
            self._looking = self._loop.run_in_executor(None, authorizer.successor)
            self._looking.add_done_callback(self._on_looked)

    def _on_looked(self, looking: asyncio.Future[Authorizer | None]) -> None:
        self._looking = None
        error = None if looking.cancelled() else looking.exception()  # whoever does not ask for it hears of it later
        if self._stopped or looking.cancelled():
            return
        if error is None:
            self._tell_unusable("")
            if (successor := looking.result()) is not None:
                self._tell_doubts(successor)
                self._on_successor(successor)
        elif isinstance(error, ConfigurationError):
            self._tell_unusable(str(error))
        else:
            self._has_failed = True
            log.error(
                "the authorizer cannot tell whether there are other rules, and is not asked any more", exc_info=error
            )
            self._tell_unusable(f"the authorizer cannot tell whether there are other rules ({type(error).__name__})")

    def _tell_unusable(self, why: str) -> None:
        before, self._unusable = self._unusable, why
        if why and why != before:
            self._on_alarm(Alarm(AlarmCode.RULES_UNUSABLE, f"{why}\nthe rules that there were before count"))
        elif before and not why:
            self._on_alarm(Alarm(AlarmCode.RULES_UNUSABLE, "the rules can be used again", over=True))

    def _tell_doubts(self, authorizer: Authorizer) -> None:
        doubts = self._doubts(authorizer)
        for number, doubt in enumerate(doubts, 1):
            self._on_alarm(Alarm(AlarmCode.RULES_DOUBTFUL, doubt, f"doubt {number}"))
        for number in range(len(doubts) + 1, self._doubted + 1):
            text = "there are other rules now, of which this is not to be said"
            self._on_alarm(Alarm(AlarmCode.RULES_DOUBTFUL, text, f"doubt {number}", over=True))
        self._doubted = len(doubts)
