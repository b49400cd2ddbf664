"""Settings: good and bad values, the order of sources, secrets, and the table of the documentation."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from brain.errors import SettingsError
from brain.events import Limits
from brain.settings import KEYS, Settings, read, table


def file(folder: Path, text: str) -> Path:
    path = folder / "brain.toml"
    path.write_text(text, "utf-8")
    return path


def test_defaults() -> None:
    settings = read({})
    assert settings.model == ("auto",)
    assert (settings.host, settings.port, settings.workers) == ("127.0.0.1", 8000, 1)
    assert settings.limits == Limits(calls=5, calls_per_specialist=3, turn_seconds=600.0, call_seconds=5.0)
    assert settings.syntax == ("bracket", "function_call")
    assert (settings.model_idle_seconds, settings.heartbeat_seconds) == (60.0, 15.0)
    assert (settings.keys, settings.hosts, settings.origins, settings.allowed_specialists) == ((), (), (), ())
    assert settings.time_zone != ""


def test_the_environment_wins_over_the_file_and_the_command_line_over_both(tmp_path: Path) -> None:
    config = file(
        tmp_path, 'model = "builtin"\nCALLS = 7\nturn_seconds = 30\nport = 1\nhosts = ["a.example", "b.example"]'
    )
    settings = read({"BRAIN_CALLS": "8", "BRAIN_PORT": "2", "PATH": "/bin"}, config, {"PORT": 3})
    assert settings.model == ("builtin",)
    assert settings.calls == 8
    assert settings.turn_seconds == 30.0
    assert settings.port == 3
    assert settings.hosts == ("a.example", "b.example")


def test_a_variable_without_the_prefix_is_named_unless_other_programs_use_it() -> None:
    settings = read({"KEYS": "a-long-enough-key:ann", "HOST": "csh", "PORT": "80", "CALLS": "x", "MODEL_URL": "u"})
    assert settings.keys == ()
    assert settings.warnings == [
        "Not read: MODEL_URL, which is called BRAIN_MODEL_URL here",
        "Not read: KEYS, which is called BRAIN_KEYS here",
    ]
    assert read({"KEYS": "k", "BRAIN_KEYS": "a-long-enough-key:ann"}).warnings == []


GOOD: Mapping[str, tuple[str, str, Any]] = {
    "models": ("MODEL", "ollama:llama3:8b, openai:gpt-x ,builtin", ("ollama:llama3:8b", "openai:gpt-x", "builtin")),
    "script": ("MODEL", "script:demo.json", ("script:demo.json",)),
    "url": ("MODEL_URL", "https://example.org/v1/", "https://example.org/v1"),
    "key": ("MODEL_KEY", " sk-1 ", "sk-1"),
    "resume": ("MODEL_RESUME", "prefill", "prefill"),
    "sees": ("MODEL_SEES_IMAGES", "yes", True),
    "sees not": ("MODEL_SEES_IMAGES", "no", False),
    "may see": ("MODEL_SEES_IMAGES", "auto", None),
    "seconds": ("CALL_SECONDS", "0.25", 0.25),
    "most seconds": ("TURN_SECONDS", "86400", 86400.0),
    "zone": ("TIME_ZONE", "Europe/Berlin", "Europe/Berlin"),
    "no calls": ("CALLS", "0", 0),
    "any port": ("PORT", "0", 0),
    "workers": ("WORKERS", "4", 4),
    "keys": ("KEYS", "k1:ann, k2 : bob:x ", (("k1", "ann"), ("k2", "bob:x"))),
    "syntax": ("SYNTAX", "mention, bracket", ("mention", "bracket")),
    "hosts": ("HOSTS", "chat.example, 10.0.0.1,[::1],fe80::1", ("chat.example", "10.0.0.1", "::1", "fe80::1")),
    "hosts to fetch from": (
        "FETCH_HOSTS",
        "Wiki.Example., searx:8080, 10.0.0.1:80, [::1]:8080, 0:0:0:0:0:0:0:1, 2001:db8::1:8080",
        ("wiki.example", "searx:8080", "10.0.0.1:80", "[::1]:8080", "::1", "2001:db8::1:8080"),
    ),
    "origins": (
        "ORIGINS",
        "https://Chat.example/,http://localhost:5173,http://[::1]:1,tauri://localhost",
        ("https://chat.example", "http://localhost:5173", "http://[::1]:1", "tauri://localhost"),
    ),
    "host": ("HOST", "[::]", "::"),
    "names": ("ALLOWED_SPECIALISTS", "web,,ocr,", ("web", "ocr")),
}


@pytest.mark.parametrize(("key", "value", "expected"), GOOD.values(), ids=GOOD)
def test_good_values(key: str, value: str, expected: Any) -> None:
    assert getattr(read({f"BRAIN_{key}": value}), key.lower()) == expected


BAD = [
    ("MODEL", ""),
    ("MODEL", "llama3"),
    ("MODEL", "ollama:"),
    ("MODEL", "ollama"),
    ("MODEL", "auto:x"),
    ("MODEL", "builtin,builtin"),
    ("MODEL_URL", "localhost:11434"),
    ("MODEL_URL", "ftp://example.org"),
    ("MODEL_URL", "http://[oops"),
    ("MODEL_URL", "http://"),
    ("MODEL_URL", "http://a:99999"),
    ("EMBEDDINGS", "nomic"),
    ("EMBEDDINGS", "builtin"),
    ("MODEL_RESUME", "both"),
    ("MODEL_SEES_IMAGES", "true"),
    ("MODEL_IDLE_SECONDS", "0"),
    ("TURN_SECONDS", "-1"),
    ("TURN_SECONDS", "nan"),
    ("TURN_SECONDS", "inf"),
    ("CALL_SECONDS", "five"),
    ("CALL_SECONDS", "86401"),
    ("CALL_SECONDS", "1_0"),
    ("HEARTBEAT_SECONDS", ""),
    ("TIME_ZONE", "Mars/Olympus"),
    ("TIME_ZONE", "../etc/passwd"),
    ("TIME_ZONE", "Europe"),
    ("TIME_ZONE", ""),
    ("PORT", "65536"),
    ("PORT", "-1"),
    ("PORT", "80.5"),
    ("PORT", "٣"),
    ("WORKERS", "0"),
    ("WORKERS", "257"),
    ("WORKERS", "1.5"),
    ("CALLS", "101"),
    ("CALLS", "many"),
    ("CALLS_PER_SPECIALIST", "1e2"),
    ("SYNTAX", ""),
    ("SYNTAX", "bracket,xml"),
    ("HOST", ""),
    ("HOST", "http://localhost"),
    ("HOST", "localhost:8000"),
    ("HOST", "a b"),
    ("HOSTS", "https://chat.example"),
    ("HOSTS", "chat.example:443"),
    ("HOSTS", "chat.example/brain"),
    ("HOSTS", "*.example"),
    ("HOSTS", ".example"),
    ("HOSTS", "::g"),
    ("ORIGINS", "*"),
    ("ORIGINS", "chat.example"),
    ("ORIGINS", "https://*.example"),
    ("ORIGINS", "https://chat.example/app"),
    ("ORIGINS", "https://chat.example:port"),
    ("ORIGINS", "https://user@chat.example"),
    ("ORIGINS", "https://[::g]"),
    ("ORIGINS", "null"),
    ("ALLOWED_SPECIALISTS", "web search"),
    ("ALLOWED_SPECIALISTS", "9web"),
    ("ALLOWED_SPECIALISTS", "x" * 65),
    ("SPECIALISTS_FOLDER", "/no/such/folder"),
    ("SPECIALISTS_FOLDER", "~no-such-user-here/x"),
]


@pytest.mark.parametrize(("key", "value"), BAD)
def test_a_bad_value_names_the_setting_the_value_and_what_is_allowed(key: str, value: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read({f"BRAIN_{key}": value})
    allowed = KEYS[key].metadata["allowed"]
    assert str(caught.value) == f"BRAIN_{key}={value!r} is not allowed. Allowed: {allowed}."


@pytest.mark.parametrize(
    "line",
    ["calls = true", 'calls = "x"', "calls = 2.5", "turn_seconds = [1]", f"turn_seconds = 1{'0' * 400}", "model = 1",
     "host = 1", "time_zone = {}", "hosts = [1]", "keys = {a = 'b'}", "syntax = 2024-01-01", "specialists_folder = 5"],
)  # fmt: skip
def test_a_bad_type_in_the_file_is_named(tmp_path: Path, line: str) -> None:
    key = line.partition(" ")[0]
    with pytest.raises(SettingsError, match=rf"^{key} in brain\.toml=.* is not allowed\. Allowed: "):
        read({}, file(tmp_path, line))


@pytest.mark.parametrize(
    ("environ", "error"),
    [
        ({"BRAIN_MODLE": "sk-secret"}, r"^BRAIN_MODLE is not a setting\. Known: MODEL, "),
        ({"PORT": "http"}, r"^PORT='http' is not allowed\. Allowed: a port from 0 to 65535\.$"),
    ],
)
def test_a_bad_variable_is_named(environ: dict[str, str], error: str) -> None:
    with pytest.raises(SettingsError, match=error):
        read(environ)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (None, r"--config .*brain\.toml: cannot be read: No such file"),
        ("calls =", r"--config .*brain\.toml: is not valid TOML"),
        ("specialists = 1", r"^specialists in brain\.toml: must hold tables"),
        ("[specialists]\nweb = 1", r"^specialists in brain\.toml: must hold tables"),
        ('modle = "x"', r"^modle in brain\.toml is not a setting\. Known: MODEL, "),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, text: str | None, error: str) -> None:
    path = tmp_path / "brain.toml" if text is None else file(tmp_path, text)
    with pytest.raises(SettingsError, match=error):
        read({}, path)


def test_secrets_are_never_shown(tmp_path: Path) -> None:
    config = file(tmp_path, 'model_key = "sk-one"\nkeys = ["key-two:ann"]\n[specialists.web]\nkey = "sk-three"')
    settings = read({"BRAIN_SPECIALIST_WEB_TOKEN": "sk-four"}, config)
    assert settings.specialist_options("web") == {"key": "sk-three", "token": "sk-four"}
    for secret in ("sk-one", "key-two", "sk-three", "sk-four"):
        assert secret not in repr(settings)


@pytest.mark.parametrize(
    ("environ", "in_file", "overrides", "expected"),
    [
        ({"PORT": "5000"}, "", {}, ("0.0.0.0", 5000)),
        ({"PORT": ""}, "", {}, ("127.0.0.1", 8000)),
        ({"PORT": "5000", "BRAIN_PORT": "6000"}, "", {}, ("127.0.0.1", 6000)),
        ({"PORT": "5000", "BRAIN_HOST": "127.0.0.1"}, "", {}, ("127.0.0.1", 5000)),
        ({"PORT": "5000"}, "port = 7000", {}, ("0.0.0.0", 5000)),
        ({"PORT": "5000"}, 'host = "10.0.0.1"', {}, ("10.0.0.1", 5000)),
        ({"PORT": "5000"}, "", {"PORT": 9000}, ("127.0.0.1", 9000)),
        ({"PORT": "5000"}, "", {"HOST": "::1"}, ("::1", 5000)),
    ],
)
def test_plain_port(
    tmp_path: Path, environ: Mapping[str, str], in_file: str, overrides: Mapping[str, Any], expected: tuple[str, int]
) -> None:
    settings = read(environ, file(tmp_path, in_file), overrides)
    assert (settings.host, settings.port) == expected


def test_settings_of_specialists_the_environment_wins(tmp_path: Path) -> None:
    config = file(tmp_path, "[specialists.web-search]\nlimit = 3\nregion = 'de'\n[specialists.web]\nlimit = 1")
    settings = read({"BRAIN_SPECIALIST_WEB_SEARCH_LIMIT": "5"}, config)
    assert settings.specialist_options("web-search") == {"limit": "5", "region": "de"}
    assert settings.specialist_options("nothing") == {}


def test_the_table_for_the_docs_has_every_setting() -> None:
    lines = table().splitlines()
    assert lines[:2] == ["| key | default | meaning |", "|---|---|---|"]
    assert [line.split(" | ")[0].removeprefix("| ") for line in lines[2:]] == list(KEYS)
    assert all(line.count(" | ") == 2 for line in lines[2:])
    assert "| CALLS | `5` | specialist calls per turn. Allowed: a whole number from 0 to 100 |" in lines
    assert "| CALL_SECONDS | `5` | " in table()
    assert "| SYNTAX | `bracket,function_call` | " in table()
    assert "| MODEL_KEY | – | key of that server. Allowed: printable ASCII characters without spaces |" in lines


def test_settings_are_frozen() -> None:
    with pytest.raises(AttributeError):
        Settings().port = 1  # type: ignore[misc]
