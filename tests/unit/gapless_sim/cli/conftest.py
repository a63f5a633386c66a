"""The command line, as its own tests run it."""

from __future__ import annotations

from unit.gapless.cli.conftest import gapless

__all__ = ["gapless"]
