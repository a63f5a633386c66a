"""That the router is hostile: each behaviour happens in worlds, and none of them breaks a promise.

That it serves when it is told to is the routing suite's business (`conformance.test_routing`), and that hostility finds
what is broken that of the switches.
"""

from __future__ import annotations

from collections import Counter

import pytest

from gapless.core.network.facts import FrameArrived, Hangup, LinkUp
from gapless.core.network.frames import InterestQuestion, Private, encode
from gapless.core.network.seam import RouterContext
from gapless.errors import ConfigurationError
from gapless_sim.hostile import open_routing
from gapless_sim.hostile.hostility import BEHAVIOURS, Hostility
from gapless_sim.hostile.router import HostileRouter
from gapless_sim.search.run import run_seed
from gapless_sim.world.options import Options
from gapless_testing.routing import PAIR

RATES = tuple((behaviour, 0.4) for behaviour in BEHAVIOURS)
NASTY = Options(1, router="hostile", phbs=2, shbs=2, together=False, subscriptions=8, hostility=RATES)


def test_every_behaviour_happens_and_breaks_no_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: Counter[str] = Counter()
    happens = Hostility.happens

    def counted(hostility: Hostility, behaviour: str, share: float = 1.0) -> bool:
        done = happens(hostility, behaviour, share)
        shown[behaviour] += done
        return done

    monkeypatch.setattr(Hostility, "happens", counted)

    assert run_seed(NASTY).violation is None
    assert [behaviour for behaviour in BEHAVIOURS if not shown[behaviour]] == []


def test_once_it_is_stopped_it_is_honest() -> None:
    router = HostileRouter()
    router.start(0, RouterContext("p", 1, PAIR.network, {"hostility": {"lose": 1.0}}))
    router.link_up(0, LinkUp(7, "s", frozenset({"shb"}), 1))
    router.stop_hostility()

    assert router._station.hostility.quiet


def test_options_that_cannot_be() -> None:
    with pytest.raises(ConfigurationError, match="no option 'depth'"):
        open_routing(options={"depth": 3})


@pytest.mark.parametrize(
    "frame", [b"nonsense", encode(Private(1, b"")), encode(InterestQuestion(), ("whoever",))], ids=repr
)
def test_who_sends_nonsense_is_hung_up_on(frame: bytes) -> None:
    router = HostileRouter()
    router.start(0, RouterContext("p", 1, PAIR.network))
    router.link_up(0, LinkUp(7, "s", frozenset(), 1))

    _alarm, hangup = router.frame(0, FrameArrived(7, frame, 0))

    assert hangup == Hangup(7)
    assert router.link_up(0, LinkUp(8, "stranger", frozenset({"phb"}), 1)) == [Hangup(8)]
