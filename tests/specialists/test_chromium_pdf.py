"""PDFs printed by Chromium, which positions every character separately, contain the words of the page."""

import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from chromium import CHROMIUM, CHROMIUM_ARGS, NEEDS_CHROMIUM

from specialists._pictures import pdf
from specialists._pictures.images import build_text_layer

pytestmark = pytest.mark.chromium

PROSE = (
    "The official office of affairs finds that fluffy waffles offer efficient difficulties. AVA Tokyo, Wave, "
    "To Year: Yes! LT VA P. 12.5 % of 1,000 A4 pages were kerned by hand, which took 3 weeks (or 21 days)."
)
TABLE = (
    "<table><tr><th>Item name</th><th>Quantity</th><th>Unit price</th></tr>"
    "<tr><td>Paper, white, A4</td><td>12</td><td>4.50</td></tr>"
    "<tr><td>Ink for affairs of office</td><td>3</td><td>29.90</td></tr>"
    "<tr><td>Total of Year AV</td><td></td><td>172.45</td></tr></table>"
)
STYLE = "td, th { padding: 2px 16px; border: 1px solid; text-align: left } body { font: 12px DejaVu Sans }"
PAGES = {
    "table": f"<h1>Report of Tokyo Waves</h1><p>{PROSE}</p>{TABLE}<p>{PROSE}</p>",
    "serif": f"<div style='font-family: DejaVu Serif'><p>{PROSE}</p>{TABLE}</div>",
    "mono": f"<div style='font-family: DejaVu Sans Mono'><p>{PROSE}</p>{TABLE}</div>",
    "condensed": f"<div style='font-family: DejaVu Sans Condensed; font-size: 9px'><p>{PROSE}</p>{TABLE}</div>",
    "justified": f"<div style='text-align: justify; width: 300px'>{PROSE} {PROSE}</div>{TABLE}",
    "letter-spacing": f"<p style='letter-spacing: 3px'>{PROSE}</p>{TABLE}<p style='letter-spacing: 0.4px'>{PROSE}</p>",
    "tight": f"<p style='letter-spacing: -0.6px'>{PROSE}</p>{TABLE}",
    "word-spacing": f"<p style='word-spacing: 8px'>{PROSE}</p>{TABLE}",
    "fonts in a word": "<p>un<b>believ</b><i>able</i> re<span style='font-size: 18px'>mark</span>able</p>" + TABLE,
    "above and below": "<p>The area x<sup>2</sup> of H<sub>2</sub>O and 10<sup>th</sup> note<sup>3</sup> here</p>"
    + TABLE,
    "small caps": f"<p style='font-variant: small-caps'>{PROSE}</p>{TABLE}",
    "columns": f"<div style='columns: 3; column-gap: 40px'>{PROSE} {PROSE} {PROSE}</div>{TABLE}",
    "geometric": f"<p style='text-rendering: geometricPrecision; font-size: 10.37px'>{PROSE}</p>{TABLE}",
    "scaled": f"<div style='zoom: 0.83'><p>{PROSE}</p>{TABLE}</div>",
    "European": f"<p>Größe naïve café Ünïcödé ŁódŹ Český; Ελληνικά κείμενο; Русский текст АВТО ТО</p>{TABLE}",
    "Hebrew": f"<p dir=rtl>שלום עולם זה משפט ארוך בעברית עם 42 מילים</p>{TABLE}",
    "Arabic": f"<p dir=rtl>مرحبا بالعالم هذه جملة طويلة تحتوي 37 كلمة</p>{TABLE}",
    "both ways": f"<p>The words שלום עולם and مرحبا بالعالم stand in one line</p>{TABLE}",
}


def print_pdf(body: str, folder: Path) -> bytes:
    assert CHROMIUM is not None
    (folder / "page.html").write_text(f"<!doctype html><meta charset=utf-8><style>{STYLE}</style>{body}")
    command = [CHROMIUM, "--headless", *CHROMIUM_ARGS, f"--user-data-dir={folder}/profile", "--no-pdf-header-footer"]
    subprocess.run(
        [*command, f"--print-to-pdf={folder}/page.pdf", str(folder / "page.html")], capture_output=True, check=True
    )
    return (folder / "page.pdf").read_bytes()


def words(text: str) -> list[str]:
    return re.findall(r"[\w.,%]*\w", text)


@NEEDS_CHROMIUM
@pytest.mark.parametrize("body", PAGES.values(), ids=PAGES)
def test_the_words_of_a_page_are_those_of_its_pdf(body: str, tmp_path: Path) -> None:
    steps: list[Any] = []
    pdf.answer(["text", 1], print_pdf(body, tmp_path), steps.append)
    expected = words(re.sub(r"<[^>]*>", " ", re.sub(r"</?(?:b|i|span|sup|sub)\b[^>]*>", "", body)))
    assert words(steps[1]["text"]) == expected
    assert Counter(words(build_text_layer(steps[1], stamps=True) or "")) == Counter(expected)
