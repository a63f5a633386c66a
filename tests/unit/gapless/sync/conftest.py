"""The fake broker of the asyncio tests; it lives in the thread of whoever connects."""

from unit.gapless.client.conftest import network

__all__ = ["network"]
