"""From tables to rules: what is wrong with one is named with its file, its number and its line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from gapless import plugins
from gapless.core.ports import Action
from gapless.core.principals import Principal
from gapless.errors import ConfigurationError
from gapless.security import allow_all, rule_tables
from gapless.security.rule_tables import read_rules, rules_of
from gapless.security.rules import Rules
from gapless.settings import read_toml
from gapless.spi import HasSuccessor

GOOD = {"who": "shop", "actions": "publish", "topics": "orders.#"}


def problem(kind: str = "allow", **table: object) -> str:
    """What is said of a table like the good one."""
    with pytest.raises(ConfigurationError) as caught:
        rules_of({kind: [{key: value for key, value in {**GOOD, **table}.items() if value is not None}]}, "r.toml", {})
    return str(caught.value)


def test_one_text_stands_for_a_list_of_it() -> None:
    [rule] = rules_of({"allow": [GOOD]}, "r.toml", {}).rules

    assert (rule.who, rule.actions, rule.topics) == (("shop",), (Action.PUBLISH,), ("orders.#",))
    assert (rule.names, rule.client_ids, rule.denies, rule.place) == ((), (), False, "r.toml: [[allow]] 1")


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"who": None}, "who is missing"),
        ({"actions": None}, "actions is missing"),
        ({"who": []}, "who: the list is empty"),
        ({"who": ""}, 'who: an empty name; "*" is everybody'),
        ({"who": "group:"}, "who: 'group:' names no group"),
        ({"who": 7}, "who: it is a list of texts, not 7"),
        ({"who": ["shop", 7]}, "who: it is a list of texts"),
        ({"actions": ["publsh"]}, "there is no action 'publsh' (did you mean 'publish'?); there are publish,"),
        ({"topics": None}, 'topics is missing, which publish needs; "#" is all of them'),
        ({"topics": []}, "topics: the list is empty"),
        ({"topics": ""}, "topics: a topic cannot be empty"),
        ({"topics": "a..b"}, "topics: 'a..b' has an empty level"),
        ({"topics": "a.#.b"}, "topics: 'a.#.b': `*` must be"),
        ({"topics": "a\x07"}, "topics: a topic holds the control character"),
        ({"topic": "a"}, "there is no key 'topic' (did you mean 'topics'?)"),
        ({"names": ["x"]}, "names narrows none of these actions"),
        ({"actions": "subscribe", "publishers": "x"}, "publishers narrows none of these actions, but publish"),
        ({"publishers": ""}, "publishers: the pattern '' is empty"),
        ({"publishers": "x", "topics": None}, "topics is missing, which publish needs"),
        ({"actions": "consume", "topics": None, "names": ""}, "names: the pattern '' is empty"),
        ({"actions": "consume", "topics": None, "names": "x" * 256}, "is longer than 255 bytes"),
        ({"actions": "consume", "topics": None, "client_ids": "a\nb"}, "client_ids: the pattern"),
        ({"actions": "consume"}, "topics narrows none of these actions"),
        ({"actions": ["publish", "manage"]}, "topics does not narrow manage: give that a table of its own"),
    ],
)
def test_what_is_wrong_is_said(table: dict[str, Any], said: str) -> None:
    found = problem(**table)

    assert found.startswith("r.toml: [[allow]] 1: ")
    assert said in found


def test_a_deny_that_would_take_more_than_it_seems_is_refused() -> None:
    assert "topics does not narrow consume" in problem("deny", actions=["subscribe", "consume"])
    rules_of({"deny": [{**GOOD, "actions": ["subscribe", "consume"], "names": "x"}]}, "r.toml", {})
    assert "publishers denies names, whatever is published" in problem("deny", publishers="x")
    more = {"publishers": "x", "topics": None, "actions": ["publish", "observe"]}
    assert "publishers denies names, whatever is published" in problem("deny", **more)
    [rule] = rules_of({"deny": [{"who": "a", "actions": "publish", "publishers": "x"}]}, "r.toml", {}).rules
    assert (rule.topics, rule.publishers) == ((), ("x",))


def test_everything_that_is_wrong_is_said_at_once_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "acl.toml"
    path.write_text(
        '# who may what\n[[allow]]\nwho = "shop"\nactions = ["publish"]\ntopics = ["#"]\n\n'
        '  [[ allow ]]\nwho = "shop"\nactions = ["pay"]\n[[deny]]\nactions = ["publish"]\ntopics = ["#"]\n',
        "utf-8",
    )

    with pytest.raises(ConfigurationError) as caught:
        read_rules(path)

    allow, deny = str(caught.value).splitlines()
    assert allow.startswith(f"{path}: [[allow]] 2 (line 7): actions: there is no action 'pay'")
    assert deny == f"{path}: [[deny]] 1 (line 10): who is missing"


def test_a_line_that_is_not_known_is_not_said() -> None:
    [rule] = rules_of({"allow": [GOOD]}, "r.toml", {"allow": [3, 9]}).rules

    assert rule.place == "r.toml: [[allow]] 1"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "there is no rule in it, and so nothing would be allowed"),
        ("allow = []", "there is no rule in it"),
        ("[allow]\nwho = 'x'", "allow: write it as [[allow]]"),
        ("allow = ['x']", "[[allow]] 1: it is no table: 'x'"),
        ("[[alow]]\nwho = 'x'", "there is no table 'alow' in a file of rules (did you mean 'allow'?)"),
        ("[[allow]\n", "is not TOML"),
    ],
)
def test_a_file_that_holds_something_else_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "acl.toml"
    path.write_text(text, "utf-8")

    with pytest.raises(ConfigurationError) as caught:
        read_rules(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert said in str(caught.value)


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        read_rules(tmp_path / "acl.toml")


def test_what_is_no_mistake_for_sure_is_a_warning() -> None:
    rules = rules_of({"allow": [{**GOOD, "topics": ["orders/+"]}, {**GOOD, "who": ["*", "shop"]}]}, "r.toml", {})

    assert [each.partition(": ")[2][:18] for each in rules.warnings] == ["[[allow]] 1: topic", "[[allow]] 2: who: "]
    assert "'orders.*'" in rules.warnings[0]


def test_hook_open_acl_makes_rules_and_allow_all(tmp_path: Path) -> None:
    path = tmp_path / "acl.toml"
    path.write_text("[[allow]]\nwho = '*'\nactions = 'publish'\ntopics = '#'\n", "utf-8")
    shop = Principal("shop")

    for options in ({"file": str(path)}, {"allow": [{**GOOD, "topics": "#"}], "source": ""}):
        made = rule_tables.open_acl(options)
        assert made.asks
        assert made.refusal(shop, Action.PUBLISH, "a") == ""
        assert made.refusal(shop, Action.SUBSCRIBE, "a") != ""
    assert not allow_all.open_acl({}).asks
    assert plugins.KINDS["acl"] == "open_acl"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"file": "x", "allow": [GOOD]}, "file: there are rules in x, and [[allow]] here as well"),
        ({"file": "x", "deny": [GOOD]}, "and [[deny]] here as well"),
        ({"file": 7}, "file: it is the path of a file of rules, not 7"),
        ({"file": ""}, "file: it is the path"),
        ({"fiel": "x"}, "has no option 'fiel' (did you mean 'file'?)"),
        ({}, "configuration: there is no rule in it"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        rule_tables.open_acl(options)
    assert said in str(caught.value)


def test_allow_all_has_no_options() -> None:
    with pytest.raises(ConfigurationError, match="no option 'file'"):
        allow_all.open_acl({"file": "x"})


ALLOW = '[[allow]]\nwho = "{}"\nactions = "publish"\ntopics = "#"\n'
NODE = '[node]\nname = "n1"\n'


class Watched:
    """Rules in a file, the one that counts, and a node that looks whether they have changed."""

    def __init__(self, path: Path, text: str, **options: object) -> None:
        self.path = path
        self.writes = 0
        self.write(text)
        made = rule_tables.open_acl(options or {"file": str(path)})
        assert isinstance(made, Rules)
        self.rules: Rules = made

    def write(self, text: str) -> None:
        """The file is another one now, at a time of its own: clocks of disks are coarse."""
        self.path.write_text(text, "utf-8")
        self.writes += 1
        os.utime(self.path, ns=(10**18 + self.writes, 10**18 + self.writes))

    def look(self) -> Rules | None:
        """What follows now."""
        assert isinstance(self.rules, HasSuccessor)
        found = self.rules.successor()
        assert found is None or isinstance(found, Rules)
        return found

    def fault(self) -> str:
        """What is said at a look."""
        with pytest.raises(ConfigurationError) as caught:
            self.look()
        return str(caught.value)


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path / "acl.toml", ALLOW.format("shop"))


def who(rules: Rules | None) -> list[str]:
    """For whom the rules are."""
    return [] if rules is None else [name for rule in rules.rules for name in rule.who]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Which files of rules were read."""
    found: list[Path] = []

    def read(path: Path) -> dict[str, Any]:
        found.append(path)
        return read_toml(path)

    monkeypatch.setattr(rule_tables, "read_toml", read)
    return found


