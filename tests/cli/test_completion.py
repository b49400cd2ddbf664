"""`brain completion`: the scripts, in the shells that they are for."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from terminal_emulator import Screen, read

from cli.command import Brain

BASH = """
source "$1"; shift
complete -p brain || exit 1
for line in "$@"; do
  read -ra COMP_WORDS <<< "$line"; [[ $line == *' ' ]] && COMP_WORDS+=('')
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMP_LINE="$line" COMP_POINT=${#line}
  _shtab_brain 2>/dev/null
  echo $(printf '%s\\n' "${COMPREPLY[@]}" | sort)
done
"""
COMPLETIONS = {
    "brain ": "ask chat check completion copy-store explain export forget import index memory models replay serve "
    "specialists tasks",
    "brain c": "chat check completion copy-store",
    "brain completion ": "bash fish zsh",
    "brain ask --source ": "api chat voice",
    "brain ask --file sc": "scan.png scans",
    "brain ask --file a --file sc": "scan.png scans",
    "brain chat --config sc": "scan.png scans",
    "brain import sc": "scan.png scans",
    "brain index a sc": "scan.png scans",
    "brain export --output sc": "scan.png scans",
    "brain memory re": "recall",
    "brain tasks re": "resume",
    "brain tasks add --profile ": "expert standard",
    "brain memory recall ": "off on",
    "brain memory list --kind ": "fact memory",
    "brain ask --fi": "--file",
    "brain ask --ho": "",
    "brain serve --ho": "--host",
}
TYPED = {
    "brain comp\t": "brain completion",
    "brain ask --fi\tscan.\t": "brain ask --file scan.png",
    "brain memory add --immu\t": "brain memory add --immutable",
    "brain memory rec\tof\t": "brain memory recall off",
}


def needs(shell: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(shell) is None, reason=f"{shell} is not installed")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a file and a folder to complete."""
    found = tmp_path / "here"
    found.mkdir()
    (found / "scan.png").touch()
    (found / "scans").mkdir()
    return found


def script(shell: str, folder: Path, brain: Brain) -> Path:
    code, out, _ = brain("completion", shell)
    assert code == 0
    path = folder.parent / f"brain.{shell}"
    path.write_text(out)
    return path


def run(folder: Path, *command: str | Path) -> list[str]:
    env = {"HOME": str(folder), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, env=env)
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_bash_completes(folder: Path, brain: Brain) -> None:
    registered, *offered = run(
        folder, "bash", "--norc", "-c", BASH, "bash", script("bash", folder, brain), *COMPLETIONS
    )
    assert registered.endswith("-F _shtab_brain brain")
    assert dict(zip(COMPLETIONS, offered, strict=True)) == COMPLETIONS


@pytest.mark.fish
@needs("fish")
def test_fish_completes(folder: Path, brain: Brain) -> None:
    path = script("fish", folder, brain)
    for line in ("brain c", "brain ask --source ", "brain ask --file sc", "brain memory recall "):
        offered = run(folder, "fish", "--no-config", "-c", f'source {path}; complete -C "{line}"')
        assert sorted(row.partition("\t")[0].rstrip("/") for row in offered) == COMPLETIONS[line].split()


@pytest.mark.zsh
@needs("zsh")
@pytest.mark.parametrize(
    ("before", "after"),  # `compinit` in a .zshrc
    [("", 'eval "$(cat ../brain.zsh)"'), ("", "source ../brain.zsh"), ("fpath=($PWD:h $fpath)", "")],
    ids=["eval", "source", "fpath"],
)
def test_zsh_completes_by_tab(before: str, after: str, folder: Path, brain: Brain) -> None:
    path = script("zsh", folder, brain)
    path.with_name("_brain").write_bytes(path.read_bytes())
    (folder / ".zshrc").write_text(f"PS1='> '; {before}; autoload -U compinit && compinit -u -D; {after}; echo ready\n")
    master, slave = os.openpty()
    env = {"ZDOTDIR": str(folder), "HOME": str(folder), "PATH": "/usr/bin:/bin", "TERM": "xterm"}
    streams = {"stdin": slave, "stdout": slave, "stderr": slave}
    shell = subprocess.Popen(["zsh", "-i"], **streams, cwd=folder, env=env, start_new_session=True)  # type: ignore[call-overload]
    os.close(slave)
    screen = Screen(columns=200)
    try:
        wait_for(master, screen, "ready\n>")
        for typed, completed in TYPED.items():
            os.write(master, typed.encode())
            wait_for(master, screen, f"> {completed}")
            os.write(master, b"\x15")  # clears the line
    finally:
        shell.kill()
        shell.wait()
        os.close(master)


def wait_for(master: int, screen: Screen, text: str) -> None:
    """Wait until this is on the screen of a terminal."""
    while text not in screen.text:
        data = read(master)
        assert data, f"never saw {text!r}: {screen.text!r}"
        screen.feed(data.decode())
