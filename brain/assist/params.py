"""The parameters of a call that no model wrote: from an example, the specialist's function, or its JSON Schema."""

import logging
import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time
from itertools import islice
from typing import Any, NamedTuple

from brain.assist.schema_hints import FROM, PREPOSITIONS, TO, Profile, Property, read_profile, stem
from brain.assist.synonyms import AMBIGUOUS, GROUPS, LANGUAGE_NAMES, LANGUAGES
from brain.dates import MAX_MESSAGE, MONTHS, AmbiguousDate, find_clock, find_time, next_time
from brain.errors import Refused
from brain.plugins.context import AssistContext
from brain.plugins.specialist import Specialist
from brain.words import (
    DATE_WORDS,
    NAME_PARTS,
    STOP_WORDS,
    Number,
    Word,
    content_words,
    find_numbers,
    is_follow_up,
    split_words,
    word_set,
)

MAX_WORDS = 12
"""Words of a search."""
MAX_TEXT = 500
"""Characters of a message that become a text."""
MAX_READ = 300
"""Words of a message that the rules read."""
MAX_FOUND = 20
"""Numbers, or values of an enumeration, that the rules compare."""
log = logging.getLogger("brain")

_AMOUNTS = word_set("amount value quantity sum price money number count")
_READING = ("list", "show", "get", "read", "search", "find", "view", "lookup", "status")
_NEGATIONS = word_set("no not without ohne kein keine sans sin pas nicht")
_FRACTIONS = word_set(
    "half quarter third halbe halben viertel drittel demi quart tiers medio media cuarto dozen couple"
)
_LETTERS = word_set("a e i o u y")
_LEAVING = word_set("starting leaving departing start departure abfahrt départ salida")
_TITLES = word_set("title name song film movie book word phrase text query subject")
_DEGREES = word_set("° º degrees degree grad degrés grados")
_NUMBERS = ("number", "integer")
_DATES = ("date", "date-time", "time")
_MAX_SEARCH = 4
"""Words of a message without a quoted part that are certain to be a search."""
_SURE = 4.0
"""Score of a part of a message that looks like the values in the examples."""
_AND = re.compile(r"[\s,&+]*(?:(?:and|or|und|oder|et|ou|y|e|o|some|the|a|an|des?|du)\b[\s,]*)*")
_URL = re.compile(r"https?://[^\s<>\"'`]{3,2000}")
_MAIL = re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,4}")
_QUOTED = re.compile(r"[\"“„«]([^\"“”„«»]{1,300})[\"“”»]|(?<!\w)[‘']([^‘’']{2,300})[’'](?!\w)")
_UNITS = (*GROUPS, word_set("second seconds minute minutes hour hours day days week weeks month months year years"))
_ALTERNATIVES = word_set("or oder ou o")
_THOUSANDS = re.compile(r"\d{1,3}\.\d{3}")
"""A number that is a thousand times larger in some languages than in others."""
_CODE = re.compile(r"[A-Z]{3}")
_FORMULA = re.compile(r"[\d(][\d\s.,()+\-*/^×÷%]*[\d)%]")


class Filled(NamedTuple):
    """The parameters of a call. If they are not certain, Brain asks before it makes the call."""

    params: dict[str, Any]
    is_certain: bool = True


def build_params(specialist: Specialist[..., Any], message: str, context: AssistContext) -> Filled | None:
    """Return valid parameters of a call that only reads, or None if the message does not give them.

    An example that the message repeats comes first, then the specialist's `assist` function, or else rules.

    Raises:
        Refused: By the function, or for a date with two readings. The reason tells people what to do.
    """
    try:
        if specialist.assist is None:
            return fill_params(specialist, message, context)
        params: Mapping[str, Any] | None = _match_example(specialist.example_params, message[:MAX_MESSAGE])
        if params is None or not specialist.reads_only(params):
            params = specialist.assist(message[:MAX_MESSAGE], context)
        return Filled(dict(params)) if params is not None and specialist.validator.is_valid(params) else None
    except Refused:
        raise
    except Exception:
        log.warning("specialist %s: no parameters of an assisted call", specialist.name, exc_info=True)
        return None


