"""What transports find wrong becomes alarms: once, until it is over."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gapless.core.alarms import Alarm, AlarmCode
from gapless.node.troubles import Troubles
from links import FakeTransport

UNUSABLE = Alarm(AlarmCode.CERTIFICATE_UNUSABLE, "no key", "a.pem")
EXPIRES = Alarm(AlarmCode.CERTIFICATE_EXPIRES, "it ends soon", "a.pem")
ELSEWHERE = Alarm(AlarmCode.CERTIFICATE_EXPIRES, "it ends soon", "b.pem")


class TroubledTransport(FakeTransport):
    """Finds wrong what a test wants."""

    def __init__(self, *found: Alarm) -> None:
        super().__init__()
        self.found: Sequence[Alarm] = found
        self.asked = 0

    def troubles(self) -> Sequence[Alarm]:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return self.found


def test_what_is_wrong_is_told_once_and_when_it_is_over() -> None:
    alarms: list[Alarm] = []
    transport = TroubledTransport()
    troubles = Troubles([transport, FakeTransport()], alarms.append)

    for found in ([], [UNUSABLE], [UNUSABLE], [UNUSABLE, EXPIRES], [EXPIRES], [EXPIRES]):
        transport.found = found
        troubles.look()

    over = Alarm(UNUSABLE.code, "it is over that no key", "a.pem", over=True)
    assert alarms == [UNUSABLE, EXPIRES, over]


def test_what_has_another_text_is_told_again() -> None:
    alarms: list[Alarm] = []
    transport = TroubledTransport(EXPIRES)
    troubles = Troubles([transport], alarms.append)
    troubles.look()

    ended = Alarm(EXPIRES.code, "it has ended", EXPIRES.about)
    transport.found = [ended]
    troubles.look()

    assert alarms == [EXPIRES, ended]


def test_several_transports_may_have_the_same_trouble() -> None:
    """Two listeners with one certificate: it is over when neither has it any more."""
    alarms: list[Alarm] = []
    one, other = TroubledTransport(EXPIRES), TroubledTransport(EXPIRES, ELSEWHERE)
    troubles = Troubles([one, other], alarms.append)
    troubles.look()

    one.found = []
    troubles.look()
    assert alarms == [EXPIRES, ELSEWHERE]

    other.found = []
    troubles.look()
    assert {alarm.about for alarm in alarms if alarm.over} == {"a.pem", "b.pem"}


def test_a_transport_that_cannot_answer_is_not_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    """It is a plugin's fault, and no reason to end the node, nor to fill its log."""
    alarms: list[Alarm] = []
    broken, sound = TroubledTransport(), TroubledTransport(EXPIRES)
    broken.error = ValueError("a bug")
    troubles = Troubles([broken, sound], alarms.append)

    troubles.look()
    troubles.look()

    assert (broken.asked, sound.asked) == (1, 2)
    assert alarms == [EXPIRES]
    assert len([record for record in caplog.records if record.exc_info]) == 1
