"""Built in: the coronary arteries: chest pain, infarction, operations."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from specialists._medical.calculator import OTHERS_ABSENT, Calculator, Example, Source, Values, Worked
from specialists._medical.inputs import Choice, Quantity, YesNo
from specialists._medical.names import KEY_LENGTH
from specialists._medical.patient import (
    ADULT,
    CREATININE,
    HEART_RATE,
    SYSTOLIC,
)
from specialists._medical.reading import Wrong, key_of, truth
from specialists._medical.steps import Limit, below, up_to

HISTORIES = {"slightly_suspicious": 0, "moderately_suspicious": 1, "highly_suspicious": 2}

ECGS = {"normal": 0, "nonspecific_repolarization_disturbance": 1, "significant_st_deviation": 2}

TROPONINS = {"normal": 0, "1_to_3": 1, "above_3": 2}

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


RISK_FACTORS = {
    "hypertension": "htn hypertension_history",
    "hypercholesterolemia": "hypercholesterolaemia high_cholesterol hyperlipidemia dyslipidemia "
    "hypercholesterolemia_history",
    "diabetes": "diabetes_mellitus diabetes_history",
    "obesity": "obese",
    "smoking": "smoker current_smoker smoking_history",
    "family_history": "family_history_of_cvd parent_or_sibling_with_cvd_before_age_65 family_history_of_cad "
    "parent_or_sibling_with_cardiovascular_disease_before_age_65 family_history_of_cardiovascular_disease",
}


def _with_count(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs with the number of risk factors, where each was told instead.

    Raises:
        Wrong: when only some of them were told.
    """
    found = {key_of(name[:KEY_LENGTH]): value for name, value in raw.items()}
    names = {other: name for name, also in RISK_FACTORS.items() for other in (name, *also.split())}
    told = {names[key]: truth(found.pop(key)) for key in list(found) if key in names}
    if not told or "risk_factors" in found:
        return found
    missing = [name for name in RISK_FACTORS if name not in told]
    if missing and not found.get(OTHERS_ABSENT):
        raise Wrong(f"risk_factors: missing: {', '.join(missing)}; or give risk_factors as a number")
    return found | {"risk_factors": sum(told.values())}


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
        name="heart_score",
        title="HEART score",
        also="heart pathway, heart, chest pain score, heart score for major cardiac events",
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
                also="ekg electrocardiogram electrocardiogram_test",
                options=ECGS,
                words={
                    "0": "normal",
                    "1": "nonspecific_repolarization_disturbance",
                    "2": "significant_st_deviation",
                    "non_specific_repolarization_disturbance": "nonspecific_repolarization_disturbance",
                    "nonspecific_changes": "nonspecific_repolarization_disturbance",
                    "nonspecific_st_t_changes": "nonspecific_repolarization_disturbance",
                    "lbbb": "nonspecific_repolarization_disturbance",
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
                text="how many of hypertension, hypercholesterolaemia, diabetes, obesity, smoking, family "
                "history; or each yes or no",
                also="risk_factor_count number_of_risk_factors",
                least=0,
                most=6,
                whole=True,
            ),
            YesNo(
                name="atherosclerotic_disease",
                text="known (infarction, PCI, CABG, stroke, TIA, peripheral): 2 points for risk factors",
                also="history_of_atherosclerosis atherosclerosis history_of_atherosclerotic_disease "
                "known_atherosclerotic_disease",
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
        prepare=_with_count,
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
                also="elevated_cardiac_enzymes elevated_cardiac_markers abnormal_cardiac_enzymes elevated_troponin "
                "elevated_enzymes elevated_biomarkers cardiac_markers positive_cardiac_markers",
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
                also="history_of_ischemic_heart_disease ischaemic_heart_disease ihd coronary_artery_disease cad",
            ),
            YesNo(
                name="congestive_heart_failure",
                points=1,
                also="history_of_congestive_heart_failure congestive_heart_failure_history chf heart_failure",
            ),
            YesNo(
                name="cerebrovascular_disease",
                text="stroke or TIA",
                points=1,
                also="history_of_cerebrovascular_disease stroke stroke_tia stroke_or_tia",
            ),
            YesNo(
                name="insulin",
                text="diabetes treated with insulin before surgery",
                points=1,
                also="preoperative_insulin_treatment pre_operative_treatment_with_insulin insulin_treatment "
                "preoperative_insulin pre_operative_insulin insulin_treated_diabetes diabetes_on_insulin "
                "insulin_dependent_diabetes",
            ),
            YesNo(
                name="creatinine_above_2",
                text="before surgery",
                points=1,
                also="preoperative_creatinine_above_2 creatinine_2 creatinine_over_2",
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
)
