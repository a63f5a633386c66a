"""What tests of bad input have in common: somebody at work beside them, and every message that a client may say."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

from gapless.core.wire.messages import (
    PROTOCOL,
    Acknowledge,
    Acknowledged,
    AcknowledgeDurably,
    AddUser,
    AnyClientMessage,
    AskBound,
    AskEarliest,
    AskHeads,
    AskStatus,
    Attach,
    ChangeUser,
    ClosePublisher,
    Commit,
    Credit,
    Detach,
    EndLease,
    EndRead,
    Extend,
    Hello,
    Holds,
    InUse,
    Kind,
    ListPubends,
    ListSubscriptions,
    ListUsers,
    OnChange,
    OpenPublisher,
    Position,
    ReadOn,
    ReadRange,
    RemoveUser,
    Renew,
    Retire,
    Settle,
    Sharing,
    StartAt,
    Subscribe,
    Subscribed,
    Take,
    TakeLease,
    Target,
    Unit,
    Unsubscribe,
    Verdict,
    Verifier,
)
from integration.bystander import Bystander
from integration.raw_client import RawClient


@contextlib.asynccontextmanager
async def welcome_client(bystander: Bystander) -> AsyncIterator[RawClient]:
    """A client that is welcome, and means no good."""
    async with RawClient(bystander.address) as client:
        await client.shake_hands()
        yield client


def variants(message: Any, value: int) -> Iterator[Any]:
    """The message, as lists and numbers, with each number of it in turn replaced by `value`."""
    if isinstance(message, int) and not isinstance(message, bool):
        yield value
    elif isinstance(message, list):
        for index, part in enumerate(message):
            for variant in variants(part, value):
                yield [*message[:index], variant, *message[index + 1 :]]


VERIFIER = Verifier(b"salt" * 4, 15_000, bytes(32), bytes(32))


def requests(pubend: str, tick: int, sid: int) -> list[AnyClientMessage]:
    """Every message of a client that has a number in it."""
    position = [Position(pubend, tick)]
    return [
        Hello(PROTOCOL, "", "attacker", "raw"),
        OpenPublisher(3, "raw", "raw", 1, None, pubend),
        subscribe(request=5, start=StartAt.TIME, start_wall=1_700_000_000_000),
        subscribe(request=6, start=StartAt.TOKEN, positions=position),
        subscribe(request=7, start=StartAt.TOKEN, positions=position, token_sid=sid, token_generation=1),
        subscribe(request=7, name="changed", selector="n = 1", on_change=OnChange.KEEP_POSITION, no_local=True),
        subscribe(request=8, sid=sid, generation=1, acknowledged=[Acknowledged(pubend, tick, tick)]),
        Credit(sid, 100, 100_000),
        Acknowledge(sid, [Acknowledged(pubend, tick, tick)]),
        commit(sid, 1, pubend, tick),
        Commit(sid, 1, 2, [], None, pubend),
        subscribe(request=7, name="shared", sharing=Sharing(100, True, holds=(holds(pubend, tick),))),
        *of_sharing(sid, pubend, tick),
        Detach(sid),
        Unsubscribe(9, "nobody's", "attacker"),
        ListSubscriptions(10),
        ListPubends(11),
        AskStatus(11),
        AddUser(22, "nobody", VERIFIER, ("g",)),
        ChangeUser(23, "nobody", VERIFIER, ("g",)),
        RemoveUser(24, "nobody else"),
        ListUsers(25),
        Renew(26, "scram", b"nothing"),
        ClosePublisher(3),
        Retire(12, "nobody's", only_look=True),
        Attach(13, "read", ("noise",), "", StartAt.TOKEN, 0, position, 0, 0, b""),
        Attach(14, "read", ("noise",), "n = 1", StartAt.TIME, 1_700_000_000_000, None, sid, 1, b"seal"),
        AskHeads(15, Target("durable"), position, 1),
        AskHeads(16, Target("", sid, 1), None, 0),
        AskBound(17, Target("durable"), position, 10, 1000),
        AskEarliest(18, Target("durable")),
        AcknowledgeDurably(19, Target("durable"), b"", position),
        TakeLease(20, Target("read"), "owner", InUse.WAIT),
        ReadRange(21, Target("durable"), pubend, 0, tick, 10, 1000),
        ReadOn(21, 10, 1000),
        EndRead(21),
        EndLease(20),
    ]


def of_sharing(sid: int, pubend: str, tick: int) -> list[AnyClientMessage]:
    """What a consumer of a shared subscription says of events."""
    held = holds(pubend, tick)
    return [
        Take(sid, held),
        Settle(sid, 1, (Verdict(Kind.ACKNOWLEDGE, held), Verdict(Kind.RETRY, held, 5))),
        Extend(sid, held),
    ]


def holds(pubend: str, tick: int) -> Holds:
    """An event that may be held."""
    return Holds(pubend, (tick,), (1,))


def commit(sid: int, epoch: int, pubend: str, tick: int) -> Commit:
    """Everything is done with, and two events are handed out next, which may have been before."""
    done = [Acknowledged(pubend, tick, tick)]
    return Commit(sid, epoch, 1, done, Unit(pubend, tick + 1, tick + 2, counted=True))


def subscribe(**fields: Any) -> Subscribe:
    """A subscription to noise, not durable."""
    defaults: dict[str, Any] = {
        "request": 1,
        "name": None,
        "topics": ("noise",),
        "selector": "",
        "start": StartAt.LATEST,
        "start_wall": 0,
        "positions": None,
        "token_sid": 0,
        "token_generation": 0,
        "token_seal": b"",
        "acknowledged": [],
        "in_use": InUse.ERROR,
        "credit_events": 100,
        "credit_bytes": 100_000,
    }
    return Subscribe(**defaults | fields)


QUICK = {"shb": {"checkpoint_seconds": 0.01}, "phb": {"release_seconds": 0.01}}
"""What is only noted at first is soon written down, and so has to be something that can be."""


async def attached(client: RawClient) -> tuple[int, str, int]:
    """Attaches to a durable subscription; returns its id, a pubend and a tick that it stands at."""
    await client.say(subscribe(name="durable"))
    subscribed = await client.hear(Subscribed)
    [position] = subscribed.positions
    return subscribed.sid, position.pubend, position.tick
