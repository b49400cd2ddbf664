"""The page's own files: checked, reached, spelled out in one place, and of nobody else."""

import re
import subprocess
from collections.abc import Iterable
from graphlib import TopologicalSorter
from html.parser import HTMLParser
from pathlib import Path

import pytest
from nodes import NODE, Clients

PAGE = Path(__file__).parents[2] / "brain" / "page"
VENDOR = PAGE / "vendor"
FILES = sorted(path for path in PAGE.rglob("*") if path.is_file() and VENDOR not in path.parents)
TEXTS = {path: path.read_text("utf-8") for path in FILES if path.suffix != ".png"}
SCRIPTS = {path: text for path, text in TEXTS.items() if path.suffix == ".js"}
ENGLISH = PAGE / "texts" / "en.js"
TYPED = PAGE / "scripts" / "base" / "types.js"
"""Shapes for the checker; no browser asks for it."""
LAYERS = ["texts", "base", "dialogs", "answer", "conversation", "list", "composer", "main"]
"""The folders of the scripts, from below; a script imports from its own and from those before."""
INDEX = TEXTS[PAGE / "index.html"]

IMPORT = re.compile(r'(?:\bfrom |^import )\s*"([^"]+)"', re.MULTILINE)
LAZY = re.compile(r'\bimport\("([^"]+)"\)')
TYPES = re.compile(r"/\*\*.*?\*/", re.DOTALL)
KEY = re.compile(r"^  (\w+): ", re.MULTILINE)
LITERAL = re.compile(r'"(\w+)"')
CALLED = re.compile(r'\bt\("(\w+)"')
DATA = re.compile(r'data-(?:text|label|placeholder)="(\w+)"')
CHECK = (
    "--noEmit --allowJs --checkJs --strict --target es2023 --module esnext --moduleResolution bundler "
    "--lib es2023,dom,dom.iterable --skipLibCheck"
)


class Elements(HTMLParser):
    """Its elements with their attributes, and what stands in them as text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.all: list[tuple[str, dict[str, str | None]]] = []
        self.said: list[tuple[str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.all.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.said.append((self.all[-1][0], data.strip()))


ELEMENTS = Elements(INDEX)


def imported(path: Path, how: re.Pattern[str] = IMPORT) -> set[Path]:
    """The own modules that one imports; those of which it only names types are none."""
    found = {(path.parent / name).resolve() for name in how.findall(TYPES.sub("", SCRIPTS[path]))}
    return {one for one in found if VENDOR not in one.parents}


def reached(first: Iterable[Path]) -> set[Path]:
    """These modules, and all that they import."""
    found: set[Path] = set()
    ahead = list(first)
    while ahead:
        path = ahead.pop()
        if path not in found:
            found.add(path)
            ahead += imported(path)
    return found


def linked(tag: str, attribute: str, suffix: str) -> set[Path]:
    """The files of this kind that such elements of `index.html` name."""
    names = [attributes.get(attribute) or "" for one, attributes in ELEMENTS.all if one == tag]
    return {PAGE.parent / name for name in names if name.endswith(suffix)}


@pytest.mark.node
def test_the_scripts_hold_what_their_types_say(clients: Clients) -> None:
    checker = clients.folder / "node_modules" / "typescript" / "bin" / "tsc"
    scripts = [str(path) for path in SCRIPTS]
    done = subprocess.run(
        [str(NODE), str(checker), *CHECK.split(), *scripts], cwd=clients.folder, capture_output=True, text=True
    )
    assert (done.stdout + done.stderr).splitlines() == []
    assert done.returncode == 0


def test_every_text_is_used_and_every_used_one_is_there() -> None:
    texts = set(KEY.findall(SCRIPTS[ENGLISH]))
    assert len(texts) > 100
    others = "\n".join(TYPES.sub("", text) for path, text in SCRIPTS.items() if path != ENGLISH)
    assert texts - set(LITERAL.findall(others)) - set(DATA.findall(INDEX)) - property_names(others) == set()
    assert (set(CALLED.findall(others)) | set(DATA.findall(INDEX))) - texts == set()


def property_names(scripts: str) -> set[str]:
    """Those that name a text by being a property, such as a category."""
    return set(re.findall(r"^\s+(\w+): t\(", scripts, re.MULTILINE))


def test_every_module_and_style_is_reached() -> None:
    first = reached(linked("script", "src", ".js"))
    assert first | reached(one for path in first for one in imported(path, LAZY)) == set(SCRIPTS) - {TYPED}
    assert linked("link", "href", ".css") == {path for path in TEXTS if path.suffix == ".css"}
    assert {path.suffix for path in TEXTS} == {".html", ".css", ".js", ".svg"}


def test_all_modules_of_the_first_paint_are_asked_for_at_once() -> None:
    """And not one level of imports after the other. No library is among them."""
    ahead = [attributes["href"] for _, attributes in ELEMENTS.all if attributes.get("rel") == "modulepreload"]
    first = linked("script", "src", ".js")
    assert ahead == sorted(path.relative_to(PAGE.parent).as_posix() for path in reached(first) - first)
    assert [path.name for path in reached(first) if re.search(r"^import .*vendor/", SCRIPTS[path], re.MULTILINE)] == []


def test_scripts_import_without_a_cycle() -> None:
    graph = {path: imported(path) for path in SCRIPTS}
    assert sum(map(len, graph.values())) > 50
    TopologicalSorter(graph).prepare()


def test_scripts_import_from_below() -> None:
    assert {layer_of(path) for path in SCRIPTS} == set(LAYERS)
    upward = {
        (path.name, below.name)
        for path in SCRIPTS
        for below in imported(path)
        if LAYERS.index(layer_of(below)) > LAYERS.index(layer_of(path))
    }
    assert upward == set()


def layer_of(path: Path) -> str:
    """The folder that a script is in; `main.js` is the top layer."""
    return "main" if path.parent.name == "scripts" else path.parent.name


def test_no_file_is_of_another_host() -> None:
    """Nor says so: the namespace of SVG is a name, and no address."""
    hosts = {
        (path.name, address)
        for path, text in TEXTS.items()
        for address in re.findall(r"(?:\w+:)?//[\w-]+\.[\w.-]+\S*", text)
        if not address.startswith("http://www.w3.org/2000/svg")
    }
    assert hosts == set()
    assert [text for text in TEXTS.values() if re.search(r"@import|\burl\(", text)] == []


def test_index_has_no_inline_style_script_or_handler() -> None:
    assert len(ELEMENTS.all) > 50
    names = [name for _, attributes in ELEMENTS.all for name in attributes]
    assert [name for name in names if name == "style" or name.startswith("on")] == []
    assert [text for tag, text in ELEMENTS.said if tag in ("style", "script")] == []


def test_addresses_are_relative() -> None:
    """So that the page works below a path, too."""
    addresses = [attributes.get("href") or attributes.get("src") or "" for _, attributes in ELEMENTS.all]
    assert [address for address in addresses if address.startswith("/")] == []
    assert [path.name for path, text in SCRIPTS.items() if re.search(r"[\"'`]/(?:v1|page)\b", text)] == []


def test_html_comes_from_the_sanitiser_alone() -> None:
    makes = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|createHTML|document\.write|DOMParser|setHTML")
    assert [path.name for path, text in SCRIPTS.items() if makes.search(text)] == []
    assert [path.name for path, text in SCRIPTS.items() if "dompurify" in text] == ["markdown.js"]
    runs = re.compile(r"\beval\(|new Function|setTimeout\(\s*[\"'`]")
    assert [path.name for path, text in SCRIPTS.items() if runs.search(text)] == []
