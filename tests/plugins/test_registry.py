"""The registry: discovery, settings, requirements and lifespans of specialists, and cached results."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta

from brain.errors import RegistrationError
from brain.installation import install_command
from brain.plugins.context import Context, Result
from brain.plugins.registry import Registry
from brain.plugins.specialist import specialist
from brain.settings import read


def text(word: str = "x", *, context: Context) -> str:
    """Does it."""
    return word


def registry_of(*names: str, environ: Mapping[str, str] | None = None, **options: Any) -> Registry:
    registry = Registry(read(environ or {}))
    for name in names:
        registry.add(specialist(name=name, **options)(text))
    return registry


def install(folder: Path, name: str, source: str, points: Mapping[str, str], requires: str = "") -> None:
    """Write an installed distribution like pip: a module and its metadata."""
    (folder / f"{name}_module.py").write_text(source, "utf-8")
    info = folder / f"{name}-1.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n{requires}", "utf-8")
    lines = [f"{point} = {value}" for point, value in points.items()]
    (info / "entry_points.txt").write_text("\n".join(["[brain.specialists]", *lines, ""]), "utf-8")


def discover(folder: Path, **files: str) -> Registry:
    for name, source in files.items():
        (folder / f"{name}.py").write_text(source, "utf-8")
    return Registry(read({"BRAIN_SPECIALISTS_FOLDER": str(folder)})).discover()


def source(name: str, options: str = "", args: str = "") -> str:
    return f'from brain import specialist\n@specialist({options})\ndef {name}({args}) -> str:\n    """Does it."""\n'


def test_usable_specialists() -> None:
    registry = registry_of("gamma", "echo", environ={"BRAIN_ALLOWED_SPECIALISTS": "alpha,echo"})
    registry.register("alpha", "Does it.", {"type": "object"}, lambda params: "x")
    assert list(registry) == ["alpha", "echo", "gamma"]
    assert [entry.is_allowed for entry in registry.values()] == [True, True, False]
    assert [one.name for one in registry.usable()] == ["alpha", "echo"]
    assert [one.name for one in registry.usable(["echo", "gamma", "nothing"])] == ["echo"]


def test_entry_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = {"one": "shop_module:one", "rest": "shop_module"}
    points |= {"gone": "shop_nowhere:x", "missing": "shop_module:missing", "number": "shop_module:NUMBER"}
    requires = (
        'Provides-Extra: deep\nRequires-Dist: no-such-package>=1; extra == "deep"\n'
        "Provides-Extra: light\nRequires-Dist: pytest>=1; extra == 'light'\n"
    )
    code = source("one", "needs='deep'") + source("two", "needs='light'") + "NUMBER = 5\n"
    install(tmp_path, "shop", code, points, requires)
    install(tmp_path, "shopb", source("two"), {"same": "shopb_module:two"})
    monkeypatch.syspath_prepend(tmp_path)
    registry = Registry().discover()
    found = {name: (registry[name].origin, registry[name].version) for name in ("one", "two")}
    assert found == {"one": ("shop 1.5", "1.5"), "two": ("shop 1.5", "1.5")}
    refused = [one for one in registry.refused if one.origin.startswith("shop")]
    assert [one.name for one in refused] == ["gone", "missing", "number", "one", "two"]
    assert (refused[-1].origin, "shop 1.5 " in refused[-1].reason) == ("shopb 1.5", True)
    reason = f"the extra deep is not installed: {install_command('deep', 'shop')}"
    assert (registry["one"].unavailable_reason, registry["two"].unavailable_reason) == (reason, None)
    description = registry["one"].describe()
    assert (description["available"], description["unavailable_reason"]) == (False, registry["one"].public_reason)
    assert "install -e" not in str(description)
    assert {"one", "two"} & {one.name for one in registry.usable()} == {"two"}


def test_files_of_the_folder(tmp_path: Path) -> None:
    rooms = (
        "from __future__ import annotations\nfrom dataclasses import dataclass\nfrom brain import specialist\n"
        "@dataclass\nclass Room:\n    name: str\n    next: Room | None = None\n"
        "@specialist\ndef clean(room: Room) -> str:\n    'Cleans.'\n"
    )
    registry = discover(
        tmp_path,
        good=source("first") + source("second") + "alias = first\n",
        rooms=rooms,
        _helper=source("hidden"),
        bad_import="import nowhere_at_all\n",
        bad_signature=source("odd", args="a"),
        bad_syntax="def (:\n",
        empty="x = 1\n",
        half="class Fridge: pass\n" + source("cook", args="*, fridge: Fridge") + source("wash"),
        leaves="raise SystemExit(3)\n",
    )
    assert {"first", "second", "clean", "wash"} <= set(registry)
    assert "hidden" not in registry
    assert (registry["first"].origin, registry["first"].version) == ("good.py", "")
    problems = {
        ("bad_import", "bad_import.py"): "nowhere_at_all",
        ("bad_signature", "bad_signature.py"): "parameter a ",
        ("bad_syntax", "bad_syntax.py"): "bad_syntax.py, line 1",
        ("empty", "empty.py"): "@specialist",
        ("cook", "half.py"): "fridge (Fridge)",
        ("leaves", "leaves.py"): "SystemExit: 3",
    }
    assert [(one.name, one.origin) for one in registry.refused] == [*problems]
    assert all(problems[one.name, one.origin] in one.reason for one in registry.refused)


# injection


class Fridge:
    pass


def needs_fridge(*args: Any, fridge: Fridge) -> None:
    """Does it."""


def test_parameters_that_the_program_provides() -> None:
    @specialist
    def cook(*, fridge: Fridge, context: Context, freezer: Fridge | None = None, clock: type | None = None) -> str:
        """Cooks."""
        return "x"

    with pytest.raises(RegistrationError, match=r"^specialist cook from the program: .* fridge \(Fridge"):
        Registry().add(cook)
    for option in ("needs", "health", "lifespan", "forget", "preview"):
        options: Any = {option: needs_fridge, "approval": "always"}
        with pytest.raises(RegistrationError, match=rf"^specialist a from here: {option}: .* fridge"):
            Registry().add(specialist(name="a", **options)(text), "here")
    fridge = Fridge()
    registry = Registry(provide=[fridge])
    registry.add(cook)
    assert registry.dependencies == {Fridge: fridge}
    assert registry.usable() == (cook,)


# what a specialist needs


def test_a_function_returns_missing_requirements() -> None:
    def broken() -> str | None:
        raise ImportError("/secret/path")

    missing = [
        registry_of("photo", needs=needs)["photo"].unavailable_reason
        for needs in (lambda: None, lambda: "no camera", broken)
    ]
    assert (missing[:2], bool(missing[2]), "secret" in str(missing[2])) == ([None, "no camera"], True, False)


# settings


@dataclass(frozen=True)
class Library:
    folders: Annotated[tuple[str, ...], Meta(description="Where the books are.")] = ()
    shelves: Annotated[dict[str, str], Meta(description="Where else.")] = field(default_factory=dict)
    depth: Annotated[int, Meta(description="How deep.", ge=1)] = 3
    key: str = ""
    backend: Literal["auto", "own"] = "auto"


@dataclass(frozen=True)
class Account:
    key: str


def books(tmp_path: Path, toml: str = "", **environ: str) -> Registry:
    """Return a registry with settings for the specialist `book-shop`."""
    config = tmp_path / "brain.toml"
    config.write_text(f"[specialists.book-shop]\n{toml}", "utf-8")
    return Registry(read({f"BRAIN_SPECIALIST_BOOK_SHOP_{key}": value for key, value in environ.items()}, config))


@pytest.mark.parametrize(
    ("toml", "environ", "expected"),
    [
        ("depth = 20\nkey = 'k'", {"DEPTH": "30"}, Library(depth=30, key="k")),
        ("", {"FOLDERS": "a, b,"}, Library(folders=("a", "b"))),
        ("", {"FOLDERS": '["a,b"]'}, Library(folders=("a,b",))),
        ("", {"FOLDERS": ""}, Library()),
        ("", {"SHELVES": "one=a, two = b=c"}, Library(shelves={"one": "a", "two": "b=c"})),
        ("", {"SHELVES": '{"one":"a"}'}, Library(shelves={"one": "a"})),
    ],
)
def test_settings_of_a_specialist(tmp_path: Path, toml: str, environ: Any, expected: Library) -> None:
    registry = books(tmp_path, toml, **environ)
    registry.add(specialist(name="book-shop", settings=Library)(text))
    assert registry["book-shop"].settings == expected
    assert registry["book-shop"].dependencies == {Library: expected}


@pytest.mark.parametrize(
    ("kind", "toml", "environ", "problem"),
    [
        (Library, "", {"DEPTH": "many"}, "BOOK_SHOP_DEPTH='many' is not allowed"),
        (Library, "depth = 'x'", {}, "depth in [specialists.book-shop]='x' is not allowed"),
        (Library, "key = 5", {}, "key in [specialists.book-shop]=(not shown) is not allowed"),
        (Library, "depth = 0", {}, "depth in [specialists.book-shop]=0 is not allowed"),
        (Library, "", {"FOLDERS": '["a"'}, "it must be a list"),
        (Library, "", {"BACKEND": "x"}, "BACKEND='x' is not allowed: it must be one of auto, own"),
        (Account, "", {}, "missing required field `key`"),
        (dict, "", {}, "its settings must be a dataclass"),
    ],
)
def test_a_bad_setting_refuses_its_specialist(
    tmp_path: Path, kind: Any, toml: str, environ: Any, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    registry = books(tmp_path, toml, **environ)
    with pytest.raises(RegistrationError) as caught:
        registry.add(specialist(name="book-shop", settings=kind)(text))
    assert problem in str(caught.value)
    with caplog.at_level(logging.WARNING, "brain"):
        registry.discover()
    assert caplog.records == []  # its settings are not called unknown


def test_unknown_settings_are_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    registry = books(tmp_path, "colour = 'red'\n[specialists.nothing]\na = 1", NOTHING="sk-secret", DEPTH="4")
    with caplog.at_level(logging.WARNING, "brain"):
        registry.add(specialist(name="book", settings=Library)(text))  # the beginning of the other's name
        registry.add(specialist(name="book-shop", settings=Library)(text))
        registry.discover()
    assert [registry[name].settings.depth for name in ("book", "book-shop")] == [3, 4]
    assert len(caplog.records) == 3
    assert "sk-secret" not in caplog.text


# lifespans


def test_lifespans() -> None:
    steps: list[str] = []

    @asynccontextmanager
    async def good(*, settings: Library) -> AsyncIterator[None]:
        steps.append(f"start {settings.depth}")
        with suppress(ValueError):
            yield
        steps.append("stop")
        raise OSError

    async def main(registry: Registry) -> None:
        async with registry.running():
            steps.append("serve")
            assert [one.name for one in registry.usable()] == ["a", "c"]
            raise ValueError("of the server")

    registry = Registry()
    lifespans: list[Any] = [good, lambda: 5, good]
    for name, lifespan in zip("abc", lifespans, strict=True):
        registry.add(specialist(name=name, lifespan=lifespan, settings=Library)(text))
    with pytest.raises(ValueError, match="of the server"):
        asyncio.run(main(registry))
    assert steps == ["start 3", "start 3", "serve", "stop", "stop"]


# cached answers


def test_cached_answers_expire_and_are_bounded() -> None:
    now = 100.0
    registry = Registry(now=lambda: now)
    registry.cache(("ada", "a"), Result("x"), 60)
    registry.cache(("ada", "b"), Result("y"), 1)
    assert registry.find_cached(("ada", "a")) == Result("x")
    assert (registry.find_cached(("bob", "a")), registry.find_cached(("ada", "c"))) == (None, None)
    now += 1
    assert (registry.find_cached(("ada", "a")), registry.find_cached(("ada", "b"))) == (Result("x"), None)
    for n in range(256):
        registry.cache(("bob", n), Result(str(n)), 60)
    assert registry.find_cached(("ada", "a")) is None
    assert [registry.find_cached(("bob", n)) for n in (0, 255)] == [Result("0"), Result("255")]


def test_the_description_for_clients() -> None:
    options: dict[str, Any] = {
        "requires_user": True,
        "approval": lambda params: True,
        "version": "2",
        "activates_on": ["pdf", "image"],
        "examples": [str(n) for n in range(12)],
    }
    description = registry_of("mail", timeout=3, tags=["a"], **options)["mail"].describe()
    assert description.pop("parameters")["properties"] == {"word": {"type": "string", "default": "x"}}
    assert description == {
        "name": "mail", "description": "Does it.", "version": "2", "examples": tuple("0123456789"), "tags": ("a",),
        "timeout": 3,
        "auth": True, "approval": "depends", "read_only": False, "outside": True, "activates_on": ["image", "pdf"],
        "origin": "the program", "available": True,
    }  # fmt: skip
