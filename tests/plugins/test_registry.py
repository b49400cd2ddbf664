import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta

from brain.errors import RegistrationError
from brain.plugins.context import Context
from brain.plugins.executor import Answer
from brain.plugins.registry import Refusal, Registry
from brain.plugins.specialist import Specialist, specialist
from brain.settings import read


@specialist
async def echo(text: str) -> str:
    """Says it again."""
    return text


def install(folder: Path, name: str, source: str, points: Mapping[str, str], requires: str = "") -> None:
    """An installed distribution as pip leaves it: a module and its metadata."""
    (folder / f"{name}_module.py").write_text(source, "utf-8")
    info = folder / f"{name}-1.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n{requires}", "utf-8")
    lines = [f"{point} = {value}" for point, value in points.items()]
    (info / "entry_points.txt").write_text("\n".join(["[brain.specialists]", *lines, ""]), "utf-8")


def in_folder(folder: Path, **files: str) -> Registry:
    for name, source in files.items():
        (folder / f"{name}.py").write_text(source, "utf-8")
    return Registry(read({"BRAIN_SPECIALISTS_FOLDER": str(folder)})).discover()


def source(name: str, body: str = "return 'x'") -> str:
    return f'from brain import specialist\n@specialist\ndef {name}() -> str:\n    """Does it."""\n    {body}\n'


def test_a_registry_is_a_mapping_in_the_order_of_names() -> None:
    registry = Registry()
    registry.add(echo, "here")
    registry.register("alpha", "Does it.", {"type": "object"}, lambda params: "x", tags=["t"])
    assert list(registry) == ["alpha", "echo"]
    assert len(registry) == 2
    assert registry["echo"].specialist is echo
    assert (registry["echo"].origin, registry["alpha"].origin) == ("here", "the program")
    assert [one.name for one in registry.usable()] == ["alpha", "echo"]
    assert [one.name for one in registry.usable(["echo", "nothing"])] == ["echo"]
    assert "nothing" not in registry


def test_entry_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two = source("one_thing") + source("two_things")
    install(tmp_path, "shopkit", two, {"one_thing": "shopkit_module:one_thing", "rest": "shopkit_module"})
    monkeypatch.syspath_prepend(tmp_path)
    registry = Registry().discover()
    assert registry["one_thing"].origin == "shopkit 1.5"
    assert registry["two_things"].origin == "shopkit 1.5"
    assert registry["one_thing"].version == "1.5"
    assert registry["one_thing"].describe()["version"] == "1.5"
    assert [r for r in registry.refused if r.origin == "shopkit 1.5"] == [
        Refusal(
            "one_thing", "shopkit 1.5", "specialist one_thing from shopkit 1.5: shopkit 1.5 already brings this name"
        )
    ]


def test_a_bad_entry_point_is_refused_and_the_others_serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = {
        "gone": "shopkit2_nowhere:x",
        "missing": "shopkit2_module:missing",
        "number": "shopkit2_module:NUMBER",
        "good": "shopkit2_module:good",
    }
    install(tmp_path, "shopkit2", source("good") + "NUMBER = 5\n", points)
    monkeypatch.syspath_prepend(tmp_path)
    registry = Registry().discover()
    assert "good" in registry
    assert [(r.name, r.reason) for r in registry.refused if r.origin == "shopkit2 1.5"] == [
        ("gone", "it cannot be imported: ModuleNotFoundError: No module named 'shopkit2_nowhere'"),
        ("missing", "it cannot be imported: AttributeError: module 'shopkit2_module' has no attribute 'missing'"),
        ("number", "there is no specialist in it; decorate a function with @specialist"),
    ]


def test_a_duplicate_name_is_refused_with_both_origins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "shopa", source("same"), {"same": "shopa_module:same"})
    install(tmp_path, "shopb", source("same"), {"same": "shopb_module:same"})
    monkeypatch.syspath_prepend(tmp_path)
    registry = Registry().discover()
    assert registry["same"].origin == "shopa 1.5"
    assert Refusal("same", "shopb 1.5", "specialist same from shopb 1.5: shopa 1.5 already brings this name") in (
        registry.refused
    )


