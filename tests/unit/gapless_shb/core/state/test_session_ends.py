"""What ends with a session ends with it, once, and in the order in which it began."""

from __future__ import annotations

from gapless_shb.core.state.session_ends import End, SessionEnds


def noting(what: str, ended: list[str]) -> End:
    def end(_now: int, _wall: int) -> None:
        ended.append(what)

    return end


def test_what_is_over_by_itself_does_not_end_with_its_session() -> None:
    ends, ended = SessionEnds(), list[str]()
    for session, what in ((1, "a"), (1, "b"), (2, "c"), (1, "d")):
        ends.add(session, what, noting(what, ended))
    ends.remove(1, "b")
    ends.remove(1, "b")
    ends.remove(7, "b")

    ends.end(1, 0, 0)
    assert ended == ["a", "d"]
    assert len(ends) == 1
    ends.end(1, 0, 0)
    assert ended == ["a", "d"]


def test_what_ends_may_end_others_of_its_session_and_begin_new_ones() -> None:
    """An unsubscribed creation takes the requests with it that wait for it."""
    ends, ended = SessionEnds(), list[str]()

    def end_both(_now: int, _wall: int) -> None:
        ended.append("a")
        ends.remove(1, "b")
        ends.add(1, "c", noting("c", ended))

    ends.add(1, "a", end_both)
    ends.add(1, "b", noting("b", ended))
    ends.end(1, 0, 0)

    assert ended == ["a", "c"]
    assert len(ends) == 0