def fill_params(specialist: Specialist[..., Any], message: str, context: AssistContext) -> Filled | None:
    """Return valid parameters from an example that the message repeats, or by rules for the JSON Schema; or None.

    A follow-up such as `and on Friday?` gets the missing values from the previous message.
    """
    message = message.strip()[:MAX_MESSAGE]
    example = _match_example(specialist.example_params, message)
    filled = _apply_rules(specialist, message, context) if example is None else Filled(example)
    if filled is None and context.previous and is_follow_up(message, content_words(message)):
        previous = context.previous[:MAX_MESSAGE]
        filled = _apply_rules(specialist, f"{message}\n{previous}", context)
        filled = None if filled == _apply_rules(specialist, previous, context) else filled
    return filled if filled is not None and specialist.validator.is_valid(filled.params) else None


def find_texts(specialist: Specialist[..., Any], params: Mapping[str, Any]) -> list[str]:
    """Return the texts that a call looked for: no dates and no values of enumerations."""
    kinds = {one.name: one.kind for one in read_profile(specialist).properties}
    return [
        value
        for name, value in params.items()
        if isinstance(value, str) and kinds.get(name) in ("text", "search", "question")
    ]


def required_schema(specialist: Specialist[..., Any]) -> dict[str, Any] | None:
    """Return the schema with only the required parameters, for a model that writes JSON; None if it is not plain."""
    schema = specialist.parameters
    required = [name for name in schema.get("required", ()) if name in schema.get("properties", {})]
    properties = {name: schema["properties"][name] for name in required}
    if not required or len(required) != len(schema["required"]) or not all(map(_is_plain, properties.values())):
        return None
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def is_stated(specialist: Specialist[..., Any], params: Mapping[str, Any], message: str) -> bool:
    """Whether all values that a model wrote are in the message, and look like values, or are among few allowed ones."""
    text, profile = _Message(message[:MAX_MESSAGE]), read_profile(specialist)
    words = [word.bare for word in text.words]
    numbers = {number.value for number in text.numbers()}
    kinds = {one.name: one.kind for one in profile.properties}

    def is_found(value: Any, kind: str) -> bool:
        if isinstance(value, int | float):
            return value in numbers
        wanted = [word.bare for word in split_words(str(value))]
        starts = [n for n in range(len(words)) if wanted and words[n : n + len(wanted)] == wanted]
        if kind != "text":
            return bool(starts)
        return any(_is_plausible(text.words[n : n + len(wanted)], text, profile) for n in starts)

    for name, value in params.items():
        one = specialist.parameters.get("properties", {}).get(name, {})
        if isinstance(value, bool) or "enum" in one or "const" in one:
            continue
        values = value if isinstance(value, list) else [value]
        if not values or not all(is_found(item, kinds.get(name, "")) for item in values):
            return False
    return True


def _is_plain(schema: Any) -> bool:
    """Whether a schema has no references, alternatives and conditions, which grammars of servers often lack."""
    if not isinstance(schema, Mapping) or not isinstance(schema.get("type", "string"), str):
        return False
    plain = {"type", "description", "title", "enum", "const", "default", "examples", "format", "items", "pattern"}
    limits = {"minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minItems"}
    return (
        schema.keys() <= plain | limits | {"maxItems", "multipleOf", "uniqueItems"}
        and ("type" in schema or "enum" in schema)
        and ("items" not in schema or _is_plain(schema["items"]))
    )


# Examples


def _match_example(examples: Mapping[str, Mapping[str, Any]], message: str) -> dict[str, Any] | None:
    """Return the parameters of an example that the message repeats; one parameter, articles and signs may differ."""
    words = _example_words(message) if examples else []
    lowered = [word.lower() for word in words]
    for example, params in examples.items():
        if [word.lower() for word in _example_words(example)] == lowered:
            return dict(params)
        for name, value in params.items():
            before, found, after = example.partition(value) if isinstance(value, str) and value else ("", "", "")
            start, end = ([word.lower() for word in _example_words(part)] for part in (before, after))
            middle = words[len(start) : len(words) - len(end)]
            if found and middle and lowered == [*start, *(word.lower() for word in middle), *end]:
                return {**params, name: " ".join(middle)}
    return None


