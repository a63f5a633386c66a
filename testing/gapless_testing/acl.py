"""The conformance suite for authorizers: what `gapless.core.ports.Authorizer` promises, as pytest classes.

    from gapless_testing.acl import AclHarness, AclSuite, Question

    class MyHarness(AclHarness):
        options = {"server": "rules.example"}

        def make(self, options):
            return open_acl(options=options)

        def allowed(self):
            return [Question(Principal("ada"), Action.PUBLISH, "orders.eu")]

        def refused(self):
            return [Question(Principal("bob"), Action.PUBLISH, "orders.eu")]

    class TestMyAuthorizer(AclSuite):
        @pytest.fixture
        def harness(self):
            return MyHarness()

Who may do what only its author knows: `allowed` and `refused` say so. The suite knows what holds of all: an authorizer
never blocks, never raises, gives the same question the same answer, says why it refuses, and does not grow with what it
is asked. A broken promise raises `AclError`.
"""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from random import Random
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import pytest

from gapless.core.ports import Action, Authorizer
from gapless.core.principals import Principal
from gapless.core.resources import AnyTopic, Durable, Publisher, Resource
from gapless.errors import ConfigurationError
from gapless_testing.auth import AuthError, nothing_blocks

SEED: Final = 11
STRANGE: Final = 2_000
"""So many strange questions are asked."""
MANY: Final = 20_000
"""So many different questions are asked, to see what is kept of them."""
GROWTH_MAX: Final = 64 << 20
"""No authorizer keeps more bytes than that of what it was asked."""
SECONDS_MAX: Final = 0.02
"""No answer takes longer: it is given on the event loop, and everybody waits for it."""
REASON_MAX: Final = 4_000
"""The longest reason, in characters, for a question of ordinary length."""
UNKNOWN: Final = "no_such_option"
ODD: Final = (
    "",
    ".",
    "a..b",
    "#",
    "*",
    "a.#.b",
    "#.#",
    "\0",
    "\ud800",
    "x" * 5_000,
    "*." * 2_000,
    "topic ",
    "shb ",
    "ü.€",
)


class AclError(AssertionError):
    """An authorizer broke its promise."""


class Question(NamedTuple):
    """What an authorizer is asked."""

    principal: Principal
    action: Action
    resource: Resource


class AclHarness:
    """One kind of authorizer. `make`, `allowed` and `refused` are a must."""

    options: Mapping[str, Any] = MappingProxyType({})
    wrong: Sequence[tuple[str, Mapping[str, Any]]] = ()
    """Sets of options that are wrong, each behind the text that the error has to hold."""

    def make(self, options: Mapping[str, Any]) -> Authorizer:
        """An authorizer with these options, as `open_acl` makes it."""
        raise NotImplementedError("override AclHarness.make")

    def allowed(self) -> Sequence[Question]:
        """Questions to which it says yes."""
        raise NotImplementedError("override AclHarness.allowed")

    def refused(self) -> Sequence[Question]:
        """Questions to which it says no; none, if it allows everything."""
        raise NotImplementedError("override AclHarness.refused")


