"""`gapless retire`: an SHB that will never come back is given up."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from gapless.cli.connecting import connected, run
from gapless.cli.options import DEFAULT_URL, DEFAULT_WAIT, AsJson, Url, Wait
from gapless.cli.output import print_json
from gapless.errors import ConfigurationError

if TYPE_CHECKING:
    from gapless.client.listings import Retirement


def retire(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The SHB's id, or the name of its node alone.")],
    *,
    url: Url = DEFAULT_URL,
    wait: Wait = DEFAULT_WAIT,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask whether it is meant.")] = False,
    as_json: AsJson = False,
) -> None:
    """Give up a subscriber-hosting broker (SHB) that will never come back.

    Until then every log keeps what its durable subscriptions have not acknowledged. Should it return all the
    same, they are told of a gap. Repeat it at each broker that hosts pubends; to repeat it at one does no harm.
    """

    async def ask(shb: str, *, only_look: bool) -> Retirement:
        async with connected(url, "", wait) as connection:
            return await connection.retire(shb, only_look=only_look)

    found = run(ask(name, only_look=True))
    if found.pubends and not yes:
        _confirm(found)
    done = run(ask(found.shb, only_look=False))
    if as_json:
        print_json({"shb": done.shb, "pubends": list(done.pubends), "retired_before": done.before})
    elif done.pubends:
        print(f"SHB {done.shb!r} is retired: no log waits for it any more, of {', '.join(done.pubends)}")
    else:
        print(f"SHB {done.shb!r} was retired already, and no log waits for it")


def _confirm(found: Retirement) -> None:
    """Says what it will do, and asks."""
    print(
        f"SHB {found.shb!r} is counted by {', '.join(found.pubends)}. Retire it only if it will never come back: what"
        " its durable subscriptions have not acknowledged will be given up, and should it return they are told of a"
        " gap.",
        file=sys.stderr,
    )
    if not is_interactive():
        raise ConfigurationError("nobody is there to be asked; --yes retires it without asking")
    typer.confirm("Retire it?", abort=True, err=True)


def is_interactive() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin.isatty()
