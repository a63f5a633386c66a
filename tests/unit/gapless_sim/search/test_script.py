"""Scenarios in a few words."""

from __future__ import annotations

import pytest

from gapless.core.gauges import values_by
from gapless_phb.core.gauges import NEWEST
from gapless_sim.search.script import Script, ScriptError, replay


def play(*commands: str) -> list[str]:
    """What the last of these commands shows."""
    script = Script()
    shown: list[str] = []
    for command in commands:
        shown = script.do(command)
    return shown


def test_a_script_comes_out_the_same_every_time() -> None:
    commands = ("start", "subscribe late where k > 1", "publish k=1, k=2", "crash shb1", "boot shb1", "run 1 s")

    assert play(*commands) == play(*commands) != []


def test_what_waits_is_not_shown() -> None:
    assert play("start", "wait 5 s") == []
    assert play("start", "run 5 s") != []


def test_kinds_are_shown_and_hidden() -> None:
    assert any("alive" in line for line in play("start", "show alive", "run 60 s"))
    assert not any("alive" in line for line in play("start", "show alive", "hide alive", "run 60 s"))


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("dance", "no command 'dance', but start"),
        ("publish k=x", "an event is like"),
        ("publish k=1 of much", "a size is like"),
        ("run 3", "a time is like"),
        ("slow phb1 shb1", "a slow link is like"),
        ("slow phb1 publisher 5 kB/s", "no link between"),
        ("cut phb1", "two of publisher"),
        ("cut phb1 nowhere", "two of publisher"),
        ("crash nobody", "no broker"),
        ("start nobody", "no client"),
        ("subscribe", "no subscription"),
        ("token late", "no subscription"),
        ("retain 1 s", "before `start`"),
        ("network phb1:phb shb1:shb<phb1", "before `start`"),
        ("tree phb1:phb shb1:shb<phb1", "before `start`"),
    ],
)
def test_what_makes_no_sense_is_refused(command: str, says: str) -> None:
    with pytest.raises(ScriptError, match=says):
        play("start", command)


@pytest.mark.parametrize(
    ("network", "says"),
    [("phb1:phb shb1:shb<ib1", "hangs on ib1"), ("phb1:phb shb2:shb<phb1", "needs both"), ("", "needs both")],
)
def test_a_network_needs_a_tree_with_both_ends(network: str, says: str) -> None:
    with pytest.raises(ScriptError, match=says):
        play(f"network {network}")


def test_a_tree_has_single_brokers_only() -> None:
    with pytest.raises(ScriptError, match="the cell ib1 has several nodes, and all are to be single"):
        play("tree phb1:phb ib1+ib2<phb1 shb1:shb<ib1")


def test_first_comes_the_start() -> None:
    with pytest.raises(ScriptError, match="start"):
        play("run 1 s")
    with pytest.raises(ScriptError, match="not open"):
        play("publish k=1")


PAGE = """# A page

```transcript
> start
> subscribe late
old output
```

Text, and then

```transcript
> publish k=1
```

```python
> not one
```
"""


def test_the_blocks_of_a_page_are_one_script() -> None:
    played = replay(PAGE)

    assert "old output" not in played
    assert "late takes #1 of flights" in played
    assert "> not one" in played
    assert played.count("seconds  publisher") == 2
    assert replay(played) == played


def test_what_is_published_in_a_group_at_one_moment_has_one_tick() -> None:
    """Otherwise the page about a tie would show none."""
    script = Script()
    for command in ("group", "start", "subscribe book", "publish k=1, k=2", "run 1 s"):
        script.do(command)

    newest = [values_by(script.world.brokers[name].gauges(), NEWEST, "pubend") for name in ("phb1", "phb2")]
    (first,), (second,) = (each.values() for each in newest)
    assert first == second > 0
