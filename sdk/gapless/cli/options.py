"""What several commands take."""

from __future__ import annotations

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
