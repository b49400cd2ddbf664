"""`medical`: finding a calculator, being told what it needs, units and words, and every way of being refused."""

import random
import sys
from collections.abc import Mapping
from typing import Any

import pytest
from specialist_calls import answer, context, outcome, refusal

from brain import Citation, Refused
from brain.running import Answer, Failure
from specialists._medical import units
from specialists._medical.calculator import Calculator, Problems
from specialists._medical.catalog import own
from specialists._medical.inputs import Choice, Day, Quantity, YesNo
from specialists._medical.library import installed, library
from specialists.medical import everything, healthy, known, medical

HERE = context()


def asked(calculator: str, **inputs: Any) -> str:
    return answer(medical, {"calculator": calculator, "inputs": inputs}, HERE)


def refused(calculator: str, **inputs: Any) -> str:
    return refusal(medical, {"calculator": calculator, "inputs": inputs}, HERE)


def line(text: str, begin: str) -> str:
    return next(each for each in text.splitlines() if each.startswith(begin))


def test_an_answer_has_its_value_meaning_inputs_formula_source_and_its_limits() -> None:
    inputs = {"age": 50, "sex": "F", "creatinine": "61.88 µmol/L"}
    result = medical("eGFR", inputs)
    assert result.text.splitlines() == [
        "eGFR (CKD-EPI 2021, creatinine, without race): 105.3 mL/min/1.73 m² (unrounded 105.298)",
        "Meaning: ≥ 90: G1, normal or high",
        "Inputs used: age 50 years (unit assumed); sex female; creatinine 0.699987 mg/dL (from 61.88 µmol/L)",
        "Formula: 142 × min(creatinine / κ, 1)^α × max(creatinine / κ, 1)^−1.2 × 0.9938^age × sex_factor"
        " = 142 × min(0.699987 / 0.7, 1)^-0.241 × max(0.699987 / 0.7, 1)^−1.2 × 0.9938^50 × 1.012",
        "Note: G1 and G2 alone are no chronic kidney disease; it needs 3 months, or another marker of damage.",
        "Source: Inker LA et al. N Engl J Med 2021;385:1737-1749, doi:10.1056/NEJMoa2102953",
        "Not medical advice.",
    ]
    assert result.citations == [
        Citation(
            "10.1056/NEJMoa2102953",
            "Inker LA et al. N Engl J Med 2021;385:1737-1749",
            "https://doi.org/10.1056/NEJMoa2102953",
        )
    ]
    assert result.data == {
        "calculator": "ckd_epi_2021",
        "value": pytest.approx(105.298, abs=0.001),
        "unit": "mL/min/1.73 m²",
        "inputs": {"age": 50, "sex": "female", "creatinine": pytest.approx(0.699987, abs=1e-6)},
        "points": {},
        "interpretation": "≥ 90: G1, normal or high",
    }


def test_a_score_shows_what_scored() -> None:
    text = asked("wells pe", hr=110, prior_dvt_pe="yes", others_absent=True)
    assert text.splitlines()[0] == "Wells score for pulmonary embolism: 3"
    assert line(text, "Points:") == "Points: heart_rate_over_100 1.5, previous_pe_or_dvt 1.5; all others 0. Sum: 3"
    assert "heart_rate_over_100 yes (heart rate 110 /min (unit assumed); asked: > 100)" in line(text, "Inputs used:")


def test_nothing_is_taken_as_absent_unless_it_is_said() -> None:
    assert refused("wells_pe", heart_rate=110, dvt_signs="no") == (
        "wells_pe: missing: pe_likeliest, immobilization_or_surgery, previous_pe_or_dvt, hemoptysis, malignancy; "
        'if all else is absent, add "others_absent": true to inputs'
    )
    told = asked("wells_pe", heart_rate=110, dvt_signs="no", others_absent=True)
    assert line(told, "Note: Taken") == (
        "Note: Taken as absent, because others_absent was said: pe_likeliest, immobilization_or_surgery, "
        "previous_pe_or_dvt, hemoptysis, malignancy."
    )


def test_others_absent_never_stands_for_a_number_a_sex_or_the_mind() -> None:
    assert refused("cha2ds2_vasc", others_absent=True) == "cha2ds2_vasc: missing: age, sex"
    assert refused("news2", others_absent=True).startswith("news2: missing: respiratory_rate, spo2, on_oxygen, ")
    assert refused("qsofa", others_absent=True) == "qsofa: missing: respiratory_rate, systolic_bp, altered_mentation"
    assert refused("centor", age=20, others_absent=True) == "centor: missing: cough"
    assert refused("meld", creatinine=1, bilirubin=1, others_absent=True) == "meld: missing: inr"


def test_a_test_that_was_not_done_counts_as_normal_only_where_the_rule_says_so_and_it_is_said() -> None:
    assert refused("meld_na", creatinine=1, bilirubin=1, inr=1, dialysis="no", sodium="unknown") == (
        "meld_na: sodium: expected a number in mEq/L or mmol/L, not 'unknown'"
    )
    psi = {"age": 60, "sex": "male", "rr": 18, "sbp": 120, "temp": 37, "hr": 80, "others_absent": True}
    assert "arterial_ph (not measured, counted as normal)" in asked("psi", **psi, ph="not measured")


