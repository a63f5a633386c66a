from __future__ import annotations

from gapless_sim.recording.trace import Line, Trace


def test_equal_runs_have_equal_hashes_whether_lines_are_kept_or_not() -> None:
    one, other = Trace(keep=True), Trace()
    for trace in (one, other):
        for at in range(1000):
            trace.step(at, "node", "turn", 7)
        trace.note(1000, "node", "crash", "with the power")

    assert one.digest() == other.digest()
    assert one.lines == [Line(1000, "node", "crash", "with the power")]
    assert other.lines == []
    assert one.steps == 1000


def test_any_difference_shows() -> None:
    digests = set()
    for step in [(1, "node", "turn", 0), (2, "node", "turn", 0), (1, "edon", "turn", 0), (1, "node", "turn", 1)]:
        trace = Trace()
        trace.step(*step)
        digests.add(trace.digest())

    assert len(digests) == 4