def test_the_folder(tmp_path: Path) -> None:
    registry = in_folder(
        tmp_path,
        good=source("first") + source("second") + "alias = first\n",
        _helper=source("hidden"),
        bad_import="import nowhere_at_all\n",
        bad_syntax="def (:\n",
        leaves="raise SystemExit(3)\n",
        empty="x = 1\n",
    )
    (tmp_path / "notes.txt").write_text("no specialist", "utf-8")
    assert {"first", "second"} <= set(registry)
    assert "hidden" not in registry
    assert registry["first"].origin == "good.py"
    assert registry["first"].version == ""
    assert [(r.name, r.origin, r.reason) for r in registry.refused] == [
        ("bad_import", "bad_import.py", "it cannot be imported: ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("bad_syntax", "bad_syntax.py", "it cannot be imported: SyntaxError: invalid syntax (bad_syntax.py, line 1)"),
        ("empty", "empty.py", "there is no specialist in it; decorate a function with @specialist"),
        ("leaves", "leaves.py", "it cannot be imported: SystemExit: 3"),
    ]


def test_one_bad_specialist_of_a_file_does_not_hide_the_others(tmp_path: Path) -> None:
    fridge = "class Fridge: pass\n@specialist\ndef cook(*, fridge: Fridge) -> str:\n    'Cooks.'\n    return 'x'\n"
    registry = in_folder(tmp_path, kitchen="from brain import specialist\n" + fridge + source("wash"))
    assert "wash" in registry
    assert "cook" not in registry
    assert registry.refused == [
        Refusal("cook", "kitchen.py", "specialist cook from kitchen.py: nothing provides fridge (Fridge)")
    ]


def test_a_bad_signature_names_the_specialist(tmp_path: Path) -> None:
    registry = in_folder(tmp_path, bad="from brain import specialist\n@specialist\ndef f(a) -> str:\n    'x'\n")
    assert registry.refused == [Refusal("bad", "bad.py", "specialist f: parameter a has no annotation")]


def test_dataclasses_of_a_file_are_found_by_their_annotations(tmp_path: Path) -> None:
    text = (
        "from __future__ import annotations\nfrom dataclasses import dataclass\nfrom brain import specialist\n"
        "@dataclass\nclass Room:\n    name: str\n    next: Room | None = None\n"
        "@specialist\ndef clean(room: Room) -> str:\n    'Cleans.'\n    return room.name\n"
    )
    registry = in_folder(tmp_path, cleaning=text)
    assert registry.refused == []
    assert registry["clean"].specialist.parameters["properties"] == {"room": {"$ref": "#/$defs/Room"}}


class Fridge:
    pass


def test_what_nothing_provides_is_refused() -> None:
    @specialist
    def cook(*, fridge: Fridge, context: Context, freezer: Fridge | None = None) -> str:
        """Cooks."""
        return "x"

    with pytest.raises(RegistrationError, match=r"^specialist cook from here: nothing provides fridge \(Fridge\)$"):
        Registry().add(cook, "here")
    registry = Registry(provide=[Fridge()])
    registry.add(cook)
    assert isinstance(registry.dependencies[Fridge], Fridge)


def test_what_has_a_default_need_not_be_provided() -> None:
    @specialist
    def cook(*, fridge: Fridge | None = None) -> str:
        """Cooks."""
        return "x"

    registry = Registry()
    registry.add(cook)
    assert registry.usable() == [cook]


def test_a_missing_extra_makes_it_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "from brain import specialist\n"
        "@specialist(needs='deep')\ndef lacks() -> str:\n    'x'\n"
        "@specialist(needs='light')\ndef has() -> str:\n    'x'\n"
    )
    requires = (
        'Provides-Extra: deep\nRequires-Dist: no-such-package>=1; extra == "deep"\n'
        "Provides-Extra: light\nRequires-Dist: pytest>=1; extra == 'light'\n"
    )
    install(tmp_path, "shopx", text, {"all": "shopx_module"}, requires)
    monkeypatch.syspath_prepend(tmp_path)
    registry = Registry().discover()
    assert registry["lacks"].unavailable_reason == "its extra is not installed: pip install 'shopx[deep]'"
    assert registry["lacks"].describe()["available"] is False
    assert registry["lacks"].describe()["unavailable_reason"] == registry["lacks"].unavailable_reason
    assert registry["has"].unavailable_reason is None
    assert {"has", "lacks"} & {one.name for one in registry.usable()} == {"has"}


def no_need() -> str | None:
    return None


def a_need() -> str | None:
    return "there is no camera"


def broken_need() -> str | None:
    raise ImportError("/secret/path")


@pytest.mark.parametrize(
    ("needs", "missing"),
    [(no_need, None), (a_need, "there is no camera"), (broken_need, "what it needs could not be checked")],
)
def test_what_it_needs_may_be_a_function(needs: Any, missing: str | None) -> None:
    @specialist(needs=needs)
    def photo() -> str:
        """Takes photos."""
        return "x"

    registry = Registry()
    registry.add(photo)
    assert registry["photo"].unavailable_reason == missing


