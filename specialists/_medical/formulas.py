"""The formulas of `calculators.toml`. Scores that only add up points need none.

Each function takes inputs by name, in the canonical units of `calculators.toml`; a missing optional input is None.
`points` has the points of each input. The sources are in `calculators.toml`.
"""

import re
from collections.abc import Callable, Mapping
from datetime import date, timedelta
from math import exp, log
from typing import Any

from specialists._medical.calculator import OTHERS_ABSENT, Formula, Outcome, Preparation, Values, add_up
from specialists._medical.inputs import Bands, Choice, Input
from specialists._medical.parsing import KEY_LENGTH, InvalidInput, format_value, parse_yes_no, to_key
from specialists._medical.patient import (
    CM_PER_INCH,
    FIVE_FEET,
    RESPIRATORY_QUOTIENT,
    SEA_LEVEL,
    WATER_VAPOUR,
    Sex,
    adjusted_weight,
    body_mass_index,
    ideal_weight,
    mean_pressure,
)

Points = Mapping[str, float]
Constants = Mapping[str, Any]

FORMULAS: dict[str, Formula] = {}
PREPARATIONS: dict[str, Preparation] = {}


def formula(function: Callable[..., Any]) -> Callable[..., Any]:
    """Register a function for the keys `compute` and `missing`."""
    FORMULAS[function.__name__] = Formula(function)
    return function


def preparation(
    function: Callable[[Mapping[str, Any], Mapping[str, Input]], Mapping[str, Any]],
) -> Callable[[Mapping[str, Any], Mapping[str, Input]], Mapping[str, Any]]:
    """Register a function for the key `prepare`."""
    PREPARATIONS[function.__name__] = Preparation(function)
    return function


# Kidney


@formula
def cockcroft_gault(
    age: float, sex: Sex, weight: float, creatinine: float, height: float | None, weight_used: str | None
) -> Outcome:
    used, note = _weight_for_clearance(sex, weight, height, weight_used or "by_bmi")
    sex_factor = 0.85 if sex == "female" else 1
    value = (140 - age) * used * sex_factor / (72 * creatinine)
    return Outcome(value, {"used_weight": round(used, 2), "sex_factor": sex_factor}, notes=[note])


def _weight_for_clearance(sex: Sex, weight: float, height: float | None, choice: str) -> tuple[float, str]:
    """Return the weight for Cockcroft and Gault's formula, and the reason for it."""
    if height is None:
        reason = "as requested" if choice == "actual" else "without a height, which allows a choice by BMI"
        return weight, f"Weight used: actual ({reason})."
    bmi = body_mass_index(weight, height)
    if choice == "actual":
        return weight, "Weight used: actual (as requested)."
    ideal = ideal_weight(sex, height)
    adjusted = adjusted_weight(ideal, weight)
    if choice == "ideal":
        return ideal, "Weight used: ideal (Devine), as requested."
    if choice == "adjusted":
        return adjusted, "Weight used: adjusted (ideal + 0.4 × the rest), as requested."
    if bmi < 18.5:
        return weight, f"Weight used: actual, because BMI {bmi:.1f} is below 18.5."
    if bmi < 25:
        note = f"Weight used: the lower of ideal and actual, because BMI {bmi:.1f} is 18.5 to < 25."
        return min(ideal, weight), note
    return adjusted, f"Weight used: adjusted (ideal + 0.4 × the rest), because BMI {bmi:.1f} is 25 or more."


@formula
def ckd_epi_2021(age: float, sex: Sex, creatinine: float) -> Outcome:
    kappa, alpha, sex_factor = (0.7, -0.241, 1.012) if sex == "female" else (0.9, -0.302, 1)
    ratio = creatinine / kappa
    value = 142 * min(ratio, 1) ** alpha * max(ratio, 1) ** -1.2 * 0.9938**age * sex_factor
    return Outcome(value, {"κ": kappa, "α": alpha, "sex_factor": sex_factor})


@formula
def mdrd(age: float, sex: Sex, creatinine: float, race_factor: str | None) -> Outcome:
    by_sex, by_race = 0.742 if sex == "female" else 1, 1.212 if race_factor == "black" else 1
    value = 175 * creatinine**-1.154 * age**-0.203 * by_sex * by_race
    notes = ["Factor 1.212 for Black patients from the original equation, as requested."] if by_race > 1 else []
    return Outcome(value, {"sex_factor": by_sex, "race_factor": by_race}, notes=notes)


@formula
def fena(sodium: float, creatinine: float, urine_sodium: float, urine_creatinine: float) -> float:
    value = 100 * urine_sodium * creatinine / (sodium * urine_creatinine)
    if value > 100:
        raise InvalidInput(f"{value:.4g} % is more than the filtered sodium", "check the values and their units")
    return value


# Body


@formula
def bmi(weight: float, height: float) -> float:
    return body_mass_index(weight, height)


@formula
def bsa_mosteller(height: float, weight: float) -> Outcome:
    body_mass_index(weight, height)  # rejects wrong units
    return Outcome(_mosteller(height, weight), notes=[f"Du Bois: {_du_bois(height, weight):.3f} m²."])


@formula
def bsa_du_bois(height: float, weight: float) -> Outcome:
    body_mass_index(weight, height)  # rejects wrong units
    return Outcome(_du_bois(height, weight), notes=[f"Mosteller: {_mosteller(height, weight):.3f} m²."])


