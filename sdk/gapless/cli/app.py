"""The commands, and how errors are shown.

The exit status is 0 when all is well, 1 when what was asked for did not succeed or something was found,
and 2 when it was not understood: usage, configuration, a malformed selector, topic or token.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import gapless
from gapless.cli import (
    acl,
    broker,
    doctor,
    extending,
    listings,
    network,
    publish,
    retire,
    scrub,
    selector,
    subscribe,
    tail,
    user,
)
from gapless.cli.connecting import INTERRUPTED
from gapless.cli.helping import unwrap_help
from gapless.cli.output import some_lines
from gapless.errors import (
    ConfigurationError,
    GaplessError,
    InvalidSelectorError,
    InvalidTokenError,
    InvalidTopicError,
)

NOT_UNDERSTOOD = (ConfigurationError, InvalidSelectorError, InvalidTokenError, InvalidTopicError)


class Commands(TyperGroup):
    """All commands, ours and those that connectors add; what goes wrong is shown as a sentence, or a traceback."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Their names."""
        own = super().list_commands(ctx)
        return [*own, *(name for name in extending.names() if name not in own)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a name; None if there is none."""
        own = super().get_command(ctx, cmd_name)
        found = extending.command(cmd_name) if own is None and cmd_name in extending.names() else own
        return found and unwrap_help(found)

    def invoke(self, ctx: Any) -> Any:
        """Runs the command that was asked for."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise SystemExit(INTERRUPTED) from None
        except (GaplessError, OSError) as error:
            if ctx.params.get("debug"):
                raise
            if _is_closed_pipe(error):
                _forget_output()
                raise SystemExit(1) from None
            show_error(error)
            raise SystemExit(2 if isinstance(error, NOT_UNDERSTOOD) else 1) from None


app = typer.Typer(
    name="gapless",
    cls=Commands,
    help="Durable publish/subscribe in which the application owns the position.",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

app.command("broker")(broker.broker)
app.command("network")(network.network)
app.command("publish")(publish.publish)
app.command("subscribe")(subscribe.subscribe)
app.command("tail")(tail.tail)
app.command("unsubscribe")(listings.unsubscribe)
app.command("subscriptions")(listings.subscriptions)
app.command("pubends")(listings.pubends)
app.command("retire")(retire.retire)
app.command("selector")(selector.selector)
app.command("doctor")(doctor.doctor)
app.command("scrub")(scrub.scrub)
app.command("repair")(scrub.repair)
app.add_typer(user.app, name="user")
app.add_typer(acl.app, name="acl")


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - the signature of a callback
    if wanted:
        print(f"gapless {gapless.__version__}")
        raise typer.Exit


@app.callback()
def options(
    *,
    debug: Annotated[bool, typer.Option("--debug", help="Show where in the code an error arose.")] = False,
    show_version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """What stands before the command."""


def show_error(error: BaseException) -> None:
    """Says on the standard error output what went wrong."""
    print(f"gapless: {some_lines(_text(error))}", file=sys.stderr)


def _text(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__


def _is_closed_pipe(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno == errno.EPIPE


def _forget_output() -> None:
    """Whoever read our output has gone; the interpreter must not try to write the rest at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