@dataclass(frozen=True)
class Limits:
    rows: int = 10
    region: str = "eu"


@specialist(name="data-base", settings=Limits)
def data_base(*, context: Context) -> str:
    """Reads."""
    return "x"


def registry_with(tmp_path: Path, text: str, environ: Mapping[str, str]) -> Registry:
    config = tmp_path / "brain.toml"
    config.write_text(text, "utf-8")
    return Registry(read(environ, config))


def test_settings_of_a_specialist(tmp_path: Path) -> None:
    registry = registry_with(
        tmp_path, "[specialists.data-base]\nrows = 20\nregion = 'us'", {"BRAIN_SPECIALIST_DATA_BASE_ROWS": "30"}
    )
    registry.add(data_base)
    assert registry["data-base"].settings == Limits(rows=30, region="us")


@pytest.mark.parametrize(
    ("text", "environ", "problem"),
    [
        (
            "",
            {"BRAIN_SPECIALIST_DATA_BASE_ROWS": "many"},
            "BRAIN_SPECIALIST_DATA_BASE_ROWS='many' is not allowed: it must be a whole number",
        ),
        ("rows = 'few'", {}, "rows in [specialists.data-base]='few' is not allowed: it must be a whole number"),
        ("region = 5", {}, "region in [specialists.data-base]=(not shown) is not allowed: it must be text"),
    ],
)
def test_a_bad_setting_of_a_specialist_refuses_it(
    tmp_path: Path, text: str, environ: Mapping[str, str], problem: str
) -> None:
    registry = registry_with(tmp_path, f"[specialists.data-base]\n{text}", environ)
    with pytest.raises(RegistrationError) as caught:
        registry.add(data_base)
    assert str(caught.value) == f"specialist data-base: its settings: {problem}"


@dataclass(frozen=True)
class Library:
    folders: Annotated[tuple[str, ...], Meta(description="Where the books are.")] = ()
    shelves: Annotated[dict[str, str], Meta(description="Where else.")] = field(default_factory=dict)
    depth: Annotated[int, Meta(description="How deep.", ge=1)] = 3
    key: Annotated[str, Meta(description="The key.")] = ""


def reader_of_books(reader: Callable[..., str]) -> Specialist[..., str]:
    return specialist(name="books", settings=Library)(reader)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"FOLDERS": "a, b,"}, Library(folders=("a", "b"))),
        ({"FOLDERS": '["a,b"]'}, Library(folders=("a,b",))),
        ({"FOLDERS": ""}, Library()),
        ({"SHELVES": "one=a, two = b=c"}, Library(shelves={"one": "a", "two": "b=c"})),
        ({"SHELVES": '{"one":"a"}', "DEPTH": "4"}, Library(shelves={"one": "a"}, depth=4)),
    ],
)
def test_lists_and_tables_from_the_environment(said: Mapping[str, str], expected: Library) -> None:
    registry = Registry(read({f"BRAIN_SPECIALIST_BOOKS_{key}": value for key, value in said.items()}))
    registry.add(reader_of_books(data_base.function))
    assert registry["books"].settings == expected


@pytest.mark.parametrize(("said", "wanted"), [('["a"', "a list such as a,b"), ('{"a":1}', "a list such as a,b")])
def test_a_bad_list_from_the_environment_is_named(said: str, wanted: str) -> None:
    registry = Registry(read({"BRAIN_SPECIALIST_BOOKS_FOLDERS": said}))
    with pytest.raises(RegistrationError, match=re.escape(f"it must be {wanted}")):
        registry.add(reader_of_books(data_base.function))


def test_of_a_setting_with_few_values_these_are_named() -> None:
    @dataclass(frozen=True)
    class Engine:
        backend: Literal["auto", "own"] = "auto"

    registry = Registry(read({"BRAIN_SPECIALIST_BOOKS_BACKEND": "google"}))
    with pytest.raises(RegistrationError, match=r"BACKEND='google' is not allowed: it must be one of auto, own$"):
        registry.add(specialist(name="books", settings=Engine)(data_base.function))


