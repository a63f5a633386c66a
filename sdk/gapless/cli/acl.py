"""`gapless acl`: who may do what, by the rules of a node's configuration or of a file; and which rules nodes have.

The exit status of `check` is 0 for yes and 1 for no; of `test` 0 if everything is as expected, and 1 if not; of `nodes`
0 if the rules hold at each node that was asked, and 1 if not.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from gapless.cli.connecting import connected, credentials_of, run, statuses, within
from gapless.cli.options import DEFAULT_URL, DEFAULT_WAIT, AsJson, Url, User, Wait
from gapless.cli.output import one_line, print_json, print_listing
from gapless.errors import ConfigurationError, GaplessError

if TYPE_CHECKING:
    from gapless import BrokerStatus
    from gapless.client.credentials import CredentialSource
    from gapless.core.ports import Action, Authorizer
    from gapless.core.principals import Principal
    from gapless.core.resources import Resource
    from gapless.security.rules import Rule

    Questions: TypeAlias = Sequence[tuple[Action, Resource]]

ConfigFile: TypeAlias = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="A node's configuration, with its rules.")
]
RulesFile: TypeAlias = Annotated[
    Path | None, typer.Option("--file", metavar="FILE", help="A file of rules, as `[acl] file` names one.")
]
COLUMNS = {
    "rule": "RULE",
    "who": "WHO",
    "actions": "ACTIONS",
    "topics": "TOPICS",
    "names": "NAMES",
    "client_ids": "CLIENT IDS",
    "publishers": "PUBLISHERS",
}
NO_RULES = "there are no rules: everybody who is let in may do everything"
EXPECTATION = ("who", "action", "resource", "client_id", "publisher", "allowed")

app = typer.Typer(
    help="Who may do what, by the rules of a node's configuration (--config) or of a file (--file).\n\nNo broker is"
    " asked but by `nodes`, which says which rules count at the nodes of a network, and whether they hold.",
    no_args_is_help=True,
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to a question."""

    allowed: bool
    text: str
    """Which rule decides, and why."""
    rule: str
    """Where that one stands; "" if there is none."""


@app.command("check")
def check(
    principal: Annotated[
        str, typer.Argument(metavar="PRINCIPAL[,group:GROUP…]", help="Who asks; `anonymous` is who has not said.")
    ],
    action: Annotated[str, typer.Argument(metavar="ACTION", help="publish, subscribe, consume, manage or observe.")],
    resource: Annotated[
        str,
        typer.Argument(
            metavar="RESOURCE",
            help="A topic or pattern; the name of a durable subscription, with --client-id; users, 'shb NAME',"
            " subscriptions, pubends, status, or 'topic PATTERN' of a pubend.",
        ),
    ],
    *,
    client_id: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Whose durable subscription is meant; left out, to consume one: no client id."),
    ] = None,
    publisher: Annotated[
        str | None, typer.Option(metavar="NAME", help="To publish: under which name. Left out: without a name.")
    ] = None,
    config: ConfigFile = None,
    file: RulesFile = None,
    as_json: AsJson = False,
) -> None:
    """Say whether somebody may do something, and which rule decides."""
    authorizer = _authorizer(config, file)
    verdict = _verdict(authorizer, _principal(principal), _questions(action, resource, client_id, publisher))
    if as_json:
        print_json({"allowed": verdict.allowed, "rule": verdict.rule or None, "text": verdict.text})
    else:
        print(f"{'yes' if verdict.allowed else 'no'}: {one_line(verdict.text)}")
    if not verdict.allowed:
        raise typer.Exit(1)


@app.command("show")
def show(*, config: ConfigFile = None, file: RulesFile = None, as_json: AsJson = False) -> None:
    """Show the rules, in the order in which they are read, and what is to be looked at in them."""
    from gapless.security.rules import Rules

    authorizer = _authorizer(config, file)
    if authorizer.asks and not isinstance(authorizer, Rules):
        raise ConfigurationError("another plugin decides who may do what, and there are no rules to be shown")
    rules = authorizer.rules if isinstance(authorizer, Rules) else ()
    doubts = _doubts(authorizer, config, file)
    rows = [_row(rule) for rule in rules]
    if as_json:
        name = [{"rules": _name_of(authorizer)}] if rules else []
        print_json([*rows, *({"doubt": doubt} for doubt in doubts), *name])
    else:
        print_listing(rows, COLUMNS, as_json=False, empty=NO_RULES)
        for doubt in doubts:
            print(f"look at {one_line(doubt)}")
        if rules:
            print(f"these are the rules {_name_of(authorizer)}")


