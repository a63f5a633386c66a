"""`python -m gapless.cli`: the same as `gapless`."""

from gapless.cli import main

main()
