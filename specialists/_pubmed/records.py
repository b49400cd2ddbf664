"""Parse PubMed's XML one record at a time: bytes in, one element per record out.

The XML is untrusted: it may not declare entities or nest too deep, and it may be truncated anywhere.
"""

import html.entities
from collections.abc import Callable
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from brain import Refused

MAX_DEPTH = 200
MAX_ELEMENTS = 60_000
"""Elements of one article; each author needs four. Freeing them blocks other threads."""
_PIECE = 64 * 1024
_UNREAD = frozenset({"AffiliationInfo", "ChemicalList", "GrantList", "History", "InvestigatorList", "ReferenceList"})
_KINDS = ("PubmedArticle", "PubmedBookArticle")


def unreadable() -> Refused:
    """Return the refusal for a response that cannot be parsed."""
    return Refused("PubMed's response cannot be read", "continue without it or call again later")


class RecordParser:
    """Builds one record at a time, so that a large response is never in memory as a whole.

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
        """Parse a whole response.

        Raises:
            ExpatError, ValueError, LookupError: if it is truncated or malformed.
            Refused: for dangerous XML.
        """
        for start in range(0, len(data), _PIECE):
            self._parser.Parse(data[start : start + _PIECE])
            if start - self._parser.CurrentByteIndex > _PIECE:
                raise ValueError("a tag without end")
        self._parser.Parse(b"", True)

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise unreadable()
        if self._builder is None and tag in _KINDS:
            self._builder, self._record_depth, self._elements = TreeBuilder(), self._depth, 0
        if self._builder is None or self._unread_depth:
            return
        if tag in _UNREAD:
            self._unread_depth = self._depth
            return
        self._elements += 1
        if self._elements > MAX_ELEMENTS:
            raise ValueError("too many elements")
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
        """Insert an entity of the document type if HTML has it too; the document type is never fetched."""
        self._text(html.entities.html5.get(f"{name};", ""))


def _refuse(*_: object) -> None:
    """Refuse declared entities, which can expand without limit or name files."""
    raise unreadable()
