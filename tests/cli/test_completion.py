"""`brain completion`: the scripts, in the shells that they are for."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from emulator import Screen, read

from brain.cli.main import run

BASH = """
source "$1"; shift
complete -p brain || exit 1
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_LINE="$*" COMP_POINT=${#COMP_LINE}
_shtab_brain 2>/dev/null
printf '%s\\n' "${COMPREPLY[@]}"
"""
LOADED = [("", 'eval "$(cat ../brain.zsh)"'), ("", "source ../brain.zsh"), ("fpath=($PWD:h $fpath)", "")]
"""What stands before and behind `compinit` in a .zshrc."""
ZSH = 'autoload -U compinit && compinit -u -D && eval "$(cat "$1")" && echo "$_comps[brain]"'
COMMANDS = [
    *("ask", "chat", "check", "completion", "export", "forget", "import", "index", "memory", "serve", "specialists"),
]


def has(shell: str) -> pytest.MarkDecorator:
    """Marks a test that needs a shell."""
    return pytest.mark.skipif(shutil.which(shell) is None, reason=f"{shell} is not installed")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where completion happens: with a file and a folder."""
    found = tmp_path / "here"
    found.mkdir()
    (found / "scan.png").touch()
    (found / "scans").mkdir()
    return found


def script(shell: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert run(["completion", shell]) == 0
    path = folder.parent / f"brain.{shell}"
    path.write_text(capsys.readouterr().out)
    return path


def in_bash(script: Path, folder: Path, *words: str) -> list[str]:
    """What bash offers for the last of these words."""
    told = subprocess.run(
        ["bash", "--norc", "-c", BASH, "bash", str(script), *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    registered, *offered = told.stdout.split("\n")
    assert registered.endswith("-F _shtab_brain brain")
    assert told.stderr == ""
    return sorted(filter(None, offered))


CASES: Sequence[tuple[Sequence[str], Sequence[str]]] = [
    (["brain", ""], COMMANDS),
    (["brain", "c"], ["chat", "check", "completion"]),
    (["brain", "completion", ""], ["bash", "fish", "zsh"]),
    (["brain", "ask", "--source", ""], ["api", "chat", "voice"]),
    (["brain", "ask", "--file", "sc"], ["scan.png", "scans"]),
    (["brain", "ask", "--file", "a", "--file", "sc"], ["scan.png", "scans"]),
    (["brain", "chat", "--config", "sc"], ["scan.png", "scans"]),
    (["brain", "import", "sc"], ["scan.png", "scans"]),
    (["brain", "index", "sc"], ["scan.png", "scans"]),
    (["brain", "index", "a", "sc"], ["scan.png", "scans"]),
    (["brain", "export", "--output", "sc"], ["scan.png", "scans"]),
    (["brain", "memory", "re"], ["recall"]),
    (["brain", "memory", "recall", ""], ["off", "on"]),
    (["brain", "memory", "list", "--kind", ""], ["fact", "memory"]),
    (["brain", "ask", "--fi"], ["--file"]),
    (["brain", "ask", "--pl"], ["--plain"]),
    (["brain", "ask", "--ho"], []),
    (["brain", "serve", "--ho"], ["--host"]),
]


@pytest.mark.parametrize(("words", "offered"), CASES, ids=[" ".join(words) for words, _ in CASES])
def test_bash_completes(
    words: Sequence[str], offered: Sequence[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert in_bash(script("bash", folder, capsys), folder, *words) == offered


@pytest.mark.zsh
@has("zsh")
def test_zsh_takes_its_script(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = script("zsh", folder, capsys)
    told = subprocess.run(
        ["zsh", "-f", "-c", ZSH, "zsh", path],
        capture_output=True, text=True, check=True, cwd=folder,
    )  # fmt: skip
    assert (told.stdout, told.stderr) == ("_shtab_brain\n", "")


@pytest.mark.zsh
@has("zsh")
@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("brain comp\t", "brain completion"),
        ("brain ask --fi\tscan.\t", "brain ask --file scan.png"),
        ("brain memory add --immu\t", "brain memory add --immutable"),
        ("brain memory rec\tof\t", "brain memory recall off"),
    ],
)
@pytest.mark.parametrize(("before", "behind"), LOADED, ids=["eval", "source", "fpath"])
def test_zsh_completes_by_tab(
    typed: str, completed: str, before: str, behind: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = script("zsh", folder, capsys)
    path.with_name("_brain").write_bytes(path.read_bytes())
    (folder / ".zshrc").write_text(
        f"PS1='> '; {before}; autoload -U compinit && compinit -u -D; {behind}; echo ready\n"
    )
    master, slave = os.openpty()
    env = {"ZDOTDIR": str(folder), "HOME": str(folder), "PATH": "/usr/bin:/bin", "TERM": "xterm"}
    shell = subprocess.Popen(
        ["zsh", "-i"], stdin=slave, stdout=slave, stderr=slave, cwd=folder, env=env, start_new_session=True
    )
    os.close(slave)
    screen = Screen()
    try:
        seen(master, screen, "ready\n>")
        os.write(master, typed.encode())
        seen(master, screen, f"> {completed}")
    finally:
        shell.kill()
        shell.wait()
        os.close(master)


def seen(master: int, screen: Screen, text: str) -> None:
    """Waits until this is on a terminal's screen."""
    while text not in screen.text:
        brought = read(master)
        assert brought, f"never saw {text!r}: {screen.text!r}"
        screen.feed(brought.decode())


@pytest.mark.fish
@has("fish")
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("brain c", ["chat", "check", "completion"]),
        ("brain ask --source ", ["api", "chat", "voice"]),
        ("brain ask --file sc", ["scan.png", "scans/"]),
        ("brain memory recall ", ["off", "on"]),
    ],
)
def test_fish_completes(line: str, offered: list[str], folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = script("fish", folder, capsys)
    told = subprocess.run(
        ["fish", "--no-config", "-c", f'source {path}; complete -C "{line}"'],
        capture_output=True, text=True, check=True, cwd=folder, env={"HOME": str(folder), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert sorted(row.partition("\t")[0] for row in told.stdout.splitlines()) == offered
    assert told.stderr == ""
