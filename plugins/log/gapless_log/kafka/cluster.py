"""The connections to the brokers of one Kafka cluster: found, opened, shared, and opened anew."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from gapless_log.kafka.messages import Metadata
from gapless_log.kafka.requests import Connection, UnfitKafkaError

CONNECTION_ERRORS = (ConnectionError, TimeoutError)
"""What a broker that does not answer makes of a request."""


class Cluster:
    """Brokers by their ids, each with one connection for each use.

    A fetch that waits has everything behind it on its connection wait, too: so what follows logs has its own.
    """

    def __init__(self, servers: Sequence[str], connect: Callable[[str], Awaitable[Connection]]) -> None:
        """`servers`: some of the brokers. `connect` opens a connection to an address."""
        self._servers = tuple(servers)
        self._connect = connect
        self._addresses: dict[int, str] = {}
        self._connections: dict[tuple[str, str], Connection] = {}
        self._locks: dict[tuple[str, str], asyncio.Lock] = {}

    @property
    def brokers(self) -> Sequence[int]:
        """The brokers of which the last metadata told."""
        return sorted(self._addresses)

    async def connection(self, broker: int, use: str) -> Connection:
        """Returns a connection to a broker. Raises ConnectionError or TimeoutError."""
        address = self._addresses.get(broker)
        if address is None:
            raise ConnectionError(f"Kafka has no broker {broker} at the moment")
        return await self._connected(address, use)

    async def metadata(self, names: Sequence[str] = (), ids: Sequence[bytes] = ()) -> Metadata:
        """Asks any broker that answers for these topics.

        Raises ConnectionError if none does, and UnfitKafkaError if none will that is there now.
        """
        faults: list[str] = []
        failed: type[ConnectionError] = UnfitKafkaError
        for address in dict.fromkeys((*self._addresses.values(), *self._servers)):
            try:
                metadata = await (await self._connected(address, "ask")).metadata(names, ids)
            except CONNECTION_ERRORS as error:
                faults.append(str(error) or type(error).__name__)
                if not isinstance(error, UnfitKafkaError):
                    failed = ConnectionError
                continue
            self._addresses = {broker.id: broker.address for broker in metadata.brokers}
            return metadata
        raise failed("; ".join(faults))

    async def close(self) -> None:
        """Closes all connections."""
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            with suppress(Exception):
                await connection.close()

    async def _connected(self, address: str, use: str) -> Connection:
        key = (address, use)
        async with self._locks.setdefault(key, asyncio.Lock()):
            found = self._connections.get(key)
            if found is not None and found.is_open:
                return found
            if found is not None:
                await found.close()  # the broker has closed its end only, so far
            found = self._connections[key] = await self._connect(address)
            return found
