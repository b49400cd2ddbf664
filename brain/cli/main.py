"""The command line, the same as `python -m brain`: it parses arguments and settings; `commands/` does the work."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_args

from brain import concurrency
from brain.cli.commands import memory, transfer
from brain.cli.commands.ask import ask
from brain.cli.commands.check import check
from brain.cli.commands.index import index
from brain.cli.commands.specialists import SHELLS, completion, specialists
from brain.cli.process import FAILED, INTERRUPTED, log_to_stderr
from brain.errors import BrainError
from brain.messages import Category, Kind, Source
from brain.settings import LOCAL_USER, Settings, read
from brain.text import replace_surrogates

Command = Callable[[argparse.Namespace, Settings], int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code, or end the process if threads of foreign code still run."""
    code = run(arguments)
    if concurrency.count_threads():  # nobody can stop them, and they may crash an exiting interpreter
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0 for success, 1 for a failure, 130 after Ctrl-C."""
    parsed = _make_parser().parse_args(arguments)
    try:
        flags = ("model", "host", "port", "workers", "log")
        overrides = {flag.upper(): getattr(parsed, flag) for flag in flags if getattr(parsed, flag, None)}
        settings = read(os.environ, getattr(parsed, "config", None), overrides)
        log_to_stderr(settings.log)
        return int(parsed.command(parsed, settings))
    except BrainError as error:
        print(f"brain: {error}", file=sys.stderr)
        return FAILED
    except BrokenPipeError:  # the reader of our output left, such as head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="brain",
        description="Streaming middleware that lets any text model call specialists in the middle of its answer.",
        epilog='Example: brain ask "How do I write a specialist?"',
    )
    parser.add_argument("--version", action="version", version=f"brain {version('brain-sse')}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    example = "brain serve --model ollama:llama3.2 --port 8080"
    command = _add_command(commands, "serve", "Run the server.", example, serve)
    command.add_argument("--host", help="address to listen on (127.0.0.1)")
    command.add_argument("--port", help="port to listen on (8000)")
    command.add_argument("--workers", metavar="N", help="processes that share the port, for more cores (1)")
    command.add_argument("--log", metavar="FORM", help="text, or json: one object a line (text)")

    example = 'brain ask --file scan.png "What does it say?"'
    command = _add_command(commands, "ask", "Ask once, and stream the answer.", example, ask)
    command.set_defaults(parser=command)
    command.add_argument("message", type=replace_surrogates, nargs="?", help="what to ask; - for standard input")
    text = "attach a file (repeatable); - for standard input, which is attached anyway when something is piped"
    command.add_argument("--file", action="append", default=[], type=Path, metavar="FILE", help=text)
    command.add_argument("--conversation", metavar="ID", help="go on with this conversation (a new one)")
    command.add_argument("--no-memory", action="store_true", help="recall no facts and memories for it")
    command.add_argument("--source", choices=get_args(Source), default="chat", help="how it was said (chat)")
    command.add_argument("--thinking", action="store_true", help="show what a model thinks before it answers")
    command.add_argument("--plain", action="store_true", help="bare text, as where no terminal is")
    command.add_argument("--json", action="store_true", help="print each event as one JSON object a line")

    command = _add_command(commands, "chat", "Talk in the terminal.", "brain chat --continue", chat)
    command.add_argument("--conversation", metavar="ID", help="go on with this conversation (a new one)")
    command.add_argument("--continue", action="store_true", dest="go_on", help="go on with the newest one")
    text = "attach a file to the first message (repeatable)"
    command.add_argument("--file", action="append", default=[], type=Path, metavar="FILE", help=text)
    command.add_argument("--no-memory", action="store_true", help="recall no facts and memories")
    command.add_argument("--thinking", action="store_true", help="show what a model thinks before it answers")
    command.add_argument("--plain", action="store_true", help="answers as bare text")

    text, example = "List the specialists.", "brain specialists --json"
    command = _add_command(commands, "specialists", text, example, specialists)
    command.add_argument("--json", action="store_true", help="print one JSON object")

    example = "brain index notes handbook.pdf"
    command = _add_command(commands, "index", "Read documents into knowledge.", example, index)
    command.add_argument("path", nargs="*", type=Path, help="folder or file; without one, what was read before")
    text = "whose documents they are (local)"
    command.add_argument("--user", type=_user_name, default=LOCAL_USER, metavar="NAME", help=text)
    command.add_argument("--list", action="store_true", help="say what is indexed, and read nothing")
    command.add_argument("--forget", action="append", default=[], type=Path, metavar="PATH", help="take it out again")

    _add_memory(commands)

    text, example = "Write all that is kept of a user as JSON Lines.", "brain export --user ada --output ada.jsonl"
    command = _add_command(commands, "export", text, example, transfer.export)
    command.add_argument("--user", type=_user_name, default=LOCAL_USER, metavar="NAME", help="whose it is (local)")
    command.add_argument("--output", type=Path, metavar="FILE", help="where to (standard output)")

    text, example = "Take in what was exported: all of it, or nothing.", "brain import ada.jsonl --user ada"
    command = _add_command(commands, "import", text, example, transfer.import_user)
    command.add_argument("file", nargs="+", type=Path, metavar="FILE", help="an export; - for standard input")
    command.add_argument("--user", type=_user_name, metavar="NAME", help="whose it becomes (whom the file names)")

    text, example = "Erase all that is kept of a user.", "brain forget ada"
    command = _add_command(commands, "forget", text, example, transfer.forget)
    command.add_argument("user", type=_user_name, metavar="USER", help="whose it is; local, where nobody needs a key")
    command.add_argument("--yes", action="store_true", help="do not ask")

    text, example = "Check the model, the store and the specialists.", "brain check --model openai:gpt-4o-mini"
    _add_command(commands, "check", text, example, check)

    text = "Print what a shell needs to complete this by Tab."
    example = "brain completion bash > ~/.local/share/bash-completion/completions/brain"
    command = _add_command(commands, "completion", text, example, completion)
    command.set_defaults(parser=parser)
    command.add_argument("shell", choices=SHELLS)
    return parser


def _add_memory(commands: Any) -> None:
    text, example = "See and change facts and memories.", 'brain memory add "I am vegetarian." --user ada'
    parser = _add_command(commands, "memory", text, example, memory.memory)
    parser.set_defaults(action=memory.show, kind=None, category=None, search="", json=False)
    actions = parser.add_subparsers(title="actions (list)", metavar="ACTION")
    user: dict[str, Any] = {"type": _user_name, "metavar": "NAME", "help": "whose they are (local)"}
    parser.add_argument("--user", default=LOCAL_USER, **user)

    def add_action(name: str, function: memory.Action, text: str, example: str) -> argparse.ArgumentParser:
        action = _add_command(actions, name, text, f"brain memory {name} {example}", memory.memory)
        action.set_defaults(action=function)
        action.add_argument("--user", default=argparse.SUPPRESS, **user)
        return action

    action = add_action("list", memory.show, "List them, the newest first.", "--search tea")
    action.add_argument("--kind", choices=get_args(Kind), help="only facts, or only memories of conversations")
    action.add_argument("--category", choices=get_args(Category), help="only facts of this category")
    text = "only those with any of these words"
    action.add_argument("--search", type=replace_surrogates, default="", metavar="WORDS", help=text)
    action.add_argument("--json", action="store_true", help="print one JSON object")

    action = add_action("add", memory.add, "Write a fact down.", '"I am vegetarian." --immutable')
    action.add_argument("text", type=replace_surrogates, help="the fact, in a sentence")
    action.add_argument("--category", choices=get_args(Category), help="(by its words)")
    action.add_argument("--immutable", action="store_true", help="no model may change or forget it")

    action = add_action("edit", memory.edit, "Change one.", 'k7m2 "I am vegan."')
    action.add_argument("id", type=replace_surrogates, help="as listed")
    action.add_argument("text", type=replace_surrogates, nargs="?", help="its new text")
    action.add_argument("--category", choices=get_args(Category), help="its new category")
    action.add_argument("--mutable", action="store_true", default=None, help="a model may change and forget it")
    action.add_argument("--immutable", action="store_false", dest="mutable", help="no model may change or forget it")

    action = add_action("delete", memory.delete, "Remove some.", "k7m2 f3a9")
    action.add_argument("id", type=replace_surrogates, nargs="+", help="as listed")

    action = add_action("recall", memory.recall, "Let Brain recall them, or not.", "off")
    action.add_argument("on", choices=("on", "off"))


def _add_command(commands: Any, name: str, text: str, example: str, function: Command) -> argparse.ArgumentParser:
    """Add a command with the options of all commands.

    Options that are not given set nothing, so that an action of a command does not undo the command's own.
    """
    command: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=text, epilog=f"Example: {example}"
    )
    command.set_defaults(command=function)
    suppressed = argparse.SUPPRESS
    text = "settings file, such as brain.toml"
    command.add_argument("--config", type=Path, metavar="FILE", default=suppressed, help=text)
    text = "auto, builtin, ollama:NAME, openai:NAME, script:FILE or a name from MODELS"
    command.add_argument("--model", metavar="MODEL", default=suppressed, help=text)
    return command


def _user_name(typed: str) -> str:
    """A possible name of a user."""
    if not typed.strip() or not typed.isprintable():
        raise argparse.ArgumentTypeError("this is no name of a user")
    return typed


def chat(arguments: argparse.Namespace, settings: Settings) -> int:
    """Run `brain chat`."""
    from brain.cli.commands.chat import chat  # with prompt_toolkit: only this command pays for it

    return chat(arguments, settings)


def serve(arguments: argparse.Namespace, settings: Settings) -> int:
    """Run `brain serve`."""
    from brain.cli import serve  # with uvicorn and the app: only this command pays for them

    return serve.serve(settings)
