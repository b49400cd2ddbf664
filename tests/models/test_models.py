"""The table of models: how its rows are read, which server and key each has, and where each key goes."""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from answering import Pass, Server, in_thread
from servers import OllamaServer, OpenAIServer, models
from serving import Process, brain_served, script

from brain.errors import SettingsError
from brain.models import connect_models
from brain.settings import Settings, read
from brain.settings.models import ModelRow

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
    )
    big = {"is": "openai:gpt-5", "url": "https://a.example/v1/", "key_env": "BIG_KEY", "resume": "prefill"}
    big |= {"sees_images": True, "context": 1048576, "embeddings": "e"}  # type: ignore[dict-item]
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
def test_all_rows_are_on_offer_unless_model_names_some(environ: dict[str, str], expected: Sequence[str]) -> None:
    assert rows(TWO, **environ).model == tuple(expected)


KNOWN = "is, url, key, key_env, resume, sees_images, context, embeddings"


@pytest.mark.parametrize(
    ("table", "error"),
    [
        ({"a": {"is": "gpt"}}, "models.a.is='gpt' is not allowed. Allowed: `builtin`, `ollama:NAME`, "),
        ({"a": {"is": "auto"}}, "models.a.is='auto' is not allowed. Allowed: "),
        ({"a": {"url": "http://x"}}, "models.a.is is missing. Allowed: "),
        ({"a": 1}, f"models.a: must be a table with any of: {KNOWN}."),
        ({"a": {"is": "openai:m", "ulr": "x"}}, f"models.a.ulr is not a setting. Did you mean `url`? Known: {KNOWN}."),
        ({"a": {"is": "openai:m", "colour": "x"}}, f"models.a.colour is not a setting. Known: {KNOWN}."),
        ({"a": {"is": "openai:m", "url": "x.example"}}, "models.a.url='x.example' is not allowed. Allowed: an http"),
        ({"a": {"is": "openai:m", "url": "ftp://u:sk-1@x"}}, "models.a.url='ftp://u:…@x' is not allowed. Allowed: "),
        ({"a": {"is": "openai:m", "key": "sk-1 é"}}, "models.a.key=(not shown) is not allowed. Allowed: printable"),
        ({"a": {"is": "openai:m", "key_env": "sk-1"}}, "models.a.key_env=(not shown) is not allowed. Allowed: the n"),
        ({"a": {"is": "openai:m", "key_env": "NO_KEY"}}, "models.a.key_env: the environment variable NO_KEY is not s"),
        ({"a": {"is": "openai:m", "key_env": "BAD_KEY"}}, "models.a.key_env: the value of BAD_KEY=(not shown) is not"),
        ({"a": {"is": "openai:m", "key": "sk-1", "key_env": "K"}}, "models.a: set `key` or `key_env`, not both."),
        ({"a": {"is": "openai:m", "resume": "both"}}, "models.a.resume='both' is not allowed. Allowed: `prefill` or"),
        ({"a": {"is": "openai:m", "sees_images": "si"}}, "models.a.sees_images='si' is not allowed. Allowed: true, "),
        ({"a": {"is": "openai:m", "context": 0}}, "models.a.context=0 is not allowed. Allowed: a whole number of "),
        ({"a": {"is": "openai:m", "embeddings": ""}}, "models.a.embeddings='' is not allowed. Allowed: a name."),
        ({"a": {"is": "builtin", "key": "sk-1"}}, "models.a.key is not allowed: `builtin` has no server."),
        ({"brain": {"is": "builtin"}}, "models: the name 'brain' is not allowed. Allowed: 1 to 64 ASCII letters, "),
        ({"a:b": {"is": "builtin"}}, "models: the name 'a:b' is not allowed. Allowed: 1 to 64 ASCII letters, "),
    ],
)
def test_what_is_wrong_names_the_row_the_field_and_what_is_allowed(table: Mapping[str, Any], error: str) -> None:
    with pytest.raises(SettingsError) as caught:
        rows(table, BAD_KEY="sk-1 x")
    assert str(caught.value).startswith(error)
    assert "sk-1" not in str(caught.value)