def test_rules_that_have_not_changed_have_no_successor_and_are_not_read_again(
    watched: Watched, reads: list[Path]
) -> None:
    assert [watched.look() for _ in range(3)] == [None] * 3
    assert reads == []


def test_other_rules_follow_at_the_second_look_that_finds_the_file_unchanged(watched: Watched) -> None:
    """Whoever writes it may be in the middle of it, and what is there already may be rules, too: too few."""
    whole = ALLOW.format("shop") + ALLOW.format("desk")
    for end in (len(whole) - 60, len(whole) - 50, len(whole)):
        watched.write(whole[:end])
        assert watched.look() is None, "it has just changed"

    newer = watched.look()

    assert who(newer) == ["shop", "desk"]
    assert who(watched.rules) == ["shop"], "rules themselves never change"
    assert who(watched.look()) == ["shop", "desk"], "as long as these are asked"
    assert newer is not None
    watched.rules = newer
    assert watched.look() is None


@pytest.mark.parametrize("changed", ["time", "size", "file"])
def test_a_change_is_seen_by_the_time_the_size_or_by_another_file(watched: Watched, changed: str) -> None:
    before = watched.path.stat()
    text = ALLOW.format("desks" if changed == "size" else "desk")
    if changed == "file":
        watched.path.rename(watched.path.with_suffix(".old"))
    watched.path.write_text(text, "utf-8")
    if changed == "time":
        os.utime(watched.path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    else:
        os.utime(watched.path, ns=(before.st_atime_ns, before.st_mtime_ns))

    assert watched.look() is None
    assert who(watched.look()) == ["desks" if changed == "size" else "desk"]


def test_a_fault_is_said_at_every_look_until_it_is_corrected_and_is_read_once(
    watched: Watched, reads: list[Path]
) -> None:
    watched.write("# more\n" + ALLOW.format("shop") + ALLOW.format("desk").replace("publish", "pay"))
    assert watched.look() is None

    said = {watched.fault() for _ in range(3)}

    assert {text.partition("'pay'")[0] for text in said} == {
        f"{watched.path}: [[allow]] 2 (line 6): actions: there is no action "
    }
    assert reads == [watched.path]
    watched.write(ALLOW.format("desk").replace("publish", "sell"))
    assert "'pay'" in watched.fault(), "what is there now may be half of it"
    assert "[[allow]] 1 (line 1): actions: there is no action 'sell'" in watched.fault()
    assert reads == [watched.path] * 2
    watched.write(ALLOW.format("desk"))
    assert "'sell'" in watched.fault()
    assert who(watched.look()) == ["desk"]


def test_a_fault_is_over_when_the_file_is_again_the_one_whose_rules_count(watched: Watched, tmp_path: Path) -> None:
    kept = watched.path.rename(tmp_path / "kept")
    watched.write("[[allow]")
    assert watched.look() is None
    assert "is not TOML" in watched.fault()

    kept.rename(watched.path)

    assert [watched.look() for _ in range(3)] == [None] * 3


def test_a_fault_that_comes_again_is_read_again(watched: Watched, reads: list[Path], tmp_path: Path) -> None:
    """It may be another one: what was found before the file was right again counts for nothing."""
    kept = watched.path.rename(tmp_path / "kept")
    watched.write("[[allow]")
    assert watched.look() is None
    assert "is not TOML" in watched.fault()
    broken = watched.path.rename(tmp_path / "broken")
    kept.rename(watched.path)
    assert watched.look() is None
    broken.rename(watched.path)

    assert watched.look() is None
    assert "is not TOML" in watched.fault()
    assert len(reads) == 2


def test_rules_stay_when_their_file_is_removed_and_nothing_has_changed_when_it_is_back(
    watched: Watched, tmp_path: Path
) -> None:
    kept = watched.path.rename(tmp_path / "kept")
    assert watched.look() is None, "whoever replaces it may have removed it first"
    assert [watched.fault() for _ in range(2)] == [f"{watched.path}: cannot be read: No such file or directory"] * 2

    kept.rename(watched.path)

    assert watched.look() is None


def test_a_file_without_any_rule_keeps_those_that_there_were(watched: Watched) -> None:
    """Nothing would be allowed to anybody, and an empty file is mostly one that is being written."""
    watched.write("")
    assert watched.look() is None

    assert watched.fault().startswith(f"{watched.path}: there is no rule in it")
    assert watched.rules.refusal(Principal("shop"), Action.PUBLISH, "a") == ""


def test_what_says_the_same_is_no_change_and_is_read_once(watched: Watched, reads: list[Path]) -> None:
    watched.write(ALLOW.format("shop") + "# the shop sells\n")

    assert [watched.look() for _ in range(4)] == [None] * 4
    assert reads == [watched.path]
    watched.write(ALLOW.format("shop"))
    assert [watched.look() for _ in range(4)] == [None] * 4
    assert reads == [watched.path] * 2


def in_configuration(tmp_path: Path, text: str, *given: str) -> Watched:
    """Rules in the configuration of a node; `given`: for whom they are as the node gives them."""
    tables = [{"who": name, "actions": "publish", "topics": "#"} for name in given]
    path = tmp_path / "node.toml"
    return Watched(path, text, allow=tables, source=str(path))


def test_rules_in_a_configuration_are_watched_and_its_other_tables_are_not(tmp_path: Path) -> None:
    watched = in_configuration(tmp_path, NODE + ALLOW.format("shop"), "shop")
    assert watched.rules.warnings == ()

    watched.write(NODE.replace("n1", "n2") + ALLOW.format("shop") + "[limits]\nevents = 7\n")
    assert [watched.look() for _ in range(3)] == [None] * 3
    watched.write(NODE + ALLOW.format("desk"))
    assert watched.look() is None
    newer = watched.look()

    assert who(newer) == ["desk"]
    assert newer is not None
    assert newer.rules[0].place == f"{watched.path}: [[allow]] 1 (line 3)"


def test_rules_that_do_not_stand_where_they_are_said_to_are_not_watched_and_doubted(tmp_path: Path) -> None:
    """Variables of the environment say others: whoever changes the file would wonder which ones count."""
    watched = in_configuration(tmp_path, NODE + ALLOW.format("shop"), "desk")

    assert who(watched.rules) == ["desk"]
    assert not isinstance(watched.rules, HasSuccessor)
    [doubt] = watched.rules.warnings
    assert doubt.startswith(f"{watched.path}: other rules count than stand there")
    assert doubt.endswith("what changes there counts after a restart")


@pytest.mark.parametrize("text", [NODE, "[[allow]"], ids=["none stand there", "it cannot be read"])
def test_nor_are_rules_that_stand_nowhere(tmp_path: Path, text: str) -> None:
    rules = in_configuration(tmp_path, text, "shop").rules

    assert not isinstance(rules, HasSuccessor)
    assert len(rules.warnings) == 1


def test_rules_of_no_file_are_not_watched_and_nothing_is_said_of_that(tmp_path: Path) -> None:
    for source in ("", str(tmp_path / "nowhere.toml")):
        made = rule_tables.open_acl({"allow": [GOOD], "source": source})

        assert isinstance(made, Rules)
        assert not isinstance(made, HasSuccessor)
        assert made.warnings == ()


def test_the_doubts_about_what_follows_are_its_own(watched: Watched) -> None:
    watched.write(ALLOW.format("shop").replace("#", "orders/+"))
    watched.look()
    newer = watched.look()

    assert newer is not None
    assert (len(watched.rules.warnings), len(newer.warnings)) == (0, 1)
