"""Office files: the text that their readers see, whatever carries it."""

import re
from datetime import datetime
from typing import Any

import openpyxl
import pytest
from openpyxl.comments import Comment
from specialist_calls import read_parts_of as read
from specialist_calls import saved, zip_of

from specialists._knowledge.parts import Problem, Source
from specialists._knowledge.readers import read_parts


def package(main: str, xml: str, *related: tuple[str, str, str]) -> bytes:
    """A file of Office with a main part, and related parts: kind, path, and XML."""
    relationship = '<Relationship Id="r{}" Type="http://schemas.example/{}" Target="/{}"/>'
    relations = "<Relationships>{}</Relationships>".format
    folder, _, name = main.rpartition("/")
    here = "".join(relationship.format(n, kind, path) for n, (kind, path, _) in enumerate(related))
    members = {
        "_rels/.rels": relations(relationship.format(0, "officeDocument", main)),
        main: xml,
        f"{folder}/_rels/{name}.rels": relations(here),
        **{path: text for _, path, text in related if text},
    }
    return zip_of({name: text.encode() for name, text in members.items()})


def wordprocessing(body: str) -> str:
    """A part of Word, in which `<p>` stands for a paragraph and `<t>` for a run with a text."""
    body = re.sub(r"<t>(.*?)</t>", r'<w:r><w:t xml:space="preserve">\1</w:t></w:r>', body)
    return f'<w:document xmlns:w="w" xmlns:mc="mc" xmlns:m="m">{body}</w:document>'.replace("<p>", "<w:p>").replace(
        "</p>", "</w:p>"
    )


def field(code: str, result: str = "", data: str = "") -> str:
    """A field of Word: its code, and the result that is shown."""
    mark = '<w:r><w:fldChar w:fldCharType="{}">{}</w:fldChar></w:r>'.format
    separator = mark("separate", "") + result if result else ""
    return mark("begin", data) + f"<w:r><w:instrText>{code}</w:instrText></w:r>{separator}" + mark("end", "")


BOX = "<w:r><w:pict><w:txbxContent><p><t>boxed</t></p></w:txbxContent></w:pict></w:r>"
CHECK = '<w:ffData><w:checkBox><w:default w:val="{}"/></w:checkBox></w:ffData>'
ENTRIES = '<w:result w:val="1"/><w:listEntry w:val="a"/><w:listEntry w:val="b"/>'
CHOICE = f"<w:ffData><w:ddList>{ENTRIES}</w:ddList></w:ffData>"
RESTART = ' w:val="restart"'
WIDE = '<w:tc><w:tcPr><w:gridSpan w:val="2"/></w:tcPr><p><t>wide</t></p></w:tc>'
TALL = "<w:tc><w:tcPr><w:vMerge{}/></w:tcPr><p><t>{}</t></p></w:tc><w:tc><p><t>{}</t></p></w:tc>"
WORD_TEXTS = {
    "<p><t>a </t><w:ins><t>new</t></w:ins><w:del><w:r><w:delText>old</w:delText></w:r></w:del><t> b</t></p>": "a new b",
    "<p><w:moveFrom><t>x</t></w:moveFrom><t>a</t><w:moveTo><t>b</t></w:moveTo></p>": "ab",
    "<p><w:hyperlink><t>link</t></w:hyperlink><w:smartTag><t> tag</t></w:smartTag></p>": "link tag",
    "<p><w:sdt><w:sdtPr/><w:sdtContent><t>inline</t></w:sdtContent></w:sdt></p>": "inline",
    "<w:sdt><w:sdtContent><p><t>block</t></p></w:sdtContent></w:sdt>": "block",
    "<w:customXml><p><t>custom</t></p></w:customXml><w:ins><p><t>inserted</t></p></w:ins>": "custom\n\ninserted",
    '<p><w:fldSimple w:instr=" MERGEFIELD Name "><t>Ada</t></w:fldSimple></p>': "Ada",
    f"<p><t>Dear </t>{field(' MERGEFIELD Name ', '<t>Ada</t>')}<t>,</t></p>": "Dear Ada,",
    f"<p>{field(' IF ' + field('MERGEFIELD x', '<t>1</t>') + ' = 1 ', '<t>yes</t>')}</p>": "yes",
    f"<p>{field('FORMCHECKBOX', data=CHECK.format(1))}{field('FORMCHECKBOX', data=CHECK.format(0))}</p>": "☒☐",
    f"<p>{field('FORMDROPDOWN', data=CHOICE)}</p>": "b",
    '<p><w:r><w:sym w:font="Wingdings" w:char="F0FE"/></w:r><t>a</t><w:r><w:noBreakHyphen/><w:br/></w:r><t>b</t></p>': (
        "☒a-\nb"
    ),
    f"<p><t>a</t>{BOX}<t>b</t></p>": "ab\n\nboxed",
    f"<p><mc:AlternateContent><mc:Choice>{BOX}</mc:Choice><mc:Fallback>{BOX}</mc:Fallback></mc:AlternateContent></p>": (
        "boxed"
    ),
    "<p><m:oMath><m:r><m:t>E=mc²</m:t></m:r></m:oMath></p>": "E=mc²",
    "<p><w:ruby><w:rt><t>とう</t></w:rt><w:rubyBase><t>東</t></w:rubyBase></w:ruby></p>": "東",
    '<p><w:r><w:drawing><w:docPr descr="A tree"/></w:drawing></w:r></p>': "[A tree]",
    "<w:tbl><w:tr><w:trPr><w:del/></w:trPr><w:tc><p><t>gone</t></p></w:tc></w:tr>"
    f"<w:sdt><w:sdtContent><w:tr>{WIDE}</w:tr></w:sdtContent></w:sdt>"
    f"<w:tr>{TALL.format(RESTART, 'tall', 1)}</w:tr><w:tr>{TALL.format('', '', 2)}</w:tr></w:tbl>": (
        "| wide | wide |\n|---|---|\n| tall | 1 |\n| tall | 2 |"
    ),
    f"<w:tbl><w:tr><w:tc><p><t>{'long ' * 500}</t></p></w:tc></w:tr></w:tbl>": f"| {'long ' * 500}|\n|---|",
}  # fmt: skip