@contextmanager
def no_collection() -> Iterator[None]:
    """Within, Python does not look for cycles: the time that takes depends on the whole process."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def answer_to(authorizer: Authorizer, question: Question) -> str:
    """The answer. Raises AclError when the authorizer raises, blocks, takes long, or answers what is no text."""
    try:
        with nothing_blocks(), no_collection():
            began = time.thread_time()
            said = authorizer.refusal(*question)
            took = time.thread_time() - began
    except AuthError:
        raise AclError("it waits, or asks somebody else: an authorizer never blocks") from None
    except Exception as error:
        raise AclError(f"it raises {type(error).__name__} when it is asked {question!a:.300}") from error
    if took > SECONDS_MAX:
        raise AclError(f"it takes {took:.3f} s to answer {question!a:.300}; {SECONDS_MAX} are the most")
    if type(said) is not str:
        raise AclError(f"it answers {said!r}, which is no text")
    return said


def strange_questions(random: Random) -> Iterator[Question]:
    """Any principal asks for anything, also for what makes no sense."""

    def text() -> str:
        if random.random() < 0.5:
            return random.choice(ODD)
        return "".join(random.choices("ab.*#-/: \n\U0001f600", k=random.randrange(40)))

    while True:
        named = Durable(text(), text()), Publisher(text()), AnyTopic(text())
        resource = text() if random.random() < 0.6 else random.choice(named)
        groups = frozenset(text() for _ in range(random.randrange(3)))
        yield Question(Principal(text(), groups), random.choice(list(Action)), resource)


class AclSuite:
    """Everything that is promised. Override the fixture `harness`."""

    @pytest.fixture
    def harness(self) -> AclHarness:
        """What is tested. Override it."""
        raise NotImplementedError("override the fixture `harness` to return your AclHarness")

    @pytest.fixture
    def authorizer(self, harness: AclHarness) -> Authorizer:
        """A fresh one."""
        return harness.make(MappingProxyType(dict(harness.options)))

    def test_it_says_whether_it_has_to_be_asked(self, harness: AclHarness, authorizer: Authorizer) -> None:
        """Whoever refuses anything has to be asked."""
        if type(getattr(authorizer, "asks", None)) is not bool:
            raise AclError("its attribute 'asks' is no bool")
        if harness.refused() and not authorizer.asks:
            raise AclError("it refuses something, and its attribute 'asks' says that nobody need ask")

    def test_what_is_allowed_is_allowed(self, harness: AclHarness, authorizer: Authorizer) -> None:
        """And says nothing more."""
        assert harness.allowed(), "`allowed` of the harness is empty: nobody may do anything"
        for question in harness.allowed():
            if said := answer_to(authorizer, question):
                raise AclError(f"it refuses {question}, which is allowed: {said}")

    def test_what_is_refused_is_refused_with_a_reason(self, harness: AclHarness, authorizer: Authorizer) -> None:
        """Which names who asks, the action, and what it is about."""
        for question in harness.refused():
            said = answer_to(authorizer, question)
            if not said:
                raise AclError(f"it allows {question}, which is not allowed")
            named = question.principal.name, question.action.value, *_names(question.resource)
            for name in named:
                if name not in said:
                    raise AclError(f"it refuses {question} without naming {name!r}: {said}")
            if len(said) > REASON_MAX:
                raise AclError(f"a reason has {len(said):,} characters; at most {REASON_MAX:,} are of use")

    def test_the_same_question_has_the_same_answer(self, harness: AclHarness, authorizer: Authorizer) -> None:
        """Whatever was asked meanwhile; another one with these options says the same."""
        known = [*harness.allowed(), *harness.refused()]
        strange = strange_questions(Random(SEED))  # noqa: S311 - the same questions every time
        before = [answer_to(authorizer, question) for question in known]
        for question in (next(strange) for _ in range(STRANGE // 4)):
            if answer_to(authorizer, question) != answer_to(authorizer, question):
                raise AclError(f"asked twice, it says two things of {question!a:.300}")
        other = harness.make(MappingProxyType(dict(harness.options)))
        for judge, whose in ((authorizer, "later"), (other, "another one")):
            for question, said in zip(reversed(known), reversed(before), strict=True):
                if answer_to(judge, question) != said:
                    raise AclError(f"of {question} it says {said!r}, and {whose} {answer_to(judge, question)!r}")

    def test_of_strange_texts_it_says_something_too(self, authorizer: Authorizer) -> None:
        """A client may ask for whatever it likes."""
        strange = strange_questions(Random(SEED + 1))  # noqa: S311 - the same questions every time
        for question in (next(strange) for _ in range(STRANGE)):
            answer_to(authorizer, question)

    def test_whoever_is_in_fewer_groups_may_not_do_more(self, harness: AclHarness, authorizer: Authorizer) -> None:
        """Unless a group takes something away: so a principal without a name and groups may nothing that is refused."""
        for question in harness.refused():
            nobody = question._replace(principal=Principal("nobody that is known"))
            if not answer_to(authorizer, nobody):
                raise AclError(f"it refuses {question}, and allows it to somebody whom it does not know")

    def test_it_does_not_grow_with_what_it_is_asked(self, authorizer: Authorizer) -> None:
        """Clients choose topics and names: what is kept of them has a bound."""
        principal, long = Principal("ada"), "x" * 200
        for number in range(1_000):
            authorizer.refusal(principal, Action.PUBLISH, f"first.{number}")
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for number in range(MANY):
            authorizer.refusal(principal, Action.PUBLISH, f"{number}.{long * 20}")
        grown = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        if grown > GROWTH_MAX:
            raise AclError(f"{MANY:,} questions made it grow by {grown >> 20} MiB; {GROWTH_MAX >> 20} are the most")

    def test_options_that_are_wrong_are_refused(self, harness: AclHarness) -> None:
        """When the broker starts; what is misspelt, too. The error names the option."""
        for text, options in ((UNKNOWN, {**harness.options, UNKNOWN: 1}), *harness.wrong):
            try:
                harness.make(MappingProxyType(dict(options)))
            except ConfigurationError as error:
                if text not in str(error):
                    raise AclError(f"the refusal of {dict(options)} does not say {text!r}: {error}") from None
            else:
                raise AclError(f"{dict(options)} is taken, and should be refused for {text!r}")


def _names(resource: Resource) -> tuple[str, ...]:
    return (resource,) if isinstance(resource, str) else tuple(resource)
