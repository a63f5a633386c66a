"""Groups of pubends in total order, as a configuration names them (protocol: groups).

    [[group]]
    name = "orders"
    members = ["left/default", "right/default"]      # node/pubend
    silence_seconds = 0.02

The members are the same at every node: each subscriber merges the same pubends, and waits for the same ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Annotated, Final

from pydantic import Field

from gapless.core.network.facts import OrderedGroup
from gapless.settings import Section

MEMBER: Final = r"^[A-Za-z0-9._-]+/[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$"
"""The form of a member: the name of its node, and its own name there."""


class GroupSection(Section):
    """`[[group]]`: pubends whose events subscribers with `order="total"` get in one order."""

    name: str = Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9._-]+$")
    members: Annotated[tuple[Annotated[str, Field(pattern=MEMBER)], ...], Field(min_length=1, max_length=64)]
    """Each is node/pubend."""
    silence_seconds: float = Field(default=0.02, ge=0.01, le=60)
    """How soon a member announces its silence: an event of another member waits about so long."""

    @property
    def group(self) -> OrderedGroup:
        """The group as the core knows it."""
        return OrderedGroup(self.name, self.members, self.silence_seconds)


def wrong_groups(groups: Sequence[GroupSection]) -> Iterator[str]:
    """Yields an error text for each group that is named twice, and for each member that stands in groups twice."""
    for name in _repeated([group.name for group in groups]):
        yield f"the group {name!r} stands here twice"
    for member in _repeated([member for group in groups for member in group.members]):
        inside = [group.name for group in groups if member in group.members]
        where = f"twice in the group {inside[0]!r}" if len(inside) == 1 else f"in the groups {_list(inside)}"
        yield f"the pubend {member!r} stands {where}: it is in one group, once"


def unknown_nodes(groups: Sequence[GroupSection], roles: Mapping[str, Collection[str]]) -> Iterator[str]:
    """Yields a warning for each group member whose node hosts no pubends. `roles`: node → its roles.

    A role of any other name than "shb" may host pubends.
    """
    publishing = [name for name, kinds in roles.items() if set(kinds) - {"shb"}]
    for group in groups:
        for member in group.members:
            node = member.partition("/")[0]
            if node not in publishing:
                yield (
                    f"the group {group.name!r} has the member {member!r}, and no node {node!r} that hosts pubends is"
                    f" known here; {_list(publishing) or 'none'} would be"
                )


def _repeated(values: Sequence[str]) -> list[str]:
    return [value for value in dict.fromkeys(values) if values.count(value) > 1]


def _list(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))
