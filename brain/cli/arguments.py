"""The arguments and the help of every command, and the errors for wrong ones."""

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn, get_args

from brain.cli.process import UsageError
from brain.events import StrategyName
from brain.messages import Category, ClientSource, Kind
from brain.settings import LOCAL_USER
from brain.task import ProfileName, Tell
from brain.text import escape_invisible, replace_surrogates, shorten, suggest

SPEEDS = "instant", "recorded"
SHELLS = "bash", "zsh", "fish"

GROUPS = {
    "Run": ("serve", "ask", "chat"),
    "Data": ("tasks", "memory", "index", "export", "import", "forget", "copy-store"),
    "Admin": ("check", "models", "explain", "replay", "specialists", "completion"),
}
MAX_SHOWN = 60
"""Characters of a wrong argument in an error."""


class Parser(argparse.ArgumentParser):
    """A parser that raises `UsageError` with the nearest name and the command to type next."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, formatter_class=_Formatter, allow_abbrev=False)
        self._positionals.title = "arguments"
        self._option_string_actions["-h"].help = "show this help"

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse the arguments; none may be left over."""
        args = sys.argv[1:] if args is None else list(args)
        self._check_first_options(args)
        parsed, extra = self.parse_known_args(args, namespace)
        if extra:
            parser: Parser = parsed.parser
            option = next((one.partition("=")[0] for one in extra if one.startswith("-") and len(one) > 1), None)
            if option is None:
                hint = " Put the message in quotes." if parser.prog == "brain ask" else ""
                parser.fail(f"Unexpected argument {_quote(extra[0])}.{hint}")
            parser._fail_unknown(option)
        return parsed

    def _check_first_options(self, args: Sequence[str]) -> None:
        """Check the options before the command: argparse would take the value of an unknown one for the command."""
        words = iter(args)
        for word in words:
            if not word.startswith("-") or word in ("-", "--"):
                return
            name, is_joined, _ = word.partition("=")
            action = self._option_string_actions.get(name)
            if action is None:
                self._fail_unknown(name)
            if action.nargs is None and not is_joined:
                next(words, None)

    def _fail_unknown(self, option: str) -> NoReturn:
        self.fail(f"Unknown option {_quote(option)}.{suggest(option, self._option_string_actions)}")

    def fail(self, what: str) -> NoReturn:
        """Raise the error, with the help of this command."""
        raise UsageError(what, f"{self.prog} --help")

    def error(self, message: str) -> NoReturn:
        """Reword an error of argparse."""
        argument, _, reason = message.removeprefix("argument ").partition(": ")
        if message.startswith("the following arguments are required"):
            name = reason.partition(", ")[0]
            self.fail("No command." if name == "COMMAND" else f"{name.upper()} is missing.")
        name = argument.rpartition("/")[2]
        if reason.startswith("expected"):
            self.fail(f"{name} needs a value.")
        if reason.startswith("ignored explicit argument"):
            self.fail(f"{name} takes no value.")
        self.fail(reason or message)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        name = (action.option_strings or [str(action.metavar or action.dest)])[-1]
        near = suggest(str(value), action.choices)
        if isinstance(action, argparse._SubParsersAction):
            options = [one[2:] for one in self._option_string_actions if one in ("--help", "--version")]
            near = near or suggest(str(value), options).replace("'", "'--", 1)
            self.fail(f"Unknown {name.lower()} {_quote(str(value))}.{near}")
        self.fail(f"{name} cannot be {_quote(str(value))}.{near} Expected {', '.join(map(str, action.choices))}.")

    def format_help(self) -> str:
        """Return the help; that of `brain` itself lists the commands in groups."""
        listed = next((one for one in self._actions if isinstance(one, argparse._SubParsersAction)), None)
        if listed is None or self.prog != "brain":
            return super().format_help()
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        commands = {action.dest: action for action in listed._choices_actions}
        for title, names in GROUPS.items():
            formatter.start_section(title)
            formatter.add_arguments([commands[name] for name in names])
            formatter.end_section()
        formatter.start_section("options")
        formatter.add_arguments(self._optionals._group_actions)
        formatter.end_section()
        formatter.add_text(self.epilog)
        return formatter.format_help()


def _quote(text: str) -> str:
    return f"'{shorten(escape_invisible(text), MAX_SHOWN)}'"


