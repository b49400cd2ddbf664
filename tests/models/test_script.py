"""Scripts: reading a file of passes, and playing them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from fast_clock import run_jumping
from model_answers import in_loop

from brain.errors import ModelError, Refused, SettingsError
from brain.messages import Finish, Message
from brain.models import connect_models
from brain.models.model import PassRequest
from brain.models.script import Script, ScriptedPass, read_script
from brain.settings import read

HELLO = [Message("user", "Hello?")]


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "script.jsonl"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ('["a", "b"]\n\n   \n{"chunks": ["c"], "delay_ms": 2.5}\r\n{"chunks": ["d"], "error": "boom"}\n{}\n[]',
         [ScriptedPass(["a", "b"]), ScriptedPass(["c"], 2.5), ScriptedPass(["d"], error="boom"), ScriptedPass(),
          ScriptedPass([])]),
        ('["a\u2028b\u0085c"]\n["\\u2028 \\ud83d\\ude00"]\n',
         [ScriptedPass(["a\u2028b\u0085c"]), ScriptedPass(["\u2028 😀"])]),
        (b'\xef\xbb\xbf["a"]\n', [ScriptedPass(["a"])]),
        ("", []),
    ],
)  # fmt: skip
def test_a_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | bytes, passes: list[ScriptedPass]
) -> None:
    path = write(tmp_path, text)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read_script(path) == read_script(Path("~/script.jsonl")) == passes


@pytest.mark.parametrize(
    ("text", "line"),
    [('["a"]\nnonsense\n', 2), ('["a"]\n\n["b"', 3), ('["a", 1]', 1), ('{"chunk": ["a"]}', 1), ('{"delay_ms": -1}', 1),
     ('"a"', 1), ("[" * 100_000, 1)],
)  # fmt: skip
def test_an_error_names_file_and_line(tmp_path: Path, text: str, line: int) -> None:
    path = write(tmp_path, text)
    with pytest.raises(SettingsError) as caught:
        read_script(path)
    assert str(caught.value).startswith(f"{path}, line {line}: ")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (write(tmp_path, b'["\xff"]'), tmp_path / "missing.jsonl", tmp_path):
        with pytest.raises(SettingsError, match=str(path)):
            read_script(path)


def test_passes_are_played_in_turn_with_their_delay() -> None:
    script = Script("script:x", [ScriptedPass(["a", "b", "c"], delay_ms=20), ScriptedPass(["c"], error="secret")])

    async def play(turn_pass: int) -> Any:
        chunks: list[Any] = []
        try:
            async for chunk in script.stream(PassRequest(HELLO, turn_pass)):
                chunks.append(chunk)
        except ModelError as error:
            chunks.append((error.code, error.detail))
        return chunks, asyncio.get_running_loop().time()

    assert run_jumping(play(0)) == (["a", "b", "c", Finish("stop")], pytest.approx(0.06))
    assert run_jumping(play(1)) == (["c", ("model_failed", "secret")], 0)
    assert run_jumping(play(2)) == ([Finish("stop")], 0)


@pytest.mark.parametrize(("environ", "resume"), [({}, "prefill"), ({"BRAIN_MODEL_RESUME": "message"}, "message")])
@in_loop
async def test_a_script_as_a_model(tmp_path: Path, environ: Any, resume: str) -> None:
    path = write(tmp_path, '["a"]')
    async with connect_models(read({"BRAIN_MODEL": f"script:{path}", **environ}), ()) as connected:
        (model,) = connected.offered
        assert (model.name, model.resume) == (f"script:{path}", resume)
        assert (model.problem, await model.find_problem(), await model.list_names()) == (None, None, [])
        for request in (model.describe(b"", "?"), model.embed(["a"]), model.check_embeddings()):
            with pytest.raises(Refused):
                await request
