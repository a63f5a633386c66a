"""`python -m gapless`: the same as `gapless`."""

from gapless.cli import main

main()
