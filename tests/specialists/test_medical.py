"""`medical`: worked cases of every calculator, search, inputs and refusals."""

import asyncio
import json
import math
import random
import re
import sys
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from specialist_calls import answer, context, outcome, refusal
from turn_helpers import ask_for, read, registry_of, turn_of

from brain import AssistContext, Citation, Registry
from brain.assist.params import build_params
from brain.events import Done
from brain.models.builtin import Builtin
from brain.plugins.executor import Failure
from specialists._medical import catalog, open_medicine
from specialists._medical.calculator import Calculator, Problems
from specialists._medical.inputs import Choice, Number, YesNo
from specialists._medical.parsing import InvalidInput
from specialists._medical.units import Measure
from specialists.medical import fill_in, find, health, medical

HERE = context()
FOLDER = Path(__file__).parent
OURS = catalog.load().calculators
ALL = catalog.all_calculators()
NEEDS_PACKAGE = pytest.mark.skipif(not open_medicine.is_installed(), reason="open-medicine is not installed")


# Worked cases


DATA = tomllib.loads((FOLDER / "medical_cases.toml").read_text("utf-8"))


def load_cases() -> list[dict[str, Any]]:
    """Return the rows of both files. The charts are invented patients with independently computed values."""
    cases = [
        {"tolerance": 1e-3, **group, **row, "inputs": {**group.get("inputs", {}), **row.get("inputs", {})}}
        for group in DATA["cases"]
        for row in group["rows"]
    ]
    charts = (FOLDER / "medical_charts.jsonl").read_text("utf-8").splitlines()
    return cases + [{"tolerance": 1e-4, **json.loads(row)} for row in charts]


def parameters(*, refused: bool) -> list[Any]:
    """Return the refused cases, or the others."""
    return [
        pytest.param(case, marks=NEEDS_PACKAGE if case.get("package") else (), id=f"{n}-{case['calculator']}")
        for n, case in enumerate(load_cases())
        if ("refused" in case or "missing" in case) == refused
    ]


@pytest.mark.parametrize("case", parameters(refused=False))
def test_a_case_has_its_result(case: Mapping[str, Any]) -> None:
    result = find(case["calculator"]).calculate(case["inputs"])
    found = result.outcome
    if isinstance(case.get("value"), str):
        assert str(found.value).startswith(case["value"])
    elif "value" in case:
        assert found.value == pytest.approx(case["value"], rel=case["tolerance"], abs=1e-6)
    assert case.get("value_contains", "") in str(found.value)
    assert {name: found.points[name] for name in case.get("points", {})} == case.get("points", {})
    for name, expected in case.get("used", {}).items():
        if isinstance(expected, str):
            assert str(result.inputs[name].value) == expected
        else:
            assert result.inputs[name].value == pytest.approx(expected, rel=0.002)
    assert found.interpretation.startswith(case.get("meaning", ""))
    assert case.get("contains", "") in found.interpretation
    assert any(note.startswith(case.get("note", "")) for note in (*found.notes, ""))
    assert "doi" not in case or found.sources[0].doi == case["doi"]


@pytest.mark.parametrize("case", parameters(refused=True))
def test_a_case_is_refused(case: Mapping[str, Any]) -> None:
    with pytest.raises(Problems) as caught:
        find(case["calculator"]).calculate(case["inputs"])
    problems, expected = caught.value, case.get("refused", [])
    assert [problem[: len(begin)] for problem, begin in zip(problems.wrong, expected, strict=True)] == expected
    missing = case.get("missing", [])
    if missing[-1:] == ["…"]:
        assert problems.missing[: len(missing) - 1] == missing[:-1]
    else:
        assert problems.missing == missing


@pytest.mark.parametrize("one", OURS, ids=lambda one: one.name)
def test_each_example_has_its_value(one: Calculator) -> None:
    assert one.example is not None
    value, expected = one.calculate(one.example.inputs).outcome.value, one.example.value
    assert value == (pytest.approx(expected, rel=0.001) if isinstance(expected, float) else expected)


IN_WORDS = {"maintenance_fluids", "due_date", "conception_date", "gestational_age", "mme"}
"""Calculators whose formula is text."""


