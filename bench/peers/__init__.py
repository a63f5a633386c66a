"""The race: gapless and its peers do the same work on the same machine, in one run.

    python -m bench peers [--systems gapless,nats,…] [--work a,b,…] [--quick] [--plot FILE] [--json]

`system.py` says what a system is, `systems/` holds them, `work.py` what is published and how it is
checked, `works.py` what is measured, `race.py` who runs when. See docs/howto/run-the-race.md.
"""
