"""The table of models: how its rows are read, and which server and key each model has."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from brain.errors import SettingsError
from brain.settings import KEYS, Settings, read
from brain.settings.models import ModelRow, Prefixes

OPENAI = "https://api.openai.com/v1"
OLLAMA = "http://127.0.0.1:11434"


def rows(table: Mapping[str, Any], **environ: str) -> Settings:
    """Settings with this table, and other environment variables."""
    return read({"BRAIN_MODELS": json.dumps(table), **environ})


def test_a_table_is_read_alike_from_toml_and_from_json(tmp_path: Path) -> None:
    config = tmp_path / "brain.toml"
    config.write_text(
        'model = "big, small"\n[models.small]\nis = "ollama:llama3.2"\n'
        '[models.big]\nis = "openai:gpt-5"\nurl = "https://a.example/v1/"\nkey_env = "BIG_KEY"\nresume = "prefill"\n'
        'sees_images = true\ncontext = 1048576\nembeddings = "e"\n'
        'embeddings_prefix = {query = "q: ", passage = "p: "}\n'
    )
    prefixes = {"query": "q: ", "passage": "p: "}
    big: dict[str, Any] = {
        "is": "openai:gpt-5",
        "url": "https://a.example/v1/",
        "key_env": "BIG_KEY",
        "resume": "prefill",
    }
    big |= {"sees_images": True, "context": 1048576, "embeddings": "e", "embeddings_prefix": prefixes}
    environ = {"BIG_KEY": "sk-big"}
    from_json = rows({"small": {"is": "ollama:llama3.2"}, "big": big}, BRAIN_MODEL="big,small", **environ)
    for settings in (read(environ, config), from_json):
        assert settings.model == ("big", "small")
        assert settings.row("small") == ModelRow(name="small", kind="ollama", model="llama3.2", url=OLLAMA)
        assert settings.row("big") == ModelRow(
            name="big",
            kind="openai",
            model="gpt-5",
            url="https://a.example/v1",
            key="sk-big",
            resume="prefill",
            sees_images=True,
            context=1_048_576,
            embeddings="e",
            embeddings_prefix=Prefixes("q: ", "p: ", "p: "),
        )


TWO = {"a": {"is": "builtin"}, "vec": {"is": "ollama:nomic"}, "b": {"is": "openai:m"}}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, ("a", "vec", "b")),
        ({"BRAIN_EMBEDDINGS": "vec"}, ("a", "b")),
        ({"BRAIN_MODEL": "b"}, ("b",)),
        ({"BRAIN_MODEL": "b,builtin,ollama:x"}, ("b", "builtin", "ollama:x")),
        ({"BRAIN_MODEL": "auto"}, ("auto",)),
    ],
)
def test_all_rows_are_offered_unless_model_names_some(environ: dict[str, str], expected: Sequence[str]) -> None:
    assert rows(TWO, **environ).model == tuple(expected)


@pytest.mark.parametrize(
    ("row", "place"),
    [
        (1, ""),
        ({"is": "gpt"}, ".is"),
        ({"is": "auto"}, ".is"),
        ({"is": "builtin", "key": "sk-1"}, ".key"),
        ({"ulr": "x"}, ".ulr"),
        ({"url": "x.example"}, ".url"),
        ({"url": "ftp://u:sk-1@x"}, ".url"),
        ({"key": "sk-1 é"}, ".key"),
        ({"key_env": "sk-1"}, ".key_env"),
        ({"key_env": "NO_KEY"}, ".key_env"),
        ({"key_env": "BAD_KEY"}, ".key_env"),
        ({"key": "sk-1", "key_env": "K"}, ""),
        ({"resume": "both"}, ".resume"),
        ({"sees_images": "si"}, ".sees_images"),
        ({"context": 0}, ".context"),
        ({"embeddings": ""}, ".embeddings"),
    ],
)
def test_an_error_names_row_and_field(row: Any, place: str) -> None:
    row = {"is": "openai:m", **row} if isinstance(row, dict) else row
    with pytest.raises(SettingsError, match=rf"\bmodels\.a{re.escape(place)}\b") as caught:
        rows({"a": row}, BAD_KEY="sk-1 x")
    assert "sk-1" not in f"{caught.value} {caught.value.advice}"


def test_names_and_kinds_of_rows() -> None:
    for name in ("brain", "a:b"):
        with pytest.raises(SettingsError, match=f"models: '{name}'"):
            rows({name: {"is": "builtin"}})
    with pytest.raises(SettingsError, match=r"^models\.a\.is "):
        rows({"a": {"url": "http://x"}})


@pytest.mark.parametrize(
    ("environ", "place"),
    [
        ({"BRAIN_MODELS": '{"a": sk-1}'}, "BRAIN_MODELS.* at character 7"),
        ({"BRAIN_MODELS": '{"a": {"is": "builtin"}, "a": {}}'}, "BRAIN_MODELS.* key a "),
        ({"BRAIN_MODELS": "[]"}, "BRAIN_MODELS"),
        ({"BRAIN_MODELS": "[" * 100_000}, "BRAIN_MODELS"),
        ({"BRAIN_MODEL": "bg", "BRAIN_MODELS": '{"big": {"is": "builtin"}}'}, "BRAIN_MODEL: 'bg'.* 'big'"),
        ({"BRAIN_EMBEDDINGS": "a", "BRAIN_MODELS": '{"a": {"is": "builtin"}}'}, "BRAIN_EMBEDDINGS: 'a'"),
    ],
)
def test_an_error_names_the_place_in_a_table(environ: dict[str, str], place: str) -> None:
    with pytest.raises(SettingsError, match=place) as caught:
        read(environ)
    assert "sk-1" not in f"{caught.value} {caught.value.advice}"


def test_no_key_is_ever_shown() -> None:
    url = "https://ann:sk-1@a.example/v1?key=sk-1"
    environ = {"BRAIN_MODEL_URL": url, "BRAIN_MODEL_KEY": "sk-1", "OPENAI_API_KEY": "sk-1"}
    settings = rows({"a": {"is": "openai:m", "key": "sk-1"}}, **environ)
    shown = [settings, settings.row("a"), settings.row("openai:x"), settings.row("openai:x").description]
    assert settings.row("openai:x").key == "sk-1"
    assert "sk-1" not in f"{shown!r} {shown}"


def test_unused_settings_are_named() -> None:
    environ = {"BRAIN_MODEL_URL": "http://z/v1", "BRAIN_MODEL_KEY": "sk-1", "BRAIN_MODEL": "a"}
    table = {"a": {"is": "builtin"}, "vec": {"is": "ollama:e"}}
    for settings in (rows(table, **environ), rows(table, **environ, BRAIN_EMBEDDINGS="vec")):
        unused = [name for name in KEYS for warning in settings.warnings if f"BRAIN_{name} " in warning]
        assert unused == ["MODEL_URL", "MODEL_KEY"]
    assert rows(table, **environ, BRAIN_EMBEDDINGS="ollama:e").warnings == []
    assert rows(table, **{**environ, "BRAIN_MODEL": "a,openai:m"}).warnings == []


HOST, BASE, KEY = "OLLAMA_HOST", "OPENAI_BASE_URL", "OPENAI_API_KEY"


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        # MODEL_KEY goes to one server
        ({"MODEL": "openai:a,ollama:b", "MODEL_KEY": "k"}, {"openai:a": (OPENAI, "k"), "ollama:b": (OLLAMA, None)}),
        ({"MODEL": "ollama:b,openai:a", "MODEL_URL": "http://x/v1", "MODEL_KEY": "k"},
         {"openai:a": ("http://x/v1", "k"), "ollama:b": (OLLAMA, None)}),
        ({"MODEL": "auto,openai:a", "MODEL_KEY": "k"}, {"openai:a": (OPENAI, "k"), "auto": (OLLAMA, None)}),
        ({"MODEL": "ollama:b", "MODEL_URL": "http://x", "MODEL_KEY": "k"}, {"ollama:b": ("http://x", "k")}),
        ({"MODEL": "auto", "MODEL_KEY": "k"}, {"auto": (OLLAMA, None)}),
        ({"MODEL": "auto", "MODEL_URL": "http://x", "MODEL_KEY": "k"}, {"auto": ("http://x", "k")}),
        ({"MODEL": "openai:a", "EMBEDDINGS": "ollama:e", "MODEL_URL": "http://x", "MODEL_KEY": "k"},
         {"openai:a": ("http://x", "k"), "ollama:e": (OLLAMA, None)}),
        ({"MODEL": "builtin", "EMBEDDINGS": "ollama:e", "MODEL_URL": "http://x", "MODEL_KEY": "k"},
         {"ollama:e": ("http://x", "k")}),
        # OPENAI_API_KEY goes to api.openai.com, or to the server of OPENAI_BASE_URL
        ({"MODEL": "openai:a", KEY: "o"}, {"openai:a": (OPENAI, "o")}),
        ({"MODEL": "openai:a", KEY: "o", BASE: "http://y/v1/"}, {"openai:a": ("http://y/v1", "o")}),
        ({"MODEL": "openai:a", KEY: "o", BASE: "http://y/v1", "MODEL_URL": "http://x/v1"},
         {"openai:a": ("http://x/v1", None)}),
        ({"MODEL": "openai:a", KEY: "o", "MODEL_URL": "https://api.openai.com/v1"}, {"openai:a": (OPENAI, "o")}),
        ({"MODEL": "openai:a", KEY: "o", "MODEL_URL": "http://api.openai.com/v1"},
         {"openai:a": ("http://api.openai.com/v1", None)}),
        ({"MODEL": "openai:a", KEY: "o", "MODEL_URL": "https://api.openai.com.evil.example/v1"},
         {"openai:a": ("https://api.openai.com.evil.example/v1", None)}),
        ({"MODEL": "openai:a", KEY: "o", BASE: "http://y:1/v1", "MODEL_URL": "http://y:2/v1"},
         {"openai:a": ("http://y:2/v1", None)}),
        ({"MODEL": "openai:a", KEY: "o", BASE: "http://y:99999/v1", "MODEL_URL": "http://x/v1"},  # another program's
         {"openai:a": ("http://x/v1", None)}),
        ({"MODEL": "ollama:b", KEY: "o"}, {"ollama:b": (OLLAMA, None)}),
        # OLLAMA_HOST
        ({"MODEL": "auto", HOST: "x"}, {"auto": ("http://x:11434", None)}),
        ({"MODEL": "ollama:b", HOST: ":1"}, {"ollama:b": ("http://127.0.0.1:1", None)}),
        ({"MODEL": "ollama:b", HOST: "0.0.0.0"}, {"ollama:b": (OLLAMA, None)}),
        ({"MODEL": "ollama:b", HOST: "[::]:1"}, {"ollama:b": ("http://[::1]:1", None)}),
        ({"MODEL": "ollama:b", HOST: "fe80::1"}, {"ollama:b": ("http://[fe80::1]:11434", None)}),
        ({"MODEL": "ollama:b", HOST: "https://x/ollama/"}, {"ollama:b": ("https://x/ollama", None)}),
        ({"MODEL": "ollama:b", HOST: "y", "MODEL_URL": "http://x"}, {"ollama:b": ("http://x", None)}),
    ],
)  # fmt: skip
def test_the_server_and_key_of_a_model(environ: dict[str, str], expected: dict[str, tuple[str, str | None]]) -> None:
    settings = read({name if name in (HOST, BASE, KEY) else f"BRAIN_{name}": value for name, value in environ.items()})
    found = {name: settings.row(name) for name in expected}
    assert {name: (row.url, row.key) for name, row in found.items()} == expected


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({}, (OPENAI, "o")),
        ({"key": "k"}, (OPENAI, "k")),
        ({"url": "http://x/v1"}, ("http://x/v1", None)),
        ({"url": "http://x/v1", "key": "k"}, ("http://x/v1", "k")),
    ],
)
def test_a_row_uses_no_settings_of_other_models(row: dict[str, str], expected: tuple[str, str]) -> None:
    environ = {"BRAIN_MODEL_URL": "http://z/v1", "BRAIN_MODEL_KEY": "z", "BRAIN_MODEL_EMBEDDINGS": "z", KEY: "o"}
    found = rows({"a": {"is": "openai:m", **row}}, BRAIN_MODEL="a,openai:z", **environ).row("a")
    assert (found.url, found.key, found.embeddings) == (*expected, None)


@pytest.mark.parametrize(
    ("variable", "value", "model"),
    [(BASE, "y.example", "openai:a"), (KEY, "sk 1", "openai:a"), (HOST, "x:y", "ollama:b"), (HOST, "ftp://x", "auto")],
)
def test_a_bad_variable_is_named_where_it_is_used(variable: str, value: str, model: str) -> None:
    settings = read({"BRAIN_MODEL": "builtin", variable: value})
    assert settings.row("builtin").url is None
    with pytest.raises(SettingsError, match=variable) as caught:
        settings.row(model)
    assert "sk 1" not in str(caught.value)


@pytest.mark.parametrize(
    ("row", "local"),
    [
        *[
            ({"is": "ollama:m", "url": f"http://{host}"}, True)
            for host in ("localhost:1", "127.0.0.1", "127.9.9.9", "[::1]:8080", "10.1.2.3", "172.31.0.1", "192.168.0.9")
        ],
        *[
            ({"is": "openai:m", "url": f"http://{host}/v1"}, True)
            for host in ("169.254.1.1", "[fd00::1]", "[fe80::1]", "[::ffff:10.0.0.1]")
        ],
        *[
            ({"is": "openai:m", "url": f"https://{host}/v1"}, False)
            for host in ("api.example", "gpu.lan", "localhost.example", "8.8.8.8", "172.32.0.1", "100.64.0.1")
        ],
        *[
            ({"is": "openai:m", "url": f"https://{host}/v1"}, False)
            for host in (
                "[2001:db8::1]",
                "[::ffff:8.8.8.8]",
                "[64:ff9b::a00:1]",
                "127.1",
                "0x7f000001",
                "10.0.0.1.nip.io",
            )
        ],
        ({"is": "openai:m"}, False),
        ({"is": "ollama:m"}, True),
        ({"is": "ollama:m", "local": False}, False),
        ({"is": "openai:m", "url": "https://gpu.lan/v1", "local": True}, True),
        ({"is": "builtin"}, True),
        ({"is": "builtin", "local": False}, False),
        ({"is": "script:s.jsonl", "local": "auto"}, True),
    ],
)
def test_local_models_have_no_server_or_a_local_one(row: Mapping[str, Any], local: bool) -> None:
    assert rows({"m": row}).row("m").is_local is local