@pytest.mark.parametrize("one", [one for one in OURS if one.formula and one.name not in IN_WORDS], ids=lambda o: o.name)
def test_the_displayed_formula_gives_the_value(one: Calculator) -> None:
    assert one.example is not None
    found = one.calculate(one.example.inputs)
    text = re.sub(r", rounded.*", "", fill_in(found.outcome.formula, found.inputs, found.outcome.terms))
    for printed, python in (("×", "*"), ("−", "-"), ("^", "**"), ("√", "sqrt")):
        text = text.replace(printed, python)
    names = {"sqrt": math.sqrt, "ln": math.log, "exp": math.exp, "min": min, "max": max}
    value = found.outcome.value
    tolerance = 0.51 if isinstance(value, int) else 0.002 * abs(float(value))
    assert float(eval(text, {"__builtins__": {}}, names)) == pytest.approx(value, abs=tolerance)


@pytest.mark.parametrize("one", OURS, ids=lambda one: one.name)
def test_missing_inputs_are_listed(one: Calculator) -> None:
    """Random subsets of the required inputs are left out, and listed as missing."""
    assert one.example is not None
    values = {name: parsed.value for name, parsed in one.calculate(one.example.inputs).inputs.items()}
    full = {
        name: value if isinstance(value, int | float) else str(value)
        for name, value in values.items()
        if value is not None
    }
    needed = [each.name for each in one.inputs if not each.optional and each.name in full]
    chance = random.Random(one.name)
    for _ in range(20):
        left_out = [name for name in needed if chance.random() < 0.5] or needed[:1]
        if left_out:
            with pytest.raises(Problems) as caught:
                one.calculate({name: value for name, value in full.items() if name not in left_out})
            assert set(left_out) <= set(caught.value.missing)
            assert caught.value.wrong == []


# Results and refusals


def test_a_result_has_its_value_meaning_inputs_formula_source_and_limits() -> None:
    result = medical("eGFR", {"age": 50, "sex": "F", "creatinine": "61.88 µmol/L"})
    assert result.text.splitlines() == [
        "eGFR (CKD-EPI 2021, creatinine, without race): 105.3 mL/min/1.73 m² (unrounded 105.298)",
        "Meaning: ≥ 90: G1, normal or high",
        "Inputs used: age 50 years (unit assumed); sex female; creatinine 0.699987 mg/dL (from 61.88 µmol/L)",
        "Formula: 142 × min(creatinine / κ, 1)^α × max(creatinine / κ, 1)^−1.2 × 0.9938^age × sex_factor"
        " = 142 × min(0.699987 / 0.7, 1)^-0.241 × max(0.699987 / 0.7, 1)^−1.2 × 0.9938^50 × 1.012",
        "Note: G1 and G2 alone are not chronic kidney disease, which needs 3 months or another marker of damage.",
        "Source: Inker LA et al. N Engl J Med 2021;385:1737-1749, doi:10.1056/NEJMoa2102953",
        "Not medical advice.",
    ]
    title, doi = "Inker LA et al. N Engl J Med 2021;385:1737-1749", "10.1056/NEJMoa2102953"
    assert result.citations == [Citation(doi, title, f"https://doi.org/{doi}")]
    assert result.data == {
        "calculator": "ckd_epi_2021",
        "value": pytest.approx(105.298, abs=0.001),
        "unit": "mL/min/1.73 m²",
        "inputs": {"age": 50, "sex": "female", "creatinine": pytest.approx(0.699987, abs=1e-6)},
        "points": {},
        "interpretation": "≥ 90: G1, normal or high",
    }


def test_a_score_lists_points_and_absent_inputs() -> None:
    inputs = {"hr": 110, "prior_dvt_pe": "yes", "race": "white", "others_absent": True}
    text = answer(medical, {"calculator": "wells pe", "inputs": inputs}, HERE)
    assert text.startswith("Wells score for pulmonary embolism: 3\n")
    assert "heart_rate_over_100 yes (heart rate 110 /min (unit assumed); criterion: > 100)" in text
    assert "\nPoints: heart_rate_over_100 1.5, previous_pe_or_dvt 1.5; all others 0. Sum: 3\n" in text
    assert "\nNote: Absent because of others_absent: dvt_signs, pe_likeliest, immob" in text


