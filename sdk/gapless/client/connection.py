"""A connection: one client of a network, through as many links as it takes."""

from __future__ import annotations

from random import Random
from secrets import token_hex
from types import TracebackType
from typing import TypeVar

from typing_extensions import Self

from gapless import plugins
from gapless.client.ack_modes import AckMode
from gapless.client.addresses import Remote, parse
from gapless.client.archives import Archive, check_archive, check_network
from gapless.client.awaitable import AwaitableContext
from gapless.client.driver import Dialler, Driver
from gapless.client.embedded import EmbeddedBroker
from gapless.client.keyed import KeyedPublishing
from gapless.client.listings import (
    BrokerStatus,
    PubendInfo,
    Retirement,
    SubscriptionInfo,
    broker_status,
    pubend_info,
    retirement,
    subscription_info,
)
from gapless.client.options import check_name
from gapless.client.ranges import RangeCalls
from gapless.client.session import Session
from gapless.core.client import ClientCore
from gapless.errors import GaplessError

ConnectionT = TypeVar("ConnectionT", bound="Connection")


def connect(
    address: str, *, client_id: str = "", wait: bool = False, archive: Archive | None = None
) -> AwaitableContext[Connection]:
    """A connection to a broker, to be awaited or entered.

    Args:
        address: `gapless://HOST:PORT`, several hosts separated by commas, of which one after the other is
            tried; `gapless+tls://…`, with `?ca=FILE&certificate=FILE&key=FILE&server_name=NAME` behind the hosts
            as far as needed; `gapless+NAME://ADDRESS`, through the transport plugin NAME, which is given no options;
            `embedded:PATH`, a broker in this process on the volume at PATH, shared by all connections of this event
            loop that name it (and by all of `gapless.sync`); `embedded:`, one in memory, this connection's own.
        client_id: The first half of the names of durable subscriptions.
        wait: Whether to go on trying when no broker answers at first. Once connected, a connection that is
            lost is always tried for again, and publishers and subscriptions go on by themselves.
        archive: Fills gaps: a subscription of this connection that meets one is handed the events that the archive
            has of it, in its place.

    Raises ConfigurationError here; when awaited or entered also ConnectionClosedError when no broker
    answers, ConnectionRefusedByBrokerError, StorageError for an embedded one, and ConfigurationError for an archive
    of another network.

    """
    target = parse(address)
    if client_id:
        check_name(client_id, "the client id")
    if archive is not None:
        check_archive(archive)

    async def begin() -> Connection:
        if isinstance(target, Remote):
            transport = plugins.load("transport", target.transport)(options=dict(target.options))
            return await _open(target.addresses, transport.dial, client_id, None, archive, patient=wait)
        broker = EmbeddedBroker(target.path)
        await broker.start()
        try:
            return await _open((address,), broker.dial, client_id, broker, archive, patient=wait)
        except BaseException:
            await broker.stop()
            raise

    return AwaitableContext(begin)


async def _open(
    addresses: tuple[str, ...],
    dial: Dialler,
    client_id: str,
    broker: EmbeddedBroker | None,
    archive: Archive | None,
    *,
    patient: bool,
) -> Connection:
    core = ClientCore(
        addresses,
        client_id=client_id,
        instance=token_hex(16),
        random=Random(),  # noqa: S311 - for the jitter of delays
    )
    driver = Driver(core, dial, patient=patient)
    await driver.start()
    if archive is not None:
        try:
            check_network(archive, core.network)
        except BaseException:
            await driver.close()
            raise
    return Connection(driver, broker, archive)


class Connection(RangeCalls):
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
        """The id of the network it belongs to."""
        return self._driver.core.network

    @property
    def connected(self) -> bool:
        """Whether there is a session with a broker just now; if not, one is being tried for."""
        return self._driver.core.connected

    # What it does.

    def session(self, ack_mode: AckMode = AckMode.TOKEN) -> Session:
        """A session, as a block or not. `ack_mode` is who acknowledges, and when: the application by default."""
        self._driver.check_open()
        session = Session(self._driver, ack_mode, self._forget, self._archive)
        self._sessions.append(session)
        return session

    async def subscriptions(self) -> list[SubscriptionInfo]:
        """All durable subscriptions that the broker hosts."""
        rows = await self._driver.ask(self._driver.core.list_subscriptions)
        return [subscription_info(row, self.network) for row in rows]

    async def pubends(self) -> list[PubendInfo]:
        """All pubends that the broker knows."""
        return [pubend_info(row) for row in await self._driver.ask(self._driver.core.list_pubends)]

    async def status(self) -> BrokerStatus:
        """The figures and the alarms of the broker.

        Raises ConfigurationError when the broker is older than this question.
        """
        return broker_status(await self._driver.ask(self._driver.core.ask_status))

    async def unsubscribe(self, name: str, client_id: str | None = None) -> None:
        """Removes a durable subscription for good, whoever consumes it; `client_id` None is this connection's.

        Raises SubscriptionNotFoundError.
        """
        check_name(name, "the name of a subscription")
        owner = self.client_id if client_id is None else client_id
        await self._driver.ask(lambda now: self._driver.core.unsubscribe(name, owner, now))

    async def retire(self, shb: str, *, only_look: bool = False) -> Retirement:
        """Gives up an SHB that will never come back, at all pubends of this broker: no log waits for it any more.

        For administrators. `shb`: its id, or the name of its node alone. Should it return all the same, its durable
        subscriptions are told of a gap. With `only_look` nothing is done but to say what would be. May be repeated.
        Raises ConfigurationError where no such SHB is known, or several, or when it is the one of this very node.
        """
        check_name(shb, "the name of an SHB")
        return retirement(await self._driver.ask(lambda now: self._driver.core.retire(shb, now, only_look=only_look)))

    def drain(self) -> None:
        """Ends all iterations behind what is in hand: a plain call, fit for signal handlers.

        Acknowledging and publishing work on.
        """
        for session in self._sessions:
            session.drain()

    async def close(self) -> None:
        """Ends well: waits for receipts as long as the broker can be reached and logs. Idempotent.

        Raises PublishUncertainError, or a rejection, of a batch for which nobody waits any more.
        """
        errors: list[GaplessError] = []
        for session in list(self._sessions):
            try:
                await session.close()
            except GaplessError as error:
                errors.append(error)
        await self._end()
        if errors:
            raise errors[0]

    async def _end(self) -> None:
        for session in list(self._sessions):
            session.abandon()
        await self._driver.close()
        if self._broker is not None:
            await self._broker.stop()

    def _forget(self, session: Session) -> None:
        if session in self._sessions:
            self._sessions.remove(session)
