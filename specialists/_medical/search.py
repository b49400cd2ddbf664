"""Find a calculator by name or by words."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache

from specialists._medical.calculator import Calculator, nearest

MOST_FOUND = 8
_SENTENCE_WORDS = 4


def split_words(text: str) -> list[str]:
    """Return words and numbers in lower case: `CHA₂DS₂-VASc` is `cha2ds2`, `vasc`."""
    signs = unicodedata.normalize("NFKD", text.lower().replace("'s", "").replace("δ", "delta "))
    text = "".join(sign for sign in signs if not unicodedata.combining(sign))
    return re.findall(r"[a-z0-9μß]+", text)


_STOP_WORDS = frozenset(
    split_words(
        "a an and the of for in to with from by is it me my what which how i on or at as do does s "
        "calculate calculator calculation calculated compute computed estimate estimated score scale index equation "
        "formula rule criteria criterion patient risk value medical calculators are there list all available show "
        "year years old man woman male female patients have has can you this his her please my about"
    )
)
_VAGUE_WORDS = frozenset(split_words("severity severe mortality chance outcome prognosis prediction acute blood leg"))
"""Unspecific words; they count a quarter."""
_SYNONYMS = {
    "sepsis": "septic septicaemia septicemia",
    "heart": "cardiac",
    "kidney": "renal",
    "liver": "hepatic",
    "cirrhosis": "cirrhotic",
    "lung": "pulmonary",
    "clot": "thrombosis thrombus thrombotic thromboembolism thromboembolic embolism embolus dvt vte",
    "bleed": "bleeding haemorrhage hemorrhage haemorrhagic hemorrhagic",
    "anticoagulation": "anticoagulant anticoagulated",
    "gastrointestinal": "gi gastric stomach gut",
    "diabetes": "diabetic",
    "glucose": "sugar",
    "hypertension": "hypertensive",
    "obesity": "obese overweight",
    "pregnancy": "pregnant",
    "burn": "burned burnt",
    "depression": "depressed depressive",
    "anxiety": "anxious",
    "alcohol": "alcoholic",
}

# By name


def find_by_name(name: str, calculators: Sequence[Calculator]) -> list[Calculator]:
    """Return the calculators with this name, or with both the name before the brackets and the one inside."""
    name = name[:200]
    before, _, inside = name.partition("(")
    found = _find_exact(name, calculators)
    if found:
        return found
    by_start = _find_exact(before, calculators)
    return [calculator for calculator in _find_exact(inside, calculators) if calculator in by_start]


def _find_exact(name: str, calculators: Sequence[Calculator]) -> list[Calculator]:
    """Search names, then aliases, then titles."""
    squeezed, words = _squeeze(name), frozenset(split_words(name))

    def is_meant(other: str) -> bool:
        """In a longer name, all words must match: a stroke risk is not a stroke scale."""
        if not squeezed or _squeeze(other) != squeezed:
            return False
        return len(words) == 1 or words.issuperset(split_words(other))

    for list_names in (lambda calculator: [calculator.name], _list_aliases, _list_titles):
        if found := [one for one in calculators if any(is_meant(name) for name in list_names(one))]:
            return found
    return []


@lru_cache(maxsize=4096)
def _squeeze(name: str) -> str:
    """Return a name without stop words and spaces: `wellsdvt` for `Wells' Criteria for DVT`."""
    words = split_words(name)
    return "".join([word for word in words if word not in _STOP_WORDS] or words)


def _list_aliases(calculator: Calculator) -> list[str]:
    return [*calculator.aliases, *calculator.replaces]


def _list_titles(calculator: Calculator) -> list[str]:
    title, _, inside = calculator.title.partition("(")
    return [title, f"{title} {inside}"]


def is_sentence(name: str) -> bool:
    """Return whether a text is longer than a name."""
    return len(split_words(name[:500])) >= _SENTENCE_WORDS


def find_nearest(name: str, calculators: Sequence[Calculator]) -> list[Calculator]:
    """Return up to five calculators with similar names or words."""
    names = {_squeeze(other): calculator for calculator in reversed(calculators) for other in _list_names(calculator)}
    by_spelling = [names[other] for other in nearest(_squeeze(name[:200]), list(names), 5)]
    found = [*by_spelling, *search_by_words(name, calculators)]
    return list({calculator.name: calculator for calculator in found}.values())[:5]


def _list_names(calculator: Calculator) -> list[str]:
    return [*_list_aliases(calculator), *_list_titles(calculator), calculator.name]


# By words


def search_by_words(query: str, calculators: Sequence[Calculator]) -> list[Calculator]:
    """Return the best matches for a query, at most eight."""
    words = list(dict.fromkeys(significant_words(query)))
    exact = find_by_name(query, calculators)
    scored = [(_score(words, calculator), calculator) for calculator in calculators if calculator not in exact]
    ranked = sorted((pair for pair in scored if pair[0] > 0), key=lambda pair: -pair[0])
    return [*exact, *(calculator for score, calculator in ranked if score * 2 >= ranked[0][0])][:MOST_FOUND]


def significant_words(query: str) -> list[str]:
    """Return the specific words of a query."""
    return [word for word in split_words(query[:500]) if word not in _STOP_WORDS and not word.isdecimal()]


def _score(words: Iterable[str], calculator: Calculator) -> float:
    """Score matches: names count most, then the summary, then the inputs. A matching prefix counts half."""
    names, summary, inputs = _list_stems(calculator)
    return sum(
        max(6 * _compare(stem, names), 3 * _compare(stem, summary), _compare(stem, inputs))
        * (0.25 if word in _VAGUE_WORDS else 1)
        for word in words
        for stem in (_stem(word),)
    )


@cache
def _list_stems(calculator: Calculator) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    texts = (
        " ".join((calculator.name.replace("_", " "), *_list_aliases(calculator), *_list_titles(calculator))),
        f"{calculator.summary} {calculator.group}",
        " ".join(f"{each.name} {each.text}" for each in calculator.inputs).replace("_", " "),
    )
    names, summary, inputs = (frozenset(_stem(word) for word in split_words(text)) for text in texts)
    return names, summary, inputs


def _compare(stem: str, known: frozenset[str]) -> float:
    if stem in known:
        return 1
    if len(stem) <= 3:
        return 0
    if any(stem[:length] in known for length in range(5, len(stem))):
        return 0.5
    return 0.5 if any(word.startswith(stem) for word in known) else 0


def _stem(word: str) -> str:
    return _MAIN_WORDS.get(_to_singular(word), _to_singular(word))


def _to_singular(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


_MAIN_WORDS = {_to_singular(word): _to_singular(main) for main, others in _SYNONYMS.items() for word in others.split()}
