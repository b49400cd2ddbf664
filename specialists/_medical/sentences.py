"""Built in: a sentence that says all that one calculator needs: `BMI of 80 kg and 180 cm`. Nothing is guessed."""

import re
from collections.abc import Mapping, Sequence

from specialists._medical.calculator import Calculator
from specialists._medical.catalog import names_of, words_of
from specialists._medical.inputs import Quantity
from specialists._medical.units import plain

SENTENCE_LENGTH = 200
_NUMBER = re.compile(r"(?<![\w.,])\d+(?:[.,]\d+)?")
_UNIT = re.compile(r"\s*([^\W\d_]{1,12}(?:/[^\W\d_]{1,4})?)(?![\w/²³^])")


def said_whole(sentence: str, all_of_them: Sequence[Calculator]) -> tuple[Calculator, Mapping[str, str]] | None:
    """The one calculator that a sentence names, and its inputs; None unless each number can be but one of them."""
    if len(sentence) > SENTENCE_LENGTH or not _NUMBER.search(sentence):
        return None
    words = f" {' '.join(words_of(sentence))} "
    meant = [one for one in all_of_them if any(f" {' '.join(words_of(name))} " in words for name in names_of(one))]
    inputs = _inputs(sentence, meant[0]) if len(meant) == 1 else None
    return None if inputs is None else (meant[0], inputs)


def _inputs(sentence: str, one: Calculator) -> Mapping[str, str] | None:
    """What a calculator asks for, by the units, which must tell all of it apart."""
    found: dict[str, str] = {}
    for number in _NUMBER.finditer(sentence):
        unit = _UNIT.match(sentence, number.end())
        of = [] if unit is None else [each.name for each in one.inputs if _takes(each, unit[1])]
        if unit is None or len(of) != 1 or of[0] in found:
            return None
        found[of[0]] = f"{number[0]} {unit[1]}"
    return found if found.keys() == {each.name for each in one.inputs} else None


def _takes(one: object, unit: str) -> bool:
    return isinstance(one, Quantity) and plain(unit) in one.measure.factors
