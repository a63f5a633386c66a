"""The command `gapless simulate`, which comes in by the entry points `gapless.cli`."""
