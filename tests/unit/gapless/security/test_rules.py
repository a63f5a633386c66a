"""Who may do what by rules: decided as a plain model does, with the reason, and quickly."""

from __future__ import annotations

import gc
import time
import tracemalloc
import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gapless.core.ports import Action
from gapless.core.principals import Principal
from gapless.core.resources import AnyTopic, Durable, Publisher, Resource
from gapless.security.rules import DECISIONS_MAX, LENGTH_MAX, SELDOM_MAX, Rule, Rules, strangers, text_matches
from unit.gapless.security.acl_model import deciding

WHO = ("shop", "shop-2", "group:g", "group:h", "*", "anonymous")
LEVEL = st.sampled_from(["a", "b", "*"])
PATTERNS = st.one_of(
    st.just("#"),
    st.lists(LEVEL, min_size=1, max_size=3).map(".".join),
    st.lists(LEVEL, min_size=1, max_size=2).map(lambda levels: ".".join([*levels, "#"])),
)
TOPIC = st.lists(st.sampled_from(["a", "b", "z"]), min_size=1, max_size=3).map(".".join)
GLOBS = st.sampled_from(["*", "late", "la*", "*e", "l*t*", "x", "shop", "shop-*", ""])
PRINCIPALS = st.sampled_from(
    [
        Principal("shop"),
        Principal("shop", frozenset({"g"})),
        Principal("shop-2", frozenset({"g", "h"})),
        Principal("anonymous"),
        Principal("other"),
        Principal("other", frozenset({"h"})),
        Principal("*"),
        Principal("group:g"),
    ]
)
DURABLES = st.builds(
    Durable, st.sampled_from(["", "shop", "shop-", "shop-2", "shop-2-x", "shopper"]), st.sampled_from(["late", "l", ""])
)
QUESTIONS: st.SearchStrategy[tuple[Action, Resource]] = st.one_of(
    st.tuples(st.just(Action.PUBLISH), TOPIC),
    st.tuples(st.just(Action.SUBSCRIBE), PATTERNS),
    st.tuples(st.just(Action.OBSERVE), PATTERNS.map("topic {}".format)),
    st.tuples(st.sampled_from(Action), DURABLES),
    st.tuples(st.sampled_from(Action), PATTERNS.map(AnyTopic)),
    st.tuples(st.sampled_from(Action), st.builds(Publisher, st.sampled_from(["", "late", "shop-2", "~drawn"]))),
    st.tuples(
        st.sampled_from([Action.MANAGE, Action.OBSERVE]),
        st.sampled_from(["subscriptions", "pubends", "status", "users", "shb s1"]),
    ),
    st.tuples(st.just(Action.CONSUME), st.just("late")),
)


@st.composite
def rule_lists(draw: st.DrawFn) -> list[Rule]:
    rules = []
    for denies in (False, True):
        for number in range(1, draw(st.integers(0, 5)) + 1):
            rules += [
                Rule(
                    f"rules: [[{'deny' if denies else 'allow'}]] {number}",
                    number,
                    denies,
                    tuple(draw(st.lists(st.sampled_from(WHO), min_size=1, max_size=2))),
                    tuple(draw(st.sets(st.sampled_from(Action), min_size=1))),
                    tuple(draw(st.lists(PATTERNS, max_size=2))),
                    *(tuple(draw(st.lists(GLOBS, max_size=2))) for _ in range(3)),
                )
            ]
    return rules


def named(principal: Principal) -> Principal:
    """For the model: a name that looks like a group's, or like that of everybody, has no rules of its own."""
    looks_else = principal.name == "*" or principal.name.startswith("group:")
    return Principal(f"no {principal.name}", principal.groups) if looks_else else principal


@settings(max_examples=300)
@given(rule_lists(), st.lists(st.tuples(PRINCIPALS, QUESTIONS), min_size=1, max_size=12))
def test_it_decides_as_a_plain_model_does(
    rules: list[Rule], questions: list[tuple[Principal, tuple[Action, Resource]]]
) -> None:
    made = Rules(rules, ())

    for principal, (action, resource) in questions * 2:
        decision = made.explain(principal, action, resource)
        allowed, rule = deciding(rules, named(principal), action, resource)
        assert decision.allowed is allowed
        assert decision.rule == rule
        assert bool(made.refusal(principal, action, resource)) is not allowed


@given(st.lists(st.sampled_from("ab*"), max_size=7).map("".join), st.text("ab", max_size=8))
def test_a_pattern_of_names_matches_as_an_expression_does(pattern: str, text: str) -> None:
    import re

    expected = re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text) is not None

    assert text_matches(pattern, text) is expected


def rules_of(*rules: Rule) -> Rules:
    return Rules(rules, ())


