"""The transport plugins that ship with gapless, one module each."""
