"""The files of the page: typed, layered, self-contained; texts complete in every language; libraries as pinned."""

import hashlib
import json
import re
import subprocess
from collections.abc import Iterable
from graphlib import TopologicalSorter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, get_args

import pytest
from node_clients import NODE, Clients

from brain.events import CallCode, ErrorCode, Role, StopReason, StrategyName

PAGE = Path(__file__).parents[2] / "brain" / "page"
VENDOR = PAGE / "vendor"
FILES = sorted(path for path in PAGE.rglob("*") if path.is_file() and VENDOR not in path.parents)
TEXTS = {path: path.read_text("utf-8") for path in FILES if path.suffix != ".png"}
SCRIPTS = {path: text for path, text in TEXTS.items() if path.suffix == ".js"}
LANGUAGES = {path.stem: json.loads(text) for path, text in TEXTS.items() if path.suffix == ".json"}
ENGLISH = LANGUAGES["en"]
TYPES_ONLY = PAGE / "scripts" / "base" / "types.js"
"""Shapes for the checker; no browser requests it."""
LAYERS = ["base", "dialogs", "answer", "conversation", "list", "composer", "main"]
"""The folders of the scripts, lowest first; a script imports from its own folder and from lower ones."""
INDEX = TEXTS[PAGE / "index.html"]
IMPORT = re.compile(r'(?:\bfrom |^import )\s*"([^"]+)"', re.MULTILINE)
LAZY = re.compile(r'\bimport\("([^"]+)"\)')
COMMENT = re.compile(r"/\*\*.*?\*/", re.DOTALL)
DATA = re.compile(r'data-(?:text|label|placeholder)="(\w+)"')
PLURALS = {"de": {"one", "other"}, "es": {"one", "many", "other"}, "fr": {"one", "many", "other"}, "zh": {"other"}}
"""The plural forms of cardinal numbers, by the Unicode CLDR."""
CHECK = (
    "--noEmit --allowJs --checkJs --strict --target es2023 --module esnext --moduleResolution bundler "
    "--lib es2023,dom,dom.iterable --skipLibCheck"
)
FONT = 'url("../vendor/stix-two-math/stix-two-math.woff2")'
VENDOR_ROW = re.compile(r"^\| `([^`]+)` \| [^|]+ \| `([0-9a-f]{64})` \|$", re.MULTILINE)


class Elements(HTMLParser):
    """The elements of a document with their attributes, and the texts in them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.all: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.all.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append((self.all[-1][0], data.strip()))


ELEMENTS = Elements(INDEX)


def imports(path: Path, how: re.Pattern[str] = IMPORT) -> set[Path]:
    """The page's modules that a script imports, except for types."""
    found = {(path.parent / name).resolve() for name in how.findall(COMMENT.sub("", SCRIPTS[path]))}
    return {one for one in found if VENDOR not in one.parents}


def reachable(first: Iterable[Path]) -> set[Path]:
    """These modules and all that they import."""
    found: set[Path] = set()
    pending = list(first)
    while pending:
        path = pending.pop()
        if path not in found:
            found.add(path)
            pending += imports(path)
    return found


def linked(tag: str, attribute: str, suffix: str) -> set[Path]:
    """The files with a suffix that elements of `index.html` link."""
    names = [attributes.get(attribute) or "" for one, attributes in ELEMENTS.all if one == tag]
    return {PAGE.parent / name for name in names if name.endswith(suffix)}


def layer_of(path: Path) -> str:
    """The folder of a script; `main.js` is the top layer."""
    return "main" if path.parent.name == "scripts" else path.parent.name


@pytest.mark.node
def test_scripts_match_their_types(clients: Clients) -> None:
    checker = clients.folder / "node_modules" / "typescript" / "bin" / "tsc"
    command = [str(NODE), str(checker), *CHECK.split(), *map(str, SCRIPTS)]
    done = subprocess.run(command, cwd=clients.folder, capture_output=True, text=True)
    assert (done.stdout + done.stderr).splitlines() == []
    assert done.returncode == 0


def test_scripts_import_from_their_layer_or_lower_ones_without_a_cycle() -> None:
    graph = {path: imports(path) for path in SCRIPTS}
    assert sum(map(len, graph.values())) > 50
    TopologicalSorter(graph).prepare()
    assert {layer_of(path) for path in SCRIPTS} == set(LAYERS)
    layers = {path: LAYERS.index(layer_of(path)) for path in SCRIPTS}
    assert {
        (path.name, low.name) for path, lower in graph.items() for low in lower if layers[low] > layers[path]
    } == set()


def test_every_file_is_used_and_those_of_the_first_paint_are_preloaded() -> None:
    first = linked("script", "src", ".js")
    at_once = reachable(first)
    assert at_once | reachable(one for path in at_once for one in imports(path, LAZY)) == set(SCRIPTS) - {TYPES_ONLY}
    assert linked("link", "href", ".css") == {path for path in TEXTS if path.suffix == ".css"}
    assert {path.suffix for path in TEXTS} == {".html", ".css", ".js", ".json", ".svg"}
    preloaded = [attributes["href"] for _, attributes in ELEMENTS.all if attributes.get("rel") == "modulepreload"]
    assert preloaded == sorted(path.relative_to(PAGE.parent).as_posix() for path in at_once - first)
    assert [path.name for path in at_once if re.search(r"^import .*vendor/", SCRIPTS[path], re.MULTILINE)] == []