def allow(who: str, *actions: Action, number: int = 1, **more: tuple[str, ...]) -> Rule:
    return Rule(f"rules.toml: [[allow]] {number}", number, False, (who,), actions, **more)


def deny(who: str, *actions: Action, number: int = 1, **more: tuple[str, ...]) -> Rule:
    return Rule(f"rules.toml: [[deny]] {number}", number, True, (who,), actions, **more)


SHOP = Principal("shop")


def test_a_refusal_says_who_what_and_which_kind_of_rule_is_missing() -> None:
    rules = rules_of(allow("shop", Action.SUBSCRIBE, topics=("orders.*",)))

    assert rules.refusal(SHOP, Action.PUBLISH, "orders.eu") == (
        "principal 'shop' may not publish to topic 'orders.eu': no [[allow]] with the action 'publish' is for it and"
        " this topic"
    )
    assert rules.refusal(SHOP, Action.SUBSCRIBE, "orders.#") == (
        "principal 'shop' may not subscribe to 'orders.#': no [[allow]] with the action 'subscribe' is for it and has"
        " a topic pattern that covers all of that"
    )
    assert rules.refusal(SHOP, Action.CONSUME, Durable("desk", "late")).startswith(
        "principal 'shop' may not consume the durable subscription 'late' of client 'desk': no [[allow]]"
    )
    assert "may not manage 'users'" in rules.refusal(SHOP, Action.MANAGE, "users")


def test_a_name_of_a_publisher_is_covered_whatever_it_publishes() -> None:
    rules = rules_of(
        allow("shop", Action.PUBLISH, topics=("orders.#",), publishers=("till-*", "desk")),
        allow("free", Action.PUBLISH, topics=("orders.#",)),
        deny("*", Action.PUBLISH, publishers=("till-9",)),
        deny("*", Action.PUBLISH, topics=("secret",), number=2),
    )
    assert rules.refusal(SHOP, Action.PUBLISH, Publisher("till-1")) == ""
    assert rules.refusal(SHOP, Action.PUBLISH, Publisher("desk-1")) == (
        "principal 'shop' may not publish as publisher 'desk-1': no [[allow]] with the action 'publish' is for it and"
        " this name of a publisher"
    )
    for who, allowed in (("free", True), ("other", False)):
        assert (rules.refusal(Principal(who), Action.PUBLISH, Publisher("desk-1")) == "") is allowed
    assert rules.refusal(SHOP, Action.PUBLISH, Publisher("till-9")).endswith("rules.toml: [[deny]] 1 denies it")
    assert rules.refusal(SHOP, Action.PUBLISH, "orders.till-9") == "", "names are no topics"


def test_a_deny_that_takes_a_part_says_so() -> None:
    rules = rules_of(
        allow("*", Action.SUBSCRIBE, topics=("#",)),
        deny("*", Action.SUBSCRIBE, topics=("secret.#",)),
    )

    assert "rules.toml: [[deny]] 1 denies a part of that; a narrower" in rules.refusal(SHOP, Action.SUBSCRIBE, "#")
    assert rules.refusal(SHOP, Action.SUBSCRIBE, "secret.a").endswith(": rules.toml: [[deny]] 1 denies it")
    assert rules.refusal(SHOP, Action.SUBSCRIBE, "orders.#") == ""


def test_two_rules_that_cover_it_only_together_do_not() -> None:
    """As it is documented: one rule has to cover all of a pattern."""
    rules = rules_of(
        allow("*", Action.SUBSCRIBE, topics=("a", "a.*.#")),
        allow("*", Action.SUBSCRIBE, number=2, topics=("a.#",)),
    )

    decision = rules.explain(SHOP, Action.SUBSCRIBE, "a.#")
    assert decision.allowed
    assert decision.rule is not None
    assert decision.rule.number == 2


def test_one_s_own_client_ids_are_the_name_alone_or_before_a_dash() -> None:
    rules = rules_of(allow("*", Action.CONSUME))

    taken = [id_ for id_ in ("shop", "shop-1", "shop-", "shopper", "", "desk") if not _refused(rules, id_)]
    assert taken == ["shop", "shop-1", "shop-"]
    assert not _refused(rules_of(allow("*", Action.CONSUME, client_ids=("desk", ""))), "")
    assert _refused(rules_of(allow("*", Action.CONSUME, client_ids=("desk", ""))), "shop")


def _refused(rules: Rules, client_id: str) -> str:
    return rules.refusal(SHOP, Action.CONSUME, Durable(client_id, "late"))