def test_the_settings_that_a_specialist_declares_are_rows_of_the_table() -> None:
    registry = Registry()
    registry.add(data_base)
    registry.add(reader_of_books(data_base.function))
    assert registry.settings_table().splitlines() == [
        "| SPECIALIST_BOOKS_FOLDERS | – | Where the books are. |",
        "| SPECIALIST_BOOKS_SHELVES | – | Where else. |",
        "| SPECIALIST_BOOKS_DEPTH | `3` | How deep. |",
        "| SPECIALIST_BOOKS_KEY | – | The key. |",
        "| SPECIALIST_DATA_BASE_ROWS | `10` |  |",
        "| SPECIALIST_DATA_BASE_REGION | `eu` |  |",
    ]


def test_settings_are_filled_in_by_their_type() -> None:
    said = []

    def needs(*, settings: Library) -> str | None:
        return None if settings.folders else "no folder is set: set one"

    @asynccontextmanager
    async def lifespan(*, settings: Library) -> AsyncIterator[None]:
        said.append(settings)
        yield

    @specialist(settings=Library, needs=needs, lifespan=lifespan)
    def books(*, library: Library, context: Context) -> str:
        """Reads."""
        return f"{library.depth}"

    async def start(registry: Registry) -> None:
        async with registry.running():
            pass

    poor, rich = Registry(), Registry(read({"BRAIN_SPECIALIST_BOOKS_FOLDERS": "a"}))
    poor.add(books)
    rich.add(books)
    assert (poor["books"].unavailable_reason, rich["books"].unavailable_reason) == ("no folder is set: set one", None)
    assert rich["books"].dependencies == {Library: Library(folders=("a",))}
    asyncio.run(start(poor))
    asyncio.run(start(rich))
    assert said == [Library(folders=("a",))]


@pytest.mark.parametrize("which", ["needs", "health", "lifespan"])
def test_what_nothing_provides_for_its_functions_is_refused(which: str) -> None:
    def wants(*, library: Library) -> None: ...

    options: Any = {which: wants, "name": "books"}
    with pytest.raises(RegistrationError, match=rf"{which}: nothing provides library \(Library\)$"):
        Registry().add(specialist(**options)(data_base.function))


