"""The documentation is run: its Python blocks in order, a page a namespace; its tables are those of the code."""

import re
from pathlib import Path
from typing import Any

import pytest

from brain import Registry, settings

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
WITH_CODE = [page for page in PAGES if "```python" in page.read_text("utf-8")]


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.name)
def test_python_blocks_run(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, Any] = {"__name__": "documentation"}
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL):
        exec(compile(block, page.name, "exec"), namespace)
    assert capsys.readouterr().err == ""


def test_the_table_of_settings_is_that_of_the_code() -> None:
    page = (ROOT / "docs" / "operations.md").read_text("utf-8")
    shown = page.partition("<!-- settings -->\n")[2].partition("\n<!-- /settings -->")[0]
    of_brain = Registry().discover().settings_table()
    assert shown == "\n".join(part for part in (settings.table(), of_brain) if part)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text("utf-8"))
    missing = [t for t in targets if "://" not in t and not (page.parent / t).exists()]
    assert missing == []


def test_the_handbook_has_every_page() -> None:
    names = {page.name for page in PAGES}
    assert names >= {
        "README.md",
        "architecture.md",
        "changelog.md",
        "library.md",
        "operations.md",
        "wire-events.md",
        "writing-a-specialist.md",
    }
