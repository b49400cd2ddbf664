"""Built in: the records of PubMed's XML, one by one. Bytes go in, an element for each record comes out.

Nothing in the XML is trusted: it may declare no entities, nest no deeper than PubMed does, and break off anywhere.
"""

import html.entities
from collections.abc import Callable
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from brain import Refused
from specialists._pubmed.eutils import UNREADABLE

DEPTH_MOST = 200
ELEMENTS_MOST = 60_000
"""Of one article, where each author takes four. They are freed in one go, in which nothing else runs."""
_PIECE = 64 * 1024
_UNREAD = frozenset({"AffiliationInfo", "ChemicalList", "GrantList", "History", "InvestigatorList", "ReferenceList"})
_KINDS = ("PubmedArticle", "PubmedBookArticle")


class Reading:
    """Builds one record at a time, so that an answer of many never stands in memory as a whole.

    Args:
        take: is given each record that is complete.
    """

    def __init__(self, take: Callable[[Element], None]) -> None:
        self._take = take
        self._builder: TreeBuilder | None = None
        self._depth = self._begun_at = self._elements = self._unread_at = 0
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._text
        self._parser.SkippedEntityHandler = self._skipped
        self._parser.EntityDeclHandler = _refuse

    def read(self, data: bytes) -> None:
        """Reads an answer; raises ExpatError, ValueError or LookupError where it is none any more."""
        for start in range(0, len(data), _PIECE):
            self._parser.Parse(data[start : start + _PIECE])
            if start - self._parser.CurrentByteIndex > _PIECE:
                raise ValueError("a tag without end")
        self._parser.Parse(b"", True)

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > DEPTH_MOST:
            raise Refused(UNREADABLE)
        if self._builder is None and tag in _KINDS:
            self._builder, self._begun_at, self._elements = TreeBuilder(), self._depth, 0
        if self._builder is not None and not self._unread_at and tag in _UNREAD:
            self._unread_at = self._depth
        if self._builder is not None and not self._unread_at:
            self._elements += 1
            if self._elements > ELEMENTS_MOST:
                raise ValueError("more than an article has")
            self._builder.start(tag, attributes)

    def _end(self, tag: str) -> None:
        if self._unread_at:
            self._unread_at = self._unread_at if self._depth > self._unread_at else 0
        elif self._builder is not None:
            self._builder.end(tag)
            if self._depth == self._begun_at:
                record, self._builder = self._builder.close(), None
                self._take(record)
        self._depth -= 1

    def _text(self, text: str) -> None:
        if self._builder is not None and not self._unread_at:
            self._builder.data(text)

    def _skipped(self, name: str, is_parameter: bool) -> None:
        """An entity of the document type, which is never fetched; those of HTML are known anyway."""
        self._text(html.entities.html5.get(f"{name};", ""))


def _refuse(*_: object) -> None:
    """Declared entities can grow without end, or name files."""
    raise Refused(UNREADABLE)
