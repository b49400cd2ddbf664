"""Built in: doses that stand for each other: steroids and opioids."""

import re
from collections.abc import Mapping
from typing import Any

from specialists._medical import units
from specialists._medical.calculator import Calculator, Example, Source, Values, Worked
from specialists._medical.inputs import Choice, Quantity
from specialists._medical.names import KEY_LENGTH
from specialists._medical.reading import Wrong, key_of
from specialists._medical.steps import below

STEROIDS = {
    "hydrocortisone": 20,
    "cortisone": 25,
    "prednisone": 5,
    "prednisolone": 5,
    "methylprednisolone": 4,
    "triamcinolone": 4,
    "dexamethasone": 0.75,
    "betamethasone": 0.75,
}
"""Milligrams of each that do as much against inflammation."""
_ROUTES = ("iv", "po", "oral", "im")
_STEROID_WORDS = {f"{name}_{route}": name for name in STEROIDS for route in _ROUTES} | {
    f"methyl_prednisolone{route}": "methylprednisolone" for route in ("", *(f"_{one}" for one in _ROUTES))
}

OPIOIDS = {
    "codeine": 0.15,
    "hydrocodone": 1,
    "hydromorphone": 5,
    "methadone": 4.7,
    "morphine": 1,
    "oxycodone": 1.5,
    "oxymorphone": 3,
    "tapentadol": 0.4,
    "tramadol": 0.2,
}
"""Oral morphine in mg for one mg (CDC 2022)."""
BUCCAL, PATCH = 0.13, 2.4
"""For a microgram of fentanyl from a tablet in the cheek, and for a patch of a microgram an hour, worn for a day."""


_TIMES_A_DAY = (
    dict.fromkeys(("once daily", "once a day"), 1)
    | dict.fromkeys(("bid", "twice daily", "twice a day"), 2)
    | dict.fromkeys(("tid", "three times daily", "three times a day"), 3)
    | dict.fromkeys(("qid", "four times daily", "four times a day"), 4)
)
_HOW_OFTEN = re.compile(
    rf"([\d.,]+ ?[a-zµμ]+) +({'|'.join(_TIMES_A_DAY)}|(?:every|q) ?([1-9]\d?) ?(?:h|hr|hrs|hours?))", re.IGNORECASE
)

TIMES = Quantity(name="doses_per_day", measure=units.PER_DAY, least=0, most=100)


def steroid(x: Values) -> Worked:
    return Worked(
        x.dose * STEROIDS[x.to_steroid] / STEROIDS[x.from_steroid],
        {"equivalent_from": STEROIDS[x.from_steroid], "equivalent_to": STEROIDS[x.to_steroid]},
        notes=[f"mg of {x.to_steroid} for {x.dose:g} mg of {x.from_steroid}."],
    )


