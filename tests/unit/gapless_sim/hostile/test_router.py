"""Hostile routers between stand-ins that check what they are told: C1 to C9, whatever the rates are."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

from gapless.core.alarms import Alarm, AlarmCode
from gapless.core.network.facts import (
    AskPubend,
    Enrol,
    FrameArrived,
    Hangup,
    Hold,
    Know,
    LinkUp,
    Probe,
    Saved,
    SendFrame,
    Submitted,
)
from gapless.core.network.frames import InterestQuestion, Private, encode
from gapless.core.network.interest import InterestTable
from gapless.core.network.seam import Router, RouterContext
from gapless.errors import ConfigurationError
from gapless_sim.hostile import open_routing
from gapless_sim.hostile.hostility import BEHAVIOURS
from gapless_sim.hostile.router import HostileRouter
from gapless_testing.routing import PAIR
from unit.gapless_sim.hostile.network import SECOND, Network, settle

TWO_AND_TWO = {"a": ["phb", "shb"], "b": ["phb"], "c": ["shb"], "d": []}
TOPICS = ("x.1", "y.2", "x.3", "z.4")
UNSEEN = {"delay_interest", "drop_interest"}
"""They depend on how often interest is said: once in 5 s."""


def busy(network: Network, rounds: int = 60) -> None:
    """Subscriptions come and go, events are published, batches are placed, and everybody reports."""
    for shb in network.shbs():
        shb.subscribe(1, "x.#")
    network.run(2)
    entry = network["d"]
    pubends = [phb.pubend for phb in network.phbs()]
    for publisher in ("p1", "p2"):
        entry.open(publisher)
    for number in range(rounds):
        for phb in network.phbs():
            phb.publish(*TOPICS[: 1 + number % 4])
        entry.place("p1", 1, 1 + number, pubends[0])
        entry.place("p2", 1, 1 + number, pubends[1])
        if number % 10 == 5:
            for shb in network.shbs():
                sid = 2 + number // 10
                shb.subscribe(sid, TOPICS[number % 4]) if number % 20 == 5 else shb.unsubscribe(sid - 1)
        network.run(0.25)
    for shb in network.shbs():
        shb.needs = dict.fromkeys(shb.streams, shb.version)


def check_placed(network: Network) -> None:
    """C9: each placed batch and opening ended once; what is logged is logged in order and once."""
    network.run(10)
    for node in network.nodes.values():
        assert {reply_to: len(answers) for reply_to, answers in node.placed.items()} == dict.fromkeys(node.placed, 1)
    for phb in network.phbs():
        for logged in phb.logged.values():
            assert [sequence for sequence, _ in logged] == list(range(1, len(logged) + 1))


def happened(network: Network) -> Counter[str]:
    """How often each behaviour was shown, by anybody."""
    return sum((Counter(node.happened) for node in network.nodes.values()), Counter())


# ------------------------------------------------------------------------------------------- the honest


def test_hook_open_routing() -> None:
    router = open_routing(options={"hostility": {}})

    assert isinstance(router, Router)
    assert (router.name, router.needs_stream_links) == ("hostile", False)


@pytest.mark.parametrize(
    ("config", "reason"),
    [({"depth": 3}, "no option 'depth'"), ({"hostility": {"murder": 1.0}}, "no behaviour 'murder'")],
)
def test_options_that_cannot_be(config: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        HostileRouter().start(0, RouterContext("a", 1, PAIR.network, config))


def test_options_of_the_hook() -> None:
    with pytest.raises(ConfigurationError, match="no option 'depth'"):
        open_routing(options={"depth": 3})


def test_an_honest_router_pushes_what_is_wanted_and_nobody_has_to_ask() -> None:
    """C3, and V4: each event once."""
    network = Network(TWO_AND_TWO)
    busy(network)

    assert settle(network) == 0
    check_placed(network)
    for phb in network.phbs():
        assert phb.wants == []
        assert phb.released[-1].released >= phb.stable - 6000
        assert len(phb.logged) == 1
        assert all(len(logged) == 60 for logged in phb.logged.values())
    for shb in network.shbs():
        ticks = Counter((one.pubend, tick) for one in shb.delivered for tick in one.data.ticks)
        assert set(ticks.values()) == {1}
        assert any(one.stamp is not None for one in shb.delivered)


def test_an_idle_pubends_silence_arrives_within_sil() -> None:
    network = Network(TWO_AND_TWO)
    for shb in network.shbs():
        shb.subscribe(1, "x.#")
    network.run(3)
    for _ in range(20):
        for phb in network.phbs():
            phb.publish("nobody.wants.it")
        network.run(0.3)
        for shb in network.shbs():
            for phb in network.phbs():
                assert shb.heads[phb.pubend] >= phb.time() - 2100


@pytest.mark.parametrize("seed", range(3))
def test_an_honest_router_lives_with_bad_links(seed: int) -> None:
    network = Network(TWO_AND_TWO, seed=seed)
    network.loss, network.jitter = 0.2, SECOND // 2
    network.every(7 * SECOND, network.cut_all)
    busy(network)
    network.loss = 0.0

    settle(network)
    check_placed(network)
    assert any(phb.wants for phb in network.phbs())


def test_everything_in_one_node() -> None:
    network = Network({"a": ["phb", "shb"], "d": []})
    network.nodes["a"].shb.subscribe(1, "x.#")  # type: ignore[union-attr]
    network.run(2)
    network["a"].phb.publish("x.1", "y.1")  # type: ignore[union-attr]
    network.run(0.1)

    (pushed,) = [one for one in network.shbs()[0].delivered if one.data]
    assert [header.topic for header in pushed.data.headers] == ["x.1"]


def test_holds_are_carried_there_and_back() -> None:
    network = Network(TWO_AND_TWO)
    network.run(3)
    shb, pubend = network["c"].shb, network.phbs()[0].pubend
    assert shb is not None
    network["c"].tell(Hold(shb.shb, pubend, 4, {1: 0}))
    network.run(1)

    assert [(held.pubend, held.version) for held in shb.held] == [(pubend, 4)]


def test_probes_are_carried_to_every_shb() -> None:
    network = Network(TWO_AND_TWO)
    network.run(3)
    network["b"].tell(Probe(network["b"].phb.pubend, 7))  # type: ignore[union-attr]
    network.run(1)

    assert [[probed.upto for probed in shb.probed] for shb in network.shbs()] == [[7], [7]]


def test_a_pubend_whose_broker_is_gone_puts_publishers_off() -> None:
    network = Network(TWO_AND_TWO)
    network.run(3)
    pubend = network["b"].phb.pubend  # type: ignore[union-attr]
    network.broken = True
    network.cut_all()
    name = network["d"].place("p", 1, 1, pubend)
    network.run(5)

    assert [placed.outcome.verdict.value for placed in network["d"].placed[name]] == ["uncertain"]


def test_the_first_interest_enrols_and_no_answer_is_needed_twice() -> None:
    network = Network(TWO_AND_TWO)
    network.run(3)

    for node in (network["a"], network["b"]):
        enrolled = [effect.shb for effect in node.effects if isinstance(effect, Enrol)]
        assert sorted(set(enrolled)) == ["a@disk", "c@disk"]
        assert len(enrolled) <= 4


# ------------------------------------------------------------------------------------------ the hostile


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_a_behaviour_breaks_no_promise(behaviour: str) -> None:
    network = Network(TWO_AND_TWO, {behaviour: 0.5})
    network.loss = 0.1  # so that there are wants, and something to answer out of a cache
    busy(network)

    settle(network)
    check_placed(network)
    assert happened(network)[behaviour] > 0


@pytest.mark.parametrize("seed", range(4))
def test_all_of_them_together_break_no_promise(seed: int) -> None:
    network = Network(TWO_AND_TWO, dict.fromkeys(BEHAVIOURS, 0.15), seed)
    busy(network, 100)

    settle(network)
    check_placed(network)
    network.run(60)
    shown = happened(network)
    assert [behaviour for behaviour in BEHAVIOURS if not shown[behaviour] and behaviour not in UNSEEN] == []
    assert all(phb.released for phb in network.phbs())


def test_once_it_is_stopped_it_is_honest() -> None:
    network = Network(TWO_AND_TWO, dict.fromkeys(BEHAVIOURS, 0.3))
    busy(network, 20)
    for node in network.nodes.values():
        node.router.stop_hostility()
    network.run(25)  # what is late comes until then
    before = happened(network)
    busy(network, 20)

    assert settle(network) == 0
    assert happened(network) == before


def test_a_lie_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-ins are worth nothing unless they notice."""
    monkeypatch.setattr(InterestTable, "matches", lambda *_: 0)
    with pytest.raises(AssertionError):
        busy(Network(TWO_AND_TWO))


