"""Built in: `medical`, published calculators and scores: found by name, and what is missing is named."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta

from brain import Citation, Refused, Result, specialist
from specialists._medical.calculator import (
    NOT_ADVICE,
    OTHERS_ABSENT,
    Answer,
    Calculator,
    Problems,
)
from specialists._medical.catalog import close_to, is_sentence, named, own, search, telling
from specialists._medical.inputs import Input
from specialists._medical.library import installed, library
from specialists._medical.reading import shown
from specialists._medical.sentences import said_whole
from specialists._medical.showing import list_of_inputs, put_in

REASON_LENGTH = 390
INPUTS_SHOWN = 8
MORE_IN_PACKAGE = "about 50 more come with the package open-medicine: pip install 'brain-sse[medical]'"
KNOWN_CASES = (
    ("ckd_epi_2021", {"age": 50, "sex": "female", "creatinine": "61.88 µmol/L"}, 105.3),
    ("meld_na", {"creatinine": 1.9, "bilirubin": 4.2, "inr": 1.2, "sodium": 130, "dialysis": False}, 25),
    ("due_date", {"lmp": "2024-01-01"}, "2024-10-07"),
)
"""Worked cases that the health check computes."""


def healthy() -> str | None:
    """What is wrong: a known case that gives another value."""
    for name, inputs, expected in KNOWN_CASES:
        value = known(name).answer(inputs).worked.value
        if value != expected and not (isinstance(value, float) and abs(value - float(expected)) < 0.1):
            return f"{name} gives {value} for a case whose answer is {expected}"
    return None


@specialist(
    name="medical",
    timeout=10,
    read_only=True,
    outside=False,
    tags=("medical", "calculator"),
    health=healthy,
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
    ],
)
def medical(
    calculator: Annotated[
        str | None, Meta(description="its name; without inputs it lists what it needs", examples=["cockcroft_gault"])
    ] = None,
    inputs: Annotated[
        dict[str, Any] | None, Meta(description='by name, with units: {"creatinine":"88 µmol/L"}')
    ] = None,
    search: Annotated[str | None, Meta(description="words, to find a calculator")] = None,
) -> Result:
    """About 120 medical calculators and scores (kidney, heart, liver, sepsis, doses, …). Never guess an input."""
    if calculator is None or not calculator.strip():
        if inputs:
            raise Refused("inputs were given, but no calculator; name one, or find one with search")
        return worked_out(search) or found_by(search) if search and search.strip() else overview()
    if is_sentence(calculator) and (found := worked_out(calculator) or instead_of_name(calculator)):
        return found
    chosen = known(calculator)
    if not inputs:
        return described(chosen)
    return calculated(chosen, inputs)


def calculated(chosen: Calculator, inputs: Mapping[str, Any]) -> Result:
    """The answer of a calculator.

    Raises:
        Refused: naming what is wrong with the inputs.
    """
    try:
        return answered(chosen.answer(inputs))
    except Problems as problems:
        raise Refused(refused(chosen, problems)) from problems


def worked_out(sentence: str) -> Result | None:
    """The answer where a sentence says all that the calculator needs which it names."""
    said = said_whole(sentence, everything())
    return None if said is None else calculated(*said)


def everything() -> tuple[Calculator, ...]:
    """Ours, then the package's that ours do not replace."""
    ours = own()
    return (*ours, *library(frozenset(name for one in ours for name in one.replaces)))


def known(name: str) -> Calculator:
    """The calculator of this name.

    Raises:
        Refused: when none or several go by it, with the nearest.
    """
    found = named(name, everything())
    if len(found) == 1:
        return found[0]
    if found:
        raise Refused(f"{_short(name)} could be {', '.join(one.name for one in found)}; ask again with one of them")
    close = ", ".join(one.name for one in close_to(name, everything()))
    hint = f"nearest: {close}; or find one with search" if close else "find one with search"
    more = "" if installed() else f"; {MORE_IN_PACKAGE}"
    raise Refused(f"no calculator is named {_short(name)}; {hint}{more}")


def _short(name: str) -> str:
    line = " ".join(name.split())
    return f"'{line[:60]}{'…' if len(line) > 60 else ''}'"


def overview() -> Result:
    """What there is, by group, and how it is asked for."""
    groups: dict[str, list[str]] = {}
    for one in everything():
        groups.setdefault(one.group, []).append(one.name)
    lines = [f"- {group}: {', '.join(names)}" for group, names in groups.items()]
    head = (
        f"Medical calculators: {len(everything())}. Ask with calculator to see its inputs, or with search to find one."
    )
    return Result("\n".join([head, *lines, *_without_package()]), data={"calculators": groups})


def _without_package() -> list[str]:
    return [] if installed() else [MORE_IN_PACKAGE.capitalize()]


def found_by(query: str) -> Result:
    """At most eight calculators for some words, one line each; all of them for words that tell nothing."""
    if not telling(query):
        return overview()
    found = search(query, everything())
    if not found:
        groups = ", ".join(dict.fromkeys(one.group for one in everything()))
        told = f"No calculator fits {_short(query)}. There are ones for: {groups}. Try other words."
        return Result("\n".join([told, *_without_package()]), data={"found": []})
    return _listed(found, f"Calculators for {_short(query)}")


def instead_of_name(sentence: str) -> Result | None:
    """What fits a sentence that stands where a name should; None when it has a name in it, or nothing fits."""
    if named(sentence, everything()):
        return None
    found = search(sentence, everything())
    return _listed(found, f"No calculator is named {_short(sentence)}. Calculators for it") if found else None


