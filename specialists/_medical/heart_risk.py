"""Built in: the heart: risk of stroke, bleeding and infarction."""

from dataclasses import replace
from math import exp, log

from specialists._medical.calculator import Calculator, Example, Source, Values, Worked
from specialists._medical.inputs import Choice, Quantity, YesNo
from specialists._medical.patient import (
    ADULT,
    AGE,
    CREATININE,
    HDL,
    HEART_RATE,
    SEX,
    SYSTOLIC,
    TOTAL_CHOLESTEROL,
)
from specialists._medical.steps import Limit, below, up_to

HISTORIES = {"slightly_suspicious": 0, "moderately_suspicious": 1, "highly_suspicious": 2}
ECGS = {"normal": 0, "nonspecific_repolarization_disturbance": 1, "significant_st_deviation": 2}
TROPONINS = {"normal": 0, "1_to_3": 1, "above_3": 2}
TREATED = YesNo(
    name="treated_hypertension",
    text="blood pressure under medication",
    also="is_treated_for_hypertension blood_pressure_being_treated_with_medicines treated_bp bp_treated "
    "blood_pressure_treated hypertensive on_hypertension_treatment",
)
SMOKER = YesNo(name="smoker", also="is_smoker smoking current_smoker smoker_status")
CHADS_STROKES = (0, 1.3, 2.2, 3.2, 4.0, 6.7, 9.8, 9.6, 6.7, 15.2)
"""Adjusted strokes per 100 patient-years by score, in the cohort that the ESC guideline of 2010 cites."""
HAS_BLED_BLEEDS = (1.13, 1.02, 1.88, 3.74, 8.70, 12.50)
"""Major bleeds per 100 patient-years by score in Pisters' cohort; above 5 there were too few patients."""


def chads_band(x: Values, score: float) -> str:
    rest = score - (x.sex == "female")
    advice = {0: "low risk: no anticoagulation", 1: "intermediate: consider anticoagulation"}.get(
        int(rest), "high: anticoagulation recommended"
    )
    strokes = f"{CHADS_STROKES[int(score)]:g} strokes per 100 patient-years"
    return f"{advice} (ESC 2020: men from 1 consider, from 2 recommended; women from 2, from 3); {strokes}"


def has_bled_band(x: Values, score: float) -> str:
    risk = (
        "low"
        if score == 0
        else "moderate"
        if score <= 2
        else "high: look for what can be corrected, see the patient often"
    )
    bleeds = f"; {HAS_BLED_BLEEDS[int(score)]:g} major bleeds per 100 patient-years" if score <= 5 else ""
    return f"{risk}{bleeds}"


_GRACE_DEATHS = (
    (60, "0.2"),
    (70, "0.3"),
    (80, "0.4"),
    (90, "0.6"),
    (100, "0.8"),
    (110, "1.1"),
    (120, "1.6"),
    (130, "2.1"),
    (140, "2.9"),
    (150, "3.9"),
    (160, "5.4"),
    (170, "7.3"),
    (180, "9.8"),
    (190, "13"),
    (200, "18"),
    (210, "23"),
    (220, "29"),
    (230, "36"),
    (240, "44"),
    (250, "52"),
)
"""In-hospital deaths in per cent at these scores: Granger's nomogram."""


def grace_band(x: Values, score: float) -> str:
    risk = "low" if score <= 108 else "intermediate" if score <= 140 else "high"
    at = max((row for row in _GRACE_DEATHS if row[0] <= score), default=_GRACE_DEATHS[0])
    deaths = "at most 0.2" if score <= 60 else "at least 52" if score >= 250 else f"about {at[1]}"
    return (
        f"{risk} risk in hospital (to 108 low, 109 to 140 intermediate, above 140 high); "
        f"{deaths} % deaths in hospital by the nomogram at {at[0]} points"
    )


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


def heart_score(x: Values) -> Worked:
    risk = 2 if x.risk_factors >= 3 or x.atherosclerotic_disease else 1 if x.risk_factors else 0
    points = {
        "history": HISTORIES[x.history],
        "ecg": ECGS[x.ecg],
        "age": below((45, 0), (65, 1), rest=2).of(x.age),
        "risk_factors": risk,
        "troponin": TROPONINS[x.troponin],
    }
    return Worked(sum(points.values()), points=points)


def heart_band(x: Values, score: float) -> str:
    low, middle = "low: 0.9 to 1.7 % major cardiac events in 6 weeks", "moderate: 12 to 16.6 % major cardiac events"
    return (
        f"0 to 3: {low}"
        if score <= 3
        else f"4 to 6: {middle}"
        if score <= 6
        else "7 to 10: high: 50 to 65 % major cardiac events"
    )


