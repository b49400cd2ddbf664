"""Built in: atrial fibrillation: the risk of stroke, and of bleeding."""

from specialists._medical import units
from specialists._medical.calculator import Calculator, Example, Source, Values
from specialists._medical.inputs import Choice, Quantity, YesNo
from specialists._medical.patient import (
    ADULT,
    AGE,
    CREATININE,
    SEX,
    SYSTOLIC,
)
from specialists._medical.steps import Limit, below

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


CALCULATORS = (
    Calculator(
        name="cha2ds2_vasc",
        title="CHA2DS2-VASc",
        also="chads2vasc, chads2 vasc, chads vasc, chadsvasc, chads2, cha2ds2, chads, cha2ds2 vasc, stroke risk "
        "atrial fibrillation, "
        "vorhofflimmern, fibrillation auriculaire, cha2ds2 vasc score for atrial fibrillation stroke risk",
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
                also="chf heart_failure chf_history congestive_heart_failure_history heart_failure_history c",
                points=1,
                text="or moderate to severe systolic dysfunction",
            ),
            YesNo(name="hypertension", also="hypertension_history htn high_blood_pressure", points=1),
            YesNo(
                name="diabetes", also="diabetes_mellitus dm diabetes_history type_2_diabetes type_1_diabetes", points=1
            ),
            YesNo(
                name="stroke_tia",
                also="stroke stroke_tia_thromboembolism stroke_history thromboembolism stroke_or_tia prior_stroke "
                "stroke_tia_thromboembolism_history thromboembolism_history tia_history tia "
                "transient_ischemic_attack transient_ischemic_attacks "
                "transient_ischemic_attacks_history transient_ischemic_attack_history history_of_stroke "
                "history_of_tia systemic_embolism",
                points=2,
                joins=True,
                text="earlier stroke, TIA or thromboembolism",
            ),
            YesNo(
                name="vascular_disease",
                also="vascular vascular_disease_history myocardial_infarction prior_myocardial_infarction prior_mi "
                "peripheral_artery_disease peripheral_arterial_disease pad aortic_plaque",
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
                also="uncontrolled_hypertension htn h",
                measured=(SYSTOLIC, Limit(">", 160)),
            ),
            YesNo(
                name="abnormal_renal_function",
                text="dialysis, transplant, or creatinine above 2.26 mg/dL",
                points=1,
                also="renal_disease kidney_disease renal_disease_history renal renal_dysfunction "
                "abnormal_kidney_function",
                measured=(CREATININE, Limit("≥", 2.26)),
            ),
            YesNo(
                name="abnormal_liver_function",
                text="cirrhosis, or bilirubin above 2 × with AST, ALT or AP above 3 × normal",
                points=1,
                also="liver_disease liver_disease_history liver liver_dysfunction",
            ),
            YesNo(name="stroke", points=1, also="stroke_history prior_stroke history_of_stroke"),
            YesNo(
                name="bleeding",
                text="earlier major bleeding, or predisposition such as anaemia",
                points=1,
                joins=True,
                also="prior_bleeding prior_major_bleeding_or_predisposition_to_bleeding major_bleeding "
                "prior_major_bleeding bleeding_history prior_bleeding_history anemia anaemia",
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
                joins=True,
                also="aspirin nsaid nsaids nsaid_use antiplatelet antiplatelet_use antiplatelets medications "
                "antiplatelets_or_nsaids bleeding_drugs medications_for_bleeding "
                "medication_usage_predisposing_to_bleeding",
            ),
            YesNo(
                name="alcohol",
                text="8 drinks a week or more",
                points=1,
                also="alcohol_use alcohol_drinks_8_or_more alcohol_abuse heavy_alcohol_use",
                measured=(
                    Quantity(
                        name="alcoholic_drinks",
                        measure=units.PER_WEEK,
                        least=0,
                        most=300,
                        also="alcoholic_drinks_per_week drinks_per_week number_of_alcoholic_drinks "
                        "number_of_alcoholic_drinks_per_week",
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
)
