"""The command line, the same as `python -m brain`: parse, run one command, report an error, return the exit code."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from inspect import iscoroutine

from brain.cli.arguments import make_parser
from brain.cli.process import (
    FAILED,
    INTERRUPTED,
    USAGE,
    CommandError,
    UsageError,
    log_to_stderr,
    print_error,
    replace_unwritable,
)
from brain.cli.process import run_command as run_coroutine
from brain.errors import BadRequest, BrainError, SettingsError
from brain.settings import read


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; end the process if threads of third-party code still run."""
    code = run(arguments)
    concurrency = sys.modules.get("brain.concurrency")  # many commands need no thread
    if concurrency is not None and concurrency.count_threads():  # they cannot be stopped, and may crash at the exit
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        The exit code: 0 for success, 1 for a failure, 2 for wrong arguments or settings, 130 after Ctrl-C.
    """
    help_command = "brain --help"
    replace_unwritable()
    try:
        parsed = make_parser().parse_args(arguments)
        help_command = f"{parsed.parser.prog} --help"
        flags = ("model", "host", "port", "workers", "log")
        overrides = {flag.upper(): getattr(parsed, flag) for flag in flags if getattr(parsed, flag, None)}
        settings = read(os.environ, getattr(parsed, "config", None), overrides)
        log_to_stderr(settings.log)
        module, _, name = parsed.command.rpartition(".")
        result = getattr(import_module(f"brain.cli.{module}"), name)(parsed, settings)
        return run_coroutine(result) if iscoroutine(result) else int(result)
    except BrainError as error:
        advice = error.advice if isinstance(error, CommandError | SettingsError) else ""
        print_error(str(error), advice or (help_command if isinstance(error, BadRequest) else "brain check"))
        return USAGE if isinstance(error, UsageError | SettingsError) else FAILED
    except BrokenPipeError:  # the reader of the output exited, such as head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except OSError as error:  # such as a full disk
        place = f"{error.filename}: " if error.filename else ""
        print_error(f"{place}{(error.strerror or 'input/output error').lower()}", help_command)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
