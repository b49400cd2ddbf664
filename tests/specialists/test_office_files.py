"""Office files: the text that their readers see, whatever carries it."""

import re
from datetime import datetime
from typing import Any

import openpyxl
import pytest
from openpyxl.chart import BarChart, Reference
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


UNCLOSED = '<w:r><w:fldChar w:fldCharType="begin"/></w:r>'
BOX = "<w:r><w:pict><w:txbxContent><p><t>boxed</t></p></w:txbxContent></w:pict></w:r>"
CHECK = '<w:ffData><w:checkBox><w:default w:val="{}"/></w:checkBox></w:ffData>'
ENTRIES = '<w:result w:val="1"/><w:listEntry w:val="a"/><w:listEntry w:val="b"/>'
CHOICE = f"<w:ffData><w:ddList>{ENTRIES}</w:ddList></w:ffData>"
RESTART = ' w:val="restart"'
WIDE = '<w:tc><w:tcPr><w:gridSpan w:val="2"/></w:tcPr><p><t>wide</t></p></w:tc>'
TALL = "<w:tc><w:tcPr><w:vMerge{}/></w:tcPr><p><t>{}</t></p></w:tc><w:tc><p><t>{}</t></p></w:tc>"
HIDDEN = "<w:r><w:rPr><w:vanish{}/></w:rPr><w:t>{}</w:t></w:r>".format
RAISED = '<w:r><w:rPr><w:{} w:val="{}"/></w:rPr><w:t>{}</w:t></w:r>'.format
FRACTION = "<m:f><m:num><m:r><m:t>a+1</m:t></m:r></m:num><m:den><m:r><m:t>2</m:t></m:r></m:den></m:f>"
POWER = (
    "<m:sSup><m:e><m:d><m:e><m:r><m:t>x+y</m:t></m:r></m:e></m:d></m:e><m:sup><m:r><m:t>3</m:t></m:r></m:sup></m:sSup>"
)
SUM = (
    '<m:nary><m:naryPr><m:chr m:val="∑"/></m:naryPr><m:sub><m:r><m:t>i</m:t></m:r></m:sub><m:sup/>'
    "<m:e><m:rad><m:deg/><m:e><m:r><m:t>i</m:t></m:r></m:e></m:rad></m:e></m:nary>"
)
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
    f"<p>{UNCLOSED}<t>not closed</t></p><p><t>b</t></p>": "not closed\n\nb",
    f"<p>{field('FORMCHECKBOX', data=CHECK.format(1))}{field('FORMCHECKBOX', data=CHECK.format(0))}</p>": "☒☐",
    f"<p>{field('FORMDROPDOWN', data=CHOICE)}</p>": "b",
    '<p><w:r><w:sym w:font="Wingdings" w:char="F0FE"/></w:r><t>a</t><w:r><w:noBreakHyphen/><w:br/></w:r><t>b</t></p>': (
        "☒a-\nb"
    ),
    '<p><w:r><w:sym w:font="Symbol" w:char="F06D"/></w:r><t>g</t></p>': "μg",
    '<p><w:r><w:sym w:font="Webdings" w:char="F001"/></w:r></p>': "\ufffd",
    f"<p><t>a</t>{BOX}<t>b</t></p>": "ab\n\nboxed",
    f"<p><mc:AlternateContent><mc:Choice>{BOX}</mc:Choice><mc:Fallback>{BOX}</mc:Fallback></mc:AlternateContent></p>": (
        "boxed"
    ),
    "<p><m:oMath><m:r><m:t>E=mc²</m:t></m:r></m:oMath></p>": "E=mc²",
    f"<p><m:oMath>{FRACTION}{POWER}</m:oMath></p><p><m:oMath>{SUM}</m:oMath></p>": "(a+1)/2(x+y)^3\n\n∑_i√(i)",
    "<p>" + HIDDEN("", "hidden") + HIDDEN(' w:val="0"', "shown") + "</p>": "shown",
    "<p><t>10</t>" + RAISED("vertAlign", "superscript", "6") + "</p>": "10^6",
    "<p><t>m</t>" + RAISED("position", "8", "2") + RAISED("position", "-8", "2") + "</p>": "m^22",
    "<p><t>1</t>" + RAISED("vertAlign", "superscript", "st") + RAISED("vertAlign", "subscript", "2") + "</p>": "1st2",
    '<p><w:r><w:sym w:char="D800"/></w:r><t>a</t></p>': "\ufffda",
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


