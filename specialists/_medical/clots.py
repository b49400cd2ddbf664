"""Built in: clots: the chance of thrombosis and embolism, and who should be protected."""

from collections.abc import Mapping
from typing import Any

from specialists._medical import units
from specialists._medical.calculator import Calculator, Example, Source
from specialists._medical.inputs import Choice, Quantity, YesNo
from specialists._medical.names import KEY_LENGTH
from specialists._medical.patient import AGE, BMI, HEART_RATE, SEX, SPO2
from specialists._medical.reading import key_of
from specialists._medical.steps import Limit, Steps, below, up_to


def wells_pe_band(x: object, score: float) -> str:
    two = "PE likely" if score > 4 else "PE unlikely"
    three = "low" if score < 2 else "moderate" if score <= 6 else "high"
    return f"two tiers (cut above 4): {two}; three tiers (below 2, 2 to 6, above 6): {three} probability"


def wells_dvt_band(x: object, score: float) -> str:
    two = "DVT likely" if score >= 2 else "DVT unlikely"
    three = "low" if score <= 0 else "moderate" if score <= 2 else "high"
    return f"two tiers (cut at 2, Wells 2003): {two}; three tiers (to 0, 1 to 2, from 3): {three} probability"


PERC: Steps[str] = up_to(
    (0, "all criteria negative: PE ruled out where the clinical probability is low (below 15 %)"),
    rest="a criterion is positive: PERC does not rule out PE",
)


def _caprini(points: int, names: dict[str, str]) -> tuple[YesNo, ...]:
    """Caprini's items of one weight; each with other names for it."""
    return tuple(YesNo(name=name, also=also, points=points, joins=True) for name, also in names.items())


WOMENS_ITEMS = ("pregnancy_or_postpartum", "stillbirth_or_abortions", "hormones")