@pytest.mark.parametrize(
    ("environ", "error"),
    [
        ({"BRAIN_MODELS": '{"a": sk-1}'}, "BRAIN_MODELS=(not shown) is not allowed. Allowed: a table for each model "),
        (
            {"BRAIN_MODELS": '{"a": {"is": "builtin"}, "a": {"is": "openai:m"}}'},
            "BRAIN_MODELS=(not shown) is not allowed",
        ),
        ({"BRAIN_MODELS": "[]"}, "BRAIN_MODELS=(not shown) is not allowed. Allowed: a table for each model "),
        ({"BRAIN_MODEL": "bg", "BRAIN_MODELS": '{"big": {"is": "builtin"}}'}, "BRAIN_MODEL='bg' is not allowed. "),
        (
            {"BRAIN_EMBEDDINGS": "a", "BRAIN_MODELS": '{"a": {"is": "builtin"}}'},
            "BRAIN_EMBEDDINGS='a' is not allowed. ",
        ),
    ],
)
def test_a_bad_table_or_name_stops_the_start(environ: dict[str, str], error: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read(environ)
    assert str(caught.value).startswith(error)
    assert "sk-1" not in str(caught.value)


def test_no_key_is_ever_shown() -> None:
    url = "https://ann:sk-1@a.example/v1?key=sk-1"
    settings = rows(
        {"a": {"is": "openai:m", "key": "sk-1"}}, BRAIN_MODEL_URL=url, BRAIN_MODEL_KEY="sk-1", OPENAI_API_KEY="sk-1"
    )
    made = [settings, settings.row("a"), settings.row("openai:x"), settings.row("openai:x").description]
    assert settings.row("openai:x").key == "sk-1"
    assert "sk-1" not in f"{made!r} {made}"


def test_settings_that_no_model_uses_are_named() -> None:
    environ = {"BRAIN_MODEL_URL": "http://z/v1", "BRAIN_MODEL_KEY": "sk-1", "BRAIN_MODEL": "a"}
    table = {"a": {"is": "builtin"}, "vec": {"is": "ollama:e"}}
    unused = [f"Not used: {name}, as all models are of MODELS" for name in ("MODEL_URL", "MODEL_KEY")]
    assert rows(table, **environ).warnings == rows(table, **environ, BRAIN_EMBEDDINGS="vec").warnings == unused
    assert rows(table, **environ, BRAIN_EMBEDDINGS="ollama:e").warnings == []
    assert rows(table, **{**environ, "BRAIN_MODEL": "a,openai:m"}).warnings == []


# Which server and key a model has: its URL, its key

HOST, BASE, KEY = "OLLAMA_HOST", "OPENAI_BASE_URL", "OPENAI_API_KEY"


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        # MODEL_KEY goes to one server
        ({"MODEL": "openai:a,ollama:b", "MODEL_KEY": "k"}, {"openai:a": (OPENAI, "k"), "ollama:b": (OLLAMA, None)}),
        ({"MODEL": "ollama:b,openai:a", "MODEL_URL": "http://x/v1", "MODEL_KEY": "k"},
         {"openai:a": ("http://x/v1", "k"), "ollama:b": (OLLAMA, None)}),
        ({"MODEL": "auto,openai:a", "MODEL_KEY": "k"}, {"openai:a": (OPENAI, "k"), "auto": (OLLAMA, None)}),
        ({"MODEL": "ollama:b", "MODEL_KEY": "k"}, {"ollama:b": (OLLAMA, "k")}),
        ({"MODEL": "ollama:b", "MODEL_URL": "http://x", "MODEL_KEY": "k"}, {"ollama:b": ("http://x", "k")}),
        ({"MODEL": "auto", "MODEL_KEY": "k"}, {"auto": (OLLAMA, None)}),
        ({"MODEL": "auto", "MODEL_URL": "http://x", "MODEL_KEY": "k"}, {"auto": ("http://x", "k")}),
        ({"MODEL": "openai:a", "EMBEDDINGS": "ollama:e", "MODEL_URL": "http://x", "MODEL_KEY": "k"},
         {"openai:a": ("http://x", "k"), "ollama:e": (OLLAMA, None)}),
        ({"MODEL": "ollama:a", "EMBEDDINGS": "openai:e", "MODEL_URL": "http://x", "MODEL_KEY": "k"},
         {"ollama:a": ("http://x", "k"), "openai:e": (OPENAI, None)}),
        ({"MODEL": "builtin", "EMBEDDINGS": "ollama:e", "MODEL_URL": "http://x", "MODEL_KEY": "k"},
         {"ollama:e": ("http://x", "k")}),
        # OPENAI_API_KEY goes to api.openai.com, or to the server of OPENAI_BASE_URL
        ({"MODEL": "openai:a", KEY: "o"}, {"openai:a": (OPENAI, "o")}),
        ({"MODEL": "openai:a", KEY: "o", BASE: "http://y/v1/"}, {"openai:a": ("http://y/v1", "o")}),
        ({"MODEL": "openai:a", KEY: "o", BASE: "http://y/v1", "MODEL_URL": "http://x/v1"},
         {"openai:a": ("http://x/v1", None)}),
        ({"MODEL": "openai:a", KEY: "o", "MODEL_KEY": "k"}, {"openai:a": (OPENAI, "k")}),
        ({"MODEL": "openai:a", KEY: "o", "MODEL_URL": "https://api.openai.com/v1"}, {"openai:a": (OPENAI, "o")}),
        ({"MODEL": "openai:a", KEY: "o", "MODEL_URL": "http://api.openai.com/v1"},
         {"openai:a": ("http://api.openai.com/v1", None)}),
        ({"MODEL": "openai:a", KEY: "o", "MODEL_URL": "https://api.openai.com.evil.example/v1"},
         {"openai:a": ("https://api.openai.com.evil.example/v1", None)}),
        ({"MODEL": "openai:a", KEY: "o", BASE: "http://y:1/v1", "MODEL_URL": "http://y:2/v1"},
         {"openai:a": ("http://y:2/v1", None)}),
        ({"MODEL": "ollama:b", KEY: "o"}, {"ollama:b": (OLLAMA, None)}),
        ({"MODEL": "openai:a", KEY: "  "}, {"openai:a": (OPENAI, None)}),
        # OLLAMA_HOST
        ({"MODEL": "ollama:b", HOST: "http://x:1"}, {"ollama:b": ("http://x:1", None)}),
        ({"MODEL": "auto", HOST: "x"}, {"auto": ("http://x:11434", None)}),
        ({"MODEL": "ollama:b", HOST: "x:1"}, {"ollama:b": ("http://x:1", None)}),
        ({"MODEL": "ollama:b", HOST: ":1"}, {"ollama:b": ("http://127.0.0.1:1", None)}),
        ({"MODEL": "ollama:b", HOST: "0.0.0.0"}, {"ollama:b": (OLLAMA, None)}),
        ({"MODEL": "ollama:b", HOST: "[::]:1"}, {"ollama:b": ("http://[::1]:1", None)}),
        ({"MODEL": "ollama:b", HOST: "fe80::1"}, {"ollama:b": ("http://[fe80::1]:11434", None)}),
        ({"MODEL": "ollama:b", HOST: "https://x/ollama/"}, {"ollama:b": ("https://x/ollama", None)}),
        ({"MODEL": "ollama:b", HOST: "y", "MODEL_URL": "http://x"}, {"ollama:b": ("http://x", None)}),
        ({"MODEL": "openai:a", HOST: "y"}, {"openai:a": (OPENAI, None)}),
    ],
)  # fmt: skip
def test_which_server_and_which_key(environ: dict[str, str], expected: dict[str, tuple[str, str | None]]) -> None:
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
def test_a_row_takes_nothing_from_settings_of_other_models(row: dict[str, str], expected: tuple[str, str]) -> None:
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
    with pytest.raises(SettingsError, match=rf"^{variable}=.* is not allowed\. Allowed: ") as caught:
        settings.row(model)
    assert "sk 1" not in str(caught.value)


