"""The demo is a command: it is run as all of them are."""

from unit.gapless.cli.conftest import gapless

__all__ = ["gapless"]
