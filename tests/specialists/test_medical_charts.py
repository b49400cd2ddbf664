"""`medical`: patients (invented) told in the words of charts and benchmarks; values computed apart from our code."""

import json
from pathlib import Path
from typing import Any

import pytest

from specialists._medical.calculator import Problems, Worked
from specialists._medical.library import installed, library
from specialists._medical.library_fields import LEFT_OUT
from specialists.medical import everything, known

CHARTS = [json.loads(line) for line in Path(__file__).with_name("medical_charts.jsonl").read_text("utf-8").splitlines()]
REST = {"others_absent": True}


def worked(calculator: str, **inputs: Any) -> Worked:
    return known(calculator).answer(inputs).worked


def value(calculator: str, **inputs: Any) -> float | str:
    return worked(calculator, **inputs).value


def problems(calculator: str, **inputs: Any) -> Problems:
    with pytest.raises(Problems) as caught:
        known(calculator).answer(inputs)
    return caught.value


@pytest.mark.parametrize("chart", CHARTS, ids=[f"{n}-{chart['calculator']}" for n, chart in enumerate(CHARTS)])
def test_patients_of_charts(chart: dict[str, Any]) -> None:
    found, expected = value(chart["calculator"], **chart["inputs"]), chart["value"]
    if isinstance(expected, str):
        assert str(found).startswith(expected)
    else:
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("age", ["63-year-old", "63 Jahre", "63 ans", "aged 63", "~63", "about 63", [63], ["63 years"]])
def test_ways_to_write_an_age(age: Any) -> None:
    assert value("ckd_epi_2021", age=age, sex="Frau", creatinine="1.4 mg/dL") == pytest.approx(42.27, abs=0.01)


@pytest.mark.parametrize("age", [">= 63", "≥ 65", "63 to 65", "60s", "sixty-three"])
def test_a_bound_is_no_age(age: str) -> None:
    assert problems("ckd_epi_2021", age=age, sex="f", creatinine=1.4).wrong[0].startswith("age: ")


@pytest.mark.parametrize(
    "creatinine", ["1.4 (mg/dL)", "1.4 mg/dL (elevated)", "1.4 mg dl-1", "1,4 mg/dl", "14 mg/l", "123.76 µmol/L"]
)
def test_ways_to_write_a_concentration(creatinine: str) -> None:
    assert value("ckd_epi_2021", age=63, sex="male", creatinine=creatinine) == pytest.approx(56.48, abs=0.01)


@pytest.mark.parametrize(
    "platelets", [150_000, "150/nL", "150 Tsd/µl", "150×10(9)/L", "0.15 x10^12/L", "150,000 /µL", [150_000, "mm^3"]]
)
def test_ways_to_write_a_count(platelets: Any) -> None:
    assert value("fib4", age=60, ast=45, alt=30, platelets=platelets) == pytest.approx(3.2863, abs=0.0001)


@pytest.mark.parametrize("count", ["12.000/µL", "12.500 cells/mm3"])
def test_a_point_of_thousands_in_a_count_is_doubtful(count: str) -> None:
    found = problems("sirs", temperature=37, heart_rate=80, respiratory_rate=16, wbc=count)
    assert found.wrong == [f"wbc: '{count}' could have a point for thousands; write it without"]


@pytest.mark.parametrize(
    ("field", "given", "expected"),
    [
        ("temperature", 101.3, "38.5 °C (from 101.3, taken as °F)"),
        ("temperature", "38.5°", "38.5 °C"),
        ("wbc", 12_500, "12.5 10^9/L (from 12500, taken as /µL)"),
    ],
)
def test_a_number_that_can_only_be_in_another_unit_is_taken_so_and_said(field: str, given: Any, expected: str) -> None:
    inputs = {"temperature": 37, "heart_rate": 80, "respiratory_rate": 16, "wbc": 8} | {field: given}
    assert str(known("sirs").answer(inputs).inputs[field]) == expected