CHART = """<c><t>Costs</t><title><v>2026</v></title><ser><tx><v>Gas</v></tx><cat><v>q1</v><v>q2</v></cat>
<val><v>7</v><v>7</v></val></ser></c>"""


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
        ("header", "word/header1.xml", wordprocessing(f"<p><t>Draft</t>{UNCLOSED * 2}</p>")),
        ("header", "word/header2.xml", wordprocessing("<p><t>Draft</t></p>")),
        ("footer", "word/footer1.xml", wordprocessing(f"<p><t>Page </t>{field('PAGE', '<t>1</t>')}</p>")),
        ("chart", "word/charts/chart1.xml", CHART),
        ("chart", "word/charts/none.xml", ""),
        ("header", "word/header2.xml", ""),
        ("header", "word/none.xml", ""),
        ("image", "word/media/a.png", "x"),
        ("oleObject", "word/embeddings/a.bin", "x"),
        ("oleObject", "word/embeddings/b.bin", "x"),
    )
    assert read("a.docx", document) == [
        ("", "", "Header: Draft"),
        ("1. Rent[^2][^c0]", "", "1a) cold\n\n1b) heated\n\n(IV) gas"),
        (
            "2. Term", "", "2a) two years\n\n9. nine\n\nChart: Costs; 2026; Gas: q1, q2: 7, 7"
            "\n\n[^2]: Per month.\n\n[^c0]: Bo: Why?\n\nFooter: Page 1",
        ),
    ]  # fmt: skip
    (problem,) = [item for item in read_parts(Source("a.docx", document), "office") if isinstance(item, Problem)]
    assert problem.text == "not read: 2 embedded files, 2 missing parts, 1 picture"


LEVEL = ('<w:lvl w:ilvl="{}"><w:start w:val="1"/><w:numFmt w:val="{}"/>{}<w:lvlText w:val="{}"/></w:lvl>').format
LISTS = f"""<w:numbering xmlns:w="w">
<w:abstractNum w:abstractNumId="0">{LEVEL(0, "upperRoman", "", "Article %1")}
{LEVEL(1, "decimal", "<w:isLgl/>", "%1.%2")}
{LEVEL(2, "decimal", '<w:lvlRestart w:val="0"/>', "%3)")}</w:abstractNum>
<w:abstractNum w:abstractNumId="1"><w:numStyleLink w:val="Linked"/></w:abstractNum>
<w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num>
<w:num w:numId="2"><w:abstractNumId w:val="0"/><w:lvlOverride w:ilvl="0">{LEVEL(0, "upperLetter", "", "%1:")}
</w:lvlOverride></w:num>
<w:num w:numId="3"><w:abstractNumId w:val="1"/></w:num></w:numbering>"""
LINKED = """<w:styles xmlns:w="w"><w:style w:styleId="Linked"><w:pPr><w:numPr><w:numId w:val="1"/></w:numPr></w:pPr>
</w:style><w:style w:styleId="Secret"><w:rPr><w:vanish/></w:rPr></w:style></w:styles>"""
ITEMS = [
    (1, 0, "", "lease", "Article I lease"), (1, 1, "", "rent", "1.1 rent"), (1, 2, "", "cold", "1) cold"),
    (1, 1, "", "", None), (1, 1, "<w:rPr><w:del/></w:rPr>", "", None), (1, 1, "", "deposit", "1.3 deposit"),
    (1, 2, "", "paid", "2) paid"), (3, 0, "", "term", "Article II term"), (2, 0, "", "notice", "C: notice"),
    (1, 0, '<w:pStyle w:val="Secret"/><w:rPr><w:vanish/></w:rPr>', "hidden", None), (1, 0, "", "end", "Article IV end"),
]  # fmt: skip


def test_lists_are_numbered_as_word_shows_them() -> None:
    numbering = '<w:numPr><w:ilvl w:val="{}"/><w:numId w:val="{}"/></w:numPr>'.format
    items = (f"<p><w:pPr>{more}{numbering(at, one)}</w:pPr><t>{text}</t></p>" for one, at, more, text, _ in ITEMS)
    document = package(
        "word/document.xml",
        wordprocessing(f"<w:body>{''.join(items)}</w:body>"),
        ("numbering", "word/numbering.xml", LISTS),
        ("styles", "word/styles.xml", LINKED),
    )
    assert read("a.docx", document) == [("", "", "\n\n".join(shown for *_, shown in ITEMS if shown))]


