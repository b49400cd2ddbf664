"""Whether words stand in the same order in two texts, as far as it tells who does what to whom. Pure."""

from collections.abc import Sequence

from brain.memory.tables import COMPARING, COPULAS, NEGATIONS, OPPOSITES, POSSESSIVES, STOP, TIMES, USER
from brain.memory.terms import Known, Wanted, content, negated, union, words

TURNED_MOST = 40
"""Words of a sentence that may be told the other way round."""
_YEAR_LENGTH = 4


def in_order(told: Sequence[str], said: Sequence[str], wanted: Wanted, places: Sequence[int]) -> bool:
    """Whether a sentence has its words in the order in which they were said; when something was may be moved.

    Args:
        told, said: all words of the sentence, and of what it comes from.
        wanted, places: which of the sentence's words each word that was said is.
    """
    if _opposed(told, said, wanted) or ("than" not in told and _compared(said, places)):
        return False
    when = _when(told)
    if when and wanted.all(when) & ~union(wanted.of(word) for word in _when(said)):
        when = frozenset()
    own = [word for word in dict.fromkeys(_telling(told)) if word not in when]
    return _follow([wanted.all([word]) for word in own], places) or (
        len(said) <= TURNED_MOST and (_turned_round(told, said) or _owned(told, said))
    )


def same(one: str, other: str) -> bool:
    """Whether two texts say the same: the same words that tell something, in their order, and as much negation."""
    told, said = words(one), words(other)
    wanted = Wanted(content(one))
    places = [wanted.of(word) for word in said]
    if not wanted.words or wanted.lacking(union(places)) or Known(wanted.words).missing(content(other)):
        return False
    return negated(told) == negated(said) and in_order(told, said, wanted, places)


def _opposed(told: Sequence[str], said: Sequence[str], wanted: Wanted) -> bool:
    """Whether a word is behind the opposite of what it was behind: `to Oslo`, and not `from Oslo`."""
    first, second = _behind(told, wanted), _behind(said, wanted)
    return any(
        OPPOSITES[small] & second[word] and small not in second[word]
        for word, smalls in first.items()
        if word in second
        for small in smalls
    )


def _behind(found: Sequence[str], wanted: Wanted) -> dict[int, set[str]]:
    """The small words before each of the wanted ones, and before the end."""
    smalls, before = dict[int, set[str]](), set[str]()
    for word in found:
        if word in OPPOSITES:
            before.add(word)
        elif word not in STOP and word not in NEGATIONS:
            if place := wanted.of(word):
                smalls.setdefault(place, set()).update(before)
            before = set()
    smalls.setdefault(0, set()).update(before)
    return smalls


def _compared(said: Sequence[str], places: Sequence[int]) -> bool:
    """Whether something that is wanted stands behind what it is only compared with."""
    return "than" in said and any(places[said.index("than") :])


def _follow(own: Sequence[int], places: Sequence[int]) -> bool:
    """Whether words come one after the other, whatever stands between them."""
    n = 0
    for place in places:
        n += n < len(own) and bool(place & own[n])
    return n == len(own)


def _turned_round(told: Sequence[str], said: Sequence[str]) -> bool:
    """`Blue is my favourite colour`, for `My favourite colour is blue`."""
    if COMPARING.intersection(said):
        return False
    first, second = _sides(told), _sides(said)
    return first[0] != [] and _alike(first[0], second[1]) and _alike(first[1], second[0])


def _sides(found: Sequence[str]) -> tuple[list[str], list[str]]:
    """What tells something before and behind the copula."""
    middle = next((n for n, word in enumerate(found) if word in COPULAS), len(found))
    return _telling(found[:middle]), _telling(found[middle:])


def _owned(told: Sequence[str], said: Sequence[str]) -> bool:
    """`My penicillin allergy`, for `I am allergic to penicillin`: two words, nothing else, and nobody else."""
    own, other = _telling(told), _telling(said)
    if len(own) != 2 or not _alike(own, other[::-1]):
        return False
    return not USER.union(POSSESSIVES).intersection(told) or bool(
        USER.intersection(said) if USER.intersection(told) else POSSESSIVES.intersection(said)
    )


def _alike(one: Sequence[str], other: Sequence[str]) -> bool:
    return len(one) == len(other) and all(a in Known([b]) for a, b in zip(one, other, strict=True))


def _telling(found: Sequence[str]) -> list[str]:
    return [word for word in found if word not in STOP and word not in NEGATIONS]


def _when(said: Sequence[str]) -> frozenset[str]:
    """The words that say when something was, if that is said once."""
    found = _telling(said)
    near = [n for n, word in enumerate(found) if word in TIMES or _is_year(word)]
    dated = sorted(
        {m for n in near for m in (n - 1, n, n + 1) if m in near or (0 <= m < len(found) and found[m].isdigit())}
    )
    once = dated and dated[-1] - dated[0] == len(dated) - 1
    return frozenset(found[n] for n in dated) if once else frozenset()


def _is_year(word: str) -> bool:
    return word.isdecimal() and len(word) == _YEAR_LENGTH and word[:2] in ("19", "20")