@pytest.mark.parametrize("fio2", [0.21, 21, "21%", "room air", "RA"])
def test_ways_to_write_inspired_oxygen(fio2: Any) -> None:
    assert value("aa_gradient", fio2=fio2, pao2=60, paco2=40) == pytest.approx(39.73)


@pytest.mark.parametrize("spo2", [94, "94%", 0.94, "0.94", "94% on room air"])
def test_ways_to_write_a_saturation(spo2: Any) -> None:
    assert value("perc", age=40, heart_rate=80, spo2=spo2, **REST) == 1


@pytest.mark.parametrize(
    "pressure", [{"bp": [120, 80]}, {"BP": {"systolic": 120, "diastolic": 80}}, {"sys": 120, "dia": 80}]
)
def test_ways_to_write_a_blood_pressure(pressure: dict[str, Any]) -> None:
    assert value("map", **pressure) == pytest.approx(93.333, abs=0.001)


def test_a_creatinine_alone_is_never_taken_in_another_unit() -> None:
    assert problems("ckd_epi_2021", age=63, sex="m", creatinine=88).wrong == [
        'creatinine: 88 has no unit; give it, such as "88 µmol/L"'
    ]


MELD = {"creatinine": "1.9 mg/dL", "inr": 1.2, "dialysis": False}
GAS = {"fio2": 0.21, "paco2": 40}


@pytest.mark.parametrize(
    ("calculator", "inputs", "reason"),
    [
        ("meld", {**MELD, "bilirubin": 34}, 'bilirubin: 34 has no unit; give it, such as "34 µmol/L" or "34 mg/dL"'),
        ("meld", {**MELD, "bilirubin": "34"}, 'bilirubin: 34 has no unit; give it, such as "34 µmol/L" or "34 mg/dL"'),
        ("corrected_sodium", {"sodium": 125, "glucose": 33}, 'glucose: 33 has no unit; give it, such as "33 mmol/L"'),
        ("eGFR", {"age": 60, "sex": "m", "creatinine": 35}, 'creatinine: 35 has no unit; give it, such as "35 µmol/L"'),
        ("rcri", {"creatinine": 35, **REST}, 'creatinine_above_2: 35 has no unit; give it, such as "35 µmol/L"'),
        ("aa_gradient", {**GAS, "pao2": 12}, 'pao2: 12 has no unit; give it, such as "12 kPa"'),
        ("aa_gradient", {"fio2": 0.21, "pao2": 80, "paco2": 5.3}, 'paco2: 5.3 has no unit; give it, such as "5.3 kPa"'),
        (
            "fib4",
            {"age": 60, "ast": 40, "alt": 40, "platelets": 4500},
            "platelets: 4500 has no unit; give",
        ),
        ("target weight", {"height": 71, "bmi": 22}, 'height: 71 has no unit; give it, such as "71 in" or "71 cm"'),
        ("ldl", {"tc": 200, "hdl": 5, "tg": 100}, 'hdl: 5 has no unit; give it, such as "5 mmol/L" or "5 mg/dL"'),
    ],
)
def test_a_bare_number_unusual_in_the_first_unit_is_not_taken_in_it(
    calculator: str, inputs: dict[str, Any], reason: str
) -> None:
    assert problems(calculator, **inputs).wrong[0].startswith(reason)