@pytest.mark.parametrize("body", WORD_TEXTS)
def test_word_shows_what_its_reader_sees(body: str) -> None:
    document = package("word/document.xml", wordprocessing(f"<w:body>{body}</w:body>"))
    assert read("a.docx", document) == [("", "", WORD_TEXTS[body])]


NUMBERING = """<w:numbering xmlns:w="w"><w:abstractNum w:abstractNumId="7">
<w:lvl w:ilvl="0"><w:start w:val="1"/><w:numFmt w:val="decimal"/><w:pStyle w:val="Clause"/><w:lvlText w:val="%1."/>
</w:lvl>
<w:lvl w:ilvl="1"><w:start w:val="1"/><w:numFmt w:val="lowerLetter"/><w:lvlText w:val="%1%2)"/></w:lvl>
<w:lvl w:ilvl="2"><w:start w:val="4"/><w:numFmt w:val="upperRoman"/><w:lvlText w:val="(%3)"/></w:lvl></w:abstractNum>
<w:num w:numId="1"><w:abstractNumId w:val="7"/></w:num>
<w:num w:numId="2"><w:abstractNumId w:val="7"/><w:lvlOverride w:ilvl="0"><w:startOverride w:val="9"/></w:lvlOverride>
</w:num></w:numbering>"""
STYLES = """<w:styles xmlns:w="w"><w:style w:styleId="Clause"><w:pPr><w:numPr><w:numId w:val="1"/></w:numPr>
<w:outlineLvl w:val="0"/></w:pPr></w:style></w:styles>"""


