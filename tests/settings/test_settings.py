"""Settings: good and bad values, the order of sources, secrets, and the table of the documentation."""

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from brain.errors import SettingsError
from brain.settings import KEYS, read
from brain.text import escape_invisible


def file(folder: Path, text: str) -> Path:
    path = folder / "brain.toml"
    path.write_text(text, "utf-8")
    return path


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
    assert settings.unprefixed == ("MODEL_URL", "KEYS")
    assert len(settings.warnings) == 2
    assert read({"KEYS": "k", "BRAIN_KEYS": "a-long-enough-key:ann"}).warnings == []


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("MODEL", "ollama:llama3:8b, openai:gpt-x ,builtin", ("ollama:llama3:8b", "openai:gpt-x", "builtin")),
        ("MODEL", "script:demo.json", ("script:demo.json",)),
        ("MODEL_URL", "https://example.org/v1/", "https://example.org/v1"),
        ("MODEL_KEY", " sk-1 ", "sk-1"),
        ("MODEL_SEES_IMAGES", "yes", True),
        ("MODEL_SEES_IMAGES", "auto", None),
        ("CALL_SECONDS", "0.25", 0.25),
        ("TURN_SECONDS", "86400", 86400.0),
        ("TIME_ZONE", "Europe/Berlin", "Europe/Berlin"),
        ("CALLS", "0", 0),
        ("TASK_TOKENS_PER_DAY", "999999999999", 999_999_999_999),
        ("KEYS", "k1:ann, k2 : bob:x ", (("k1", "ann"), ("k2", "bob:x"))),
        ("SYNTAX", "mention, bracket", ("mention", "bracket")),
        ("HOSTS", "chat.example, 10.0.0.1,[::1],fe80::1", ("chat.example", "10.0.0.1", "::1", "fe80::1")),
        ("FETCH_HOSTS", "Wiki.Example., searx:8080, 10.0.0.1:80, [::1]:8080, 0:0:0:0:0:0:0:1, 2001:db8::1:8080",
         ("wiki.example", "searx:8080", "10.0.0.1:80", "[::1]:8080", "::1", "2001:db8::1:8080")),
        ("ORIGINS", "https://Chat.example/,http://localhost:5173,http://[::1]:1,tauri://localhost",
         ("https://chat.example", "http://localhost:5173", "http://[::1]:1", "tauri://localhost")),
        ("HOST", "[::]", "::"),
        ("ADVERTISE", "10.0.0.2:8700", "10.0.0.2:8700"),
        ("ADVERTISE", "http://replica-1.example:0/", "replica-1.example:0"),
        ("ADVERTISE", "[fd00::2]:8700", "[fd00::2]:8700"),
        ("ALLOWED_SPECIALISTS", "web,,ocr,", ("web", "ocr")),
    ],
)  # fmt: skip
def test_good_values(key: str, value: str, expected: Any) -> None:
    assert getattr(read({f"BRAIN_{key}": value}), key.lower()) == expected


BAD: Mapping[str, list[str]] = {
    "MODEL": ["", "llama3", "ollama:", "ollama", "auto:x", "builtin,builtin", "ollama:a\0"],
    "MODEL_URL": ["localhost:11434", "ftp://example.org", "http://[oops", "http://", "http://a:99999"],
    "EMBEDDINGS": ["nomic", "builtin"],
    "MODEL_RESUME": ["both"],
    "MODEL_SEES_IMAGES": ["true"],
    "MODEL_IDLE_SECONDS": ["0"],
    "TURN_SECONDS": ["-1", "nan", "inf"],
    "CALL_SECONDS": ["five", "86401", "1_0"],
    "HEARTBEAT_SECONDS": [""],
    "TIME_ZONE": ["Mars/Olympus", "../etc/passwd", "Europe", ""],
    "PORT": ["65536", "-1", "80.5", "٣"],
    "WORKERS": ["0", "257", "1.5"],
    "CALLS": ["101", "many"],
    "CALLS_PER_SPECIALIST": ["1e2"],
    "SYNTAX": ["", "bracket,xml"],
    "HOST": ["", "http://localhost", "localhost:8000", "a b"],
    "ADVERTISE": ["", "10.0.0.2", ":8700", "https://10.0.0.2:8700", "http://10.0.0.2:8700/brain", "10.0.0.2:65536",
                  "fd00::2:8700", "[10.0.0.2]:8700", "0.0.0.0:8700", "[::]:8700", "a b:1", "user@host:1"],
    "HOSTS": ["https://chat.example", "chat.example:443", "chat.example/brain", "*.example", ".example", "::g"],
    "ORIGINS": ["*", "chat.example", "https://*.example", "https://chat.example/app", "https://chat.example:port",
                "https://user@chat.example", "https://[::g]", "null"],
    "ALLOWED_SPECIALISTS": ["web search", "9web", "x" * 65],
    "SPECIALISTS_FOLDER": ["/no/such/folder", "~no-such-user-here/x"],
}  # fmt: skip