@pytest.mark.parametrize(
    ("calculator", "inputs", "expected"),
    [
        ("meld", {**MELD, "bilirubin": "34 µmol/L"}, 17),  # 9.57 ln 1.9 + 3.78 ln 1.988 + 11.2 ln 1.2 + 6.43 = 17.2
        ("meld", {**MELD, "bilirubin": "34 mg/dL"}, 28),  # 3.78 ln 34 = 13.33 in its place: 27.95
        ("meld", {**MELD, "bilirubin_mg_dl": 34}, 28),
        ("meld", {**MELD, "bilirubin": 25}, 27),
        ("corrected_sodium", {"sodium": 125, "glucose": "33 mmol/L"}, 136.87),  # 594.5 mg/dL
        ("corrected_sodium", {"sodium": 125, "glucose": "33 mg/dL"}, 123.39),
        ("aa_gradient", {**GAS, "pao2": "12 kPa"}, 9.72),
    ],
)
def test_with_its_unit_the_same_number_is_taken(calculator: str, inputs: dict[str, Any], expected: float) -> None:
    assert value(calculator, **inputs) == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize(
    ("calculator", "inputs", "reason"),
    [
        ("ldl", {"tc": 250, "hdl": 40, "tg": 400}, "the formula does not hold from triglycerides of 400 mg/dL"),
        ("ldl", {"tc": 250, "hdl": 40, "tg": "5 mmol/L"}, "the formula does not hold from triglycerides of 400 mg/dL"),
        ("ldl", {"tc": 100, "hdl": 80, "tg": 300}, "an LDL of -40 mg/dL is impossible; check the inputs, or measure"),
        ("ldl", {"tc": 60, "hdl": 80, "tg": 100}, "hdl 80 mg/dL is a part of total_cholesterol 60 mg/dL and must be"),
        ("map", {"sbp": 80, "dbp": 120}, "the systolic pressure 80 mmHg must be above the diastolic 120 mmHg"),
        ("map", {"sbp": 80, "dbp": 80}, "the systolic pressure 80 mmHg must be above the diastolic 80 mmHg"),
        ("map", {"bp": "80/120"}, "blood_pressure: the systolic 80 must be above the diastolic 120"),
        ("qsofa", {"bp": "80/120", "rr": 20, "gcs": 15}, "blood_pressure: the systolic 80 must be above the diastolic"),
        (
            "curb65",
            {"confusion": 0, "bun": 20, "rr": 20, "age": 70, "sbp": 60, "dbp": 90},
            "the systolic pressure 60 mmHg must be above the diastolic 90 mmHg",
        ),
        ("aa_gradient", {**GAS, "pao2": 300}, "PaO2 300 mmHg is more than FiO2 0.21 can give (about 100 mmHg); check"),
        ("qtc_bazett", {"qt": 500, "hr": 150}, "a QT of 500 ms is longer than a beat at 150 /min (400 ms); check both"),
        (
            "fena",
            {"urine Na": 140, "serum Na": 140, "urine Cr": 20, "serum Cr": "40 mg/dL"},
            "200 % is more than all that was filtered; check the values and their units",
        ),
    ],
)
def test_what_cannot_be_or_where_a_formula_does_not_hold_has_no_result(
    calculator: str, inputs: dict[str, Any], reason: str
) -> None:
    assert problems(calculator, **inputs).wrong[0].startswith(reason)


@pytest.mark.parametrize(("mean", "side"), [(130, "above the systolic 120"), (70, "below the diastolic 80")])
def test_a_mean_pressure_lies_between_the_two(mean: float, side: str) -> None:
    given = SOFA | {"norepinephrine": 0, "mean_arterial_pressure": mean, "blood_pressure": "120/80"}
    assert problems("sofa", **given).wrong == [f"the mean pressure {mean} mmHg is {side} mmHg"]


def test_more_oxygen_than_was_breathed_has_no_ratio() -> None:
    given = SOFA | {"pao2": 250, "norepinephrine": 0, "mean_arterial_pressure": 80}
    assert problems("sofa", **given).wrong == [
        "PaO2 250 mmHg is more than FiO2 0.21 can give (about 150 mmHg); check both"
    ]


def test_a_gradient_just_below_nothing_is_an_error_of_measuring() -> None:
    found = worked("aa_gradient", fio2=0.21, pao2=105, paco2=40)
    assert found.value == pytest.approx(-5.27)
    assert "A gradient just below 0 comes of rounding and of measuring." in found.notes


