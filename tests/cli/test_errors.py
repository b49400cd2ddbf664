"""Wrong invocations: each prints one line with the problem, its place and the command to type next.

These sentences are the contract of the command line; no other test compares them.
"""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from model_servers import OllamaServer, in_thread

from cli.command import Brain

MODELS = "auto, builtin, ollama:NAME, openai:NAME, script:FILE or a name from MODELS, comma-separated"
BAD_IMPORT = "Try: brain import FILE --user NAME"

ROWS: list[tuple[str, str]] = [
    # commands, actions and options
    ("", "No command. Try: brain --help"),
    ("asl hello", "Unknown command 'asl'. Did you mean 'ask'? Try: brain --help"),
    ("xyzzy", "Unknown command 'xyzzy'. Try: brain --help"),
    ("hlep", "Unknown command 'hlep'. Did you mean '--help'? Try: brain --help"),
    ("version", "Unknown command 'version'. Did you mean '--version'? Try: brain --help"),
    ("--verison", "Unknown option '--verison'. Did you mean '--version'? Try: brain --help"),
    ("--modle x ask hi", "Unknown option '--modle'. Did you mean '--model'? Try: brain --help"),
    ("memory lst", "Unknown action 'lst'. Did you mean 'list'? Try: brain memory --help"),
    ("serve --prot 80", "Unknown option '--prot'. Did you mean '--port'? Try: brain serve --help"),
    ("serve --port", "--port needs a value. Try: brain serve --help"),
    ("ask --plain=yes hi", "--plain takes no value. Try: brain ask --help"),
    ("chat hello", "Unexpected argument 'hello'. Try: brain chat --help"),
    ("ask a b c", "Unexpected argument 'b'. Put the message in quotes. Try: brain ask --help"),
    ("forget", "USER is missing. Try: brain forget --help"),
    (
        "ask --source voic hi",
        "--source cannot be 'voic'. Did you mean 'voice'? Expected chat, voice, api. Try: brain ask --help",
    ),
    ("completion tcsh", "SHELL cannot be 'tcsh'. Expected bash, zsh, fish. Try: brain completion --help"),
    (
        "memory recall of",
        "on|off cannot be 'of'. Did you mean 'off'? Expected on, off. Try: brain memory recall --help",
    ),
    ("tasks lst", "Unknown action 'lst'. Did you mean 'list'? Try: brain tasks --help"),
    ("tasks add", "PROMPT is missing. Try: brain tasks add --help"),
    ("tasks cancel", "ID is missing. Try: brain tasks cancel --help"),
    (
        "tasks add x --profile expret",
        "--profile cannot be 'expret'. Did you mean 'expert'? Expected standard, expert. Try: brain tasks add --help",
    ),
    (
        "tasks add x --conversation ../x",
        "--conversation cannot be '../x'. Expected 1 to 64 letters, digits, _ or -. Try: brain chat --continue",
    ),
    ("export --user \x1b[2J", "Invalid user name '\\u{1b}[2J': use printable characters. Try: brain export --help"),
    # messages and files
    (
        "ask",
        'No message. Use brain ask "your message", or brain ask - to read standard input. Try: brain ask --help',
    ),
    ("ask -", "The message is empty. Try: brain ask --help"),
    (
        "ask - --file -",
        "Standard input can be read once: as the message, or as one file. Try: brain ask --help",
    ),
    ("ask hi --file nothing.txt", "Cannot read nothing.txt: no such file or directory. Try: brain ask --help"),
    ("ask hi --file .", "Cannot read .: is a directory. Try: brain ask --help"),
    (
        "ask hi --conversation ../x",
        "--conversation cannot be '../x'. Expected 1 to 64 letters, digits, _ or -. Try: brain chat --continue",
    ),
    ("chat --continue --conversation c", "Use --conversation or --continue, not both. Try: brain chat --continue"),
    (
        "ask hi --strategy resaon BRAIN_STRATEGIES=mono,reason",
        "--strategy cannot be 'resaon'. Did you mean 'reason'? Expected mono, reason. Try: brain ask --help",
    ),
    (
        "chat --strategy step BRAIN_STRATEGIES=dual",
        "--strategy cannot be 'step'. Expected mono, dual. Try: brain ask --help",
    ),
    ("ask hi --critic --strategy reason", "--critic needs --strategy dual. Try: brain ask --help"),
    ("chat --critic", "--critic needs --strategy dual. Try: brain chat --help"),
    # settings
    ("check BRAIN_MODLE=x", "Unknown setting BRAIN_MODLE. Did you mean 'BRAIN_MODEL'? Try: unset BRAIN_MODLE"),
    (
        "check BRAIN_CALLS=many",
        "Invalid BRAIN_CALLS: 'many'. Expected a whole number from 0 to 100. Try: export BRAIN_CALLS=5",
    ),
    (
        "serve BRAIN_KEYS=secret",
        "Invalid BRAIN_KEYS: (not shown). Expected key:user pairs, comma-separated. Try: export BRAIN_KEYS=KEY:USER",
    ),
    ("serve --port x", "Invalid --port: 'x'. Expected a port from 0 to 65535. Try: brain serve --port 8000"),
    (
        "serve --host 0.0.0.0",
        "Refusing to start without API keys on 0.0.0.0: anyone on the network could use the server. "
        "Try: export BRAIN_KEYS=KEY:USER, or brain serve --host 127.0.0.1",
    ),
    (
        "check --config none.toml",
        "Cannot read the settings file none.toml: no such file or directory. Try: brain check --config FILE",
    ),
    ("check --config broken.toml", "broken.toml, line 2, column 9: not valid TOML. Correct the file."),
    (
        "check --config typo.toml",
        "Unknown setting modle in typo.toml, line 1. Did you mean 'model'? Correct or remove it.",
    ),
    # models and specialists
    (
        "ask hi --model olama:x",
        f"Invalid --model: 'olama:x'. Expected {MODELS}. Did you mean 'ollama:x'? Try: brain check --model auto",
    ),
    (
        "ask hi --model llama3.2",
        f"Invalid --model: 'llama3.2'. Expected {MODELS}. Did you mean 'ollama:llama3.2' or 'openai:llama3.2'? "
        "Try: brain check --model auto",
    ),
    (
        "ask hi --model script:none",
        "Cannot read the script none: no such file or directory. Try: brain check --model builtin",
    ),
    (
        "ask hi --model script:bad.jsonl",
        "bad.jsonl, line 2: expected a JSON array of texts, or an object with chunks. Try: brain check --model builtin",
    ),
    ("specialists wkii", "Unknown specialist 'wkii'. Did you mean 'wiki'? Try: brain specialists"),
    (
        "ask hi BRAIN_ALLOWED_SPECIALISTS=docs,wikki",
        "Unknown specialist 'wikki' in BRAIN_ALLOWED_SPECIALISTS. Did you mean 'wiki'? Try: brain specialists",
    ),
    # data
    ("export", "No store at DATABASE. Try: export BRAIN_STORE=sqlite:PATH"),
    (
        "memory BRAIN_STORE=memory:",
        "This command needs a database on disk, but BRAIN_STORE is memory:. Try: export BRAIN_STORE=sqlite:PATH",
    ),
    ("memory add \t", "The fact is empty. Try: brain memory add --help"),
    ("forget ada", "Cannot ask for confirmation without a terminal. Try: brain forget ada --yes"),
    ("import nothing.jsonl", f"Cannot read nothing.jsonl: no such file or directory. {BAD_IMPORT}"),
    ("import empty.jsonl", "empty.jsonl is empty. Try: brain export --output FILE"),
    (
        "import notes.jsonl",
        f'notes.jsonl, line 1: not a Brain export: the first line must have "kind": "brain". {BAD_IMPORT}',
    ),
    ("import nobody.jsonl", f"nobody.jsonl, line 1: the file names no user. {BAD_IMPORT}"),
]
FAILED = re.compile(r"ask - |ask -$|.*--file [n.]|export$|memory BRAIN|memory add|forget ada|import ")
"""The invocations that are well formed: their exit code is 1, that of all others 2."""