# ------------------------------------------------------------------------------------ other brokers' frames


@pytest.mark.parametrize(
    "frame", [b"nonsense", encode(Private(1, b"")), encode(InterestQuestion(), ("whoever",))], ids=repr
)
def test_who_sends_nonsense_is_hung_up_on(frame: bytes) -> None:
    router = HostileRouter()
    router.start(0, RouterContext("p", 1, PAIR.network))
    router.link_up(0, LinkUp(7, "s", frozenset(), 1))

    refused, hangup = router.frame(0, FrameArrived(7, frame, 0))

    assert isinstance(refused, Alarm)
    assert (refused.code, refused.about) == (AlarmCode.NODE_REFUSED, "s")
    assert hangup == Hangup(7)


def test_who_is_not_on_the_map_is_hung_up_on() -> None:
    router = HostileRouter()
    router.start(0, RouterContext("p", 1, PAIR.network))

    assert router.link_up(0, LinkUp(7, "stranger", frozenset({"phb"}), 1)) == [Hangup(7)]


def test_frames_of_links_that_are_gone_mean_nothing() -> None:
    router = HostileRouter()
    router.start(0, RouterContext("p", 1, PAIR.network))

    assert router.frame(0, FrameArrived(7, b"nonsense", 0)) == []
    assert list(router.saved(0, Saved(None))) == []


# ----------------------------------------------------------------------------------------------- purity


def digest_of_a_run(seed: int) -> str:
    """What four routers asked for in a busy time."""
    network = Network(TWO_AND_TWO, dict.fromkeys(BEHAVIOURS, 0.1), seed)
    busy(network, 20)
    network.run(10)
    digest = blake2b(digest_size=8)
    for node in network.nodes.values():
        for effect in node.effects:
            kind = type(effect).__name__
            said: Any = effect.frame if isinstance(effect, SendFrame) else effect
            if isinstance(effect, (AskPubend, Know, Submitted, SendFrame)):
                digest.update(f"{kind} {said!r}".encode())
            else:
                digest.update(kind.encode())
    return digest.hexdigest()


def test_c6_the_same_seed_and_calls_give_the_same_effects() -> None:
    assert digest_of_a_run(3) == digest_of_a_run(3)
    assert digest_of_a_run(3) != digest_of_a_run(4)


def test_c6_in_every_process() -> None:
    here = digest_of_a_run(3)
    tests = str(Path(__file__).parents[3])
    program = f"import sys; sys.path.insert(0, {tests!r}); from {__name__} import digest_of_a_run as d; print(d(3))"
    for hash_seed in ("1", "2"):
        found = subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
            text=True,
        )
        assert found.stdout.strip() == here
