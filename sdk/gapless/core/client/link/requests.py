"""Requests: repeated in every session, and after every refusal for now, until they have an answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any, ClassVar, TypeAlias, TypeVar

from msgspec.structs import replace

from gapless.core.client.link.backoff import Backoff
from gapless.core.client.link.effects import Answered, Failed, Listed, Result
from gapless.core.client.link.errors import TEMPORARY, error_of, publish_error, request_error
from gapless.core.client.link.outbox import ClientOutbox
from gapless.core.client.link.registry import ClientRegistry, ClientTimer, Key
from gapless.core.deadlines import Deadlines
from gapless.core.wire.codec import check_sendable
from gapless.core.wire.messages import (
    AddUser,
    AskStatus,
    AttachedTo,
    ChangeUser,
    ClientMessage,
    Code,
    Done,
    InUse,
    KeyedPublished,
    Leased,
    LeaseLost,
    ListUsers,
    PubendList,
    PublishKeyed,
    RemoveUser,
    RequestFailed,
    Retired,
    Status,
    SubscriptionList,
    TakeLease,
    Ticks,
    Unsubscribe,
    UserList,
)
from gapless.errors import ConfigurationError, GaplessError, RemoteProtocolError

Answers: TypeAlias = Mapping[type, Callable[[Any, Any], None]]
"""The messages that may answer a request, and the handler of each."""


ASKED_OF_SOME: Mapping[type, str] = {
    AskStatus: "tell its status",
    **dict.fromkeys((AddUser, ChangeUser, RemoveUser, ListUsers), "manage users"),
}
"""The requests that only brokers answer whose Welcome says so, and what others are too old to do."""


REMOVED_BEFORE: Mapping[type, Code] = {Unsubscribe: Code.NOT_FOUND, RemoveUser: Code.CONFIGURATION}
"""How a broker answers who asks it to remove what is not there."""


class PendingRequest:
    """A request that is not over. Its number is the number in its message."""

    ANSWERS: ClassVar[Answers] = {}
    """The messages that may answer it, besides a failure."""

    def __init__(self, message: Any, backoff: Backoff, outbox: ClientOutbox, deadlines: Deadlines[Key]) -> None:
        self.message = message
        self.over = False
        self.served = False
        """Whether the broker of this session has answered a part of it, and goes on."""
        self.refused_at: dict[str, None] = {}
        """The addresses whose brokers have said, since it was served last, that another node answers it."""
        self._backoff = backoff
        self._outbox = outbox
        self._deadlines = deadlines

    @property
    def number(self) -> int:
        """The number under which it is answered."""
        return int(self.message.request)

    def request(self) -> ClientMessage | PublishKeyed | None:
        """Returns the message to send in the present session; None if nothing is left to be asked."""
        message: ClientMessage | PublishKeyed = self.message
        return message

    # What happened.

    def on_session(self) -> None:
        """A session is open: asks in it."""
        request = self.request()
        if isinstance(request, PublishKeyed) and self._outbox.room <= 0:
            self._outbox.wait_for_room(self.number, self.on_deadline)
        elif request is not None:
            self._outbox.send(request)

    def on_session_over(self) -> None:
        """The session is over: a delayed repetition is not needed, because the next session asks anyway."""
        self.served = False
        self._deadlines.clear((ClientTimer.REQUEST, self.number))

    def on_deadline(self) -> None:
        """The delay is over, or there is room on the link: asks once more."""
        if self._outbox.open and not self.over:
            self.on_session()

    def on_answer(self, message: Any) -> None:
        """An answer has come. Raises RemoteProtocolError if it is no answer to such a request."""
        handler = self.ANSWERS.get(type(message))
        if handler is None:
            raise RemoteProtocolError(f"a {type(message).__name__} in answer to a {type(self.message).__name__}")
        self.served = True
        self.refused_at.clear()
        handler(self, message)

    def on_failed(self, failed: RequestFailed) -> None:
        """The broker has refused the request, for now or for good."""
        if failed.code in TEMPORARY:
            self._deadlines.set((ClientTimer.REQUEST, self.number), self._outbox.now + self._backoff.next())
        else:
            self.fail(request_error(failed))

    # How it ends.

    def fail(self, error: GaplessError) -> None:
        """Ends the request with an error: there will be no answer."""
        self.end()
        self._outbox.tell(Failed(self.number, error))

    def end(self) -> None:
        """Ends the request: nothing more is asked or reported."""
        self.over = True
        self._deadlines.clear((ClientTimer.REQUEST, self.number))


class Query(PendingRequest):
    """A request with one answer."""

    def __init__(self, message: Any, backoff: Backoff, outbox: ClientOutbox, deadlines: Deadlines[Key]) -> None:
        super().__init__(message, backoff, outbox, deadlines)
        self._rows: list[Any] = []
        """The rows of a list that has arrived in part."""
        self._hidden = 0
        """How many of those parts are not there."""
        self._uncertain = False
        """Whether a session ended after it was asked: then the broker may have carried it out."""

    def on_session(self) -> None:
        """Asks, unless the broker is too old for the question: such a broker would end the session."""
        welcome = self._outbox.welcome
        assert welcome is not None
        kind = type(self.message)
        if kind in ASKED_OF_SOME and kind.__name__ not in welcome.answers:
            reason = f"the broker {welcome.node!r} is too old to {ASKED_OF_SOME[kind]}: update it"
            self.fail(ConfigurationError(reason))
        else:
            super().on_session()

    def on_session_over(self) -> None:
        """The session is over: it will be asked again, and may have been carried out already."""
        super().on_session_over()
        self._uncertain = True
        self._rows, self._hidden = [], 0

    def on_failed(self, failed: RequestFailed) -> None:
        """The broker has refused it.

        If it was carried out the first time, and only the answer was lost, it succeeds.
        """
        if self._uncertain and failed.code is REMOVED_BEFORE.get(type(self.message)):
            self._answer(None)
        elif isinstance(self.message, PublishKeyed) and failed.code not in TEMPORARY:
            self.fail(publish_error(failed.code, failed.reason))
        else:
            super().on_failed(failed)

    def _on_list(self, message: SubscriptionList | Status | UserList) -> None:
        self._rows += message.rows
        self._hidden += getattr(message, "hidden", 0)
        if not message.more:
            self._answer(Listed(self._rows, getattr(message, "missing", ()), self._hidden))

    def _answer(self, result: Result) -> None:
        self.end()
        self._outbox.tell(Answered(self.number, result))

    ANSWERS: ClassVar[Answers] = {
        Done: lambda self, _: self._answer(None),
        SubscriptionList: _on_list,
        Status: _on_list,
        UserList: _on_list,
        PubendList: lambda self, message: self._answer(Listed(message.rows, message.missing, message.hidden)),
        **dict.fromkeys((Retired, AttachedTo, Ticks, KeyedPublished), _answer),
    }


class HeldLease(PendingRequest):
    """The sole right to read a subscription by ranges; it is asked for again in each session (protocol: ranges)."""

    message: TakeLease

    def __init__(self, message: TakeLease, backoff: Backoff, outbox: ClientOutbox, deadlines: Deadlines[Key]) -> None:
        super().__init__(message, backoff, outbox, deadlines)
        self._asked = outbox.attempts.next()
        """When the application asked for it, as its process counts."""
        self._granted = False
        """Whether it was ever granted."""
        self._confirms = 0
        """What the next request has to repeat, so that the broker knows that it is still wanted."""

    def request(self) -> TakeLease:
        """Returns the request.

        After a lost connection it does not take the lease from a client that got it meanwhile.
        """
        confirms, self._confirms = self._confirms, 0
        attempts = self._outbox.attempts
        return replace(
            self.message,
            in_use=InUse.ERROR if self._granted else self.message.in_use,
            attempt=attempts.next(),
            process=attempts.process,
            confirms=confirms,
            asked=self._asked,
            again=self._granted,
        )

    def on_failed(self, failed: RequestFailed) -> None:
        """The broker has refused it, for now or for good; or it asks whether it is still wanted."""
        if failed.confirm:
            self._confirms = failed.confirm
            self.on_session()
        else:
            super().on_failed(failed)

    def _on_leased(self, _message: Leased) -> None:
        if not self._granted:
            self._granted = True
            self._outbox.tell(Answered(self.number, None))

    def _on_lost(self, lost: LeaseLost) -> None:
        self.fail(error_of(lost.code, lost.reason))

    ANSWERS: ClassVar[Answers] = {Leased: _on_leased, LeaseLost: _on_lost}


P = TypeVar("P", bound=PendingRequest)


class Requests(ClientRegistry[PendingRequest]):
    """All requests of one connection."""

    def __init__(
        self,
        outbox: ClientOutbox,
        deadlines: Deadlines[Key],
        backoff: Callable[[], Backoff],
        number: Callable[[], int],
    ) -> None:
        """`number`: draws the next number of the connection."""
        super().__init__(outbox)
        self._deadlines = deadlines
        self._backoff = backoff
        self._number = number

    def handlers(self, *kinds: type[PendingRequest]) -> Mapping[type, Callable[[Any], None]]:
        """Returns a handler for each message that answers requests of these kinds."""
        on_answer = self.forward(lambda request, message: request.on_answer(message))
        return dict.fromkeys(chain.from_iterable(kind.ANSWERS for kind in kinds), on_answer)

    def begin(self, kind: type[P], message: Callable[[int], Any], now: int) -> int:
        """Asks, at once if there is a session. `message` makes the message with its number. Returns the number.

        Raises ConfigurationError if the message cannot be encoded.
        """
        self._outbox.now = now
        number = self._number()
        asked = message(number)
        check_sendable(asked)
        self.add(kind(asked, self._backoff(), self._outbox, self._deadlines))
        return number

    def goes_elsewhere(self, failed: RequestFailed, address: str, addresses: int) -> bool:
        """Whether the node that answers a request may be behind another address, and nothing of this session is lost.

        Each address is tried once; which node is behind one shows there. If the client comes back to one, it is none of
        them, or it is away.
        """
        request = self.get(failed.request)
        if request is None or not failed.node or address in request.refused_at:
            return False
        request.refused_at[address] = None
        return len(request.refused_at) < addresses and not any(each.served for each in self)
