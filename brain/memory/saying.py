"""Whether a user said what is to be kept of them. Pure; only their own words count, whoever repeats them."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, islice

import regex

from brain.memory.order import in_order
from brain.memory.tables import COMMANDS, COPULAS, HEDGES, LISTING, NEGATIONS, ONESELF, OTHERS, PAST, STOP, UNREAL
from brain.memory.terms import Wanted, content, union, words

MESSAGES_READ = 100
LETTERS_READ = 8_000
"""Of one message; more of it was hardly said, but pasted."""
LETTERS_MOST = 20_000
"""Of all messages, the newest first."""
CLAUSES_MOST = 500
"""Of all messages; what comes behind was hardly said either."""
WORDS_MOST = 60
"""That tell something, in a fact."""
WORDS_TOGETHER_MOST = 150
NAMED = 8
_SHOWN = 160
_COMMAND_LENGTH = 40

_POLITE = r"(?:(?:hey|hi|ok|okay|so|well|and|also|please|now|brain|bitte|und)\b\W{1,8}+){0,8}+"
_ASKING = (
    r"(?:(?:can|could|would|will) you (?:please )?|i(?:['’]d| would) like you to |i (?:want|need) you to "
    r"|(?:you|du) (?:should|must|have to|need to|can|solltest|musst) )?"
)
_KEEPING = (
    r"(?:(?:(?:always |please ){0,4}+(?:remember|note|know|keep in mind|bear in mind|save|store|memori[sz]e|write down"
    r"|make a note|take (?:a )?note)"
    r"|(?:never|do not|don['’]?t)(?: ever)? forget"
    r"|merke? dir|denke? daran|vergiss (?:bitte )?nicht|behalte|notiere?(?: dir)?|speichere?)\b"
    r"(?: (?:down|it|this|the fact|for (?:me|later|the future)|bitte)){0,4}+)"
)
_PREAMBLE = regex.compile(
    rf"^\W{{0,40}}+{_POLITE}{_ASKING}{_KEEPING}\s*+(?P<marked>[:,]?\s*+(?:that|dass)\b|:|,|of\b)?\s*+", regex.IGNORECASE
)
_KEEP_CJK = regex.compile(
    r"(?:请|請)?(?:记住|記住|记得|記得|别忘了|別忘了|不要忘记|不要忘記)|(?:こと)?を?(?:覚えておいて|覚えて|忘れないで)(?:ください)?|기억해\s?(?:줘|주세요)?"
)
PASTED = regex.compile(r"^(?:```|~~~).*?(?:^(?:```|~~~)[^\n]*$|\Z)|^[^\S\n]*+>[^\n]*$", regex.DOTALL | regex.MULTILINE)
_SENTENCE = regex.compile(r"[^.!?…。！？；;\n]*(?:[.!?…](?=\S)[^.!?…。！？；;\n]*)*[.!?…。！？；;\n]*")
_STATEMENT = regex.compile(
    r"\s[-–—]+\s|[()]|(?<!\b(?:anything|nothing|all) )\b(?:but|sondern|aber)\b"
    r"|\b(?:because|although|though|however|while|whereas|weil|obwohl)\b|但是|不过|可是|でも|けど",
    regex.IGNORECASE,
)
_CLAUSE = regex.compile(
    r",\s+(?!(?:dass|daß|ob|that|whether)\b)|，"
    r"|\b(?:and|und)\b(?=\s+(?:i|i['’]\w+|my|we|our|he|she|they|you|his|her|ich|mein\w*|wir|unser\w*|sie|er)\b)",
    regex.IGNORECASE,
)
_COMMANDING = regex.compile(rf"^\W{{0,40}}+{_POLITE}{_ASKING}", regex.IGNORECASE)
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
    """A piece of a message that says one thing.

    Attributes:
        statement: the number of what it is a part of, together with its neighbours.
        asks: whether it only asks for something.
    """

    text: str
    statement: int
    asks: bool

    @cached_property
    def words(self) -> tuple[str, ...]:
        return words(self.text)

    @cached_property
    def distinct(self) -> frozenset[str]:
        return frozenset(self.words)


class Heard:
    """A clause, with which of the wanted words it has in which place."""

    def __init__(self, clause: Clause, wanted: Wanted) -> None:
        self.clause = clause
        self.places = [wanted.of(word) for word in clause.words]
        self.all = union(self.places)

    def is_used_up(self, own: int) -> bool:
        """Whether each part of a list in it has all of its words among these, or none."""
        parts: list[list[bool]] = [[]]
        listed = COPULAS.isdisjoint(self.clause.distinct)
        for word, place in zip(self.clause.words, self.places, strict=True):
            if listed and word in LISTING:
                parts.append([])
            elif word not in STOP and word not in NEGATIONS:
                parts[-1].append(bool(place & own))
        return all(any(part) == all(part) for part in parts if part)


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
    wanted = Wanted(content(text))
    if not wanted.words:
        return "it says nothing; give the whole sentence, in the user's own words"
    if len(wanted.words) > (WORDS_TOGETHER_MOST if together else WORDS_MOST):
        return "say it in fewer of the user's words"
    lacking, asked = list(wanted.words), ""
    for pool in _pools(wanted, messages, together=together):
        unsaid = wanted.lacking(union(heard.all for heard in pool))
        if unsaid:
            lacking = min(lacking, unsaid, key=len)
            continue
        problem, only_asked = _problem(text, wanted, pool, together=together)
        if not only_asked:
            return problem
        asked = asked or problem
    return asked or f"save it in the user's own words; they did not say: {', '.join(lacking[:NAMED])}"


def _pools(wanted: Wanted, messages: Sequence[str], *, together: bool) -> Iterator[list[Heard]]:
    """What is said in each message that has any of the words, newest first; or in all of them, as one."""
    room, pools = CLAUSES_MOST, list[list[Heard]]()
    for message in _newest(messages):
        if not any(map(wanted.of, words(message[:LETTERS_READ]))):
            continue
        pool = [Heard(clause, wanted) for clause in islice(clauses(message), room)]
        room -= len(pool)
        pools.append(pool)
        if not together:
            yield pool
    if together:
        yield [heard for pool in reversed(pools) for heard in pool]


def _newest(messages: Sequence[str]) -> Iterator[str]:
    """The messages that are looked through, newest first."""
    room = LETTERS_MOST
    for message in messages[: -MESSAGES_READ - 1 : -1]:
        room -= min(len(message), LETTERS_READ)
        if room < 0:
            return
        yield message


def clauses(message: str) -> Iterator[Clause]:
    """What a message says, piece by piece; what is marked as quoted or as code was not said.

    Nor was what stands behind `Translate:` or the like.
    """
    number, worked_on = 0, False
    for found in _SENTENCE.finditer(PASTED.sub("\n", message[:LETTERS_READ])):
        whole = found[0].strip()
        asking = whole.rstrip("\"'”’)").endswith(("?", "？", "吗", "か"))
        keeping = _PREAMBLE.match(whole)
        told = keeping is not None and keeping["marked"] is not None
        worked_on = worked_on or (":" in whole and not told and _commands(whole))
        statements = [
            _split(_CLAUSE, part) for part in _split(_STATEMENT, plain(whole) if keeping else _KEEP_CJK.sub("", whole))
        ]
        alone = sum(map(len, statements)) == 1
        for pieces in statements:
            number += 1
            for piece in pieces:
                yield Clause(piece, number, worked_on or (not told and _asks(piece, asking and alone)))


def _split(pattern: "regex.Pattern[str]", text: str) -> list[str]:
    pieces = [piece.strip() for piece in pattern.split(text)]
    return [piece for piece in pieces if piece]


def _asks(piece: str, asking: bool) -> bool:
    return asking or _commands(piece) or _INVERTED.match(" ".join(words(piece))) is not None


def _commands(text: str) -> bool:
    """Whether something is to be done, other than to be kept."""
    first = words(_COMMANDING.sub("", text, count=1)[:_COMMAND_LENGTH])[:1]
    return not COMMANDS.isdisjoint(first)


def _problem(text: str, wanted: Wanted, pool: Sequence[Heard], *, together: bool) -> tuple[str, bool]:
    """What is wrong with a text whose words are all there, and whether only that it was asked."""
    for sentence in _SENTENCE.findall(text):
        own = content(sentence)
        if not own:
            continue
        sources = _sources(wanted.all(own), pool)
        if any(heard.clause.asks for heard in sources):
            return f"they asked that, and did not say it: {_quoted(sources)}", True
        if not (_joined(wanted.all(own), sources, together=together) and _agree(sentence, own, wanted, sources)):
            return f"the user said it differently: {_quoted(sources)}; save it as they said it", False
    return "", False


def _sources(own: int, pool: Sequence[Heard]) -> list[Heard]:
    """The clauses that the words come from: the newest statement that has all of them, else as few as can be."""
    whole = [heard for heard in pool if not own & ~heard.all]
    if whole:
        return [next((heard for heard in reversed(whole) if not heard.clause.asks), whole[-1])]
    for _, statement in groupby(reversed(pool), key=lambda heard: heard.clause.statement):
        parts = list(statement)[::-1]
        if not own & ~union(heard.all for heard in parts):
            return _fewest(own, parts)
    return _fewest(own, pool)


def _fewest(own: int, pool: Sequence[Heard]) -> list[Heard]:
    """Clauses that have all of the words together, the newest where several have the same."""
    newest_first, found, left = range(len(pool) - 1, -1, -1), list[int](), own
    while left:
        best = max(newest_first, key=lambda n: (left & pool[n].all).bit_count())
        if not left & pool[best].all:
            break
        found.append(best)
        left &= ~pool[best].all
    return [pool[n] for n in sorted(found)]


def _joined(own: int, sources: Sequence[Heard], *, together: bool) -> bool:
    """Whether clauses say something together: those behind the first one leave nothing out but others of a list.

    Of several statements, the first one leaves nothing out either.
    """
    one = len({heard.clause.statement for heard in sources}) == 1
    return all(heard.is_used_up(own) for heard in sources[1 if one or together else 0 :])


def _agree(sentence: str, own: Sequence[str], wanted: Wanted, sources: Sequence[Heard]) -> bool:
    """Whether a sentence leaves nothing out that turns what was said round, or is about somebody else."""
    in_turn = words(sentence)
    told = frozenset(in_turn)
    said = frozenset[str]().union(*(heard.clause.distinct for heard in sources))
    if NEGATIONS.isdisjoint(told) != NEGATIONS.isdisjoint(said):
        return False
    if not told & UNREAL and UNREAL & said:
        return False
    if not told & PAST and PAST & said and "born" not in told:
        return False
    if HEDGES.isdisjoint(told) != HEDGES.isdisjoint(said):
        return False
    if any(_ended_otherwise(word, wanted.heard[word] & said) for word in own):
        return False
    places = [place for heard in sources for place in heard.places]
    if not in_order(in_turn, [word for heard in sources for word in heard.clause.words], wanted, places):
        return False
    return bool(told & OTHERS) or not any(_of_another(wanted.all(own), heard) for heard in sources)


def _ended_otherwise(word: str, found: Collection[str]) -> bool:
    """Whether a verb was said only in another tense: `lived` is not `lives`."""
    return word not in found and all(other.endswith("ed") != word.endswith("ed") for other in found)


def _of_another(own: int, heard: Heard) -> bool:
    """Whether a clause is about somebody else: who is named before its first word, with nothing of oneself behind."""
    first = next((n for n, found in enumerate(heard.places) if found & own), 0)
    before = heard.clause.words[:first]
    last = max((n for n, word in enumerate(before) if word in OTHERS), default=-1)
    return last >= 0 and not ONESELF.intersection(before[last:])


def _quoted(sources: Sequence[Heard]) -> str:
    text = ", ".join(heard.clause.text for heard in sources)
    return f'"{text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"}"'
