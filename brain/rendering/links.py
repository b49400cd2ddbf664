"""Links that say where they lead. Whoever writes them is not trusted: a model repeats what strangers wrote."""

import re
import unicodedata
from collections.abc import Iterator, Sequence

from linkify_it.tlds import TLDS
from markdown_it.token import Token

from brain.text import seen

ADDRESS_LENGTH = 2_000
LABEL_LENGTH = 300
"""Behind longer words stands where they lead, whatever they say."""
TEXT_SHARE, TEXT_SPARE, LINK_LENGTH = 10, 10_000, 100
"""What the links of a text may take: so many times its length and a little, each its address and this. Whoever defines
one address and names it everywhere makes much of little."""

_WEB = re.compile(r"https?://(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?(?:[/?#]|$)", re.IGNORECASE)
_MAIL = re.compile(r"mailto:(?P<host>[^\s/?#@]+@[A-Za-z0-9.-]+)(?:\?|$)", re.IGNORECASE)
_SLASHES = r"/\\\u2044\u2215"
"""And what looks like them."""
_GAP = re.compile(r"\s+(?=[.。])")
_DOT_BELOW = "\u0323"
_LIKE_A_DOT = re.compile(
    rf"(?:[,\u201a\xb7\u2022\u2027\u2219\u22c5\u30fb\ua78f{_DOT_BELOW}]|[.。]\s+(?![A-Z][a-z]))(?=([A-Za-z]{{2,}})\b)"
)
"""Where the end of a host stands behind it."""
_ENDINGS = frozenset(TLDS)
_ADDRESS = re.compile(rf"(?:\w:[{_SLASHES}]+|^[{_SLASHES}]{{2,}}(?=\w))(?P<host>\[[0-9A-Fa-f:.]+\]|[\w.。@-]*)")
_PLACE = re.compile(
    r"[\w@-]+(?:[.。@][\w-]+)*[.。@](?:[^\W\d_][\w-]+|\d+[.]\d+[.]\d+)"  # with a dot
    r"|[\w-]*[^\W\d_][\w-]*(?=:\d)"  # before a port
)


def leads_somewhere(address: str) -> bool:
    """Whether it may be the address of a link: of the web, or of somebody who gets mail; with nobody's name in it.

    What stands before an @ in an address of the web is there to be taken for the host.
    """
    return len(address) <= ADDRESS_LENGTH and bool(_WEB.match(address) or _MAIL.match(address))


class Links:
    """Those of one text.

    Args:
        length: its characters.
    """

    def __init__(self, length: int) -> None:
        self._room = TEXT_SHARE * length + TEXT_SPARE

    def honest(self, tokens: Sequence[Token]) -> Iterator[Token]:
        """The tokens of a line, with links in the place of images, and what a reader must see of where links lead.

        Nothing is ever loaded from where a model says: what it knows could leave by the address.
        """
        address, label, drawn = "", "", False
        for token in tokens:
            if token.type == "link_open":
                address, label, drawn = self._taken(str(token.attrs["href"])), "", False
                yield from _opened(address)
            elif token.type == "link_close":
                yield from _closed(address, label, drawn)
                address = ""
            elif token.type == "image" and not address:
                yield from self._to_image(token)
            elif address:
                drawn = drawn or _drawn(token)
                token = _text(_alternative(token)) if token.type == "image" else token
                token.content = seen(token.content)
                label += token.content
                yield token
            else:
                yield token

    def _to_image(self, image: Token) -> Iterator[Token]:
        address, label = self._taken(str(image.attrs["src"])), seen(_alternative(image))
        yield from (*_opened(address), _text(label), *_closed(address, label, _drawn(image)))

    def _taken(self, address: str) -> str:
        """The address, or none where there were too many."""
        self._room -= len(address) + LINK_LENGTH
        return address if self._room >= 0 else ""


def _opened(address: str) -> Iterator[Token]:
    if address:
        yield Token("link_open", "a", 1, attrs={"href": address})


def _drawn(token: Token) -> bool:
    """Whether a formula is in it: that shows other words than those it is written with."""
    return token.type == "formula" or any(map(_drawn, token.children or ()))


def _closed(address: str, label: str, drawn: bool) -> Iterator[Token]:
    """The end of a link; with the place to which it leads, where its words say nothing, or may name another."""
    if not address:
        return
    found = _WEB.match(address) or _MAIL.match(address)
    assert found is not None, "leads_somewhere let it through"
    place = found["host"].lower()
    if not label.strip():
        yield _text(place)
    yield Token("link_close", "a", -1)
    if drawn or len(label) > LABEL_LENGTH or any(_plain(name) != _plain(place) for name in _places_in(label)):
        yield Token("place", "span", 0, content=place)


def _alternative(image: Token) -> str:
    """What stands for an image in words."""
    return "".join(_alternative(one) if one.type == "image" else one.content for one in image.children or ())


def _text(content: str) -> Token:
    return Token("text", "", 0, content=content)


def _plain(place: str) -> str:
    return place.lower().removeprefix("www.")


def _places_in(label: str) -> Iterator[str]:
    """What looks like hosts and mail addresses in the words of a link; paths behind them do not count."""
    for text in {unicodedata.normalize("NFKC", label), _bare(label)}:
        for word in _GAP.sub("", text).split():
            if address := _ADDRESS.search(word):
                yield address["host"].rstrip(".")
            else:
                host = re.split(f"[{_SLASHES}?#]", word, maxsplit=1)[0]
                yield from (found[0] for found in _PLACE.finditer(host))


def _bare(label: str) -> str:
    """Without the marks of letters, and with a dot for what looks like one before the end of a host."""
    letters = (
        one for one in unicodedata.normalize("NFKD", label) if one == _DOT_BELOW or not unicodedata.combining(one)
    )
    return _LIKE_A_DOT.sub(_dotted, "".join(letters)).replace(_DOT_BELOW, "")


def _dotted(found: re.Match[str]) -> str:
    return "." if found[1].upper() in _ENDINGS else found[0]