def _of_a_man(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """The inputs, for a man with the items that only a woman can have."""
    sexes = [value for name, value in raw.items() if key_of(name[:KEY_LENGTH]) in (SEX.name, *SEX.also.split())]
    words = [key_of(value[:20]) for value in sexes if isinstance(value, str)]
    male = any(SEX.words.get(word, word) == "male" for word in words)
    return {**dict.fromkeys(WOMENS_ITEMS, False), **raw} if male else raw


CALCULATORS = (
    Calculator(
        name="wells_pe",
        title="Wells score for pulmonary embolism",
        also="wells lungenembolie, wells, wells criteria for pulmonary embolism, wells pe, wells pulmonary embolism, "
        "pulmonary embolism probability",
        says="clinical probability of pulmonary embolism",
        group="clots",
        inputs=(
            YesNo(
                name="dvt_signs",
                text="clinical signs and symptoms of DVT",
                points=3,
                also="clinical_signs_dvt clinical_signs_of_dvt clinical_signs_and_symptoms_of_dvt clinical_dvt"
                " clinical_signs_and_symptoms_of_deep_vein_thrombosis signs_of_dvt signs_and_symptoms_of_dvt",
            ),
            YesNo(
                name="pe_likeliest",
                text="PE is the first diagnosis, or equally likely",
                points=3,
                also="pe_most_likely_diagnosis pe_most_likely pe_number_one alternative_diagnosis_less_likely "
                "alternative_diagnosis_less_likely_than_pe "
                "pulmonary_embolism_is_1_diagnosis_or_equally_likely pe_likely "
                "pe_is_1_diagnosis_or_equally_likely pe_is_number_one_diagnosis",
            ),
            YesNo(
                name="heart_rate_over_100",
                points=1.5,
                also="heart_rate_gt_100 tachycardia",
                measured=(HEART_RATE, Limit(">", 100)),
            ),
            YesNo(
                name="immobilization_or_surgery",
                text="immobile 3 days, or surgery in the last 4 weeks",
                points=1.5,
                joins=True,
                also="immobilization surgery immobilization_for_at_least_3_days "
                "surgery_in_the_previous_4_weeks immobilisation_or_surgery surgery_or_immobilization recent_surgery",
            ),
            YesNo(
                name="previous_pe_or_dvt",
                points=1.5,
                joins=True,
                also="previous_dvt_pe previous_dvt previous_pe prior_dvt_pe "
                "previously_documented_pulmonary_embolism previously_documented_deep_vein_thrombosis "
                "previously_documented_dvt previously_documented_pe prior_pe prior_dvt previous_vte prior_vte "
                "history_of_vte history_of_dvt history_of_pe history_of_dvt_or_pe",
            ),
            YesNo(name="hemoptysis", points=1, also="haemoptysis"),
            YesNo(
                name="malignancy",
                text="treated within 6 months, or palliative",
                points=1,
                also="cancer active_cancer malignancy_with_treatment_within_6_months_or_palliative",
            ),
        ),
        bands=wells_pe_band,
        sources=(Source("Wells PS et al. Thromb Haemost 2000;83:416-420", "10.1055/s-0037-1613830"),),
        example=Example({"heart_rate": 110, "previous_pe_or_dvt": "yes", "others_absent": True}, 3.0),
        replaces=("wells_pe",),
        digits=1,
    ),
    Calculator(
        name="wells_dvt",
        title="Wells score for deep vein thrombosis",
        also="wells tvt, wells deep venous thrombosis, wells, wells criteria for dvt, wells dvt, deep vein "
        "thrombosis probability, wells "
        "criteria for deep vein thrombosis",
        says="clinical probability of deep vein thrombosis",
        group="clots",
        inputs=(
            YesNo(
                name="active_cancer", text="treated within 6 months, or palliative", points=1, also="cancer malignancy"
            ),
            YesNo(
                name="paralysis_or_cast",
                text="paralysis, paresis or plaster of the leg",
                points=1,
                also="paralysis_or_casting paralysis paresis immobilization "
                "immobilization_of_lower_extremities "
                "paralysis_paresis_or_immobilization_of_lower_extremity "
                "paralysis_paresis_or_recent_plaster_immobilization_of_the_lower_extremity",
                joins=True,
            ),
            YesNo(
                name="bedridden_or_surgery",
                text="bedridden 3 days, or major surgery within 12 weeks",
                points=1,
                joins=True,
                also="bedridden_or_major_surgery bedridden bedridden_for_at_least_3_days major_surgery "
                "recent_surgery bedridden_recently_or_major_surgery bedridden_recently bedridden_recently_3_days "
                "major_surgery_within_12_weeks major_surgery_in_last_12_weeks "
                "bedridden_recently_3_days_or_major_surgery_within_12_weeks",
            ),
            YesNo(
                name="tenderness",
                text="localised, along the deep veins",
                points=1,
                also="localized_tenderness tenderness_along_deep_veins "
                "localized_tenderness_on_deep_venous_system localised_tenderness "
                "localized_tenderness_along_the_deep_venous_system",
            ),
            YesNo(name="entire_leg_swollen", points=1, also="leg_swollen whole_leg_swollen entire_leg_swelling"),
            YesNo(
                name="calf_swelling",
                text="more than 3 cm larger than the other, 10 cm below the tibial tuberosity",
                points=1,
                also="calf_swelling_gt_3cm calf_swelling_3_cm calf_swelling_3cm calf_swelling_over_3_cm "
                "calf_swelling_3_centimeters calf_swelling_3_centimeters_compared_to_the_other_leg "
                "calf_swelling_3_cm_compared_to_the_other_leg",
                measured=(
                    Quantity(name="calf_difference", measure=units.LENGTH, least=0, most=30),
                    Limit(">", 3),
                ),
            ),
            YesNo(
                name="pitting_edema",
                text="only of that leg",
                points=1,
                also="pitting_oedema pitting_edema_on_symptomatic_leg pitting_edema_confined_to_symptomatic_leg",
            ),
            YesNo(
                name="collateral_veins",
                text="superficial, not varicose",
                points=1,
                also="collateral_superficial_veins collateral_nonvaricose_superficial_veins "
                "collateral_nonvaricose_superficial_veins_present",
            ),
            YesNo(
                name="previous_dvt",
                points=1,
                also="previously_documented_dvt prior_dvt previously_documented_deep_vein_thrombosis "
                "previous_documented_dvt",
            ),
            YesNo(
                name="alternative_diagnosis",
                text="at least as likely as DVT",
                points=-2,
                also="alternative_diagnosis_likely alternative_diagnosis_as_likely "
                "alternative_to_dvt_diagnosis alternative_diagnosis_to_dvt_as_likely_or_more_likely "
                "alternative_diagnosis_at_least_as_likely",
            ),
        ),
        bands=wells_dvt_band,
        notes=("Previous DVT counts since the version of 2003; without it three tiers are those of 1997.",),
        sources=(
            Source("Wells PS et al. N Engl J Med 2003;349:1227-1235"),
            Source("Wells PS et al. Lancet 1997;350:1795-1798", "10.1016/S0140-6736(97)08140-3"),
        ),
        example=Example(
            {"active_cancer": "yes", "calf_swelling": "yes", "pitting_edema": "yes", "others_absent": True}, 3
        ),
        replaces=("wells_dvt",),
    ),
    Calculator(
        name="perc",
        title="PERC rule for pulmonary embolism",
        also="perc rule, pulmonary embolism rule out criteria, perc rule for pulmonary embolism, pe rule out",
        says="criteria by which embolism is ruled out without a test, where it is improbable",
        group="clots",
        inputs=(
            YesNo(name="age_50_or_older", points=1, also="age_gte_50", measured=(AGE, Limit("≥", 50))),
            YesNo(
                name="heart_rate_100_or_more",
                points=1,
                also="heart_rate_gte_100",
                measured=(HEART_RATE, Limit("≥", 100)),
            ),
            YesNo(
                name="spo2_below_95", text="on room air", points=1, also="spo2_lt_95", measured=(SPO2, Limit("<", 95))
            ),
            YesNo(name="unilateral_leg_swelling", points=1, also="leg_swelling"),
            YesNo(name="hemoptysis", points=1, also="haemoptysis"),
            YesNo(
                name="recent_surgery_or_trauma",
                text="within 4 weeks, with anaesthesia",
                points=1,
                joins=True,
                also="recent_surgery recent_trauma surgery_or_trauma",
            ),
            YesNo(
                name="previous_pe_or_dvt",
                points=1,
                joins=True,
                also="prior_dvt_pe previous_pe previous_dvt prior_pe prior_dvt "
                "previously_documented_pulmonary_embolism previously_documented_deep_vein_thrombosis "
                "prior_pe_or_dvt",
            ),
            YesNo(
                name="hormone_use",
                text="oestrogens",
                points=1,
                also="estrogen_use oestrogen_use estrogen hormones hormonal_use",
            ),
        ),
        bands=PERC,
        notes=("Only where the physician already holds embolism for improbable.",),
        sources=(Source("Kline JA et al. J Thromb Haemost 2004;2:1247-1255"),),
        example=Example({"age": 35, "heart_rate": 80, "spo2": "98 %", "others_absent": True}, 0),
        replaces=("perc",),
    ),
    Calculator(
        name="caprini",
        title="Caprini score (2005)",
        also="caprini score, caprini vte, caprini score for venous thromboembolism, caprini score for "
        "venous thromboembolism 2005, vte risk surgery",
        says="risk of venous thromboembolism around surgery",
        group="clots",
        inputs=(
            AGE.within(18, 120).scoring(below((41, 0), (61, 1), (75, 2), rest=3)),
            SEX.maybe("of a man pregnancy, miscarriage and hormones are not asked"),
            Choice(
                name="surgery",
                also="surgery_type type_of_surgery planned_surgery",
                options={
                    "none": 0,
                    "minor": 1,
                    "major": 2,
                    "laparoscopic": 2,
                    "arthroscopic": 2,
                    "elective_lower_extremity_arthroplasty": 5,
                },
                words={
                    "no": "none",
                    "minor_surgery": "minor",
                    "major_surgery": "major",
                    "major_open_surgery": "major",
                    "major_45_min": "major",
                    "laparoscopic_45_min": "laparoscopic",
                    "laparoscopic_surgery": "laparoscopic",
                    "arthroscopic_surgery": "arthroscopic",
                    "elective_major_lower_extremity_arthroplasty": "elective_lower_extremity_arthroplasty",
                    "arthroplasty": "elective_lower_extremity_arthroplasty",
                },
                scores=True,
                absent="none",
                text="planned; major and laparoscopic: longer than 45 minutes",
            ),
            Choice(
                name="mobility",
                also="mobility_status",
                options={"normal": 0, "bed_rest": 1, "confined_to_bed": 2},
                words={
                    "on_bed_rest": "bed_rest",
                    "medical_patient_on_bed_rest": "bed_rest",
                    "medical_patient_currently_on_bed_rest": "bed_rest",
                    "confined_to_bed_72_hours": "confined_to_bed",
                    "patient_confined_to_bed_72_hours": "confined_to_bed",
                    "out_of_bed": "normal",
                    "normal_out_of_bed": "normal",
                },
                scores=True,
                absent="normal",
                text="confined: more than 72 hours",
            ),
            YesNo(name="bmi_over_25", points=1, measured=(BMI, Limit(">", 25))),
            *_caprini(
                1,
                {
                    "recent_major_surgery": "major_surgery_in_the_last_month major_surgery_in_last_month "
                    "prior_major_surgery major_surgery",
                    "congestive_heart_failure": "congestive_heart_failure_in_the_last_month chf",
                    "sepsis": "sepsis_in_the_last_month",
                    "serious_lung_disease": "pneumonia pneumonia_in_the_last_month lung_disease",
                    "copd": "abnormal_pulmonary_function chronic_obstructive_pulmonary_disease",
                    "pregnancy_or_postpartum": "pregnancy postpartum pregnant",
                    "stillbirth_or_abortions": "history_unexplained_stillborn_or_recurrent_abortion",
                    "hormones": "ocp_or_hrt oral_contraceptives hormone_replacement",
                    "varicose_veins": "",
                    "swollen_legs": "current_swollen_legs",
                    "acute_myocardial_infarction": "acute_mi",
                    "inflammatory_bowel_disease": "history_of_inflammatory_bowel_disease "
                    "inflammatory_bowel_disease_history ibd",
                },
            ),
            *_caprini(
                2,
                {
                    "plaster_cast": "immobilizing_plaster_cast immobilizing_plaster_cast_in_the_last_month",
                    "central_venous_access": "current_central_venous_access current_central_venous",
                    "malignancy": "present_or_previous_malignancy previous_malignancy cancer",
                },
            ),
            *_caprini(
                3,
                {
                    "previous_dvt_or_pe": "history_dvt_pe history_of_dvt_or_pe previous_dvt previous_pe "
                    "previously_documented_dvt previously_documented_deep_vein_thrombosis "
                    "previously_documented_pulmonary_embolism history_of_dvt_pe history_of_dvt "
                    "history_of_pe history_of_vte",
                    "family_history_thrombosis": "family_history_of_thrombosis",
                    "factor_v_leiden": "positive_factor_v_leiden",
                    "prothrombin_20210a": "positive_prothrombin_20210a",
                    "homocysteine": "elevated_serum_homocysteine elevated_homocysteine",
                    "lupus_anticoagulant": "positive_lupus_anticoagulant",
                    "anticardiolipin": "anticardiolipin_antibodies elevated_anticardiolipin_antibody",
                    "heparin_thrombocytopenia": "hit heparin_induced_thrombocytopenia",
                    "other_thrombophilia": "other_congenital_or_acquired_thrombophilia",
                },
            ),
            *_caprini(
                5,
                {
                    "hip_pelvis_leg_fracture": "hip_pelvis_or_leg_fracture "
                    "hip_pelvis_or_leg_fracture_in_the_last_month fracture",
                    "stroke": "stroke_in_the_last_month",
                    "multiple_trauma": "multiple_trauma_in_the_last_month",
                    "spinal_cord_injury": "acute_spinal_cord_injury "
                    "acute_spinal_cord_injury_causing_paralysis_in_the_last_month",
                },
            ),
        ),
        prepare=_of_a_man,
        bands=up_to((1, "low risk"), (2, "moderate risk"), (4, "higher risk"), rest="highest risk"),
        notes=(
            "Recent: within one month. Bands of Caprini 2005; other guidelines cut differently (ACCP "
            "2012: 0, 1 to 2, 3 to 4, 5 or more).",
        ),
        sources=(Source("Caprini JA. Dis Mon 2005;51:70-78", "10.1016/j.disamonth.2005.02.003"),),
        example=Example({"age": 65, "surgery": "major", "malignancy": "yes", "others_absent": True}, 6),
        replaces=("caprini",),
    ),
)