@app.command("test")
def compare(
    expectations: Annotated[
        Path, typer.Argument(metavar="FILE", help=f"TOML: [[expect]] with {', '.join(EXPECTATION)}.")
    ],
    *,
    config: ConfigFile = None,
    file: RulesFile = None,
    as_json: AsJson = False,
) -> None:
    """Check a table of expectations, as a repository of rules keeps one; say what is otherwise."""
    authorizer = _authorizer(config, file)
    rows = []
    for place, table in _expectations(expectations):
        who, questions, allowed = _expected(place, table)
        verdict = _verdict(authorizer, who, questions)
        if verdict.allowed is not allowed:
            rows.append({"expectation": place, "allowed": verdict.allowed, "text": verdict.text})
    count = len(_expectations(expectations))
    if as_json:
        print_json({"expectations": count, "failed": rows})
    else:
        for row in rows:
            print(one_line(f"{row['expectation']}: {'yes' if row['allowed'] else 'no'}: {row['text']}"))
        print(f"{count - len(rows)} of {count} expectations hold")
    if rows:
        raise typer.Exit(1)


@app.command("nodes")
def nodes(
    *,
    url: Url = DEFAULT_URL,
    user: User = "",
    wait: Wait = DEFAULT_WAIT,
    network: Annotated[
        Path | None, typer.Option("--network", metavar="FILE", help="The description of a network: ask all its nodes.")
    ] = None,
    config: ConfigFile = None,
    file: RulesFile = None,
    as_json: AsJson = False,
) -> None:
    """Say which rules count at the broker at --url, or at all nodes of its network, and whether they hold there.

    Rules count as soon as a node has read them. They hold when all that went on under earlier ones was judged by them.
    With --config or --file it says as well whether these are the rules.
    """
    from gapless.cli.doctor import load_network_of
    from gapless.cli.doctor_services import own_name
    from gapless.node.gauges import RULES

    wanted = None if config is None and file is None else _name_of(_authorizer(config, file))
    names = [""] if network is None else [node.name for node in load_network_of(network).file.node]
    rows = []
    for node, status in run(_statuses(names, url, wait, credentials_of(url, user))).items():
        if isinstance(status, GaplessError):
            rows.append({"node": node, "rules": None, "state": str(status), "holds": False})
            continue
        found = [gauge for gauge in status.gauges if gauge.name == RULES.name]
        rules = dict(found[0].labels)["rules"] if found else ""
        is_held = not found or found[0].value == 1
        state = "hold" if is_held else "what goes on under earlier ones is being judged"
        if wanted is not None and rules != wanted:
            is_held, state = False, f"others than the rules {wanted or '(none)'} that are wanted"
        rows.append({"node": own_name(status.gauges), "rules": rules or None, "state": state, "holds": is_held})
    print_listing(rows, {"node": "NODE", "rules": "RULES", "state": "STATE"}, as_json=as_json, empty="")
    if not all(row["holds"] for row in rows):
        raise typer.Exit(1)


# ------------------------------------------------------------------------------------------ rules


async def _statuses(
    names: Sequence[str], url: str, wait: float, credentials: CredentialSource | None
) -> dict[str, BrokerStatus | GaplessError]:
    async with connected(url, "", wait, credentials) as connection:
        return await within(wait, statuses(connection, names), f"the broker at {url} does not answer questions")


def _name_of(authorizer: Authorizer) -> str:
    """Names the rules, as nodes do; "" where there are none."""
    from gapless.security.rules import Rules

    return authorizer.name if isinstance(authorizer, Rules) else ""


def _authorizer(config: Path | None, file: Path | None) -> Authorizer:
    """Who decides, by what the options name. Raises ConfigurationError."""
    from gapless.node.assembly import open_authorizer
    from gapless.node.config import load_config
    from gapless.security.rule_tables import read_rules

    if config is not None and file is not None:
        raise ConfigurationError("--config names a node's configuration, --file a file of rules: only one is meant")
    return open_authorizer(load_config(config, os.environ)) if file is None else read_rules(file)


def _doubts(authorizer: Authorizer, config: Path | None, file: Path | None) -> Sequence[str]:
    from gapless.node.assembly import doubts_about
    from gapless.node.config import load_config
    from gapless.security.rules import Rules

    if file is None:
        return doubts_about(load_config(config, os.environ), authorizer)
    return authorizer.warnings if isinstance(authorizer, Rules) else ()  # whom it is for depends on the node


def _verdict(authorizer: Authorizer, principal: Principal, questions: Questions) -> Verdict:
    """The answer to all of them: the first refusal, or else what allows the first one."""
    verdicts = [_answer(authorizer, principal, *question) for question in questions]
    return next((each for each in verdicts if not each.allowed), verdicts[0])


def _answer(authorizer: Authorizer, principal: Principal, action: Action, resource: Resource) -> Verdict:
    from gapless.security.rules import Rules

    if isinstance(authorizer, Rules):
        decision = authorizer.explain(principal, action, resource)
        return Verdict(decision.allowed, decision.text, "" if decision.rule is None else decision.rule.place)
    if not authorizer.asks:
        return Verdict(True, NO_RULES, "")
    refused = authorizer.refusal(principal, action, resource)
    return Verdict(not refused, refused or "the plugin that decides allows it", "")