def test_a_missing_setting_is_named(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Accounting:
        key: str

    registry = Registry()
    with pytest.raises(RegistrationError, match=r"its settings: Object missing required field `key`$"):
        registry.add(specialist(name="bank", settings=Accounting)(data_base.function))


def test_the_good_settings_of_a_refused_specialist_are_not_called_unknown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    environ = {"BRAIN_SPECIALIST_DATA_BASE_ROWS": "many", "BRAIN_SPECIALIST_DATA_BASE_REGION": "us"}
    registry = registry_with(tmp_path, "[specialists.data-base]\nrows = 1", environ)
    with pytest.raises(RegistrationError):
        registry.add(data_base)
    with caplog.at_level(logging.WARNING, "brain"):
        registry.discover()
    assert caplog.records == []


def test_an_extra_belongs_to_a_package(tmp_path: Path) -> None:
    needy = "from brain import specialist\n@specialist(needs='deep')\ndef needy() -> str:\n    'x'\n"
    registry = in_folder(tmp_path, needy=needy)
    reason = (
        "specialist needy from needy.py: needs names an extra of a package, and it comes with none: "
        "give a function that says what is missing"
    )
    assert registry.refused == [Refusal("needy", "needy.py", reason)]
    with pytest.raises(RegistrationError, match="from the program: needs names an extra of a package"):
        Registry().add(specialist(name="other", needs="deep")(data_base.function))


def test_settings_must_be_a_dataclass() -> None:
    @specialist(settings=dict)
    def bad() -> str:
        """Bad."""
        return "x"

    with pytest.raises(RegistrationError, match=r"^specialist bad: its settings must be a dataclass$"):
        Registry().add(bad)


def test_unknown_settings_of_specialists_are_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    registry = registry_with(
        tmp_path,
        "[specialists.data-base]\ncolour = 'red'\n[specialists.nothing]\na = 1",
        {"BRAIN_SPECIALIST_DATA_BASE_ROWS": "3", "BRAIN_SPECIALIST_NOTHING_KEY": "sk-secret"},
    )

    @specialist(settings=Limits)
    def data() -> str:
        """Reads, and has a name that another one begins with."""
        return "x"

    with caplog.at_level(logging.WARNING, "brain"):
        registry.add(data)
        registry.add(data_base)
        registry.discover()
    assert registry["data-base"].settings == Limits(rows=3)
    assert registry["data"].settings == Limits()
    assert [record.getMessage() for record in caplog.records] == [
        "specialist data-base has no setting colour",
        "settings for specialist nothing, which is not there",
        "BRAIN_SPECIALIST_NOTHING_KEY is no setting of a specialist that is there",
    ]


def test_the_operator_allows_names() -> None:
    registry = Registry(read({"BRAIN_ALLOWED_SPECIALISTS": "alpha,gamma"}))
    registry.add(echo)
    registry.register("alpha", "Does it.", {"type": "object"}, lambda params: "x")
    assert (registry.is_allowed("alpha"), registry.is_allowed("echo"), registry.is_allowed("gamma")) == (
        True,
        False,
        True,
    )
    assert [one.name for one in registry.usable()] == ["alpha"]
    assert registry.usable(["echo"]) == []
    assert Registry().is_allowed("anything")


def test_lifespans_start_and_stop_and_one_that_fails_is_unavailable(caplog: pytest.LogCaptureFixture) -> None:
    told: list[str] = []

    def with_life(name: str, life: Any, registry: Registry) -> None:
        registry.register(name, "Does it.", {"type": "object"}, lambda params: "x", lifespan=life)

    @asynccontextmanager
    async def good() -> AsyncIterator[None]:
        told.append("start")
        try:
            yield
        finally:
            told.append("stop")

    @asynccontextmanager
    async def bad_start() -> AsyncIterator[None]:
        fail()
        yield

    @asynccontextmanager
    async def bad_stop() -> AsyncIterator[None]:
        yield
        fail()

    def fail() -> None:
        raise OSError("/secret/path")

    def no_manager() -> Any:
        return 5

    async def main(registry: Registry) -> None:
        async with registry.running():
            told.append("serve")
            assert [one.name for one in registry.usable()] == ["a", "c", "echo"]
            assert registry["b"].unavailable_reason == registry["d"].unavailable_reason == "it could not start"

    registry = Registry()
    registry.add(echo)
    for name, life in {"a": good, "b": bad_start, "c": bad_stop, "d": no_manager}.items():
        with_life(name, life, registry)
    asyncio.run(main(registry))
    assert told == ["start", "serve", "stop"]
    assert "specialist b could not start" in caplog.text
    assert "specialist c could not stop" in caplog.text


def test_an_error_while_serving_goes_through_a_lifespan_that_swallows() -> None:
    @asynccontextmanager
    async def swallows() -> AsyncIterator[None]:
        with suppress(ValueError):
            yield

    async def main() -> None:
        registry = Registry()
        registry.register("a", "Does it.", {"type": "object"}, lambda params: "x", lifespan=swallows)
        async with registry.running():
            raise ValueError("of the server")

    with pytest.raises(ValueError, match="of the server"):
        asyncio.run(main())


def test_answers_are_kept_for_a_while_and_not_without_end() -> None:
    registry = Registry()
    registry.cache(("ada", "a"), Answer("x"), 60)
    registry.cache(("ada", "b"), Answer("y"), 0.01)
    assert registry.find_cached(("ada", "a")) == Answer("x")
    assert registry.find_cached(("bob", "a")) is None
    assert registry.find_cached(("ada", "nothing")) is None
    time.sleep(0.02)
    assert registry.find_cached(("ada", "b")) is None
    for n in range(256):
        registry.cache(("ada", n), Answer(str(n)), 60)
    assert registry.find_cached(("ada", "a")) is None
    assert registry.find_cached(("ada", 0)) == Answer("0")
    assert registry.find_cached(("ada", 255)) == Answer("255")


def test_the_answers_that_are_kept_for_a_user_can_be_forgotten() -> None:
    registry = Registry()
    for user in ("ada", "bob", None):
        registry.cache((user, "a"), Answer("x"), 60)
    registry.drop_cached("ada")
    assert registry.find_cached(("ada", "a")) is None
    assert registry.find_cached(("bob", "a")) == registry.find_cached((None, "a")) == Answer("x")


def test_what_clients_may_know() -> None:
    registry = Registry()
    registry.register(
        "mail",
        "Sends mail.",
        {"type": "object"},
        lambda params: "x",
        requires_user=True,
        approval=lambda params: True,
        version="2",
        timeout=3,
        tags=["a"],
        activates_on=["pdf", "image"],
    )
    assert registry["mail"].describe() == {
        "name": "mail",
        "description": "Sends mail.",
        "version": "2",
        "parameters": {"type": "object"},
        "examples": (),
        "tags": ("a",),
        "timeout": 3,
        "auth": True,
        "approval": "depends",
        "read_only": False,
        "outside": True,
        "activates_on": ["image", "pdf"],
        "origin": "the program",
        "available": True,
    }
    registry.add(echo)
    assert registry["echo"].describe()["approval"] == "never"
    assert registry["echo"].describe()["version"] == ""