def test_a_delta_ratio_without_a_fall_of_bicarbonate_says_so() -> None:
    found = known("delta_ratio").answer({"sodium": 140, "chloride": 90, "bicarbonate": 30})
    assert (
        found.reading == "bicarbonate is above 24: it has not fallen, and the ratio says nothing about mixed disorders"
    )


@pytest.mark.parametrize(
    ("field", "name"),
    [
        ("The presence of diabetes", "diabetes"),
        ("Hypertension reported", "hypertension"),
        ("Patient has a vascular disease", "vascular_disease"),
        ("Congestive heart failure (CHF)", "congestive_heart_failure"),
    ],
)
def test_words_in_a_name_that_say_nothing_do_not_matter(field: str, name: str) -> None:
    found = known("cha2ds2_vasc").answer({"age": 60, "sex": "m", field: True, **REST})
    assert found.worked.points[name] == 1


def test_an_old_stroke_is_no_stroke_of_the_last_month() -> None:
    assert (
        problems("caprini", age=50, sex="m", history_of_stroke=True, **REST)
        .wrong[0]
        .startswith("no input history_of_stroke")
    )


# Coma scale: Teasdale (2014) and the scale's own site: what cannot be tested is NT, and there is no sum.
@pytest.mark.parametrize("verbal", ["not testable", "NT", "intubated", "untestable", "T"])
def test_a_coma_scale_with_what_cannot_be_tested_has_no_sum(verbal: str) -> None:
    found = worked("gcs", eye=4, verbal=verbal, motor=6)
    assert (found.value, found.reading) == ("E4 VNT M6", "10 of 10 points of what could be tested; a sum would mislead")
    assert found.notes == ["Some calculators count what cannot be tested as 4: 14."]


def test_a_letter_that_could_be_confused_is_not_taken_for_untestable() -> None:
    assert problems("gcs", eye=4, verbal="C", motor=6).wrong[0].startswith("verbal: expected oriented, confused, ")


def test_a_coma_scale_without_movement_tells_no_other_sum() -> None:
    assert worked("gcs", eye="not testable", verbal="not testable", motor="not testable").notes == []


# Caprini: of a man three items are not asked
def test_a_man_is_not_asked_for_pregnancies() -> None:
    asked = set(problems("caprini", age=50, sex="male").missing)
    assert asked.isdisjoint({"pregnancy_or_postpartum", "stillbirth_or_abortions", "hormones"})
    assert "pregnancy_or_postpartum" in problems("caprini", age=50, sex="female").missing


# SOFA: 90/0.21 = 429; all else normal
SOFA: dict[str, Any] = {
    "pao2": 90,
    "fio2": 0.21,
    "platelets": 200,
    "bilirubin": 0.8,
    "gcs": 15,
    "creatinine": 0.9,
    "dobutamine": False,
    "epinephrine": "none",
    "dopamine": 0,
}


@pytest.mark.parametrize(
    ("more", "points"),
    [
        ({"hypotension": True, "norepinephrine": False}, 1),
        ({"hypotension": False, "norepinephrine": 0}, 0),
        ({"hypotension": True, "mean_arterial_pressure": 70, "noradrenaline": "no"}, 0),
        ({"mean_arterial_pressure": 69, "noradrenaline": 0}, 1),
        ({"noradrenaline": "0.1 µg/kg/min"}, 3),
        ({"noradrenaline": "0.11 µg/kg/min"}, 4),
    ],
)
def test_the_circulation_of_sofa(more: dict[str, Any], points: int) -> None:
    assert value("sofa", **SOFA, **more) == points


