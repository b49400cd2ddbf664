"""Measure how well `web` finds the articles of pages, with the sentences in the tests of trafilatura 1.0.0.

`pip download --no-deps --no-binary trafilatura trafilatura==1.0.0`, unpack it, and run
`python tests/bench/pages.py FOLDER`.
"""

import ast
import re
import sys
from pathlib import Path

from brain import Page
from specialists._web.extract import read
from specialists._web.page import decode

_TEXT = r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\s+(not in|in) result"""
_MARKS = re.compile(r"[*_`\\#|>]|---")


def read_cases(folder: Path) -> dict[str, tuple[set[str], set[str]]]:
    """Return the sentences in and around the article of each page, by its file."""
    source = (folder / "tests" / "realworld_tests.py").read_text("utf-8")
    found = re.search(r"MOCK_PAGES = (\{.*?\n\})", source, re.DOTALL)
    assert found
    files = ast.literal_eval(found[1])
    cases: dict[str, tuple[set[str], set[str]]] = {}
    for part in source.split("load_mock_page('")[1:]:
        file = files.get(part.partition("'")[0])
        if file and (folder / "tests" / "cache" / file).exists():
            inside, around = cases.setdefault(file, (set(), set()))
            for literal, how in re.findall(_TEXT, part):
                (inside if how == "in" else around).add(ast.literal_eval(literal))
    return cases


def plain(text: str) -> str:
    return " ".join(_MARKS.sub("", text).lower().split())


def main(folder: Path) -> None:
    kept = lost = noise = words = 0
    cases = read_cases(folder)
    for file, (inside, around) in cases.items():
        page = Page("https://a.example/", 200, "text/html", {}, (folder / "tests" / "cache" / file).read_bytes())
        text = plain(read("html", decode(page), page.url, links=False).text)
        words += len(text.split())
        hits = sum(plain(one) in text for one in inside)
        kept, lost = kept + hits, lost + len(inside) - hits
        noise += sum(plain(one) in text for one in around)
    precision, recall = kept / (kept + noise), kept / (kept + lost)
    f1 = 2 * precision * recall / (precision + recall)
    sys.stdout.write(
        f"{len(cases)} pages, {words:,} words: precision {precision:.3f}, recall {recall:.3f}, F1 {f1:.3f}\n"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