def test_a_deny_takes_away_what_it_names_and_no_more() -> None:
    everything = allow("*", *Action, topics=("#",), client_ids=("*",))
    late, other = Durable("desk", "late"), Durable("desk", "other")

    of_topics = rules_of(everything, deny("*", Action.SUBSCRIBE, Action.OBSERVE, topics=("secret.#",)))
    assert of_topics.refusal(SHOP, Action.OBSERVE, late) == ""
    assert of_topics.refusal(SHOP, Action.OBSERVE, "topic secret.a") != ""
    assert of_topics.refusal(SHOP, Action.OBSERVE, "topic #") == "", "something is left of it"
    of_names = rules_of(everything, deny("*", Action.CONSUME, Action.OBSERVE, names=("late",)))
    assert [bool(of_names.refusal(SHOP, action, late)) for action in (Action.CONSUME, Action.OBSERVE)] == [True, True]
    assert of_names.refusal(SHOP, Action.CONSUME, other) == ""
    assert of_names.refusal(SHOP, Action.OBSERVE, "topic secret.a") == ""
    assert of_names.refusal(SHOP, Action.OBSERVE, "subscriptions") == "", "each row is decided about"
    of_all = rules_of(everything, deny("*", Action.CONSUME))
    assert of_all.refusal(SHOP, Action.CONSUME, other) != ""


def test_nothing_that_a_client_says_becomes_a_pattern() -> None:
    """Signs in a name, a client id or a topic are nothing but themselves."""
    rules = rules_of(
        allow("shop", *Action, topics=("orders.eu",), names=("late",), client_ids=("shop",)),
        allow("group:g", Action.PUBLISH, number=2, topics=("of.the.group",)),
    )

    for sign in ("*", "#", "shop*", "*shop", "shop|x", ".*", "^shop$", "${shop}", "%s", "[a-z]*", "group:g", "group:*"):
        assert rules.refusal(Principal(sign), Action.PUBLISH, "orders.eu") != ""
        assert rules.refusal(Principal(sign), Action.PUBLISH, "of.the.group") != ""
        assert rules.refusal(Principal("x", frozenset({sign})), Action.PUBLISH, "of.the.group") != ""
        assert rules.refusal(SHOP, Action.CONSUME, Durable("shop", sign)) != ""
        assert rules.refusal(SHOP, Action.CONSUME, Durable(sign, "late")) != ""
        assert rules.refusal(SHOP, Action.PUBLISH, sign) != ""
        assert rules.refusal(SHOP, Action.SUBSCRIBE, sign) != ""


def test_the_status_tells_of_everything_so_nothing_may_be_hidden() -> None:
    whole, part = allow("shop", Action.OBSERVE), allow("shop", Action.OBSERVE, topics=("a",))

    assert rules_of(whole).refusal(SHOP, Action.OBSERVE, "status") == ""
    assert rules_of(part).refusal(SHOP, Action.OBSERVE, "status") != ""
    assert rules_of(whole, deny("shop", Action.OBSERVE, names=("x",))).refusal(SHOP, Action.OBSERVE, "status") != ""


@pytest.mark.parametrize("text", ["", ".", "a..b", "#.a", "a.#.b", "*" * 5000, "\ud800", "topic ", "topic #.#", "a\0b"])
@pytest.mark.parametrize("action", list(Action))
def test_odd_texts_are_answered_too(text: str, action: Action) -> None:
    rules = rules_of(allow("shop", *Action, topics=("a.#", "*.b"), names=("x*",)), deny("shop", *Action, topics=("c",)))

    for resource in (text, Durable(text, text)):
        assert isinstance(rules.refusal(SHOP, action, resource), str)


def test_a_pattern_of_wildcards_costs_no_more_than_the_rules() -> None:
    """A hundred levels of `*` are followed once, not in every combination."""
    tree = [".".join("*" if (n >> at) & 1 else "a" for at in range(8)) + ".#" for n in range(256)]
    rules = rules_of(allow("shop", Action.SUBSCRIBE, topics=tuple(tree)), deny("shop", Action.SUBSCRIBE, topics=("q",)))

    began = time.perf_counter()
    assert rules.refusal(SHOP, Action.SUBSCRIBE, ".".join("*" * 120)) == ""
    assert rules.refusal(SHOP, Action.SUBSCRIBE, "*.*.*") != ""
    assert time.perf_counter() - began < 1


def test_ten_thousand_rules_of_one_and_a_hundred_thousand_principals_are_quick() -> None:
    many = [allow("shop", Action.PUBLISH, Action.SUBSCRIBE, number=n, topics=(f"o.{n}.#",)) for n in range(1, 10_001)]
    others = [allow(f"p{n}", Action.PUBLISH, number=n, topics=(f"p.{n}",)) for n in range(10_001, 110_001)]
    rules = Rules([*many, *others], ())
    rules.explain(SHOP, Action.PUBLISH, "o.1")  # lays out what there is for this one

    began = time.perf_counter()
    for n in range(1, 1001):
        assert rules.refusal(SHOP, Action.PUBLISH, f"o.{n}.x") == ""
        assert rules.refusal(Principal(f"p{10_000 + n}"), Action.PUBLISH, f"p.{10_000 + n}") == ""
        assert rules.refusal(Principal(f"p{10_000 + n}"), Action.PUBLISH, f"p.{n}") != ""
    assert time.perf_counter() - began < 1, "a decision takes much less than a millisecond"