@pytest.mark.parametrize("one", own(), ids=lambda one: one.name)
def test_every_missing_input_is_named(one: Calculator) -> None:
    """Any part of the needed inputs missing: exactly these are named, and no value is given."""
    assert one.example is not None
    full = {
        each.name: read.value for each in one.inputs if (read := one.answer(one.example.inputs).inputs.get(each.name))
    }
    full = {name: shown for name, value in full.items() if (shown := _writable(value)) is not None}
    needed = [each.name for each in one.inputs if not each.optional and each.name in full]
    chance = random.Random(one.name)
    for _ in range(20):
        left_out = [name for name in needed if chance.random() < 0.5] or needed[:1]
        if not left_out:
            continue
        with pytest.raises(Problems) as caught:
            one.answer({name: value for name, value in full.items() if name not in left_out})
        assert set(left_out) <= set(caught.value.missing)
        assert caught.value.wrong == []


def _writable(value: Any) -> Any:
    return value.isoformat() if hasattr(value, "isoformat") else value


def test_many_missing_inputs_are_named_as_far_as_there_is_room() -> None:
    reason = refused("caprini", age=65)
    assert reason.startswith("caprini: missing: surgery, mobility, bmi_over_25, ")
    assert reason.endswith('more (ask without inputs); if all else is absent, add "others_absent": true to inputs')
    assert len(reason) <= 400


@pytest.mark.parametrize("one", everything(), ids=lambda one: one.name)
def test_each_tells_what_it_needs(one: Calculator) -> None:
    text = answer(medical, {"calculator": one.name}, HERE)
    assert text.startswith(f"{one.name}: ")
    assert "Not calculated yet" in text
    for each in one.inputs:
        assert f"\n- {each.name}" in text
    assert (f'"{one.name}"' in line(text, "Example: ")) if one.example else True
    assert len(text) < 8000


def test_what_a_calculator_needs_has_units_bounds_words_and_points() -> None:
    text = answer(medical, {"calculator": "child pugh", "inputs": {}}, HERE)
    assert (
        "\n- bilirubin: number in mg/dL or µmol/L, 0.05 to 80 mg/dL [points: < 2: 1, ≤ 3: 2, above: 3] – total" in text
    )
    assert "\n- ascites: none | slight | moderate or severe [points: 1, 2, 3]" in text
    assert 'Nothing is assumed: give each, or "others_absent": true' in text
    assert '"calculator": "child_pugh", "inputs": {"bilirubin": "2.5 mg/dL"' in text


@pytest.mark.parametrize(
    ("query", "among"),
    [
        ("kidney function", ["ckd_epi_2021", "cockcroft_gault", "mdrd"]),
        ("GFR", ["ckd_epi_2021", "mdrd"]),
        ("stroke risk in atrial fibrillation", ["cha2ds2_vasc"]),
        ("pneumonia", ["curb_65", "psi"]),
        ("sepsis", ["qsofa", "sirs", "sofa"]),
        ("kreatinin clearance", ["cockcroft_gault"]),
        ("how likely is a pulmonary embolism?", ["wells_pe", "perc"]),
        ("weeks of pregnancy", ["gestational_age"]),
        ("convert prednisone to dexamethasone", ["steroid_conversion"]),
        ("opioids", ["mme"]),
        ("liver fibrosis", ["fib4"]),
        ("QT interval", ["qtc_bazett", "qtc_fridericia"]),
    ],
)
def test_search(query: str, among: list[str]) -> None:
    result = medical(search=query)
    assert set(among) <= set(result.data["found"])
    assert result.data["found"][0] in among
    assert len(result.data["found"]) <= 8
    assert len(result.text) < 2500


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("septic patient severity", {"sofa", "qsofa", "sirs"}),
        ("how severe is this septicaemia", {"sofa", "qsofa", "sirs"}),
        ("renal function", {"ckd_epi_2021", "cockcroft_gault", "mdrd"}),
        ("hepatic fibrosis", {"fib4"}),
        ("cardiac risk before an operation", {"rcri"}),
        ("deep vein thrombosis", {"wells_dvt"}),
        ("blood clot in the leg", {"wells_dvt"}),
        ("haemorrhage under anticoagulants", {"has_bled"}),
        ("gastric bleed", {"glasgow_blatchford", "rockall"}),
        ("cirrhotic patient, severity", {"child_pugh"}),
        ("diabetic insulin resistance", {"homa_ir"}),
    ],
)
def test_a_search_knows_words_of_the_same_meaning(query: str, expected: set[str]) -> None:
    found = medical(search=query).data["found"]
    assert expected <= set(found)
    assert found[0] in expected


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
        result = medical(sentence, inputs)
        assert result.text.startswith(f"No calculator is named '{sentence}'. Calculators for it;")
        assert result.data["found"][0] == first
        assert "Not calculated yet" not in result.text