FILES: Mapping[str, str] = {
    "broken.toml": "calls = 2\nmodel = x\n",
    "typo.toml": "modle = 'x'\n",
    "bad.jsonl": '["Hi."]\n{"text": 1}\n',
    "empty.jsonl": "",
    "notes.jsonl": '{"a": 1}\n',
    "nobody.jsonl": '{"kind": "brain", "version": 2}\n',
}


@pytest.mark.parametrize(("invocation", "sentence"), ROWS, ids=[row[0] for row in ROWS])
def test_a_wrong_invocation(
    invocation: str, sentence: str, brain: Brain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    words = invocation.split(" ") if invocation else []
    settings = [word for word in words if word.startswith("BRAIN_")]
    for setting in settings:
        monkeypatch.setenv(*setting.split("=", 1))
    code, out, err = brain(*(word for word in words if word not in settings))
    is_wrong_use = FAILED.match(invocation) is None or invocation == "ask - --file -"
    assert (code, out) == (2 if is_wrong_use else 1, "")
    assert err == f"brain: {sentence.replace('DATABASE', str(brain.store))}\n"


def test_a_model_that_ollama_does_not_have(brain: Brain, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {
        "POST /api/show": (404, {"error": "not found"}),
        "GET /api/tags": (200, {"models": [{"model": "llama3.2"}]}),
    }
    with in_thread(OllamaServer(answers=answers)) as server:
        monkeypatch.setenv("BRAIN_MODEL_URL", server.url)
        sentence = f"brain: Ollama at {server.url} has no model 'lama3.2'. Did you mean 'llama3.2'?"
        assert brain("ask", "--model", "ollama:lama3.2", "hi") == (2, "", f"{sentence} Try: ollama pull lama3.2\n")


def test_a_model_server_that_is_away(brain: Brain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRAIN_MODEL_URL", "http://127.0.0.1:1/v1")
    code, out, err = brain("ask", "--model", "openai:m", "hi")
    assert (code, out) == (1, "")
    assert list(dict.fromkeys(err.splitlines())) == [  # pytest has log handlers, too
        "http://127.0.0.1:1/v1: connection refused",
        "Error: Cannot connect to the model server. (model_unreachable)",
        "brain: The answer failed (model_unreachable). Try: brain check",
    ]


def test_memory_items_and_users_that_are_not_there(brain: Brain, tmp_path: Path) -> None:
    def said(*arguments: str) -> str:
        code, out, err = brain(*arguments)
        assert (code, out) == (1, "")
        return err

    (item,) = re.findall(r"^\w+", brain("memory", "add", "I like tea.", "--immutable")[1].splitlines()[0])
    assert said("memory", "delete", "none") == "brain: No memory item 'none'. Try: brain memory list\n"
    assert said("memory", "edit", "none", "x") == "brain: No memory item 'none'. Try: brain memory list\n"
    advice = f"Try: add --mutable, or brain memory delete {item}"
    assert said("memory", "edit", item, "x") == f"brain: {item} is protected. {advice}\n"
    sentence = "No data for user ada. Users with data: local."
    assert said("export", "--user", "ada") == f"brain: {sentence} Try: brain export --user NAME\n"
    code, _, err = brain("memory", "edit", item)
    assert (code, err.count("Try: ")) == (2, 1)
