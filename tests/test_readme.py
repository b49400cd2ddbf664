"""The README: its commands, one after the other, in a copy of the repository, and the events that it shows."""

import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from brain_servers import Answer, brain_served, post, script
from model_servers import OllamaServer, OpenAIServer, Pass, in_thread, models

from brain import Registry

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
HELLO = [Pass(["Hello."])] * 9
INSTALL = "python3 -m venv .venv && .venv/bin/pip install"
ACTIVATE = (". .venv/bin/activate", "")
OUTPUTS = {
    "README.md": (
        (INSTALL, ""),
        (".venv/bin/brain serve", "No specialist fits"),
        ACTIVATE,
        ("brain ask --file docs/ticket.png", "Row 4, seat 12"),
        ("brain chat", ""),
        ("curl -N -F message=", "24.7 kg/m²"),
        ("brain serve --model ollama:", "Hello."),
        ("BRAIN_MODEL_URL=http://127.0.0.1:8080/v1 brain serve --model openai:", "Hello."),
        ("OPENAI_API_KEY=sk-", "Hello."),
        ("BRAIN_MODEL_URL=https://openrouter.ai/api/v1 BRAIN_MODEL_KEY=", "Hello."),
        ("curl -N http://127.0.0.1:8000/v1/chat/completions", "data: [DONE]"),
        ("BRAIN_SPECIALISTS_FOLDER=my_specialists brain ask", "Paris: 24 °C, sunny."),
        ("brain memory add", ""),
        ("brain memory", "I am vegetarian."),
        ("brain export", ""),
        (f"{INSTALL} -q -e '.[all,dev]' && .venv/bin/pytest", ""),
    ),
    "docs/tutorials/get-started.md": (
        (INSTALL, ""),
        ACTIVATE,
        ("brain serve", "No specialist fits"),
        ACTIVATE,
        ("brain ask", "24.7 kg/m²"),
        ("brain ask --file docs/ticket.png", "Row 4, seat 12"),
        ("curl -N -F message=", "TICKET-4-12"),
        ("brain check", "ok   model builtin"),
    ),
    "docs/tutorials/first-specialist.md": (
        ("export BRAIN_SPECIALISTS_FOLDER", ""),
        ("brain ask", "espresso: 2.20 EUR"),
        ("brain ask", "tea: 2.09 USD"),
        ("brain ask", "there is no cocoa on the menu"),
        ("PYTHONPATH=my_specialists python test_menu.py", ""),
    ),
    "docs/tutorials/your-documents.md": (
        ("brain index notes", "2 passages"),
        ("brain ask", "three months' notice"),
        ("brain index", "1 unchanged"),
        ("brain index --list", "2 passages"),
        ("brain index --forget notes", "2 passages"),
        ("brain ask --file notes/handbook.md", "thirty days of paid leave"),
    ),
}
"""The beginning of each command of a page, and what it prints; for a server, what it answers to a message."""