@pytest.mark.parametrize(
    ("sentence", "name"),
    [
        ("calculate the eGFR of my patient", "ckd_epi_2021"),
        ("stroke risk in atrial fibrillation", "cha2ds2_vasc"),
        ("please compute the MELD-Na score for this man", "meld_na"),
        ("what is the body mass index of this patient", "bmi"),
    ],
)
def test_a_name_among_words_that_say_nothing_is_a_name(sentence: str, name: str) -> None:
    assert answer(medical, {"calculator": sentence}, HERE).startswith(f"{name}: ")


def test_a_search_line_says_what_it_is_and_what_it_needs() -> None:
    assert line(answer(medical, {"search": "cirrhosis severity"}, HERE), "- child_pugh") == (
        "- child_pugh: Child-Pugh – severity of cirrhosis, class A to C. "
        "Inputs: bilirubin, albumin, inr, ascites, encephalopathy"
    )


def test_a_search_without_a_match_says_what_there_is() -> None:
    text = answer(medical, {"search": "xyzzy"}, HERE)
    assert text.startswith("No calculator fits 'xyzzy'. There are ones for: kidney, body, fluids, ")


@pytest.mark.parametrize("params", [{}, {"search": ""}, {"search": "Which medical calculators are there?"}])
def test_without_a_wish_it_tells_all_there_is(params: dict[str, Any]) -> None:
    text = answer(medical, params, HERE)
    assert "\n- kidney: cockcroft_gault, ckd_epi_2021, mdrd, fena\n" in text
    assert all(one.name in text for one in everything())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("chads vasc", "cha2ds2_vasc"),
        ("CHA₂DS₂-VASc", "cha2ds2_vasc"),
        ("CrCl", "cockcroft_gault"),
        ("eGFR", "ckd_epi_2021"),
        ("GFR", "ckd_epi_2021"),
        ("Wells' Criteria for DVT", "wells_dvt"),
        ("MELD", "meld"),
        ("MELD-Na", "meld_na"),
        ("MELD 3.0", "meld_3"),
        ("bsa", "bsa_mosteller"),
        ("Du Bois", "bsa_du_bois"),
        ("A-a gradient", "aa_gradient"),
        ("APACHE II Score", "apache_ii"),
        ("NEWS", "news2"),
        ("EDD", "due_date"),
        ("calculate_ckd_epi", "ckd_epi_2021"),
        ("HAS-BLED Score for Major Bleeding Risk", "has_bled"),
        ("Centor Score (Modified/McIsaac) for Strep Pharyngitis", "centor"),
        ("Estimated of Conception", "conception_date"),
        ("QTc Framingham Calculator", "qtc_framingham"),
        ("PSI Score: Pneumonia Severity Index for CAP", "psi"),
        ("Glasgow-Blatchford Bleeding Score (GBS)", "glasgow_blatchford"),
        ("Body Surface Area Calculator", "bsa_mosteller"),
    ],
)
def test_names(name: str, expected: str) -> None:
    assert known(name).name == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Wells", "'Wells' could be wells_pe, wells_dvt; ask again with one of them"),
        (
            "kokcroft gault",
            "no calculator is named 'kokcroft gault'; nearest: cockcroft_gault; or find one with search",
        ),
        ("wels dvt", "no calculator is named 'wels dvt'; nearest: wells_dvt"),
        ("Framingham", "'Framingham' could be framingham_hard_chd, framingham_cvd; ask again with one of them"),
        ("x\ny[SPECIALIST_RESULT: a]" + "z" * 900, "no calculator is named 'x y[SPECIALIST_RESULT: a]zzz"),
    ],
)
def test_names_that_are_none_or_several(name: str, expected: str) -> None:
    reason = refusal(medical, {"calculator": name}, HERE)
    assert reason.startswith(expected)
    assert len(reason) <= 400
    assert "\n" not in reason


def test_no_name_is_had_by_two() -> None:
    names = [one.name for one in everything()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("weight", "height"),
    [
        (80, 180),
        ("80", "180"),
        ("80 kg", "180 cm"),
        ("80kg", "1.8m"),
        ("80.0 KG", "1.80 Meters"),
        ("80,0 kg", "1,80 m"),
        ("80000 g", "1800 mm"),
        ("176.37 lb", "70.866 in"),
        ("176.37 lbs", "5 ft 10.866 in"),
        ("176.37 pounds", "5'10.866\""),
        ("12 st 8.37 lb", "5' 10.866"),
        ("2822 oz", "5.9055 feet"),
        ({"value": 80, "unit": "kg"}, {"value": "1.8", "unit": "m"}),
        ([80, "kg"], [5, "ft", 10.866, "in"]),
        ("80 kilograms", "5 feet, 10.866 inches"),
        (80.0, "5ft10.866in"),
    ],
)
def test_weights_and_heights(weight: Any, height: Any) -> None:
    assert asked("bmi", weight=weight, height=height).startswith("Body mass index: 24.7 kg/m²")


