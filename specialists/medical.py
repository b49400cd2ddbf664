"""`medical`: find published calculators and scores, list their inputs, and compute results."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta

from brain import AssistContext, Citation, Refused, Result, specialist
from specialists._kit.examples import read_examples
from specialists._medical.calculator import OTHERS_ABSENT, Calculation, Calculator, Problems, Source
from specialists._medical.catalog import all_calculators
from specialists._medical.inputs import ParsedInput
from specialists._medical.open_medicine import is_installed
from specialists._medical.parsing import format_value
from specialists._medical.search import (
    find_by_name,
    find_nearest,
    is_sentence,
    search_by_words,
    significant_words,
)
from specialists._medical.sentence import Unread, read_sentence

NOT_ADVICE = "Not medical advice."
MOST_REASON = 390
MOST_INPUTS_LISTED = 8
NOT_INSTALLED = "about 50 more calculators are not installed on this server"
KNOWN_CASES = (
    ("ckd_epi_2021", {"age": 50, "sex": "female", "creatinine": "61.88 µmol/L"}, 105.3),
    ("meld_na", {"creatinine": 1.9, "bilirubin": 4.2, "inr": 1.2, "sodium": 130, "dialysis": False}, 25),
    ("due_date", {"lmp": "2024-01-01"}, "2024-10-07"),
)
"""Worked cases for the health check."""


def health() -> str | None:
    """Compute known cases.

    Returns:
        The first wrong result, or None.
    """
    for name, inputs, expected in KNOWN_CASES:
        value = find(name).calculate(inputs).outcome.value
        if value != expected and not (isinstance(value, float) and abs(value - float(expected)) < 0.1):
            return f"{name} returned {value} instead of {expected}"
    return None


def make_params(message: str, context: AssistContext) -> Mapping[str, str]:
    """Return the parameters of an assisted call. A sentence with all inputs is calculated."""
    is_follow_up = context.find_subject(message) != AssistContext(context.now).find_subject(message)
    return {"search": f"{context.previous} {message}" if is_follow_up else message}


@specialist(
    name="medical",
    timeout=10,
    read_only=True,
    outside=False,
    tags=("medical", "calculator"),
    health=health,
    assist=make_params,
    examples=[
        "calculate the creatinine clearance of a patient",
        "eGFR for a creatinine of 1.4 mg/dL",
        "CHA2DS2-VASc score",
        "Wells score for pulmonary embolism",
        "MELD score of this cirrhosis patient",
        "body mass index of 80 kg and 180 cm",
        "corrected QT interval at a heart rate of 90",
        "due date from the last menstrual period",
        "morphine equivalents of oxycodone",
        "anion gap from sodium, chloride and bicarbonate",
        "which medical calculators are there",
        *read_examples("medical"),
    ],
)
def medical(
    calculator: Annotated[
        str | None, Meta(description="its name; without inputs, lists its inputs", examples=["cockcroft_gault"])
    ] = None,
    inputs: Annotated[
        dict[str, Any] | None, Meta(description='by name, with units: {"creatinine":"88 µmol/L"}')
    ] = None,
    search: Annotated[str | None, Meta(description="words to find a calculator")] = None,
) -> Result:
    """About 120 medical calculators and scores (kidney, heart, liver, sepsis, doses, …). Never guess an input."""
    if calculator is None or not calculator.strip():
        if inputs:
            raise Refused("the call has inputs, but no calculator", "give calculator, or find one with search")
        if not search or not search.strip():
            return list_all()
        return calculate_sentence(search) or list_found(search)
    if is_sentence(calculator) and not find_by_name(calculator, all_calculators()):
        found = None if inputs else calculate_sentence(calculator)
        if found := found or list_instead(calculator):
            return found
    chosen = find(calculator)
    return calculate(chosen, inputs) if inputs else describe(chosen)


def find(name: str) -> Calculator:
    """Return the calculator with this name.

    Raises:
        Refused: If no calculator or several have this name.
    """
    found = find_by_name(name, all_calculators())
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(calculator.name for calculator in found)
        raise Refused(f"{_quote(name)} could be {names}", "call again with one of these")
    close = ", ".join(calculator.name for calculator in find_nearest(name, all_calculators()))
    more = "" if is_installed() else f" ({NOT_INSTALLED})"
    advice = f"use one of: {close}; or find one with search" if close else "find one with search"
    raise Refused(f"no calculator is called {_quote(name)}{more}", advice)


def calculate(chosen: Calculator, inputs: Mapping[str, Any]) -> Result:
    """Compute the result.

    Raises:
        Refused: If inputs are wrong or missing.
    """
    try:
        return format_result(chosen.calculate(inputs))
    except Problems as problems:
        raise Refused(*format_problems(chosen, problems)) from problems


def calculate_sentence(sentence: str) -> Result | None:
    """Compute the result from the numbers of a sentence; None if it only searches.

    Raises:
        Refused: If the sentence names a calculator, but gives not all its inputs, or criteria.
    """
    try:
        found = read_sentence(sentence, all_calculators())
    except Unread as unread:
        raise Refused(*format_problems(unread.calculator, unread)) from unread
    return None if found is None else calculate(*found)


# Lists


def list_all() -> Result:
    """List all calculators by group."""
    groups: dict[str, list[str]] = {}
    for calculator in all_calculators():
        groups.setdefault(calculator.group, []).append(calculator.name)
    count = sum(len(names) for names in groups.values())
    head = f"Medical calculators: {count}. Use calculator to list the inputs of one, or search to find one."
    lines = [f"- {group}: {', '.join(names)}" for group, names in groups.items()]
    return Result("\n".join([head, *lines, *_mention_package()]), data={"calculators": groups})


def list_found(query: str) -> Result:
    """List up to eight matching calculators; all calculators if the query has no specific words."""
    if not significant_words(query):
        return list_all()
    found = search_by_words(query, all_calculators())
    if found:
        return _list_each(found, f"Calculators for {_quote(query)}")
    groups = ", ".join(dict.fromkeys(calculator.group for calculator in all_calculators()))
    text = f"No calculator matches {_quote(query)}. Groups: {groups}. Try other words."
    return Result("\n".join([text, *_mention_package()]), data={"found": []})


def list_instead(sentence: str) -> Result | None:
    """List matches for a sentence in place of a name; None if it contains a name or nothing matches."""
    if find_by_name(sentence, all_calculators()):
        return None
    found = search_by_words(sentence, all_calculators())
    return _list_each(found, f"No calculator is called {_quote(sentence)}. Matches") if found else None


def _list_each(found: Sequence[Calculator], head: str) -> Result:
    lines = []
    for calculator in found:
        needed = [item for item in calculator.inputs if not item.optional] or calculator.inputs
        names = [item.name for item in needed]
        more = f", … ({len(names)})" if len(names) > MOST_INPUTS_LISTED else ""
        inputs = ", ".join(names[:MOST_INPUTS_LISTED]) + more
        lines.append(f"- {calculator.name}: {_introduce(calculator)}. Inputs: {inputs}")
    head += " (use calculator to list the inputs of one):"
    return Result(
        "\n".join([head, *lines, *_mention_package()]), data={"found": [calculator.name for calculator in found]}
    )


def _introduce(calculator: Calculator) -> str:
    """Return title and summary, or only the summary if it repeats the title."""
    return (
        calculator.summary
        if calculator.summary.startswith(calculator.title[:12])
        else f"{calculator.title} – {calculator.summary}"
    )


def _mention_package() -> list[str]:
    return [] if is_installed() else [f"{NOT_INSTALLED.capitalize()}."]


def _quote(name: str) -> str:
    line = " ".join(name.split())
    return f"'{line[:60]}{'…' if len(line) > 60 else ''}'"


# One calculator


def describe(calculator: Calculator) -> Result:
    """List the inputs of a calculator."""
    lines = [f"{calculator.name}: {_introduce(calculator)}. Not calculated yet. Inputs:"]
    for item in calculator.inputs:
        optional = " (optional)" if item.optional else ""
        unmeasured = ", or not measured" if item.normal_if_unmeasured else ""
        text = f" – {item.text}" if item.text else ""
        lines.append(f"- {item.name}{optional}: {item.expects()}{unmeasured}{item.describe_points()}{text}")
    lines.append('Give numbers with units ("88 µmol/L"). Without a unit, the first one is assumed.')
    if calculator.has_criteria:
        lines.append(f'Nothing is assumed. Give every input, or "{OTHERS_ABSENT}": true if all others are absent.')
    if calculator.formula:
        lines.append(f"Formula: {calculator.formula}")
    if calculator.example:
        call = {"calculator": calculator.name, "inputs": calculator.example.inputs}
        lines.append(f"Example: {json.dumps(call, ensure_ascii=False)}")
    lines += [_cite(calculator.sources)] if calculator.sources else []
    fields = [{"name": item.name, "expects": item.expects(), "optional": item.optional} for item in calculator.inputs]
    return Result(
        "\n".join(lines),
        citations=_build_citations(calculator, calculator.sources),
        data={"calculator": calculator.name, "inputs": fields},
    )


def format_result(calculation: Calculation) -> Result:
    """Format the value, its meaning, the inputs, the formula and the sources."""
    calculator, outcome = calculation.calculator, calculation.outcome
    lines = [f"{calculator.title}: {_format_with_unit(calculator, outcome.value)}"]
    lines += [f"Meaning: {outcome.interpretation}"] if outcome.interpretation else []
    lines.append(f"Inputs used: {'; '.join(f'{name} {parsed}' for name, parsed in calculation.inputs.items())}")
    if outcome.formula:
        substituted = fill_in(outcome.formula, calculation.inputs, outcome.terms)
        lines.append(f"Formula: {outcome.formula}" + (f" = {substituted}" if substituted != outcome.formula else ""))
    if outcome.points:
        scored = ", ".join(f"{name} {format_value(points)}" for name, points in outcome.points.items() if points)
        lines.append(f"Points: {f'{scored}; all others 0' if scored else 'none'}. Sum: {format_value(outcome.value)}")
    lines += [f"Note: {note}" for note in outcome.notes]
    lines += [_cite(outcome.sources), NOT_ADVICE]
    data = {
        "calculator": calculator.name,
        "value": outcome.value,
        "unit": calculator.unit,
        "inputs": {
            name: parsed.value if isinstance(parsed.value, int | float) else format_value(parsed.value)
            for name, parsed in calculation.inputs.items()
        },
        "points": dict(outcome.points),
        "interpretation": outcome.interpretation,
    }
    return Result("\n".join(lines), citations=_build_citations(calculator, outcome.sources), data=data)


def _format_with_unit(calculator: Calculator, value: float | str) -> str:
    if isinstance(value, str):
        return value
    unit = f" {calculator.unit}" if calculator.unit else ""
    if isinstance(value, int):
        return f"{value}{unit}"
    exact, rounded = f"{value:.6g}", f"{value:.{calculator.digits}f}"
    return f"{rounded}{unit}" + (f" (unrounded {exact})" if float(rounded) != float(exact) else "")


def fill_in(formula: str, inputs: Mapping[str, ParsedInput], terms: Mapping[str, float]) -> str:
    """Return the formula with numbers in place of names."""
    values = {name: parsed.value for name, parsed in inputs.items()} | dict(terms)
    numbers = {
        name: format_value(value)
        for name, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    return re.sub(r"[^\W\d]\w*", lambda found: numbers.get(found[0], found[0]), formula)


def _cite(sources: Sequence[Source]) -> str:
    return "Source: " + "; ".join(source.title + (f", doi:{source.doi}" if source.doi else "") for source in sources)


def _build_citations(calculator: Calculator, sources: Sequence[Source]) -> list[Citation]:
    return [
        Citation(source.doi or f"{calculator.name}-{n}", source.title, source.url)
        for n, source in enumerate(sources, 1)
    ]


def format_problems(calculator: Calculator, problems: Problems) -> tuple[str, str]:
    """Return the reason and the advice of a refusal, within the length limits of both."""
    reason = f"{calculator.name}: {', '.join(problems.wrong)}"[: MOST_REASON - 60]
    if names := list(problems.missing):
        reason += ", " * bool(problems.wrong)
        listed = f"missing: {', '.join(names)}"
        while names and len(listed) > MOST_REASON - len(reason):
            names.pop()
            listed = f"missing: {', '.join(names)} and {len(problems.missing) - len(names)} more"
        reason += listed
    advice = list(problems.advice)
    if problems.missing:
        advice.append("give the missing inputs, or ask the user for them")
        if problems.can_be_absent:
            advice.append(f'if all others are absent, add "{OTHERS_ABSENT}": true')
    return reason, "; ".join(advice)[:MOST_REASON]
