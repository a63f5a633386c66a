"""A connection, blocking."""

from __future__ import annotations

import atexit
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING
from weakref import WeakSet

import gapless.client.connection as awaited
from gapless import loggers
from gapless.client.ack_modes import AckMode
from gapless.client.addresses import Embedded, Remote, parse
from gapless.client.credentials import CredentialSource, source_of
from gapless.client.options import check_name
from gapless.client.ranges.archives import Archive, check_archive
from gapless.errors import ConnectionClosedError, GaplessError, PublishUncertainError
from gapless.sync.ranges import RangeCalls
from gapless.sync.runner import STOP_TIMEOUT, Runner
from gapless.sync.session import Session

if TYPE_CHECKING:
    from gapless.client.listings import BrokerStatus, Listing, PubendInfo, Retirement, SubscriptionInfo
    from gapless.client.session import Session as AwaitedSession

EXIT_TIMEOUT = 2.0
"""How many seconds each connection has for its Goodbye when the interpreter ends."""

log = loggers.logger("gapless.sync")


_open: WeakSet[Connection] = WeakSet()


def connect(
    address: str,
    *,
    client_id: str = "",
    credentials: CredentialSource | None = None,
    identify: bool = False,
    wait: bool = False,
    archive: Archive | None = None,
    timeout: float | None = None,
) -> Connection:
    """Returns a connection to a broker, to be used as a block or not; see `gapless.connect`.

    After `timeout` seconds it gives up and raises TimeoutError.
    """
    target = parse(address)
    source_of(target.login if isinstance(target, Remote) else None, credentials)
    if client_id:
        check_name(client_id, "the client id")
    if archive is not None:
        check_archive(archive)
    opened: list[awaited.Connection] = []

    async def begin() -> awaited.Connection:
        opened.append(
            await awaited.connect(
                address,
                client_id=client_id,
                credentials=credentials,
                identify=identify,
                wait=wait,
                archive=archive,
            )
        )
        return opened[0]

    runner = Runner(Path(target.path).resolve() if isinstance(target, Embedded) and target.path else None)
    try:
        return Connection(runner, runner.call(begin, timeout))
    except BaseException as error:
        for connection in opened:  # it is open, and nobody has it
            _end(runner, connection, error)
        runner.stop()
        raise


class Connection(RangeCalls):
    """A client of a network; see `gapless.Connection`. Made by `connect`."""

    def __init__(self, runner: Runner, connection: awaited.Connection) -> None:
        """Use `connect`."""
        super().__init__(runner, connection)
        _open.add(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(kind, error, None)

    @property
    def client_id(self) -> str:
        """The first half of the names of durable subscriptions."""
        return self._awaited.client_id

    @property
    def network(self) -> str:
        """The id of its network."""
        return self._awaited.network

    @property
    def connected(self) -> bool:
        """Whether there is a session with a broker now. If not, the connection tries to open one."""
        return self._runner.alive and self._awaited.connected

    def session(self, ack_mode: AckMode = AckMode.TOKEN) -> Session:
        """Makes a session, to be used as a block or not. `ack_mode`: who acknowledges; by default the application."""

        async def begin() -> AwaitedSession:
            return self._awaited.session(ack_mode)

        return self._runner.make(begin, Session, lambda session: session.abandon())

    def subscriptions(self, timeout: float | None = None) -> Listing[SubscriptionInfo]:
        """Returns all durable subscriptions of the network; see `gapless.Connection.subscriptions`."""
        return self._runner.call(self._awaited.subscriptions, timeout)

    def pubends(self, timeout: float | None = None) -> Listing[PubendInfo]:
        """Returns all pubends of the network; see `gapless.Connection.pubends`."""
        return self._runner.call(self._awaited.pubends, timeout)

    def status(self, node: str = "", timeout: float | None = None) -> BrokerStatus:
        """Returns the figures and the alarms of a node; see `gapless.Connection.status`."""
        return self._runner.call(lambda: self._awaited.status(node), timeout)

    def unsubscribe(self, name: str, client_id: str | None = None, timeout: float | None = None) -> None:
        """Removes a durable subscription for good; see `gapless.Connection.unsubscribe`."""
        self._runner.call(lambda: self._awaited.unsubscribe(name, client_id), timeout)

    def retire(
        self, shb: str, *, only_look: bool = False, running: bool = False, timeout: float | None = None
    ) -> Retirement:
        """Gives up an SHB that will never come back; see `gapless.Connection.retire`."""
        return self._runner.call(lambda: self._awaited.retire(shb, only_look=only_look, running=running), timeout)

    def drain(self) -> None:
        """Ends all iterations after the current event. It may be called in signal handlers, and from other threads."""
        if self._runner.alive:
            self._awaited.drain()

    def close(self, timeout: float | None = None) -> None:
        """Closes the connection; see `gapless.Connection.close`. Idempotent.

        After a timeout it is closed all the same. Raises PublishUncertainError, or a rejection, of an event whose
        caller has gone: its `send` had a timeout, or was interrupted. If a `close` was left in that way itself, the
        next one raises it.
        """
        self._leave(None, None, timeout)

    def _leave(self, kind: type[BaseException] | None, error: BaseException | None, timeout: float | None) -> None:
        _open.discard(self)
        has_failed = False
        if self._runner.alive:
            try:
                work = partial(self._awaited.__aexit__, kind, error, None)
                self._runner.call(work, timeout, back=self._runner.keep)
            except GaplessError as failed:
                has_failed = True
                self._runner.kept.insert(0, failed)  # not raised yet: an interrupt in `stop` would take its place
            except BaseException as raised:  # its time was over, or it was interrupted
                try:
                    _end(self._runner, self._awaited, raised)
                finally:
                    self._runner.stop()
                raise
            self._runner.stop()
        if error is None or has_failed:
            self._runner.tell_kept()


def _end(runner: Runner, connection: awaited.Connection, error: BaseException) -> None:
    """Closes a connection at once, as if its block had been left by this error. The next `close` says what is lost."""

    async def end() -> None:
        if connection.has_unanswered:
            runner.kept.append(PublishUncertainError("the connection was closed before the answer"))
        await connection.__aexit__(type(error), error, None)

    with suppress(Exception):
        runner.call(end, STOP_TIMEOUT)


def _close_all() -> None:
    """Closes all connections when the interpreter ends, so that brokers need not wait for a timeout."""
    for connection in list(_open):
        try:
            with suppress(TimeoutError, ConnectionClosedError):
                connection.close(EXIT_TIMEOUT)
        except Exception as error:  # noqa: BLE001 - there is no caller left to be told
            log.error("a connection that was not closed has ended with an error: %s", error)  # noqa: TRY400


atexit.register(_close_all)
