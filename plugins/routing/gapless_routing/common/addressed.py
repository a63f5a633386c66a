"""What goes to a certain node: rows of holds to the pubend, the answers to them, and mail of roles.

Each says on its envelope for which node it is, or from which one it came, and each broker sends it one step on.
"""

from __future__ import annotations

from gapless.core.network.facts import BrokerId, Held, Hold, Post, Posted
from gapless.core.network.frames import Address
from gapless.core.stream.ticks import ShbId
from gapless_routing.common.routed_placing import Unicast
from gapless_routing.common.router_state import RouterState


class Addressed:
    """Holds, held rows and mail, on their way from node to node."""

    def __init__(self, state: RouterState, way: Unicast) -> None:
        self._state = state
        self._way = way
        self._shb_nodes: dict[ShbId, BrokerId] = {}
        """Where the SHBs are that need something kept at a pubend here: who has to have the answer."""

    def hold(self, row: Hold) -> None:
        """The SHB of this broker needs something kept."""
        self._pass_hold(None, row, self._state.broker)

    def held(self, row: Held) -> None:
        """A row of holds is durable at a pubend here: the SHB's own broker hears of it."""
        node = self._shb_nodes.get(row.shb)
        if node is not None:
            self._pass_held(None, row, node)

    def post(self, mail: Post) -> None:
        """A role of this broker has mail."""
        self._pass_mail(None, Posted(self._state.broker, mail.role, mail.data), mail.to_node)

    def on_hold(self, peer: BrokerId, row: Hold, address: Address) -> None:
        """A broker brings a row."""
        self._pass_hold(peer, row, str(address[0]))

    def on_held(self, peer: BrokerId, row: Held, address: Address) -> None:
        """A broker brings the answer to one."""
        self._pass_held(peer, row, str(address[0]))

    def on_posted(self, peer: BrokerId, mail: Posted, address: Address) -> None:
        """A broker brings mail."""
        self._pass_mail(peer, mail, str(address[0]))

    def _pass_hold(self, sender: BrokerId | None, row: Hold, node: BrokerId) -> None:
        """A row goes to the pubend, and says at which node the SHB is."""
        owner = self._state.owners.get(row.pubend)
        if owner == self._state.broker:
            self._shb_nodes[row.shb] = node
            self._state.effects.append(row)
        elif owner is not None:
            self._way.send_to(owner, row, sender, (node,))

    def _pass_held(self, sender: BrokerId | None, row: Held, node: BrokerId) -> None:
        """The answer goes to that node. Who heard of an SHB on the way knows a direction, and maybe no way (T59)."""
        if node == self._state.broker:
            self._state.effects.append(row)
        else:
            self._way.send_to(node, row, sender, (node,))

    def _pass_mail(self, sender: BrokerId | None, mail: Posted, to: BrokerId) -> None:
        if to == self._state.broker:
            self._state.effects.append(mail)
        else:
            self._way.send_to(to, mail, sender, (to,))
