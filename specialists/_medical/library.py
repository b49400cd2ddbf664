"""Built in: the calculators of the package open-medicine that Brain has none of its own for, asked in the same way."""

import importlib.util
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from functools import cache
from typing import Any, get_args

from specialists._medical import units
from specialists._medical.calculator import Calculator, Source, Values, Worked
from specialists._medical.inputs import Choice, Input, Quantity, YesNo
from specialists._medical.patient import (
    ADULT,
    AGE,
    ALBUMIN,
    ALT,
    AST,
    BICARBONATE,
    BMI,
    CALCIUM,
    CREATININE,
    DIASTOLIC,
    GLUCOSE,
    HAEMOGLOBIN,
    HDL,
    HEART_RATE,
    HEIGHT,
    PACO2,
    PAO2,
    PLATELETS,
    RESPIRATORY_RATE,
    SEX,
    SODIUM,
    SYSTOLIC,
    TEMPERATURE,
    TOTAL_CHOLESTEROL,
    UREA_NITROGEN,
    WEIGHT,
    WHITE_CELLS,
)
from specialists._medical.reading import Wrong

LEFT_OUT = {
    "frax": "FRAX is not published as a formula; what is called so there is an estimate",
    "pews": "refill time and oxygen score half of what the Bedside PEWS paper gives them",
    "dabigatran_dosing": "halves the dose under a P-gp inhibitor at a clearance above 50 too, which the label does not",
    "insulin_basal_dosing": "its steps are in no guideline that it cites",
    "warfarin_initiation": "its doses are in no guideline that it cites",
}
"""What is not taken from the package, and why."""
MOST_GRADE = 10
"""A field with no higher bound is a grade that somebody has judged, whatever its name."""
_DOI = re.compile(r"10\.\d{4,9}/\S+")
_PER_MICROLITRE = replace(WHITE_CELLS, measure=WHITE_CELLS.measure.into("/µL"), least=10, most=1_000_000)


def _number(measure: units.Measure, least: float, most: float, also: str = "") -> Quantity:
    return Quantity(name="", measure=measure, least=least, most=most, also=also)


