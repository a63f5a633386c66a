"""What SHBs write to each other about subscriptions that are consumed elsewhere, in short human words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.network.bytes_above import BytesAbove
from gapless.core.wire.messages import Code, RequestFailed, Subscribe, Subscribed
from gapless_shb.core.roaming import mail

if TYPE_CHECKING:
    from gapless.core.network.facts import Posted
    from gapless.core.wire.messages import Acknowledged
    from gapless_sim.recording.short_names import Names


def mail_text(posted: Posted, names: Names) -> str:
    """What mail says, and who says it."""
    said = mail.decode(posted.data) if posted.role == mail.ROLE else None
    if said is None:
        return f"{len(posted.data)} bytes from {posted.from_node} for {posted.role}"
    return f"{posted.from_node} by mail: {_text(said, names)}"


def _text(said: mail.Mail, names: Names) -> str:
    if isinstance(said, mail.Ask):
        verb = "subscribe" if isinstance(said.request, Subscribe) else "unsubscribe"
        return f"{said.client_id} asks here to {verb} {said.request.name}"
    if isinstance(said, mail.Answer):
        return _answer(said.message)
    if isinstance(said, mail.Renew):
        who = "has gone" if said.leaves else "is here"
        return f"the consumer of subscription {said.sid} {who}{_acknowledged(said.acknowledged, names)}"
    if isinstance(said, mail.Renewed):
        return f"subscription {said.sid} stays with you{_positions(said.standing, names)}"
    if isinstance(said, mail.CommitAtHome):
        return f"subscription {said.sid}: commit{_acknowledged(said.positions, names)}"
    if isinstance(said, BytesAbove):
        return f"{said.pubend} has {', '.join(map(str, said.above))} bytes above the ticks that were asked about"
    if isinstance(said, mail.CommittedAtHome):
        return f"subscription {said.sid}: committed"
    if isinstance(said, mail.Ended):
        why = "" if said.code is Code.CLOSED else f": {said.reason}"
        return f"subscription {said.sid} is no longer with you{why}"
    if isinstance(said, mail.Withdraw):
        return "who has asked has gone"
    return "wait for the answer"


def _answer(message: object) -> str:
    if isinstance(message, Subscribed):
        return f"subscription {message.sid} is with you{' and was created' if message.created else ''}"
    return f"refused: {message.reason}" if isinstance(message, RequestFailed) else "it is done"


def _acknowledged(acknowledged: tuple[Acknowledged, ...], names: Names) -> str:
    positions = names.positions({each.pubend: each.tick for each in acknowledged})
    return f", and done with {positions}" if acknowledged else ""


def _positions(standing: mail.Standing, names: Names) -> str:
    return f", done with {names.positions({row.pubend: row.acked for row in standing.rows})}" if standing.rows else ""
