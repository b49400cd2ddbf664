"""The files of the page: typed, layered, self-contained; words for every failure; libraries as pinned."""

import hashlib
import re
import subprocess
from collections.abc import Iterable
from graphlib import TopologicalSorter
from html.parser import HTMLParser
from pathlib import Path
from typing import get_args

import pytest
from node_clients import NODE, Clients

from brain.cli.terminal.messages import FAILURES, OUTCOMES
from brain.events import CallCode, ErrorCode

PAGE = Path(__file__).parents[2] / "brain" / "page"
VENDOR = PAGE / "vendor"
FILES = sorted(path for path in PAGE.rglob("*") if path.is_file() and VENDOR not in path.parents)
TEXTS = {path: path.read_text("utf-8") for path in FILES if path.suffix != ".png"}
SCRIPTS = {path: text for path, text in TEXTS.items() if path.suffix == ".js"}
ENGLISH = PAGE / "texts" / "en.js"
TYPES_ONLY = PAGE / "scripts" / "base" / "types.js"
"""Shapes for the checker; no browser requests it."""
LAYERS = ["texts", "base", "dialogs", "answer", "conversation", "list", "composer", "main"]
"""The folders of the scripts, lowest first; a script imports from its own folder and from lower ones."""
INDEX = TEXTS[PAGE / "index.html"]
IMPORT = re.compile(r'(?:\bfrom |^import )\s*"([^"]+)"', re.MULTILINE)
LAZY = re.compile(r'\bimport\("([^"]+)"\)')
COMMENT = re.compile(r"/\*\*.*?\*/", re.DOTALL)
DATA = re.compile(r'data-(?:text|label|placeholder)="(\w+)"')
CHECK = (
    "--noEmit --allowJs --checkJs --strict --target es2023 --module esnext --moduleResolution bundler "
    "--lib es2023,dom,dom.iterable --skipLibCheck"
)
ENGLISH_WORDS = dict(re.findall(r'^  (\w+): "(.*)",$', TEXTS[ENGLISH], re.MULTILINE))
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
    """The page's own modules that a script imports, without those of which it only names types."""
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
    """The files of a kind that elements of `index.html` name."""
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
    assert {path.suffix for path in TEXTS} == {".html", ".css", ".js", ".svg"}
    preloaded = [attributes["href"] for _, attributes in ELEMENTS.all if attributes.get("rel") == "modulepreload"]
    assert preloaded == sorted(path.relative_to(PAGE.parent).as_posix() for path in at_once - first)
    assert [path.name for path in at_once if re.search(r"^import .*vendor/", SCRIPTS[path], re.MULTILINE)] == []


def test_every_text_is_used_and_every_used_text_exists() -> None:
    texts = set(re.findall(r"^  (\w+): ", SCRIPTS[ENGLISH], re.MULTILINE))
    assert len(texts) > 100
    others = "\n".join(COMMENT.sub("", text) for path, text in SCRIPTS.items() if path != ENGLISH)
    in_index = set(DATA.findall(INDEX))
    as_properties = set(re.findall(r"^\s+(\w+): t\(", others, re.MULTILINE))
    assert texts - set(re.findall(r'"(\w+)"', others)) - in_index - as_properties == set()
    assert (set(re.findall(r'\bt\("(\w+)"', others)) | in_index) - texts == set()


def test_failures_have_the_same_words_as_in_the_terminal() -> None:
    def words(name: str, constant: str) -> dict[str, str]:
        body = TEXTS[PAGE / "scripts" / name].partition(f"const {constant} = {{")[2].partition("}")[0]
        return {code: ENGLISH_WORDS[text] for code, text in re.findall(r'\b(\w+): "(\w+)"', body)}

    calls = words("answer/failures.js", "WORDS")
    assert set(calls) == set(get_args(CallCode)) - {"refused", "declined", "cancelled"}  # the card has their words
    assert {"declined", "cancelled"} <= set(ENGLISH_WORDS)
    in_terminal = {str(code): text for code, text in FAILURES.items()}
    assert {code for code, text in calls.items() if text != in_terminal[code]} == {"timeout"}  # another placeholder
    answers = words("base/stored_conversation.js", "FAILURES") | {"internal": ENGLISH_WORDS["internal"]}
    assert answers == {code: OUTCOMES[code] for code in (*get_args(ErrorCode), "interrupted")}


def test_the_page_is_self_contained_and_works_below_a_path() -> None:
    hosts = {
        (path.name, address)
        for path, text in TEXTS.items()
        for address in re.findall(r"(?:\w+:)?//[\w-]+\.[\w.-]+\S*", text)
        if not address.startswith("http://www.w3.org/2000/svg")  # a name, not an address
    }
    assert hosts == set()
    assert [text for text in TEXTS.values() if re.search(r"@import|\burl\(", text)] == []
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
    assert len(folders) == 4
    assert [folder.name for folder in folders if not folder.joinpath("LICENSE").read_text("utf-8").strip()] == []