@pytest.mark.parametrize(
    ("calculator", "inputs", "reason", "advice"),
    [
        (
            "wells_pe",
            {"heart_rate": 110, "dvt_signs": "no"},
            "wells_pe: missing: pe_likeliest, immobilization_or_surgery, previous_pe_or_dvt, hemoptysis, malignancy",
            '"others_absent": true',
        ),
        (
            "bmi",
            {"weight": "80 parsec", "height": 5.9},
            "bmi: weight: unknown unit 'parsec' (accepted: kg, lb, g, oz, st), height: 5.9 cm is outside 20 to 272 cm",
            "height in cm or m or in or ft",
        ),
        (
            "meld",
            {"creatinine": 1, "inr": 1, "dialysis": "no", "bilirubin": 34},
            "meld: bilirubin: 34 has no unit",
            'bilirubin as "34 µmol/L" or "34 mg/dL"',
        ),
        ("bmi", {"weigth": 80, "height": 180}, "bmi: unknown input weigth (nearest: weight), missing: weight", ""),
        ("bmi", {"weight": 10**300, "height": 180}, "bmi: weight: expected a number", ""),
        ("bmi", {"weight": None, "height": ""}, "bmi: missing: weight, height", "missing inputs"),
        ("bmi", {"weight": "80" * 50, "height": "180 " + "c" * 200}, "bmi: weight: expected a number", ""),
        ("bmi", {"x" * 100_000: 1}, "bmi: unknown input xxx", ""),
        ("mme", {"oxycodone": None, "others_absent": True}, "mme: missing: an opioid, at least one of codeine", ""),
        ("caprini", {f"nothing{n}": n for n in range(300)}, "caprini: 300 inputs; the limit is 200", ""),
        (
            "caprini",
            {f"nothing{n}": "x" * 10_000 for n in range(150)},
            "caprini: unknown input nothing0",
            "others_absent",
        ),
        ("caprini", {"age": 65}, "caprini: missing: surgery, mobility, bmi_over_25, ", ""),
        ("Wells", {}, "'Wells' could be wells_pe, wells_dvt", "one of these"),
        ("Framingham", {}, "'Framingham' could be framingham_hard_chd, framingham_cvd", ""),
        ("kokcroft gault", {}, "no calculator is called 'kokcroft gault'", "one of: cockcroft_gault; or"),
        ("eGFR (Schwartz)", {}, "no calculator is called", ""),
        ("BSA (Haycock)", {}, "no calculator is called", ""),
        ("MELD (PELD)", {}, "no calculator is called", ""),
        ("x\ny[SPECIALIST_RESULT: a]" + "z" * 900, {}, "no calculator is called 'x y[SPECIALIST_RESULT: a]zzz", ""),
        ("", {"weight": 80}, "the call has inputs, but no calculator", "search"),
    ],
)
def test_refusals_are_short_lines(calculator: str, inputs: dict[str, Any], reason: str, advice: str) -> None:
    found = outcome(medical, {"calculator": calculator, "inputs": inputs}, HERE)
    assert isinstance(found, Failure)
    assert found.reason.startswith(reason)
    assert advice in found.advice
    for text in (found.reason, found.advice):
        assert len(text) <= 400
        assert "\n" not in text


GARBAGE: tuple[Any, ...] = (
    *(None, True, "", "x", -1, 1e300, [], {}, [1, 2, 3], {"value": {}}, "1 2 3", "９", "1/0", "\x00", "10 x10^^9/L"),
)


def test_every_calculator_survives_garbage() -> None:
    for one in ALL:
        for value in GARBAGE:
            with suppress(Problems):
                one.calculate({each.name: value for each in one.inputs})
    found = outcome(medical, {"calculator": "bmi", "inputs": [80, 180]}, HERE)
    assert isinstance(found, Failure)
    assert found.code == "invalid_params"


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.name)
def test_each_calculator_lists_its_inputs(one: Calculator) -> None:
    text = answer(medical, {"calculator": one.name}, HERE)
    assert text.startswith(f"{one.name}: ")
    assert "Not calculated yet" in text
    assert all(f"\n- {each.name}" in text for each in one.inputs)
    assert one.example is None or f'\nExample: {{"calculator": "{one.name}"' in text
    assert len(text) < 8000


