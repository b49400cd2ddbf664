"""Built in: reads the text layer of a PDF in a process of its own, since PDFium cannot be stopped from inside.

A program that imports nothing of Brain. The PDF comes in on stdin, the most pages to read are the argument. Out goes
JSON: `pages`, how many there are, `title`, and `texts` of those that were read; or `trouble`, encrypted or damaged.
"""

import contextlib
import json
import sys
from typing import Any

from specialists._web.bounds import bound

PAGE_MOST = 50_000
"""Characters a page."""


def answer(data: bytes, most: int) -> dict[str, Any]:
    """What the PDF holds; a damaged page is empty."""
    import pypdfium2

    try:
        pdf = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        locked = error.err_code == pypdfium2.raw.FPDF_ERR_PASSWORD
        return {"trouble": "encrypted" if locked else "damaged"}
    with contextlib.closing(pdf):
        texts = [_text(pdf, number) for number in range(min(len(pdf), most))]
        return {"pages": len(pdf), "title": pdf.get_metadata_value("Title")[:200], "texts": texts}


def _text(pdf: Any, number: int) -> str:
    import pypdfium2

    try:
        return str(pdf[number].get_textpage().get_text_bounded())[:PAGE_MOST]
    except pypdfium2.PdfiumError:
        return ""


if __name__ == "__main__":
    bound()
    json.dump(answer(sys.stdin.buffer.read(), int(sys.argv[1])), sys.stdout)