def _named(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs with a steroid told as `["prednisone", 10, "mg"]`, or as a field, as its name and dose."""
    found = dict(raw)
    for name, value in raw.items():
        steroid = key_of(name[:KEY_LENGTH]).removesuffix("_dose")
        if _STEROID_WORDS.get(steroid, steroid) in STEROIDS and "dose" not in raw:
            found["from_steroid"], found["dose"] = steroid, found.pop(name)
        if isinstance(value, list) and len(value) == 3 and isinstance(value[0], str) and "dose" not in raw:
            found[name], found["dose"] = value[0], value[1:]
    return found


def _opioid(name: str) -> Quantity:
    return Quantity(
        name=name,
        text="a day, all doses together",
        measure=units.DOSE,
        least=0,
        most=10_000,
        optional=True,
        also=f"{name}_daily_dose {name}_per_day {name}_daily {name}_total {name}_mg_per_day",
    )


def _a_day(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs with `oxycodone_dose` and `oxycodone_doses_per_day` as `oxycodone`, the dose of a day."""
    found = {key_of(name[:100]): value for name, value in raw.items()}
    if any(name.startswith("buprenorphine") for name in found):
        raise Wrong(
            "buprenorphine has no factor (CDC 2022): as a partial agonist it is not counted in MME; leave it out"
        )
    for quantity in EACH:
        dose = found.pop(f"{quantity.name}_dose", None)
        times = [found.pop(f"{quantity.name}_{word}_per_day", None) for word in ("doses", "dose")]
        if dose is not None:
            found[quantity.name] = _times(quantity, dose, next((n for n in times if n is not None), None))
        found |= _often(quantity, found.get(quantity.name))
    return found


def _often(quantity: Quantity, dose: Any) -> dict[str, float]:
    """The dose of a day of `20 mg bid` or `15 mg every 4 hours`; nothing for what is told otherwise."""
    found = _HOW_OFTEN.fullmatch(dose.strip()[:60]) if isinstance(dose, str) else None
    if found is None:
        return {}
    times = 24 / int(found[3]) if found[3] else _TIMES_A_DAY[" ".join(found[2].lower().split())]
    return {quantity.name: _times(quantity, found[1], times)}


def _times(quantity: Quantity, dose: Any, times: Any) -> float:
    """Raises `Wrong` when either cannot be read."""
    if times is None:
        raise Wrong(f"{quantity.name}_doses_per_day is missing")
    return float(quantity.read(dose, None).value * TIMES.read(times, None).value)


def _no_opioid(x: Values) -> list[str]:
    if any(x[one.name] is not None for one in EACH):
        return []
    return [f"an opioid, at least one of {', '.join(one.name for one in EACH)}"]


def mme(x: Values) -> Worked:
    factors = {**OPIOIDS, "fentanyl_buccal": BUCCAL, "fentanyl_patch": PATCH}
    each = {name: x[name] * factor for name, factor in factors.items() if x[name] is not None}
    notes = [f"{name.replace('_', ' ')}: {x[name]:g} × {factors[name]:g} = {value:g}." for name, value in each.items()]
    return Worked(sum(each.values()), notes=notes)


EACH = (
    *(_opioid(name) for name in OPIOIDS),
    Quantity(
        name="fentanyl_buccal",
        text="µg a day",
        measure=units.MICROGRAMS,
        least=0,
        most=20_000,
        optional=True,
        also="fentanyl_buccal_per_day fentanyl_buccal_daily_dose",
    ),
    Quantity(
        name="fentanyl_patch",
        text="µg per hour of the patch",
        measure=units.MICROGRAMS_AN_HOUR,
        least=0,
        most=1000,
        optional=True,
        also="fentanyl_transdermal",
    ),
)

CALCULATORS = (
    Calculator(
        name="steroid_conversion",
        title="Steroid conversion",
        also="glucocorticoid equivalents, steroid equivalents, "
        "corticosteroid conversion, steroid equivalence, glucocorticoid conversion, steroid "
        "conversion calculator, prednisone equivalent",
        says="equivalent dose of another glucocorticoid",
        group="doses",
        inputs=(
            Choice(
                name="from_steroid",
                options=STEROIDS,
                words=_STEROID_WORDS,
                also="input_steroid steroid from drug from_drug current_steroid",
            ),
            Quantity(
                name="dose",
                text="of the first steroid",
                measure=units.DOSE,
                least=0.01,
                most=5000,
                also="input_dose from_dose amount",
            ),
            Choice(
                name="to_steroid",
                options=STEROIDS,
                words=_STEROID_WORDS,
                also="target_steroid to output_steroid target target_drug to_drug convert_to",
            ),
        ),
        work=steroid,
        prepare=_named,
        formula="dose × equivalent_to / equivalent_from",
        unit="mg",
        digits=2,
        notes=(
            "By anti-inflammatory effect of oral or intravenous doses; it says nothing of "
            "mineralocorticoid effect or duration.",
        ),
        sources=(
            Source(
                "Common equivalence table, e.g. Liu D et al. Allergy Asthma Clin Immunol 2013;9:30",
                "10.1186/1710-1492-9-30",
            ),
        ),
        example=Example({"from_steroid": "prednisone", "dose": "40 mg", "to_steroid": "dexamethasone"}, 6.0),
    ),
    Calculator(
        name="mme",
        title="Morphine milligram equivalents (MME)",
        also="ome, medd, omedd, morphine equivalents, morphine milligram equivalents, morphine equivalent, "
        "opioid conversion, morphine "
        "milligram equivalents mme calculator, oral morphine equivalent, opioid dose",
        says="a day's opioids as oral morphine",
        group="doses",
        inputs=EACH,
        prepare=_a_day,
        work=mme,
        lacks=_no_opioid,
        formula="sum of each day's dose × its factor",
        unit="MME/day",
        digits=1,
        bands=below(
            (50, "below the range of 50 in which the CDC asks for caution"),
            (90, "50 or more: reassess benefits and risks"),
            rest="90 or more: high",
        ),
        notes=(
            "Factors of the CDC 2022; not for changing from one opioid to another. Fentanyl in the "
            "cheek: factor 0.13 of earlier CDC and CMS lists.",
        ),
        sources=(
            Source(
                "Dowell D et al. CDC Clinical Practice Guideline. MMWR Recomm Rep 2022;71(3):1-95",
                "10.15585/mmwr.rr7103a1",
            ),
        ),
        example=Example({"oxycodone": "60 mg", "fentanyl_patch": "25 µg/h"}, 150),
    ),
)
