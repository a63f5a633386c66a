"""The operator is told of clients that break the protocol, but not a thousand times."""

from __future__ import annotations

from gapless.core.server.complaints import MAX, OF_A_HOST_MAX, PERIOD, Complaints


def test_it_is_said_who_and_why() -> None:
    complaints = Complaints()

    assert complaints.text("10.0.0.1:5", "desk", "nonsense", 0) == (
        "the connection with 10.0.0.1:5, client 'desk' ended: nonsense"
    )
    assert complaints.text("10.0.0.2:5", None, "noise", 0) == "the connection with 10.0.0.2:5 ended: noise"


def test_what_a_client_wrote_paints_nothing_and_is_cut() -> None:
    text = Complaints().text("10.0.0.1:5", "\x1b", "a\nb\x1b[31m" + "x" * 10_000, 0)

    assert text is not None
    assert text.isprintable()
    assert len(text) < 400


def test_one_host_is_told_of_a_few_times_and_the_rest_is_counted() -> None:
    complaints = Complaints()
    told = [complaints.text(f"10.0.0.1:{port}", "", "nonsense", port) for port in range(20)]

    assert [text is not None for text in told] == [number < OF_A_HOST_MAX for number in range(20)]
    later = complaints.text("10.0.0.1:1", "", "nonsense", PERIOD + 30)
    assert later is not None
    assert later.endswith(" (and 15 more like it, which were not told)")


def test_all_hosts_together_have_a_limit() -> None:
    complaints = Complaints()
    told = [complaints.text(f"10.0.{host}.1:1", "", "nonsense", 0) for host in range(2 * MAX)]

    assert sum(text is not None for text in told) == MAX