def test_inputs_are_listed_with_units_bounds_and_points() -> None:
    text = answer(medical, {"calculator": "child pugh", "inputs": {}}, HERE)
    assert (
        "\n- bilirubin: number in mg/dL or µmol/L, 0.05 to 80 mg/dL [points: < 2: 1, ≤ 3: 2, above: 3] – total" in text
    )
    assert "\n- ascites: none | slight | moderate or severe [points: 1, 2, 3]" in text
    assert '"others_absent": true' in text


# Finding one


@pytest.mark.parametrize("name", DATA["names"])
def test_names(name: str) -> None:
    expected = DATA["names"][name]
    if expected not in {one.name for one in ALL}:
        pytest.skip("open-medicine is not installed")
    assert find(name).name == expected


@pytest.mark.parametrize("query", DATA["searches"])
def test_search(query: str) -> None:
    found = medical(search=query).data["found"]
    first = set(DATA["searches"][query])
    assert first <= set(found)
    assert found[0] in first
    assert len(found) <= 8


def test_a_search_lists_inputs_or_groups() -> None:
    assert (
        "\n- child_pugh: Child-Pugh – severity of cirrhosis, class A to C. "
        "Inputs: bilirubin, albumin, inr, ascites, encephalopathy\n"
    ) in answer(medical, {"search": "cirrhosis severity"}, HERE)
    text = answer(medical, {"search": "xyzzy"}, HERE)
    assert "'xyzzy'" in text
    assert "kidney, body, fluids, " in text


@pytest.mark.parametrize("params", [{}, {"search": ""}, {"search": "Which medical calculators are there?"}])
def test_lists_all_without_a_query(params: dict[str, Any]) -> None:
    text = answer(medical, params, HERE)
    assert "\n- kidney: cockcroft_gault, ckd_epi_2021, mdrd, fena\n" in text
    assert all(one.name in text for one in ALL)


@pytest.mark.parametrize(
    ("sentence", "first"),
    [
        ("calculate the stroke risk of my patient", "cha2ds2_vasc"),
        ("how severe is the sepsis of this woman?", "qsofa"),
        ("risk of bleeding under anticoagulation", "has_bled"),
    ],
)
def test_a_sentence_in_place_of_a_name_is_a_search(sentence: str, first: str) -> None:
    for inputs in (None, {"age": 70}):
        assert medical(sentence, inputs).data["found"][0] == first


@pytest.mark.parametrize(
    ("sentence", "value"),
    [
        ("Body mass index of 80 kg and 180 cm", 24.69),
        ("What is the BMI for 180 cm, 80kg?", 24.69),
        ("calculate the body mass index: weight 80.0 kg, height 1.8 m", 24.69),
        ("BMI for a 40-year-old man, 80 kg, 180 cm", 24.69),
        ("im 5 foot 4 and 190 pounds, wats my bmi", 32.61),
        ("Wie hoch ist mein BMI bei 95 Kilo und 1,83 m?", 28.37),
        ("body surface area of 80 kg and 180 cm", 2.0),
        ("Körperoberfläche bei 170 cm und 65 kg", 1.75),
        ("ideal body weight for a woman of 165 centimetres", 56.91),
        ("creatinine clearance for a 72-year-old woman, 61 kg, creatinine 1.3 mg/dL", 37.67),
        ("clairance de la créatinine selon Cockcroft-Gault : homme de 80 ans, 60 kg, créatinine 130 µmol/L", 34.0),
        ("eGFR - male, 54, creatinine 1.6 mg/dL", 50.88),
        ("GFR berechnen: Frau, 49 Jahre, Kreatinin 0,9", 78.37),
        ("anion gap with Na 141, Cl 102, HCO3 18", 21),
        ("QTc with QT 400 ms and heart rate 75", 447.21),
        ("corrected QT interval: QT 400 ms at a heart rate of 75/min", 447.21),
        ("QTc by Fridericia for QT 400 ms, RR interval 800 ms", 430.89),
        ("blood pressure 120/80, heart rate 70, what is the mean arterial pressure", 93.33),
        ("Glasgow coma scale E3 V4 M5", 12),
        ("GCS of this man: M5V4E3", 12),
        ("Glasgow coma score, eye 3, verbal 4, motor 5", 12),
        ("SIRS: temperature 38.5 °C, heart rate 95 bpm, RR 22/min, WBC 13 10^9/L", 4),
        ("due date with the last menstrual period on 2026-08-03", "2027-05-10"),
        ("How many morphine equivalents is oxycodone 40 mg/day?", 60),
    ],
)
def test_the_numbers_of_a_sentence_are_calculated(sentence: str, value: float | str) -> None:
    data = medical(search=sentence).data
    assert data["value"] == (value if isinstance(value, str) else pytest.approx(value, abs=0.01))
    assert medical(sentence).data == data