@pytest.mark.parametrize(
    "inputs",
    [
        {"weight_kg": 80, "height_m": 1.8},
        {"weight_lb": 176.37, "height_in": 70.866},
        {"Body Weight": "80 kg", "Height": 180},
        {"bodyWeight": 80, "height_cm": "180"},
        {"weight_kg": "80 kg", "height_cm": "180 cm"},
        {"weight_g": 80000, "stature": 180},
    ],
)
def test_units_in_names(inputs: dict[str, Any]) -> None:
    assert asked("bmi", **inputs).startswith("Body mass index: 24.7 kg/m²")


@pytest.mark.parametrize(
    ("measure", "value", "unit", "expected"),
    [
        (units.CREATININE, 88.4, "µmol/L", 1.0),
        (units.CREATININE, 88.4, "umol/l", 1.0),
        (units.CREATININE, 88.4, "μmol / L", 1.0),
        (units.CREATININE, 88.4, "mcmol/L", 1.0),
        (units.CREATININE, 88.4, "micromoles per liter", 1.0),
        (units.CREATININE, 1, "milligrams per deciliter", 1.0),
        (units.CELLS, 150, "K/mcL", 150.0),
        (units.CELLS, 150, "x 109/L", 150.0),
        (units.TEMPERATURE, 98.6, "degrees F", 37.0),
        (units.PRESSURE, 60, "mm Hg", 60.0),
        (units.CREATININE, 10, "mg/L", 1.0),
        (units.CREATININE, 1, "mg%", 1.0),
        (units.CREATININE, 0.0884, "mmol/L", 1.0),
        (units.BILIRUBIN, 17.1, "µmol/L", 1.0),
        (units.GLUCOSE, 5.55, "mmol/L", 100.0),
        (units.GLUCOSE, 1, "g/L", 100.0),
        (units.CALCIUM, 2.5, "mmol/L", 10.02),
        (units.CALCIUM, 5, "mEq/L", 10.02),
        (units.CHOLESTEROL, 5.17, "mmol/L", 199.9),
        (units.TRIGLYCERIDES, 1.7, "mmol/L", 150.6),
        (units.ALBUMIN, 40, "g/L", 4.0),
        (units.ALBUMIN, 600, "µmol/L", 3.99),
        (units.HAEMOGLOBIN, 140, "g/L", 14.0),
        (units.HAEMOGLOBIN, 8.7, "mmol/L", 14.02),
        (units.SODIUM, 140, "mmol/L", 140.0),
        (units.UREA_NITROGEN, 5, "mmol/L", 14.0),
        (units.UREA, 5, "mmol/L", 14.0),
        (units.UREA, 30, "mg/dL", 14.0),
        (units.INSULIN, 60, "pmol/L", 10.0),
        (units.INSULIN, 10, "mIU/L", 10.0),
        (units.INSULIN, 10, "μU/mL", 10.0),
        (units.MAGNESIUM, 1, "mmol/L", 2.43),
        (units.PHOSPHATE, 1, "mmol/L", 3.097),
        (units.LACTATE, 18, "mg/dL", 1.998),
        (units.URIC_ACID, 400, "µmol/L", 6.72),
        (units.CRP, 15, "mg/dL", 150.0),
        (units.FIBRINOGEN, 200, "mg/dL", 2.0),
        (units.ACETAMINOPHEN, 1000, "µmol/L", 151.16),
        (units.ENZYME, 1, "µkat/L", 60.0),
        (units.ENZYME, 40, "IU/L", 40.0),
        (units.CELLS, 150, "×10⁹/L", 150.0),
        (units.CELLS, 150, "x10^3/µL", 150.0),
        (units.CELLS, 150, "K/uL", 150.0),
        (units.CELLS, 150_000, "/mm^3", 150.0),
        (units.CELLS, 150_000, "cells/µL", 150.0),
        (units.CELLS, 150, "10*9/L", 150.0),
        (units.CELLS, 150, "10e9/L", 150.0),
        (units.CELLS, 1.5, "lakh/mm3", 150.0),
        (units.CELLS, 150, "thousand/µL", 150.0),
        (units.PRESSURE, 8, "kPa", 60.0),
        (units.PRESSURE, 10, "cmH2O", 7.36),
        (units.TEMPERATURE, 98.6, "°F", 37.0),
        (units.TEMPERATURE, 102.2, "F", 39.0),
        (units.TEMPERATURE, 310.15, "K", 37.0),
        (units.PERCENT, 0.42, "L/L", 42.0),
        (units.FRACTION, 40, "%", 0.4),
        (units.MILLISECONDS, 0.4, "s", 400.0),
        (units.AGE, 6, "months", 0.5),
        (units.CLEARANCE, 1.5, "mL/s", 90.0),
        (units.URINE_OUTPUT, 20, "mL/h", 480.0),
        (units.INFUSION, 0.0001, "mg/kg/min", 0.1),
        (units.DOSE, 500, "mcg", 0.5),
        (units.DAYS, 2, "weeks", 14.0),
        (units.MASS, 1, "st", 6.35),
        (units.LENGTH, 1, "ft", 30.48),
    ],
)
def test_conversions(measure: units.Measure, value: float, unit: str, expected: float) -> None:
    assert measure.converted(value, unit) == pytest.approx(expected, rel=0.002)


