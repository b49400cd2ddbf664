"""Scripts: reading a file of passes, and playing them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from clock import run_jumping

from brain.errors import ModelError, Refused, SettingsError
from brain.messages import Finish, Message
from brain.models import check_model, open_models
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
    ("text", "line", "problem"),
    [
        ('["a"]\nnonsense\n', 2, "invalid character"),
        ('["a"]\n\n["b"', 3, "truncated"),
        ('["a", 1]', 1, "Expected `str`, got `int`"),
        ('{"chunk": ["a"]}', 1, "unknown field `chunk`"),
        ('{"delay_ms": -1}', 1, "Expected `float` >= 0"),
        ('"a"', 1, "got `str`"),
        ("[" * 100_000, 1, "Expected `str`, got `array`"),
    ],
)
def test_an_error_names_file_line_and_problem(tmp_path: Path, text: str, line: int, problem: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(SettingsError) as caught:
        read_script(path)
    assert str(caught.value).startswith(f"{path}, line {line}: expected an array of texts, or an object with chunks: ")
    assert problem in str(caught.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    path = write(tmp_path, b'["\xff"]')
    missing = tmp_path / "missing.jsonl"
    problems = {path: "it is not UTF-8", missing: "No such file or directory", tmp_path: "Is a directory"}
    for one, problem in problems.items():
        with pytest.raises(SettingsError) as caught:
            read_script(one)
        assert str(caught.value) == f"MODEL=script:{one}: the file cannot be read: {problem}."


def test_passes_are_played_in_turn_with_their_delay() -> None:
    script = Script("script:x", [ScriptedPass(["a", "b", "c"], delay_ms=20), ScriptedPass(["c"])])

    async def play(turn_pass: int) -> Any:
        chunks = [chunk async for chunk in script.stream(HELLO, turn_pass)]
        return chunks, asyncio.get_running_loop().time()

    assert run_jumping(play(0)) == (["a", "b", "c", Finish("stop")], pytest.approx(0.06))
    assert run_jumping(play(1)) == (["c", Finish("stop")], 0)
    assert run_jumping(play(2)) == ([Finish("stop")], 0)


def test_a_pass_may_fail() -> None:
    async def main() -> None:
        stream = Script("script:x", [ScriptedPass(["a"], error="secret")]).stream(HELLO)
        assert await anext(stream) == "a"
        with pytest.raises(ModelError) as caught:
            await anext(stream)
        assert (caught.value.code, caught.value.detail) == ("model_failed", "secret")

    asyncio.run(main())


@pytest.mark.parametrize(("environ", "resume"), [({}, "prefill"), ({"BRAIN_MODEL_RESUME": "message"}, "message")])
def test_a_script_as_a_model(tmp_path: Path, environ: Any, resume: str) -> None:
    path = write(tmp_path, '["a"]')

    async def main() -> None:
        (entry,) = await open_models(read({"BRAIN_MODEL": f"script:{path}", **environ}), ())
        model = entry.model
        assert (model.name, model.resume) == (f"script:{path}", resume)
        assert (entry.reason, entry.problem, await check_model(model)) == ("it was asked for", None, None)
        for request in (model.describe(b"", "?"), model.embed(["a"]), model.check_embeddings()):
            with pytest.raises(Refused):
                await request
        await model.aclose()

    asyncio.run(main())
