"""The command line. It reads what was typed; `commands/` does it. The same as `python -m brain`."""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_args

from brain import concurrency
from brain.cli.commands import memory, transfer
from brain.cli.commands.ask import ask
from brain.cli.commands.check import check
from brain.cli.commands.index import index
from brain.cli.commands.specialists import SHELLS, completion, specialists
from brain.cli.commands.transfer import forget
from brain.cli.process import FAILED, INTERRUPTED, log_to_stderr
from brain.errors import BrainError
from brain.messages import Category, Kind, Source
from brain.settings import LOCAL_USER, Settings, read
from brain.text import replace_surrogates


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command as the process that it is; the exit code as `run`."""
    code = run(arguments)
    if concurrency.count_threads():  # of others' code: nobody can stop it, and it may crash an exiting interpreter
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; the exit code is 0 when all went well, 1 when not, 130 after Ctrl-C."""
    given = _parser().parse_args(arguments)
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
    parser = argparse.ArgumentParser(
        prog="brain",
        description="Streaming middleware that lets any text model call specialists in the middle of its answer.",
        epilog='Example: brain ask "How do I write a specialist?"',
    )
    parser.add_argument("--version", action="version", version=f"brain {version('brain-sse')}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    served = _command(commands, "serve", "Run the server.", "brain serve --model ollama:llama3.2 --port 8080", serve)
    served.add_argument("--host", help="address to listen on (127.0.0.1)")
    served.add_argument("--port", help="port to listen on (8000)")
    served.add_argument("--workers", metavar="N", help="processes that share the port, for more cores (1)")
    served.add_argument("--log", metavar="FORM", help="text, or json: one object a line (text)")
    _add_ask(commands)
    _add_chat(commands)
    text, example = "List the specialists.", "brain specialists --json"
    listed = _command(commands, "specialists", text, example, specialists)
    listed.add_argument("--json", action="store_true", help="print one JSON object")
    _add_index(commands)
    _add_memory(commands)
    _add_copies(commands)
    text, example = "Erase all that is kept of a user.", "brain forget ada"
    forgotten = _command(commands, "forget", text, example, forget)
    forgotten.add_argument("user", type=_user, metavar="USER", help="whose it is; local, where nobody needs a key")
    forgotten.add_argument("--yes", action="store_true", help="do not ask")
    text, example = "Check the model, the store and the specialists.", "brain check --model openai:gpt-4o-mini"
    _command(commands, "check", text, example, check)
    text, example = (
        "Print what a shell needs to complete this by Tab.",
        "brain completion bash > ~/.local/share/bash-completion/completions/brain",
    )
    completed = _command(commands, "completion", text, example, completion)
    completed.set_defaults(whole=parser)
    completed.add_argument("shell", choices=SHELLS)
    return parser


def _command(commands: Any, name: str, text: str, example: str, function: Any) -> argparse.ArgumentParser:
    one: argparse.ArgumentParser = commands.add_parser(
        name, parents=[_common()], help=text, description=text, epilog=f"Example: {example}"
    )
    one.set_defaults(command=function)
    return one


def _common() -> argparse.ArgumentParser:
    """What all commands take; left out where it is not given, so that a command within one takes nothing back."""
    common = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    common.add_argument("--config", type=Path, metavar="FILE", help="settings file, such as brain.toml")
    common.add_argument(
        "--model", metavar="MODEL", help="auto, builtin, ollama:NAME, openai:NAME, script:FILE or a name from MODELS"
    )
    return common


def _add_ask(commands: Any) -> None:
    example = 'brain ask --file scan.png "What does it say?"'
    asked = _command(commands, "ask", "Ask once, and stream the answer.", example, ask)
    asked.set_defaults(parser=asked)
    asked.add_argument("message", type=replace_surrogates, nargs="?", help="what to ask; - for standard input")
    text = "attach a file (repeatable); - for standard input, which is attached anyway when something is piped"
    asked.add_argument("--file", action="append", default=[], type=Path, metavar="FILE", help=text)
    asked.add_argument("--conversation", metavar="ID", help="go on with this conversation (a new one)")
    asked.add_argument("--no-memory", action="store_true", help="recall no facts and memories for it")
    asked.add_argument("--source", choices=get_args(Source), default="chat", help="how it was said (chat)")
    asked.add_argument("--thinking", action="store_true", help="show what a model thinks before it answers")
    asked.add_argument("--plain", action="store_true", help="bare text, as where no terminal is")
    asked.add_argument("--json", action="store_true", help="print each event as one JSON object a line")


def _add_chat(commands: Any) -> None:
    chatted = _command(commands, "chat", "Talk in the terminal.", "brain chat --continue", chat)
    chatted.add_argument("--conversation", metavar="ID", help="go on with this conversation (a new one)")
    chatted.add_argument("--continue", action="store_true", dest="go_on", help="go on with the newest one")
    text = "attach a file to the first message (repeatable)"
    chatted.add_argument("--file", action="append", default=[], type=Path, metavar="FILE", help=text)
    chatted.add_argument("--no-memory", action="store_true", help="recall no facts and memories")
    chatted.add_argument("--thinking", action="store_true", help="show what a model thinks before it answers")
    chatted.add_argument("--plain", action="store_true", help="answers as bare text")


def _add_index(commands: Any) -> None:
    example = "brain index notes handbook.pdf"
    indexed = _command(commands, "index", "Read documents into knowledge.", example, index)
    indexed.add_argument("path", nargs="*", type=Path, help="folder or file; without one, what was read before")
    indexed.add_argument(
        "--user", type=_user, default=LOCAL_USER, metavar="NAME", help="whose documents they are (local)"
    )
    indexed.add_argument("--list", action="store_true", help="say what is indexed, and read nothing")
    indexed.add_argument("--forget", action="append", default=[], type=Path, metavar="PATH", help="take it out again")


def _add_memory(commands: Any) -> None:
    text, example = "See and change facts and memories.", 'brain memory add "I am vegetarian." --user ada'
    whole = _command(commands, "memory", text, example, memory.memory)
    whole.set_defaults(action=memory.show, kind=None, category=None, search="", json=False)
    actions = whole.add_subparsers(title="actions (list)", metavar="ACTION")

    def action(name: str, function: memory.Action, text: str, example: str) -> argparse.ArgumentParser:
        one = _command(actions, name, text, f"brain memory {name} {example}", memory.memory)
        one.set_defaults(action=function)
        one.add_argument("--user", type=_user, default=argparse.SUPPRESS, metavar="NAME", help="whose they are (local)")
        return one

    whole.add_argument("--user", type=_user, default=LOCAL_USER, metavar="NAME", help="whose they are (local)")
    listed = action("list", memory.show, "List them, the newest first.", "--search tea")
    listed.add_argument("--kind", choices=get_args(Kind), help="only facts, or only memories of conversations")
    listed.add_argument("--category", choices=get_args(Category), help="only facts of this category")
    listed.add_argument(
        "--search", type=replace_surrogates, default="", metavar="WORDS", help="only those with any of these words"
    )
    listed.add_argument("--json", action="store_true", help="print one JSON object")
    added = action("add", memory.add, "Write a fact down.", '"I am vegetarian." --immutable')
    added.add_argument("text", type=replace_surrogates, help="the fact, in a sentence")
    added.add_argument("--category", choices=get_args(Category), help="(by its words)")
    added.add_argument("--immutable", action="store_true", help="no model may change or forget it")
    edited = action("edit", memory.edit, "Change one.", 'k7m2 "I am vegan."')
    edited.add_argument("id", type=replace_surrogates, help="as listed")
    edited.add_argument("text", type=replace_surrogates, nargs="?", help="its new text")
    edited.add_argument("--category", choices=get_args(Category), help="its new category")
    edited.add_argument("--mutable", action="store_true", default=None, help="a model may change and forget it")
    edited.add_argument("--immutable", action="store_false", dest="mutable", help="no model may change or forget it")
    deleted = action("delete", memory.delete, "Remove some.", "k7m2 f3a9")
    deleted.add_argument("id", type=replace_surrogates, nargs="+", help="as listed")
    recalled = action("recall", memory.recall, "Let Brain recall them, or not.", "off")
    recalled.add_argument("on", choices=("on", "off"))


def _add_copies(commands: Any) -> None:
    text = "Write all that is kept of a user as JSON Lines."
    exported = _command(commands, "export", text, "brain export --user ada --output ada.jsonl", transfer.export)
    exported.add_argument("--user", type=_user, default=LOCAL_USER, metavar="NAME", help="whose it is (local)")
    exported.add_argument("--output", type=Path, metavar="FILE", help="where to (standard output)")
    text = "Take in what was exported: all of it, or nothing."
    imported = _command(commands, "import", text, "brain import ada.jsonl --user ada", transfer.import_user)
    imported.add_argument("file", nargs="+", type=Path, metavar="FILE", help="an export; - for standard input")
    imported.add_argument("--user", type=_user, metavar="NAME", help="whose it becomes (whom the file names)")


def _user(typed: str) -> str:
    """The name of a user, whom there need not be."""
    if not typed.strip() or not typed.isprintable():
        raise argparse.ArgumentTypeError("this is no name of a user")
    return typed


def _settings(given: argparse.Namespace) -> Settings:
    flags = ("model", "host", "port", "workers", "log")
    overrides = {key.upper(): getattr(given, key) for key in flags if getattr(given, key, None)}
    return read(os.environ, getattr(given, "config", None), overrides)


def chat(given: argparse.Namespace, settings: Settings) -> int:
    """Talks with whoever sits at the terminal."""
    from brain.cli.commands.chat import chat  # with prompt_toolkit: only who chats pays for it

    return chat(given, settings)


def serve(given: argparse.Namespace, settings: Settings) -> int:
    """Runs the server until it is told to stop."""
    from brain.cli import serve  # with uvicorn, and the app, which imports sse_starlette: only who serves pays for them

    return serve.serve(settings)
