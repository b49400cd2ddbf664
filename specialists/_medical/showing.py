"""Built in: how formulas and lists of inputs are shown."""

import re
from collections.abc import Mapping

from specialists._medical.calculator import Calculator
from specialists._medical.inputs import Choice, Input, Quantity, Read, YesNo
from specialists._medical.reading import shown


def put_in(formula: str, inputs: Mapping[str, Read], steps: Mapping[str, float]) -> str:
    """A formula with the numbers in the places of their names."""
    values = {name: read.value for name, read in inputs.items()} | dict(steps)
    numbers = {name: shown(v) for name, v in values.items() if isinstance(v, int | float) and not isinstance(v, bool)}
    return re.sub(r"[^\W\d]\w*", lambda found: numbers.get(found[0], found[0]), formula)


def list_of_inputs(calculator: Calculator) -> list[str]:
    """One line an input: its name, what is expected, and what it is."""
    return [_line_of(one) for one in calculator.inputs]


def _line_of(one: Input) -> str:
    expects = f"{one.expects()}{', or not measured' if one.unmeasured else ''}"
    scores = ""
    if isinstance(one, YesNo) and one.points is not None:
        scores = f" [{one.points:+g}]"
    elif isinstance(one, Quantity) and one.points is not None:
        scores = f" [points: {one.points}]"
    elif isinstance(one, Choice) and one.scores:
        scores = f" [points: {', '.join(f'{points:g}' for points in one.options.values())}]"
    told = f" – {one.text}" if one.text else ""
    return f"- {one.name}{' (optional)' if one.optional else ''}: {expects}{scores}{told}"
