"""A node as tools see it over HTTP: from before it opens its volume until after its end, in a thread of its own.

What is asked of the node comes to its loop, and only what has to: figures, and what the rules say of somebody. Who that
is, is judged in the thread, by authenticators that are only for this.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, Protocol

from gapless.core.alarms import Note, Subject
from gapless.core.ports import Action, AuthContext, Authenticator
from gapless.core.server.audit import of_observer
from gapless.core.server.reception import Reception
from gapless.errors import ConfigurationError
from gapless.node.gauges import SERVING
from gapless.observe.gate import DeniedError, Gate, usable
from gapless.observe.snapshot import Snapshots
from gapless.observe.visits import Visits
from gapless.spi import LendsSockets

if TYPE_CHECKING:
    from gapless.core.alarms import RaisedAlarm
    from gapless.core.gauges import Gauge
    from gapless.core.principals import Principal
    from gapless.core.server.audit import AuditLine, AuditOutcome
    from gapless.node.assembly import Loaded
    from gapless.node.config import AuthSection, ObserveSection
    from gapless.observe.health import Health
    from gapless.observe.http import Server

NEEDED: Final = ("starlette", "uvicorn")
DECIDED_WITHIN: Final = 5.0
"""Seconds that the node's loop has to say what the rules allow."""
STATUS: Final = "status"
"""What somebody looks at, as rules name it: the same as over gapless's own protocol."""


class Observed(Protocol):
    """The node, on its loop."""

    def parts(self) -> Iterator[Iterable[Gauge | RaisedAlarm]]:
        """Begins to tell its figures and alarms, part by part."""

    def note(self, note: Note) -> None:
        """Puts it into the operator's log."""

    @property
    def audit_room(self) -> int | None:
        """How many lines of the audit can be taken; None: nobody writes one. Asked in any thread."""

    def audit(self, line: AuditLine) -> None:
        """Has it written, with the time of now."""


def check_extra() -> None:
    """Raises ConfigurationError if what HTTP needs is not installed."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise ConfigurationError(f"HTTP needs {' and '.join(missing)}: pip install 'gapless[observe]'")


def judges_of(
    section: ObserveSection, authenticators: Mapping[str, Authenticator], *, is_local: bool
) -> dict[str, Authenticator] | None:
    """Those of the authenticators that say who looks; None: everybody may look.

    `is_local`: whether only this machine can reach the address. Raises ConfigurationError if nobody could look.
    """
    if section.auth is None and is_local:
        return None
    judges = usable(
        {name: each for name, each in authenticators.items() if section.auth is None or name in section.auth}
    )
    if not judges:
        raise ConfigurationError(
            "auth: nobody could look, for none of the authenticators works over HTTP. `token` does, for bearer tokens,"
            " and so does `certificate`: add an [[auth]] with one of them"
        )
    return judges


class Observing:
    """The HTTP side of one node."""

    def __init__(self, url: str, server: Server) -> None:
        """Use `begin`."""
        self.url = url
        """What tools ask, with the address really bound."""
        self._server = server

    @classmethod
    async def begin(
        cls, loaded: Loaded, node: Observed, health: Health, clock: Callable[[], tuple[int, int]]
    ) -> Observing:
        """Answers from now on. Raises ConfigurationError if the address cannot be bound."""
        from gapless.observe.http import Server
        from gapless.observe.pages import Pages

        section, transport = loaded.config.observe, loaded.observer
        assert section is not None
        assert transport is not None
        loop, name = asyncio.get_running_loop(), loaded.config.node.name
        is_local = transport.is_loopback(section.address)
        judges = judges_of(section, _authenticators(loaded, clock), is_local=is_local)
        gate = None
        if judges is not None:
            decide = _Decisions(loaded, node, loop)
            reception = Reception(judges.values(), is_local=is_local)
            visits = None if node.audit_room is None else Visits(decide.tell, lambda: node.audit_room != 0)
            gate = Gate(reception, decide.refusal, decide.note, secure=transport.encrypts, visits=visits)
        assert isinstance(transport, LendsSockets)
        sockets, address = await transport.bind(section.address)
        pages = Pages(name, health, Snapshots(loop, node.parts), lambda: [SERVING.gauge(False, name)], gate)
        server = Server(sockets, transport, pages.app, health.look)
        await loop.run_in_executor(None, server.start)
        return cls(f"http{'s' if transport.encrypts else ''}://{address}", server)

    def end(self) -> None:
        """Answers nobody any more. Blocks until the answers that were begun are given, for some seconds at most."""
        self._server.stop()


class _Decisions:
    """What the thread asks of the node's loop about somebody."""

    def __init__(self, loaded: Loaded, node: Observed, loop: asyncio.AbstractEventLoop) -> None:
        self._authority = loaded.authorizer
        self._node = node
        self._loop = loop

    async def refusal(self, principal: Principal) -> str:
        """As of the rules that count. Raises DeniedError if the node does not say."""
        if not self._authority.asks:
            return ""
        asked = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._decide(principal), self._loop))
        await asyncio.wait([asked], timeout=DECIDED_WITHIN)
        if not asked.done():
            raise DeniedError(503, "the broker has not said whether you may look: come again")
        return asked.result()

    def note(self, text: str) -> None:
        """For the operator's log."""
        with suppress(RuntimeError):  # the loop is closed: nobody is left to be told
            self._loop.call_soon_threadsafe(self._node.note, Note(Subject.CLIENT, text))

    def tell(self, principal: Principal, address: str, outcome: AuditOutcome, reason: str) -> None:
        """For the audit."""
        with suppress(RuntimeError):  # as above
            self._loop.call_soon_threadsafe(self._node.audit, of_observer(principal, address, outcome, reason))

    async def _decide(self, principal: Principal) -> str:
        return self._authority.refusal(principal, Action.OBSERVE, STATUS)


def _authenticators(loaded: Loaded, clock: Callable[[], tuple[int, int]]) -> dict[str, Authenticator]:
    """All that there are, anew. Users of the volume are none of theirs: passwords are not taken over HTTP."""
    context = AuthContext({}, b"", wall=lambda: clock()[1], now=lambda: clock()[0], end=lambda _name, _reason: None)

    def opened(section: AuthSection) -> Authenticator:
        made: Authenticator = loaded.open_auth[section.plugin](options=section.options, context=context)
        return made

    return {section.plugin: opened(section) for section in loaded.config.auth}