class _Formatter(argparse.HelpFormatter):
    """Help without broken words: an example stays on its line."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith("Example: ") else super()._fill_text(text, width, indent)


def make_parser() -> Parser:
    """Make the parser of `brain`."""
    parser = Parser(
        prog="brain",
        description="Give any text model live tools and memory, inside its answer stream.",
        epilog='Example: brain ask "How do I write a specialist?"',
    )
    parser.set_defaults(parser=parser)
    parser.add_argument("--version", action="version", version=f"brain {version('brain-sse')}", help="show the version")
    _add_global_options(parser)
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    example = "brain serve --model ollama:llama3.2 --port 8080"
    command = _add_command(commands, "serve", "Run the server.", example, "serve.serve")
    command.add_argument("--host", help="IP address or host name to listen on (default: 127.0.0.1)")
    command.add_argument("--port", help="port to listen on (default: 8000)")
    command.add_argument("--workers", metavar="N", help="number of worker processes (default: 1)")
    command.add_argument("--log", metavar="FORMAT", help="log format: text or json (default: text)")

    example = 'brain ask --file scan.png "What does it say?"'
    command = _add_command(commands, "ask", "Send one message and stream the answer.", example)
    command.add_argument(
        "message", metavar="MESSAGE", type=replace_surrogates, nargs="?", help="the message; - reads standard input"
    )
    text = "attach a file (repeatable); - attaches standard input. Piped input is attached automatically"
    command.add_argument("--file", action="append", default=[], type=Path, metavar="FILE", help=text)
    _add_turn_options(command, "for this message")
    text = "input type; voice gives answers for reading aloud (default: chat)"
    command.add_argument("--source", choices=get_args(ClientSource), default="chat", help=text)
    _add_display(command)
    command.add_argument("--json", action="store_true", help="print events as JSON Lines")

    command = _add_command(commands, "chat", "Chat in the terminal.", "brain chat --continue")
    _add_turn_options(command, "in this session")
    command.add_argument("--continue", action="store_true", dest="go_on", help="continue the latest conversation")
    text = "attach a file to the first message (repeatable)"
    command.add_argument("--file", action="append", default=[], type=Path, metavar="FILE", help=text)
    _add_display(command)

    _add_tasks(commands)
    _add_memory(commands)

    text, example = "Index files and directories for the knowledge specialist.", "brain index notes handbook.pdf"
    command = _add_command(commands, "index", text, example)
    text = "files and directories to index (default: update everything indexed)"
    command.add_argument("path", metavar="PATH", nargs="*", type=Path, help=text)
    _add_user(command)
    command.add_argument("--list", action="store_true", help="list what is indexed")
    text = "remove a file or directory from the index (repeatable)"
    command.add_argument("--forget", action="append", default=[], type=Path, metavar="PATH", help=text)

    text, example = "Export all data of a user as JSON Lines.", "brain export --user ada --output ada.jsonl"
    command = _add_command(commands, "export", text, example, "commands.transfer.export")
    _add_user(command)
    command.add_argument("--output", type=Path, metavar="FILE", help="file to write (default: standard output)")

    text, example = "Import an export. Imports everything or nothing.", "brain import ada.jsonl --user ada"
    command = _add_command(commands, "import", text, example, "commands.transfer.import_user")
    command.add_argument("file", nargs="+", type=Path, metavar="FILE", help="exported file; - reads standard input")
    text = "import for this user (default: the user in the file)"
    command.add_argument("--user", type=_user_name, metavar="NAME", help=text)

    command = _add_command(
        commands, "forget", "Erase all data of a user.", "brain forget ada", "commands.transfer.forget"
    )
    text = f"user to erase; {LOCAL_USER} is the user of a server without API keys"
    command.add_argument("user", type=_user_name, metavar="USER", help=text)
    command.add_argument("--yes", action="store_true", help="skip the confirmation prompt")

    text = "Copy a store between SQLite and PostgreSQL, or continue an unfinished copy."
    example = "brain copy-store sqlite:brain.db postgresql://brain@localhost/brain"
    command = _add_command(commands, "copy-store", text, example, "commands.copy_store.copy_store")
    text = "store to copy: sqlite:PATH or postgresql://USER@HOST/NAME"
    command.add_argument("source", metavar="FROM", type=replace_surrogates, help=text)
    command.add_argument("target", metavar="TO", type=replace_surrogates, help="empty database for the copy")

    text, example = "Show how an answer was made.", "brain explain last"
    command = _add_command(commands, "explain", text, example)
    text = "turn ID, answer ID, or last for the newest answer"
    command.add_argument("turn", metavar="TURN", type=replace_surrogates, help=text)
    _add_user(command)
    command.add_argument("--json", action="store_true", help="print one JSON object")

    text, example = "Play a recorded turn.", "brain replay archive/2026-11-23/174334.t36c04198dd1e6093.….jsonl"
    command = _add_command(commands, "replay", text, example, "commands.replay_turn.replay")
    command.add_argument("file", metavar="FILE", type=Path, help="recording in the directory of ARCHIVE")
    text = "speed: instant, or as recorded (default: instant)"
    command.add_argument("--speed", choices=SPEEDS, default=SPEEDS[0], help=text)
    _add_display(command)
    command.add_argument("--json", action="store_true", help="print events as JSON Lines")

    text = "Test the model, the database and the specialists."
    _add_command(commands, "check", text, "brain check --model openai:gpt-4o-mini")

    text = "List the models and what their servers offer."
    command = _add_command(commands, "models", text, "brain models --model openai:gpt-4o-mini")
    command.add_argument("--json", action="store_true", help="print one JSON object")

    text, example = "List the specialists.", "brain specialists --json"
    command = _add_command(commands, "specialists", text, example)
    command.add_argument("name", nargs="*", metavar="NAME", help="specialists to list (default: all)")
    command.add_argument("--json", action="store_true", help="print one JSON object")

    text = "Print a shell completion script."
    example = "brain completion bash > ~/.local/share/bash-completion/completions/brain"
    command = _add_command(commands, "completion", text, example, "commands.specialists.completion")
    command.set_defaults(root=parser)
    command.add_argument("shell", metavar="SHELL", choices=SHELLS, help=f"shell: {', '.join(SHELLS)}")
    return parser


def _add_tasks(commands: Any) -> None:
    text, example = "Run work in the background.", 'brain tasks add "Summarize my feeds." --every "every weekday at 8"'
    parser = _add_command(commands, "tasks", text, example)
    parser.set_defaults(action="list", all=False)
    actions = parser.add_subparsers(title="actions (default: list)", metavar="ACTION")
    _add_user(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")

    def add_action(name: str, text: str, example: str, *, has_id: bool = False) -> argparse.ArgumentParser:
        action = _add_command(actions, name, text, f"brain tasks {name} {example}".rstrip(), "commands.tasks.tasks")
        action.set_defaults(action=name)
        _add_user(action, default=argparse.SUPPRESS)
        if has_id:
            text = "beginning of an ID shown by brain tasks list"
            nargs = "+" if name == "delete" else None
            action.add_argument("id", metavar="ID", type=replace_surrogates, nargs=nargs, help=text)
        if name != "delete":
            action.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON")
        return action

    text = "List active tasks and the latest that ended, newest first."
    action = add_action("list", text, "--all")
    action.add_argument("--all", action="store_true", help="list all that ended")

    add_action("show", "Show a task with its schedule, its result and its wanted approval.", "4f1c", has_id=True)

    action = add_action(
        "add", "Add a task. It runs at once, or on a schedule.", '"Read my feeds." --when "tomorrow at 8"'
    )
    action.add_argument("prompt", metavar="PROMPT", type=replace_surrogates, help="what the task does")
    text = "title (default: the first words of the prompt)"
    action.add_argument("--title", type=replace_surrogates, metavar="TEXT", help=text)
    text = 'first time, such as 2027-01-31T08:00 or "tomorrow at 8"'
    action.add_argument("--when", type=replace_surrogates, metavar="TIME", help=text)
    text = 'recurrence, such as "every weekday at 8" or an RRULE'
    action.add_argument("--every", type=replace_surrogates, metavar="RULE", help=text)
    text = "settings of its runs (default: standard); expert has more time and calls"
    action.add_argument("--profile", choices=get_args(ProfileName), help=text)
    text = "conversation that reports the result (default: a new one)"
    action.add_argument("--conversation", dest="conversation_id", metavar="ID", help=text)
    text = "whether the conversation reports results (default: always)"
    action.add_argument("--tell", choices=get_args(Tell), help=text)
    action.add_argument("--yes", action="store_true", help="do not ask about the schedule")

    add_action("cancel", "Cancel a task.", "4f1c", has_id=True)
    add_action("pause", "Pause a schedule.", "4f1c", has_id=True)
    add_action("resume", "Resume a schedule.", "4f1c", has_id=True)
    add_action("run", "Run a task now, even one that has ended.", "4f1c", has_id=True)
    action = add_action("approve", "Approve the call that a task waits for.", "4f1c", has_id=True)
    action.add_argument("--yes", action="store_true", help="do not ask")
    add_action("decline", "Decline the call that a task waits for.", "4f1c", has_id=True)
    add_action("delete", "Delete tasks with their runs; those that run stop.", "4f1c 77aa", has_id=True)
    add_action("watch", "Print what happens to tasks, until Ctrl-C.", "")


def _add_memory(commands: Any) -> None:
    text, example = "List and edit what Brain remembers.", 'brain memory add "I am vegetarian." --user ada'
    parser = _add_command(commands, "memory", text, example)
    parser.set_defaults(action="list", kind=None, category=None, search="", json=False)
    actions = parser.add_subparsers(title="actions (default: list)", metavar="ACTION")
    _add_user(parser)

    def add_action(name: str, text: str, example: str) -> argparse.ArgumentParser:
        action = _add_command(actions, name, text, f"brain memory {name} {example}", "commands.memory.memory")
        action.set_defaults(action=name)
        _add_user(action, default=argparse.SUPPRESS)
        return action

    text = "List facts and conversation summaries, newest first."
    action = add_action("list", text, "--search tea")
    action.add_argument("--kind", choices=get_args(Kind), help="list only facts, or only conversation summaries")
    action.add_argument("--category", choices=get_args(Category), help="list only facts of this category")
    text = "list only items with any of these words, best match first"
    action.add_argument("--search", type=replace_surrogates, default="", metavar="WORDS", help=text)
    action.add_argument("--json", action="store_true", help="print one JSON object")

    action = add_action("add", "Add a fact.", '"I am vegetarian." --immutable')
    action.add_argument("text", metavar="TEXT", type=replace_surrogates, help="the fact, as one sentence")
    text = "category (default: detected from the text)"
    action.add_argument("--category", choices=get_args(Category), help=text)
    text = "protect the fact: the model cannot change or delete it"
    action.add_argument("--immutable", action="store_true", help=text)

    action = add_action("edit", "Edit a fact or a conversation summary.", 'k7m2 "I am vegan."')
    action.add_argument("id", metavar="ID", type=replace_surrogates, help="ID shown by brain memory list")
    action.add_argument("text", metavar="TEXT", type=replace_surrogates, nargs="?", help="new text")
    action.add_argument("--category", choices=get_args(Category), help="new category")
    text = "remove the protection: the model may change and delete the item"
    action.add_argument("--mutable", action="store_true", default=None, help=text)
    text = "protect the item: the model cannot change or delete it"
    action.add_argument("--immutable", action="store_false", dest="mutable", help=text)

    action = add_action("delete", "Delete facts and conversation summaries.", "k7m2 f3a9")
    action.add_argument("id", metavar="ID", type=replace_surrogates, nargs="+", help="IDs shown by brain memory list")

    action = add_action("recall", "Turn the use of memory on or off.", "off")
    action.add_argument("on", metavar="on|off", choices=("on", "off"), help="on: answers use what Brain remembers")


def _add_command(commands: Any, name: str, text: str, example: str, path: str = "") -> argparse.ArgumentParser:
    """Add a command.

    Args:
        path: Its function in `brain.cli`, which is imported when the command runs: most commands need few modules.
    """
    command: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=text, epilog=f"Example: {example}"
    )
    command.set_defaults(command=path or f"commands.{name}.{name}", parser=command)
    _add_global_options(command)
    return command


def _add_global_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that work before and after a command. They have no default: it would override the other place."""
    text = "settings file, such as brain.toml"
    parser.add_argument("--config", type=Path, metavar="FILE", default=argparse.SUPPRESS, help=text)
    text = "model to use: auto, builtin, ollama:NAME, openai:NAME, script:FILE or a name from MODELS (default: auto)"
    parser.add_argument("--model", metavar="MODEL", default=argparse.SUPPRESS, help=text)


