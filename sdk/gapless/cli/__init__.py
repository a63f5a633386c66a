"""The command line: `gapless`, `python -m gapless` and `python -m gapless.cli`.

    app           the commands, and how errors are shown
    extending     the commands that connectors add
    helping       how their help is wrapped
    options       what several commands take
    output        tables, JSON, and plain lines
    connecting    a connection for one command, with a bound on waiting
    lines         a line of JSON for each event, in and out
    tokens        the file that `subscribe` keeps its token in
    broker publish subscribe tail listings selector doctor    the commands

A module of a command imports what it runs when it runs: so `gapless --help` waits for nothing.
"""

import signal


def main() -> None:
    """Runs the command line; the process ends with its exit status."""
    from gapless.cli.app import app
    from gapless.cli.connecting import INTERRUPTED
    from gapless.cli.output import escape_what_cannot_be_shown, show_warnings_as_sentences

    escape_what_cannot_be_shown()
    show_warnings_as_sentences()
    try:
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        app(prog_name="gapless")
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
