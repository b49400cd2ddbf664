"""Rooms: whether a user said what is to be kept of them. Pure; only their own words count, whoever repeats them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import regex

from brain.memory.tables import ONESELF, OTHERS, PAST, STOP, UNREAL
from brain.memory.words import Known, alike, content, negated, words

MESSAGES_READ = 100
LETTERS_READ = 8_000
"""Of one message; more of it was hardly said, but pasted."""
LETTERS_MOST = 60_000
"""Of all messages, the newest first."""
NAMED = 8
_SHOWN = 160

_POLITE = r"(?:(?:hey|hi|ok|okay|so|well|and|also|please|now|brain|bitte|und)\b\W+)*"
_ASKING = (
    r"(?:(?:can|could|would|will) you (?:please )?|i(?:['’]d| would) like you to |i want you to "
    r"|(?:you|du) (?:should|must|have to|need to|can|solltest|musst) )?"
)
_KEEPING = (
    r"(?:(?:(?:always |please )*(?:remember|note|know|keep in mind|bear in mind|save|store|memori[sz]e|write down"
    r"|make a note|take (?:a )?note)"
    r"|(?:never|do not|don['’]?t)(?: ever)? forget"
    r"|merke? dir|denke? daran|vergiss (?:bitte )?nicht|behalte|notiere?(?: dir)?|speichere?)\b"
    r"(?: (?:down|it|this|the fact|for (?:me|later|the future)|bitte))*)"
)
_PREAMBLE = regex.compile(
    rf"^\W*{_POLITE}{_ASKING}{_KEEPING}\s*(?P<marked>[:,]?\s*(?:that|dass)\b|:|,|of\b)?\s*", regex.IGNORECASE
)
_KEEP_CJK = regex.compile(
    r"(?:请|請)?(?:记住|記住|记得|記得|别忘了|別忘了|不要忘记|不要忘記)|(?:こと)?を?(?:覚えておいて|覚えて|忘れないで)(?:ください)?|기억해\s?(?:줘|주세요)?"
)
PASTED = regex.compile(r"^(?:```|~~~).*?(?:^(?:```|~~~)[^\n]*$|\Z)|^\s*>[^\n]*$", regex.DOTALL | regex.MULTILINE)
_SENTENCE = regex.compile(r"[^.!?…。！？；;\n]*(?:[.!?…](?=\S)[^.!?…。！？；;\n]*)*[.!?…。！？；;\n]*")
_CLAUSE = regex.compile(
    r",\s+|，|\s[-–—]+\s|[()]"
    r"|\b(?:but|because|although|though|however|while|whereas|aber|sondern|weil|obwohl)\b"
    r"|\b(?:and|und)\b(?=\s+(?:i|i['’]\w+|my|we|our|he|she|they|you|his|her|ich|mein\w*|wir|unser\w*|sie|er)\b)"
    r"|但是|不过|可是|でも|けど",
    regex.IGNORECASE,
)
_INVERTED = regex.compile(
    r"(?:am|are|is|do|does|did|was|were|can|could|should|would|will|have|has|had|may) "
    r"(?:i|we|you|he|she|it|they|my|our|your|the|there|this|that)\b"
    r"|(?:what|who|where|when|which|why|how|whose)\b.{0,60}?\b(?:am|are|is|do|does|did|was|were|can|should|would|will|has"
    r"|have|had)\b"
    r"|(?:bin|bist|ist|sind|habe?|hast|hat|kann|kannst|soll|wer|wie|was|wo|wann|warum|welche\w*) "
    r"(?:ich|du|er|sie|es|wir|mein\w*|dein\w*|ist|bin|sind|habe?|hat|kann|soll)\b"
)


@dataclass(frozen=True)
class Clause:
    """A piece of a message that says one thing, and whether it only asks."""

    text: str
    asks: bool

    @cached_property
    def words(self) -> tuple[str, ...]:
        return words(self.text)

    @cached_property
    def known(self) -> Known:
        return Known(word for word in self.words if word not in STOP)


def plain(text: str) -> str:
    """A statement without the words that ask for it to be kept: `Remember that I am vegetarian`."""
    stripped = _KEEP_CJK.sub("", _PREAMBLE.sub("", text, count=1)).strip(" ,，、:：")
    return stripped or text.strip()


def objection(text: str, messages: Sequence[str], *, together: bool = False) -> str:
    """Why a text may not be kept as what the user said; empty when it may.

    Args:
        messages: the user's own, newest last. The newest that has all of its words decides.
        together: whether the words may come from several of them.
    """
    wanted = content(text)
    if not wanted:
        return "it says nothing; give the whole sentence, in the user's own words"
    pools = [clauses(message) for message in _newest(messages)]
    pools = [[clause for pool in reversed(pools) for clause in pool]] if together else pools
    lacking, asked = list(wanted), ""
    for pool in pools:
        unsaid = Known(word for clause in pool for word in clause.words).missing(wanted)
        if unsaid:
            lacking = min(lacking, unsaid, key=len)
            continue
        problem, only_asked = _problem(text, pool)
        if not only_asked:
            return problem
        asked = asked or problem
    return asked or f"save it in the user's own words; they did not say: {', '.join(lacking[:NAMED])}"


def _newest(messages: Sequence[str]) -> Iterator[str]:
    """The messages that are looked through, newest first."""
    room = LETTERS_MOST
    for message in messages[: -MESSAGES_READ - 1 : -1]:
        room -= min(len(message), LETTERS_READ)
        if room < 0:
            return
        yield message


def clauses(message: str) -> list[Clause]:
    """What a message says, piece by piece; what is marked as quoted or as code was not said."""
    found = []
    for sentence in _SENTENCE.findall(PASTED.sub("\n", message[:LETTERS_READ])):
        whole = sentence.strip()
        asking = whole.rstrip("\"'”’)").endswith(("?", "？", "吗", "か"))
        keeping = _PREAMBLE.match(whole)
        pieces = [piece.strip() for piece in _CLAUSE.split(plain(whole) if keeping else _KEEP_CJK.sub("", whole))]
        pieces = [piece for piece in pieces if piece]
        told = keeping is not None and keeping["marked"] is not None
        found += [Clause(piece, not told and _asks(piece, asking, alone=len(pieces) == 1)) for piece in pieces]
    return found


def _asks(piece: str, asking: bool, *, alone: bool) -> bool:
    return (asking and alone) or _INVERTED.match(" ".join(words(piece))) is not None


def _problem(text: str, pool: Sequence[Clause]) -> tuple[str, bool]:
    """What is wrong with a text whose words are all there, and whether only that it was asked."""
    for sentence in _SENTENCE.findall(text):
        wanted = content(sentence)
        if not wanted:
            continue
        sources = _sources(wanted, pool)
        if any(clause.asks for clause in sources):
            return f"they asked that, and did not say it: {_quoted(sources)}", True
        if not _agree(sentence, wanted, sources):
            return f"the user said it differently: {_quoted(sources)}; save it as they said it", False
    return "", False


def _sources(wanted: Sequence[str], pool: Sequence[Clause]) -> list[Clause]:
    """The clauses that the words come from: the newest statement that has all of them, else as few as can be."""
    whole = [clause for clause in pool if not clause.known.missing(wanted)]
    if whole:
        return [next((clause for clause in reversed(whole) if not clause.asks), whole[-1])]
    found, left = list[Clause](), list(wanted)
    while left:
        best = max(reversed(pool), key=lambda clause: len(left) - len(clause.known.missing(left)))
        if len(rest := best.known.missing(left)) == len(left):
            break
        found.append(best)
        left = rest
    return sorted(found, key=pool.index)


def _agree(sentence: str, wanted: Sequence[str], sources: Sequence[Clause]) -> bool:
    """Whether a sentence leaves nothing out that turns what was said round, or is about somebody else."""
    told = frozenset(words(sentence))
    said = [word for clause in sources for word in clause.words]
    if negated(told) != negated(said):
        return False
    if not told & UNREAL and UNREAL.intersection(said):
        return False
    if not told & PAST and PAST.intersection(said) and "born" not in told:
        return False
    if any(_ended_otherwise(word, said) for word in wanted):
        return False
    return bool(told & OTHERS) or not any(_of_another(wanted, clause) for clause in sources)


def _ended_otherwise(word: str, said: Sequence[str]) -> bool:
    """Whether a verb was said only in another tense: `lived` is not `lives`."""
    found = [other for other in said if alike(word, other)]
    return word not in found and all(other.endswith("ed") != word.endswith("ed") for other in found)


def _of_another(wanted: Sequence[str], clause: Clause) -> bool:
    """Whether a clause is about somebody else: who is named before its first word, with nothing of oneself behind."""
    known = Known(wanted)
    first = next((n for n, word in enumerate(clause.words) if word in known), 0)
    before = clause.words[:first]
    last = max((n for n, word in enumerate(before) if word in OTHERS), default=-1)
    return last >= 0 and not ONESELF.intersection(before[last:])


def _quoted(sources: Sequence[Clause]) -> str:
    text = ", ".join(clause.text for clause in sources)
    return f'"{text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"}"'
