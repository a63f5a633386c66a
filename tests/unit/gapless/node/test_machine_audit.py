"""The audit's lines in the turns of a machine: handed out once, and waited for where there is no room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from gapless.core.network import facts as routing
from gapless.core.ports import Handler
from gapless.core.principals import Principal
from gapless.core.server.audit import AuditLine
from gapless.core.wire.messages import OpenPublisher
from nodes import LogRole
from unit.gapless.node.test_machine import Rig
from wire import kinds


class TellingRole(LogRole):
    """Tells the audit two lines whenever it is asked, the second one of a session."""

    telling = False
    sessions: Sequence[int] = ()

    def take_effects(self, now: int, wall: int) -> Sequence[object]:
        told = AuditLine(0, Principal("ada"), "", "c", "creation", "publish", "p", "n", "ok", "", None)
        said = super().take_effects(now, wall)
        return [*said, told, replace(told, session=next(iter(self.sessions), 0))] if self.telling else said


class SilentRole(LogRole):
    """Answers nobody who opens a publisher."""

    def handlers(self) -> Mapping[type, Handler]:
        return {kind: handler for kind, handler in super().handlers().items() if kind is not routing.SubmitOpen}


def test_the_lines_of_a_turn_are_handed_out_once_with_their_time_and_address() -> None:
    role = TellingRole()
    rig = Rig(role, audited=True)
    rig.wall += 7
    client = rig.connect(1, publisher=False)
    assert [(line.kind, line.wall, line.peer) for line in rig.audited] == [("admission", rig.wall, client.peer)]
    rig.audited.clear()
    role.telling, role.sessions = True, [client.wire.session]
    rig.wall += 1
    rig.call_roles()
    rig.turn()
    role.telling = False
    rig.call_roles()
    rig.turn()

    assert [(line.principal.name, line.wall, line.peer) for line in rig.audited] == [
        ("ada", rig.wall, ""),
        ("ada", rig.wall, client.peer),
    ]


def test_a_request_waits_for_room_and_no_turn_follows_from_that() -> None:
    rig = Rig(audited=True)
    client = rig.connect(1, publisher=False)
    rig.room = 0
    rig.calls.clear()
    client.say(OpenPublisher(1, "loader", "instance", 1, None))
    rig.machine.turn()
    assert not rig.machine.scheduled
    assert client.hear() == []

    rig.room = 5
    rig.machine.on_audit_room()
    for _ in range(3):
        rig.machine.turn()
    assert kinds(client.hear()) == ["PublisherOpened"]


async def test_what_a_session_has_asked_makes_a_line_when_the_node_is_stopped() -> None:
    rig = Rig(SilentRole(), audited=True)
    client = rig.connect(1, publisher=False)
    client.say(OpenPublisher(1, "loader", "instance", 1, None))
    rig.turn()
    rig.audited.clear()
    rig.machine.close("it ends")
    rig.turn()

    assert [(line.kind, line.outcome) for line in rig.audited] == [("opening", "failed")]
