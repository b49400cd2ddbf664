"""The words of a message in English, German, French and Spanish: content words and numbers.

They are returned as the user wrote them. `brain.memory.terms` folds words instead, to compare texts in any script. All
functions take text from outside, and their time is linear in its length.
"""

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from brain.dates import COUNTS, MAX_MESSAGE, WEEKDAYS


def word_set(text: str) -> frozenset[str]:
    """Return the words of a text, for lists of words in code."""
    return frozenset(text.split())


STOP_WORDS = word_set(
    # English
    "a an the this that these those some any each every all no not and or but so as if then than also too just only "
    "of to in on at by for from with without into onto over under about between after before until till since near "
    "off out up down via per i me my mine we us our ours you your yours u ur he him his she her hers it its they them "
    "their theirs one ones who whom whose what which when where why how there here is are was were be been being am "
    "isn't aren't wasn't do does did done doing don't doesn't didn't has have had having haven't can could will would "
    "shall should may might must can't won't i'm i've i'd i'll you're it's that's there's let let's gonna wanna r "
    "please pls plz thanks thank kindly dear hello hi hey ok okay well oh sorry excuse actually really maybe perhaps "
    "tell give show find get got look looks looking search searches check see say says said ask need needs want wants "
    "like know wonder wondering help mean means explain describe list read open fetch pull bring work "
    "want wanted needed able something anything everything someone anyone somebody thing things stuff much many more "
    "most lot bit few less least other another same else such own very quite still yet already again ever never "
    "now right moment currently current rn nowadays way brief short quick quickly exactly possible "
    "happens happen goes going go come comes make makes made take takes keep put use using used call called wat wats "
    "abt n re btw fyi "
    # German
    "der die das den dem des ein eine einen einem einer eines und oder aber auch nur noch schon mal denn doch so sehr "
    "ich mich mir mein meine meinen meinem meiner meines wir uns unser unsere unseren unserem unserer du dich dir dein "
    "deine deinen er ihn ihm sein seine seinen sie ihr ihre ihren es man sich wer was wie wann wo woher wohin warum "
    "welche welcher welches welchen wieviel viel viele ist sind war waren bin bist sein hat habe haben hast hatte gibt "
    "geben wird werden wurde kann kannst könnte könnten können soll sollte muss müssen darf will möchte würde mag "
    "zu zum zur im in am an auf aus bei beim mit nach von vom vor für um über unter bis seit gegen ohne durch zwischen "
    "bitte danke zeig zeige nenne such suche suchen finde finden sag sage gib schau schaue nachschauen steht stehen "
    "weißt weiss weiß gerade jetzt hier da dort diese dieser dieses diesen diesem kein keine keinen nicht etwas alles "
    # French
    "le la les un une du de des au aux à a y en et ou mais donc ni que qui quoi quel quelle quels quelles quand où "
    "comment pourquoi combien est sont était étaient être suis es ai as ont avoir fait font faire peut peux pouvez "
    "puis-je je tu il elle on nous vous ils elles me te se moi toi mon ma mes ton ta tes son sa ses notre nos votre "
    "vos leur leurs ce cet cette ces ça cela c'est qu'est-ce est-ce y-a-t-il a-t-il dans sur sous pour par avec sans "
    "chez vers entre selon depuis plus moins très aussi encore déjà ne pas s'il svp merci cherche cherchez trouve "
    "trouver montre montrez dis dites donne donnez ci-joint maintenant actuellement si ailleurs "
    # Spanish
    "el los las uno una unos unas lo al del y e o u pero sino que qué quién quiénes cuál cuáles cuándo dónde cómo "
    "cuánto cuánta cuántos cuántas por para con sin sobre entre desde hasta hacia según es son era eran fue fueron ser "
    "está están estar estoy hay ha han he has haber tiene tienen tengo tener hace hacer puede puedo puedes podría yo "
    "tú él ella nosotros ellos mi mis tu tus su sus nuestro nuestra me te se le les nos este esta esto estos estas "
    "ese esa eso muy más menos también ya no sí busca buscar encuentra muestra dime dame ahora mismo favor gracias "
    "porfavor algún alguna algo en de la un "
)  # fmt: skip
"""Function words, and words of requests that do not name a subject."""

