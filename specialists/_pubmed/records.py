"""The records of PubMed's XML, one by one: bytes go in, an element for each record comes out.

Nothing in the XML is trusted: it may declare no entities, nest no deeper than PubMed does, and break off anywhere.
"""

import html.entities
from collections.abc import Callable
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from brain import Refused

UNREADABLE = "PubMed's answer cannot be read; go on without it, or ask again later"
MAX_DEPTH = 200
MAX_ELEMENTS = 60_000
"""Elements of one article, where each author takes four. They are freed at once, while nothing else runs."""
_PIECE = 64 * 1024
_UNREAD = frozenset({"AffiliationInfo", "ChemicalList", "GrantList", "History", "InvestigatorList", "ReferenceList"})
_KINDS = ("PubmedArticle", "PubmedBookArticle")


class RecordParser:
    """Builds one record at a time, so that a large answer is never in memory as a whole.

    Args:
        take: receives each complete record.
    """

    def __init__(self, take: Callable[[Element], None]) -> None:
        self._take = take
        self._builder: TreeBuilder | None = None
        self._depth = self._record_depth = self._elements = self._unread_depth = 0
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._text
        self._parser.SkippedEntityHandler = self._skipped
        self._parser.EntityDeclHandler = _refuse

    def feed(self, data: bytes) -> None:
        """Read a whole answer.

        Raises:
            ExpatError, ValueError, LookupError: where it breaks off.
            Refused: for XML that could harm.
        """
        for start in range(0, len(data), _PIECE):
            self._parser.Parse(data[start : start + _PIECE])
            if start - self._parser.CurrentByteIndex > _PIECE:
                raise ValueError("a tag without end")
        self._parser.Parse(b"", True)

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise Refused(UNREADABLE)
        if self._builder is None and tag in _KINDS:
            self._builder, self._record_depth, self._elements = TreeBuilder(), self._depth, 0
        if self._builder is None or self._unread_depth:
            return
        if tag in _UNREAD:
            self._unread_depth = self._depth
            return
        self._elements += 1
        if self._elements > MAX_ELEMENTS:
            raise ValueError("more elements than an article has")
        self._builder.start(tag, attributes)

    def _end(self, tag: str) -> None:
        if self._unread_depth:
            self._unread_depth = self._unread_depth if self._depth > self._unread_depth else 0
        elif self._builder is not None:
            self._builder.end(tag)
            if self._depth == self._record_depth:
                record, self._builder = self._builder.close(), None
                self._take(record)
        self._depth -= 1

    def _text(self, text: str) -> None:
        if self._builder is not None and not self._unread_depth:
            self._builder.data(text)

    def _skipped(self, name: str, is_parameter: bool) -> None:
        """Insert an entity of the document type, which is never fetched, if HTML has it too."""
        self._text(html.entities.html5.get(f"{name};", ""))


def _refuse(*_: object) -> None:
    """Declared entities can grow without end, or name files."""
    raise Refused(UNREADABLE)