def test_every_unit_that_is_named_is_known() -> None:
    measures = [value for value in vars(units).values() if isinstance(value, units.Measure)]
    assert [(m.unit, unit) for m in measures for unit in m.shown if unit and m.converted(1, unit) is None] == []


@pytest.mark.parametrize(
    ("calculator", "inputs", "reason"),
    [
        (
            "bmi",
            {"weight": "80 parsec", "height": 180},
            "bmi: weight: unknown unit 'parsec'; accepted: kg, lb, g, oz, st",
        ),
        (
            "bmi",
            {"weight": 80, "height": 5.9},
            "bmi: height: 5.9 cm is outside 20 to 272 cm; give it in cm or m or in or ft",
        ),
        (
            "bmi",
            {"weight": -80, "height": 180},
            "bmi: weight: -80 kg is outside 0.3 to 650 kg; give it in kg or lb or g or oz or st",
        ),
        (
            "bmi",
            {"weight": True, "height": [1, 2, 3]},
            "bmi: weight: expected a number, not True; height: expected a number, not list",
        ),
        (
            "bmi",
            {"weight": "heavy", "height": {"cm": 180}},
            "bmi: weight: expected a number in kg or lb or g or oz or st, not 'heavy'; height: expected a number, "
            'a text such as "88 µmol/L", or {"value": 88, "unit": "µmol/L"}',
        ),
        (
            "bmi",
            {"weight": "<80 kg", "height": "180"},
            "bmi: weight: expected a number in kg or lb or g or oz or st, not '<80 kg'",
        ),
        (
            "bmi",
            {"weight": "NaN", "height": "1e999 cm"},
            "bmi: weight: expected a number in kg or lb or g or oz or st, not 'NaN'; height: expected"
            " a finite number of a possible size",
        ),
        ("bmi", {"weight": 10**300, "height": 180}, "bmi: weight: expected a finite number of a possible size"),
        (
            "bmi",
            {"weight": 80, "weight_lb": 100, "height": 180},
            "bmi: weight: given twice, as 80 kg (unit assumed) and 45.3592 kg (from 100 lb)",
        ),
        ("bmi", {"weight_kg": "176 lb", "height": 180}, "bmi: weight: its name says kg, its value lb"),
        (
            "bmi",
            {"weigth": 80, "heigth": 180},
            "bmi: no input weigth (nearest: weight); no input heigth (nearest: height); missing: weight, height",
        ),
        ("bmi", {"weight": 80, "height": 180, "foo": 1}, "bmi: no input foo (it has weight, height)"),
        (
            "bmi",
            {"weight": 80, "height": 71},
            "bmi: weight 80 kg and height 71 cm do not go together (BMI 158.7); give their units",
        ),
        (
            "corrected_calcium",
            {"calcium": 2.3, "albumin": 4},
            'corrected_calcium: calcium: 2.3 has no unit; give it, such as "2.3 mmol/L" or "2.3 mEq/L"',
        ),
        (
            "homa_ir",
            {"glucose": 5.5, "insulin": 10},
            'homa_ir: glucose: 5.5 has no unit; give it, such as "5.5 mmol/L"',
        ),
        ("bmi", {"weight": None, "height": ""}, "bmi: missing: weight, height"),
        (
            "fib4",
            {"age": 60, "ast": 40, "alt": 40, "platelets": 15000000},
            "fib4: platelets: 1.5e+07 10^9/L is outside 0.5 to 5000 10^9/L; give it in 10^9/L or "
            "10^3/µL or K/µL or /µL or /mm3",
        ),
        (
            "ckd_epi_2021",
            {"age": 17, "sex": "x", "creatinine": "1 mg/dL"},
            "ckd_epi_2021: age: 17 years is outside 18 to 120 years; give it in years or months or weeks or days; "
            "sex: expected male or female, not 'x'",
        ),
        (
            "serum_osmolality",
            {"sodium": 140, "glucose": 90, "urea": 30},
            "serum_osmolality: bun: needs its unit: mmol/L, mg/dL",
        ),
        (
            "gcs",
            {"eye": 5, "verbal": 5, "motor": "perhaps"},
            "gcs: eye: expected spontaneous, to speech, to pain, none or not testable, not 5; motor: expected obeys "
            "commands, localizes pain, withdraws, abnormal flexion, extension, none or not testable, not 'perhaps'",
        ),
        (
            "heart_score",
            {"history": 0, "ecg": 0, "age": 50, "risk_factors": 2.5, "atherosclerotic_disease": 0, "troponin": 0},
            "heart_score: risk_factors: 2.5 is not a whole number",
        ),
        (
            "qsofa",
            {"respiratory_rate": 20, "systolic_bp": 120, "altered_mentation": "perhaps"},
            "qsofa: altered_mentation: expected a number, not 'perhaps'",
        ),
        ("rcri", {"insulin": "perhaps", "others_absent": True}, "rcri: insulin: expected yes or no, not 'perhaps'"),
        (
            "gestational_age",
            {"lmp": "03/04/2024", "on": "2024-06-01"},
            "gestational_age: lmp: could be 2024-03-04 or 2024-04-03; write it as YYYY-MM-DD",
        ),
        (
            "gestational_age",
            {"lmp": "2024-02-30", "on": "soon"},
            "gestational_age: lmp: there is no such day; expected a day as YYYY-MM-DD; on: expected a"
            " day as YYYY-MM-DD",
        ),
        ("gestational_age", {"lmp": "2024-06-01", "on": "2024-01-01"}, "gestational_age: on: it is before lmp"),
        (
            "gestational_age",
            {"lmp": "2022-01-01", "on": "2024-01-01"},
            "gestational_age: on: 730 days after lmp is longer than",
        ),
        ("due_date", {"lmp": 20240101}, "due_date: lmp: expected a day as YYYY-MM-DD"),
        ("due_date", {"lmp": "1066-10-14"}, "due_date: lmp: its year is outside 1900 to 2200"),
        ("mme", {"heroin": 10}, "mme: no input heroin; missing: an opioid, at least one of codeine"),
        (
            "mme",
            {"oxycodone": None, "others_absent": True},
            "mme: missing: an opioid, at least one of codeine, hydrocodone",
        ),
        ("mme", {"oxycodone_dose": "10 mg"}, "mme: oxycodone_doses_per_day is missing"),
        (
            "sofa",
            {"others_absent": True},
            "sofa: missing: pao2_fio2 (or pao2 and fio2; or oxygenation_unmeasured: yes), mean_arterial_pressure (or",
        ),
        (
            "sofa",
            {"pao2_fio2": 400, "others_absent": True},
            "sofa: missing: mean_arterial_pressure (or systolic_bp and diastolic_bp)",
        ),
        ("bmi", {"weight": "80" * 50, "height": "180 " + "c" * 200}, "bmi: weight: expected a number"),
    ],
)
def test_refusals(calculator: str, inputs: dict[str, Any], reason: str) -> None:
    assert refused(calculator, **inputs).startswith(reason)


