"""What a shared subscription can be asked for: wrong things are refused before the broker is asked."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest

import gapless
from gapless.core.wire import messages as m
from unit.gapless.client.shared_work import Work

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no name": ({"name": None}, "needs a name"),
    "a token": ({"start": gapless.CheckpointToken("net", {})}, "no position, so no token"),
    "silence": ({"silence": True}, "silence=True: it has no position"),
    "order": ({"order": "total"}, "order='total': its events go to many"),
    "no_local": ({"no_local": True}, "no_local=True: whose events"),
    "in_use": ({"in_use": "takeover"}, "in_use='takeover': many may consume"),
    "no window": ({"window": 0}, "window is a number of events from 1 to 1,048,576"),
    "a large window": ({"window": 1 << 21}, "window is"),
    "half an event": ({"window": 1.5}, "window is"),
    "a negative time": ({"hold_seconds": -1}, "hold_seconds is a number of seconds"),
    "no time": ({"resume_seconds": None}, "resume_seconds is a number of seconds"),
    "a long time": ({"resume_seconds": 1e10}, "resume_seconds is 4,398,046,511 seconds at most"),
    "prefetch": ({"prefetch": 0}, "prefetch"),
}


@pytest.mark.parametrize(("options", "text"), REFUSED.values(), ids=REFUSED)
async def test_what_a_shared_one_cannot_be_is_refused_at_once(work: Work, options: dict[str, Any], text: str) -> None:
    with pytest.raises(gapless.ConfigurationError, match=text):
        _ = work.session.subscribe("t", shared=True, **{"name": "workers", **options})

    assert not work.broker.messages(m.Subscribe)


@pytest.mark.parametrize("option", ["durable", "window", "hold_seconds", "resume_seconds"])
async def test_its_options_are_of_no_other(work: Work, option: str) -> None:
    options: dict[str, Any] = {option: 5}
    with pytest.raises(gapless.ConfigurationError, match=f"{option} is an option of shared subscriptions"):
        _ = work.session.subscribe("t", name="s", **options)


async def test_its_options_go_to_the_broker(work: Work) -> None:
    at = datetime(2024, 1, 1, tzinfo=timezone.utc)
    async with work.subscribe(
        start=at, durable=False, window=10, selector="n > 1", prefetch=7, on_change="keep_position", order="pubend"
    ) as jobs:
        assert (jobs.name, jobs.topics, jobs.selector) == ("workers", ("t",), "n > 1")
        assert repr(jobs) == "<SharedSubscription 'workers' to t>"
        assert (jobs.was_there, jobs.is_over) == (False, False)
    assert repr(jobs) == "<SharedSubscription 'workers' to t, over>"

    [asked] = work.broker.messages(m.Subscribe)
    assert asked.sharing == m.Sharing(window=10, durable=False)
    assert (asked.selector, asked.credit_events, asked.on_change) == ("n > 1", 7, m.OnChange.KEEP_POSITION)
    assert (asked.start, asked.start_wall) == (m.StartAt.TIME, 1_704_067_200_000)


async def test_by_default_a_consumer_has_little_on_its_way(work: Work) -> None:
    async with work.subscribe():
        pass

    [asked] = work.broker.messages(m.Subscribe)
    assert asked.sharing == m.Sharing(window=4096, durable=True, hold_ms=0, resume_ms=5000)
    assert asked.credit_events == 256


async def test_an_older_broker_is_told_apart(work: Work) -> None:
    work.broker.answers = ()
    work.network.cut()
    with pytest.raises(gapless.ConfigurationError, match="too old for shared subscriptions"):
        await work.subscribe()
