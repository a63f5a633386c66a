"""How many join at once: each is settled by the first run that honours its version, and costs nobody else (T45)."""

from __future__ import annotations

from gapless.core.stream.knowledge import Knowledge, KnowledgeStream
from gapless.core.stream.ticks import FOREVER
from gapless_shb.core.live.joining import JoiningSubscriptions
from gapless_shb.core.state.positions import SubscriptionPosition


def joining_of(count: int) -> tuple[JoiningSubscriptions, KnowledgeStream, dict[int, SubscriptionPosition]]:
    """Subscription n waits for version n."""
    istream = KnowledgeStream("p@1", 0)
    joining = JoiningSubscriptions("shb", istream)
    positions = {sid: SubscriptionPosition(0) for sid in range(1, count + 1)}
    for sid in reversed(positions):
        joining.add(sid, positions[sid], sid)
    return joining, istream, positions


def test_a_run_settles_those_whose_version_it_honours() -> None:
    joining, istream, positions = joining_of(6)
    joining.remove(2)
    istream.accumulate(Knowledge("p@1", 0, 10, stamp={"shb": 4}))

    assert joining.activate(0, 10) == [1, 3, 4]
    assert [positions[sid].since for sid in (1, 2, 3, 4, 5)] == [0, FOREVER, 0, 0, FOREVER]
    assert joining.activate(0, 10) == []


def test_what_is_required_grows_where_those_who_joined_are_covered() -> None:
    joining, istream, positions = joining_of(3)
    for sid, start in ((1, 7), (2, 3), (3, 5)):
        positions[sid].start = start
    istream.accumulate(Knowledge("p@1", 0, 10, stamp={"shb": 3}))
    assert joining.activate(0, 10) == [1, 2, 3]

    assert (joining.need, joining.next_change(0)) == ({"shb": 0}, 3)
    joining.passed(3)
    assert (joining.need, joining.next_change(3)) == ({"shb": 2}, 5)
    joining.remove(3)
    assert joining.next_change(3) == 7
    joining.passed(6)
    assert joining.need == {"shb": 2}
    joining.passed(7)
    assert (joining.need, joining.next_change(7)) == ({"shb": 2}, FOREVER)


def test_unfiltered_knowledge_honours_everybody() -> None:
    joining, istream, _ = joining_of(50)
    istream.accumulate(Knowledge("p@1", 0, 10))

    assert joining.activate(0, 10) == list(range(1, 51))
    joining.passed(0)
    assert joining.need == {"shb": 50}