def test_inputs_of_a_wrong_shape_are_refused_before() -> None:
    found = outcome(medical, {"calculator": "bmi", "inputs": [80, 180]}, HERE)
    assert isinstance(found, Failure)
    assert found.code == "invalid_params"


def test_inputs_without_a_calculator() -> None:
    assert refusal(medical, {"inputs": {"weight": 80}}, HERE).startswith("inputs were given, but no calculator")


def test_what_a_model_adds_to_any_patient_is_not_used_and_said() -> None:
    assert "Note: Not used here: race, age." in asked("bmi", weight=80, height=180, race="white", age=44)


def test_all_is_bounded() -> None:
    many = {f"nothing{n}": n for n in range(300)}
    assert refused("caprini", **many) == "caprini: more than 200 inputs"
    some = {f"nothing{n}": "x" * 10_000 for n in range(150)}
    assert len(refused("caprini", **some)) <= 400
    assert len(refused("bmi", **{"x" * 100_000: 1})) <= 400


@pytest.mark.parametrize("said", ["female", "F", "Woman", "girl", "w"])
def test_words_for_a_sex(said: str) -> None:
    assert "sex female" in asked("ckd_epi", age=50, gender=said, scr=1)
    assert "sex female" in asked("ckd_epi", age=50, is_male=False, scr=1)


@pytest.mark.parametrize("yes", [True, 1, "yes", "Y", "true", "present", "positive", "+"])
def test_words_for_yes(yes: Any) -> None:
    assert asked("rcri", insulin=yes, others_absent="true").splitlines()[0].endswith(": 1")


@pytest.mark.parametrize("no", [False, 0, "no", "N", "false", "absent", "negative", "none", "-"])
def test_words_for_no(no: Any) -> None:
    assert asked("rcri", insulin=no, others_absent=1).splitlines()[0].endswith(": 0")


@pytest.mark.parametrize(
    ("said", "day"),
    [
        ("2024-03-05", "2024-03-05"),
        ("2024/3/5", "2024-03-05"),
        ("March 5, 2024", "2024-03-05"),
        ("5 March 2024", "2024-03-05"),
        ("5th of Mar 2024", "2024-03-05"),
        ("Sept 5 2024", "2024-09-05"),
        ("25.12.2023", "2023-12-25"),
        ("12/25/2023", "2023-12-25"),
        ("04/04/2024", "2024-04-04"),
        ("2024-03-05T10:00:00Z", "2024-03-05"),
    ],
)
def test_ways_to_write_a_day(said: str, day: str) -> None:
    assert f"lmp {day}" in asked("due_date", lmp=said)