_TIME_WORDS = word_set(
    "today tonight tomorrow yesterday day days week weeks weekend weekends month months year years hour hours minute "
    "minutes morning noon afternoon evening night midnight am pm oclock next last coming past soon later date time "
    "heute morgen übermorgen gestern tag tage tagen woche wochen wochenende monat monate jahr jahre stunde stunden "
    "minuten vormittag mittag nachmittag abend nacht uhr nächste nächsten nächster nächstes letzte letzten kommende "
    "kommenden demain aujourd'hui hier jour jours semaine semaines week-end mois an ans année heure heures matin midi "
    "après-midi soir nuit prochain prochaine dernier dernière hoy mañana ayer día días semana semanas fin mes meses "
    "año años hora horas minutos tarde noche mediodía próxima próximo pasado pasada ce esta viene anoche neulich hora"
)
DATE_WORDS = _TIME_WORDS | WEEKDAYS.keys()

NAME_PARTS = word_set("of the de la le du des del di da dos van von der den zu")
"""Words within names."""
_WORD = re.compile(r"[^\W_]+(?:['’.\-_][^\W_]+)*")
_ELISION = re.compile(r"\A(?:[cdjlmnst]|qu|jusqu|lorsqu)'(?=\w)", re.IGNORECASE)
_NUMBER = re.compile(
    r"(?:(?P<minus>minus\s|moins\s|menos\s|(?<![\w.,])[-−]))?(?<![\w.,])"
    r"(?P<digits>\d{1,3}(?:[,.' ]\d{3}){1,4}(?:[.,]\d{1,9})?(?![.,]?\d)|\d{1,15}(?:[.,]\d{1,9})?)(?P<k>k\b)?",
    re.IGNORECASE,
)
SCALES = {
    "thousand": 1e3, "tausend": 1e3, "mille": 1e3, "mil": 1e3, "million": 1e6, "millionen": 1e6, "millions": 1e6,
    "millón": 1e6, "millones": 1e6, "mio": 1e6, "billion": 1e9, "milliarde": 1e9, "milliarden": 1e9, "milliards": 1e9,
}  # fmt: skip
_NEXT_WORD = re.compile(r"\s?([^\W\d_]{3,10})\b")
_HALF = re.compile(r"\b(?:half an?|eine halbe|un demi|medio)[ -](?=million|millón|thousand)", re.IGNORECASE)


class Word(NamedTuple):
    """A word of a text, and its place. `text` has no attached French article or `'s`, `bare` is in lower case."""

    text: str
    bare: str
    start: int
    end: int


def split_words(text: str) -> list[Word]:
    """Return the words of a text."""
    words = []
    for found in _WORD.finditer(text):
        word = found[0].replace("’", "'")
        if "'" in word and word.lower() not in STOP_WORDS and word.lower() not in _TIME_WORDS:
            word = _ELISION.sub("", word, count=1)
            word = word[:-2] if word.endswith(("'s", "'S")) else word
        words.append(Word(word, word.lower(), *found.span()))
    return words


def content_words(text: str, drop: Collection[str] = ()) -> list[str]:
    """Return the words of a text that name its subject, as written, with short words in names: `Battle of Lepanto`.

    Args:
        drop: More words to leave out, in lower case.
    """
    found: list[str] = []
    between: list[str] | None = None  # short words after a name
    for word in split_words(text[:MAX_MESSAGE]):
        if word.bare not in STOP_WORDS and word.bare not in drop:
            if between and len(between) <= 2 and word.text[:1].isupper():
                found += between
            found.append(word.text)
            between = [] if word.text[:1].isupper() else None
        elif between is not None:
            between = [*between, word.text] if word.bare in NAME_PARTS and word.text.islower() else None
    return found


# Follow-up messages