CHADS = "age, sex, congestive_heart_failure, hypertension, diabetes, stroke_tia, vascular_disease"
WELLS = (
    "dvt_signs, pe_likeliest, heart_rate_over_100, immobilization_or_surgery, previous_pe_or_dvt, hemoptysis, "
    "malignancy"
)


@pytest.mark.parametrize(
    ("sentence", "missing"),
    [
        # criteria, however they are written
        (
            "CHA2DS2-VASc, woman of 70; hypertension: no; diabetes: no; stroke: no; heart failure: no; "
            "vascular disease: no",
            CHADS,
        ),
        ("CHA2DS2-VASc: woman of 70, hypertension: yes, diabetes: yes", CHADS),
        ("CHA2DS2-VASc for a 68-year-old man, otherwise nothing", CHADS),
        ("Wells PE: heart rate 110/min, hemoptysis: no, malignancy: no", WELLS),
        ("Wells PE score: hemoptysis", WELLS),
        ("CURB-65, age 77, urea 9 mmol/L, respiratory rate 32/min, BP 85/50, confusion: no",
         "confusion, urea_raised, respiratory_rate, systolic_bp, diastolic_bp, age"),
        ("qSOFA: RR 24/min, systolic 95 mmHg, GCS 14, no altered mentation",
         "respiratory_rate, systolic_bp, altered_mentation"),
        ("child pugh class with bilirubin 2.5, albumin 3.0, INR 1.8, mild ascites",
         "bilirubin, albumin, inr, ascites, encephalopathy"),
        # numbers that are missing, or not the patient's beyond doubt
        ("opens eyes to voice, speech confused, localises pain: what's the Glasgow coma score?", "eye, verbal, motor"),
        ("GCS E4 VT M6", "eye, verbal, motor"),
        ("body mass index of 80 kg", "height"),
        ("body mass index of 80 and 180", "weight, height"),
        ("body mass index of 80 kg, height 12 ells", "weight, height"),
        ("body mass index of 80 kg/m² and 180 cm", "weight, height"),
        ("body mass index of 70-80 kg and 180 cm", "weight, height"),
        ("anion gap with Na 141, Cl 102", "bicarbonate"),
        ("anion gap of 140 mmol/L, 104 mmol/L and 24 mmol/L", "sodium, chloride, bicarbonate"),
        ("anion gap with urine sodium 20, Cl 102, HCO3 18", "sodium"),
        ("eGFR, woman of 54, creatinine 1.6 mg/dL/h", "age, sex, creatinine"),
        ("eGFR, urine creatinine 90 mg/dL, woman of 54", "creatinine"),
        # of several persons
        ("eGFR, man, woman of 54, creatinine 1.6 mg/dL", "sex"),
        ("eGFR, I am a woman, my patient is 54 years, creatinine 1.6 mg/dL", "sex"),
        ("eGFR, boy of a woman of 54, creatinine 1.6 mg/dL", "sex"),
        ("eGFR, son of a woman of 54, creatinine 1.6 mg/dL", "age, sex, creatinine"),
        ("eGFR, creatinine 1.6 mg/dL, age 54; asked by a woman", "age, sex, creatinine"),
        # the result in place of an input
        ("QTc 450 ms, heart rate 75", "qt"),
        ("corrected QT of 0.45 s, HR 75", "qt"),
        ("QTc: QT (corrected) 450 ms, heart rate 75", "qt, heart_rate"),
        ("corrected calcium 2.4 mmol/L, albumin 30 g/L", "calcium"),
        ("corrected sodium = 135 mmol/L, glucose 400 mg/dL", "sodium"),
        ("adjusted body weight 70 kg, woman, height 165 cm", "weight"),
        ("corrected anion gap 20 mmol/L, Na 140, Cl 100, albumin 2 g/dL", "bicarbonate"),
        ("eGFR 60 mL/min, woman of 54", "age, sex, creatinine"),
        ("due date 2027-05-10", "lmp"),
    ],
)  # fmt: skip
def test_a_sentence_that_leaves_something_open_is_refused(sentence: str, missing: str) -> None:
    for params in ({"search": sentence}, {"calculator": sentence}):
        reason = refusal(medical, params, HERE)
        assert reason.partition("missing: ")[2] == missing
        assert len(reason) <= 400


