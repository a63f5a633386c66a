"""A connection's calls about the users of its broker: what `gapless user` asks.

No password goes over the wire: what a broker is to know of one is worked out here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from gapless.core.wire.messages import ListedUser, Verifier
from gapless.core.wire.messages.users import groups_problem
from gapless.errors import ConfigurationError

if TYPE_CHECKING:
    from gapless.client.driver import Driver


@dataclass(frozen=True, slots=True)
class UserInfo:
    """A user, as it was when the broker was asked."""

    name: str
    groups: tuple[str, ...]
    changed: datetime
    """When it was made, or changed last."""


class UserCalls:
    """The calls of a connection about users. All of them are for administrators, and for nodes without a file of users.

    Each raises AuthorizationError if this client may not do that, and ConfigurationError if the broker keeps its users
    elsewhere, or is too old.
    """

    _driver: Driver

    async def users(self) -> list[UserInfo]:
        """Returns the users of the broker."""
        found = await self._driver.ask(self._driver.core.list_users)
        return [user_info(row) for row in found.rows]

    async def add_user(self, name: str, password: str, groups: Sequence[str] = ()) -> None:
        """Makes a user. Raises ConfigurationError if there is one, or if the name or the password can be no such."""
        from gapless.security.users import new_verifier, prepared_name

        name, verifier, taken = prepared_name(name), new_verifier(password), checked_groups(groups)
        await self._driver.ask(lambda now: self._driver.core.add_user(name, verifier, taken, now))

    async def change_password(self, name: str, password: str) -> None:
        """Gives a user another password; everybody may do that for himself. It ends the other sessions of the user.

        Raises ConfigurationError if there is no such user, or the password can be none.
        """
        from gapless.security.users import new_verifier, prepared_name

        await self._change(prepared_name(name), new_verifier(password), None)

    async def change_groups(self, name: str, groups: Sequence[str]) -> None:
        """Gives a user other groups, for new sessions. Raises ConfigurationError if there is no such user."""
        from gapless.security.users import prepared_name

        await self._change(prepared_name(name), None, checked_groups(groups))

    async def remove_user(self, name: str) -> None:
        """Removes a user, and ends its sessions. Raises ConfigurationError if there is no such user."""
        from gapless.security.users import prepared_name

        name = prepared_name(name)
        await self._driver.ask(lambda now: self._driver.core.remove_user(name, now))

    async def _change(self, name: str, verifier: Verifier | None, groups: tuple[str, ...] | None) -> None:
        await self._driver.ask(lambda now: self._driver.core.change_user(name, verifier, groups, now))


def user_info(row: ListedUser) -> UserInfo:
    """Returns a row in the form for applications."""
    return UserInfo(row.name, row.groups, datetime.fromtimestamp(row.changed / 1000, tz=timezone.utc))


def checked_groups(groups: Sequence[str]) -> tuple[str, ...]:
    """Returns groups that a user may have. Raises ConfigurationError."""
    taken = tuple(groups)
    if problem := groups_problem(taken):
        raise ConfigurationError(problem)
    return taken