_POINTING = word_set(
    "it its he him his she her hers they them their theirs there that those these this else er ihn ihm sie ihr ihre "
    "ihren dort dessen deren davon dazu daran il elle ils elles lui leur leurs y ça celui celle él ella ellos ellas su "
    "sus allí eso esa ese lo"
)
_CONTINUING = re.compile(
    r"\W*(?:and|und|et|y|e|also|or|oder|ou|but|aber|mais|pero|what about|how about|was ist mit|wie wäre es|only|nur)\b",
    re.IGNORECASE,
)
_PARTIAL = re.compile(
    r"^\W*(?:how (?:many|much)|wie ?viele?|combien|cuánt[oa]s?)\b"
    r"|\b(?:the|der|die|das|le|la|el) (?:next|same|other|first|last|nächste|erste|gleiche|prochaine?|próxim[oa])\b",
    re.IGNORECASE,
)
_PLACES = word_set("in at near from of for about bei aus von à de en chez sobre")
MAX_FOLLOW_UP = 5
"""Content words of a message that has no subject of its own."""


def is_follow_up(message: str, words: Sequence[str]) -> bool:
    """Whether a message has no subject of its own. `words` are its content words."""
    own = [word for word in words if word.lower() not in DATE_WORDS and not word.isdigit()]
    if len(own) > MAX_FOLLOW_UP:
        return False
    if not own or _CONTINUING.match(message):
        return True
    points = any(word.bare in _POINTING for word in split_words(message[:MAX_MESSAGE]))
    is_partial = len(own) <= 2 and _PARTIAL.search(message[:MAX_MESSAGE]) is not None
    return (points or is_partial) and not any(is_name(word, message) for word in own)


def join_previous(message: str, previous: str, drop: Collection[str] = ()) -> list[str]:
    """Return the content words of a message, with those of the previous one if it has no subject of its own."""
    words = content_words(message, drop)
    if not previous or not is_follow_up(message, words):
        return words
    own = [word for word in words if word.lower() not in DATE_WORDS and not word.isdigit()]
    before = [word for word in content_words(previous, drop) if word.lower() not in DATE_WORDS]
    shared = {word.bare for word in split_words(message)} & {word.bare for word in split_words(previous)} & _PLACES
    if shared and own and all(is_name(word, message) for word in own):  # "and in Cádiz?" replaces the names
        before = [word for word in before if not is_name(word, previous)] or before
    known = {word.lower() for word in words}
    return [*(word for word in before if word.lower() not in known), *words]


def is_name(word: str, text: str) -> bool:
    """Whether a word of a text is written like a name: in capitals, and not only because it comes first."""
    first = next(iter(_WORD.finditer(text)), None)
    return word[:1].isupper() and (word.isupper() or first is None or not first[0].endswith(word))


# Numbers


class Number(NamedTuple):
    """A number in a text, and its place."""

    value: float
    start: int
    end: int


def find_numbers(text: str) -> list[Number]:
    """Return the numbers of a text, also with thousands separators, a sign, or a word such as `million`."""
    found = []
    for match in _NUMBER.finditer(text):
        value = _parse_number(match["digits"]) * (1000 if match["k"] else 1) * (-1 if match["minus"] else 1)
        end = match.end()
        scale = _NEXT_WORD.match(text, end)
        if scale and (factor := SCALES.get(scale[1].lower())):
            value, end = value * factor, scale.end()
        found.append(Number(value, match.start(), end))
    for half in _HALF.finditer(text):
        scale = _NEXT_WORD.match(text, half.end())
        if scale and (factor := SCALES.get(scale[1].lower())):
            found.append(Number(0.5 * factor, half.start(), scale.end()))
    found += [
        Number(COUNTS[word.bare], word.start, word.end) for word in split_words(text) if COUNTS.get(word.bare, 0) > 1
    ]
    return sorted(found, key=lambda one: one.start)


def _parse_number(digits: str) -> float:
    groups: Sequence[str] = re.split(r"[,.' ]", digits)
    separators = re.findall(r"[,.' ]", digits)
    if len(groups) > 1 and all(len(group) == 3 for group in groups[1:]) and len(set(separators)) == 1:
        is_decimal = len(groups) == 2 and (groups[0] == "0" or separators[0] == ".")  # 1.234 is English
        return float(".".join(groups)) if is_decimal else float("".join(groups))
    return float("".join(groups[:-1]) + "." + groups[-1]) if len(groups) > 1 else float(digits)