CALCULATORS = (
    Calculator(
        name="cha2ds2_vasc",
        title="CHA2DS2-VASc",
        also="chads vasc, chadsvasc, chads2, cha2ds2, chads, cha2ds2 vasc, stroke risk atrial fibrillation, "
        "cha2ds2 vasc score for atrial fibrillation stroke risk",
        says="risk of stroke in atrial fibrillation",
        group="heart",
        inputs=(
            ADULT.scoring(below((65, 0), (75, 1), rest=2)),
            Choice(
                name="sex",
                also=SEX.also,
                words=SEX.words,
                flags=SEX.flags,
                options={"male": 0, "female": 1},
                scores=True,
            ),
            YesNo(
                name="congestive_heart_failure",
                also="chf heart_failure chf_history congestive_heart_failure_history c",
                points=1,
                text="or moderate to severe systolic dysfunction",
            ),
            YesNo(name="hypertension", also="hypertension_history htn high_blood_pressure", points=1),
            YesNo(name="diabetes", also="diabetes_mellitus dm diabetes_history", points=1),
            YesNo(
                name="stroke_tia",
                also="stroke stroke_tia_thromboembolism stroke_history thromboembolism stroke_or_tia prior_stroke "
                "stroke_tia_thromboembolism_history thromboembolism_history tia_history tia",
                points=2,
                joins=True,
                text="earlier stroke, TIA or thromboembolism",
            ),
            YesNo(
                name="vascular_disease",
                also="vascular_disease_history myocardial_infarction peripheral_artery_disease aortic_plaque",
                points=1,
                joins=True,
                text="infarction, peripheral artery disease or aortic plaque",
            ),
        ),
        bands=chads_band,
        notes=("For atrial fibrillation without mechanical valve or mitral stenosis.",),
        sources=(
            Source("Lip GYH et al. Chest 2010;137:263-272", "10.1378/chest.09-1584"),
            Source("Hindricks G et al. 2020 ESC guideline on atrial fibrillation. Eur Heart J 2021;42:373-498"),
        ),
        example=Example(
            {
                "age": 76,
                "sex": "female",
                "congestive_heart_failure": "no",
                "hypertension": "yes",
                "diabetes": "no",
                "stroke_tia": "no",
                "vascular_disease": "no",
            },
            4,
        ),
        replaces=("chadsvasc",),
    ),
    Calculator(
        name="has_bled",
        title="HAS-BLED",
        also="hasbled, bleeding risk, has bled score for major bleeding risk",
        says="risk of major bleeding under anticoagulation",
        group="heart",
        inputs=(
            YesNo(
                name="hypertension",
                text="uncontrolled, systolic above 160",
                points=1,
                also="uncontrolled_hypertension h",
                measured=(SYSTOLIC, Limit(">", 160)),
            ),
            YesNo(
                name="abnormal_renal_function",
                text="dialysis, transplant, or creatinine above 2.26 mg/dL",
                points=1,
                also="renal_disease kidney_disease renal",
                measured=(CREATININE, Limit("≥", 2.26)),
            ),
            YesNo(
                name="abnormal_liver_function",
                text="cirrhosis, or bilirubin above 2 × with AST, ALT or AP above 3 × normal",
                points=1,
                also="liver_disease liver",
            ),
            YesNo(name="stroke", points=1, also="stroke_history prior_stroke"),
            YesNo(
                name="bleeding",
                text="earlier major bleeding, or predisposition such as anaemia",
                points=1,
                also="prior_bleeding prior_major_bleeding_or_predisposition_to_bleeding major_bleeding "
                "prior_major_bleeding bleeding_history prior_bleeding_history",
            ),
            YesNo(
                name="labile_inr",
                text="time in range below 60 %",
                points=1,
                also="labile_inrs inr_labile labile_international_normalized_ratio",
            ),
            YesNo(name="elderly", text="older than 65", points=1, also="age_over_65", measured=(AGE, Limit(">", 65))),
            YesNo(
                name="drugs",
                text="antiplatelets or NSAIDs",
                points=1,
                also="medications antiplatelets_or_nsaids bleeding_drugs medications_for_bleeding "
                "medication_usage_predisposing_to_bleeding",
            ),
            YesNo(
                name="alcohol",
                text="8 drinks a week or more",
                points=1,
                also="alcohol_use alcohol_drinks_8_or_more",
                measured=(
                    Quantity(
                        name="alcoholic_drinks_per_week",
                        least=0,
                        most=300,
                        also="alcoholic_drinks drinks_per_week number_of_alcoholic_drinks",
                    ),
                    Limit("≥", 8),
                ),
            ),
        ),
        bands=has_bled_band,
        sources=(Source("Pisters R et al. Chest 2010;138:1093-1100", "10.1378/chest.10-0134"),),
        example=Example({"hypertension": True, "stroke": True, "age": 70, "others_absent": True}, 3),
        replaces=("hasbled",),
    ),
    Calculator(
        name="heart_score",
        title="HEART score",
        also="heart, chest pain score, heart score for major cardiac events",
        says="risk of major cardiac events in chest pain",
        group="heart",
        inputs=(
            Choice(
                name="history",
                text="of the chest pain",
                also="suspicion",
                options=HISTORIES,
                words={
                    "0": "slightly_suspicious",
                    "1": "moderately_suspicious",
                    "2": "highly_suspicious",
                    "slight": "slightly_suspicious",
                    "moderate": "moderately_suspicious",
                    "high": "highly_suspicious",
                },
                scores=True,
            ),
            Choice(
                name="ecg",
                also="ekg electrocardiogram",
                options=ECGS,
                words={
                    "0": "normal",
                    "1": "nonspecific_repolarization_disturbance",
                    "2": "significant_st_deviation",
                    "non_specific_repolarization_disturbance": "nonspecific_repolarization_disturbance",
                    "nonspecific": "nonspecific_repolarization_disturbance",
                    "non_specific": "nonspecific_repolarization_disturbance",
                    "significant_st_depression": "significant_st_deviation",
                    "st_deviation": "significant_st_deviation",
                    "st_depression": "significant_st_deviation",
                    "significant_st_segment_deviation": "significant_st_deviation",
                },
                scores=True,
            ),
            ADULT.scoring(below((45, 0), (65, 1), rest=2)),
            Quantity(
                name="risk_factors",
                text="how many of hypertension, hypercholesterolaemia, diabetes, obesity, smoking, family history",
                also="risk_factor_count number_of_risk_factors",
                least=0,
                most=6,
                whole=True,
            ),
            YesNo(
                name="atherosclerotic_disease",
                text="known (infarction, PCI, CABG, stroke, TIA, peripheral): 2 points for risk factors",
                also="history_of_atherosclerosis atherosclerosis history_of_atherosclerotic_disease",
            ),
            Choice(
                name="troponin",
                text="times the normal limit",
                also="initial_troponin",
                options=TROPONINS,
                words={
                    "0": "normal",
                    "1": "1_to_3",
                    "2": "above_3",
                    "less_than_or_equal_to_normal_limit": "normal",
                    "between_the_normal_limit_or_up_to_three_times_the_normal_limit": "1_to_3",
                    "1_3": "1_to_3",
                    "1_3x": "1_to_3",
                    "3": "above_3",
                    "1_3x_normal_limit": "1_to_3",
                    "greater_than_three_times_normal_limit": "above_3",
                    "3x": "above_3",
                    "over_3": "above_3",
                    "negative": "normal",
                    "3x_normal_limit": "above_3",
                    "normal_limit": "normal",
                    "1_to_3x": "1_to_3",
                    "1_to_3_times": "1_to_3",
                    "above_3x": "above_3",
                },
                scores=True,
            ),
        ),
        work=heart_score,
        bands=heart_band,
        sources=(
            Source("Six AJ, Backus BE, Kelder JC. Neth Heart J 2008;16:191-196", "10.1007/BF03086144"),
            Source("Backus BE et al. Int J Cardiol 2013;168:2153-2158"),
        ),
        example=Example(
            {
                "history": "moderately suspicious",
                "ecg": "normal",
                "age": 66,
                "risk_factors": 2,
                "atherosclerotic_disease": "no",
                "troponin": "normal",
            },
            4,
        ),
        replaces=("heart_score",),
    ),
    Calculator(
        name="grace",
        title="GRACE risk score (2003, in hospital)",
        also="grace score, grace acs, global registry of acute coronary events, grace risk score, "
        "acute coronary syndrome risk",
        says="deaths in hospital in acute coronary syndromes",
        group="heart",
        inputs=(
            ADULT.scoring(below((30, 0), (40, 8), (50, 25), (60, 41), (70, 58), (80, 75), (90, 91), rest=100)),
            HEART_RATE.scoring(below((50, 0), (70, 3), (90, 9), (110, 15), (150, 24), (200, 38), rest=46)),
            SYSTOLIC.scoring(below((80, 58), (100, 53), (120, 43), (140, 34), (160, 24), (200, 10), rest=0)),
            CREATININE.scoring(
                below((0.4, 1), (0.8, 4), (1.2, 7), (1.6, 10), (2, 13), (4, 21), rest=28),
                umol_l=below((35, 1), (71, 4), (106, 7), (141, 10), (177, 13), (354, 21), rest=28),
            ),
            Choice(
                name="killip",
                text="class: 1 no failure, 2 rales, 3 pulmonary oedema, 4 shock",
                also="killip_class",
                options={"1": 0, "2": 20, "3": 39, "4": 59},
                words={
                    "i": "1",
                    "ii": "2",
                    "iii": "3",
                    "iv": "4",
                    "class_1": "1",
                    "class_2": "2",
                    "class_3": "3",
                    "class_4": "4",
                    "class_i": "1",
                    "class_ii": "2",
                    "class_iii": "3",
                    "class_iv": "4",
                },
                scores=True,
            ),
            YesNo(name="cardiac_arrest", text="at admission", points=39, also="cardiac_arrest_at_admission"),
            YesNo(name="st_deviation", points=28, also="st_segment_deviation"),
            YesNo(
                name="elevated_markers",
                text="troponin or CK-MB",
                points=14,
                also="elevated_cardiac_enzymes elevated_cardiac_markers abnormal_cardiac_enzymes elevated_troponin",
            ),
        ),
        bands=grace_band,
        notes=("Points of the nomogram of 2003; GRACE 2.0 has functions of its own.",),
        sources=(Source("Granger CB et al. Arch Intern Med 2003;163:2345-2353", "10.1001/archinte.163.19.2345"),),
        example=Example(
            {
                "age": 65,
                "heart_rate": 85,
                "systolic_bp": 130,
                "creatinine": "1 mg/dL",
                "killip": 1,
                "cardiac_arrest": "no",
                "st_deviation": "yes",
                "elevated_markers": "yes",
            },
            150,
        ),
        replaces=("grace_score",),
    ),
    Calculator(
        name="rcri",
        title="Revised Cardiac Risk Index (Lee)",
        also="lee index, revised cardiac risk index, revised cardiac risk index for pre operative "
        "risk, preoperative cardiac risk",
        says="risk of cardiac complications of non-cardiac surgery",
        group="heart",
        inputs=(
            YesNo(
                name="high_risk_surgery",
                text="intraperitoneal, intrathoracic or suprainguinal vascular",
                points=1,
                also="elevated_risk_surgery",
            ),
            YesNo(
                name="ischemic_heart_disease",
                points=1,
                also="history_of_ischemic_heart_disease ischaemic_heart_disease ihd",
            ),
            YesNo(
                name="congestive_heart_failure", points=1, also="history_of_congestive_heart_failure chf heart_failure"
            ),
            YesNo(
                name="cerebrovascular_disease",
                text="stroke or TIA",
                points=1,
                also="history_of_cerebrovascular_disease stroke stroke_tia",
            ),
            YesNo(
                name="insulin",
                text="diabetes treated with insulin before surgery",
                points=1,
                also="preoperative_insulin_treatment pre_operative_treatment_with_insulin insulin_treatment "
                "preoperative_insulin pre_operative_insulin",
            ),
            YesNo(
                name="creatinine_above_2",
                text="before surgery",
                points=1,
                also="preoperative_creatinine_above_2",
                measured=(
                    replace(CREATININE, also=f"{CREATININE.also} preoperative_creatinine pre_operative_creatinine"),
                    Limit(">", 2.0),
                ),
            ),
        ),
        bands=up_to(
            (0, "class I: 0.4 to 0.5 % major cardiac complications"),
            (1, "class II: 0.9 to 1.3 % major cardiac complications"),
            (2, "class III: 3.6 to 6.6 % major cardiac complications"),
            rest="class IV: 9.1 to 11 % major cardiac complications",
        ),
        notes=("Newer pooled data (Duceppe 2017) give 3.9, 6.0, 10.1 and 15 % for 0, 1, 2 and 3 or more.",),
        sources=(Source("Lee TH et al. Circulation 1999;100:1043-1049", "10.1161/01.CIR.100.10.1043"),),
        example=Example({"high_risk_surgery": "yes", "creatinine": "2.5 mg/dL", "others_absent": True}, 2),
        replaces=("rcri",),
    ),
    Calculator(
        name="framingham_hard_chd",
        title="Framingham risk, hard coronary heart disease, 10 years",
        also="framingham risk score, framingham, framingham risk score for hard coronary heart disease, coronary risk",
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