def test_every_text_is_used_and_every_used_text_exists() -> None:
    texts = set(ENGLISH["page"])
    assert len(texts) > 100
    scripts = "\n".join(COMMENT.sub("", text) for text in SCRIPTS.values())
    in_index = set(DATA.findall(INDEX))
    as_properties = set(re.findall(r"^\s+(\w+): t\(", scripts, re.MULTILINE))
    assert texts - set(re.findall(r'"(\w+)"', scripts)) - in_index - as_properties == set()
    assert (set(re.findall(r'\bt\("(\w+)"', scripts)) | in_index) - texts == set()


SILENT = {"complete", "deliverable", "ready", "converged"}
"""Stop reasons of answers that ended as they should."""


def test_every_code_has_a_text() -> None:
    """The terminal takes these texts from the same file."""
    assert set(ENGLISH["calls"]) == set(get_args(CallCode))
    assert set(ENGLISH["errors"]) >= {*get_args(ErrorCode), "interrupted"}
    assert set(ENGLISH["strategies"]) == set(get_args(StrategyName))
    assert set(ENGLISH["roles"]) == set(get_args(Role))
    assert set(ENGLISH["endings"]) == set(get_args(StopReason)) - SILENT


def placeholders(text: str) -> set[str]:
    return set(re.findall(r"\{(\w+)\}", text))


@pytest.mark.parametrize("language", sorted(set(LANGUAGES) - {"en"}))
def test_a_language_is_complete(language: str) -> None:
    texts, plurals = LANGUAGES[language], PLURALS[language]

    def compare(english: Any, translated: Any, path: str) -> None:
        if isinstance(english, str):
            assert isinstance(translated, str), path
            assert bool(translated.strip()) == bool(english), path
            assert placeholders(translated) == placeholders(english), path
        elif "other" in english:
            assert set(translated) == plurals, path
            for form, text in translated.items():
                compare(english["other"], text, f"{path}.{form}")
        else:
            assert list(translated) == list(english), path
            for key, value in english.items():
                compare(value, translated[key], f"{path}.{key}")

    compare(ENGLISH, texts, language)


def test_the_page_offers_each_language() -> None:
    offered = ELEMENTS.all[0][1]["data-languages"] or ""
    assert sorted(tag.partition("-")[0] for tag in offered.split()) == sorted(LANGUAGES)


def test_index_has_no_text_of_one_language_only() -> None:
    """A text there would be visible before the texts of the reader's language are loaded."""
    assert [one for one in ELEMENTS.texts if one[0] not in ("p", "code")] == [("title", "Brain"), ("h1", "Brain")]
    assert {"p", "code"} == {tag for tag, _ in ELEMENTS.texts} - {"title", "h1"}  # for browsers without scripts


def test_the_page_is_self_contained_and_works_below_a_path() -> None:
    hosts = {
        (path.name, address)
        for path, text in TEXTS.items()
        for address in re.findall(r"(?:\w+:)?//[\w-]+\.[\w.-]+\S*", text)
        if not address.startswith("http://www.w3.org/2000/svg")  # a name, not an address
    }
    assert hosts == set()
    assert re.findall(r"@import[^;]*|\burl\([^)]*\)", "".join(TEXTS.values())) == [FONT]
    addresses = [attributes.get("href") or attributes.get("src") or "" for _, attributes in ELEMENTS.all]
    assert len(addresses) > 50
    assert [address for address in addresses if address.startswith("/")] == []
    assert [path.name for path, text in SCRIPTS.items() if re.search(r"[\"'`]/(?:v1|page)\b", text)] == []


def test_no_text_becomes_code_and_html_comes_from_the_sanitizer_alone() -> None:
    names = [name for _, attributes in ELEMENTS.all for name in attributes]
    assert [name for name in names if name == "style" or name.startswith("on")] == []
    assert [text for tag, text in ELEMENTS.texts if tag in ("style", "script")] == []
    makes_html = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|createHTML|document\.write|DOMParser|setHTML")
    runs_text = re.compile(r"\beval\(|new Function|setTimeout\(\s*[\"'`]")
    assert [path.name for path, text in SCRIPTS.items() if makes_html.search(text) or runs_text.search(text)] == []
    assert [path.name for path, text in SCRIPTS.items() if "dompurify" in text] == ["markdown.js"]


def test_vendored_libraries_are_the_files_of_their_list() -> None:
    listed = dict(VENDOR_ROW.findall(VENDOR.joinpath("README.md").read_text("utf-8")))
    found = {path.relative_to(VENDOR).as_posix(): path for path in VENDOR.rglob("*") if path.is_file()}
    found.pop("README.md")
    assert len(found) > 30
    assert {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in found.items()} == listed
    folders = [path for path in VENDOR.iterdir() if path.is_dir()]
    assert len(folders) == 5
    assert [folder.name for folder in folders if not folder.joinpath("LICENSE").read_text("utf-8").strip()] == []
