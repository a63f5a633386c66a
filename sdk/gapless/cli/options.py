"""What several commands take."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer

DEFAULT_URL = "gapless://127.0.0.1:7400"

URL_OPTION: Final = typer.Option(
    envvar="GAPLESS_URL",
    metavar="URL",
    help="The broker: gapless://HOST:PORT, several hosts with commas, gapless+tls://…, gapless+NAME://… by another"
    " transport, or embedded:DIRECTORY.",
)
Url: TypeAlias = Annotated[str, URL_OPTION]
USER_OPTION: Final = typer.Option(
    metavar="NAME",
    help="Who this is: the password is in the file that GAPLESS_PASSWORD_FILE names, or is asked for.",
)
User: TypeAlias = Annotated[str, USER_OPTION]
ClientId: TypeAlias = Annotated[
    str,
    typer.Option(metavar="ID", help="Whose durable subscriptions are meant; names are unique within a client id."),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Wait: TypeAlias = Annotated[
    float,
    typer.Option(min=0, metavar="SECONDS", help="How long to wait for a broker that does not answer."),
]
DEFAULT_WAIT = 5.0
MAKES_A_VOLUME = "`gapless broker --create`"
"""What a storage plugin says, which does not know of the file or the option that names its volume."""


def naming_what_makes_it(text: str, command: str, **given: Path | str | None) -> str:
    """What a storage plugin says of a volume that is absent; the command in it is this one, with the options given."""
    options = "".join(f"--{name} {shlex.quote(str(value))} " for name, value in given.items() if value)
    return text.replace(MAKES_A_VOLUME, f"`gapless {command} {options}--create`")