@pytest.mark.parametrize(
    "said", ["05/2024", "2024-13-01", "5 Brumaire 2024", "Ma 5 2024", "tomorrow", "00/00/2024", ""]
)
def test_what_is_no_day(said: str) -> None:
    assert refused("due_date", lmp=said, cycle_length=28).startswith("due_date: ")


def test_fields_are_known_as_charts_and_benchmarks_call_them() -> None:
    bleeding = {
        "Blood Urea Nitrogen (BUN)": [30, "mg/dL"],
        "Hemoglobin": [9, "g/dL"],
        "Sex": "Male",
        "Systolic Blood Pressure": [95, "mm hg"],
        "Heart Rate or Pulse": [110, "beats per minute"],
        "Melena Present": True,
        "Recent Syncope": False,
        "Hepatic disease history": False,
        "Cardiac failure present": False,
    }
    assert asked("Glasgow-Blatchford Bleeding Score (GBS)", **bleeding).splitlines()[0].endswith(": 14")
    blood_thinner = {
        "age": [70, "years"],
        "Hypertension": True,
        "Renal disease criteria for the HAS-BLED rule": False,
        "Liver disease criteria for the HAS-BLED rule": False,
        "Stroke": True,
        "Prior major bleeding or predisposition to bleeding": False,
        "Labile international normalized ratio": False,
        "Medications for bleeding criteria for the HAS-BLED rule": True,
        "Number of Alcoholic Drinks": [2, "per week"],
    }
    assert asked("has_bled", **blood_thinner).splitlines()[0] == "HAS-BLED: 4"


def test_a_blood_pressure_is_two_numbers() -> None:
    assert asked("map", blood_pressure="120/80 mmHg").startswith(
        "Mean arterial pressure: 93.3 mmHg (unrounded 93.3333)"
    )


def test_every_calculator_survives_garbage() -> None:
    garbage: list[Any] = [
        None,
        True,
        "",
        "x",
        -1,
        1e300,
        [],
        {},
        [1, 2, 3],
        {"value": {}},
        "1 2 3",
        "９",
        "1/0",
        "\x00",
        "10 x10^^9/L",
    ]
    for one in everything():
        for given in garbage:
            try:
                one.answer({each.name: given for each in one.inputs})
            except Problems as problems:
                named = [*problems.wrong, *problems.missing]
            else:
                named = ["nothing was wrong"]
            assert named


def test_the_health_check_computes_known_cases() -> None:
    assert healthy() is None


def test_it_knows_the_55_of_the_benchmark_and_those_it_replaces() -> None:
    assert len(own()) >= 62
    replaced = [name for one in own() for name in one.replaces]
    assert {one.name for one in everything()}.isdisjoint(set(replaced) - {one.name for one in own()})


def test_sources_are_named_and_dois_have_their_form() -> None:
    for one in own():
        assert one.sources
        assert all(source.doi == "" or source.doi.startswith("10.") for source in one.sources)


def test_without_the_package_ours_work_and_the_list_says_how_to_get_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "open_medicine", None)
    library.cache_clear()
    try:
        assert not installed()
        text = answer(medical, {}, HERE)
        assert text.startswith(f"Medical calculators: {len(own())}.")
        assert text.endswith("About 50 more come with the package open-medicine: pip install 'brain-sse[medical]'")
        assert asked("bmi", weight=80, height=180).startswith("Body mass index: 24.7")
        more = "about 50 more come with the package open-medicine: pip install 'brain-sse[medical]'"
        assert refusal(medical, {"calculator": "phq9"}, HERE).startswith("no calculator is named 'phq9'")
        assert refusal(medical, {"calculator": "phq9"}, HERE).endswith(f"; {more}")
        assert len(refusal(medical, {"calculator": "wels" * 100}, HERE)) <= 400
        assert answer(medical, {"search": "depression"}, HERE).startswith("No calculator fits 'depression'.")
        assert answer(medical, {"search": "depression"}, HERE).endswith(f"\n{more[0].upper()}{more[1:]}")
    finally:
        library.cache_clear()


