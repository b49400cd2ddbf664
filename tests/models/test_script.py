import asyncio
import time
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path

import playing
import pytest

from brain import specialist
from brain.errors import ModelError, Refused, SettingsError
from brain.events import Done, Error, Limits, Token
from brain.messages import Chunk, Finish, History, Message
from brain.models import check_model, open_models
from brain.models.script import Script, ScriptedPass, read
from brain.plugins.registry import Registry
from brain.settings import read as settings_of
from brain.turn.turn import Turn
from brain.turn_request import TurnRequest

HELLO = [Message("user", "Hello?")]


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "script.jsonl"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def played(passes: Sequence[ScriptedPass], turn_pass: int = 0) -> list[Chunk]:
    async def main() -> list[Chunk]:
        async with aclosing(Script("script:x", passes).stream(HELLO, turn_pass)) as chunks:
            return [chunk async for chunk in chunks]

    return asyncio.run(main())


def test_a_line_is_an_array_of_chunks_or_an_object(tmp_path: Path) -> None:
    text = '["a", "b"]\n\n   \n{"chunks": ["c"], "delay_ms": 2.5}\r\n{"chunks": ["d"], "error": "boom"}\n{}\n[]'
    assert read(written(tmp_path, text)) == [
        ScriptedPass(["a", "b"]),
        ScriptedPass(["c"], 2.5),
        ScriptedPass(["d"], error="boom"),
        ScriptedPass(),
        ScriptedPass(),
    ]


def test_only_line_feeds_end_a_line(tmp_path: Path) -> None:
    assert read(written(tmp_path, '["a\u2028b\u0085c"]\n["\\u2028 \\ud83d\\ude00"]\n')) == [
        ScriptedPass(["a\u2028b\u0085c"]),
        ScriptedPass(["\u2028 😀"]),
    ]


def test_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    assert read(written(tmp_path, b'\xef\xbb\xbf["a"]\n')) == [ScriptedPass(["a"])]


def test_an_empty_script_has_no_passes(tmp_path: Path) -> None:
    assert read(written(tmp_path, "")) == []
    assert played([]) == [Finish("stop")]


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ('["a"]\nnonsense\n', "line 2", "invalid character"),
        ('["a"]\n\n["b"', "line 3", "truncated"),
        ('["a", 1]', "line 1", "Expected `str`, got `int`"),
        ('{"chunk": ["a"]}', "line 1", "unknown field `chunk`"),
        ('{"chunks": "a"}', "line 1", "Expected `array`, got `str`"),
        ('{"delay_ms": "1"}', "line 1", "Expected `float`, got `str`"),
        ('{"delay_ms": -1}', "line 1", "Expected `float` >= 0"),
        ('"a"', "line 1", "got `str`"),
        ("null", "line 1", "got `null`"),
        ("[" * 100_000, "line 1", "Expected `str`, got `array`"),
    ],
)
def test_an_error_names_file_line_and_what_is_wrong(tmp_path: Path, text: str, place: str, problem: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(SettingsError) as raised:
        read(path)
    said = str(raised.value)
    assert said.startswith(f"{path}, {place}: expected an array of texts, or an object with chunks: ")
    assert problem in said


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    missing = tmp_path / "missing.jsonl"
    with pytest.raises(SettingsError) as raised:
        read(missing)
    assert str(raised.value) == f"MODEL=script:{missing}: the file cannot be read: No such file or directory."
    with pytest.raises(SettingsError) as raised:
        read(tmp_path)
    assert str(raised.value) == f"MODEL=script:{tmp_path}: the file cannot be read: Is a directory."
    path = written(tmp_path, b'["\xff"]')
    with pytest.raises(SettingsError) as raised:
        read(path)
    assert str(raised.value) == f"MODEL=script:{path}: the file cannot be read: it is not UTF-8."


def test_a_pass_plays_its_line_and_past_the_last_one_nothing() -> None:
    passes = [ScriptedPass(["a", "b"]), ScriptedPass(["c"])]
    assert played(passes, 0) == ["a", "b", Finish("stop")]
    assert played(passes, 1) == ["c", Finish("stop")]
    assert played(passes, 2) == [Finish("stop")]


@pytest.mark.alone
def test_it_waits_before_each_chunk() -> None:
    began = time.monotonic()
    assert played([ScriptedPass(["a", "b", "c"], delay_ms=20)]) == ["a", "b", "c", Finish("stop")]
    assert 0.06 <= time.monotonic() - began < 0.5


def test_it_fails_where_its_line_says_so() -> None:
    async def main() -> None:
        stream = Script("script:x", [ScriptedPass(["a"], error="secret")]).stream(HELLO)
        assert await anext(stream) == "a"
        with pytest.raises(ModelError) as raised:
            await anext(stream)
        assert (raised.value.code, raised.value.message) == (
            "model_failed",
            "The model failed in the middle of its answer.",
        )

    asyncio.run(main())


def test_it_sees_nothing_has_no_vectors_and_no_trouble() -> None:
    async def main() -> None:
        model = Script("script:x", [])
        with pytest.raises(Refused, match="no model that sees images is connected"):
            await model.describe(b"", "?")
        with pytest.raises(Refused, match="no model with embeddings is connected"):
            await model.embed(["a"])
        assert await check_model(model) is None
        await model.aclose()

    asyncio.run(main())


def test_it_is_opened_with_the_operators_wish(tmp_path: Path) -> None:
    path = written(tmp_path, '["a"]')

    async def main(environ: dict[str, str]) -> str:
        (one,) = await open_models(settings_of({"BRAIN_MODEL": f"script:{path}", **environ}), ())
        assert (one.model.name, one.reason, one.problem) == (f"script:{path}", "it was asked for", None)
        return one.model.resume

    assert asyncio.run(main({})) == "prefill"
    assert asyncio.run(main({"BRAIN_MODEL_RESUME": "message"})) == "message"


def test_a_script_in_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, '["a"]')
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read(Path("~/script.jsonl")) == [ScriptedPass(["a"])]


@specialist(read_only=True)
def weather(city: str) -> str:
    """Weather in a city."""
    return f"Sunny in {city}."


def test_every_turn_starts_at_the_first_line() -> None:
    registry = Registry()
    registry.add(weather)
    model = Script(
        "script:x", [ScriptedPass(["Look. ", 'SPECIALIST_REQUEST[weather:{"city":"Oslo"}]']), ScriptedPass(["Sunny."])]
    )
    ask = TurnRequest(message="Weather?", user="me", limits=Limits(), syntax=("bracket",), time_zone="UTC")

    async def main() -> None:
        for _ in range(2):
            found = await playing.read(Turn(ask, History("c"), model, registry))
            assert [event.text for event in found if isinstance(event, Token)] == ["Look. ", "Sunny."]
            assert isinstance(found[-1], Done)
            assert (found[-1].calls, found[-1].passes) == (1, 2)

    asyncio.run(main())


def test_a_turn_of_a_script_that_fails_says_nothing_of_why() -> None:
    model = Script("script:x", [ScriptedPass(["Look"], error="secret")])
    ask = TurnRequest(message="Weather?", user="me", limits=Limits(), syntax=("bracket",), time_zone="UTC")

    async def main() -> None:
        found = await playing.read(Turn(ask, History("c"), model, Registry()))
        assert found[-1] == Error("model_failed", "The model failed in the middle of its answer.", recoverable=True)

    asyncio.run(main())
