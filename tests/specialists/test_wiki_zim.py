"""`wiki` offline: ZIM files with an index of their texts and without; and which wikis a call can name."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from specialist_calls import answer, context, refused
from wikis import ActionApi, Article, serve

from brain import Context, Refused
from specialists._wiki.names import LANGUAGES, OfflineWiki, OnlineWiki, WikiSettings, choose_wiki, find_problem
from specialists.wiki import wiki

MAKE_FILES = """
from libzim.writer import Creator, Hint, Item, StringProvider

class Page(Item):
    def __init__(self, title, html):
        super().__init__()
        self.title, self.html = title, html
    def get_path(self):
        return self.title.replace(" ", "_")
    def get_title(self):
        return self.title
    def get_mimetype(self):
        return "image/png" if self.title.endswith(".png") else "text/html"
    def get_contentprovider(self):
        return StringProvider(self.html)
    def get_hints(self):
        return {Hint.FRONT_ARTICLE: True}

for path, is_indexed in (("indexed.zim", True), ("titles_only.zim", False)):
    with Creator(path).config_indexing(is_indexed, "eng") as creator:
        creator.set_mainpath("Kidney")
        creator.add_item(Page("Kidney", '<html><head><title>Kidney</title></head><body><h1>Kidney</h1>'
            '<p>Two organs that filter the blood.</p><details><summary><h2 id="Structure">Structure</h2></summary>'
            '<p>Like a bean.</p></details><h2>Disease</h2><p>' + 'Stones hurt. ' * 300 + '</p></body></html>'))
        creator.add_item(Page("Kidney stone", "<p>A stone in a running kidney.</p>"))
        creator.add_item(Page("Ren", '<p><b>Ren</b> may refer to:</p>'
            '<ul><li><a href="K">Kidney</a>, two organs</li></ul>'))
        creator.add_item(Page("A/Old path", "<p>Of an older file.</p>"))
        creator.add_item(Page("iPhone of McX", "<p>Odd letters.</p>"))
        creator.add_item(Page("Kidney.png", "no picture"))
        creator.add_item(Page("Long", "<p>" + "x " * 3_000_000 + "</p>"))
        creator.add_redirection("Nephros", "Nephros", "Kidney", {Hint.FRONT_ARTICLE: True})
        creator.add_metadata("Title", "Small")
        creator.add_metadata("Date", "2026-01-02")
        creator.add_metadata("License", "CC BY-SA 4.0")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two ZIM files and a damaged one. A process makes them, because libzim prints to the terminal."""
    folder = tmp_path_factory.mktemp("zim")
    subprocess.run([sys.executable, "-c", MAKE_FILES], cwd=folder, capture_output=True, check=True)
    (folder / "damaged.zim").write_bytes((folder / "indexed.zim").read_bytes()[:4000])
    return folder


@pytest.fixture
def ctx(folder: Path) -> Context:
    files = [str(folder / f"{name}.zim") for name in ("indexed", "titles_only", "damaged", "gone")]
    return context(settings=WikiSettings(default="indexed", zim=files))


def test_a_page_of_a_file(ctx: Context) -> None:
    text = answer(wiki, {"page": "Kidney"}, ctx)
    assert text.startswith(
        "📚 indexed (offline) 'Kidney'\nVersion of 2026-01-02. Text: CC BY-SA 4.0.\n\n"
        "Two organs that filter the blood.\n\nSections "
    )
    assert ": 1 Structure; 2 Disease\n\n" in text
    assert answer(wiki, {"page": "kidney", "section": "structure"}, ctx).endswith("\n\n## Structure\n\nLike a bean.")


@pytest.mark.parametrize(
    ("params", "piece"),
    [
        ({"query": "run"}, "📚 indexed (offline) 'Kidney stone'"),
        ({"query": "organ filters"}, "📚 indexed (offline) 'Kidney'"),
        ({"query": "stone"}, "Other pages found:\n- "),
        ({"query": "kidney s", "wiki": "titles_only"}, "📚 titles_only (offline) 'Kidney stone'"),
        ({"page": "nephros"}, "Redirected from 'Nephros'."),
        ({"query": "Ren"}, "\n- Kidney, two organs"),
        ({"page": "old path"}, "Of an older file."),
        ({"page": "iphone of mcx"}, "Odd letters."),
    ],
)
def test_pages_are_found_by_stems_titles_and_redirects(ctx: Context, params: dict[str, str], piece: str) -> None:
    assert piece in answer(wiki, params, ctx)


@pytest.mark.parametrize(
    ("params", "reason", "advice"),
    [
        ({"query": "filter", "wiki": "titles_only"}, "titles_only (offline) has nothing about 'filter'", ""),
        ({"page": "Kidny"}, "'Kidny'", ": Kidney, Kidney stone"),
        ({"page": "Kidney.png"}, "'Kidney.png'", ""),
        ({"page": "Long"}, "'Long' is too large", ""),
        ({"page": "Kidney", "wiki": "damaged"}, "damaged (offline) cannot be read", ""),
        ({"page": "Kidney", "wiki": "gone"}, "this server does not have the file of gone (offline)", ""),
    ],
)
def test_a_missing_page_or_a_damaged_file_is_refused(
    ctx: Context, params: dict[str, str], reason: str, advice: str, folder: Path
) -> None:
    failure = refused(wiki, params, ctx)
    assert reason in failure.reason
    assert failure.advice.endswith(advice)
    assert str(folder) not in failure.reason


def test_without_the_package_the_health_check_has_the_install_command(folder: Path) -> None:
    code = (
        "import sys, asyncio, importlib.util as util; find = util.find_spec\n"
        "util.find_spec = lambda name, package=None: None if name == 'libzim' else find(name, package)\n"
        "from pathlib import Path; from specialists._wiki.zim import Zim\n"
        "from specialists._wiki.names import OfflineWiki\n"
        "print(asyncio.run(Zim(OfflineWiki('x', Path('x.zim'))).find_problem()))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    assert "[wiki-offline]'" in done.stdout


# which wikis there are


@pytest.mark.parametrize(
    ("language", "host"),
    [
        (None, "en"), ("de", "de"), ("DE", "de"), ("pt-BR", "pt"), ("zh_TW", "zh"), ("zh-yue", "zh-yue"),
        ("be-tarask", "be-tarask"), ("simple", "simple"),
    ],
)  # fmt: skip
def test_a_language_is_a_code_of_wikipedia(language: str | None, host: str) -> None:
    assert choose_wiki(None, language, WikiSettings()) == OnlineWiki(
        f"Wikipedia ({host})", f"https://{host}.wikipedia.org/w/api.php", is_trusted=False
    )


@pytest.mark.parametrize(
    "language",
    ["evil.com/", "xx", "www", "commons", "m", "en.evil", "en@evil", "en#", "-", "english", "../x", "x" * 99],
)
def test_no_other_language_leads_anywhere(language: str) -> None:
    with pytest.raises(Refused, match="there is no Wikipedia in"):
        choose_wiki(None, language, WikiSettings())
    assert all(code.replace("-", "").isalpha() and code.isascii() for code in LANGUAGES)


def test_wikis_of_the_operator_go_by_name() -> None:
    settings = WikiSettings(
        wikis={"Lore": "https://lore.example", "wiktionary": "https://{language}.wiktionary.example/w/api.php"},
        zim=["/data/medicine_en.zim", "~/x.zim"],
    )
    assert choose_wiki("de.wikipedia.org", None, settings) == choose_wiki("Wikipedia", "de", settings)
    assert choose_wiki("lore", "de", settings) == OnlineWiki("Lore", "https://lore.example/api.php", is_trusted=True)
    assert choose_wiki("Wiktionary", "fr", settings).label == "Wiktionary (fr)"
    file = OfflineWiki("medicine_en (offline)", Path("/data/medicine_en.zim"))
    assert choose_wiki("medicine_EN", None, settings) == file
    with pytest.raises(Refused) as unknown:
        choose_wiki("none", None, settings)
    assert unknown.value.advice.endswith(": wikipedia, lore, wiktionary, medicine_en, x")


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({}, ""),
        ({"wikis": {"lore": "https://lore.example/api.php"}, "default": "Lore"}, ""),
        ({"wikis": {"lore": "lore"}}, "WIKIS"),
        ({"wikis": {"lore": "ftp://lore.example"}}, "WIKIS"),
        ({"wikis": {"lore": "https://user:key@lore.example"}}, "WIKIS"),
        ({"wikis": {"; x": "https://lore.example"}}, "WIKIS"),
        ({"language": "klingon"}, "LANGUAGE"),
        ({"default": "lore"}, "DEFAULT"),
    ],
)
def test_invalid_settings_are_named(settings: dict[str, Any], name: str) -> None:
    problem = find_problem(settings=WikiSettings(**settings))
    assert problem is None if not name else f"BRAIN_SPECIALIST_WIKI_{name}" in (problem or "")


def test_health_asks_the_default_wiki_and_opens_the_files(folder: Path) -> None:
    def check(default: str, *files: str) -> str | None:
        settings = WikiSettings(wikis=urls, default=default, zim=[str(folder / name) for name in files])
        assert wiki.health is not None
        found: str | None = asyncio.run(wiki.health(settings=settings, context=context(settings=settings)))  # type: ignore[arg-type]
        return found

    with serve(ActionApi({"Rome": Article()})) as api:
        urls = {"here": api.url, "away": "http://127.0.0.1:9/api.php"}
        assert check("here", "indexed.zim") is None
        assert str(folder / "damaged.zim") in (check("here", "damaged.zim") or "")
        assert check("indexed", "indexed.zim") is None
        assert (check("away") or "").startswith("Away: ")