# GOLD 2023: grade by FEV1 (80, 50, 30 %), E from 2 moderate or 1 severe exacerbation, B from mMRC 2 or CAT 10
@pytest.mark.parametrize(
    ("fev1", "moderate", "severe", "symptoms", "expected"),
    [
        (80, 0, 0, {"mmrc": 1}, "GOLD 1, group A"),
        (79.9, 1, 0, {"cat": 9}, "GOLD 2, group A"),
        (50, 1, 0, {"mmrc": 2}, "GOLD 2, group B"),
        (49.9, 0, 0, {"cat": 10}, "GOLD 3, group B"),
        (45, 0, 0, {"cat": 5, "mmrc": 3}, "GOLD 3, group B"),
        (30, 2, 0, {"mmrc": 0}, "GOLD 3, group E"),
        (29.9, 0, 1, {"mmrc": 0}, "GOLD 4, group E"),
    ],
)
def test_gold(fev1: float, moderate: int, severe: int, symptoms: dict[str, int], expected: str) -> None:
    assert value("gold", fev1=fev1, exacerbations=moderate, hospitalizations=severe, **symptoms) == expected


def test_gold_needs_one_measure_of_symptoms() -> None:
    found = problems("gold", fev1=50, exacerbations=0, hospitalizations=0)
    assert found.missing == ["mmrc_dyspnea (or cat_score)"]


# Wallace: 9, 18, 18, 9, 9, 18, 18, 1
@pytest.mark.parametrize(
    ("regions", "share", "extent"),
    [
        ({"left_arm": True}, 9, "≤ 9: minor by extent"),
        ({"perineum": True, "head": True}, 10, "10 to 20: moderate by extent"),
        ({"back": True, "chest_and_abdomen": True, "right_leg": True}, 54, "> 20: major by extent"),
    ],
)
def test_the_rule_of_nines(regions: dict[str, bool], share: int, extent: str) -> None:
    found = known("rule of nines").answer({**regions, **REST})
    assert (found.worked.value, found.reading) == (share, extent)


def test_the_whole_body_is_a_hundred() -> None:
    assert value("tbsa", **{one.name: True for one in known("tbsa").inputs}) == 100


# The package's table gives a clearance between two of its whole numbers the lowest dose.
def test_doses_by_kidney_function_are_not_offered() -> None:
    assert "renal_dose_adjustment" in LEFT_OUT
    assert [one for one in everything() if one.name == "renal_dose_adjustment"] == []


@pytest.mark.parametrize(
    ("calculator", "doi"),
    [("wells_pe", "10.1055/s-0037-1613830"), ("caprini", "10.1016/j.disamonth.2005.02.003")],
)
def test_the_papers_of_ours(calculator: str, doi: str) -> None:
    assert known(calculator).sources[0].doi == doi


NEEDS_THE_PACKAGE = pytest.mark.skipif(not installed(), reason="the package open-medicine is not installed")


@NEEDS_THE_PACKAGE
@pytest.mark.parametrize(
    ("calculator", "inputs", "doi"),
    [
        (
            "bisap",
            {"bun": 20, "gcs": 15, "temperature": 37, "heart_rate": 80, "respiratory_rate": 16, "wbc": 12, "age": 50},
            "10.1136/gut.2008.152702",
        ),
        ("aims65", {}, "10.1016/j.gie.2011.06.024"),
        (
            "lrinec",
            {"crp": 20, "wbc": 10, "hemoglobin": 14, "sodium": 140, "creatinine": 1, "glucose": 100},
            "10.1097/01.CCM.0000129486.35458.7D",
        ),
    ],
)
def test_the_papers_of_the_package(calculator: str, inputs: dict[str, Any], doi: str) -> None:
    found = worked(calculator, **inputs, **REST)
    assert (found.value, found.sources[0].doi) == (0, doi)


