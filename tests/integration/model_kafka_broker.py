"""`gapless`, with the plugin of production for Kafka, that is connected to a `model_kafka` in another process.

It is the same program as `python -m gapless.cli`, but for what opens a connection to a broker of Kafka's.
"""

from __future__ import annotations

import asyncio
import os
import pickle
from typing import Any

from gapless.cli import main
from gapless_log.kafka import plugin
from gapless_log.kafka.messages import Request
from gapless_log.kafka.requests import Access, Connection
from integration.model_kafka import LENGTH, PORT


class ModelConnection(Connection):
    """A connection that answers in order, as one to Kafka."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: str) -> None:
        super().__init__(None, address)
        self._reader, self._writer = reader, writer
        self._order = asyncio.Lock()

    @property
    def is_open(self) -> bool:
        """Whether it can be used."""
        return not self._writer.is_closing()

    async def close(self) -> None:
        """Ends it."""
        self._writer.close()

    async def ask(self, request: Request[Any]) -> Any:
        """Sends a request; returns its answer."""
        # Whoever is cancelled does no harm: the answer is taken all the same, before the next request.
        answer = asyncio.ensure_future(self._ask(request))
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(answer)

    async def _ask(self, request: Request[Any]) -> Any:
        async with self._order:
            try:
                sent = pickle.dumps(request)
                self._writer.write(LENGTH.pack(len(sent)) + sent)
                (length,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
                return pickle.loads(await self._reader.readexactly(length))
            except (OSError, asyncio.IncompleteReadError) as error:
                self._writer.close()
                raise ConnectionError(f"the connection to {self.address} broke: {error}") from error


async def connect(address: str, access: Access) -> Connection:
    """Connects to the model, whatever the address."""
    assert access.tls is None
    return ModelConnection(*await asyncio.open_connection("127.0.0.1", int(os.environ[PORT])), address)


if __name__ == "__main__":
    vars(plugin)["connect"] = connect
    main()