_WORD = re.compile(r"[^\W_]+")


def _example_words(text: str) -> list[str]:
    return [word for word in _WORD.findall(text) if word.lower() not in ("a", "an", "the")]


# The rules


class _Message:
    """A message while its parts become values.

    Attributes:
        is_certain: Whether no value was chosen among several, and none was left out.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.words = split_words(text)[:MAX_READ]
        quoted = _QUOTED.search(text)
        self.quoted = quoted[1] or quoted[2] if quoted else None
        self.is_certain = True
        self._taken = bytearray(len(text))
        self._numbers: list[Number] | None = None

    def take(self, start: int, end: int) -> None:
        """Mark a part of the text as used for a value."""
        self._taken[start:end] = b"\1" * (end - start)

    def is_taken(self, start: int) -> bool:
        return self._taken[start] == 1

    def numbers(self) -> list[Number]:
        """Return the first numbers that are not used."""
        if self._numbers is None:
            self._numbers = find_numbers(self.text)
        return [one for one in self._numbers if not self.is_taken(one.start)][:MAX_FOUND]

    def before(self, start: int) -> str:
        """Return the word before a place, in lower case."""
        at = bisect_right(self.words, start, key=lambda word: word.end)
        return self.words[at - 1].bare if at else ""

    def after(self, end: int) -> str:
        """Return the word after a place, in lower case."""
        at = bisect_left(self.words, end, key=lambda word: word.start)
        return self.words[at].bare if at < len(self.words) else ""

    def has_alternative(self, start: int, end: int) -> bool:
        """Whether a part of the text is one of several between which the message has `or`."""
        return self.before(start) in _ALTERNATIVES or self.after(end) in _ALTERNATIVES


@dataclass(frozen=True, slots=True)
class _Found:
    """A value at a place of a message."""

    value: Any
    start: int
    end: int


def _apply_rules(specialist: Specialist[..., Any], text: str, context: AssistContext) -> Filled | None:
    """Return the values that the message gives; None if a required one is missing."""
    profile, message, values = read_profile(specialist), _Message(text), dict[str, Any]()
    properties = profile.properties
    for one in properties:
        pattern = {"url": _URL, "email": _MAIL, "formula": _FORMULA}.get(one.kind)
        if pattern and (found := pattern.search(text)):
            values[one.name] = _trim_url(found[0]) if one.kind == "url" else found[0]
            message.take(*found.span())
    _fill_pairs(properties, message, values)
    _fill_dates(properties, message, values, context)
    _fill_numbers(properties, message, values)
    for one in properties:
        if one.kind == "boolean" and (said := _find_boolean(one, message)) is not None:
            values[one.name] = said
    _fill_texts(profile, message, values)
    if any(one.required and one.name not in values for one in properties):
        return None
    return Filled(values, message.is_certain and not _leaves_out(properties, message, values))


def _leaves_out(properties: Sequence[Property], message: _Message, values: Mapping[str, Any]) -> bool:
    """Whether the message has a number or a day that no value contains, and a parameter that may be for it."""
    free = [one for one in properties if one.name not in values]
    used = {word.bare for value in values.values() for word in split_words(str(value))}
    words = [word for word in message.words if not message.is_taken(word.start) and word.bare not in used]
    numbers = [one for one in message.numbers() if message.text[one.start : one.end].lower() not in used]
    if numbers and any(one.kind in (*_DATES, *_NUMBERS, "text") for one in free):
        return True
    if any(one.kind in _NUMBERS for one in properties) and any(word.bare in _FRACTIONS for word in words):
        return True
    takes_days = any(one.kind in _DATES or not DATE_WORDS.isdisjoint(one.choices) for one in free)
    return takes_days and any(word.bare in DATE_WORDS for word in words)


def _trim_url(url: str) -> str:
    """Return a URL without the punctuation of the sentence around it."""
    url = url.rstrip(".,;:!?")
    while url.endswith(")") and url.count("(") < url.count(")"):
        url = url[:-1].rstrip(".,;:!?")
    return url


def _fill_pairs(properties: Sequence[Property], message: _Message, values: dict[str, Any]) -> None:
    """Fill enumerations, currencies and languages. Two of a kind take the values by their prepositions and order."""
    seen: dict[Any, list[Property]] = {}
    for one in properties:
        if one.kind == "choice":
            seen.setdefault(("choice", *map(repr, one.choices.values())), []).append(one)
        elif one.kind in ("choices", "currency", "language"):
            seen.setdefault(one.kind if one.kind != "choices" else one.name, []).append(one)
    for members in seen.values():
        first = members[0]
        found = list(islice(_find_values(first, message), MAX_FOUND))
        if first.kind == "choices":
            if found:
                values[first.name] = list(dict.fromkeys(one.value for one in found))
            continue
        for one, place in _assign(members, found, message).items():
            values[one.name] = place.value
            message.take(place.start, place.end)
        for one in members:
            reading = next((choice for choice in one.choices.values() if choice in _READING), None)
            if one.required and one.name not in values and reading is not None:
                values[one.name] = reading


def _find_values(one: Property, message: _Message) -> Iterator[_Found]:
    words = message.words
    if one.kind == "currency":
        yield from (_Found(word.text, word.start, word.end) for word in words if _CODE.fullmatch(word.text))
        return
    if one.kind == "language":
        about = str(one.schema.get("description", "")).lower()
        is_code = one.schema.get("maxLength", 99) <= 5 or re.search(r"\bcodes?\b|iso 639|\b(?:en|de)\b", about)
        for word in words:
            code = LANGUAGES.get(word.bare)
            if code and word.bare not in AMBIGUOUS:
                yield _Found(code if is_code else LANGUAGE_NAMES[code], word.start, word.end)
        return
    lowered = message.text.lower()
    for phrase, choice in one.phrases.items():
        at = lowered.find(phrase)
        if at >= 0 and not lowered[max(0, at - 1) : at].isalnum() and not lowered[at + len(phrase) :][:1].isalnum():
            yield _Found(choice, at, at + len(phrase))
    for word in words:
        choice = one.choices.get(word.bare)
        if choice is None and "-" in word.bare:
            choice = one.choices.get(word.bare.replace("-", " "))
        if choice is None or message.is_taken(word.start):
            continue
        is_letter = len(word.bare) == 1 and (word.text.islower() or word.bare in _LETTERS)
        before = message.before(word.start)
        if is_letter and not (before[-1:].isdecimal() or before in TO or before in ("degrees", "grad")):
            continue
        if (word.bare in STOP_WORDS or word.bare in AMBIGUOUS) and word.text.islower() and not one.required:
            continue
        yield _Found(choice, word.start, word.end)


def _assign(members: Sequence[Property], found: Sequence[_Found], message: _Message) -> dict[Property, _Found]:
    """Give each parameter its value: the source follows a number or `from`, the target follows `to` or `in`."""
    places: list[_Found] = []
    for place in sorted(found, key=lambda one: (one.start, -one.end)):
        if not places or place.start >= places[-1].end:
            places.append(place)
    if not places:
        return {}
    if len(members) == 1:
        return _assign_one(members[0], places, message)
    source = next((place for place in reversed(places) if _is_source(place, message)), places[0])
    others = [place for place in places if place.value != source.value]
    others.sort(key=lambda one: (message.before(one.start) not in TO, one.start < source.start))
    by_role = {"from": source, **({"to": others[0]} if others else {})}
    message.is_certain &= len({repr(place.value) for place in places}) <= 2
    rest = "from" if any(one.role == "to" for one in members) else "to"
    roles = ("from", "to") if not any(one.role for one in members) else [one.role or rest for one in members]
    return {one: by_role[role] for one, role in zip(members, roles, strict=False) if role in by_role}


def _assign_one(one: Property, places: Sequence[_Found], message: _Message) -> dict[Property, _Found]:
    """Give a parameter its value. It is certain if no other one is in the message, or if its place says so."""
    if one.role:
        places = [place for place in places if _is_source(place, message) == (one.role == "from")]
        if one.role == "to":
            places = [place for place in places if message.before(place.start) in TO] or places
    else:
        labelled = [place for place in places if {message.before(place.start), message.after(place.end)} & one.labels]
        places = labelled or places
    if not places:
        return {}
    message.is_certain &= len({repr(place.value) for place in places}) == 1
    message.is_certain &= not message.has_alternative(places[0].start, places[0].end)
    return {one: places[0]}


def _is_source(place: _Found, message: _Message) -> bool:
    """Whether a value follows a number or `from`."""
    ends = [one.end for one in message.numbers() if one.end <= place.start]
    between = [message.text[end : place.start].strip().lower() for end in ends]
    return message.before(place.start) in FROM or any(not part or part in _DEGREES for part in between)


def _fill_dates(
    properties: Sequence[Property], message: _Message, values: dict[str, Any], context: AssistContext
) -> None:
    members = [one for one in properties if one.kind in _DATES]
    if not members:
        return
    try:
        when, clock = find_time(message.text, context.now), find_clock(message.text)
    except AmbiguousDate as error:
        raise Refused(str(error)) from None
    moment = when or (next_time(clock, context.now) if clock else None)
    for one in members:
        if one.kind == "date" and when:
            values[one.name] = (when.last if one.role == "to" else when.first).isoformat()
        elif one.kind == "time" and clock:
            values[one.name] = clock.strftime("%H:%M:%S" if one.schema.get("format") else "%H:%M")
        elif one.kind == "date-time" and moment:
            day, at = (moment.last, time(23, 59)) if one.role == "to" else (moment.first, time())
            at = moment.at or at
            values[one.name] = datetime.combine(day, at, at.tzinfo or context.now.tzinfo).isoformat()
    for before, word, after in zip(["", *message.words], message.words, [*message.words[1:], ""], strict=False):
        near = [one for one in (before, after) if isinstance(one, Word) and one.text[:1].isdigit()]
        if word.bare in DATE_WORDS or (word.bare in MONTHS and near):
            for used in (word, *near):
                message.take(used.start, used.end)
    for found in re.finditer(
        r"\b\d{4}-\d\d-\d\d\b|\b\d{1,2}(?:/\d{1,2}(?:/\d{4})?\b|\.\d{1,2}\.(?:\d{4}\b)?)|\b\d{1,2}:\d\d\b"
        r"|\b\d{1,2}\s?(?:am|pm|uhr)\b",
        message.text,
        re.IGNORECASE,
    ):
        message.take(*found.span())


def _fill_numbers(properties: Sequence[Property], message: _Message, values: dict[str, Any]) -> None:
    """Fill numbers by the words next to them; the other numbers go to the other required parameters in order."""
    members = [one for one in properties if one.kind in _NUMBERS]
    if not members:
        return
    free = message.numbers()
    for is_labelled in (True, False):
        for one in members:
            if one.name in values:
                continue
            fitting = [number for number in free if _fits(number.value, one)]
            if is_labelled:
                fitting = [number for number in fitting if _is_labelled(number, one, message)]
            elif not (one.required or (_AMOUNTS & one.labels and len(free) == 1)):
                continue
            if fitting:
                chosen = fitting[0]
                unit, digits = message.after(chosen.end), message.text[chosen.start : chosen.end]
                is_unit = any(unit in group for group in _UNITS) and not any(unit in one.choices for one in properties)
                message.is_certain &= is_labelled or (len(fitting) == 1 and not is_unit)
                message.is_certain &= _THOUSANDS.fullmatch(digits) is None
                message.is_certain &= not message.has_alternative(chosen.start, chosen.end)
                values[one.name] = int(chosen.value) if one.kind == "integer" else chosen.value
                free.remove(chosen)
                message.take(chosen.start, chosen.end)


def _fits(value: float, one: Property) -> bool:
    is_in_range = one.schema.get("minimum", value) <= value <= one.schema.get("maximum", value)
    return is_in_range and (one.kind == "number" or value == int(value))


def _is_labelled(number: Number, one: Property, message: _Message) -> bool:
    """Whether the parameter's name, its description or its unit is next to a number."""
    labels = {stem(label) for label in one.labels if label not in STOP_WORDS}
    before, after = message.before(number.start), message.after(number.end)
    return stem(before) in labels or stem(after) in labels or stem(after) in one.counted or after in one.counted