def test_decisions_are_kept_within_a_bound() -> None:
    rules = rules_of(allow("shop", Action.PUBLISH, topics=("#",)))
    tracemalloc.start()
    for n in range(DECISIONS_MAX * 5 // 4):
        rules.refusal(SHOP, Action.PUBLISH, f"{n}.{'x' * 200}")
    most = tracemalloc.get_traced_memory()[0]
    for n in range(100):
        rules.refusal(SHOP, Action.PUBLISH, f"{n}.{'x' * 100 * LENGTH_MAX}")
    now = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()

    assert most < DECISIONS_MAX * 2000
    assert now - most < 1_000_000


def test_of_durable_subscriptions_few_decisions_are_kept() -> None:
    """When rules change each of a hundred thousand is asked about, and once."""
    rules = rules_of(allow("shop", Action.CONSUME, client_ids=("*",)))
    first = rules.explain(SHOP, Action.CONSUME, Durable("shop", "late"))
    assert rules.explain(SHOP, Action.CONSUME, Durable("shop", "late")) is first, "it is kept"
    tracemalloc.start()
    for n in range(20 * SELDOM_MAX):
        rules.refusal(SHOP, Action.CONSUME, Durable("shop", f"{n}"))
    most = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert most < SELDOM_MAX * 2000


def test_rules_that_others_replace_are_gone_at_once() -> None:
    """In a cycle they would wait for Python's collector, which a broker lets look at what is old very seldom."""
    rules = rules_of(allow("shop", Action.CONSUME, Action.PUBLISH, topics=("#",)))
    rules.refusal(SHOP, Action.PUBLISH, "t")
    decision = rules.explain(SHOP, Action.CONSUME, Durable("shop", "late"))
    gone = weakref.ref(rules)
    gc.disable()
    try:
        del rules
        assert gone() is None
    finally:
        gc.enable()
    assert not gc.is_tracked(decision)
    assert not gc.is_tracked(decision.rule)


def test_whom_nobody_can_be_called_is_told() -> None:
    rules = [
        allow("shop", Action.PUBLISH, topics=("#",)),
        allow("anonymous", Action.PUBLISH, number=2, topics=("#",)),
        allow("group:a\nb", Action.PUBLISH, number=3, topics=("#",)),
        allow("x" * 300, Action.PUBLISH, number=4, topics=("#",)),
        allow("desk-*", Action.PUBLISH, number=5, topics=("#",)),
        allow("*", Action.PUBLISH, number=6, topics=("#",)),
    ]

    def told(*authenticators: str) -> list[str]:
        return [sentence.partition(": ")[2].partition(":")[0] for sentence in strangers(rules, authenticators)]

    odd = ["[[allow]] 3", "[[allow]] 4", "[[allow]] 5"]
    assert told("scram") == ["[[allow]] 2", *odd]
    assert told("scram", "anonymous") == odd
    assert told("anonymous") == ["[[allow]] 1", *odd]
    assert told("theirs") == odd, "of an authenticator that is not ours nobody knows whom it makes"


EVERY_KEY = Rule("a.toml: [[allow]] 1 (line 3)", 1, False, ("shop",), (Action.CONSUME,), ("a",), ("late",), ("desk",))


def test_rules_are_called_the_same_wherever_they_stand_and_whatever_is_doubted() -> None:
    """So an operator sees whether two nodes have the same ones."""
    elsewhere = replace(EVERY_KEY, place="b.toml: [[allow]] 1 (line 70)")

    names = {Rules([EVERY_KEY], ()).name, Rules([elsewhere], ["look at it"]).name}

    assert names == {"f8175978"}, "also at another time, and at a node of another version"


@pytest.mark.parametrize(
    "other",
    [
        [],
        [EVERY_KEY, EVERY_KEY],
        [replace(EVERY_KEY, denies=True)],
        [replace(EVERY_KEY, who=("desk",))],
        [replace(EVERY_KEY, who=("shop", "desk"))],
        [replace(EVERY_KEY, actions=(Action.OBSERVE,))],
        [replace(EVERY_KEY, topics=())],
        [replace(EVERY_KEY, names=("late*",))],
        [replace(EVERY_KEY, client_ids=("late",))],
        [replace(EVERY_KEY, names=("desk",), client_ids=("late",))],
        [replace(EVERY_KEY, publishers=("late",))],
    ],
)
def test_other_rules_are_called_something_else(other: list[Rule]) -> None:
    assert Rules(other, ()).name != Rules([EVERY_KEY], ()).name
