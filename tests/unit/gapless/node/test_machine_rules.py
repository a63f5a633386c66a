"""Other rules in the turns of a machine: who has to judge by them is told, and they hold when all have."""

from __future__ import annotations

from collections.abc import Mapping

from gapless.core.gauges import values_by
from gapless.core.network.facts import NetworkMap
from gapless.core.network.seam import RouterContext
from gapless.core.ports import Action, Handler, RequestHandler, RulesHold, RulesReplaced
from gapless.core.principals import NOBODY, Principal
from gapless.core.resources import Resource
from gapless.core.wire.messages import Code, OpenPublisher, PublishRefused
from gapless.node.gauges import RULES
from nodes import LogRole
from unit.gapless.node.test_machine import NOW, WALL, Rig


class Named:
    """Rules with a name, which allow nothing."""

    asks = True

    def __init__(self, name: str) -> None:
        self.name = name

    def refusal(self, principal: Principal, action: Action, resource: Resource) -> str:
        return f"{principal} may not"


class Judge(LogRole):
    """Judges by other rules when a test says so."""

    def __init__(self, name: str = "judge") -> None:
        super().__init__()
        self.name = name
        self.replaced: list[tuple[RulesReplaced, int, int]] = []

    def handlers(self) -> Mapping[type, Handler]:
        return {RulesReplaced: self._on_replaced}

    def requests(self) -> Mapping[type, RequestHandler]:
        return {}

    def _on_replaced(self, replaced: RulesReplaced, now: int, wall: int) -> None:
        self.replaced.append((replaced, now, wall))

    def holds(self, version: int) -> None:
        """Nothing goes on here that those rules forbid."""
        self.effects.append(RulesHold(version))


class Office(Rig):
    """A node with two roles that judge, and one that has nothing to judge."""

    def __init__(self, *, audited: bool = False, judges: int = 2) -> None:
        self.judges = [Judge(f"judge {number}") for number in range(judges)]
        super().__init__(LogRole(), *self.judges, audited=audited)

    def replace(self, name: str) -> None:
        """Other rules count; a turn passes."""
        self.machine.on_authorizer(Named(name))
        self.turn()

    def holds(self, judge: int, version: int) -> None:
        """They hold at a role; a turn passes."""
        self.judges[judge].holds(version)
        self.call_roles()
        self.turn()

    def gauge(self) -> dict[str, float]:
        """Whether the rules hold, by their name."""
        return dict(values_by(self.machine.gauges(), RULES, "rules"))


def test_roles_that_judge_are_told_in_the_next_turn_and_the_rules_hold_when_each_has_said_so() -> None:
    office = Office()
    office.now, office.wall = NOW + 5, WALL + 7
    office.machine.on_authorizer(Named("6ba1"))
    assert (office.authority.version, office.judges[0].replaced) == (1, []), "all of a turn is under the same rules"
    office.turn()

    told = [(RulesReplaced(2), NOW + 5, WALL + 7)]
    assert [judge.replaced for judge in office.judges] == [told, told]
    assert office.gauge() == {"6ba1": 0}
    office.holds(0, 2)
    assert office.gauge() == {"6ba1": 0}
    office.holds(1, 2)
    assert office.gauge() == {"6ba1": 1}


def test_it_is_noted_that_rules_count_and_once_that_they_hold() -> None:
    office = Office()
    office.replace("6ba1")
    counts = "the rules 6ba1 count for what is asked from now on"
    assert office.notes == [counts]

    for judge in (0, 0, 1, 0, 1):
        office.holds(judge, 2)

    assert office.notes == [counts, "the rules 6ba1 hold: nothing that they forbid goes on here"]


def test_rules_that_others_have_replaced_never_hold() -> None:
    office = Office()
    office.replace("6ba1")
    office.holds(0, 2)
    office.replace("77aa")
    assert [replaced.version for replaced, *_ in office.judges[0].replaced] == [2, 3]

    office.holds(1, 2)
    office.holds(0, 2)
    office.holds(1, 3)
    assert office.gauge() == {"77aa": 0}
    office.holds(0, 3)

    assert office.gauge() == {"77aa": 1}
    assert [note for note in office.notes if "hold" in note] == [
        "the rules 77aa hold: nothing that they forbid goes on here"
    ]


def test_where_no_role_judges_they_hold_at_once() -> None:
    office = Office(judges=0)
    office.replace("6ba1")

    assert office.gauge() == {"6ba1": 1}
    assert office.notes == [
        "the rules 6ba1 count for what is asked from now on",
        "the rules 6ba1 hold: nothing that they forbid goes on here",
    ]


def test_the_audit_has_a_line_when_they_count_and_one_when_they_hold() -> None:
    office = Office(audited=True, judges=1)
    office.wall += 7
    office.replace("6ba1")
    office.wall += 1
    office.holds(0, 2)

    lines = [(line.kind, line.action, line.resource, line.name, line.outcome) for line in office.audited]
    assert lines == [("rules", "manage", "rules", "6ba1", "ok")] * 2
    assert [(line.reason, line.wall, line.principal, line.peer) for line in office.audited] == [
        ("count for what is asked from now on", WALL + 7, NOBODY, ""),
        ("hold: nothing that they forbid goes on here", WALL + 8, NOBODY, ""),
    ]


def test_rules_without_a_name_are_called_by_their_version() -> None:
    office = Office(audited=True, judges=0)
    office.replace("")

    assert office.notes[0] == "the rules of the version 2 count for what is asked from now on"
    assert office.audited[0].name == "of the version 2"
    assert office.gauge() == {"": 1}


def test_where_a_node_begins_anew_they_hold_for_nothing_goes_on_there_yet() -> None:
    office = Office()
    office.replace("6ba1")

    office.machine.start(NOW, WALL, RouterContext("node", 1, NetworkMap({})))
    office.turn()

    assert office.gauge() == {"6ba1": 1}


def test_there_is_no_figure_where_nobody_is_asked() -> None:
    assert Office().gauge() == {}


def test_what_is_asked_in_the_turn_after_them_is_judged_by_them() -> None:
    office = Office()
    client = office.connect(1, publisher=False)
    office.machine.on_authorizer(Named("6ba1"))

    [refused] = office.say(client, OpenPublisher(1, "loader", "instance", 1, "flights"))

    assert refused == PublishRefused(1, 0, Code.FORBIDDEN, "anonymous may not")


def test_what_the_parts_say_of_rules_is_counted_and_can_be_listened_to() -> None:
    office = Office(judges=1)
    office.heard.clear()
    office.replace("6ba1")
    office.holds(0, 2)

    said = [(source, fact) for source, fact in office.heard if isinstance(fact, RulesReplaced | RulesHold)]
    assert said == [("node", RulesReplaced(2)), ("judge 0", RulesHold(2))]