def test_clauses_of_a_contract_keep_their_numbers_and_notes() -> None:
    def item(number: int, level: int, text: str) -> str:
        numbering = f'<w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="{number}"/></w:numPr>'
        return f"<p><w:pPr>{numbering}</w:pPr><t>{text}</t></p>"

    clause = '<p><w:pPr><w:pStyle w:val="Clause"/></w:pPr><t>{}</t>{}</p>'.format
    marks = '<w:r><w:footnoteReference w:id="2"/></w:r><w:r><w:commentReference w:id="0"/></w:r>'
    body = clause("Rent", marks) + item(1, 1, "cold") + item(1, 1, "heated") + item(1, 2, "gas") + clause("Term", "")
    document = package(
        "word/document.xml",
        wordprocessing(f"<w:body>{body}{item(1, 1, 'two years')}{item(2, 0, 'nine')}</w:body>"),
        ("numbering", "word/numbering.xml", NUMBERING),
        ("styles", "word/styles.xml", STYLES),
        (
            "footnotes",
            "word/footnotes.xml",
            wordprocessing('<w:footnote w:id="2"><p><t>Per month.</t></p></w:footnote>'),
        ),
        ("comments", "word/comments.xml", wordprocessing('<w:c w:id="0" w:author="Bo"><p><t>Why?</t></p></w:c>')),
        ("header", "word/header1.xml", wordprocessing("<p><t>Draft</t></p>")),
        ("header", "word/header2.xml", wordprocessing("<p><t>Draft</t></p>")),
        ("footer", "word/footer1.xml", wordprocessing(f"<p><t>Page </t>{field('PAGE', '<t>1</t>')}</p>")),
        ("chart", "word/charts/chart1.xml", '<c xmlns:a="a"><a:t>Costs</a:t><v>7</v></c>'),
        ("image", "word/media/a.png", "x"),
        ("oleObject", "word/embeddings/a.bin", "x"),
        ("oleObject", "word/embeddings/b.bin", "x"),
    )
    assert read("a.docx", document) == [
        ("", "", "Header: Draft"),
        ("1. Rent[^2][^c0]", "", "1a) cold\n\n1b) heated\n\n(IV) gas"),
        (
            "2. Term", "", "2a) two years\n\n9. nine\n\nChart: Costs, 7\n\n[^2]: Per month.\n\n[^c0]: Bo: Why?"
            "\n\nFooter: Page 1",
        ),
    ]  # fmt: skip
    (problem,) = [item for item in read_parts(Source("a.docx", document), "office") if isinstance(item, Problem)]
    assert problem.text == "not read: 2 embedded files, 1 picture"


def test_slides_show_whatever_carries_text() -> None:
    def shape(text: str, kind: str = "") -> str:
        place = f'<p:nvSpPr><p:nvPr><p:ph type="{kind}"/></p:nvPr></p:nvSpPr>' if kind else ""
        return f"<p:sp>{place}<p:txBody><a:p><a:r><a:t>{text}</a:t></a:r></a:p></p:txBody></p:sp>"

    cell = '<a:tc {}><a:txBody><a:p><a:fld type="x"><a:t>{}</a:t></a:fld></a:p></a:txBody></a:tc>'.format
    choice = f"<mc:AlternateContent><mc:Choice>{shape('new')}</mc:Choice><mc:Fallback>{shape('old')}</mc:Fallback>"
    merged = cell('hMerge="1"', "")
    tree = (
        f"{shape('Plan', 'title')}<p:grpSp>{shape('grouped')}</p:grpSp>{choice}</mc:AlternateContent>"
        f"<p:graphicFrame><a:tbl><a:tr>{cell('', 'a')}{merged}</a:tr></a:tbl></p:graphicFrame>"
        '<p:pic><p:nvPicPr><p:cNvPr descr="A bridge"/></p:nvPicPr></p:pic>'
        "<p:cxnSp><p:txBody><a:p><a:r><a:t>left</a:t></a:r><a:br/><m:t>x²</m:t></a:p></p:txBody></p:cxnSp>"
    )
    spaces = 'xmlns:p="p" xmlns:a="a" xmlns:mc="mc" xmlns:m="m" xmlns:r="r"'
    deck = package(
        "ppt/presentation.xml",
        f'<p:presentation {spaces}><p:sldIdLst><p:sldId id="256" r:id="r0"/></p:sldIdLst></p:presentation>',
        ("slide", "ppt/slides/slide1.xml", f'<p:sld show="0" {spaces}>{tree}</p:sld>'),
        (
            "x", "ppt/slides/_rels/slide1.xml.rels",
            '<a><b Type="x/diagramData" Target="../d.xml"/><b Type="x/comments" Target="../c.xml"/>'
            '<b Type="x/notesSlide" Target="../n.xml"/><b Type="x/image" Target="../a.png"/></a>',
        ),
        ("x", "ppt/d.xml", f"<a {spaces}><a:t>first</a:t><a:t>then</a:t></a>"),
        ("x", "ppt/c.xml", f"<a {spaces}><p:text>Why?</p:text></a>"),
        ("x", "ppt/n.xml", f"<a {spaces}>{shape('smile', 'body')}{shape('7', 'sldNum')}</a>"),
    )  # fmt: skip
    texts = [
        "Plan (hidden slide)", "grouped", "new", "| a | a |\n|---|---|", "[A bridge]", "left\nx²",
        "Diagram: first, then", "Notes: smile", "Comment: Why?",
    ]  # fmt: skip
    assert read("a.pptx", deck) == [("Plan", "slide=1", "\n\n".join(texts))]
    assert [*read_parts(Source("a.pptx", deck), "office")][1:] == [Problem("not read: 1 picture")]