OUR_WAY = {
    "corrected_sodium": "2.4 mEq/L for 100 mg/dL, with 1.6 as a choice",
    "framingham": "with diabetes, as published",
    "caprini": "with the items that it has not: fractures, an operation of the last month",
    "meld_na": "the formula of OPTN 2016; theirs is of 2008",
    "glasgow_blatchford": "2 points, not 1, for syncope, liver disease and heart failure",
    "apache2": "low creatinine is not doubled in acute renal failure",
    "rockall": "a pulse of exactly 100 scores, as in the paper; the package asks for more",
    "gold_copd": "mMRC or CAT makes group B, as GOLD has it; theirs lets a low CAT overrule the mMRC",
}
"""Where ours and the package's differ, and what ours does."""
COMPARED = [
    (ours, theirs)
    for ours in own()
    for theirs in ours.replaces
    if theirs
    not in {"corrected_qtc", "heart_score", "child_pugh", "gcs", "charlson", "centor_mcisaac", "curb65", *OUR_WAY}
]
"""Those whose inputs have the same names or words in both."""
TYPICAL: Mapping[str, tuple[float, float]] = {
    "age": (20, 95),
    "creatinine": (0.3, 6),
    "bilirubin": (0.3, 15),
    "albumin": (1.5, 4.8),
    "inr": (0.8, 3),
    "sodium": (105, 185),
    "temperature": (28, 42),
    "heart_rate": (30, 210),
    "respiratory_rate": (4, 55),
    "systolic_bp": (60, 230),
    "glucose": (60, 700),
    "calcium": (6, 18),
    "bun": (5, 100),
    "platelets": (10, 400),
    "pao2_fio2": (50, 500),
    "weight": (40, 130),
    "spo2": (80, 100),
    "height": (145, 200),
    "pao2": (40, 100),
    "paco2": (20, 60),
    "fio2": (0.4, 1),
    "atmospheric_pressure": (600, 780),
    "mean_arterial_pressure": (40, 170),
}
GIVEN_TOO = {"pao2_fio2", "mean_arterial_pressure", "ventilated", "spo2_scale", "atmospheric_pressure"}


def drawn(one: Any, chance: random.Random) -> Any:
    """A value such as a patient might have."""
    if isinstance(one, YesNo):
        return one.name == "ventilated" or chance.random() < 0.5
    if isinstance(one, Choice):
        return chance.choice(list(one.options))
    assert isinstance(one, Quantity)
    least, most = TYPICAL.get(one.name, (one.least, one.most))
    value = chance.uniform(least, most)
    return round(value) if one.whole or (most > 20 and one.name not in ("temperature", "glucose")) else round(value, 2)


@pytest.mark.skipif(not installed(), reason="the package open-medicine is not installed")
@pytest.mark.parametrize(("ours", "name"), COMPARED, ids=[name for _, name in COMPARED])
def test_ours_and_the_package_agree(ours: Calculator, name: str) -> None:
    theirs = next(one for one in library(frozenset()) if one.name == name)
    chance = random.Random(name)
    compared = 0
    for _ in range(60):
        mine = {one.name: drawn(one, chance) for one in ours.inputs if not one.optional or one.name in GIVEN_TOO}
        his: dict[str, Any] = {"others_absent": True}
        for one in theirs.inputs:
            names = [field for field, _ in one.names()]
            own_name = next((ours.fields[field][0].name for field in names if field in ours.fields), None)
            if own_name in mine:
                his[one.name] = mine[own_name]
        if name == "news2":
            his["spo2_scale"] = f"scale_{mine['spo2_scale']}"
        if name == "aa_gradient":
            his["age"] = 40
        found, expected = ours.answer(mine).worked.value, theirs.answer(his).worked.value
        assert found == pytest.approx(expected, rel=0.006, abs=0.06 if isinstance(found, float) else 0), mine
        compared += 1
    assert compared == 60


def test_kinds_of_inputs_are_what_the_list_says() -> None:
    kinds = {type(each) for one in own() for each in one.inputs}
    assert kinds == {Quantity, YesNo, Choice, Day}


def test_a_refusal_is_a_refusal_for_programs_too() -> None:
    with pytest.raises(Refused, match="no calculator is named 'xyzzy'"):
        medical("xyzzy")
    assert isinstance(outcome(medical, {"search": "bmi"}, HERE), Answer)


# A sentence that says it all


@pytest.mark.parametrize(
    "sentence",
    [
        "Body mass index of 80 kg and 180 cm",
        "What is the BMI for 180 cm, 80kg?",
        "calculate the body mass index: weight 80.0 kg, height 1.8 m",
    ],
)
def test_a_sentence_that_says_all_is_calculated(sentence: str) -> None:
    for params in ({"search": sentence}, {"calculator": sentence}):
        found = answer(medical, params, HERE).splitlines()
        assert found[0].startswith("Body mass index: 24.7 kg/m²")
        assert "weight 80 kg" in line("\n".join(found), "Inputs used: ")


@pytest.mark.parametrize(
    "sentence",
    [
        "body mass index",
        "body mass index of 80 kg",
        "body mass index of 80 and 180",
        "body mass index of 80 kg and 180 cm, 70 kg last year",
        "body mass index of 80 kg and 180 cm in 2019",
        "body mass index or body surface area of 80 kg and 180 cm",
        "80 kg and 180 cm",
        "body mass index of 80 kg/m² and 180 cm",
        "anion gap of 140 mmol/L, 104 mmol/L and 24 mmol/L",
    ],
)
def test_of_a_sentence_nothing_is_guessed(sentence: str) -> None:
    assert "Inputs used" not in answer(medical, {"search": sentence}, HERE)


def test_what_cannot_be_in_a_sentence_is_refused() -> None:
    assert "bmi: " in refusal(medical, {"search": "body mass index of 80 kg and 18000 cm"}, HERE)