def _find_boolean(one: Property, message: _Message) -> bool | None:
    """Return whether a message has or excludes the words of a parameter's name; None without them."""
    labels = {_fold(part) for part in one.labels if part not in STOP_WORDS and part not in ("include", "with", "only")}
    excluded = re.match(r"\W*(?:no|without|excludes?)\s+([^\W\d_]+)", str(one.schema.get("description", "")).lower())
    for word in message.words:
        if message.is_taken(word.start) or word.bare in STOP_WORDS:
            continue
        is_negated = message.before(word.start) in _NEGATIONS
        if _fold(word.bare) in labels or (is_negated and excluded and _fold(excluded[1]) == _fold(word.bare)):
            message.take(word.start, word.end)
            return _fold(word.bare) not in labels or not is_negated
    return None


def _fold(word: str) -> str:
    """Return the first letters of a word without accents, which related languages share."""
    decomposed = unicodedata.normalize("NFKD", stem(word))
    return "".join(sign for sign in decomposed if not unicodedata.combining(sign))[:6]


def _fill_texts(profile: Profile, message: _Message, values: dict[str, Any]) -> None:
    """Fill the texts: required ones from the message, others if their name or `from` and `to` precede a value."""
    texts = [one for one in profile.properties if one.kind in ("text", "search", "question", "list")]
    required = [one for one in texts if one.required]
    title = next((one for one in required if _TITLES & one.labels), None)
    if message.quoted and title is not None and len(required) > 1:
        values[title.name] = message.quoted
        start = message.text.find(message.quoted)
        message.take(start, start + len(message.quoted))
    spans = _find_spans(profile, message)
    for one in texts:
        place = next((span for span in spans if span.before in one.labels - STOP_WORDS), None)
        if place and one.kind in ("text", "search"):
            values[one.name] = place.text
            spans.remove(place)
    by_role = [one for one in texts if one.role and one.name not in values]
    for one in by_role if len(by_role) > 1 else ():
        if place := next((span for span in spans if span.role == one.role), None):
            values[one.name] = place.text
            spans.remove(place)
    names = [one for one in texts if one.required and one.kind == "text" and one.name not in values]
    if len(names) == 1 and message.quoted and message.quoted not in values.values():
        values[names[0].name] = message.quoted
    elif len(names) == 1 and spans and _takes_several(names[0]):
        values[names[0].name] = ", ".join(span.text for span in _find_series(spans, message))
    elif names:
        spans = [span for span in spans if span.is_plausible]
        best = sorted(sorted(spans, key=lambda span: -span.score)[: len(names)], key=lambda span: span.start)
        values |= {one.name: span.text for one, span in zip(names, best, strict=False)}
        message.is_certain &= _is_only_reading(best, spans, profile, message)
    for one in texts:
        if not one.required or one.name in values:
            continue
        if one.kind == "question":
            values[one.name] = _find_question(profile, message, is_text=bool(one.labels & {"text", "input", "content"}))
        elif one.kind == "search":
            values[one.name] = _find_search(profile, message)
            message.is_certain &= len(values[one.name].split()) <= _MAX_SEARCH or message.quoted is not None
        elif one.kind == "list" and spans:
            values[one.name] = [span.text for span in _find_series(spans, message)]
    chosen = {one.name for one in profile.properties if one.kind in ("choice", "choices", "boolean")}
    if values.keys() - chosen or any(one.required for one in profile.properties):
        return
    if free := next((one for one in texts if one.kind in ("search", "question")), None):
        values[free.name] = message.quoted or message.text[:MAX_TEXT]
    elif texts and (named := [span for span in spans if span.score >= _SURE]):
        values[texts[0].name] = named[0].text