def _mosteller(height: float, weight: float) -> float:
    return float((height * weight / 3600) ** 0.5)


def _du_bois(height: float, weight: float) -> float:
    return float(0.007184 * weight**0.425 * height**0.725)


@formula
def ideal_body_weight(sex: Sex, height: float) -> Outcome:
    notes = []
    if height < FIVE_FEET * CM_PER_INCH:
        notes = ["Extrapolated: the formula is for heights of at least 5 feet."]
    terms = {"base": 50 if sex == "male" else 45.5, "inches": round(height / CM_PER_INCH, 2)}
    return Outcome(ideal_weight(sex, height), terms, notes=notes)


@formula
def adjusted_body_weight(sex: Sex, height: float, weight: float) -> Outcome:
    body_mass_index(weight, height)  # rejects wrong units
    ideal = ideal_weight(sex, height)
    return Outcome(adjusted_weight(ideal, weight), {"ideal": round(ideal, 2)})


@formula
def target_weight(height: float, target_bmi: float) -> float:
    return target_bmi * (height / 100) ** 2


# Fluids

_NORMAL_GAP, _NORMAL_BICARBONATE = 12, 24


def _gap(sodium: float, chloride: float, bicarbonate: float, albumin: float | None = None) -> float:
    """Return the anion gap, corrected by Figge's rule where albumin is given."""
    gap = sodium - (chloride + bicarbonate)
    return gap if albumin is None else gap + 2.5 * (4 - albumin)


@formula
def anion_gap(sodium: float, chloride: float, bicarbonate: float, albumin: float | None) -> Outcome:
    notes = []
    if albumin is not None:
        corrected = _gap(sodium, chloride, bicarbonate, albumin)
        notes.append(f"Corrected for albumin {albumin:g} g/dL: {corrected:.1f} mEq/L.")
    return Outcome(_gap(sodium, chloride, bicarbonate), notes=notes)


@formula
def anion_gap_albumin(sodium: float, chloride: float, bicarbonate: float, albumin: float) -> Outcome:
    gap = _gap(sodium, chloride, bicarbonate)
    return Outcome(_gap(sodium, chloride, bicarbonate, albumin), {"anion_gap": gap})


@formula
def delta_gap(sodium: float, chloride: float, bicarbonate: float) -> Outcome:
    return _delta_gap(_gap(sodium, chloride, bicarbonate), bicarbonate)


@formula
def delta_gap_albumin(sodium: float, chloride: float, bicarbonate: float, albumin: float) -> Outcome:
    return _delta_gap(_gap(sodium, chloride, bicarbonate, albumin), bicarbonate)


def _delta_gap(gap: float, bicarbonate: float) -> Outcome:
    rise = gap - _NORMAL_GAP
    difference = rise - (_NORMAL_BICARBONATE - bicarbonate)
    meaning = Bands(
        {
            "< -6": "additional normal-gap (hyperchloraemic) acidosis",
            "< 6": "high-gap acidosis alone, or none",
            "≥ 6": "additional metabolic alkalosis",
        }
    ).find(difference)
    note = f"Rise of the gap minus fall of bicarbonate (24 − {bicarbonate:g}): {difference:g}: {meaning}."
    return Outcome(rise, {"anion_gap": gap}, notes=[note])


@formula
def delta_ratio(sodium: float, chloride: float, bicarbonate: float) -> Outcome:
    return _delta_ratio(_gap(sodium, chloride, bicarbonate), bicarbonate)


@formula
def delta_ratio_albumin(sodium: float, chloride: float, bicarbonate: float, albumin: float) -> Outcome:
    return _delta_ratio(_gap(sodium, chloride, bicarbonate, albumin), bicarbonate)


def _delta_ratio(gap: float, bicarbonate: float) -> Outcome:
    fall = _NORMAL_BICARBONATE - bicarbonate
    if fall == 0:
        reason = "bicarbonate is 24, so there is no fall to compare with the gap"
        return Outcome("not defined", interpretation=reason)
    reason = "bicarbonate is above 24, so the ratio has no meaning for mixed disorders"
    return Outcome((gap - _NORMAL_GAP) / fall, {"anion_gap": gap}, interpretation=reason if fall < 0 else "")


@formula
def corrected_calcium(calcium: float, albumin: float) -> Outcome:
    value = calcium + 0.8 * (4 - albumin)
    return Outcome(value, notes=[f"Equals {value * 10 / 40.078:.2f} mmol/L."])


@formula
def corrected_sodium(sodium: float, glucose: float, factor: str | None) -> Outcome:
    authors = {"1.6": "Katz 1973", "2.4": "Hillier 1999"}
    used = factor or "2.4"
    other = "1.6" if used == "2.4" else "2.4"
    value, by_other = (sodium + float(each) / 100 * (glucose - 100) for each in (used, other))
    notes = [f"Factor {used} ({authors[used]}); with {other} ({authors[other]}): {by_other:.1f} mEq/L."]
    if glucose < 100:
        notes.append("Glucose is below 100 mg/dL, so there is no hyperglycaemia to correct for.")
    return Outcome(value, {"factor": float(used)}, notes=notes)


@formula
def serum_osmolality(sodium: float, glucose: float, bun: float) -> float:
    return 2 * sodium + bun / 2.8 + glucose / 18


