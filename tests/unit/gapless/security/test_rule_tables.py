"""From tables to rules: what is wrong with one is named with its file, its number and its line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gapless import plugins
from gapless.core.ports import Action
from gapless.core.principals import Principal
from gapless.errors import ConfigurationError
from gapless.security import allow_all, rule_tables
from gapless.security.rule_tables import read_rules, rules_of

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
