"""The plugin of docs/howto/write-a-storage-plugin.md, and the test that page ends with."""

from __future__ import annotations

import pytest

from documents import ROOT, saved_module

PAGE = ROOT / "docs" / "howto" / "write-a-storage-plugin.md"

pytestmark = pytest.mark.timeout(300)


class TestThePage(saved_module(PAGE, "test_slow_storage").TestSlowStorage):  # type: ignore[misc]
    """All of the suite."""
