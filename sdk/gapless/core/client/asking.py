"""Questions with one answer: listings, removing a subscription, what `ranges` asks. Asked again after a reconnect."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gapless.core.client.backoff import Backoff
from gapless.core.client.effects import Answered, Failed, Result
from gapless.core.client.outbox import Outbox
from gapless.core.client.refusals import TEMPORARY, publish_error, request_error
from gapless.core.client.timers import Key, Timer
from gapless.core.deadlines import Deadlines
from gapless.core.wire.messages import (
    AskStatus,
    AttachedTo,
    ClientMessage,
    Code,
    Done,
    KeyedPublished,
    PubendList,
    PublishKeyed,
    RequestFailed,
    Retired,
    Status,
    SubscriptionList,
    Ticks,
    Unsubscribe,
    Welcome,
)
from gapless.errors import ConfigurationError, GaplessError


class Question:
    """One question that has no answer yet."""

    __slots__ = ("backoff", "message", "rows", "uncertain")

    def __init__(self, message: ClientMessage | PublishKeyed, backoff: Backoff) -> None:
        self.message = message
        self.backoff = backoff
        self.rows: list[Any] = []
        """Of a list that has come in part."""
        self.uncertain = False
        """Whether a session ended after it was asked: then it may have been carried out."""


class Asking:
    """The questions of one connection."""

    def __init__(self, outbox: Outbox, deadlines: Deadlines[Key], backoff: Callable[[], Backoff]) -> None:
        self._outbox = outbox
        self._deadlines = deadlines
        self._backoff = backoff
        self._questions: dict[int, Question] = {}
        self._welcome: Welcome | None = None

    def handlers(self, otherwise: Callable[[RequestFailed], None]) -> Mapping[type, Callable[[Any], None]]:
        """Which messages are answers; `otherwise` takes failures of what was not asked here."""

        def on_failed(message: RequestFailed) -> None:
            if message.request in self._questions:
                self._on_failed(message)
            else:
                otherwise(message)

        return {
            Done: lambda message: self._answer(message.request, None),
            SubscriptionList: self._on_list,
            Status: self._on_list,
            PubendList: lambda message: self._answer(message.request, message.rows),
            **dict.fromkeys((Retired, AttachedTo, Ticks, KeyedPublished), self._answer_with_itself),
            RequestFailed: on_failed,
        }

    # What happened.

    def on_session(self, welcome: Welcome) -> None:
        """A session is open: ask what was not answered."""
        self._welcome = welcome
        for number in list(self._questions):
            self._send(number)

    def on_session_over(self) -> None:
        """Whatever was asked will be asked again, and may have been carried out already."""
        for number, question in self._questions.items():
            question.uncertain = True
            question.rows = []
            self._deadlines.clear((Timer.QUESTION, number))

    def on_deadline(self, number: int) -> None:
        """The time to ask once more has come."""
        if number in self._questions and self._outbox.open:
            self._send(number)

    # Commands.

    def ask(self, number: int, message: ClientMessage | PublishKeyed) -> int:
        """Asks, at once if there is a session."""
        self._questions[number] = Question(message, self._backoff())
        if self._outbox.open:
            self._send(number)
        return number

    def fail_all(self, error: GaplessError) -> None:
        """There will be no answers."""
        for number in self._questions:
            self._outbox.tell(Failed(number, error))
        self._questions.clear()

    # How it is done.

    def _send(self, number: int) -> None:
        """Asks, unless the broker is known to be older than the question: it would end the session."""
        message, welcome = self._questions[number].message, self._welcome
        if isinstance(message, AskStatus) and welcome is not None and AskStatus.__name__ not in welcome.answers:
            del self._questions[number]
            reason = f"the broker {welcome.node!r} is too old to tell its status: update it"
            self._outbox.tell(Failed(number, ConfigurationError(reason)))
            return
        self._outbox.send(message)

    def _answer(self, number: int, result: Result) -> None:
        if self._questions.pop(number, None) is not None:
            self._outbox.tell(Answered(number, result))

    def _answer_with_itself(self, message: Retired | AttachedTo | Ticks | KeyedPublished) -> None:
        self._answer(message.request, message)

    def _on_list(self, message: SubscriptionList | Status) -> None:
        question = self._questions.get(message.request)
        if question is not None:
            question.rows += message.rows
            if not message.more:
                self._answer(message.request, question.rows)

    def _on_failed(self, message: RequestFailed) -> None:
        question = self._questions[message.request]
        if message.code in TEMPORARY:
            due = self._outbox.now + question.backoff.next()
            self._deadlines.set((Timer.QUESTION, message.request), due)
            return
        del self._questions[message.request]
        gone = question.uncertain and message.code is Code.NOT_FOUND
        if gone and isinstance(question.message, Unsubscribe):
            # The first asking had removed it; only its answer was lost.
            self._outbox.tell(Answered(message.request, None))
        elif isinstance(question.message, PublishKeyed):
            self._outbox.tell(Failed(message.request, publish_error(message.code, message.reason)))
        else:
            self._outbox.tell(Failed(message.request, request_error(message)))
