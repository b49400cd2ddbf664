"""Built in: Framingham's risks of heart and vessels in ten years."""

from math import exp, log

from specialists._medical.calculator import Calculator, Example, Source, Values, Worked
from specialists._medical.inputs import YesNo
from specialists._medical.patient import (
    AGE,
    HDL,
    SEX,
    SYSTOLIC,
    TOTAL_CHOLESTEROL,
)
from specialists._medical.steps import below

TREATED = YesNo(
    name="treated_hypertension",
    text="blood pressure under medication",
    also="is_treated_for_hypertension blood_pressure_being_treated_with_medicines treated_bp bp_treated "
    "blood_pressure_treated hypertensive on_hypertension_treatment on_bp_meds on_bp_medication "
    "blood_pressure_medication hypertension_treatment antihypertensive_treatment on_antihypertensives",
)

SMOKER = YesNo(name="smoker", also="is_smoker smoking current_smoker smoker_status")

_MEN = {
    "age": 52.00961,
    "tc": 20.014077,
    "hdl": -0.905964,
    "sbp": 1.305784,
    "treated": 0.241549,
    "smoker": 12.096316,
    "age_tc": -4.605038,
    "age_smoker": -2.84367,
    "age_2": -2.93323,
    "mean": 172.300168,
    "survival": 0.9402,
    "oldest_smoker": 70,
}

_WOMEN = {
    "age": 31.764001,
    "tc": 22.465206,
    "hdl": -1.187731,
    "sbp": 2.552905,
    "treated": 0.420251,
    "smoker": 13.07543,
    "age_tc": -5.060998,
    "age_smoker": -2.996945,
    "age_2": 0,
    "mean": 146.5933061,
    "survival": 0.98767,
    "oldest_smoker": 78,
}


def framingham(x: Values) -> Worked:
    c = _MEN if x.sex == "male" else _WOMEN
    age, cholesterol = log(x.age), log(x.total_cholesterol)
    sum_ = (
        c["age"] * age
        + c["tc"] * cholesterol
        + c["hdl"] * log(x.hdl)
        + c["sbp"] * log(x.systolic_bp)
        + c["treated"] * x.treated_hypertension
        + c["smoker"] * x.smoker
        + c["age_tc"] * age * cholesterol
        + c["age_smoker"] * log(min(x.age, c["oldest_smoker"])) * x.smoker
        + c["age_2"] * age**2
        - c["mean"]
    )
    risk = 100 * (1 - c["survival"] ** exp(sum_))
    return Worked(risk, {"baseline": c["survival"], "L": round(sum_, 5)})


_CVD_MEN = {
    "age": 3.06117,
    "tc": 1.1237,
    "hdl": -0.93263,
    "untreated": 1.93303,
    "treated": 1.99881,
    "smoker": 0.65451,
    "diabetes": 0.57367,
    "mean": 23.9802,
    "survival": 0.88936,
}

_CVD_WOMEN = {
    "age": 2.32888,
    "tc": 1.20904,
    "hdl": -0.70833,
    "untreated": 2.76157,
    "treated": 2.82263,
    "smoker": 0.52873,
    "diabetes": 0.69154,
    "mean": 26.1931,
    "survival": 0.95012,
}


def framingham_cvd(x: Values) -> Worked:
    c = _CVD_MEN if x.sex == "male" else _CVD_WOMEN
    sum_ = (
        c["age"] * log(x.age)
        + c["tc"] * log(x.total_cholesterol)
        + c["hdl"] * log(x.hdl)
        + c["treated" if x.treated_hypertension else "untreated"] * log(x.systolic_bp)
        + c["smoker"] * x.smoker
        + c["diabetes"] * x.diabetes
        - c["mean"]
    )
    return Worked(100 * (1 - c["survival"] ** exp(sum_)), {"baseline": c["survival"], "L": round(sum_, 5)})


CALCULATORS = (
    Calculator(
        name="framingham_hard_chd",
        title="Framingham risk, hard coronary heart disease, 10 years",
        also="frs, framingham risk score, framingham, framingham risk score for hard coronary heart disease, "
        "coronary risk",
        says="10-year risk of infarction or coronary death (ATP III)",
        group="heart",
        inputs=(
            AGE.within(30, 79),
            SEX,
            TOTAL_CHOLESTEROL,
            HDL,
            SYSTOLIC,
            TREATED,
            SMOKER,
        ),
        work=framingham,
        formula="100 × (1 − baseline^exp(L))",
        unit="%",
        digits=1,
        bands=below((10, "low"), (20, "intermediate"), rest="high"),
        notes=(
            "Adults of 30 to 79 without coronary heart disease, claudication or diabetes; smokers "
            "count as at most 70 (men) or 78 (women).",
        ),
        sources=(Source("NCEP Expert Panel (ATP III). JAMA 2001;285:2486-2497"),),
        example=Example(
            {
                "age": 50,
                "sex": "male",
                "total_cholesterol": 200,
                "hdl": 45,
                "systolic_bp": 130,
                "treated_hypertension": "no",
                "smoker": "no",
            },
            4.79,
        ),
    ),
    Calculator(
        name="framingham_cvd",
        title="Framingham risk, general cardiovascular disease, 10 years",
        also="framingham 2008, general cardiovascular risk, framingham general cvd, cardiovascular disease risk",
        says="10-year risk of any cardiovascular disease (D'Agostino 2008)",
        group="heart",
        inputs=(
            AGE.within(30, 74),
            SEX,
            TOTAL_CHOLESTEROL,
            HDL,
            SYSTOLIC,
            TREATED,
            SMOKER,
            YesNo(name="diabetes", also="diabetes_mellitus diabetic dm"),
        ),
        work=framingham_cvd,
        formula="100 × (1 − baseline^exp(L))",
        unit="%",
        digits=1,
        bands=below((10, "low"), (20, "intermediate"), rest="high"),
        notes=("Without cardiovascular disease before.",),
        sources=(Source("D'Agostino RB et al. Circulation 2008;117:743-753", "10.1161/CIRCULATIONAHA.107.699579"),),
        example=Example(
            {
                "age": 61,
                "sex": "female",
                "total_cholesterol": 180,
                "hdl": 47,
                "systolic_bp": 124,
                "treated_hypertension": "no",
                "smoker": "yes",
                "diabetes": "no",
            },
            10.48,
        ),
        replaces=("framingham",),
    ),
)