@NEEDS_THE_PACKAGE
def test_white_cells_of_a_dozen_are_thousands_where_the_package_counts_single_ones() -> None:
    one = next(each for each in library(frozenset()) if each.name == "bisap")
    wbc = next(each for each in one.inputs if each.name == "wbc")
    assert str(wbc.read(12, None)) == "12000 /µL (from 12, taken as K/µL)"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("PSI/PORT Score: Pneumonia Severity Index for CAP", "psi"),
        ("pneumonia severity index (PSI)", "psi"),
        ("MDRD-4", "mdrd"),
        ("Cockroft-Gault", "cockcroft_gault"),
        ("Körpermasseindex", "bmi"),
        ("Körperoberfläche", "bsa_mosteller"),
        ("trou anionique", "anion_gap"),
        ("ΔΔ", "delta_ratio"),
        ("QTcF", "qtc_fridericia"),
        ("Framingham QTc", "qtc_framingham"),
        ("errechneter Geburtstermin", "due_date"),
        ("MEDD", "mme"),
        ("ABCD²", "abcd2"),
        ("Childs-Pugh", "child_pugh"),
        ("Nierenfunktion", "ckd_epi_2021"),
        ("Vorhofflimmern", "cha2ds2_vasc"),
    ],
)
def test_names_in_other_spellings_and_tongues(name: str, expected: str) -> None:
    if expected == "abcd2" and not installed():
        pytest.skip("the package open-medicine is not installed")
    assert known(name).name == expected


@pytest.mark.parametrize("name", ["eGFR (Schwartz)", "BSA (Haycock)", "MELD (PELD)"])
def test_brackets_that_name_another_formula_are_not_overlooked(name: str) -> None:
    with pytest.raises(Exception, match="no calculator is named"):
        known(name)


# A unit in brackets beside other words is the unit: 25 mmol/L of glucose are 450.4 mg/dL, 280 + 5 + 25.02 = 310.02.
@pytest.mark.parametrize(
    "field", ["Glucose (fasting, mmol/L)", "glucose (mmol/L)", "Glucose in mmol/L", "glucose [mmol/L]"]
)
def test_a_unit_in_the_brackets_of_a_name_is_not_overlooked(field: str) -> None:
    assert value("serum_osmolality", sodium=140, bun=14, **{field: 25}) == pytest.approx(310.02, abs=0.01)


@pytest.mark.parametrize(
    ("calculator", "field", "given", "expected"),
    [
        ("ckd_epi_2021", "creatinine (serum, µmol/L)", 130, "1.47056 mg/dL (from 130 umol/l)"),
        ("aa_gradient", "PaO2 (arterial, kPa)", 12, "90.0074 mmHg (from 12 kpa)"),
        ("aa_gradient", "PaO2 (kPa)", 12, "90.0074 mmHg (from 12 kpa)"),
        ("aa_gradient", "PaO2 in kPa", 12, "90.0074 mmHg (from 12 kpa)"),
        ("sirs", "WBC (total, K/µL)", 9, "9 10^9/L"),
    ],
)
def test_a_unit_among_other_words_in_brackets(calculator: str, field: str, given: float, expected: str) -> None:
    one = known(calculator)
    fitting = {
        "age": 60,
        "sex": "m",
        "fio2": 0.21,
        "paco2": 40,
        "temperature": 37,
        "heart_rate": 80,
        "respiratory_rate": 14,
    }
    own = {name: fitting[name] for name in fitting if name in one.fields}
    assert expected in [str(read) for read in one.answer({**own, field: given}).inputs.values()]


@pytest.mark.parametrize("field", ["Height (in cm)", "Height (measured in cm)", "height, cm"])
def test_in_is_a_word_before_another_unit(field: str) -> None:
    assert value("bmi", weight=80, **{field: 180}) == pytest.approx(24.691, abs=0.001)


def test_a_unit_among_other_words_in_a_value_is_not_overlooked() -> None:
    found = problems("serum_osmolality", sodium=140, bun=14, glucose="25 (fasting, mmol/L)")
    assert found.wrong == ["glucose: unknown unit '(fasting, mmol/L)'; accepted: mg/dL, mmol/L"]


@pytest.mark.parametrize(
    "height", [{"height_ft": 5, "height_in": 11}, {"height feet": "5", "height inches": "11"}, {"height": "5'11\""}]
)
def test_feet_and_inches_in_two_fields_are_one_height(height: dict[str, Any]) -> None:
    assert value("bmi", weight_lb=180, **height) == pytest.approx(25.105, abs=0.001)


