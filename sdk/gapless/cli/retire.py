"""`gapless retire`: an SHB that will never come back is given up."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from gapless.cli.connecting import connected, credentials_of, run
from gapless.cli.listings import missing_json
from gapless.cli.options import DEFAULT_URL, DEFAULT_WAIT, AsJson, Url, User, Wait
from gapless.cli.output import one_line, print_json
from gapless.errors import ConfigurationError

if TYPE_CHECKING:
    from gapless.client.listings import Retirement


def retire(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The SHB's id, or the name of its node alone.")],
    *,
    url: Url = DEFAULT_URL,
    user: User = "",
    wait: Wait = DEFAULT_WAIT,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask whether it is meant.")] = False,
    running: Annotated[bool, typer.Option("--running", help="Also one that runs, and has answered.")] = False,
    as_json: AsJson = False,
) -> None:
    """Give up a subscriber-hosting broker (SHB) that will never come back.

    Until then every log keeps what its durable subscriptions have not acknowledged. Should it return all the
    same, they are told of a gap. Any node of the network takes it to every node that hosts pubends. It may be repeated,
    and has to be if one of these does not confirm it, which makes the exit status 1. An SHB that runs is refused.
    """
    credentials = credentials_of(url, user)

    async def ask(shb: str, *, only_look: bool) -> Retirement:
        async with connected(url, "", wait, credentials) as connection:
            return await connection.retire(shb, only_look=only_look, running=running)

    found = run(ask(name, only_look=True))
    if found.running and not running:
        raise ConfigurationError(
            f"SHB {found.shb!r} runs: it has just answered. Stop its node first; --running retires it all the same"
        )
    if found.pubends and not yes:
        _confirm(found)
    done = run(ask(found.shb, only_look=False))
    if as_json:
        print_json(
            {
                "shb": done.shb,
                "pubends": list(done.pubends),
                "retired_before": done.before,
                "confirmed": list(done.confirmed),
                "missing": [missing_json(each) for each in done.missing],
            }
        )
    else:
        print(_outcome(done))
        for each in done.missing:
            print(
                f"node {one_line(each.node)} has not confirmed it: {one_line(each.reason)}. Repeat the command when"
                " that node is there again: its logs may still wait for the SHB"
            )
    if done.missing:
        raise typer.Exit(1)


def _outcome(done: Retirement) -> str:
    where = f" (confirmed by {', '.join(done.confirmed)})" if done.confirmed else ""
    if done.pubends:
        return f"SHB {done.shb!r} is retired: no log waits for it any more, of {', '.join(done.pubends)}{where}"
    if done.before or not done.missing:
        return f"SHB {done.shb!r} was retired already, and no log waits for it{where}"
    return f"SHB {done.shb!r} is not known to any node that has answered{where}"


def _confirm(found: Retirement) -> None:
    """Says what it will do, and asks."""
    runs = " and runs" if found.running else ""
    print(
        f"SHB {found.shb!r} is counted by {', '.join(found.pubends)}{runs}. Retire it only if it will never come back:"
        " what its durable subscriptions have not acknowledged will be given up, and should it return they are told"
        " of a gap.",
        file=sys.stderr,
    )
    if not is_interactive():
        raise ConfigurationError("nobody is there to be asked; --yes retires it without asking")
    typer.confirm("Retire it?", abort=True, err=True)


def is_interactive() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin.isatty()