LONG = "x" * 20_000
NUMBERED = '<p><w:pPr><w:numPr><w:numId w:val="1"/></w:numPr></w:pPr><t>a</t></p>'
ABSTRACT = '<w:abstractNum w:abstractNumId="0">{}</w:abstractNum>'.format
SPAN = '<w:tc><w:tcPr><w:gridSpan w:val="999999999"/><w:vMerge{}/></w:tcPr><p><t>{}</t></p></w:tc>'.format
HOSTILE = {
    "merged cells": (
        f"<w:tbl><w:tr>{SPAN(RESTART, LONG)}</w:tr>" + f"<w:tr>{SPAN('', '')}</w:tr>" * 500 + "</w:tbl>",
        "",
    ),
    "negative spans": (
        f"<w:tbl><w:tr>{SPAN('', 'a').replace('99', '-99', 1)}{SPAN('', LONG) * 20}</w:tr></w:tbl>",
        "",
    ),
    "labels": (NUMBERED * 1000, ABSTRACT(LEVEL(0, "decimal", "", LONG))),
    "letters": (NUMBERED, ABSTRACT(LEVEL(0, "lowerLetter", "", "%1%1%1").replace("1", "999999999", 1))),
    "wide tables": (
        f"<w:tbl><w:tr>{'<w:tc><p/></w:tc>' * 9000}</w:tr>{'<w:tr><w:tc><p><t>a</t></p></w:tc></w:tr>' * 9000}</w:tbl>",
        "",
    ),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_text_does_not_grow_far_beyond_the_file(kind: str) -> None:
    body, numbering = HOSTILE[kind]
    noise = str([*range(100_000)])  # or it is refused as a bomb
    number = '<w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num>'
    document = package(
        "word/document.xml",
        wordprocessing(f"<w:body>{body}</w:body><!--{noise}-->"),
        ("numbering", "word/numbering.xml", f'<w:numbering xmlns:w="w">{numbering}{number}</w:numbering>'),
    )
    assert sum(len(text) for _, _, text in read("a.docx", document)) < 12_000_000


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
    (1_234_500, '0.0,,"M"', "1.2345M"), (1234, "00000", "01234"), (12.5, 'General" kg"', "12.5 kg"),
    (5551234567, "\\(000\\)\\ 000\\-0000", "5551234567"), (0.5, "# ?/?", "0.5"),
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
    sheet.oddHeader.left.text, sheet.oddFooter.center.text = "Draft", "Page &P of A && B"
    book.create_sheet("Other").append([*range(61)])
    data = saved(book)
    assert [part for part in read("a.xlsx", data) if part[1].startswith("sheet=Sums")] == [
        (
            "Sums (hidden sheet)", "sheet=Sums (hidden sheet)", "| 2026 | 2026 | 2026 |\n|---|---|---|\n"
            "| Q1 |  | =SUM(A1:A2) (not calculated) |\n| Q1 |  |  |"
            "\n\nHeader: Draft\n\nFooter: Page of A & B\n\nComment on B2: Checked?",
        )
    ]  # fmt: skip
    found = [item for item in read_parts(Source("a.xlsx", data), "office") if isinstance(item, Problem)]
    assert found == [Problem("only the first 60 columns of the sheet Other were read")]


def test_rows_behind_many_empty_ones_are_read_or_named() -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    sheet.title, sheet["A1"], sheet["A3000"] = "Near", "x", "y"
    far = book.create_sheet("Far")
    far["A1"], far["A9000"] = "x", "y"
    data = saved(book)
    assert [text for _, _, text in read("a.xlsx", data)] == ["| x |\n|---|\n| y |", "| x |\n|---|"]
    found = [item for item in read_parts(Source("a.xlsx", data), "office") if isinstance(item, Problem)]
    assert found == [Problem("after 5,000 empty rows the sheet Far was not read")]


def test_a_sheet_of_a_chart_is_read() -> None:
    book = openpyxl.Workbook()
    chart = BarChart()
    chart.add_data(Reference(book.active, min_col=1, min_row=1, max_row=2))
    chart.title = "Costs"
    book.create_chartsheet("Graph").add_chart(chart)
    assert read("a.xlsx", saved(book))[-1] == ("Graph", "sheet=Graph", "Chart: Costs")


TABLES = {
    "a;b\n1,5;2,5\n": "| a | b |\n|---|---|\n| 1,5 | 2,5 |",
    "1,5;2,5\n3,5;4,5\n": "| 1,5 | 2,5 |\n|---|---|\n| 3,5 | 4,5 |",
    'a,b\n"x;y;z",2\n': "| a | b |\n|---|---|\n| x;y;z | 2 |",
    'a,b\n"1\n2",3\n4,"5,6"\n': "| a | b |\n|---|---|\n| 1 2 | 3 |\n| 4 | 5,6 |",
    "a|b\n1|2\n": "| a | b |\n|---|---|\n| 1 | 2 |",
    "sep=;\na;b,c\n": "| a | b,c |\n|---|---|",
    "sep=,\r\n1;2,3\r\n": "| 1;2 | 3 |\n|---|---|",
    'sep="\na;b\n': '| sep=" |  |\n|---|---|\n| a | b |',
    "a\tb\n1,000\t2;3\n": "| a | b |\n|---|---|\n| 1,000 | 2;3 |",
    "Name, first\nAda\n": "| Name | first |\n|---|---|\n| Ada |  |",
    'a, b\n1, "x, y"\n': "| a | b |\n|---|---|\n| 1 | x, y |",
    "a\nb\n": "| a |\n|---|\n| b |",
    '"a": "b"\n"c": "d\n': '| a: "b" |\n|---|\n| c: "d |',
}


@pytest.mark.parametrize("text", TABLES)
def test_the_rows_show_the_delimiter(text: str) -> None:
    assert read("a.csv", text.encode()) == [("", "", TABLES[text])]
