"""The documentation is run: its Python blocks in order, a page a namespace; its tables are those of the code."""

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

import pytest
from starlette.routing import Route
from test_architecture import LAYERS

import brain
from brain import Registry, Specialist, Thinker, errors, settings
from brain.cli.arguments import make_parser
from brain.cli.main import run
from brain.events import CallCode, ErrorCode, Limits, NoticeCode, SpecialistResult, StopReason
from brain.prompts.system_prompt import SystemPrompt
from brain.protocols.native.encoder import EVENT_NAMES
from brain.server.app import create_app

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
WITH_CODE = [page for page in PAGES if "```python" in page.read_text("utf-8")]


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_python_blocks_run(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, Any] = {"__name__": "documentation"}
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL):
        exec(compile(block, page.name, "exec"), namespace)
    assert capsys.readouterr().err == ""


@pytest.mark.anyio
@pytest.mark.parametrize("page", ["tutorials/first-specialist.md", "how-to/write-a-specialist.md"])
async def test_the_demo_model_answers_all_examples(page: str) -> None:
    text = (ROOT / "docs" / page).read_text("utf-8")
    namespace: dict[str, Any] = {"__name__": "documentation"}
    for block in re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        if "asyncio.run(" not in block:
            exec(compile(block, page, "exec"), namespace)
    registry = Registry()
    examples = []
    for one in namespace.values():
        if isinstance(one, Specialist):
            registry.add(one)
            examples += [(question, one.name) for question in one.examples]
            shown = [line for line in text.splitlines() if line.startswith(f"- {one.name}: ")]
            assert set(shown) <= set(SystemPrompt([one], Limits(), ("bracket",)).text().splitlines())
    assert examples
    async with Thinker(registry, model="builtin", store="memory:") as thinker:
        for question, name in examples:
            response = await thinker.create_session(on_approval=lambda asked: True).think(question)
            assert [call.name for call in response.calls if isinstance(call, SpecialistResult)] == [name], question


def test_the_table_of_settings_is_that_of_the_code() -> None:
    page = (ROOT / "docs" / "reference" / "settings.md").read_text("utf-8")
    shown = page.partition("<!-- settings -->\n")[2].partition("\n<!-- /settings -->")[0]
    of_brain = Registry().discover().settings_table()
    assert shown == "\n".join(part for part in (settings.table(), of_brain) if part)
    topics = page.partition("## By topic\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"\b[A-Z_]{3,}\b", topics)) - {"SPECIALIST_"} == set(settings.KEYS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", page.read_text("utf-8"))
    ours = [(page.parent / target if target else page, place) for target, place in links if "://" not in target]
    assert [target for target, place in ours if not target.exists() or (place and place not in headings(target))] == []


def headings(page: Path) -> set[str]:
    """The headings of a page, as links name them."""
    found = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in found}


@pytest.mark.parametrize("builder", ["mkdocs", "zensical"])
def test_the_site_builds_without_warnings_and_loads_nothing_from_elsewhere(builder: str, tmp_path: Path) -> None:
    if find_spec(builder) is None:
        pytest.skip(f"{builder} is not installed")
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    command = [sys.executable, "-m", builder, "build", "--strict"]
    built = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    site = tmp_path / "site"
    assert {page.relative_to(site).as_posix() for page in site.rglob("*.html")} >= {
        page.relative_to(ROOT / "docs").with_suffix(".html").as_posix() for page in PAGES[1:]
    }
    scripts, styles = r"<(?:script|img|iframe)[^>]* src=", r"<link[^>]* rel=\"?(?:stylesheet|pre\w+)[^>]* href="
    loaded = rf'(?:{scripts}|{styles})"?https?:'
    assert [page for page in site.rglob("*.html") if re.search(loaded, page.read_text("utf-8"))] == []


def test_the_reference_has_every_option_of_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "reference" / "cli.md").read_text("utf-8")
    common, *sections = re.split(r"^## ", page.partition("## Common options")[2], flags=re.MULTILINE)
    actions = ("memory list", "memory add", "memory edit", "memory delete", "memory recall")
    for section in sections:
        named = re.findall(r"^[a-z]+(?=$|,)|(?<=, )[a-z]+$", section.partition("\n")[0])
        for command in [*named, *(actions if "memory" in named else ())]:
            with pytest.raises(SystemExit):
                run([*command.split(), "--help"])
            options = set(re.findall(r"(?<!\w)--[a-z][a-z-]*", capsys.readouterr().out.rpartition("Example:")[0]))
            assert [option for option in options if option not in section + common] == [], command


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_and_settings_exist(page: Path) -> None:
    text = page.read_text("utf-8")
    blocks = re.findall(r"^ *```sh\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", "").splitlines()]
    for line in lines:
        for command in re.findall(
            r"(?<![\w/.-])(?<!-[mu] )brain ((?:[a-z]+\b|--\w).*?)(?= [|;&>] |2>&1| < |; |$)", line
        ):
            words = [word for word in shlex.split(command, comments=True) if word not in ("||", "true")]
            assert make_parser().parse_args(words), line
    named = set(re.findall(r"\bBRAIN_([A-Z]+(?:_[A-Z]+)*)\b", text))
    assert named - setting_names() <= {"SPECIALIST", "SPECIALIST_RATES_BASE"}