def _add_turn_options(command: argparse.ArgumentParser, extent: str) -> None:
    """Add what `ask` and `chat` share.

    Args:
        extent: For how long `--no-memory` is in effect.
    """
    text = "continue this conversation (default: start a new one)"
    command.add_argument("--conversation", metavar="ID", help=text)
    command.add_argument("--no-memory", action="store_true", help=f"do not use memory {extent}")
    text = "make the conversation private: only local models read it, and nothing of it is remembered"
    command.add_argument("--private", action="store_true", help=text)
    text = f"strategy: {', '.join(get_args(StrategyName))} (default: mono)"
    command.add_argument("--strategy", metavar="NAME", help=text)
    text = "with --strategy dual: check the answer before it is shown"
    command.add_argument("--critic", action="store_true", help=text)


def _add_display(command: argparse.ArgumentParser) -> None:
    command.add_argument("--thinking", action="store_true", help="show the model's reasoning")
    command.add_argument("--plain", action="store_true", help="plain text without colors or live updates")


def _add_user(command: argparse.ArgumentParser, default: str = LOCAL_USER) -> None:
    text = f"user name (default: {LOCAL_USER})"
    command.add_argument("--user", type=_user_name, default=default, metavar="NAME", help=text)


def _user_name(typed: str) -> str:
    if not typed.strip() or not typed.isprintable():
        raise argparse.ArgumentTypeError(f"Invalid user name {_quote(typed)}: use printable characters.")
    return typed