CELLS: list[tuple[Any, str, str]] = [
    (0.075, "0.0%", "7.5%"), (0.07, "0%", "7%"), (1200, '#,##0.00 "€"', "1200 €"), (5, "[$$-409]#,##0", "$5"),
    (3.25, '0.0" kg"', "3.25 kg"), (-2, '"£"0;[Red]-0', "£-2"), (1.5, "General", "1.5"), (7, "0.00E+00", "7"),
    (4111111111111111, "0", "4111111111111111"), (1.2345678901234567e17, "General", "123456789012346000"),
    (datetime(2026, 3, 1), "dd.mm.yyyy", "2026-03-01"), (datetime(2026, 3, 1, 8, 5), "d/m/yy h:mm", "2026-03-01 08:05"),
    (True, "General", "True"), ("text", "@", "text"),
]  # fmt: skip


def test_cells_show_their_units_and_all_digits() -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    for row, (value, form, _) in enumerate(CELLS, 1):
        sheet.cell(row, 1, value).number_format = form
    ((_, _, text),) = read("a.xlsx", saved(book))
    assert [line[2:-2] for line in text.splitlines() if "---" not in line] == [shown for _, _, shown in CELLS]


def test_a_sheet_has_merged_cells_formulas_comments_and_its_state() -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    sheet.title, sheet.sheet_state = "Sums", "hidden"
    sheet["A1"], sheet["A2"], sheet["C2"] = "2026", "Q1", "=SUM(A1:A2)"
    sheet["B2"].comment = Comment("Checked?", "Bo")
    sheet.merge_cells("A1:C1")
    sheet.merge_cells("A2:A3")
    book.create_sheet("Other").append([*range(61)])
    data = saved(book)
    assert [part for part in read("a.xlsx", data) if part[1] == "sheet=Sums"] == [
        (
            "Sums (hidden sheet)", "sheet=Sums", "| 2026 | 2026 | 2026 |\n|---|---|---|\n"
            "| Q1 |  | =SUM(A1:A2) (not calculated) |\n| Q1 |  |  |\n\nComment on B2: Checked?",
        )
    ]  # fmt: skip
    found = [item for item in read_parts(Source("a.xlsx", data), "office") if isinstance(item, Problem)]
    assert found == [Problem("only the first 60 columns of the sheet Other were read")]


TABLES = {
    "a;b\n1,5;2,5\n": "| a | b |\n|---|---|\n| 1,5 | 2,5 |",
    "1,5;2,5\n3,5;4,5\n": "| 1,5 | 2,5 |\n|---|---|\n| 3,5 | 4,5 |",
    'a,b\n"x;y;z",2\n': "| a | b |\n|---|---|\n| x;y;z | 2 |",
    'a,b\n"1\n2",3\n4,"5,6"\n': "| a | b |\n|---|---|\n| 1 2 | 3 |\n| 4 | 5,6 |",
    "a|b\n1|2\n": "| a | b |\n|---|---|\n| 1 | 2 |",
    "sep=;\na;b,c\n": "| a | b,c |\n|---|---|",
    "sep=,\r\n1;2,3\r\n": "| 1;2 | 3 |\n|---|---|",
    "a\tb\n1,000\t2;3\n": "| a | b |\n|---|---|\n| 1,000 | 2;3 |",
    "Name, first\nAda\n": "| Name | first |\n|---|---|\n| Ada |  |",
    "a\nb\n": "| a |\n|---|\n| b |",
    '"a": "b"\n"c": "d\n': '| a: "b" |\n|---|\n| c: "d |',
}


@pytest.mark.parametrize("text", TABLES)
def test_the_rows_show_the_delimiter(text: str) -> None:
    assert read("a.csv", text.encode()) == [("", "", TABLES[text])]
