"""`gapless acl`: what rules say, without a broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from unit.gapless.cli.conftest import Gapless

RULES = """\
[[allow]]
who = ["shop", "group:billing"]
actions = ["publish"]
topics = ["orders.#"]

[[allow]]
who = "group:billing"
actions = ["subscribe", "consume", "observe"]
topics = ["orders.#"]
names = ["billing.*"]

[[allow]]
who = "desk-*"
actions = ["manage"]

[[deny]]
who = "*"
actions = "subscribe"
topics = "orders.secret.#"

[[allow]]
who = "till"
actions = ["publish"]
topics = ["orders.#"]
publishers = ["till-*"]
"""


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "acl.toml"
    path.write_text(RULES, "utf-8")
    return path


@pytest.mark.parametrize(
    ("question", "allowed", "said"),
    [
        (["shop", "publish", "orders.eu"], True, "[[allow]] 1 (line 1) allows it"),
        (["bob,group:billing", "publish", "orders.eu"], True, "[[allow]] 1 (line 1)"),
        (["bob", "publish", "orders.eu"], False, "principal 'bob' may not publish to topic 'orders.eu': no [[allow]]"),
        (["bob,group:billing", "subscribe", "orders.eu.*"], True, "[[allow]] 2 (line 6)"),
        (["bob,group:billing", "subscribe", "orders.#"], False, "[[deny]] 1 (line 16) denies a part of that"),
        (["bob,group:billing", "consume", "billing.x", "--client-id", "bob-1"], True, "[[allow]] 2"),
        (["bob,group:billing", "consume", "billing.x"], False, "'billing.x' of client '': no [[allow]]"),
        (["bob,group:billing", "observe", "topic orders.eu"], True, "[[allow]] 2"),
        (["bob,group:billing", "observe", "subscriptions"], True, "[[allow]] 2"),
        (["bob,group:billing", "observe", "status"], False, "may not observe 'status'"),
        (["bob,group:x,group:billing", "observe", "billing.1", "--client-id", "any"], True, "[[allow]] 2"),
        (["desk-*", "manage", "users"], True, "[[allow]] 3"),
        (["desk-1", "manage", "shb s1"], False, "may not manage 'shb s1'"),
        (["till", "publish", "orders.eu"], True, "[[allow]] 4 (line 21)"),
        (["till", "publish", "orders.eu", "--publisher", "till-1"], True, "[[allow]] 4"),
        (["till", "publish", "orders.eu", "--publisher", "x"], False, "'till' may not publish as publisher 'x': no [["),
        (["till", "publish", "bills", "--publisher", "till-1"], False, "publish to topic 'bills': no [[allow]]"),
        (["shop", "publish", "orders.eu", "--publisher", "x"], True, "[[allow]] 1"),
    ],
)
def test_check_says_yes_or_no_and_which_rule_decides(
    gapless: Gapless, rules: Path, question: list[str], allowed: bool, said: str
) -> None:
    status = 0 if allowed else 1

    shown = gapless("acl", "check", *question, "--file", rules, status=status).stdout
    assert shown.startswith("yes: " if allowed else "no: ")
    assert said in shown
    answer = json.loads(gapless("acl", "check", *question, "--file", rules, "--json", status=status).stdout)
    assert (answer["allowed"], said in answer["text"]) == (allowed, True)
    assert (answer["rule"] is None) == ("no [[allow]]" in answer["text"])


@pytest.mark.parametrize(
    ("question", "said"),
    [
        (["shop", "pay", "orders"], "there is no action 'pay'"),
        (["shop", "publish", "orders.*"], "has a wildcard"),
        (["shop", "subscribe", "a..b"], "has an empty level"),
        (["shop,billing", "publish", "a"], "'shop,billing' is no principal: write NAME, or NAME,group:GROUP"),
        ([",group:x", "publish", "a"], "is no principal"),
        (
            ["shop", "manage", "everything"],
            "there is nothing called 'everything' to manage: there are users, 'shb NAME'",
        ),
        (["shop", "observe", "everything"], "there are subscriptions, pubends, status, 'topic PATTERN'"),
        (["shop", "observe", "topic a..b"], "has an empty level"),
        (["shop", "publish", "a", "--client-id", "x"], "a topic has no client id"),
        (["shop", "subscribe", "a", "--publisher", "x"], "nobody needs a publisher to subscribe"),
    ],
)
def test_a_question_that_makes_no_sense_is_not_answered(
    gapless: Gapless, rules: Path, question: list[str], said: str
) -> None:
    assert said in gapless("acl", "check", *question, "--file", rules, status=2).stderr


def test_the_rules_of_a_configuration_are_its_tables_or_those_of_its_file(
    gapless: Gapless, rules: Path, tmp_path: Path
) -> None:
    tables, file, none = (tmp_path / name for name in ("tables.toml", "file.toml", "none.toml"))
    tables.write_text(RULES, "utf-8")
    file.write_text('[acl]\nfile = "acl.toml"\n', "utf-8")
    none.write_text("[node]\n", "utf-8")

    for config, said in (
        (tables, f"{tables}: [[allow]] 1"),
        (file, f"{rules}: [[allow]] 1"),
        (none, "there are no rules"),
    ):
        assert said in gapless("acl", "check", "shop", "publish", "orders.eu", "--config", config).stdout
    assert gapless("acl", "show", "--config", none).stdout.startswith("there are no rules: everybody")
    assert "only one is meant" in gapless("acl", "show", "--config", none, "--file", rules, status=2).stderr


def test_show_has_each_rule_and_what_is_to_be_looked_at(gapless: Gapless, rules: Path, tmp_path: Path) -> None:
    config = tmp_path / "gapless.toml"
    config.write_text('auth = [{plugin = "scram"}]\n[acl]\nfile = "acl.toml"\n', "utf-8")

    shown = gapless("acl", "show", "--config", config).stdout
    rows = json.loads(gapless("acl", "show", "--config", config, "--json").stdout)

    assert "(line 16)" in shown
    assert f"look at {rules}: [[allow]] 3 (line 12): 'desk-*' is for nobody" in shown
    assert [row.get("kind") for row in rows] == ["allow", "allow", "allow", "allow", "deny", None, None]
    assert rows[1]["actions"] == ["subscribe", "consume", "observe"]
    assert rows[1]["names"] == ["billing.*"]
    assert "is for nobody" in rows[-2]["doubt"]
    assert f"these are the rules {rows[-1]['rules']}\n" in shown


def expectations(tmp_path: Path, *tables: str) -> Path:
    path = tmp_path / "expected.toml"
    path.write_text("".join(f"[[expect]]\n{table}\n" for table in tables), "utf-8")
    return path


GOOD = 'who = "shop"\naction = "publish"\nresource = "orders.eu"\nallowed = true'
NAMED = 'who = "till"\naction = "publish"\nresource = "orders.eu"\npublisher = "x"\nallowed = false'
NO = 'who = "bob,group:billing"\naction = "consume"\nresource = "x"\nclient_id = "bob"\nallowed = false'


def test_expectations_hold_or_are_named(gapless: Gapless, rules: Path, tmp_path: Path) -> None:
    good = expectations(tmp_path, GOOD, NO, NAMED)
    assert gapless("acl", "test", good, "--file", rules).stdout == "3 of 3 expectations hold\n"
    assert json.loads(gapless("acl", "test", good, "--file", rules, "--json").stdout) == {
        "expectations": 3,
        "failed": [],
    }

    bad = expectations(tmp_path, GOOD, GOOD.replace("true", "false"), NO.replace("false", "true"))
    first, second, last = gapless("acl", "test", bad, "--file", rules, status=1).stdout.splitlines()
    assert first.startswith(f"{bad}: [[expect]] 2: yes: {rules}: [[allow]] 1")
    assert second.startswith(f"{bad}: [[expect]] 3: no: principal 'bob' may not consume")
    assert last == "1 of 3 expectations hold"
    failed = json.loads(gapless("acl", "test", bad, "--file", rules, "--json", status=1).stdout)["failed"]
    assert [row["allowed"] for row in failed] == [True, False]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "there is no [[expect]] in it"),
        ("[[expect]]\n[other]", "there is no table 'other'"),
        ("expect = ['x']", "[[expect]] 1: it is no table"),
        (f"[[expect]]\n{GOOD}\nfoo = 1", "there is no key 'foo'"),
        (f"[[expect]]\n{GOOD.replace('who', 'whom')}", "there is no key 'whom' (did you mean 'who'?)"),
        ("[[expect]]\nwho = 'x'", "[[expect]] 1: action is missing"),
        (f"[[expect]]\n{GOOD.replace('true', '1')}", "allowed: 1 is not a bool"),
        (f"[[expect]]\n{GOOD.replace('publish', 'pay')}", "[[expect]] 1: there is no action 'pay'"),
        (f"[[expect]]\n{GOOD.replace('orders.eu', 'a..b')}", "has an empty level"),
    ],
)
def test_expectations_that_make_no_sense_are_not_understood(
    gapless: Gapless, rules: Path, tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "expected.toml"
    path.write_text(text, "utf-8")

    assert said in gapless("acl", "test", path, "--file", rules, status=2).stderr
