"""The transport `ws`: gapless over WebSockets, so that a broker can stand behind what only lets HTTP through.

See the README for how it keeps the contract of `gapless.spi.Link`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from gapless.errors import ConfigurationError
from gapless.plugins import hookimpl
from gapless.spi import Transport
from gapless_websocket_transport.options import WebSocketOptions
from gapless_websocket_transport.transport import WebSocketTransport


@hookimpl
def open_transport(options: Mapping[str, Any]) -> Transport:
    """The transport with these options; raises ConfigurationError naming one that is unknown or wrong."""
    try:
        return WebSocketTransport(WebSocketOptions.model_validate(dict(options)))
    except ValidationError as error:
        problems = [f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors()]
        raise ConfigurationError(f"transport 'ws': {'; '.join(problems)}") from error