def _is_only_reading(best: Sequence["_Span"], spans: Sequence["_Span"], profile: Profile, message: _Message) -> bool:
    """Whether one part of the message is a value, and no other one may be. Several could change places."""
    if len(best) != 1:
        return False
    chosen = range(best[0].start, best[0].start + len(best[0].text))
    rest = [span for span in spans if span not in best and (span.is_marked or not best[0].is_marked)]
    is_explained = all(word.start in chosen or not _may_be_value(word, profile, message) for word in message.words)
    is_certain = is_explained or (best[0].is_marked and (profile.style == "code" or best[0].before in profile.before))
    return not rest and is_certain and not message.has_alternative(chosen.start, chosen.stop)


def _takes_several(one: Property) -> bool:
    return re.search(r"\bcomma|\blist of\b|\bseparated\b", str(one.schema.get("description", "")).lower()) is not None


def _find_series(spans: Sequence["_Span"], message: _Message) -> list["_Span"]:
    """Return the best series of parts with only commas and `and` between them."""
    series: list[list[_Span]] = []
    for span in spans:
        last = series[-1][-1] if series else None
        if last and _AND.fullmatch(message.text, last.start + len(last.text), span.start):
            series[-1].append(span)
        else:
            series.append([span])
    return max(series, key=lambda parts: parts[0].score + (2 if len(parts) > 1 else 0))