# With servers

LLAMA_CPP = models("m", owned_by="llamacpp") | {"GET /props": (200, {"default_generation_settings": {"n_ctx": 2048}})}
SHOWN = {"POST /api/show": (200, {"capabilities": ["completion"], "model_info": {"llama.context_length": 4096}})}


def vectors(path: str, texts: int) -> dict[str, tuple[int, Any]]:
    """The answer with so many embeddings."""
    return {f"POST {path}": (200, {"data": [{"embedding": [1.0, 0.5]}] * texts, "embeddings": [[1.0, 0.5]] * texts})}


@pytest.fixture
def servers() -> Iterator[dict[str, Server]]:
    """Servers of several owners; of the first two no requests for embeddings are expected."""
    with ExitStack() as stack:
        many = [Pass(["Hello."]) for _ in range(4)]
        made: dict[str, Server] = {
            "small": OllamaServer(*many, answers=SHOWN),
            "big": OpenAIServer(*many, answers=LLAMA_CPP),
            "open": OpenAIServer(*many, answers=models("m", owned_by="vllm")),
            "vec": OllamaServer(answers=SHOWN | vectors("/api/embed", 1)),
        }
        yield {name: stack.enter_context(in_thread(server)) for name, server in made.items()}


@pytest.fixture
def table(servers: dict[str, Server]) -> dict[str, Any]:
    """A row for each server."""
    return {
        "small": {"is": "ollama:m", "url": servers["small"].url},
        "big": {"is": "openai:m", "url": servers["big"].url, "key": "sk-big", "context": 1024, "sees_images": True},
        "open": {"is": "openai:m", "url": servers["open"].url, "key_env": "OPEN_KEY"},
        "vec": {"is": "ollama:m", "url": servers["vec"].url, "key": "sk-vec"},
    }