@cache
def setting_names() -> set[str]:
    """Names of all settings, without the prefix `BRAIN_`."""
    tables = f"{settings.table()}\n{Registry().discover().settings_table()}"
    return {name.removeprefix("BRAIN_") for name in re.findall(r"^\| `?([A-Z_]+)", tables, re.MULTILINE)}


def test_the_newest_version_of_the_changelog_is_the_present_one() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    newest = re.search(r"^## (\d\S+)", (ROOT / "docs" / "changelog.md").read_text("utf-8"), re.MULTILINE)
    assert newest is not None
    assert newest[1] == version


def test_the_reference_has_every_public_name() -> None:
    page = (ROOT / "docs" / "reference" / "python-api.md").read_text("utf-8")
    headings = " ".join(re.findall(r"^## (.*)$", page, re.MULTILINE))
    assert [name for name in brain.__all__ if not re.search(rf"\b{name}\b", headings)] == []


def test_the_table_of_layers_is_that_of_the_code() -> None:
    page = (ROOT / "docs" / "explanation" / "architecture.md").read_text("utf-8").partition("\n## Layers\n")[2]
    rows = re.findall(r"^\| [a-z ]+ \| (`.*) \|$", page, re.MULTILINE)
    shown = [set(re.findall(r"`(\w+)(?:\.py|/)`", row)) for row in rows]
    assert shown == [set(layer.split()) for layer in reversed(LAYERS)]


def test_the_tree_of_errors_is_that_of_the_code() -> None:
    shown, path = {}, ["Exception"]
    for indent, name in re.findall(r"^([│├└─ ]*)([A-Z]\w+)(?: {2}|$)", errors.__doc__ or "", re.MULTILINE):
        path = [*path[: len(indent) // 4 + 1], name]
        shown[name] = path[-2]
    assert shown == {"BrainError": "Exception", **dict(subclasses_of_brain(errors.BrainError))}


def subclasses_of_brain(error: type[BaseException]) -> Iterator[tuple[str, str]]:
    for one in error.__subclasses__():
        if one.__module__.startswith("brain."):
            yield one.__name__, error.__name__
            yield from subclasses_of_brain(one)


@pytest.mark.parametrize("name", ["architecture", "decisions", "security"])
def test_the_explanation_names_files_and_functions_that_exist(name: str) -> None:
    page = (ROOT / "docs" / "explanation" / f"{name}.md").read_text("utf-8")
    files = re.findall(r"`(\w+/[\w/]+\.py)`", page)
    assert [file for file in files if not any((ROOT / folder / file).exists() for folder in ("brain", "."))] == []
    steps = re.findall(r"`([\w/]+\.(?:py|js))`\s\(`(#?\w+)`", page)
    assert [step for step in steps if not defines(*step)] == []


def defines(file: str, name: str) -> bool:
    if file.endswith(".js"):
        text, how = next((ROOT / "brain" / "page" / "scripts").rglob(file)).read_text("utf-8"), rf"^  {name}\("
    else:
        text, how = (ROOT / "brain" / file).read_text("utf-8"), rf"^ *(?:(?:async )?(?:def|class) {name}\b|{name} = )"
    return re.search(how, text, re.MULTILINE) is not None


def test_the_reference_has_every_event_and_code() -> None:
    page = (ROOT / "docs" / "reference" / "events.md").read_text("utf-8")
    assert set(EVENT_NAMES.values()) <= set(re.findall(r"^## (\w+)$", page, re.MULTILINE))
    assert [code for code in get_args(NoticeCode) if f"| `{code}` |" not in page] == []
    page = (ROOT / "docs" / "reference" / "errors.md").read_text("utf-8")
    for title, codes in (("Turn errors", ErrorCode), ("Call errors", CallCode), ("Stop reasons", StopReason)):
        section = page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
        assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == set(get_args(codes))


def test_the_reference_has_every_route() -> None:
    pages = [(ROOT / "docs" / "reference" / f"{name}.md").read_text("utf-8") for name in ("http-api", "compatibility")]
    shown = set(re.findall(r"`(?:[A-Z]+ )?(/[^`? ]*)`", "\n".join(pages)))
    paths = {
        re.sub(r":path}", "}", route.path) for route in create_app(settings.read({})).routes if isinstance(route, Route)
    }
    assert {path.replace("{number}", "{n}") for path in paths} - shown == {"/page/{file}"}
