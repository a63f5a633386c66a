"""The shell of the client's core: it feeds the core, carries out its effects, and sets one timer.

Commands of one turn of the loop are carried out together at its end; frames that arrive are handled at once. Where the
commands of a turn are many, their frames leave in portions, so that the broker need not wait for the last of them. The
driver does not know what a publisher or a subscription is: each is a number with a recipient.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from weakref import WeakSet

from gapless import loggers
from gapless.client.credentials import reason_of
from gapless.core.client import LinkSecurity
from gapless.core.client.link import effects as e
from gapless.core.wire.framing import LOOKS_LIKE_HTTP
from gapless.errors import AuthenticationError, ConfigurationError, ConnectionClosedError, GaplessError
from gapless.security.binding import end_point

if TYPE_CHECKING:
    from gapless.client.credentials import AskCredentials
    from gapless.core.client import ClientCore
    from gapless.spi import Link, LinkHandler

log = loggers.logger("gapless.client")

FORKED: Final = "the connection belongs to the process this one was forked from: connect anew"
NATIVE: Final = (
    "A broker takes clients on its native port, 7400 by default; where it tells tools of itself over HTTP ([observe],"
    " 7401 by default) it takes none"
)
LOOK_SECONDS = 0.75
"""So long whoever leaves waits until it asks the broker for a sign of life, and looks for one again."""
ANSWER_SECONDS = 4.0
"""So long whoever leaves waits for the next answer: the broker may live, and one behind it that has to answer not."""
TELL_AGAIN_SECONDS = 30.0
"""So long after it was told that no broker answers, it is told again. It is dialled twice a second."""

Dialler: TypeAlias = "Callable[[str, Callable[[Link], LinkHandler]], Awaitable[Link]]"
"""Connects to an address, as `gapless.spi.Transport.dial` does."""


class Recipient:
    """Receives the effects about one publisher, subscription or request. Subclasses override what concerns them."""

    def on_answered(self, result: Any) -> None:
        """The broker has answered."""

    def on_failed(self, error: GaplessError) -> None:
        """It is over; no other call follows."""

    def on_receipted(self, receipted: e.Receipted) -> None:
        """A batch is logged."""

    def on_not_published(self, refused: e.NotPublished) -> None:
        """A batch gets no receipt."""

    def on_arrived(self) -> None:
        """There is something to take."""

    def on_settled(self, answered: e.SettlementAnswered) -> None:
        """A settlement of a shared subscription is durable."""

    def on_dropped(self, error: GaplessError) -> None:
        """The connection is over, and its loop is not here: nothing that is at hand may be handed out.

        No future may be touched, and no other method follows.
        """


class ClientLinkOwner:
    """Listens to one link, as long as the core needs it."""

    __slots__ = ("_driver", "link", "number", "room_upto")

    def __init__(self, driver: Driver, number: int, link: Link) -> None:
        self._driver = driver
        self.number = number
        self.link = link
        self.room_upto: int | None = None
        """The core wants to know when at most so many bytes wait; None: it does not."""

    def on_frames(self, payloads: Sequence[bytes]) -> None:
        """Frames arrived."""
        self._driver.core.on_frames(self.number, payloads, self._driver.now())
        self._driver.pump()

    def on_broken(self, reason: str) -> None:
        """The bytes that came are no frames: the link is over for the core now, whenever it closes."""
        if reason.endswith(LOOKS_LIKE_HTTP):
            self._driver.on_http(self.link.peer)
        self.link.close(reason)
        self._driver.on_link_closed(self, reason)

    def on_drained(self) -> None:
        """Little waits on the link on which much did."""
        self._driver.look_for_room(self)

    def on_closed(self, reason: str) -> None:
        """The link is over."""
        self._driver.on_link_closed(self, reason)


class Driver:
    """Runs one core on the running loop, from `start` to `close`."""

    def __init__(
        self, core: ClientCore, dial: Dialler, ask: AskCredentials | None, *, identifies: bool, patient: bool
    ) -> None:
        """`ask` says the credentials, if the core has some. `patient`: whether `start` goes on trying at first."""
        self.on_delayed: Callable[[float], None] = lambda _seconds: None
        """Is told how much longer a broker takes that judges credentials."""
        self.core = core
        self.is_embedded = False
        """Whether the broker is in this process, and dies with it."""
        self.stamp = core.app_id if identifies else ""
        """The JMSXAppID of everything that is published; "": none."""
        self.loop = asyncio.get_running_loop()
        self.error: GaplessError | None = None
        """Why the connection is over."""
        self.closed = False
        self.is_dropped = False
        """Whether it is over because its loop is not here: then there is nothing to be closed."""
        self._thread = get_ident()
        """Where the loop ran last."""
        self._dial = dial
        self._ask = ask
        self._patient = patient
        self._recipients: dict[int, Recipient] = {}
        self._links: dict[int, ClientLinkOwner] = {}
        self._links_left: dict[int, ClientLinkOwner] = {}
        """Those that may not be touched any more. They are kept, as a forgotten socket is closed with a warning."""
        self._dialling: dict[int, asyncio.Task[None]] = {}
        self._asking: dict[int, asyncio.Task[None]] = {}
        """Those that ask for credentials, by their links."""
        self._opening: asyncio.Future[None] | None = None
        self._all_links_closed: asyncio.Future[None] | None = None
        self._changes: list[asyncio.Future[None]] = []
        self._was_connected = False
        self._told_unreachable_at = float("-inf")
        """When it was told last that no broker answers, since one did."""
        self._scheduled = False
        self._before_pump: list[Callable[[], None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._due: int | None = None
        self._answered_at = self._gave_up_at = float("-inf")
        """When a broker has answered something last, and when somebody who left did not wait for that any more."""
        recipient = self._recipients.get
        self._effects: dict[type, Callable[[Any], None]] = {
            e.AskCredentials: self._on_ask_credentials,
            e.OpenLink: self._on_dial,
            e.SendFrames: self._on_send_frames,
            e.AskRoom: self._on_ask_room,
            e.RaiseLimit: self._on_raise_limit,
            e.CloseLink: self._on_hangup,
            e.Connected: self._on_connected,
            e.Delayed: self._on_delayed,
            e.Disconnected: self._on_disconnected,
            e.Unreachable: self._on_unreachable,
            e.Closed: self._on_closed,
            e.Notice: lambda notice: log.warning("%s", notice.text),
            e.Answered: self._on_answered,
            e.Failed: self._on_failed,
            e.Receipted: self._on_receipted,
            e.NotPublished: lambda refused: recipient(refused.publisher, NO_RECIPIENT).on_not_published(refused),
            e.Arrived: lambda arrived: recipient(arrived.subscription, NO_RECIPIENT).on_arrived(),
            e.SettlementAnswered: self._on_settled,
        }
        _drivers.add(self)

    # The connection's life.

    async def start(self) -> None:
        """Connects.

        Raises ConnectionClosedError if no address answers, and another error if the broker refuses for good.
        """
        self._opening = self.loop.create_future()
        self.core.start(self.now())
        self.pump()
        try:
            await self._opening
        except BaseException:
            await self.close()
            raise
        finally:
            self._opening = None

    async def close(self) -> None:
        """Sends Goodbye, and waits until it has left, or cannot leave. Idempotent."""
        self.core.close(self.now())
        self.pump()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        tasks = [*self._dialling.values(), *self._asking.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._links:
            if self._all_links_closed is None:
                self._all_links_closed = self.loop.create_future()
            await asyncio.shield(self._all_links_closed)

    async def while_alive(self, work: Coroutine[Any, Any, None]) -> bool:
        """Waits until some work is done that brokers have to answer, as long as they do, or the next one lives.

        Returns whether it is done. Otherwise a broker stands still, or is not there, and the work was cancelled. Who
        waits next does not begin to wait anew: its answers had as long.
        """
        task = self.loop.create_task(work)
        now = self.loop.time()
        if now - self._gave_up_at > LOOK_SECONDS:
            self._answered_at = now
        try:
            while not task.done() and not self._is_waited_for_in_vain():
                await asyncio.wait([task], timeout=LOOK_SECONDS)
                if not task.done():
                    self.core.ask_for_life(self.now())
                    self.pump()
        finally:
            if not task.done():
                self._gave_up_at = self.loop.time()
                task.cancel()
                await asyncio.wait([task])
        if task.cancelled():
            return False
        task.result()
        return True

    def _is_waited_for_in_vain(self) -> bool:
        return self.core.stands_still(self.now()) or self.loop.time() - self._answered_at > ANSWER_SECONDS

    def now(self) -> int:
        """Returns the time in monotonic nanoseconds."""
        return int(self.loop.time() * 1e9)

    # Recipients of numbers.

    def register(self, number: int, recipient: Recipient) -> None:
        """Passes all effects about `number` to `recipient` from now on."""
        self._recipients[number] = recipient

    def unregister(self, number: int) -> None:
        """Drops all effects about `number` from now on."""
        self._recipients.pop(number, None)

    def ask(self, ask: Callable[[int], int]) -> asyncio.Future[Any]:
        """Passes a request to the core. The future gets its answer."""
        self.check_open()
        number = ask(self.now())
        question = PendingAnswer(self, number)
        self._recipients[number] = question
        self.touch()
        return question.future

    def check_open(self) -> None:
        """Raises ConnectionClosedError if the connection is over, or not of this loop."""
        if self.closed:
            raise self.error or ConnectionClosedError("the connection is closed")
        self.check_here()

    def check_here(self) -> None:
        """Raises ConnectionClosedError if the caller runs on another event loop: nothing may be done then."""
        if self._thread == get_ident() and self.loop.is_running():
            return
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:  # plain calls may be made while no loop runs
            running = self.loop
        if running is not self.loop or self.loop.is_closed():
            raise ConnectionClosedError(self.is_elsewhere)
        self._thread = get_ident()

    @property
    def is_elsewhere(self) -> str:
        """What is told on another loop."""
        if self.loop.is_closed():
            return "the event loop of this connection has ended, and the connection with it: connect anew in this loop"
        return "the connection belongs to another event loop: connect anew in this one, or use gapless.sync"

    def drop(self, reason: str) -> None:
        """The connection is over, and its loop is not here: in a forked child, or after the end of the loop.

        Nothing is sent, and no link is touched.
        """
        self.closed = self.is_dropped = True
        self.error = ConnectionClosedError(reason)
        self._thread = 0
        self._links_left, self._links = self._links, {}
        for recipient in list(self._recipients.values()):
            recipient.on_dropped(self.error)

    def end(self, error: GaplessError) -> None:
        """The broker, which runs in this process, has ended for good: whoever waits for it is told at once."""
        self.core.end(error, self.now())
        self.pump()

    def on_http(self, address: str) -> None:
        """Whoever connects first hears of it at once: to dial this address again would not help."""
        if self._opening is not None and not self._opening.done():
            text = f"{address} is an HTTP server. {NATIVE}"
            self._opening.set_exception(ConfigurationError(text))

    async def change(self) -> None:
        """Waits until a batch is answered, or the connection changes."""
        future = self.loop.create_future()
        self._changes.append(future)
        await future

    # What happened.

    def on_link_closed(self, end: ClientLinkOwner, reason: str) -> None:
        """A link is over."""
        self._links.pop(end.number, None)
        self.core.on_link_down(end.number, reason, self.now())
        self.pump()
        if not self._links and self._all_links_closed is not None and not self._all_links_closed.done():
            self._all_links_closed.set_result(None)

    def touch(self) -> None:
        """The core was given a command: carries out its effects at the end of this turn, if not sooner."""
        self._schedule()
        for send in self.core.take_frames():
            self._on_send_frames(send)

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self._end_turn)

    def at_end_of_turn(self, call: Callable[[], None]) -> None:
        """Calls this at the end of this turn, before the effects of the core are carried out."""
        self._before_pump.append(call)
        self.touch()

    def _end_turn(self) -> None:
        calls, self._before_pump = self._before_pump, []
        for call in calls:
            call()
        self.pump()

    def pump(self) -> None:
        """Carries out the effects of the core, and sets the timer for its deadline."""
        self._scheduled = False
        effects = self._effects
        failure: Exception | None = None
        for effect in self.core.take_effects():
            try:
                effects[type(effect)](effect)
            except Exception as error:  # noqa: BLE001 - a bug in one place must not keep back what others wait for
                failure = failure or error
        due = self.core.deadline()
        if due != self._due:
            self._due = due
            if self._timer is not None:
                self._timer.cancel()
            self._timer = None if due is None else self.loop.call_at(due / 1e9, self._on_timer, due)
        if failure is not None:
            raise failure

    def _on_timer(self, due: int) -> None:
        self._timer = self._due = None
        self.core.on_deadline(max(due, self.now()))
        self.pump()

    # What to do.

    def _on_answered(self, answered: e.Answered) -> None:
        self._answered_at = self.loop.time()
        self._recipients.get(answered.request, NO_RECIPIENT).on_answered(answered.result)

    def _on_receipted(self, receipted: e.Receipted) -> None:
        self._answered_at = self.loop.time()
        self._recipients.get(receipted.publisher, NO_RECIPIENT).on_receipted(receipted)

    def _on_settled(self, answered: e.SettlementAnswered) -> None:
        self._answered_at = self.loop.time()
        self._recipients.get(answered.subscription, NO_RECIPIENT).on_settled(answered)

    def _on_ask_credentials(self, question: e.AskCredentials) -> None:
        self._stop_asking(question.link)
        task = self.loop.create_task(self._ask_credentials(question), name="gapless asks for credentials")
        self._asking[question.link] = task

        def forget(done: asyncio.Task[None]) -> None:
            if self._asking.get(question.link) is done:
                del self._asking[question.link]

        task.add_done_callback(forget)

    async def _ask_credentials(self, question: e.AskCredentials) -> None:
        assert self._ask is not None
        try:
            credentials = await self._ask(question.address)
        except Exception as error:  # noqa: BLE001 - whatever an application's callable raises
            self._no_credentials(question.link, error)
        else:
            self.core.on_credentials(question.link, credentials, self.now())
        self.pump()

    def _no_credentials(self, link: int, error: Exception) -> None:
        """Whoever connects first hears of it at once; later there may be some another time."""
        reason = f"there are no credentials: {reason_of(error)}"
        opening = self._opening
        is_final = not self._patient or isinstance(error, ConfigurationError)
        if opening is not None and not opening.done() and is_final:
            told = error if isinstance(error, GaplessError) else AuthenticationError(reason)
            told.__cause__ = None if told is error else error
            opening.set_exception(told)
        self.core.on_no_credentials(link, reason, self.now())

    def _stop_asking(self, link: int) -> None:
        task = self._asking.pop(link, None)
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    def _on_dial(self, dial: e.OpenLink) -> None:
        task = self.loop.create_task(self._dial_link(dial), name=f"gapless dials {dial.address}")
        self._dialling[dial.link] = task
        task.add_done_callback(lambda _: self._dialling.pop(dial.link, None))

    async def _dial_link(self, dial: e.OpenLink) -> None:
        def accept(link: Link) -> ClientLinkOwner:
            end = self._links[dial.link] = ClientLinkOwner(self, dial.link, link)
            return end

        try:
            link = await self._dial(dial.address, accept)
            security = LinkSecurity(end_point(link.shown), link.secure)
        except (OSError, GaplessError) as error:
            self._dial_failed(dial, str(error) or type(error).__name__)
        except BaseException as error:
            # Whatever a transport raises, the connection goes on trying; and the error must be visible in the log.
            self._dial_failed(dial, repr(error))
            raise
        else:
            self.core.on_link_up(dial.link, security, self.now())
            self.pump()

    def _dial_failed(self, dial: e.OpenLink, reason: str) -> None:
        self._links.pop(dial.link, None)
        self.core.on_link_down(dial.link, reason, self.now())
        self.pump()

    def _on_send_frames(self, send: e.SendFrames) -> None:
        end = self._links.get(send.link)
        if end is not None:
            end.link.send(send.payloads, urgent=send.urgent)
            if end.room_upto is not None:
                self.look_for_room(end)

    def _on_ask_room(self, ask: e.AskRoom) -> None:
        end = self._links.get(ask.link)
        if end is not None:
            end.room_upto = ask.upto
            self.look_for_room(end)

    def look_for_room(self, end: ClientLinkOwner) -> None:
        """Reports to the core that a link has room, if it waits for that, and the link has."""
        if end.room_upto is not None and end.link.pending <= end.room_upto:
            end.room_upto = None
            self.core.on_room(end.number, self.now())
            self._schedule()

    def _on_raise_limit(self, limit: e.RaiseLimit) -> None:
        end = self._links.get(limit.link)
        if end is not None:
            end.link.raise_limit(limit.limit)

    def _on_hangup(self, hangup: e.CloseLink) -> None:
        self._stop_asking(hangup.link)
        task = self._dialling.get(hangup.link)
        if task is not None:
            task.cancel()
        end = self._links.get(hangup.link)
        if end is not None:
            end.link.close(hangup.reason)

    def _on_connected(self, connected: e.Connected) -> None:
        if self._opening is not None and not self._opening.done():
            self._opening.set_result(None)
        if self._was_connected:
            log.info("connected again, to %s (node %s)", connected.address, connected.node)
        self._was_connected = True
        self._told_unreachable_at = float("-inf")
        self._tell_change()

    def _on_delayed(self, delayed: e.Delayed) -> None:
        seconds = delayed.wait / 1e9
        log.info("%s takes %.1f s to say whether it takes the credentials", delayed.address, seconds)
        self.on_delayed(seconds)

    def _on_disconnected(self, disconnected: e.Disconnected) -> None:
        log.warning("lost the connection to %s: %s; trying again", disconnected.address, disconnected.reason)
        self._tell_change()

    def _on_unreachable(self, unreachable: e.Unreachable) -> None:
        opening = self._opening
        if opening is not None and not opening.done() and not self._patient:
            if unreachable.is_refused:
                opening.set_exception(AuthenticationError(f"no broker lets this client in: {unreachable.reason}"))
            else:
                opening.set_exception(ConnectionClosedError(f"no broker answers: {unreachable.reason}"))
        elif self.loop.time() - self._told_unreachable_at >= TELL_AGAIN_SECONDS:
            self._told_unreachable_at = self.loop.time()
            log.warning("no broker answers, trying again: %s", unreachable.reason)

    def _on_closed(self, closed: e.Closed) -> None:
        self.closed = True
        self.error = closed.error
        opening = self._opening
        if opening is not None and not opening.done():
            opening.set_exception(closed.error or ConnectionClosedError("the connection was closed"))
        self._tell_change()

    def _on_failed(self, failed: e.Failed) -> None:
        self._recipients.pop(failed.request, NO_RECIPIENT).on_failed(failed.error)
        self._tell_change()

    def _tell_change(self) -> None:
        changes, self._changes = self._changes, []
        for future in changes:
            if not future.done():
                future.set_result(None)

    def tell_change(self) -> None:
        """An event has happened for which `change` waits."""
        if self._changes:
            self._tell_change()


class PendingAnswer(Recipient):
    """A request; a future gets its answer."""

    def __init__(self, driver: Driver, number: int) -> None:
        self.future: asyncio.Future[Any] = driver.loop.create_future()
        self._driver = driver
        self._number = number

    def on_answered(self, result: Any) -> None:
        """The broker has answered."""
        self._driver.unregister(self._number)
        if not self.future.done():
            self.future.set_result(result)

    def on_failed(self, error: GaplessError) -> None:
        """There will be no answer."""
        if not self.future.done():
            self.future.set_exception(error)


NO_RECIPIENT = Recipient()
"""Drops the effects for which there is no recipient any more."""

_drivers: WeakSet[Driver] = WeakSet()


def _end_in_child() -> None:
    for driver in list(_drivers):
        driver.drop(FORKED)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_end_in_child)