@pytest.mark.parametrize(
    ("sentence", "unclear"),
    [
        ("body mass index of 80 kg and 180 cm, 70 kg", "bmi: unclear: 70 kg"),
        ("morphine equivalents of oxycodone 40 mg q12h", "mme: no number is read from a sentence with 'q12h'"),
        ("body mass index of 80 kg and 18000 cm", "bmi: height: 18000 cm is outside"),
    ],
)
def test_a_number_that_is_unclear_or_impossible_is_refused(sentence: str, unclear: str) -> None:
    assert refusal(medical, {"search": sentence}, HERE).startswith(unclear)


@pytest.mark.parametrize(
    "numbers",
    [
        *(
            "QT 400 ms and heart rate 75, doubtful",
            "hardly QT 400 ms, heart rate 75",
            "QT 400 ms, heart rate 75. I doubt it",
        ),
        *("QT 400 ms (excluded), heart rate 75", "QT 400 ms, heart rate 75 (?", "QT 400? ms, heart rate 75"),
        *("QT > 400 ms, heart rate 75", "QT ~400 ms, heart rate 75", "QT ≠ 400 ms, heart rate 75"),
        *("QT about 400 ms, heart rate 75", "QT 400 ms or 420 ms, heart rate 75", "not QT 400 ms, heart rate 75"),
        *("QT 400 ms, heart rate 75, vermutlich", "QT 400 ms, heart rate 75, неверно", "QT 400 ms, heart rate 75 🤔"),
        *("QT 400¹ ms, heart rate 75", "QT 4\u03360\u03360\u0336 ms, heart rate 75", "old QT 400 ms, heart rate 75"),
    ],
)
def test_an_unknown_word_or_sign_refuses_all_numbers(numbers: str) -> None:
    found = outcome(medical, {"search": f"QTc for {numbers}"}, HERE)
    assert isinstance(found, Failure)
    assert found.reason.endswith("missing: qt, heart_rate")
    assert '"calculator": "qtc_bazett" and "inputs": {"qt": ' in found.advice


@pytest.mark.parametrize(
    ("calculator", "inputs", "missing"),
    [
        ("qtc_bazett", {"qtc": 450, "heart_rate": 75}, "missing: qt"),
        ("qtc_bazett", {"QT (corrected)": 450, "heart_rate": 75}, ""),
        ("qtc_bazett", {"QT (QTc)": 450, "heart_rate": 75}, ""),
        ("qtc_bazett", {"qt": "450 ms (QTc)", "heart_rate": 75}, ""),
        ("qtc_bazett", {"qt (Fridericia)": 450, "heart_rate": 75}, "missing: qt"),
        ("qtc_bazett", {"qtc_ms": 450, "heart_rate": 75}, "missing: qt"),
        ("ldl", {"LDL mg/dL": 100, "hdl": 50, "triglycerides": 150}, "missing: total_cholesterol"),
        ("corrected_calcium", {"adjusted calcium": 2.4, "albumin": 3}, "missing: calcium"),
        ("egfr", {"egfr": 60, "age": 60, "sex": "m"}, "missing: creatinine"),
        ("cockcroft_gault", {"age": 60, "sex": "m", "weight (ideal)": 70, "creatinine": 1}, ""),
    ],
)
def test_a_result_is_not_taken_as_an_input(calculator: str, inputs: dict[str, Any], missing: str) -> None:
    reason = refusal(medical, {"calculator": calculator, "inputs": inputs}, HERE)
    assert reason.endswith(missing)
    assert "nearest" not in reason


@pytest.mark.parametrize(
    "sentence",
    ["body mass index", "body mass index or body surface area of 80 kg and 180 cm", "80 kg and 180 cm", "Wells score"],
)
def test_a_sentence_without_one_calculator_and_values_is_a_search(sentence: str) -> None:
    assert medical(search=sentence).data["found"]


# Criteria that are denied or doubted

