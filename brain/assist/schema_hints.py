"""What the parameters of a specialist take, and how people write them, as its JSON Schema and examples tell."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

from brain.assist.synonyms import GROUPS
from brain.plugins.schema import resolve
from brain.plugins.specialist import Specialist
from brain.words import STOP_WORDS, split_words, word_set

FROM = word_set("from von aus ab de du des depuis desde since seit")
TO = word_set("to in into as nach zu à a en vers para hacia auf towards")
PREPOSITIONS = FROM | TO | word_set(
    "for of about at near on called named around by with für über bei um mit namens unter chez pour sur dans sobre con "
    "por cerca"
)  # fmt: skip
"""Words before values."""
_SEARCHES = word_set("q query search searches keyword keywords term terms topic words subject phrase")
_QUESTIONS = word_set("question prompt message objective text input request instruction content sentence")
_SOURCES = word_set("from source src origin start departure base since after begin")
_TARGETS = word_set("to target dest destination end arrival until before into")
_CASES = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")


@dataclass(frozen=True, eq=False, slots=True)
class Property:
    """A parameter, and what it takes.

    Attributes:
        kind: `text`, `search`, `question`, `list`, `choice`, `choices`, `number`, `date` and others; empty if unknown.
        labels: The words of its name and title.
        counted: Words that may follow its number: units, and stems of words in its description.
        role: `from`, `to`, or empty.
    """

    name: str
    kind: str
    schema: Mapping[str, Any]
    required: bool
    labels: frozenset[str]
    counted: frozenset[str]
    role: str = ""
    choices: Mapping[str, Any] = field(default_factory=dict)
    phrases: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Profile:
    """A specialist: its parameters, and how its examples express them.

    Attributes:
        vocabulary: Words of its name, description and examples, which are no values.
        style: How values look in the examples: `name` (capitals), `code` (digits) or `words`.
    """

    properties: Sequence[Property]
    vocabulary: frozenset[str]
    before: frozenset[str]
    style: str


@lru_cache(maxsize=256)
def read_profile(specialist: Specialist[..., Any]) -> Profile:
    schema = specialist.parameters
    required = schema.get("required", ())
    properties = [
        _read_property(name, resolve(part, schema), name in required)
        for name, part in schema.get("properties", {}).items()
        if isinstance(part, Mapping)
    ]
    described = {
        stem(word.bare) for word in split_words(f"{specialist.name.replace('_', ' ')} {specialist.description}")
    }
    described |= {stem(label) for one in properties for label in one.labels}
    examples = [split_words(example) for example in specialist.examples]
    given = {
        word.bare
        for params in specialist.example_params.values()
        for value in params.values()
        for word in split_words(value if isinstance(value, str) else "")
    }
    counts = Counter(one for words in examples for one in {stem(word.bare) for word in words})
    vocabulary, before, styles = set(described), set[str](), {"name": 0, "code": 0, "words": 0}
    for words in examples:
        values = [
            n
            for n, word in enumerate(words)
            if word.bare in given
            or (
                counts[stem(word.bare)] == 1
                and stem(word.bare) not in described
                and (any(sign.isdigit() for sign in word.text) or (n > 0 and word.text[:1].isupper()))
            )
        ]
        is_code = any(any(sign.isdigit() for sign in words[n].text) for n in values)
        styles["code" if is_code else "name" if values else "words"] += 1
        before |= {words[n - 1].bare for n in values if n and n - 1 not in values}
        if values:
            vocabulary |= {stem(word.bare) for n, word in enumerate(words) if n not in values}
    vocabulary |= {one for one, count in counts.items() if count > 1}
    before = before & PREPOSITIONS or {word for word in PREPOSITIONS if counts.get(stem(word), 0) > 1}
    style = max(styles, key=lambda one: styles[one]) if examples else "words"
    return Profile(properties, frozenset(vocabulary), frozenset(before), style)


def stem(word: str) -> str:
    """Return a word without the endings of plurals and verbs."""
    for ending in ("ing", "ies", "es", "ed", "s", "e", "y"):
        if len(word) > len(ending) + 3 and word.endswith(ending):
            return word[: -len(ending)]
    return word


def _read_property(name: str, schema: Mapping[str, Any], required: bool) -> Property:
    options = [one for one in (schema, *schema.get("anyOf", ()), *schema.get("oneOf", ())) if isinstance(one, Mapping)]
    typed = next((one for one in options if one.get("type") not in (None, "null") or "enum" in one), schema)
    parts = [part.lower() for part in _CASES.findall(name)]
    about = f"{' '.join(parts)} {schema.get('title', '')} {schema.get('description', '')}".lower()
    labels = frozenset(parts) | {word.bare for word in split_words(str(schema.get("title", "")))}
    counted = {stem(word.bare) for word in split_words(str(schema.get("description", "")))} - _COMMON_LABELS
    counted |= {word for group in GROUPS if not group.isdisjoint(labels) for word in group}
    role = "from" if _SOURCES.intersection(parts) else "to" if _TARGETS.intersection(parts) else ""
    build = partial(
        Property, name, schema=typed, required=required, labels=labels, counted=frozenset(counted), role=role
    )
    choices = [one for option in options for one in [*option.get("enum", ()), option.get("const")]]
    choices = [one for one in choices if isinstance(one, str | int | float) and not isinstance(one, bool)]
    kinds = {
        kind for one in options for kind in ([one["type"]] if isinstance(one.get("type"), str) else one.get("type", ()))
    }
    if choices:
        titles = {str(one["const"]): str(one["title"]) for one in options if "const" in one and "title" in one}
        words, phrases = _list_aliases(choices, titles, str(schema.get("description", "")))
        return build("choice", choices=words, phrases=phrases)
    if "array" in kinds and not kinds & {"string", "integer", "number"}:
        items: Mapping[str, Any] = next((one["items"] for one in options if isinstance(one.get("items"), Mapping)), {})
        if choices := [one for one in items.get("enum", ()) if isinstance(one, str)]:
            words, phrases = _list_aliases(choices, {}, about)
            return build("choices", choices=words, phrases=phrases)
        return build("list" if items.get("type") == "string" else "")
    return build(_find_kind(parts, about, typed, kinds))


_COMMON_LABELS = {stem(word) for word in STOP_WORDS | {"number", "default", "maximum", "minimum", "iso", "e.g"}}


def _find_kind(parts: Sequence[str], about: str, schema: Mapping[str, Any], kinds: set[str]) -> str:
    """Return what a parameter takes, by its type, format, name and description."""
    form, last = schema.get("format", ""), parts[-1] if parts else ""
    if kinds & {"number", "integer"}:
        return "number" if "number" in kinds else "integer"
    if "boolean" in kinds:
        return "boolean"
    if "string" not in kinds:
        return ""
    if form in ("uri", "url", "iri") or last in ("url", "uri", "link", "website"):
        return "url"
    if form == "email" or last in ("email", "mail"):
        return "email"
    if re.search(r"\bcurrency\b|\biso 4217\b", about):
        return "currency"
    if last in ("lang", "locale") or (
        re.search(r"\blanguage\b|\biso 639", about) and last not in _SEARCHES | _QUESTIONS
    ):
        return "language"
    if form in ("date", "date-time", "time"):
        return str(form)
    if last in ("date", "day") or "yyyy-mm-dd" in about or "iso 8601" in about:
        return "date"
    if last == "time" and "hh:mm" in about:
        return "time"
    if last in ("expression", "formula", "calculation", "equation"):
        return "formula"
    return "search" if last in _SEARCHES else "question" if last in _QUESTIONS else "text"


def _list_aliases(
    choices: Sequence[str | float], titles: Mapping[str, str], description: str
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the words, and the phrases, that mean the values of an enumeration."""
    words: dict[str, Any] = {}
    phrases: dict[str, Any] = {}
    lowered = {str(choice).lower() for choice in choices}
    for choice in choices:
        value = str(choice).lower()
        names = [value.replace("_", " "), titles.get(str(choice), "").lower()]
        for group in GROUPS:
            names += group if value in group else ()
        if about := re.search(rf"\b{re.escape(value)}\b\s?[:=(–]\s?([^,;.:)=]{{2,40}})", description.lower()):
            names.append(about[1].strip())
        for name in filter(None, names):
            if name == value or name not in lowered:
                (words if len(split_words(name)) == 1 and " " not in name else phrases).setdefault(name, choice)
        if value.isalpha() and len(value) > 3:
            words.setdefault(f"{value}s", choice)
    return words, phrases
