"""Adapt the calculators of the package open-medicine to `Calculator`."""

import importlib.util
import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, get_args

from msgspec import Struct
from msgspec.structs import replace

from specialists._medical.calculator import Calculator, Formula, Outcome, Source, Values
from specialists._medical.inputs import Choice, Input, Number, YesNo
from specialists._medical.parsing import InvalidInput

_MOST_GRADE = 10
"""A field with an upper bound of 10 or less is a grade, not a measurement."""
_DOI = re.compile(r"10\.\d{4,9}/\S+")


class Entry(Struct, frozen=True, forbid_unknown_fields=True):
    """Additions of `calculators.toml` to one calculator of the package.

    Attributes:
        group: Organ or occasion.
        aliases: Other names.
        unit: Unit of the value.
        is_text: Whether the result is the package's interpretation, because its value is a code or an input.
        age: Valid ages of the equation, in years.
        fields: Fields that use another shared input than elsewhere.
        defaults: Fields whose package default is allowed. Other defaults would assume patient values.
    """

    group: str
    aliases: tuple[str, ...] = ()
    unit: str = ""
    is_text: bool = False
    age: tuple[float, float] = (18, 120)
    fields: dict[str, str] = {}
    defaults: tuple[str, ...] = ()


class Adaptation(Struct, frozen=True, forbid_unknown_fields=True):
    """Additions of `calculators.toml` to the package.

    Attributes:
        left_out: Excluded calculators, with the reasons.
        sexes: Yes/no fields for the sex.
        dois: Corrections of wrong DOIs in the package.
        fields: Number fields, with units and bounds.
        calculators: Additions to each calculator.
    """

    left_out: dict[str, str]
    sexes: dict[str, str]
    dois: dict[str, str]
    fields: dict[str, Number | Choice]
    calculators: dict[str, Entry]


def is_installed() -> bool:
    """Return whether the package can be imported."""
    return importlib.util.find_spec("open_medicine") is not None


def adapt(adaptation: Adaptation, replaced: frozenset[str]) -> tuple[Calculator, ...]:
    """Return the calculators of the package, without replaced and excluded ones; none if it is not installed."""
    if not is_installed():
        return ()
    from open_medicine.mcp.registry import CALCULATOR_REGISTRY

    tools = {name.removeprefix("calculate_"): tool for name, tool in CALCULATOR_REGISTRY.items()}
    return tuple(
        _adapt_tool(name, tool, adaptation)
        for name, tool in tools.items()
        if name not in replaced and name not in adaptation.left_out
    )


def _adapt_tool(name: str, tool: Any, adaptation: Adaptation) -> Calculator:
    entry = adaptation.calculators.get(name, Entry(group="others"))
    fields = tool.pydantic_model.model_fields
    inputs = {field: _make_input(field, info, entry, adaptation) for field, info in fields.items()}
    title, summary = _describe(name, tool.description)
    return Calculator(
        name=name,
        title=title,
        summary=summary,
        aliases=entry.aliases,
        group=entry.group,
        inputs=tuple(inputs.values()),
        compute=Formula(_make_formula(tool, inputs, entry, adaptation)),
        unit=entry.unit,
        digits=2,
        notes=("Computed with the package open-medicine.",),
    )


def _describe(name: str, description: str) -> tuple[str, str]:
    """Return a title and a summary from the description in the package."""
    first = re.split(r"(?<=[a-z)])\. ", description)[0].rstrip(".")
    summary = re.sub(
        r"^(?:Calculates?|Evaluates?|Provides|Classifies|Records and interprets|Applies|Looks up) (?:the )?"
        r"(?:FDA-approved |FDA/guideline-approved )?",
        "",
        first,
    )
    title = re.split(r" (?:for|to|based|in|of|using) |, ", summary.partition("(")[0])[0].strip()
    short = title if 2 < len(title) < 60 else name.replace("_", " ")
    inside = re.search(r"^[^(]{0,30}\(([A-Za-z][^)]{2,60})\)", summary)
    return (f"{short} ({inside[1]})" if inside else short[0].upper() + short[1:]), _shorten(summary, 140)