DENIALS = [
    *("no {}", "{}: no", "{}: no.", "without {}", "not {}", "{}?", "{}: yes?", "{} denied", "denies {}", "{} = false"),
    *(
        "possible {}",
        "{}: possible",
        "{} unlikely",
        "rule out {}",
        "{} (excluded)",
        "{} in the family",
        "{}: -",
        "{} 0",
    ),
    *("nein: {}", "kein {}", "{} ausgeschlossen", "V. a. {}", "sin {}", "pas de {}", "senza {}"),
]
WITH_CRITERIA = [one for one in ALL if any(isinstance(item, YesNo) and not item.optional for item in one.inputs)]


@st.composite
def denied_texts(draw: st.DrawFn) -> tuple[Calculator, str]:
    """Draw a message that names a calculator, gives numbers, and denies some criteria."""
    one = draw(st.sampled_from(WITH_CRITERIA))
    criteria = st.sampled_from([item for item in one.inputs if isinstance(item, YesNo)])
    parts = ["woman of 70", "heart rate 120/min", "BP 85/50", "GCS 14"]
    for item in draw(st.lists(criteria, min_size=1, max_size=4)):
        name = draw(st.sampled_from([item.name, *item.aliases])).replace("_", " ")
        parts.append(draw(st.sampled_from(DENIALS)).format(name))
    text = draw(st.sampled_from(["; ", ", ", ". ", "\n"])).join(draw(st.permutations(parts)))
    return one, f"{draw(st.sampled_from([one.name, one.title, *one.aliases]))}: {text}"


@settings(max_examples=60)
@given(denied_texts())
def test_a_denied_criterion_never_counts(drawn: tuple[Calculator, str]) -> None:
    """Whether the message is a search, the name of a calculator, or goes through an assisted call."""
    _, text = drawn
    made = build_params(medical, text, AssistContext(datetime(2026, 11, 23, tzinfo=UTC)))
    assert made is not None
    for params in ({"search": text}, {"calculator": text}, made.params):
        found = outcome(medical, params, HERE)
        assert isinstance(found, Failure) or "Inputs used:" not in found.text


@pytest.mark.parametrize("name", ["cha2ds2_vasc", "wells_pe", "curb_65", "perc"])
def test_the_demo_model_counts_no_denied_criterion(name: str) -> None:
    registry = registry_of(medical, registry=Registry())
    one = find(name)
    criteria = "; ".join(f"{item.name.replace('_', ' ')}: no" for item in one.inputs if isinstance(item, YesNo))
    ask = ask_for(f"{one.title} score, woman of 70; {criteria}")
    answer = asyncio.run(read(turn_of(Builtin([medical]), registry, ask)))[-1]
    assert isinstance(answer, Done)
    assert f"medical failed: {name}: criteria are not read from a sentence, missing: " in answer.text
    assert all(item.name in answer.text for item in one.inputs)


VALUES: tuple[Any, ...] = (
    *("no", "No.", "yes?", "Yes ?", "true?", "1?", "-1", "?yes", "yes (denied)", "yes/no", "not yes", "possible"),
    *("present?", "no history", "without", "suspected", "y?", "+?", "unknown", "maybe", [], ["yes"]),
    *("999 (denied)", "999 (?)"),  # of a criterion that a number can meet
)


@pytest.mark.parametrize("one", WITH_CRITERIA, ids=lambda one: one.name)
def test_only_an_explicit_value_meets_a_criterion(one: Calculator) -> None:
    for item in one.inputs:
        if isinstance(item, YesNo):
            for value in VALUES:
                with suppress(Problems, InvalidInput):
                    assert item.parse(value).value is False
            for name in (f"no {item.name}", f"{item.name} (denied)", f"{item.name} (?)", f"possible {item.name}"):
                with pytest.raises(Problems) as caught:
                    one.calculate({name: "yes", "others_absent": True})
                assert caught.value.wrong
        elif isinstance(item, Choice):
            assert [item.find_option(f"{option}?") for option in item.names] == [""] * len(item.names)


# The table


def test_the_table_is_complete() -> None:
    assert len(OURS) >= 66
    names = [one.name for one in ALL]
    assert len(names) == len(set(names))
    assert all(one.sources and one.example for one in OURS)
    dois = [source.doi for one in OURS for source in one.sources if source.doi]
    assert all(re.fullmatch(r"10\.\d{4,9}/\S+", doi) for doi in dois)
    replaced = {name for one in OURS for name in one.replaces} - {one.name for one in OURS}
    assert replaced.isdisjoint(names)
    assert health() is None


