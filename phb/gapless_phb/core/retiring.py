"""Giving an SHB up for good, as an administrator asks for it (protocol: members; T10).

Members are durable, and a log waits for each of them: one SHB that never comes back would keep every log
for ever. Nobody but an administrator can know that it will not. Whom he has named stays written down, so
that he may say it twice, and so that a name which was mistyped is told from one that is gone.
"""

from __future__ import annotations

from collections.abc import Mapping

from gapless.core.outbox import Outbox
from gapless.core.ports import ClientSession, RecoveryReader, Set, Tell
from gapless.core.stream.ticks import PubendId, ShbId
from gapless.core.wire.messages import Code, RequestFailed, Retire, Retired
from gapless_phb.core import rows
from gapless_phb.core.pubend import Pubend


class Retiring:
    """What administrators ask about SHBs, and what comes of it."""

    def __init__(
        self,
        own: ShbId,
        pubends: Mapping[PubendId, Pubend],
        outbox: Outbox,
        tables: rows.Tables,
        reader: RecoveryReader,
    ) -> None:
        """`own`: the SHB of the same node, or "". `pubends`: all of this broker, as they come."""
        self._own = own
        self._pubends = pubends
        self._outbox = outbox
        self._tables = tables
        self._retired = {name.decode(): None for name, _ in reader.scan(tables.retired)}

    def on_retire(self, session: ClientSession, request: Retire, _now: int, _wall: int) -> None:
        """Says what waits for an SHB, and gives it up unless that is all that was asked; one answer follows."""
        shb, fault = self._find(request.shb)
        if not fault and not request.only_look and shb == self._own:
            fault = f"SHB {shb!r} runs in this very node: it cannot be given up while it does"
        if fault:
            self._outbox.emit(Tell(session.number, RequestFailed(request.request, Code.CONFIGURATION, fault)))
            return
        answer = Tell(session.number, Retired(request.request, shb, self._counted_by(shb), shb in self._retired))
        if request.only_look:
            self._outbox.emit(answer)
        else:
            self.retire(shb)
            self._outbox.write([], lambda _now, _wall: self._outbox.emit(answer))

    def retire(self, shb: ShbId) -> None:
        """Gives an SHB up: no log waits for it any more, and if it returns it meets a gap."""
        self._retired[shb] = None
        self._outbox.write([Set(self._tables.retired, shb.encode(), rows.encode(1))])
        for pubend in self._pubends.values():
            pubend.retire(shb)

    def _counted_by(self, shb: ShbId) -> list[PubendId]:
        return [name for name, pubend in self._pubends.items() if pubend.release.is_member(shb)]

    def _find(self, name: str) -> tuple[ShbId, str]:
        """The one SHB that is called so, by its whole id or by its node alone; or what is wrong."""
        members = {shb: None for pubend in self._pubends.values() for shb in pubend.release.members}
        known = sorted({**members, **self._retired})
        found = [shb for shb in known if name in {shb, shb.partition("@")[0]}]
        if name in found:
            return name, ""
        if len(found) == 1:
            return found[0], ""
        if found:
            # Never a guess: of a node whose disk was replaced, one is gone, and the other one is in its place.
            return name, f"several SHBs are called {name!r}, name one of them in full: {', '.join(found)}"
        counted = ", ".join(sorted(members)) or "none"
        return name, f"no pubend of this broker counts an SHB {name!r}; those that count: {counted}"