@pytest.mark.parametrize("key", BAD)
def test_a_bad_value_names_the_setting_the_value_and_what_is_allowed(key: str) -> None:
    for value in BAD[key]:
        with pytest.raises(SettingsError) as caught:
            read({f"BRAIN_{key}": value})
        shown = f"'{escape_invisible(value)}'" if len(value) < 50 else "'xxx"
        for part in (f" BRAIN_{key}: ", shown, KEYS[key].metadata["rule"].allowed.replace("`", "")):
            assert part in str(caught.value)
        example = KEYS[key].metadata["example"]
        assert caught.value.advice == f"export BRAIN_{key}={shlex.quote(example)}"


@pytest.mark.parametrize("key", sorted(set(KEYS) - {"SPECIALISTS_FOLDER"}))
def test_the_example_in_an_error_is_a_good_value(key: str) -> None:
    read({f"BRAIN_{key}": KEYS[key].metadata["example"]})


@pytest.mark.parametrize(
    "line",
    ["calls = true", 'calls = "x"', "calls = 2.5", "turn_seconds = [1]", f"turn_seconds = 1{'0' * 400}", "model = 1",
     "host = 1", "time_zone = {}", "hosts = [1]", "keys = {a = 'b'}", "syntax = 2024-01-01", "specialists_folder = 5"],
)  # fmt: skip
def test_a_bad_type_in_the_file_is_named(tmp_path: Path, line: str) -> None:
    key = line.partition(" ")[0]
    with pytest.raises(SettingsError, match=rf"\b{key} in .*brain\.toml, line 1\b"):
        read({}, file(tmp_path, line))


@pytest.mark.parametrize(
    ("environ", "error"),
    [
        ({"BRAIN_MODLE": "sk-secret"}, "BRAIN_MODLE.* 'BRAIN_MODEL'"),
        ({"BRAIN_LOGG": "json"}, "BRAIN_LOGG.* 'BRAIN_LOG'"),
        ({"BRAIN_XYZZY": "x"}, r"BRAIN_XYZZY\.$"),
        ({"PORT": "http"}, "PORT: 'http'"),
    ],
)
def test_a_bad_variable_is_named(environ: dict[str, str], error: str) -> None:
    with pytest.raises(SettingsError, match=error) as caught:
        read(environ)
    assert "sk-secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("model", "meant"),
    [
        ("olama:llama3.2", "'ollama:llama3.2'"),
        ("llama3.2", "'ollama:llama3.2' or 'openai:llama3.2'"),
        ("builtn", "'builtin'"),
        ("builtin,opnai:gpt-4o", "'openai:gpt-4o'"),
        ("big", "'bigg'"),
    ],
)
def test_a_wrong_model_gets_a_suggestion(model: str, meant: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(f" Did you mean {meant}?")):
        read({"BRAIN_MODEL": model, "BRAIN_MODELS": '{"bigg": {"is": "builtin"}}'})


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (None, r"brain\.toml: no such file"),
        ("calls =", r"brain\.toml, at the end:"),
        ("a = 1\ncalls = x", r"brain\.toml, line 2, column 9:"),
        ("specialists = 1", r"^specialists in .*brain\.toml "),
        ("[specialists]\nweb = 1", r"^specialists in .*brain\.toml "),
        ('modle = "x"', r"modle in .*brain\.toml, line 1\. .* 'model'"),
        ("[specialist.wiki]", "specialist in .* 'specialists'"),
        ("\n[models.a]", r"brain\.toml: models\.a\.is "),
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