def _row(rule: Rule) -> dict[str, Any]:
    return {
        "rule": rule.place,
        "kind": rule.kind,
        "who": list(rule.who),
        "actions": [action.value for action in rule.actions],
        "topics": list(rule.topics),
        "names": list(rule.names),
        "client_ids": list(rule.client_ids),
        "publishers": list(rule.publishers),
    }


# -------------------------------------------------------------------------------------- questions


def _principal(text: str) -> Principal:
    """Who is meant by a name with groups behind it. Raises ConfigurationError."""
    from gapless.core.principals import Principal
    from gapless.security.rules import GROUP

    name, *groups = text.split(",")
    if not name or not all(group.startswith(GROUP) and group != GROUP for group in groups):
        raise ConfigurationError(f"{text!r} is no principal: write NAME, or NAME,{GROUP}GROUP,…")
    return Principal(name, frozenset(group.removeprefix(GROUP) for group in groups))


def _questions(action: str, resource: str, client_id: str | None, publisher: str | None) -> Questions:
    """What is asked for. Raises ConfigurationError, and InvalidTopicError."""
    from gapless.core.ports import Action
    from gapless.core.resources import Publisher

    question = _question(action, resource, client_id)
    if publisher is None:
        return [question]
    if question[0] is not Action.PUBLISH:
        raise ConfigurationError(f"nobody needs a publisher to {action}: it says nothing of that")
    return [question, (Action.PUBLISH, Publisher(publisher))]


def _question(action: str, resource: str, client_id: str | None) -> tuple[Action, Resource]:
    """What is asked for. Raises ConfigurationError, and InvalidTopicError."""
    from gapless.core.ports import Action
    from gapless.core.resources import Durable
    from gapless.security.rules import LISTINGS, TOPIC
    from gapless.selectors.topics import check_pattern, check_topic
    from gapless.settings import suggestion

    known = [each.value for each in Action]
    if action not in known:
        hint = suggestion(action, known)
        raise ConfigurationError(f"there is no action {action!r}{hint}; there are {', '.join(known)}")
    asked = Action(action)
    if client_id is not None and asked in {Action.PUBLISH, Action.SUBSCRIBE}:
        raise ConfigurationError(f"a topic has no client id: it says nothing of {action}")
    if asked is Action.CONSUME or client_id is not None:
        return asked, Durable(client_id or "", resource)
    if asked is Action.PUBLISH:
        return asked, check_topic(resource)
    if asked is Action.SUBSCRIBE:
        return asked, check_pattern(resource)
    if asked is Action.OBSERVE and resource.startswith(TOPIC):
        check_pattern(resource.removeprefix(TOPIC))
        return asked, resource
    named = ("users",) if asked is Action.MANAGE else (*LISTINGS, "status")
    if resource not in named and not (asked is Action.MANAGE and resource.startswith("shb ")):
        more = "'shb NAME'" if asked is Action.MANAGE else f"'{TOPIC}PATTERN'"
        raise ConfigurationError(
            f"there is nothing called {resource!r} to {action}: there are {', '.join(named)}, {more}, and durable"
            " subscriptions by their names, with their client ids"
        )
    return asked, resource


def _expectations(path: Path) -> list[tuple[str, Any]]:
    """The tables of a file, each with where it stands. Raises ConfigurationError."""
    from gapless.settings import read_toml

    settings = read_toml(path)
    tables = settings.pop("expect", None)
    if settings:
        raise ConfigurationError(f"{path}: there is no table {min(settings)!r} in a file of expectations")
    if not isinstance(tables, list) or not tables:
        raise ConfigurationError(f"{path}: there is no [[expect]] in it")
    return [(f"{path}: [[expect]] {number}", table) for number, table in enumerate(tables, 1)]


def _expected(place: str, table: Any) -> tuple[Principal, Questions, bool]:
    """Who is expected to be allowed what. Raises ConfigurationError."""
    from gapless.settings import suggestion

    if not isinstance(table, dict):
        raise ConfigurationError(f"{place}: it is no table")
    for key in table:
        if key not in EXPECTATION:
            raise ConfigurationError(f"{place}: there is no key {key!r}{suggestion(key, list(EXPECTATION))}")
    for key in EXPECTATION:
        kind = bool if key == "allowed" else str
        if key not in table and key not in {"client_id", "publisher"}:
            raise ConfigurationError(f"{place}: {key} is missing")
        if key in table and type(table[key]) is not kind:
            raise ConfigurationError(f"{place}: {key}: {table[key]!r} is not a {kind.__name__}")
    try:
        about = table["action"], table["resource"], table.get("client_id"), table.get("publisher")
        return _principal(table["who"]), _questions(*about), table["allowed"]
    except ConfigurationError as error:
        raise ConfigurationError(f"{place}: {error}") from error