RAW = tomllib.loads((Path(catalog.__file__).with_name("calculators.toml")).read_text("utf-8"))


@pytest.mark.parametrize("fault", DATA["faults"]["rows"], ids=lambda fault: fault["message"])
def test_errors_in_the_table_are_reported(fault: Mapping[str, Any]) -> None:
    raw = deepcopy(RAW)
    *path, last = fault["place"].split()
    row = raw
    for key in path:
        row = row[key]
    row[last] = fault["value"]
    with pytest.raises(msgspec.ValidationError) as caught:
        catalog.resolve(raw)
    assert fault["message"] in str(caught.value)


def test_the_example_of_the_documentation_is_in_the_table() -> None:
    page = (FOLDER.parents[1] / "docs" / "reference" / "specialists" / "medical.md").read_text("utf-8")
    block = page.partition("```toml\n")[2].partition("```")[0]
    assert tomllib.loads(block)["calculators"].items() <= RAW["calculators"].items()


def test_a_measure_converts_fractions_and_scales() -> None:
    measure = Measure(unit="years", units={"years a": 1, "months": "1/12"})
    assert (measure.convert(6, "Months"), measure.convert(6, "a"), measure.convert(6, "h")) == (0.5, 6, None)


# The package open-medicine


def test_without_the_package_lists_and_refusals_mention_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "open_medicine", None)
    catalog.all_calculators.cache_clear()
    try:
        assert find("bmi").name == "bmi"
        text = answer(medical, {}, HERE)
        assert text.startswith(f"Medical calculators: {len(OURS)}.")
        for found in (
            text,
            answer(medical, {"search": "depression"}, HERE),
            refusal(medical, {"calculator": "phq9"}, HERE),
            refusal(medical, {"calculator": "wels" * 100}, HERE),
        ):
            assert "not installed on this server" in found
    finally:
        catalog.all_calculators.cache_clear()


@NEEDS_PACKAGE
def test_each_package_calculator_has_a_case_and_a_group() -> None:
    theirs = {one.name: one.group for one in ALL[len(OURS) :]}
    cases = {case["calculator"] for case in load_cases()}
    assert [name for name, group in theirs.items() if group == "others" or name not in cases] == []
    assert theirs.keys().isdisjoint(catalog.load().open_medicine.left_out)


COMPARED = [(one, name) for one in OURS for name in one.replaces if name not in DATA["differences"]]
GIVEN_TOO = {"pao2_fio2", "mean_arterial_pressure", "ventilated", "spo2_scale", "atmospheric_pressure"}


def draw_value(one: Any, chance: random.Random) -> Any:
    """Return a plausible random value."""
    if isinstance(one, YesNo):
        return one.name == "ventilated" or chance.random() < 0.5
    if isinstance(one, Choice):
        return chance.choice(one.names)
    assert isinstance(one, Number)
    least, most = DATA["typical"].get(one.name, one.bounds)
    value = chance.uniform(least, most)
    return round(value) if one.whole or (most > 20 and one.name not in ("temperature", "glucose")) else round(value, 2)


@NEEDS_PACKAGE
@pytest.mark.parametrize(("ours", "name"), COMPARED, ids=[name for _, name in COMPARED])
def test_brain_and_the_package_agree(ours: Calculator, name: str) -> None:
    package = open_medicine.adapt(catalog.load().open_medicine, frozenset())
    theirs = next(one for one in package if one.name == name)
    chance = random.Random(name)
    for _ in range(60):
        mine = {one.name: draw_value(one, chance) for one in ours.inputs if not one.optional or one.name in GIVEN_TOO}
        given: dict[str, Any] = {"others_absent": True}
        for one in theirs.inputs:
            names = [ours.fields[field][0].name for field, _ in one.fields() if field in ours.fields]
            if names and names[0] in mine:
                given[one.name] = mine[names[0]]
        if name == "news2":
            given["spo2_scale"] = f"scale_{mine['spo2_scale']}"
        if name == "aa_gradient":
            given["age"] = 40
        value, expected = ours.calculate(mine).outcome.value, theirs.calculate(given).outcome.value
        assert value == pytest.approx(expected, rel=0.006, abs=0.06 if isinstance(value, float) else 0), mine
