"""Roof: the command line. It reads what was typed; `commands/` does it. The same as `python -m brain`."""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from brain import threads
from brain.commands.ask import ask
from brain.commands.check import check
from brain.commands.index import index
from brain.commands.specialists import specialists
from brain.errors import BrainError
from brain.process import FAILED, INTERRUPTED, log_to_stderr
from brain.settings import Settings, read


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; the exit code is 0 when all went well, 1 when not, 130 after Ctrl-C."""
    given = _parser().parse_args(arguments)
    code = _run(given)
    if threads.taken():  # by foreign code that nobody can stop, and that may not survive the interpreter's end
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _run(given: argparse.Namespace) -> int:
    try:
        settings = _settings(given)
        log_to_stderr(settings.log)
        return int(given.command(given, settings))
    except BrainError as error:
        print(f"brain: {error}", file=sys.stderr)
        return FAILED
    except BrokenPipeError:  # whoever read our output has seen enough, such as head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--config", type=Path, metavar="FILE", help="settings file, such as brain.toml")
    common.add_argument("--model", metavar="MODEL", help="auto, builtin, ollama:NAME, openai:NAME or script:FILE")
    common.add_argument("--host", help="address that serve listens on (127.0.0.1)")
    common.add_argument("--port", help="port that serve listens on (8000)")
    parser = argparse.ArgumentParser(
        prog="brain",
        description="Streaming middleware that lets any text model call specialists in the middle of its answer.",
        epilog='Example: brain ask "How do I write a specialist?"',
    )
    parser.add_argument("--version", action="version", version=f"brain {version('brain-sse')}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def command(name: str, function: Any, text: str, example: str) -> argparse.ArgumentParser:
        one = commands.add_parser(name, parents=[common], help=text, description=text, epilog=f"Example: {example}")
        one.set_defaults(command=function)
        return one

    served = command("serve", serve, "Run the server.", "brain serve --model ollama:llama3.2 --port 8080")
    served.add_argument("--workers", metavar="N", help="processes that share the port, for more cores (1)")
    served.add_argument("--log", metavar="FORM", help="text, or json: one object a line (text)")
    asked = command("ask", ask, "Ask once, and stream the answer.", 'brain ask --file scan.png "What does it say?"')
    asked.add_argument("message", help="what to ask")
    asked.add_argument("--file", action="append", default=[], type=Path, metavar="F", help="attach a file (repeatable)")
    asked.add_argument("--json", action="store_true", help="print each event as one JSON object a line")
    listed = command("specialists", specialists, "List the specialists.", "brain specialists --json")
    listed.add_argument("--json", action="store_true", help="print one JSON object")
    indexed = command("index", index, "Read documents into knowledge.", "brain index notes handbook.pdf")
    indexed.add_argument("path", nargs="*", type=Path, help="folder or file; without one, what was read before")
    indexed.add_argument("--user", default="local", metavar="NAME", help="whose documents they are (local)")
    indexed.add_argument("--list", action="store_true", help="say what is indexed, and read nothing")
    indexed.add_argument("--forget", action="append", default=[], type=Path, metavar="PATH", help="take it out again")
    command("check", check, "Check the model and the specialists.", "brain check --model openai:gpt-4o-mini")
    return parser


def _settings(given: argparse.Namespace) -> Settings:
    flags = ("model", "host", "port", "workers", "log")
    overrides = {key.upper(): getattr(given, key) for key in flags if getattr(given, key, None)}
    return read(os.environ, given.config, overrides)


def serve(given: argparse.Namespace, settings: Settings) -> int:
    """Runs the server until it is told to stop."""
    from brain import serving  # with uvicorn, and the app, which imports sse_starlette: only who serves pays for them

    return serving.serve(settings)
