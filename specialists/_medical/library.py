"""Built in: the calculators of the package open-medicine that Brain has none of its own for, asked in the same way."""

import importlib.util
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from functools import cache
from typing import Any, get_args

from specialists._medical.calculator import Calculator, Source, Values, Worked
from specialists._medical.inputs import Choice, Input, Quantity, YesNo
from specialists._medical.library_fields import (
    AGES,
    ALSO,
    DOIS,
    FIELDS,
    GROUP_OF,
    IN_WORDS,
    LEFT_OUT,
    MEASURED_HERE,
    METHODS,
    SEXES,
    UNITS,
)
from specialists._medical.patient import (
    ADULT,
    SEX,
)
from specialists._medical.reading import Wrong

MOST_GRADE = 10
"""A field with no higher bound is a grade that somebody has judged, whatever its name."""

_DOI = re.compile(r"10\.\d{4,9}/\S+")


def installed() -> bool:
    """Whether the package is there."""
    return importlib.util.find_spec("open_medicine") is not None


@cache
def library(replaced: frozenset[str]) -> tuple[Calculator, ...]:
    """Its calculators but those that ours replace; none without the package."""
    if not installed():
        return ()
    from open_medicine.mcp.registry import CALCULATOR_REGISTRY

    named = {name.removeprefix("calculate_"): tool for name, tool in CALCULATOR_REGISTRY.items()}
    return tuple(_adapted(name, tool) for name, tool in named.items() if name not in replaced | LEFT_OUT.keys())


def _adapted(name: str, tool: Any) -> Calculator:
    fields = tool.pydantic_model.model_fields
    inputs = {field: _input(name, field, info) for field, info in fields.items()}
    title, says = _told(name, tool.description)
    return Calculator(
        name=name,
        title=title,
        says=says,
        also=ALSO.get(name, ""),
        group=GROUP_OF.get(name, "others"),
        inputs=tuple(inputs.values()),
        work=_work(tool, inputs, in_words=name in IN_WORDS),
        sources=(),
        unit=UNITS.get(name, ""),
        example=None,
        digits=2,
        notes=("Computed with the package open-medicine.",),
    )


def _told(name: str, description: str) -> tuple[str, str]:
    first = re.split(r"(?<=[a-z)])\. ", description)[0].rstrip(".")
    says = re.sub(
        r"^(?:Calculates?|Evaluates?|Provides|Classifies|Records and interprets|Applies|Looks up) (?:the )?"
        r"(?:FDA-approved |FDA/guideline-approved )?",
        "",
        first,
    )
    title = re.split(r" (?:for|to|based|in|of|using) |, ", says.partition("(")[0])[0].strip()
    short = title if 2 < len(title) < 60 else name.replace("_", " ")
    inside = re.search(r"^[^(]{0,30}\(([A-Za-z][^)]{2,60})\)", says)
    return (f"{short} ({inside[1]})" if inside else short[0].upper() + short[1:]), _short(says, 140)


def _input(calculator: str, field: str, info: Any) -> Input:
    """A field of a pydantic model as an input of ours."""
    kind = next((one for one in (info.annotation, *get_args(info.annotation)) if one is not type(None)), None)
    kind = next((one for one in get_args(info.annotation) if one is not type(None)), kind)
    text = " ".join((info.description or "").split())
    optional = (not info.is_required() and info.default is None) or (calculator, field) in METHODS
    if field in SEXES:
        return SEX
    if kind is bool:
        return YesNo(name=field, text=_short(text), optional=optional)
    if isinstance(kind, type) and issubclass(kind, Enum):
        options = {str(member.value): 0.0 for member in kind}
        default = str(info.default.value) if optional and isinstance(info.default, Enum) else ""
        return Choice(name=field, text=_short(text), options=options, optional=optional, default=default)
    if kind is str:
        return _words(field, text)
    return _quantity(calculator, field, info, text, whole=kind is int, optional=optional)


def _words(field: str, text: str) -> Choice:
    """A field of text: its options, which the description names."""
    return Choice(name=field, text="", options=dict.fromkeys(re.findall(r"'(\w+)'", text), 0.0))


def _quantity(calculator: str, field: str, info: Any, text: str, *, whole: bool, optional: bool) -> Quantity:
    known = MEASURED_HERE.get((calculator, field)) or FIELDS.get(field)
    least, most = _bounds(info.metadata)
    if known is None or (most is not None and most <= MOST_GRADE):
        return Quantity(
            name=field,
            text=_short(text, 300),
            least=least if least is not None else 0,
            most=most if most is not None else 1000,
            whole=whole,
            optional=optional,
        )
    if field == "age":
        low, high = AGES.get(calculator, (0 if calculator == "canadian_cspine" else 18, 120))
        return ADULT.within(low, high)
    also = f"{known.name} {known.also}" if known.name != field else known.also
    return replace(known, name=field, also=also, text=known.text or "", optional=optional)


def _bounds(metadata: Sequence[Any]) -> tuple[float | None, float | None]:
    least = next((one.ge for one in metadata if hasattr(one, "ge")), None)
    most = next((one.le for one in metadata if hasattr(one, "le")), None)
    return least, most


def _short(text: str, most: int = 160) -> str:
    return text if len(text) <= most else text[:most].rsplit(" ", 1)[0] + " …"


def _work(tool: Any, inputs: Mapping[str, Input], *, in_words: bool) -> Callable[[Values], Worked]:
    """Calls the package with our values; what it refuses is refused with the field's name."""
    fields = tool.pydantic_model.model_fields

    def work(x: Values) -> Worked:
        from pydantic import ValidationError

        values = {field: _handed_over(field, one, x[one.name], fields[field]) for field, one in inputs.items()}
        try:
            found = tool.execute_function(
                tool.pydantic_model(**{field: value for field, value in values.items() if value is not None})
            )
        except ValidationError as error:
            wrong = sorted({str(problem["loc"][0]) for problem in error.errors() if problem["loc"]})
            raise Wrong(f"not accepted: {', '.join(wrong) or 'this combination'}") from error
        except (ValueError, ArithmeticError, KeyError, TypeError) as error:
            raise Wrong("it has no result for this combination of inputs") from error
        if found.value is None:
            raise Wrong(_short(str(found.interpretation), 200))
        told, sources = " ".join(str(found.interpretation).split()), (_source(found.evidence),)
        return Worked(told, sources=sources) if in_words else Worked(_plain(found.value), reading=told, sources=sources)

    return work


def _handed_over(field: str, one: Input, value: Any, info: Any) -> Any:
    if field in SEXES:
        return value == SEXES[field]
    if info.annotation is int and isinstance(value, float):
        return int(value) if field == "age" else round(value)
    return value


def _plain(value: Any) -> float | str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return value
    return "; ".join(f"{k}: {v}" for k, v in value.items()) if isinstance(value, Mapping) else str(value)


def _source(evidence: Any) -> Source:
    doi = DOIS.get(str(evidence.source_doi), str(evidence.source_doi))
    return Source(" ".join(str(evidence.description).split()), doi if _DOI.fullmatch(doi) else "")
