"""Built in: what Brain knows of the package open-medicine beyond what it says itself: units, bounds, groups, names."""

from collections.abc import Mapping
from dataclasses import replace

from specialists._medical import units
from specialists._medical.inputs import Quantity
from specialists._medical.patient import (
    AGE,
    ALBUMIN,
    ALT,
    AST,
    BICARBONATE,
    BMI,
    CALCIUM,
    CREATININE,
    DIASTOLIC,
    GLUCOSE,
    HAEMOGLOBIN,
    HDL,
    HEART_RATE,
    HEIGHT,
    PACO2,
    PAO2,
    PLATELETS,
    RESPIRATORY_RATE,
    SODIUM,
    SYSTOLIC,
    TEMPERATURE,
    TOTAL_CHOLESTEROL,
    UREA_NITROGEN,
    WEIGHT,
    WHITE_CELLS,
)

LEFT_OUT = {
    "frax": "FRAX is not published as a formula; what is called so there is an estimate",
    "pews": "refill time and oxygen score half of what the Bedside PEWS paper gives them",
    "dabigatran_dosing": "halves the dose under a P-gp inhibitor at a clearance above 50 too, which the label does not",
    "insulin_basal_dosing": "its steps are in no guideline that it cites",
    "renal_dose_adjustment": "a clearance between its steps, such as 49.5, gets the lowest dose; "
    "doses of aciclovir, allopurinol and sotalol are not the label's",
    "warfarin_initiation": "its doses are in no guideline that it cites",
}
"""What is not taken from the package, and why."""

_PER_MICROLITRE = replace(
    WHITE_CELLS,
    measure=WHITE_CELLS.measure.into("/µL"),
    least=200,
    most=1_000_000,
    usual=(200, 500_000),
    otherwise="K/µL",
)


def _number(measure: units.Measure, least: float, most: float, also: str = "") -> Quantity:
    return Quantity(name="", measure=measure, least=least, most=most, also=also)


FIELDS: Mapping[str, Quantity] = {
    "age": AGE,
    "systolic_blood_pressure": SYSTOLIC,
    "systolic_bp": SYSTOLIC,
    "diastolic_bp": DIASTOLIC,
    "heart_rate": HEART_RATE,
    "pulse": HEART_RATE,
    "respiratory_rate": RESPIRATORY_RATE,
    "temperature": TEMPERATURE,
    "weight": WEIGHT,
    "weight_kg": WEIGHT,
    "height_cm": HEIGHT,
    "bmi": BMI,
    "total_cholesterol": TOTAL_CHOLESTEROL,
    "hdl_cholesterol": HDL,
    "serum_creatinine": CREATININE,
    "creatinine": CREATININE,
    "sodium": SODIUM,
    "glucose": GLUCOSE,
    "blood_glucose": GLUCOSE,
    "fasting_glucose": GLUCOSE,
    "bun": UREA_NITROGEN,
    "bicarbonate": BICARBONATE,
    "paco2": PACO2,
    "pco2": PACO2,
    "pao2": PAO2,
    "calcium": CALCIUM,
    "albumin": ALBUMIN,
    "hemoglobin": HAEMOGLOBIN,
    "platelets": PLATELETS,
    "platelet_count": PLATELETS,
    "wbc": WHITE_CELLS,
    "ast": AST,
    "alt": ALT,
    "crcl": _number(units.CLEARANCE, 1, 250, "creatinine_clearance"),
    "ldh": _number(units.ENZYME, 10, 50_000, "lactate_dehydrogenase"),
    "crp": _number(units.CRP, 0, 1000, "c_reactive_protein"),
    "esr": _number(units.ESR, 0, 200, "erythrocyte_sedimentation_rate sedimentation_rate"),
    "fibrinogen_level": _number(units.FIBRINOGEN, 0, 20, "fibrinogen"),
    "measured_osmolality": _number(units.OSMOLALITY, 150, 700, "measured_osm osmolality"),
    "serum_acetaminophen": replace(
        _number(units.ACETAMINOPHEN, 0, 2000, "acetaminophen paracetamol serum_paracetamol"), usual=(0, 600)
    ),
    "hours_since_ingestion": _number(units.HOURS, 4, 24, "hours time_since_ingestion"),
    "aptt": _number(units.SECONDS, 10, 300),
    "pt_prolongation_seconds": _number(units.SECONDS, 0, 200, "pt_prolongation"),
    "capillary_refill_seconds": _number(units.SECONDS, 0, 30, "capillary_refill capillary_refill_time"),
    "tbsa_percent": _number(units.PERCENT, 0.1, 100, "tbsa burned_area"),
    "hematocrit_decrease": _number(units.PERCENT, 0, 60),
    "effacement_pct": _number(units.PERCENT, 0, 100, "effacement"),
    "spo2": _number(units.PERCENT, 0, 100, "oxygen_saturation sao2"),
    "bun_increase": _number(units.UREA_NITROGEN, 0, 200),
    "base_deficit": _number(units.BICARBONATE, -30, 40),
    "fluid_sequestration": _number(units.LITRES, -5, 40),
    "current_dose": Quantity(name="", text="units a day", least=0, most=500),
    "femoral_neck_bmd_tscore": Quantity(name="", least=-8, most=8, also="t_score"),
}
"""Its fields of numbers, by their names, as quantities of ours: units and bounds."""