@formula
def free_water_deficit(sodium: float, weight: float, age: float, sex: Sex) -> Outcome:
    if age < 18:
        share, person = 0.6, "child"
    elif sex == "male":
        share, person = (0.5, "man of 65 or older") if age >= 65 else (0.6, "man below 65")
    else:
        share, person = (0.45, "woman of 65 or older") if age >= 65 else (0.5, "woman below 65")
    notes = [f"Body water: {share:g} of the weight ({person})."]
    return Outcome(share * weight * (sodium / 140 - 1), {"body_water": share}, notes=notes)


@formula
def maintenance_fluids(weight: float) -> Outcome:
    rate = 4 * min(weight, 10) + 2 * min(max(weight - 10, 0), 10) + max(weight - 20, 0)
    notes = [f"Equals {rate * 24:g} mL/day."]
    if weight < 3:
        notes.append("Newborns need another rule.")
    return Outcome(rate, notes=notes)


# Metabolism


@formula
def homa_ir(glucose: float, insulin: float) -> float:
    return insulin * glucose / 405


@formula
def ldl(total_cholesterol: float, hdl: float, triglycerides: float) -> Outcome:
    if triglycerides >= 400:
        reason = "the formula is not valid for triglycerides of 400 mg/dL (4.5 mmol/L) or more"
        raise InvalidInput(reason, "tell the user that LDL must be measured directly")
    value = total_cholesterol - hdl - triglycerides / 5
    if value <= 0:
        raise InvalidInput(f"an LDL of {value:g} mg/dL is impossible", "check the inputs")
    return Outcome(value, notes=[f"Equals {value / 38.665:.2f} mmol/L."])


# Heart


@formula
def mean_arterial_pressure(systolic_bp: float, diastolic_bp: float) -> float:
    return (systolic_bp + 2 * diastolic_bp) / 3


@formula
def qtc_bazett(qt: float, heart_rate: float) -> float:
    return float(qt / (60 / heart_rate) ** 0.5)


@formula
def qtc_fridericia(qt: float, heart_rate: float) -> float:
    return float(qt / (60 / heart_rate) ** (1 / 3))


@formula
def qtc_framingham(qt: float, heart_rate: float) -> float:
    return qt + 154 * (1 - 60 / heart_rate)


@formula
def qtc_hodges(qt: float, heart_rate: float) -> float:
    return qt + 1.75 * (heart_rate - 60)


@formula
def qtc_rautaharju(qt: float, heart_rate: float) -> float:
    return qt * (120 + heart_rate) / 180


@preparation
def heart_rate_from_rr_interval(raw: Mapping[str, Any], inputs: Mapping[str, Input]) -> dict[str, Any]:
    """Replace an RR interval with the heart rate."""
    interval = inputs["rr_interval"]
    hints = dict(interval.fields())
    found = dict(raw)
    for name in raw:
        if to_key(name) in hints and "heart_rate" not in raw:
            found["heart_rate"] = 60 / interval.parse(found.pop(name), hints[to_key(name)]).value
    return found


@formula
def cha2ds2_vasc(sex: Sex, points: Points, constants: Constants) -> Outcome:
    score = int(sum(points.values()))
    without_sex = score - (sex == "female")
    advice = {0: "low risk: no anticoagulation", 1: "intermediate: consider anticoagulation"}.get(
        without_sex, "high: anticoagulation recommended"
    )
    return Outcome(
        score,
        points=points,
        interpretation=f"{advice} (ESC 2020: consider from 1 for men and 2 for women, "
        "recommended from 2 for men and 3 for women); "
        f"{constants['strokes'][score]:g} strokes per 100 patient-years",
    )


@formula
def heart_score(points: Points, risk_factors: int, atherosclerotic_disease: bool) -> Outcome:
    by_factors = 2 if risk_factors >= 3 or atherosclerotic_disease else 1 if risk_factors else 0
    points = {name: points.get(name, by_factors) for name in ("history", "ecg", "age", "risk_factors", "troponin")}
    return Outcome(add_up(points), points=points)


@preparation
def count_risk_factors(raw: Mapping[str, Any], inputs: Mapping[str, Input]) -> dict[str, Any]:
    """Replace individual risk factors with their number."""
    found = {to_key(name[:KEY_LENGTH]): value for name, value in raw.items()}
    names = {key: name for name in _RISK_FACTORS for key, _ in inputs[name].fields()}
    given = {names[key]: parse_yes_no(found.pop(key)) for key in list(found) if key in names}
    if not given or "risk_factors" in found:
        return found
    missing = [name for name in _RISK_FACTORS if name not in given]
    if missing and not found.get(OTHERS_ABSENT):
        raise InvalidInput(f"risk_factors: missing: {', '.join(missing)}", "give all, or risk_factors as a number")
    return found | {"risk_factors": sum(given.values())}


_RISK_FACTORS = ("hypertension", "hypercholesterolemia", "diabetes", "obesity", "smoking", "family_history")