@dataclass(slots=True)
class _Span:
    """Neighbouring words that may be a value, and the word before them."""

    text: str
    start: int
    before: str
    role: str
    score: float
    is_marked: bool
    is_plausible: bool


def _find_spans(profile: Profile, message: _Message) -> list[_Span]:
    """Return the parts of a message that may be values, in order."""
    groups: list[list[int]] = []
    words = message.words
    for n, word in enumerate(words):
        if not _may_be_value(word, profile, message):
            continue
        if groups and _belong_together(words, groups[-1][-1], n, message, profile.style):
            groups[-1].append(n)
        else:
            groups.append([n])
    spans = []
    for group in groups:
        first, last = words[group[0]], words[group[-1]]
        text = message.text[first.start : last.end]
        text = text[len(text) - len(first.text) :] if len(group) == 1 and text.endswith(first.text) else text
        text = text.removesuffix("'s").removesuffix("’s")
        before = words[group[0] - 1].bare if group[0] else ""
        earlier = words[group[0] - 2].bare if group[0] > 1 else ""
        role = "from" if before in FROM or earlier in _LEAVING else "to" if before in TO - {"in", "en", "as"} else ""
        score = _score([words[n] for n in group], before, profile, words[0])
        parts = [words[n] for n in group]
        is_marked = _is_name(parts, profile, words[0])
        spans.append(_Span(text, first.start, before, role, score, is_marked, _is_plausible(parts, message, profile)))
    if profile.style == "name" and any(span.score >= _SURE for span in spans):
        return [span for span in spans if span.score >= _SURE]
    return spans