@pytest.mark.parametrize(
    ("calculator", "more"),
    [("adjusted weight", {}), ("cockcroft", {"age": 60, "creatinine": 1, "weight_used": "actual"})],
)
def test_a_weight_that_no_height_goes_with_is_found_out(calculator: str, more: dict[str, Any]) -> None:
    assert problems(calculator, sex="m", height=185, weight="20 kg", **more).wrong == [
        "weight 20 kg and height 185 cm do not go together (BMI 5.844); give their units"
    ]


@pytest.mark.parametrize("calculator", ["bmi", "bsa"])
def test_inches_that_were_taken_as_centimetres_are_found_out(calculator: str) -> None:
    assert problems(calculator, height=65, weight=50).wrong == [
        "weight 50 kg and height 65 cm do not go together (BMI 118.3); give their units"
    ]


def test_a_small_child_is_none_of_those() -> None:
    assert value("bsa", height=65, weight=7.5) == pytest.approx(0.36799, abs=0.0001)


@pytest.mark.parametrize("inputs", [{"qt": 0.4, "rr": 0.75}, {"qt": "400 ms", "rr": 750}, {"QT": 400, "HR": 80}])
def test_ways_to_write_intervals(inputs: dict[str, Any]) -> None:
    assert value("qtc_bazett", **inputs) == pytest.approx(461.88, abs=0.01)


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ({"oxycodone": "20 mg BID"}, 60),
        ({"oxycodone": "20 mg twice daily"}, 60),
        ({"morphine": "15 mg every 4 hours"}, 90),
        ({"morphine": "15 mg q6h", "tramadol": "50 mg three times a day"}, 90),
        ({"hydrocodone": "10 mg qid"}, 40),
        ({"oxycodone": "40 mg/day"}, 60),
        ({"fentanyl patch": "25 mcg"}, 60),
    ],
)
def test_a_day_of_opioids_as_prescribed(inputs: dict[str, Any], expected: float) -> None:
    assert value("mme", **inputs) == pytest.approx(expected)


@pytest.mark.parametrize(
    "inputs",
    [
        {"prednisone": "40 mg", "target": "dexamethasone"},
        {"drug": "prednisone", "dose_mg": 40, "target_drug": "dexamethasone IV"},
        {"Prednisone dose": "40 mg", "convert to": "Dexamethasone"},
        {"input steroid": ["PredniSONE PO", 40, "mg"], "target steroid": "Dexamethasone IV"},
    ],
)
def test_ways_to_name_two_steroids(inputs: dict[str, Any]) -> None:
    assert value("steroid_conversion", **inputs) == pytest.approx(6)


@pytest.mark.parametrize(
    ("calculator", "inputs", "expected"),
    [
        ("gcs", {"E": 3, "V": 4, "M": 5}, 12),
        ("gcs", {"eyes": "opens to pain", "verbal response": "moans", "motor response": "withdraws to pain"}, 8),
        ("fena", {"urine Na": 20, "serum Na": 140, "urine Cr": 80, "serum Cr": 2}, 0.35714),
        ("fena", {"UNa": 20, "PNa": 140, "UCr": 80, "PCr": 2}, 0.35714),
        ("mdrd", {"age": 60, "sex": "M", "Cr": 1.5, "race": "African American"}, 57.858),
        ("mdrd", {"age": 60, "sex": "M", "Cr": 1.5, "race": "Caucasian"}, 47.738),
        ("wells_dvt", {"calf swelling": "3 cm", **REST}, 0),
        ("wells_dvt", {"calf swelling": "3.1 cm", "entire leg swelling": True, **REST}, 2),
        ("wells_pe", {"signs of DVT": True, "PE most likely": False, "history of VTE": True, **REST}, 4.5),
        ("has_bled", {"age": 65, "aspirin": True, "NSAIDs": False, "anemia": "yes", **REST}, 2),
        ("cha2ds2_vasc", {"age": 64, "sex": "m", "PAD": True, "prior MI": True, **REST}, 1),
        ("charlson", {"age": 49, "metastatic cancer": True, "diabetes with complications": True, **REST}, 8),
        ("rcri", {"coronary artery disease": True, "diabetes on insulin": True, "creatinine": 2.0, **REST}, 2),
        ("centor", {"age": 30, "fever": 1, "no cough": 1, "exudates": 0, "swollen lymph nodes": 1}, 3),
    ],
)
def test_short_names(calculator: str, inputs: dict[str, Any], expected: float) -> None:
    assert value(calculator, **inputs) == pytest.approx(expected, abs=0.001)


