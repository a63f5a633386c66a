"""Who looks again and again makes a line in some minutes, and a new one at once when it ends otherwise."""

from __future__ import annotations

from gapless.core.principals import NOBODY, Principal
from gapless.core.server.audit import AuditOutcome
from gapless.observe.visits import REMEMBERED_MAX, SAME_FOR, Visits

ADA, BOB = Principal("ada"), Principal("bob")


class Rig:
    """Visits, and the lines that they have made."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, AuditOutcome, str]] = []
        self.has_room = True
        self.now = 0.0
        self.visits = Visits(self._tell, lambda: self.has_room, lambda: self.now)

    def _tell(self, principal: Principal, address: str, outcome: AuditOutcome, reason: str) -> None:
        self.lines.append((principal.name, address, outcome, reason))

    def ok(self, principal: Principal, address: str = "192.0.2.1") -> bool:
        return self.visits.note(principal, address, "ok", "")


def test_a_scrape_each_second_makes_a_line_in_ten_minutes() -> None:
    rig = Rig()
    for second in range(1801):
        rig.now = float(second)
        assert rig.ok(ADA)

    assert rig.lines == [("ada", "192.0.2.1", "ok", "")] * 4


def test_whoever_it_is_wherever_from_and_however_it_ends_makes_a_line_of_its_own() -> None:
    rig = Rig()
    rig.ok(ADA)
    rig.ok(BOB)
    rig.ok(ADA, "192.0.2.2")
    rig.visits.note(ADA, "192.0.2.1", "refused", "the rules are others now")
    rig.visits.note(NOBODY, "192.0.2.1", "refused", "its token has expired")
    rig.visits.note(NOBODY, "192.0.2.1", "refused", "it has shown no credentials")  # the same stranger
    rig.ok(ADA)

    assert [line[:3] for line in rig.lines] == [
        ("ada", "192.0.2.1", "ok"),
        ("bob", "192.0.2.1", "ok"),
        ("ada", "192.0.2.2", "ok"),
        ("ada", "192.0.2.1", "refused"),
        ("", "192.0.2.1", "refused"),
    ]


def test_without_room_who_was_told_before_goes_on_and_makes_his_line_later() -> None:
    rig = Rig()
    rig.ok(ADA)
    rig.now, rig.has_room = SAME_FOR + 1, False
    assert rig.ok(ADA)
    assert not rig.ok(BOB)
    assert len(rig.lines) == 1

    rig.has_room = True
    assert rig.ok(ADA)
    assert rig.ok(BOB)
    assert [line[0] for line in rig.lines] == ["ada", "ada", "bob"]


def test_strangers_without_number_fill_no_memory() -> None:
    rig = Rig()
    for number in range(REMEMBERED_MAX + 2):
        rig.visits.note(NOBODY, str(number), "refused", "")
    rig.lines.clear()

    rig.visits.note(NOBODY, "2", "refused", "")  # remembered
    rig.visits.note(NOBODY, "0", "refused", "")  # not any more

    assert [line[1] for line in rig.lines] == ["0"]