def _is_plausible(words: Sequence[Word], message: _Message, profile: Profile) -> bool:
    """Whether a part of a message looks like the values of the examples, or follows a word that precedes values."""
    before = message.before(words[0].start)
    text = message.text[words[0].start : words[-1].end]
    return (
        profile.style == "words"
        or _is_name(words, profile, message.words[0])
        or before in profile.before
        or before in PREPOSITIONS
        or text in (message.quoted or "")
    )


def _is_name(words: Sequence[Word], profile: Profile, first: Word) -> bool:
    """Whether words are written like the values of the examples: with digits, or with capitals."""
    if profile.style == "code":
        return any(map(_has_digit, words))
    return profile.style == "name" and any(word.text[:1].isupper() and word is not first for word in words)


def _may_be_value(word: Word, profile: Profile, message: _Message) -> bool:
    if message.is_taken(word.start) or word.bare in DATE_WORDS or word.bare in _LEAVING:
        return False
    is_name = word.text[:1].isupper() and word.start > 0 and word.text not in ("I", "I'm", "I'd", "I've", "I'll")
    is_common = word.bare in STOP_WORDS or stem(word.bare) in profile.vocabulary
    return not is_common or (is_name and word.bare not in STOP_WORDS and word.text.isupper())


def _belong_together(words: Sequence[Word], last: int, n: int, message: _Message, style: str) -> bool:
    """Whether two words are next to each other, or names with a short word between them: `Isle of Man`."""
    between = message.text[words[last].end : words[n].start]
    if n - last == 1:
        if style == "code":
            is_same = _has_digit(words[last]) == _has_digit(words[n])
        else:
            is_same = (
                style == "words"
                or (last == 0 and _is_marked(words[0]))
                or words[n].text.isdecimal()
                or _is_marked(words[last]) == _is_marked(words[n])
            )
        return is_same and between in (" ", "-", "'", "’", " & ")
    middle = words[last + 1 : n]
    are_names = words[last].text[:1].isupper() and words[n].text[:1].isupper()
    return len(middle) <= 2 and are_names and all(word.bare in NAME_PARTS for word in middle) and "," not in between