_FIELDS: Mapping[str, Quantity] = {
    "age": AGE,
    "systolic_blood_pressure": SYSTOLIC,
    "systolic_bp": SYSTOLIC,
    "diastolic_bp": DIASTOLIC,
    "heart_rate": HEART_RATE,
    "pulse": HEART_RATE,
    "respiratory_rate": RESPIRATORY_RATE,
    "temperature": TEMPERATURE,
    "weight": WEIGHT,
    "weight_kg": WEIGHT,
    "height_cm": HEIGHT,
    "bmi": BMI,
    "total_cholesterol": TOTAL_CHOLESTEROL,
    "hdl_cholesterol": HDL,
    "serum_creatinine": CREATININE,
    "creatinine": CREATININE,
    "sodium": SODIUM,
    "glucose": GLUCOSE,
    "blood_glucose": GLUCOSE,
    "fasting_glucose": GLUCOSE,
    "bun": UREA_NITROGEN,
    "bicarbonate": BICARBONATE,
    "paco2": PACO2,
    "pco2": PACO2,
    "pao2": PAO2,
    "calcium": CALCIUM,
    "albumin": ALBUMIN,
    "hemoglobin": HAEMOGLOBIN,
    "platelets": PLATELETS,
    "platelet_count": PLATELETS,
    "wbc": WHITE_CELLS,
    "ast": AST,
    "alt": ALT,
    "crcl": _number(units.CLEARANCE, 1, 250, "creatinine_clearance"),
    "renal_value": _number(units.CLEARANCE, 1, 250, "egfr crcl renal_function"),
    "ldh": _number(units.ENZYME, 10, 50_000, "lactate_dehydrogenase"),
    "crp": _number(units.CRP, 0, 1000, "c_reactive_protein"),
    "esr": _number(units.ESR, 0, 200, "erythrocyte_sedimentation_rate sedimentation_rate"),
    "fibrinogen_level": _number(units.FIBRINOGEN, 0, 20, "fibrinogen"),
    "measured_osmolality": _number(units.OSMOLALITY, 150, 700, "measured_osm osmolality"),
    "serum_acetaminophen": _number(units.ACETAMINOPHEN, 0, 2000, "acetaminophen paracetamol serum_paracetamol"),
    "hours_since_ingestion": _number(units.HOURS, 4, 24, "hours time_since_ingestion"),
    "aptt": _number(units.SECONDS, 10, 300),
    "pt_prolongation_seconds": _number(units.SECONDS, 0, 200, "pt_prolongation"),
    "capillary_refill_seconds": _number(units.SECONDS, 0, 30, "capillary_refill capillary_refill_time"),
    "fev1_percent_predicted": _number(units.PERCENT, 5, 150, "fev1"),
    "tbsa_percent": _number(units.PERCENT, 0.1, 100, "tbsa burned_area"),
    "hematocrit_decrease": _number(units.PERCENT, 0, 60),
    "effacement_pct": _number(units.PERCENT, 0, 100, "effacement"),
    "spo2": _number(units.PERCENT, 0, 100, "oxygen_saturation sao2"),
    "bun_increase": _number(units.UREA_NITROGEN, 0, 200),
    "base_deficit": _number(units.BICARBONATE, -30, 40),
    "fluid_sequestration": _number(units.LITRES, -5, 40),
    "current_dose": Quantity(name="", text="units a day", least=0, most=500),
    "femoral_neck_bmd_tscore": Quantity(name="", least=-8, most=8, also="t_score"),
}
"""Its fields of numbers, by their names, as quantities of ours: units and bounds."""
_SEXES = {"is_male": "male", "is_female": "female", "female_sex": "female", "male_gender": "male"}
_MEASURED_HERE = {("bisap", "wbc"): _PER_MICROLITRE, ("ransons", "wbc"): _PER_MICROLITRE}
"""Where it wants another unit than we do."""
_AGES = {"ascvd": (40, 79)}
"""For whom an equation was made; others are refused."""
_ALSO = {
    "ascvd": "pooled cohort equations, ascvd risk, atherosclerotic cardiovascular disease",
    "winters_formula": "winter, winters, expected pco2, respiratory compensation",
    "4ts_hit": "4ts, four ts, hit score, heparin induced thrombocytopenia",
    "nafld_fibrosis": "nafld, nfs, nafld fibrosis score, fatty liver",
    "rumack_matthew": "acetaminophen nomogram, paracetamol overdose, acetaminophen toxicity",
    "nihss": "nih stroke scale, stroke scale",
    "crb65": "crb 65, crb-65",
    "tbsa": "rule of nines, burns, burned surface",
    "parkland": "parkland formula, burns, burn fluids",
    "osmolar_gap": "osmolal gap, toxic alcohol",
    "phq9": "phq 9, depression",
    "gad7": "gad 7, anxiety",
    "epds": "edinburgh, postnatal depression",
    "ciwa_ar": "ciwa, alcohol withdrawal",
    "isth_dic": "dic, disseminated intravascular coagulation",
    "timi_ua_nstemi": "timi, timi nstemi, timi unstable angina",
    "timi_stemi": "timi",
    "ransons": "ranson, pancreatitis",
    "bisap": "pancreatitis",
    "das28": "das 28, rheumatoid arthritis",
    "rts": "revised trauma score",
    "duke_criteria": "modified duke, endocarditis",
    "renal_dose_adjustment": "renal dosing, dose in kidney failure",
    "ipss": "prostate",
    "stop_bang": "sleep apnea",
    "apgar": "newborn",
    "gold_copd": "gold, copd severity",
}
_UNITS = {
    "ascvd": "%",
    "winters_formula": "mmHg",
    "osmolar_gap": "mOsm/kg",
    "parkland": "mL in 24 h",
    "heparin_dosing": "units/h",
    "tbsa": "% of the surface",
}
_IN_WORDS = frozenset(
    {"rivaroxaban_dosing", "enoxaparin_dosing", "apixaban_dosing", "edoxaban_dosing", "renal_dose_adjustment"}
    | {"rumack_matthew", "gold_copd", "canadian_cspine", "ottawa_ankle", "cam_icu"}
)
"""Whose result is what it says; its value is one of the inputs, or a code."""
_METHODS = {("das28", "variant"), ("bisap", "pco2")}
"""Its defaults that may stand: a way of computing, and a second sign that the first replaces. All others would be
values of a patient, and must be given."""


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
        also=_ALSO.get(name, ""),
        group="open-medicine",
        inputs=tuple(inputs.values()),
        work=_work(tool, inputs, in_words=name in _IN_WORDS),
        sources=(),
        unit=_UNITS.get(name, ""),
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
    optional = (not info.is_required() and info.default is None) or (calculator, field) in _METHODS
    if field in _SEXES:
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
    """A field of text: its options, where the description names them, or the drugs of the package's table."""
    if field == "drug_name":
        from open_medicine.mcp.calculators import renal_dose_adjustment

        drugs = next(v for v in vars(renal_dose_adjustment).values() if isinstance(v, dict) and "gabapentin" in v)
        return Choice(name=field, text="generic name", options=dict.fromkeys(drugs, 0.0), also="drug medication")
    return Choice(name=field, text="", options=dict.fromkeys(re.findall(r"'(\w+)'", text), 0.0))


def _quantity(calculator: str, field: str, info: Any, text: str, *, whole: bool, optional: bool) -> Quantity:
    known = _MEASURED_HERE.get((calculator, field)) or _FIELDS.get(field)
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
        low, high = _AGES.get(calculator, (0 if calculator in ("canadian_cspine", "rockall") else 18, 120))
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
    if field in _SEXES:
        return value == _SEXES[field]
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
    doi = str(evidence.source_doi)
    return Source(" ".join(str(evidence.description).split()), doi if _DOI.fullmatch(doi) else "")
