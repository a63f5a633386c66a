"""Each fault does what it says, is drawn from its own stream, and repeats."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from gapless_transport.faults import FaultOptions, FaultyWire, LinkResetError, Wire

PAYLOADS = [index.to_bytes(2, "big") for index in range(2000)]
NEVER = 1e9


def wire(label: str = "a", **faults: float) -> FaultyWire:
    return FaultyWire(FaultOptions.model_validate(faults), label, lambda: False)


def sent_at_once(through: Wire, now: float = 0.0) -> list[bytes]:
    """What has arrived after everything was put in and all time has passed."""
    through.put(PAYLOADS, now)
    return through.take(NEVER)


def sent_in_time(through: Wire, step: float = 0.001) -> list[tuple[float, bytes]]:
    """When what arrived, if a frame is put in at every step."""
    arrived: list[tuple[float, bytes]] = []
    now = 0.0
    for payload in PAYLOADS:
        through.put([payload], now)
        arrived += [(now, payload) for payload in through.take(now)]
        now += step
    while through.size:
        now = max(now, through.next_at())
        arrived += [(now, payload) for payload in through.take(now)]
    return arrived


def test_no_fault_is_on_unless_it_is_asked_for() -> None:
    assert not FaultOptions().faulty
    assert not FaultOptions(seed=1, late_max=1, outage_max=1).faulty
    assert sent_at_once(wire()) == PAYLOADS
    assert sent_at_once(Wire(lambda: False)) == PAYLOADS


@pytest.mark.parametrize(
    "fault", ["drop", "duplicate", "reorder", "delay_min", "delay_mean", "cut", "partition", "reset", "chop"]
)
def test_every_fault_makes_it_faulty(fault: str) -> None:
    assert FaultOptions.model_validate({fault: 1}).faulty


@pytest.mark.parametrize(
    "faults",
    [{"drop": 0.3}, {"duplicate": 0.3}, {"reorder": 0.3}, {"delay_mean": 0.01}, {"cut": 0.01}, {"reset": 0.001}],
    ids=lambda faults: next(iter(faults)),
)
def test_a_seed_and_a_label_repeat_and_differ(faults: Mapping[str, float]) -> None:
    def outcome(label: str, seed: int) -> object:
        through = wire(label, seed=seed, **faults)
        try:
            return sent_in_time(through)
        except LinkResetError:
            return through.take(NEVER)

    assert outcome("a", 1) == outcome("a", 1)
    assert outcome("a", 1) != outcome("b", 1)
    assert outcome("a", 1) != outcome("a", 2)


def test_one_fault_does_not_move_another() -> None:
    dropped_alone = set(PAYLOADS) - set(sent_at_once(wire(drop=0.1)))
    dropped_beside = set(PAYLOADS) - set(sent_at_once(wire(drop=0.1, duplicate=0.2, delay_mean=0.1)))

    assert dropped_alone == dropped_beside
    assert 100 < len(dropped_alone) < 300


def test_dropped_frames_are_lost_and_the_others_in_order() -> None:
    received = sent_at_once(wire(drop=0.5))

    assert received == sorted(received)
    assert 800 < len(received) < 1200


def test_duplicates_come_at_most_so_late() -> None:
    through = wire(duplicate=0.2, late_max=0.02)
    times: dict[bytes, list[float]] = {}
    for now, payload in sent_in_time(through):
        times.setdefault(payload, []).append(now)

    doubled = [when for when in times.values() if len(when) == 2]
    assert set(times) == set(PAYLOADS)
    assert 300 < len(doubled) < 500
    assert 0.01 < max(last - first for first, last in doubled) < 0.022


def test_reordered_frames_are_overtaken_and_none_is_lost() -> None:
    received = [payload for _, payload in sent_in_time(wire(reorder=0.1, late_max=0.02))]

    assert sorted(received) == PAYLOADS
    assert received != PAYLOADS


def test_delayed_frames_stay_in_order() -> None:
    through = wire(delay_min=0.5, delay_mean=0.1)
    arrived = sent_in_time(through)

    assert [payload for _, payload in arrived] == PAYLOADS
    assert arrived[0][0] >= 0.5
    waits = [now - index * 0.001 for index, (now, _) in enumerate(arrived)]
    assert sum(waits) / len(waits) > 0.55


def test_what_is_under_way_has_a_size() -> None:
    through = wire(delay_min=1.0)
    through.put([b"abc", b"de"], 0.0)

    assert (through.size, through.next_at()) == (5, 1.0)
    assert through.take(0.9) == []
    assert through.take(1.0) == [b"abc", b"de"]
    assert through.size == 0


def test_a_cut_loses_everything_for_a_while() -> None:
    arrived = [payload for _, payload in sent_in_time(wire(cut=0.005, outage_max=0.05))]
    lost = [index for index, payload in enumerate(PAYLOADS) if payload not in set(arrived)]
    runs = [1 for before, after in zip([-2, *lost], lost, strict=False) if after != before + 1]

    assert lost
    assert len(lost) > 5 * len(runs)
    assert len(arrived) > len(PAYLOADS) // 2


def test_a_partition_darkens_both_directions_and_a_cut_one() -> None:
    for kind, dark in (("partition", True), ("cut", False)):
        there, back = wire("there", **{kind: 1.0, "outage_max": 10}), wire("back", drop=0.0)
        there.other, back.other = back, there
        there.put([b"lost"], 0.0)
        back.put([b"back"], 0.001)

        assert there.take(NEVER) == []
        assert (back.take(NEVER) == []) is dark


def test_a_reset_breaks_the_link() -> None:
    through = wire(reset=0.01)

    with pytest.raises(LinkResetError):
        through.put(PAYLOADS, 0.0)
    assert 0 < len(through.take(NEVER)) < len(PAYLOADS)


@pytest.mark.parametrize("chop", [1, 3, 1000])
def test_chopped_frames_are_put_together(chop: int) -> None:
    assert sent_at_once(wire(chop=chop)) == PAYLOADS


@pytest.mark.parametrize("kind", [Wire, FaultyWire])
def test_a_barred_wire_loses_everything(kind: type[Wire]) -> None:
    barred = [True]
    faults = FaultOptions()
    through = FaultyWire(faults, "a", lambda: barred[0]) if kind is FaultyWire else Wire(lambda: barred[0])
    through.put([b"lost"], 0.0)
    barred[0] = False
    through.put([b"kept"], 0.0)

    assert through.take(NEVER) == [b"kept"]
