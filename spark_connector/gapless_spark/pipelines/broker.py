"""Connects pipelines to a broker: if it does not answer, they report that, and do not wait for ever."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import gapless
from gapless.client.credentials import CredentialSource
from gapless.errors import ConfigurationError, ConnectionClosedError, ConnectionRefusedByBrokerError

WAIT: Final = 10.0
"""How many seconds a broker may take for its first answer."""
GOODBYE: Final = 2.0
"""How many seconds a Goodbye may take."""


@contextmanager
def connected(
    url: str, client_id: str = "", wait: float = WAIT, credentials: CredentialSource | None = None
) -> Iterator[gapless.sync.Connection]:
    """A connection, for the length of a block. Raises ConnectionClosedError if no broker answers in time.

    `credentials`: as for `gapless.connect`.
    """
    if url.startswith("embedded:"):
        raise ConfigurationError(f"{url!r} is a broker inside one process: a pipeline needs one of its own")
    try:
        connection = gapless.sync.connect(url, client_id=client_id, credentials=credentials, timeout=wait)
    except ConnectionRefusedByBrokerError:
        raise
    except (ConnectionClosedError, TimeoutError) as error:
        reason = f"no answer for {wait:g} seconds" if isinstance(error, TimeoutError) else str(error)
        raise ConnectionClosedError(
            f"cannot connect to {url}: {reason}. `gapless broker` starts a broker; --url or GAPLESS_URL says"
            " where one is"
        ) from error
    try:
        yield connection
    finally:
        connection.close(GOODBYE)