def steps(page: str) -> Iterator[tuple[str | None, str]]:
    """The shell commands of a page without their comments, and before them the files to be saved, with their paths."""
    for path, language, block in re.findall(
        r"^(?:[^\n]*Save this as `([^`\n]+)`:\n\n)?```(\w+)\n(.*?)^```",
        (ROOT / page).read_text("utf-8"),
        re.MULTILINE | re.DOTALL,
    ):
        if path:
            yield path, block
        elif language == "sh":
            for line in block.replace("\\\n", "").splitlines():
                yield None, re.sub(r"\s+# .*", "", line)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The files of the repository, without those that are not in it, and `.venv` with what the README installs."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    for name in listed.split("\0"):
        if name and not name.startswith("tests/"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    return tmp_path


@contextmanager
def serving(command: str, folder: Path, env: Mapping[str, str]) -> Iterator[str]:
    """Run a command that serves, and yield the URL that it prints."""
    process = subprocess.Popen(
        ["bash", "-c", command], cwd=folder, env=env, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stderr is not None
    try:
        printed = ""
        while "Specialists:" not in printed:
            line = process.stderr.readline()
            assert line, f"{command}: {printed}"
            printed += line
        found = re.search(r"running at (\S+)", printed)
        assert found is not None
        yield found[1]
    finally:
        process.send_signal(signal.SIGTERM)
        process.stderr.read()
        process.stderr.close()
        process.wait()


@pytest.mark.curl
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", OUTPUTS)
def test_every_command_works_in_order(page: str, clone: Path, tmp_path: Path) -> None:
    found = list(steps(page))
    commands = [text for path, text in found if path is None]
    assert [text[: len(start)] for text, (start, _) in zip(commands, OUTPUTS[page], strict=True)] == [
        start for start, _ in OUTPUTS[page]
    ]
    outputs = iter(OUTPUTS[page])
    ollama = OllamaServer(*HELLO, answers={"POST /api/show": (200, {"capabilities": ["completion"]})})
    llama = OpenAIServer(*HELLO, answers=models("my-model", owned_by="llamacpp"))
    hosted = OpenAIServer(*HELLO)
    env = {
        "PATH": f"{clone}/.venv/bin:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(clone),
        "XDG_DATA_HOME": str(tmp_path / "data"),
        "BRAIN_PORT": "0",
        "OLLAMA_HOST": "http://127.0.0.1:9",  # so that `auto` finds none on this machine
    }
    url = "http://127.0.0.1:8000"
    with ExitStack() as servers, ExitStack() as running:
        for server in (ollama, llama, hosted):
            servers.enter_context(in_thread(server))
        for path, text in found:
            if path is not None:
                (clone / path).parent.mkdir(exist_ok=True)
                (clone / path).write_text(text, "utf-8")
                continue
            _, output = next(outputs)
            if "pip install" in text:
                continue
            if text.startswith("export "):
                name, _, value = text.removeprefix("export ").partition("=")
                env[name] = value
            elif "brain serve" in text:
                running.close()
                own = {"OLLAMA_HOST": ollama.url} if "ollama:" in text else {"OPENAI_BASE_URL": hosted.url}
                for ours, double in (("http://127.0.0.1:8080/v1", llama), ("https://openrouter.ai/api/v1", hosted)):
                    text = text.replace(ours, double.url)
                served = serving(text.replace("…", "x"), clone, env | (own if "--model" in text else {}))
                url = running.enter_context(served)
                assert output in post(url, json={"message": "Hello"}).last["text"]
            else:
                done = subprocess.run(
                    ["bash", "-c", text.replace("http://127.0.0.1:8000", url)],
                    cwd=clone, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                )  # fmt: skip
                assert (done.returncode, output in done.stdout) == (0, True), f"{text}\n{done.stdout}\n{done.stderr}"
    if page == "README.md":
        keys = [[request.headers.get("authorization") for request in server.requests][-1] for server in (llama, hosted)]
        assert keys == [None, "Bearer sk-or-x"]
        assert "I am vegetarian." in (clone / "my-data.jsonl").read_text("utf-8")


def test_the_events_are_those_that_brain_sends(tmp_path: Path) -> None:
    namespace: dict[str, Any] = {}
    exec(next(re.finditer(r"```python\n(.*?)```", README, re.DOTALL))[1], namespace)
    before, after = re.findall(r"^```text\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    tokens = re.findall(r'data: \{"content": "(.*)"\}', before)
    registry = Registry()
    registry.add(namespace["weather"])
    first = [token.replace('\\"', '"') for token in tokens]
    with brain_served(registry, MODEL=script(tmp_path, first, ["It is 24 °C and sunny in Rome."])) as server:
        answer: Answer = post(server.url, json={"message": "weather in Rome"})
    shown = [re.escape(line).replace("…", ".*") for line in after.splitlines()]
    sent = re.findall(r"^event: (.*)\ndata: (.*)$", answer.body.decode(), re.MULTILINE)
    lines = [f"event: {name:<19}data: {data}" for name, data in sent if name != "turn_start"]
    assert [re.fullmatch(*pair) is not None for pair in zip(shown, lines, strict=True)] == [True] * len(lines)
