"""The command `gapless`: a module beside the package, so that it runs before anything of that is imported.

Importing takes a good part of a second, and a Ctrl-C then would be a traceback. So the signal ends the process
without a word, as it ends programs that know nothing of it, until `gapless.cli.main` handles it.
"""

import signal


def main() -> None:
    """Runs the command line; the process ends with its exit status."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from gapless.cli import main as run_commands

    run_commands()