def _make_input(field: str, info: Any, entry: Entry, adaptation: Adaptation) -> Number | YesNo | Choice:
    """Build an input from a field of a pydantic model."""
    kind = next((one for one in (info.annotation, *get_args(info.annotation)) if one is not type(None)), None)
    kind = next((one for one in get_args(info.annotation) if one is not type(None)), kind)
    text = " ".join((info.description or "").split())
    optional = (not info.is_required() and info.default is None) or field in entry.defaults
    if field in adaptation.sexes:
        sex = adaptation.fields["sex"]
        assert isinstance(sex, Choice)
        return sex
    if kind is bool:
        return YesNo(name=field, text=_shorten(text), optional=optional)
    if isinstance(kind, type) and issubclass(kind, Enum):
        options = tuple(str(member.value) for member in kind)
        default = str(info.default.value) if optional and isinstance(info.default, Enum) else ""
        return Choice(name=field, text=_shorten(text), options=options, optional=optional, default=default)
    if kind is str:  # the description lists the options
        return Choice(name=field, options=tuple(dict.fromkeys(re.findall(r"'(\w+)'", text))))
    known = adaptation.fields.get(entry.fields.get(field, field))
    low = next((one.ge for one in info.metadata if hasattr(one, "ge")), 0)
    high = next((one.le for one in info.metadata if hasattr(one, "le")), 1000)
    if not isinstance(known, Number) or high <= _MOST_GRADE:
        return Number(name=field, text=_shorten(text, 300), bounds=(low, high), whole=kind is int, optional=optional)
    if field == "age":
        return replace(known, bounds=entry.age)
    aliases = known.aliases if known.name == field else (known.name, *known.aliases)
    return replace(known, name=field, aliases=aliases, optional=optional)


def _make_formula(
    tool: Any, inputs: Mapping[str, Input], entry: Entry, adaptation: Adaptation
) -> Callable[[Values], Outcome]:
    """Return a function that calls the package with parsed values."""
    fields = tool.pydantic_model.model_fields

    def compute(values: Values) -> Outcome:
        from pydantic import ValidationError

        given = {field: values[item.name] for field, item in inputs.items() if values[item.name] is not None}
        arguments = {field: _convert(field, value, fields[field], adaptation) for field, value in given.items()}
        try:
            result = tool.execute_function(tool.pydantic_model(**arguments))
        except ValidationError as error:
            wrong = sorted({str(problem["loc"][0]) for problem in error.errors() if problem["loc"]})
            raise InvalidInput(f"not accepted: {', '.join(wrong) or 'this combination'}") from error
        except (ValueError, ArithmeticError, KeyError, TypeError) as error:
            raise InvalidInput("no result for this combination of inputs") from error
        if result.value is None:
            raise InvalidInput(_shorten(str(result.interpretation), 200))
        interpretation = " ".join(str(result.interpretation).split())
        doi = str(result.evidence.source_doi)
        doi = adaptation.dois.get(doi, doi)
        title = " ".join(str(result.evidence.description).split())
        sources = (Source(title, doi if _DOI.fullmatch(doi) else ""),)
        if entry.is_text:
            return Outcome(interpretation, sources=sources)
        return Outcome(_plain_value(result.value), interpretation=interpretation, sources=sources)

    return compute


def _convert(field: str, value: Any, info: Any, adaptation: Adaptation) -> Any:
    """Convert a value to the type of the package field."""
    if field in adaptation.sexes:
        return value == adaptation.sexes[field]
    if info.annotation is int and isinstance(value, float):
        return int(value) if field == "age" else round(value)
    return value


def _plain_value(value: Any) -> int | float | str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return value
    return "; ".join(f"{key}: {item}" for key, item in value.items()) if isinstance(value, Mapping) else str(value)


def _shorten(text: str, most: int = 160) -> str:
    return text if len(text) <= most else text[:most].rsplit(" ", 1)[0] + " …"