SEXES = {"is_male": "male", "is_female": "female", "female_sex": "female", "male_gender": "male"}

MEASURED_HERE = {("bisap", "wbc"): _PER_MICROLITRE, ("ransons", "wbc"): _PER_MICROLITRE}
"""Where it wants another unit than we do."""

AGES = {"ascvd": (40, 79)}
"""For whom an equation was made; others are refused."""

_GROUPS = {
    "heart": ("ascvd", "timi_stemi", "timi_ua_nstemi"),
    "clots": ("padua", "4ts_hit", "isth_dic"),
    "anticoagulants": (
        "apixaban_dosing",
        "edoxaban_dosing",
        "enoxaparin_dosing",
        "heparin_dosing",
        "rivaroxaban_dosing",
    ),
    "fluids": ("osmolar_gap", "winters_formula"),
    "liver": ("nafld_fibrosis", "aims65", "bisap", "ransons"),
    "lungs": ("crb65", "stop_bang"),
    "brain": ("abcd2", "nihss", "hunt_hess", "fisher_grade", "pediatric_gcs"),
    "mind": ("phq9", "gad7", "epds", "cam_icu", "rass", "audit_c", "cage", "ciwa_ar", "cows"),
    "emergency": ("mews", "rts", "canadian_cspine", "ottawa_ankle", "parkland", "rumack_matthew"),
    "infection": ("lrinec", "duke_criteria", "mascc"),
    "pregnancy": ("bishop", "apgar"),
    "doses": ("naranjo",),
    "function": ("ecog", "karnofsky", "clinical_frailty", "das28", "ipss"),
}

GROUP_OF = {name: group for group, names in _GROUPS.items() for name in names}

ALSO = {
    "ecog": "performance status",
    "ascvd": "pce, pooled cohort equations, ascvd risk, atherosclerotic cardiovascular disease",
    "winters_formula": "winter, winters, expected pco2, respiratory compensation",
    "4ts_hit": "4ts, 4t, four ts, hit score, heparin induced thrombocytopenia",
    "nafld_fibrosis": "nafld, nfs, nafld fibrosis score, fatty liver",
    "rumack_matthew": "acetaminophen nomogram, paracetamol overdose, acetaminophen toxicity",
    "nihss": "nih stroke scale, stroke scale, stroke severity",
    "crb65": "crb 65, crb-65",
    "parkland": "parkland formula, burns, burn fluids",
    "osmolar_gap": "osmolal gap, toxic alcohol",
    "phq9": "phq 9, depression",
    "gad7": "gad 7, anxiety",
    "epds": "edinburgh, postnatal depression",
    "ciwa_ar": "ciwa, alcohol withdrawal",
    "isth_dic": "dic, disseminated intravascular coagulation",
    "timi_ua_nstemi": "timi, timi nstemi, timi unstable angina",
    "timi_stemi": "timi",
    "ransons": "ranson, pancreatitis",
    "bisap": "pancreatitis",
    "das28": "das 28, rheumatoid arthritis",
    "rts": "revised trauma score",
    "duke_criteria": "modified duke, endocarditis",
    "ipss": "prostate",
    "stop_bang": "sleep apnea",
    "apgar": "newborn",
}

UNITS = {
    "ascvd": "%",
    "winters_formula": "mmHg",
    "osmolar_gap": "mOsm/kg",
    "parkland": "mL in 24 h",
    "heparin_dosing": "units/h",
}

IN_WORDS = frozenset(
    {"rivaroxaban_dosing", "enoxaparin_dosing", "apixaban_dosing", "edoxaban_dosing"}
    | {"rumack_matthew", "canadian_cspine", "ottawa_ankle", "cam_icu"}
)
"""Whose result is what it says; its value is one of the inputs, or a code."""

DOIS = {
    "10.1136/gut.2008.150938": "10.1136/gut.2008.152702",
    "10.1016/j.gie.2011.03.1164": "10.1016/j.gie.2011.06.024",
    "10.1097/01.CCM.0000121422.83937.48": "10.1097/01.CCM.0000129486.35458.7D",
    "10.1136/ard.2007.075945": "10.1136/ard.2007.084459",
    "10.1097/00006250-196408000-00009": "",
    "10.1001/jama.1976.03270150050029": "",
}
"""Its DOIs that are another paper's or nobody's, with the right ones where they are known."""

METHODS = {("das28", "variant"), ("bisap", "pco2")}
"""Its defaults that may stand: a way of computing, and a second sign that the first replaces. All others would be
values of a patient, and must be given."""
