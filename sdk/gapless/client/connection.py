"""A connection: one client of a network, over as many links as necessary."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import SystemRandom
from secrets import token_hex
from types import TracebackType
from typing import Any, Final, NamedTuple

from typing_extensions import Self

from gapless import plugins
from gapless.client.ack_modes import AckMode
from gapless.client.addresses import Remote, parse
from gapless.client.awaitable import AwaitableContext
from gapless.client.credentials import AskCredentials, CredentialSource, asks, source_of
from gapless.client.driver import Dialler, Driver
from gapless.client.embedded import EmbeddedBroker
from gapless.client.listings import (
    BrokerStatus,
    Listing,
    PubendInfo,
    Retirement,
    SubscriptionInfo,
    broker_status,
    missing_answers,
    pubend_info,
    retirement,
    subscription_info,
)
from gapless.client.options import check_name, check_text
from gapless.client.process import attempts_of_process
from gapless.client.ranges.archives import Archive, check_archive, check_network
from gapless.client.ranges.calls import RangeCalls
from gapless.client.ranges.keyed import KeyedPublishing
from gapless.client.session import Session
from gapless.client.users import UserCalls
from gapless.core.client import ClientCore
from gapless.errors import ConnectionClosedError, GaplessError, PublishUncertainError

CLOSING: Final[Mapping[str, Any]] = {"close_timeout": 1.5}
"""How long, in seconds, a link may take to send the last that a client has to say: its broker may stand still."""


def connect(
    address: str,
    *,
    client_id: str = "",
    credentials: CredentialSource | None = None,
    identify: bool = False,
    wait: bool = False,
    archive: Archive | None = None,
) -> Connecting:
    """Returns a connection to a broker, to be awaited or entered.

    Args:
        address: One of these:
            `gapless://HOST:PORT`; several hosts, separated by commas, are tried one after the other.
            `gapless+tls://…`: with TLS. After the hosts it takes
            `?ca=FILE&certificate=FILE&key=FILE&server_name=NAME`, each as far as needed.
            Of both, `USER@` may stand before the hosts, and `?password_file=FILE` or `?token_file=FILE` behind them.
            The environment variable GAPLESS_PASSWORD_FILE names the file where the address does not.
            `gapless+NAME://ADDRESS`: through the transport plugin NAME, which gets no options.
            `embedded:PATH`: a broker in this process, on the volume at PATH. All connections of this event loop to the
            same PATH share it (and so do all of `gapless.sync`).
            `embedded:`: a broker in memory, for this connection alone.
        client_id: The first half of the names of durable subscriptions.
        credentials: Who this client is: `gapless.Password` or `gapless.BearerToken`.
        identify: Whether what it publishes says whose it is, in the property JMSXAppID: the client id or, without one,
            a text that is this connection's own. So `no_local=True` can leave it out.
        wait: Whether to go on trying if no broker answers at first. A connection that is lost later is always restored,
            and publishers and subscriptions go on by themselves.
        archive: Fills gaps: if a subscription of this connection meets a gap, it gets the archive's events instead.

    Raises ConfigurationError here. When awaited or entered, it also raises ConnectionClosedError if no broker answers,
    ConnectionRefusedByBrokerError (and of its kind AuthenticationError: the credentials are not taken, or there are
    none), StorageError for an embedded broker, and ConfigurationError for an archive of another network.

    """
    target = parse(address)
    source = source_of(target.login if isinstance(target, Remote) else None, credentials)
    if client_id != "":
        client_id = check_name(client_id, "the client id")
    if archive is not None:
        check_archive(archive)

    async def begin() -> Connection:
        if isinstance(target, Remote):
            options = {**(CLOSING if target.transport == "tcp" else {}), **target.options}
            transport = plugins.load("transport", target.transport)(options=options)
            for each in target.addresses:
                transport.is_loopback(each)  # raises if it is malformed: then no other is dialled, either
            ask = None if source is None else asks(source, transport.is_loopback)
            way = _Way(target.addresses, transport.dial, ask, connecting.on_delayed)
            return await _open(way, client_id, None, archive, identify=identify, patient=wait)
        broker = EmbeddedBroker(target.path)
        await broker.start()
        try:
            ask = None if source is None else asks(source, lambda _address: True)
            way = _Way((address,), broker.dial, ask, connecting.on_delayed)
            return await _open(way, client_id, broker, archive, identify=identify, patient=wait)
        except BaseException:
            await broker.stop()
            raise

    connecting = Connecting(begin)
    return connecting


class _Way(NamedTuple):
    """How brokers are reached."""

    addresses: tuple[str, ...]
    dial: Dialler
    ask: AskCredentials | None
    on_delayed: Callable[[float], None]


async def _open(
    way: _Way,
    client_id: str,
    broker: EmbeddedBroker | None,
    archive: Archive | None,
    *,
    identify: bool,
    patient: bool,
) -> Connection:
    core = ClientCore(
        way.addresses,
        client_id=client_id,
        instance=token_hex(16),
        attempts=attempts_of_process(),
        random=SystemRandom(),  # for the jitter of delays; unlike `Random` it has no state to seed
        has_credentials=way.ask is not None,
    )
    driver = Driver(core, way.dial, way.ask, identifies=identify, patient=patient)
    driver.on_delayed = way.on_delayed
    driver.is_embedded = broker is not None
    if broker is not None:
        broker.watch(driver.end)
    await driver.start()
    if archive is not None:
        try:
            check_network(archive, core.network)
        except BaseException:
            await driver.close()
            raise
    return Connection(driver, broker, archive)


class Connection(RangeCalls, UserCalls):
    """A client of a network. Made by `connect`; leaving the block, or `close`, ends it."""

    def __init__(self, driver: Driver, broker: EmbeddedBroker | None, archive: Archive | None = None) -> None:
        """Use `connect`."""
        self._driver = driver
        self._broker = broker
        self._archive = archive
        self._keyed = KeyedPublishing(driver)
        self._sessions: list[Session] = []

    def __repr__(self) -> str:
        state = "closed" if self._driver.closed else "connected" if self.connected else "connecting"
        return f"<Connection of {self.client_id!r} to network {self.network!r}, {state}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
        else:
            await self._end()

    # What it is.

    @property
    def client_id(self) -> str:
        """The first half of the names of durable subscriptions."""
        return self._driver.core.client_id

    @property
    def network(self) -> str:
        """The id of its network."""
        return self._driver.core.network

    @property
    def connected(self) -> bool:
        """Whether there is a session with a broker now. If not, the connection tries to open one."""
        return self._driver.core.connected

    @property
    def has_unanswered(self) -> bool:
        """Whether something that was sent has no receipt, or failed without a caller that heard of it."""
        return any(session.has_unanswered for session in self._sessions)

    # What it does.

    def session(self, ack_mode: AckMode = AckMode.TOKEN) -> Session:
        """Makes a session, to be used as a block or not. `ack_mode`: who acknowledges; by default the application."""
        self._driver.check_open()
        session = Session(self._driver, ack_mode, self._forget, self._archive)
        self._sessions.append(session)
        return session

    async def subscriptions(self) -> Listing[SubscriptionInfo]:
        """Returns all durable subscriptions of the network: a list, whose `missing` names nodes that did not answer.

        Those that the rules do not let this client know of are left out, and counted in its `hidden`.
        """
        found = await self._driver.ask(self._driver.core.list_subscriptions)
        rows = (subscription_info(row, self.network) for row in found.rows)
        return Listing(rows, missing_answers(found.missing), found.hidden)

    async def pubends(self) -> Listing[PubendInfo]:
        """Returns all pubends of the network: a list, with `missing` and `hidden` as of `subscriptions`."""
        found = await self._driver.ask(self._driver.core.list_pubends)
        return Listing(map(pubend_info, found.rows), missing_answers(found.missing), found.hidden)

    async def status(self, node: str = "") -> BrokerStatus:
        """Returns the figures and the alarms of a node of the network; "" is the broker of this connection.

        Raises NoAnswerError if that node has not answered the broker, and ConfigurationError if there is no such node
        or the broker is too old to answer.
        """
        node = check_text(node, "the name of a node")
        found = await self._driver.ask(lambda now: self._driver.core.ask_status(node, now))
        return broker_status(found.rows)

    async def unsubscribe(self, name: str, client_id: str | None = None) -> None:
        """Removes a durable subscription for good, even if it has a consumer. `client_id` None: this connection's.

        Raises SubscriptionNotFoundError.
        """
        name = check_name(name, "the name of a subscription")
        owner = self.client_id if client_id is None else check_text(client_id, "the client id")
        await self._driver.ask(lambda now: self._driver.core.unsubscribe(name, owner, now))

    async def retire(self, shb: str, *, only_look: bool = False, running: bool = False) -> Retirement:
        """Gives up an SHB that will never come back, at all pubends of the network: no log waits for it any more.

        For administrators. `shb`: its id, or the name of its node alone. If it comes back all the same, its durable
        subscriptions get a gap. With `only_look` nothing is done; the answer shows what would be. It may be repeated,
        and has to be where the answer has `missing` nodes.
        Raises ConfigurationError if no such SHB is known, or several; if it runs, unless `running` is true; and always
        if it runs in the only node that counts it.
        """
        shb = check_name(shb, "the name of an SHB")
        core = self._driver.core
        answer = self._driver.ask(lambda now: core.retire(shb, now, only_look=only_look, running=running))
        return retirement(await answer)

    def drain(self) -> None:
        """Ends all iterations after the current event. It is a plain call, for use in signal handlers.

        Acknowledging and publishing still work.
        """
        for session in self._sessions:
            session.drain()

    async def close(self) -> None:
        """Closes the connection; waits for receipts as long as the broker is there and can log. Idempotent.

        Where a broker gives no sign of life, or one behind it, that takes at most 5 s. Raises PublishUncertainError, or
        a rejection, of a batch for which no caller waits any more; ConnectionClosedError if it is not known whether
        what a subscription was handed last is committed (AUTO).

        On another event loop it raises ConnectionClosedError, and does nothing, unless the connection's own loop has
        ended: then the connection had ended with it, and an embedded broker lets go of its volume. If there are events
        without a receipt, that is a PublishUncertainError.
        """
        errors: list[GaplessError] = []
        if not self._driver.closed:
            self._check_here()
        for session in list(self._sessions):
            errors += await session.close_subscriptions()
        for session in list(self._sessions):
            try:
                await session.close()
            except GaplessError as error:
                errors.append(error)
        await self._end()
        if errors:
            raise errors[0]

    async def _end(self) -> None:
        if not self._driver.closed:
            self._check_here()
        if self._driver.is_dropped:
            return
        for session in list(self._sessions):
            session.abandon()
        await self._driver.close()
        if self._broker is not None:
            await self._broker.stop()

    def _check_here(self) -> None:
        """Raises ConnectionClosedError on another event loop; if the connection's own has ended, it is over then."""
        try:
            self._driver.check_here()
        except ConnectionClosedError as error:
            if not self._driver.loop.is_closed():
                raise
            is_uncertain = self.has_unanswered
            self._driver.drop(str(error))
            if self._broker is not None:
                self._broker.let_go()
            if is_uncertain:
                raise PublishUncertainError(f"{error}; what was sent without a receipt is uncertain") from None
            raise

    def _forget(self, session: Session) -> None:
        if session in self._sessions:
            self._sessions.remove(session)


class Connecting(AwaitableContext[Connection]):
    """A connection to be awaited or entered. Made by `connect`."""

    delayed = 0.0
    """How many seconds brokers have said that they take to judge the credentials: whoever waits may wait longer."""

    def on_delayed(self, seconds: float) -> None:
        """A broker says that it takes so long."""
        self.delayed += seconds