def _listed(found: Sequence[Calculator], head: str) -> Result:
    lines = [f"- {one.name}: {_told(one)}. Inputs: {_inputs_in_short(one)}" for one in found]
    told = f"{head}; ask with calculator to see what one needs:"
    return Result("\n".join([told, *lines, *_without_package()]), data={"found": [one.name for one in found]})


def _told(one: Calculator) -> str:
    """Its title and what it says, which may begin alike."""
    return one.says if one.says.startswith(one.title[:12]) else f"{one.title} – {one.says}"


def _inputs_in_short(one: Calculator) -> str:
    names = [each.name for each in one.inputs if not each.optional] or [each.name for each in one.inputs]
    more = f", … ({len(names)})" if len(names) > INPUTS_SHOWN else ""
    return ", ".join(names[:INPUTS_SHOWN]) + more


def described(one: Calculator) -> Result:
    """What a calculator needs: the answer to a call without inputs."""
    lines = [f"{one.name}: {_told(one)}. Not calculated yet: it needs these inputs."]
    lines += list_of_inputs(one)
    lines.append('Give numbers with their unit ("88 µmol/L"); alone they are taken in the unit named first.')
    if one.criteria:
        lines.append(f'Nothing is assumed: give each, or "{OTHERS_ABSENT}": true when all that is not named is absent.')
    if one.formula:
        lines.append(f"Formula: {one.formula}")
    if one.example:
        call = {"calculator": one.name, "inputs": dict(one.example.inputs)}
        lines.append(f"Example: {json.dumps(call, ensure_ascii=False)}")
    lines += [_source_line(one, one.sources)] if one.sources else []
    return Result(
        "\n".join(lines),
        citations=_citations(one, one.sources),
        data={"calculator": one.name, "inputs": [_field(each) for each in one.inputs]},
    )


def _field(one: Input) -> Mapping[str, Any]:
    return {"name": one.name, "expects": one.expects(), "optional": one.optional}


def answered(answer: Answer) -> Result:
    """A result for a reader: the value, what it means, what went in, how, and where that is published."""
    one, worked = answer.calculator, answer.worked
    sources = worked.sources or one.sources
    lines = [f"{one.title}: {_value(one, worked.value)}"]
    lines += [f"Meaning: {answer.reading}"] if answer.reading else []
    lines.append(f"Inputs used: {'; '.join(f'{name} {read}' for name, read in answer.inputs.items())}")
    lines += _formula(answer)
    if worked.points:
        scored = ", ".join(f"{name} {shown(points)}" for name, points in worked.points.items() if points)
        others = f"{scored}; all others 0" if scored else "none"
        lines.append(f"Points: {others}. Sum: {shown(worked.value)}")
    lines += [f"Note: {note}" for note in (*answer.notes, *one.notes)]
    lines += [_source_line(one, sources), NOT_ADVICE]
    return Result("\n".join(lines), citations=_citations(one, sources), data=_data(answer))


def _value(one: Calculator, value: float | str) -> str:
    if isinstance(value, str):
        return value
    unit = f" {one.unit}" if one.unit else ""
    if isinstance(value, int):
        return f"{value}{unit}"
    exact = f"{value:.6g}"
    rounded = f"{value:.{one.digits}f}"
    return f"{rounded}{unit}" + (f" (unrounded {exact})" if float(rounded) != float(exact) else "")


def _formula(answer: Answer) -> list[str]:
    formula = answer.worked.formula or answer.calculator.formula
    if not formula:
        return []
    filled = put_in(formula, answer.inputs, answer.worked.steps)
    return [f"Formula: {formula}" + (f" = {filled}" if filled != formula else "")]


def _source_line(one: Calculator, sources: Sequence[Any]) -> str:
    return "Source: " + "; ".join(source.title + (f", doi:{source.doi}" if source.doi else "") for source in sources)


def _citations(one: Calculator, sources: Sequence[Any]) -> list[Citation]:
    return [Citation(source.doi or f"{one.name}-{n}", source.title, source.url) for n, source in enumerate(sources, 1)]


def _data(answer: Answer) -> Mapping[str, Any]:
    return {
        "calculator": answer.calculator.name,
        "value": answer.worked.value,
        "unit": answer.calculator.unit,
        "inputs": {
            name: shown(read.value) if not isinstance(read.value, int | float) else read.value
            for name, read in answer.inputs.items()
        },
        "points": dict(answer.worked.points),
        "interpretation": answer.reading,
    }


def refused(one: Calculator, problems: Problems) -> str:
    """All problems in one line, as far as it is long enough."""
    parts = [f"{one.name}: {'; '.join(problems.wrong)}"] if problems.wrong else [f"{one.name}:"]
    hint = ""
    if problems.missing and problems.criteria:
        hint = f'; if all else is absent, add "{OTHERS_ABSENT}": true to inputs'
    head = parts[0][: REASON_LENGTH - len(hint) - 60] + (
        "; " if problems.wrong and problems.missing else " " if problems.missing else ""
    )
    return head + (_missing(problems.missing, REASON_LENGTH - len(head) - len(hint)) + hint if problems.missing else "")


def _missing(names: Sequence[str], room: int) -> str:
    """As many of the missing names as there is room for, and how many more there are."""
    text = f"missing: {', '.join(names)}"
    if len(text) <= room:
        return text
    kept = list(names)
    while kept and len(f"missing: {', '.join(kept)} and {len(names)} more (ask without inputs)") > room:
        kept.pop()
    return f"missing: {', '.join(kept)} and {len(names) - len(kept)} more (ask without inputs)"