@formula
def grace(points: Points, constants: Constants) -> Outcome:
    score = int(sum(points.values()))
    risk = Bands({"≤ 108": "low", "≤ 140": "intermediate", "> 140": "high"}).find(score)
    at = min(max(score // 10 * 10, 60), 250)
    deaths = f"about {constants['deaths'][at // 10 - 6]:g}"
    deaths = "at most 0.2" if score <= 60 else "at least 52" if score >= 250 else deaths
    return Outcome(
        score,
        points=points,
        interpretation=f"{risk} risk in hospital (to 108 low, 109 to 140 intermediate, above 140 high); "
        f"{deaths} % deaths in hospital by the nomogram at {at} points",
    )


@formula
def framingham_hard_chd(
    age: float,
    sex: Sex,
    total_cholesterol: float,
    hdl: float,
    systolic_bp: float,
    treated_hypertension: bool,
    smoker: bool,
    constants: Constants,
) -> Outcome:
    c = constants[sex]
    log_age, log_cholesterol = log(age), log(total_cholesterol)
    sum_ = (
        c["age"] * log_age
        + c["cholesterol"] * log_cholesterol
        + c["hdl"] * log(hdl)
        + c["systolic"] * log(systolic_bp)
        + c["treated"] * treated_hypertension
        + c["smoker"] * smoker
        + c["age_cholesterol"] * log_age * log_cholesterol
        + c["age_smoker"] * log(min(age, c["oldest_smoker"])) * smoker
        + c["age_age"] * log_age**2
        - c["mean"]
    )
    risk = 100 * (1 - c["survival"] ** exp(sum_))
    return Outcome(risk, {"baseline": c["survival"], "L": round(sum_, 5)})


@formula
def framingham_cvd(
    age: float,
    sex: Sex,
    total_cholesterol: float,
    hdl: float,
    systolic_bp: float,
    treated_hypertension: bool,
    smoker: bool,
    diabetes: bool,
    constants: Constants,
) -> Outcome:
    c = constants[sex]
    sum_ = (
        c["age"] * log(age)
        + c["cholesterol"] * log(total_cholesterol)
        + c["hdl"] * log(hdl)
        + c["treated_systolic" if treated_hypertension else "untreated_systolic"] * log(systolic_bp)
        + c["smoker"] * smoker
        + c["diabetes"] * diabetes
        - c["mean"]
    )
    risk = 100 * (1 - c["survival"] ** exp(sum_))
    return Outcome(risk, {"baseline": c["survival"], "L": round(sum_, 5)})


# Clots


@formula
def wells_pe(points: Points) -> Outcome:
    score = add_up(points)
    two = "PE likely" if score > 4 else "PE unlikely"
    three = Bands({"< 2": "low", "≤ 6": "moderate", "> 6": "high"}).find(score)
    meaning = f"two tiers (cut above 4): {two}; three tiers (below 2, 2 to 6, above 6): {three} probability"
    return Outcome(score, points=points, interpretation=meaning)


@formula
def wells_dvt(points: Points) -> Outcome:
    score = add_up(points)
    two = "DVT likely" if score >= 2 else "DVT unlikely"
    three = Bands({"≤ 0": "low", "≤ 2": "moderate", "> 2": "high"}).find(score)
    meaning = f"two tiers (cut at 2, Wells 2003): {two}; three tiers (to 0, 1 to 2, from 3): {three} probability"
    return Outcome(score, points=points, interpretation=meaning)


@preparation
def caprini_without_pregnancy(raw: Mapping[str, Any], inputs: Mapping[str, Input]) -> Mapping[str, Any]:
    """For men, set the items that only apply to women to no."""
    sex = inputs["sex"]
    assert isinstance(sex, Choice)
    names = {key for key, option in sex.fields() if not option}
    for name, value in raw.items():
        if to_key(name[:KEY_LENGTH]) in names and isinstance(value, str) and sex.find_option(value[:20]) == "male":
            return {"pregnancy_or_postpartum": False, "stillbirth_or_abortions": False, "hormones": False, **raw}
    return raw


# Liver


def _round_half_up(value: float) -> int:
    return int(value + 0.5) if value >= 0 else -int(-value + 0.5)


def _clamp(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)


def _meld_terms(
    creatinine: float, bilirubin: float, inr: float, dialysis: bool, most_creatinine: float
) -> dict[str, float]:
    """Return the values for the logarithms: at least 1, and the maximum creatinine under dialysis."""
    counted = most_creatinine if dialysis else _clamp(creatinine, 1, most_creatinine)
    return {"creatinine": counted, "bilirubin": max(bilirubin, 1), "inr": max(inr, 1)}


def _meld_score(terms: Mapping[str, float]) -> int:
    creatinine, bilirubin, inr = (log(terms[name]) for name in ("creatinine", "bilirubin", "inr"))
    return _round_half_up(9.57 * creatinine + 3.78 * bilirubin + 11.2 * inr + 6.43)


@formula
def meld(creatinine: float, bilirubin: float, inr: float, dialysis: bool) -> Outcome:
    terms = _meld_terms(creatinine, bilirubin, inr, dialysis, 4)
    return Outcome(min(max(_meld_score(terms), 6), 40), terms)


@formula
def meld_na(creatinine: float, bilirubin: float, inr: float, sodium: float, dialysis: bool) -> Outcome:
    first = _meld_score(_meld_terms(creatinine, bilirubin, inr, dialysis, 4))
    sodium = _clamp(sodium, 125, 137)
    terms = {"MELD_i": first, "sodium": sodium}
    if first <= 11:
        notes = ["MELD(i) is 11 or less, so sodium does not count (OPTN 2016)."]
        return Outcome(max(first, 6), terms, notes=notes, formula="MELD_i")
    value = first + 1.32 * (137 - sodium) - 0.033 * first * (137 - sodium)
    return Outcome(min(_round_half_up(value), 40), terms)


@formula
def meld_3(
    sex: Sex, creatinine: float, bilirubin: float, inr: float, sodium: float, albumin: float, dialysis: bool
) -> Outcome:
    terms = _meld_terms(creatinine, bilirubin, inr, dialysis, 3)
    terms |= {"sodium": _clamp(sodium, 125, 137), "albumin": _clamp(albumin, 1.5, 3.5), "female": int(sex == "female")}
    log_creatinine, log_bilirubin, log_inr = (log(terms[name]) for name in ("creatinine", "bilirubin", "inr"))
    value = (
        1.33 * terms["female"]
        + 4.56 * log_bilirubin
        + 0.82 * (137 - terms["sodium"])
        - 0.24 * (137 - terms["sodium"]) * log_bilirubin
        + 9.09 * log_inr
        + 11.14 * log_creatinine
        + 1.85 * (3.5 - terms["albumin"])
        - 1.83 * (3.5 - terms["albumin"]) * log_creatinine
        + 6
    )
    return Outcome(min(max(_round_half_up(value), 6), 40), terms)


@formula
def fib4(age: float, ast: float, alt: float, platelets: float) -> float:
    return float(age * ast / (platelets * alt**0.5))


@formula
def glasgow_blatchford(points: Points, sex: Sex, hemoglobin: float) -> Outcome:
    by_sex = {
        "male": Bands({"< 10": 6, "< 12": 3, "< 13": 1, "≥ 13": 0}),
        "female": Bands({"< 10": 6, "< 12": 1, "≥ 12": 0}),
    }
    points = {"bun": points["bun"], "hemoglobin": by_sex[sex].find(hemoglobin), **points}
    return Outcome(add_up(points), points=points)


@formula
def rockall(points: Points, heart_rate: float, systolic_bp: float, diagnosis: str | None) -> Outcome:
    points = {
        "age": points["age"],
        "shock": 2 if systolic_bp < 100 else int(heart_rate >= 100),
        "comorbidity": points["comorbidity"],
        "diagnosis": points.get("diagnosis", 0),
        "stigmata": points.get("stigmata", 0),
    }
    total = add_up(points)
    if diagnosis is None:
        risk = f"before endoscopy, 0 to 7: {'low risk' if total == 0 else 'admit'}"
    else:
        band = Bands({"≤ 2": "low risk", "≤ 7": "raised risk", "> 7": "high risk"}).find(total)
        risk = f"full, 0 to 11: {band} of rebleeding and death"
    return Outcome(total, points=points, interpretation=risk)


@formula
def rockall_missing(diagnosis: str | None, stigmata: str | None) -> list[str]:
    if (diagnosis is None) == (stigmata is None):
        return []
    return ["stigmata" if stigmata is None else "diagnosis"]


# Lungs


@formula
def gold_copd(
    fev1_percent_predicted: float,
    exacerbations_past_year: int,
    hospitalizations_past_year: int,
    mmrc_dyspnea: int | None,
    cat_score: int | None,
) -> Outcome:
    grades = {
        1: "1: FEV1 80 % or more, mild",
        2: "2: 50 to 79 %, moderate",
        3: "3: 30 to 49 %, severe",
        4: "4: below 30 %, very severe",
    }
    groups = {
        "A": "A: few exacerbations, few symptoms",
        "B": "B: few exacerbations, more symptoms (mMRC from 2 or CAT from 10)",
        "E": "E: 2 or more moderate exacerbations, or one that led to hospital",
    }
    grade = Bands({"< 30": 4, "< 50": 3, "< 80": 2, "≥ 80": 1}).find(fev1_percent_predicted)
    has_symptoms = (mmrc_dyspnea or 0) >= 2 or (cat_score or 0) >= 10
    exacerbates = exacerbations_past_year >= 2 or hospitalizations_past_year >= 1
    group = "E" if exacerbates else "B" if has_symptoms else "A"
    return Outcome(f"GOLD {grade}, group {group}", interpretation=f"{grades[grade]}; {groups[group]}")


@formula
def gold_copd_missing(mmrc_dyspnea: int | None, cat_score: int | None) -> list[str]:
    return ["mmrc_dyspnea (or cat_score)"] if mmrc_dyspnea is None and cat_score is None else []


@formula
def aa_gradient(
    fio2: float, pao2: float, paco2: float, atmospheric_pressure: float | None, age: float | None
) -> Outcome:
    pressure = atmospheric_pressure or SEA_LEVEL
    alveolar = fio2 * (pressure - WATER_VAPOUR) - paco2 / RESPIRATORY_QUOTIENT
    gradient = alveolar - pao2
    notes = [] if atmospheric_pressure else ["Atmospheric pressure assumed: 760 mmHg, sea level."]
    meaning = ""
    if gradient < 0:
        notes.append("A gradient just below 0 results from rounding and measurement error.")
    if age is None:
        notes.append("No expected value without the age (age / 4 + 4).")
    else:
        expected = age / 4 + 4
        found = "raised" if gradient > expected else "normal"
        meaning = f"{found}: expected for this age up to {expected:g} mmHg (age / 4 + 4, on room air)"
    return Outcome(
        gradient, {"pressure": pressure, "alveolar": round(alveolar, 2)}, notes=notes, interpretation=meaning
    )


@formula
def curb_65(points: Points, systolic_bp: float, diastolic_bp: float) -> Outcome:
    points = {
        "confusion": points["confusion"],
        "urea": points["urea_raised"],
        "respiratory_rate": points["respiratory_rate"],
        "blood_pressure": int(systolic_bp < 90 or diastolic_bp <= 60),
        "age": points["age"],
    }
    return Outcome(add_up(points), points=points)


@formula
def psi(points: Points, age: float) -> Outcome:
    points = {"age": int(age), **points}
    excluding = (
        *("neoplastic_disease", "liver_disease", "congestive_heart_failure", "cerebrovascular_disease"),
        *("renal_disease", "altered_mental_status", "respiratory_rate", "systolic_bp", "temperature", "heart_rate"),
    )
    first_class = ""
    if age <= 50 and not any(points[name] for name in excluding):
        first_class = (
            "class I (0.1 to 0.4 % mortality): outpatient; age at most 50, no comorbidity, no abnormal vital sign"
        )
    return Outcome(add_up(points), points=points, interpretation=first_class)


# Emergency and intensive care


@formula
def glasgow_coma_scale(values: Values, points: Points) -> Outcome:
    """Add up the components. Without a sum if a component is not testable, because no number represents that."""
    most = {"eye": 4, "verbal": 5, "motor": 6}
    untested = [name for name in most if values[name] == "not_testable"]
    total = add_up(points)
    if not untested:
        return Outcome(total, points=points)
    text = " ".join(f"{name[0].upper()}{'NT' if name in untested else format_value(points[name])}" for name in most)
    testable = sum(most[name] for name in most if name not in untested)
    notes = []
    if "motor" not in untested:
        notes = [f"Some calculators count untestable components as 4: {total + 4 * len(untested)}."]
    meaning = f"{total} of {testable} points in the testable components; a total would be misleading"
    return Outcome(text, notes=notes, interpretation=meaning)


@formula
def sirs(
    temperature: float,
    heart_rate: float,
    respiratory_rate: float,
    wbc: float,
    paco2: float | None,
    bands: float | None,
) -> Outcome:
    points = {
        "temperature": int(temperature > 38 or temperature < 36),
        "heart_rate": int(heart_rate > 90),
        "respiration": int(respiratory_rate > 20 or (paco2 is not None and paco2 < 32)),
        "white_cells": int(wbc > 12 or wbc < 4 or (bands is not None and bands > 10)),
    }
    unknown = [name for name, value in (("PaCO2", paco2), ("bands", bands)) if value is None]
    notes = [f"Without {' and '.join(unknown)}."] if unknown else []
    return Outcome(sum(points.values()), points=points, notes=notes)


@formula
def news2(points: Points, spo2: float, on_oxygen: bool, temperature: float, spo2_scale: str | None) -> Outcome:
    scale_2 = {"≤ 83": 3, "≤ 85": 2, "≤ 87": 1}
    if spo2_scale != "2":
        saturation = Bands({"≤ 91": 3, "≤ 93": 2, "≤ 95": 1, "> 95": 0})
    elif on_oxygen:
        saturation = Bands({**scale_2, "≤ 92": 0, "≤ 94": 1, "≤ 96": 2, "> 96": 3})
    else:
        saturation = Bands({**scale_2, "> 87": 0})
    by_temperature = Bands({"≤ 35": 3, "≤ 36": 1, "≤ 38": 0, "≤ 39": 1, "> 39": 2})
    points = {
        "respiratory_rate": points["respiratory_rate"],
        "spo2": saturation.find(round(spo2)),
        **points,
        "temperature": by_temperature.find(round(temperature, 1)),
    }
    total, highest = add_up(points), max(points.values())
    if total >= 7:
        meaning = "7 or more: high risk: emergency response, continuous monitoring"
    elif total >= 5:
        meaning = "5 to 6: medium risk: urgent response, at least hourly observation"
    elif highest == 3:
        meaning = "3 in a single parameter: low-medium risk: urgent ward review, at least hourly observation"
    elif total:
        meaning = "1 to 4: low risk: observe every 4 to 6 hours"
    else:
        meaning = "0: low risk: observe every 12 hours"
    notes = []
    if not spo2_scale:
        notes = ["SpO2 scale 1; scale 2 is only for a prescribed 88 to 92 % in hypercapnic failure."]
    return Outcome(total, points=points, notes=notes, interpretation=meaning)


@formula
def sofa(points: Points, values: Values) -> Outcome:
    notes = []
    ratio = _oxygenation_ratio(values)
    if ratio is None:
        respiration = 0
        notes.append("Oxygenation not measured, counted as normal.")
    else:
        respiration = _SOFA_RESPIRATION.find(ratio)
        notes.append(f"PaO2/FiO2: {ratio:.0f} mmHg.")
        if not values["ventilated"]:
            respiration = min(respiration, _MOST_UNSUPPORTED)
    mean = _mean_pressure_of(values)
    low_pressure = values["hypotension"] if mean is None else mean < 70
    kidney = points["creatinine"]
    if values["urine_output"] is None:
        notes.append("Kidney points without the urine output.")
    else:
        kidney = max(kidney, Bands({"< 200": 4, "< 500": 3, "≥ 500": 0}).find(values["urine_output"]))
    points = {
        "respiration": respiration,
        "coagulation": points["platelets"],
        "liver": points["bilirubin"],
        "circulation": _points_of_vasopressors(values) or int(low_pressure),
        "brain": points["gcs"],
        "kidney": kidney,
    }
    return Outcome(add_up(points), points=points, notes=notes)


_SOFA_RESPIRATION = Bands({"< 100": 4, "< 200": 3, "< 300": 2, "< 400": 1, "≥ 400": 0})
_MOST_UNSUPPORTED = 2
"""Maximum points for the lungs without respiratory support."""


def _oxygenation_ratio(values: Values) -> float | None:
    ratio: float | None = values["pao2_fio2"]
    if ratio is None and values["pao2"] is not None and values["fio2"] is not None:
        return float(values["pao2"] / values["fio2"])
    return ratio


def _mean_pressure_of(values: Values) -> float | None:
    return mean_pressure(values["mean_arterial_pressure"], values["systolic_bp"], values["diastolic_bp"])


def _points_of_vasopressors(values: Values) -> int:
    dopamine, adrenaline, noradrenaline = (values[name] or 0 for name in ("dopamine", "epinephrine", "norepinephrine"))
    if dopamine > 15 or adrenaline > 0.1 or noradrenaline > 0.1:
        return 4
    if dopamine > 5 or adrenaline > 0 or noradrenaline > 0:
        return 3
    return 2 if dopamine > 0 or values["dobutamine"] else 0


@formula
def sofa_missing(values: Values) -> list[str]:
    missing = []
    ratio = _oxygenation_ratio(values)
    if ratio is None and not values["oxygenation_unmeasured"]:
        missing.append("pao2_fio2 (or pao2 and fio2; or oxygenation_unmeasured: yes)")
    if ratio is not None and _SOFA_RESPIRATION.find(ratio) > _MOST_UNSUPPORTED and values["ventilated"] is None:
        missing.append("ventilated (3 and 4 points require respiratory support)")
    if not _points_of_vasopressors(values) and _mean_pressure_of(values) is None and values["hypotension"] is None:
        missing.append("mean_arterial_pressure (or systolic_bp and diastolic_bp)")
    return missing


@formula
def apache_ii(points: Points, values: Values) -> Outcome:
    notes = []
    scores = dict(points)
    if values["arterial_ph"] is not None:
        scores.pop("bicarbonate", None)  # it replaces the pH only without a blood gas
    mean = _mean_pressure_of(values)
    if mean is not None:
        bands = Bands({"< 50": 4, "< 70": 2, "< 110": 0, "< 130": 2, "< 160": 3, "≥ 160": 4})
        scores["mean_arterial_pressure"] = bands.find(mean)
    if values["acute_renal_failure"] and values["creatinine"] >= 1.5:
        scores["creatinine"] *= 2
    gradient = _oxygen_gradient(values)
    if values["fio2"] < 0.5 or gradient is None:
        scores["oxygenation"] = Bands({"< 55": 4, "≤ 60": 3, "≤ 70": 1, "> 70": 0}).find(values["pao2"])
    else:
        scores["oxygenation"] = Bands({"< 200": 0, "< 350": 2, "< 500": 3, "≥ 500": 4}).find(gradient)
        notes.append(f"A-a gradient: {gradient:.0f} mmHg (FiO2 × 713 − PaCO2 / 0.8 − PaO2, unless given).")
    scores["gcs"] = 15 - values["gcs"]
    if values["organ_failure_or_immunocompromise"]:
        scores["chronic_health"] = 2 if values["admission"] == "elective_surgery" else 5
    return Outcome(add_up(scores), points=scores, notes=notes)


def _oxygen_gradient(values: Values) -> float | None:
    gradient: float | None = values["aa_gradient"]
    if gradient is None and values["pao2"] is not None and values["paco2"] is not None:
        return float(values["fio2"] * 713 - values["paco2"] / 0.8 - values["pao2"])
    return gradient


@formula
def apache_ii_missing(values: Values) -> list[str]:
    missing = []
    if _mean_pressure_of(values) is None:
        missing.append("mean_arterial_pressure (or systolic_bp and diastolic_bp)")
    if values["arterial_ph"] is None and values["bicarbonate"] is None:
        missing.append("arterial_ph (or, without a blood gas, bicarbonate)")
    fio2 = values["fio2"]
    if fio2 is not None and fio2 < 0.5 and values["pao2"] is None:
        missing.append("pao2 (scored for FiO2 below 0.5)")
    if fio2 is not None and fio2 >= 0.5 and _oxygen_gradient(values) is None:
        missing.append("aa_gradient (or pao2 and paco2; scored for FiO2 from 0.5)")
    return missing


# Comorbidity


@formula
def charlson(points: Points) -> Outcome:
    total = add_up(points)
    notes = [f"Estimated 10-year survival: {100 * 0.983 ** exp(0.9 * total):.1f} % (0.983^(e^(0.9 × index)))."]
    if "age" not in points:
        notes.append("Index of 1987, not adjusted for age.")
    return Outcome(total, points=points, notes=notes)


# Pregnancy

_PREGNANCY_DAYS, _OVULATION_DAY, _USUAL_CYCLE = 280, 14, 28


@formula
def due_date(lmp: date, cycle_length: int | None) -> Outcome:
    return _day_after(lmp, cycle_length, _PREGNANCY_DAYS)


@formula
def conception_date(lmp: date, cycle_length: int | None) -> Outcome:
    return _day_after(lmp, cycle_length, _OVULATION_DAY)


def _day_after(lmp: date, cycle_length: int | None, days: int) -> Outcome:
    """Return the day that follows the last period by `days`, corrected for the cycle length."""
    longer = (cycle_length or _USUAL_CYCLE) - _USUAL_CYCLE
    day = lmp + timedelta(days + longer)
    notes = [f"A {day:%A}."] if cycle_length else [f"A {day:%A}.", "Cycle length assumed: 28 days."]
    return Outcome(day.isoformat(), notes=notes)


@formula
def gestational_age(lmp: date, on: date) -> Outcome:
    days = (on - lmp).days
    if days < 0:
        raise InvalidInput("on: before lmp")
    if days > 310:
        raise InvalidInput(f"on: {days} days after lmp, the limit is 310")
    weeks, rest = divmod(days, 7)
    trimester = Bands(
        {
            "< 14": "first trimester (to 13 weeks 6 days)",
            "< 28": "second trimester (14 to 27 weeks)",
            "< 37": "third trimester (from 28 weeks)",
            "< 42": "third trimester, term (37 to 41 weeks)",
            "≥ 42": "post-term (from 42 weeks)",
        }
    ).find(weeks)
    note = f"{days} days; due on {lmp + timedelta(_PREGNANCY_DAYS)} (28-day cycle)."
    return Outcome(f"{weeks} weeks {rest} days", notes=[note], interpretation=trimester)


# Doses


@formula
def steroid_conversion(from_steroid: str, dose: float, to_steroid: str, constants: Constants) -> Outcome:
    equivalent_from, equivalent_to = constants[from_steroid], constants[to_steroid]
    return Outcome(
        dose * equivalent_to / equivalent_from,
        {"equivalent_from": equivalent_from, "equivalent_to": equivalent_to},
        notes=[f"mg of {to_steroid} for {dose:g} mg of {from_steroid}."],
    )


@preparation
def split_steroid_and_dose(raw: Mapping[str, Any], inputs: Mapping[str, Input]) -> dict[str, Any]:
    """Split `{"prednisone": "40 mg"}` and `{"from": ["prednisone", 40, "mg"]}` into steroid and dose."""
    steroids = inputs["from_steroid"]
    assert isinstance(steroids, Choice)
    found = dict(raw)
    for name, value in raw.items():
        steroid = to_key(name[:KEY_LENGTH]).removesuffix("_dose")
        if steroids.find_option(steroid) and "dose" not in raw:
            found["from_steroid"], found["dose"] = steroid, found.pop(name)
        if isinstance(value, list) and len(value) == 3 and isinstance(value[0], str) and "dose" not in raw:
            found[name], found["dose"] = value[0], value[1:]
    return found


@formula
def mme(values: Values, constants: Constants) -> Outcome:
    given = {name: values[name] for name in constants if values[name] is not None}
    each = {name: dose * constants[name] for name, dose in given.items()}
    notes = [
        f"{name.replace('_', ' ')}: {given[name]:g} × {constants[name]:g} = {value:g}." for name, value in each.items()
    ]
    return Outcome(sum(each.values()), notes=notes)


@formula
def mme_missing(values: Values) -> list[str]:
    if any(value is not None for value in values.values()):
        return []
    return [f"an opioid, at least one of {', '.join(values)}"]


@preparation
def multiply_daily_doses(raw: Mapping[str, Any], inputs: Mapping[str, Input]) -> dict[str, Any]:
    """Replace `oxycodone_dose` and `oxycodone_doses_per_day`, or `20 mg bid`, with the daily dose."""
    found = {to_key(name[:100]): value for name, value in raw.items()}
    if any(name.startswith("buprenorphine") for name in found):
        reason = "buprenorphine has no MME factor, because it is a partial agonist (CDC 2022)"
        raise InvalidInput(reason, "leave it out and tell the user")

    def daily_dose(name: str, dose: Any, times: Any) -> float:
        if times is None:
            raise InvalidInput(f"{name}_doses_per_day is missing")
        return float(inputs[name].parse(dose).value * inputs["doses_per_day"].parse(times).value)

    for name in inputs:
        dose = found.pop(f"{name}_dose", None)
        times = [found.pop(f"{name}_{word}_per_day", None) for word in ("doses", "dose")]
        if dose is not None:
            found[name] = daily_dose(name, dose, next((each for each in times if each is not None), None))
        dose = found.get(name)
        if isinstance(dose, str) and (often := _DOSE_AND_FREQUENCY.fullmatch(dose.strip()[:60])):
            hours, words = often["hours"], " ".join(often["frequency"].lower().split())
            found[name] = daily_dose(name, often["dose"], 24 / int(hours) if hours else _TIMES_PER_DAY[words])
    return found


_TIMES_PER_DAY = {
    **dict.fromkeys(("once daily", "once a day"), 1),
    **dict.fromkeys(("bid", "twice daily", "twice a day"), 2),
    **dict.fromkeys(("tid", "three times daily", "three times a day"), 3),
    **dict.fromkeys(("qid", "four times daily", "four times a day"), 4),
}
_DOSE_AND_FREQUENCY = re.compile(
    rf"(?P<dose>[\d.,]+ ?[a-zµμ]+) +(?P<frequency>{'|'.join(_TIMES_PER_DAY)}"
    r"|(?:every|q) ?(?P<hours>[1-9]\d?) ?(?:h|hr|hrs|hours?))",
    re.IGNORECASE,
)