def _is_marked(word: Word) -> bool:
    """Whether a word is written like a name or a code."""
    return word.text[:1].isupper() or _has_digit(word)


def _has_digit(word: Word) -> bool:
    return any(sign.isdigit() for sign in word.text)


def _score(words: Sequence[Word], before: str, profile: Profile, first: Word) -> float:
    """Score a part: values look like those of the examples, and follow the same words."""
    is_name = any(word.text[:1].isupper() and word is not first for word in words)
    score = 3.0 if before in profile.before else 2.0 if before in PREPOSITIONS and not profile.before else 0.0
    score += 1.0 if before in PREPOSITIONS else -3.0 if before in _NEGATIONS else 0.0
    if profile.style == "code":
        return score + (4.0 if any(map(_has_digit, words)) else 0.0) + (1.0 if is_name else 0.0)
    return score + ((4.0 if profile.style == "name" else 2.0) if is_name else 0.0)


def _find_search(profile: Profile, message: _Message) -> str:
    """Return the quoted part, or the content words that are not usual for this specialist."""
    if message.quoted:
        return message.quoted
    words = [word for word in message.words if word.bare not in STOP_WORDS and not message.is_taken(word.start)]
    rare = [word.text for word in words if stem(word.bare) not in profile.vocabulary]
    found = rare or [word.text for word in words] or content_words(message.text)
    return " ".join(found[:MAX_WORDS]) or message.text[:MAX_TEXT]


def _find_question(profile: Profile, message: _Message, *, is_text: bool) -> str:
    """Return the quoted part or the whole message; of a text to work on, the part without the instruction."""
    if message.quoted:
        return message.quoted
    if not is_text:
        return message.text[:MAX_TEXT]
    head, colon, rest = message.text.partition(": ")
    if colon and len(head.split()) <= MAX_WORDS:
        return rest.strip()[:MAX_TEXT]
    usual = [
        message.is_taken(word.start) or stem(word.bare) in profile.vocabulary or word.bare in ("please", "bitte")
        for word in message.words
    ]
    kept = [n for n, is_usual in enumerate(usual) if not is_usual]
    if not kept or len(kept) == len(usual):
        return message.text[:MAX_TEXT]
    end = kept[0]
    while end + 1 < len(usual) and not message.is_taken(message.words[end + 1].start):
        end += 1
    while end > kept[0] and (message.words[end].bare in TO or message.words[end].bare in PREPOSITIONS):
        end -= 1
    return message.text[message.words[kept[0]].start : message.words[end].end][:MAX_TEXT]