@pytest.mark.parametrize(
    "urine", ["499 mL/day", "499 ml/24h", "499 mL/24 hours", "499 cc/24h", "0.499 L/day", "20.7 mL/h"]
)
def test_ways_to_write_the_urine_of_a_day(urine: str) -> None:
    assert value("sofa", **SOFA, urine_output=urine, norepinephrine=0, mean_arterial_pressure=80) == 3


# Ferreira 2001, highest score of a stay
@pytest.mark.parametrize(
    ("creatinine", "gcs", "meaning"), [(0.9, 15, "≤ 1: 0 %"), (2.0, 15, "2 to 3: 1.5 %"), (5, 9, "6 to 7: 18.2 %")]
)
def test_what_sofa_means(creatinine: float, gcs: int, meaning: str) -> None:
    inputs = SOFA | {"creatinine": creatinine, "gcs": gcs, "norepinephrine": 0, "mean_arterial_pressure": 80}
    assert known("sofa").answer(inputs).reading == f"{meaning} mortality"


# Rockall 1996: age 60 to 79 1, from 80 2; systolic below 100 2, else pulse from 100 1; comorbidity 2 or 3;
# diagnosis 1, malignancy 2; stigmata 2
@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ({"age": 59, "pulse": 99, "sbp": 100, "comorbidity": "none"}, 0),
        ({"age": 60, "pulse": 100, "sbp": 100, "comorbidity": "none"}, 2),
        ({"age": 79, "pulse": 130, "sbp": 99, "comorbidity": "major"}, 5),
        ({"age": 80, "pulse": 130, "sbp": 99, "comorbidity": "renal failure"}, 7),
        (
            {"age": 59, "pulse": 80, "sbp": 120, "comorbidity": "no", "diagnosis": "Mallory-Weiss", "stigmata": "none"},
            0,
        ),
        ({"age": 59, "pulse": 80, "sbp": 120, "comorbidity": "no", "diagnosis": "other", "stigmata": "present"}, 3),
        (
            {
                "age": 80,
                "pulse": 80,
                "sbp": 80,
                "comorbidity": "liver failure",
                "diagnosis": "malignancy",
                "stigmata": True,
            },
            11,
        ),
    ],
)
def test_rockall(inputs: dict[str, Any], expected: int) -> None:
    assert value("rockall", **inputs) == expected


def test_rockall_takes_both_findings_of_an_endoscopy_or_none() -> None:
    inputs = {"age": 59, "pulse": 80, "sbp": 120, "comorbidity": "none"}
    assert problems("rockall", **inputs, diagnosis="other").missing == ["stigmata"]
    assert known("rockall").answer(inputs).reading == "before endoscopy, 0 to 7: low risk"
    full = known("rockall").answer({**inputs, "diagnosis": "malignancy", "stigmata": "present"})
    assert full.reading == "full, 0 to 11: raised risk of rebleeding and death"


def test_buprenorphine_is_refused_with_the_reason() -> None:
    assert problems("mme", buprenorphine="8 mg", oxycodone="10 mg").wrong == [
        "buprenorphine has no factor (CDC 2022): as a partial agonist it is not counted in MME; leave it out"
    ]
