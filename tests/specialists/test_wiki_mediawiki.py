"""`wiki` against a real MediaWiki on Store, with TextExtracts as on Wikipedia and without as on Fandom."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from specialist_calls import answer, context, refused
from web_site import free_port, program

from brain import Context
from specialists._wiki.names import WikiSettings
from specialists.wiki import wiki

MEDIAWIKI = Path("/usr/share/mediawiki")
PHP = shutil.which("php")

pytestmark = [
    pytest.mark.mediawiki,
    pytest.mark.skipif(PHP is None or not MEDIAWIKI.is_dir(), reason="PHP or Debian's package mediawiki is missing"),
]

BERLIN = (Path(__file__).parent / "pages" / "Berlin.wiki").read_text("utf-8")
PAGES = {
    "Berlin": BERLIN.replace("LONG", "The river Spree flows through it and the boats go by. " * 80),
    "Germany": "'''Germany''' is a country in Europe.\n",
    "Spree": "The '''Spree''' is a river that flows through Berlin.\n",
    "Berlin in the Middle Ages": "#REDIRECT [[Berlin#Middle Ages]]",
    "Capital of Germany": "#REDIRECT [[Berlin]]",
    "Mercury": "'''Mercury''' can be:\n* [[Germany|a country]], for this test\n* [[Spree]], a river\n"
    "[[Category:Disambiguation pages]]\n",
}


def maintain(script: str, *arguments: str, config: Path | None = None) -> None:
    environment = {**os.environ, "LC_ALL": "C.UTF-8", **({"MW_CONFIG_FILE": str(config)} if config else {})}
    command = [str(PHP), str(MEDIAWIKI / "maintenance" / script), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def wikis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """URLs of the API of one wiki, with and without TextExtracts."""
    folder = tmp_path_factory.mktemp("mediawiki")
    config = folder / "LocalSettings.php"
    ports = {"with": free_port(), "without": free_port()}
    (folder / "data").mkdir()
    options = {
        "dbtype": "sqlite", "dbname": "wiki", "dbpath": folder / "data", "confpath": folder, "scriptpath": "",
        "server": f"http://127.0.0.1:{ports['with']}", "pass": "only-for-this-test",
        "with-extensions": "TextExtracts,Cite",
    }  # fmt: skip
    maintain("install.php", *(f"--{key}={value}" for key, value in options.items()), "Test wiki", "Admin")
    settings = config.read_text("utf-8") + "\n$wgRightsText = 'CC BY-SA 4.0';\n"
    config.write_text(settings, "utf-8")
    for title, text in PAGES.items():
        (folder / f"{title}.txt").write_text(text, "utf-8")
    texts = [str(folder / f"{title}.txt") for title in PAGES]
    maintain("importTextFiles.php", "-u", "Admin", *texts, config=config)
    without = settings.replace("wfLoadExtension( 'TextExtracts' );", "")
    assert without != settings
    with ExitStack() as stack:
        for name, code in (("with", settings), ("without", without)):
            (folder / f"{name}.php").write_text(code, "utf-8")
            command = [str(PHP), "-S", f"127.0.0.1:{ports[name]}", "-t", str(MEDIAWIKI)]
            environ = {**os.environ, "MW_CONFIG_FILE": str(folder / f"{name}.php")}
            stack.enter_context(program(command, environ, b"started"))
        yield {name: f"http://127.0.0.1:{port}/api.php" for name, port in ports.items()}


@pytest.fixture(params=["with", "without"])
def ctx(request: pytest.FixtureRequest, wikis: dict[str, str]) -> Context:
    return context(settings=WikiSettings(wikis={"test": wikis[request.param]}, default="test"))


def test_a_page_is_introduced_found_and_redirected_to(ctx: Context) -> None:
    head, source, _, introduction = answer(wiki, {"query": "Berlin"}, ctx).splitlines()[:4]
    assert head == "📚 Test 'Berlin'"
    assert "/index.php/Berlin, revision " in source
    assert source.endswith(". Text: CC BY-SA 4.0.")
    assert introduction == "Berlin is the capital of Germany. It lies on the Spree."
    assert answer(wiki, {"query": "boats"}, ctx).startswith("📚 Test 'Berlin'")
    page = answer(wiki, {"page": "Berlin"}, ctx)
    assert "It lies on the Spree.\n\n- Country: Germany\n- Population: 3,769,495\n\n" in page
    assert ": 1 History; 1.1 Middle Ages; 2 Economy; 3 Long part\n\n" in page
    found = answer(wiki, {"query": "river flows"}, ctx)
    assert "Other pages found:\n- " in found
    assert "'''" not in found
    assert "Redirected from 'Capital of Germany'." in answer(wiki, {"page": "capital of Germany"}, ctx)


@pytest.mark.parametrize(
    ("params", "end"),
    [
        (
            {"page": "Berlin", "section": "History"},
            "## History\n\nOld, with a formula: 10^3.\n\n### Middle Ages\n\nFirst documented in 1237.\n\n"
            "- one\n  - nested\n\n1. first",
        ),
        (
            {"page": "Berlin", "section": "2"},
            "## Economy\n\nOutput\n\n| Year | Index |\n|---|---|\n| 2000 | 100 |\n| 2001 | 110 |\n| 2002 | 110 |",
        ),
        ({"query": "Berlin in the Middle Ages"}, "First documented in 1237.\n\n- one\n  - nested\n\n1. first"),
        ({"query": "mercury"}, "- Germany: a country, for this test\n- Spree, a river"),
        ({"page": "Mercury"}, "- Germany: a country, for this test\n- Spree, a river"),
    ],
)
def test_pages_sections_and_choices(ctx: Context, params: dict[str, str], end: str) -> None:
    assert answer(wiki, params, ctx).endswith(end)


@pytest.mark.parametrize(
    ("params", "advice"),
    [
        ({"page": "Berlni"}, ": Berlin, Berlin in the Middle Ages"),
        ({"query": "Spreee"}, ": Spree"),
        ({"page": "Berlin", "section": "Sport"}, ": 1 History, 1.1 Middle Ages"),
    ],
)
def test_a_missing_page_is_refused_with_alternatives(ctx: Context, params: dict[str, str], advice: str) -> None:
    assert advice in refused(wiki, params, ctx).advice