KEYS_OF = {"small": None, "big": "Bearer sk-big", "open": "Bearer sk-open", "vec": "Bearer sk-vec"}


def assert_each_has_its_own_key(servers: Mapping[str, Server], expected: Mapping[str, str | None] = KEYS_OF) -> None:
    """No request to a server has any key but its own, wherever in the request."""
    for name, server in servers.items():
        assert server.asked
        assert {asked.headers.get("authorization") for asked in server.asked} == {expected[name]}, name
        sent = json.dumps([[asked.path, dict(asked.headers), asked.body] for asked in server.asked])
        assert sent.count("sk-") == sum(expected[name] is not None for _ in server.asked)


def test_a_key_reaches_its_own_server_only(
    servers: dict[str, Server], table: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    environ = {
        "OPEN_KEY": "sk-open",
        "OPENAI_API_KEY": "sk-of-openai",
        "OLLAMA_API_KEY": "sk-of-ollama",
        "BRAIN_MODEL_KEY": "sk-of-none",
        "BRAIN_MODELS": json.dumps(table),
        "BRAIN_EMBEDDINGS": "vec",
        "BRAIN_STORE": "memory:",
    }
    with Process("serve", "--port", "0", env=environ) as process:
        url = process.url()
        with httpx.Client(base_url=url, trust_env=False, timeout=20) as client:
            for name in ("small", "big", "open", "brain"):
                body = {"model": name, "messages": [{"role": "user", "content": "Hello?"}]}
                answer = client.post("/v1/chat/completions", json=body).json()
                assert (answer["model"], answer["choices"][0]["message"]["content"]) == (name, "Hello.")
            assert client.get("/readyz").json()["model"] == "small"
            listed = client.get("/v1/models").json()["data"]
            assert [one["id"] for one in listed] == ["brain", "big", "open", "small"]
            tags = client.get("/api/tags").json()["models"]
            assert [one["name"] for one in tags] == ["brain:latest", "big:latest", "open:latest", "small:latest"]
            shown = client.post("/api/show", json={"model": "big"}).json()
            assert shown["model_info"]["brain.context_length"] == 1024
            assert "vision" in shown["capabilities"]
            offered = client.get("/page/start").json()["models"]
            assert [one["name"] for one in offered] == ["small", "big", "open"]
        said = process.said("Embeddings: vec")
        for line in (
            f"Model: small (ollama:m at {servers['small'].url}; Ollama server, context of 4096 tokens)",
            f"Model: big (openai:m at {servers['big'].url}; llama.cpp server; it sees images)",
            f"Model: open (openai:m at {servers['open'].url}; vLLM server)",
            f"Embeddings: vec (ollama:m at {servers['vec'].url}; Ollama server, context of 4096 tokens)",
        ):
            assert line in said.splitlines()
        process.process.terminate()
        everything = process.end()
    with Process("check", env=environ) as process:
        _, out, err = process.end(60)
    assert f"ok   model open: openai:m at {servers['open'].url}; vLLM server; resumes by prefill" in out.splitlines()
    assert f"ok   embeddings vec: ollama:m at {servers['vec'].url}; " in out
    assert "/api/embed" in {asked.path for asked in servers["vec"].asked}
    assert not [line for server in servers.values() for line in server.lines if "embeddings" in line]
    assert "sk-" not in f"{everything} {out} {err}"
    assert_each_has_its_own_key(servers)


def test_the_usual_variables_are_honoured_and_the_start_says_so(servers: dict[str, Server]) -> None:
    environ = {
        "OPENAI_API_KEY": "sk-open",
        "OPENAI_BASE_URL": servers["open"].url,
        "OLLAMA_HOST": servers["small"].url,
        "BRAIN_MODELS": json.dumps({"big": {"is": "openai:m", "url": servers["big"].url, "key": "sk-big"}}),
        "BRAIN_MODEL": "openai:m,ollama:m,big",
        "BRAIN_STORE": "memory:",
    }
    with Process("serve", "--port", "0", env=environ) as process:
        said = process.said("Model: big")
    base, host = servers["open"].url, servers["small"].url
    for line in (
        f"Model: openai:m (it was asked for; OPENAI_BASE_URL names its server, {base}; "
        "OPENAI_API_KEY is its key, sent to 127.0.0.1 only; vLLM server)",
        f"Model: ollama:m (it was asked for; OLLAMA_HOST names its server, {host}; "
        "Ollama server, context of 4096 tokens)",
    ):
        assert line in said.splitlines()
    assert "sk-" not in said
    assert_each_has_its_own_key({name: servers[name] for name in ("small", "big", "open")})


def test_auto_finds_the_server_of_ollama_host() -> None:
    listed = (200, {"models": [{"model": "m"}]})
    found = SHOWN | {"GET /api/version": (200, {}), "GET /api/ps": listed, "GET /api/tags": listed}
    with in_thread(OllamaServer(answers=found)) as server:

        async def opened() -> str:
            async with connect_models(read({"BRAIN_MODEL": "auto", "OLLAMA_HOST": server.url}), ()) as found:
                return found.offered[0].reason

        said = f"found on Ollama at {server.url}; OLLAMA_HOST names its server, {server.url}; Ollama server, "
        assert asyncio.run(opened()).startswith(said)


@pytest.mark.parametrize("row", [False, True])
def test_auto_takes_the_openai_api_where_there_is_no_ollama(servers: dict[str, Server], row: bool) -> None:
    named = {"BRAIN_MODELS": '{"mine": {"is": "openai:m"}}'} if row else {"OPENAI_MODEL": "m"}
    environ = {"OPENAI_API_KEY": "sk-open", "OPENAI_BASE_URL": servers["open"].url, "OLLAMA_HOST": "127.0.0.1:1"}

    async def opened(environ: Mapping[str, str]) -> tuple[str, str]:
        async with connect_models(read({"BRAIN_MODEL": "auto", **environ}), ()) as found:
            return found.offered[0].model.name, found.offered[0].reason

    name, why = asyncio.run(opened(environ | named))
    assert name == ("mine" if row else "openai:m")
    assert why.startswith("no Ollama answered at http://127.0.0.1:1 within 250 ms; OLLAMA_HOST names its server, ")
    assert "; OPENAI_API_KEY is its key, sent to 127.0.0.1 only; vLLM server" in why
    assert_each_has_its_own_key({"open": servers["open"]})
    name, why = asyncio.run(opened(environ))
    assert (name, "no model is named" in why) == ("builtin", True)
    assert len(servers["open"].asked) == 1


def test_workers_have_the_models_that_were_decided_on(servers: dict[str, Server], tmp_path: Path) -> None:
    environ = {
        "OPENAI_API_KEY": "sk-open",
        "OPENAI_BASE_URL": servers["open"].url,
        "OPENAI_MODEL": "m",
        "BRAIN_MODEL": "auto",
        "BRAIN_MODEL_URL": "http://127.0.0.1:1",
        "BRAIN_MODEL_KEY": "sk-of-none",
        "BRAIN_EMBEDDINGS": "ollama:m",
        "BRAIN_STORE": "memory:",
    }
    with Process("serve", "--port", "0", "--workers", "2", env=environ) as process:
        url = process.url()
        body = {"message": "Hello?"}
        answer = httpx.post(f"{url}/v1/chat/stream", json=body, trust_env=False, timeout=20)
        assert '"text":"Hello."' in answer.text
        process.process.terminate()
        process.end()
    assert_each_has_its_own_key({"open": servers["open"]})


def test_embeddings_are_asked_of_their_own_server(
    servers: dict[str, Server], table: dict[str, Any], tmp_path: Path
) -> None:
    settings = rows(table, BRAIN_MODEL="big,builtin", OPEN_KEY="x")

    async def embedded(settings: Settings) -> list[Any]:
        async with connect_models(settings, ()) as found:
            return await asyncio.gather(*(one.model.embed(["a"]) for one in found.offered), return_exceptions=True)

    assert asyncio.run(embedded(replace(settings, embeddings="vec"))) == [[[1.0, 0.5]], [[1.0, 0.5]]]
    assert "POST /v1/embeddings" not in servers["big"].lines
    assert [type(one).__name__ for one in asyncio.run(embedded(settings))] == ["Refused", "Refused"]
    assert "POST /v1/embeddings" in servers["big"].lines
    named = replace(settings, model=("vec", "builtin"), embeddings="vec")
    assert asyncio.run(embedded(named)) == [[[1.0, 0.5]], [[1.0, 0.5]]]


def test_a_script_may_have_a_name(tmp_path: Path) -> None:
    spec = script(tmp_path, ["Hello."])
    with brain_served(MODELS=json.dumps({"demo": {"is": spec}, "other": {"is": "builtin"}}), MODEL="demo") as server:
        answer = httpx.post(f"{server.url}/v1/chat/stream", json={"message": "Hi", "model": "demo"}, trust_env=False)
        assert '"model":"demo"' in answer.text
        answer = httpx.post(f"{server.url}/v1/chat/stream", json={"message": "Hi", "model": spec}, trust_env=False)
        assert answer.json()["error"]["field"] == "model"
