"""Built in: other diseases together: Charlson's index."""

from math import exp

from specialists._medical.calculator import Calculator, Example, Source, Values, Worked
from specialists._medical.inputs import Choice, YesNo
from specialists._medical.patient import AGE
from specialists._medical.steps import below


def charlson(x: Values) -> Worked:
    total = sum(x.scores.values())
    notes = [f"Estimated 10-year survival: {100 * 0.983 ** exp(0.9 * total):.1f} % (0.983^(e^(0.9 × index)))."]
    if x.age is None:
        notes.append("Without the age: the index of 1987, not adjusted for age.")
    return Worked(total, points=x.scores, notes=notes)


CALCULATORS = (
    Calculator(
        name="charlson",
        title="Charlson Comorbidity Index",
        also="cci, charlson comorbidity index, charlson index, comorbidity index, charlson comorbidity index cci",
        says="burden of other diseases, with 10-year survival",
        group="comorbidity",
        inputs=(
            AGE.within(18, 120).scoring(below((50, 0), (60, 1), (70, 2), (80, 3), rest=4)),
            YesNo(
                name="myocardial_infarction",
                points=1,
                also="mi infarction history_of_myocardial_infarction myocardial_infarction_history",
            ),
            YesNo(name="congestive_heart_failure", points=1, also="chf heart_failure"),
            YesNo(name="peripheral_vascular_disease", points=1, also="pvd peripheral_arterial_disease"),
            YesNo(
                name="cerebrovascular_disease",
                text="stroke or TIA",
                points=1,
                joins=True,
                also="stroke tia cva cerebrovascular_accident transient_ischemic_attack "
                "transient_ischemic_attacks transient_ischemic_attacks_history cva_or_tia stroke_or_tia "
                "cerebrovascular_accident_or_tia",
            ),
            YesNo(name="dementia", points=1),
            YesNo(name="chronic_pulmonary_disease", points=1, also="copd chronic_obstructive_pulmonary_disease"),
            YesNo(name="connective_tissue_disease", points=1),
            YesNo(name="peptic_ulcer_disease", points=1, also="peptic_ulcer pud"),
            Choice(
                name="liver_disease",
                options={"none": 0, "mild": 1, "moderate_to_severe": 3},
                absent="none",
                scores=True,
                words={
                    "moderate": "moderate_to_severe",
                    "severe": "moderate_to_severe",
                    "moderate_or_severe": "moderate_to_severe",
                },
                flags=(
                    ("mild_liver_disease", "mild", "none"),
                    ("moderate_severe_liver_disease", "moderate_to_severe", "none"),
                    ("moderate_to_severe_liver_disease", "moderate_to_severe", "none"),
                    ("moderate_or_severe_liver_disease", "moderate_to_severe", "none"),
                ),
            ),
            Choice(
                name="diabetes",
                options={"none_or_diet_controlled": 0, "uncomplicated": 1, "end_organ_damage": 2},
                absent="none_or_diet_controlled",
                scores=True,
                also="diabetes_mellitus",
                words={
                    "none": "none_or_diet_controlled",
                    "diet_controlled": "none_or_diet_controlled",
                    "none_or_diet": "none_or_diet_controlled",
                    "end_organ": "end_organ_damage",
                    "complicated": "end_organ_damage",
                    "with_end_organ_damage": "end_organ_damage",
                },
                flags=(
                    ("uncomplicated_diabetes", "uncomplicated", "none_or_diet_controlled"),
                    ("diabetes_without_complications", "uncomplicated", "none_or_diet_controlled"),
                    ("diabetes_with_end_organ_damage", "end_organ_damage", "none_or_diet_controlled"),
                    ("diabetes_with_complications", "end_organ_damage", "none_or_diet_controlled"),
                ),
            ),
            YesNo(name="hemiplegia", points=2, also="hemiplegia_or_paraplegia"),
            YesNo(
                name="renal_disease",
                text="moderate to severe: creatinine above 3 mg/dL, dialysis, transplant, uraemia",
                points=2,
                also="moderate_to_severe_chronic_kidney_disease moderate_severe_renal_disease ckd "
                "moderate_to_severe_ckd chronic_kidney_disease moderate_to_severe_renal_disease",
            ),
            Choice(
                name="solid_tumor",
                options={"none": 0, "localized": 2, "metastatic": 6},
                absent="none",
                scores=True,
                also="solid_tumour tumor",
                words={"localised": "localized", "yes": "localized"},
                flags=(
                    ("metastatic_solid_tumor", "metastatic", "none"),
                    ("metastatic_cancer", "metastatic", "none"),
                    ("localized_solid_tumor", "localized", "none"),
                ),
            ),
            YesNo(name="leukemia", points=2, also="leukaemia"),
            YesNo(name="lymphoma", points=2),
            YesNo(name="aids", text="not HIV alone", points=6),
        ),
        work=charlson,
        bands=below((1, "no burden"), (3, "mild"), (5, "moderate"), rest="severe"),
        notes=("Weights of 1987 with a point for each decade from 50 (1994).",),
        sources=(
            Source("Charlson ME et al. J Chronic Dis 1987;40:373-383", "10.1016/0021-9681(87)90171-8"),
            Source("Charlson M et al. J Clin Epidemiol 1994;47:1245-1251"),
        ),
        example=Example(
            {"age": 65, "myocardial_infarction": "yes", "diabetes": "end organ damage", "others_absent": True}, 5
        ),
        replaces=("charlson",),
    ),
)
