"""The storage plugins that ship with gapless, one module each."""
