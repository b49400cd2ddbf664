"""Built in: what many calculators ask of a patient, with units, other names and bounds beyond which it is a mistake."""

from specialists._medical import units
from specialists._medical.calculator import Values
from specialists._medical.inputs import Choice, Quantity

AGE = Quantity(name="age", measure=units.AGE, least=0, most=120, also="age_years patient_age years_old")
ADULT = AGE.within(18, 120)
SEX = Choice(
    name="sex",
    also="gender biological_sex",
    options={"male": 0, "female": 0},
    words={
        "m": "male",
        "man": "male",
        "boy": "male",
        "f": "female",
        "w": "female",
        "woman": "female",
        "girl": "female",
        "lady": "female",
        "gentleman": "male",
        "weiblich": "female",
        "frau": "female",
        "femme": "female",
        "mujer": "female",
        "mannlich": "male",
        "mann": "male",
        "homme": "male",
        "hombre": "male",
    },
    flags=(
        ("is_female", "female", "male"),
        ("female", "female", "male"),
        ("female_sex", "female", "male"),
        ("is_male", "male", "female"),
        ("male", "male", "female"),
    ),
)
WEIGHT = Quantity(
    name="weight", measure=units.MASS, least=0.3, most=650, also="body_weight actual_weight actual_body_weight mass"
)
HEIGHT = Quantity(
    name="height", measure=units.LENGTH, least=20, most=272, also="body_height stature length", otherwise="m"
)
TEMPERATURE = Quantity(
    name="temperature",
    measure=units.TEMPERATURE,
    least=20,
    most=46,
    also="temp body_temperature core_temperature",
    otherwise="°F",
)
HEART_RATE = Quantity(
    name="heart_rate", measure=units.PER_MINUTE, least=10, most=350, also="hr pulse pulse_rate heart_rate_or_pulse"
)
RESPIRATORY_RATE = Quantity(
    name="respiratory_rate",
    measure=units.PER_MINUTE,
    least=0,
    most=100,
    also="rr respiration_rate resp_rate breathing_rate respirations respiration",
)
SYSTOLIC = Quantity(
    name="systolic_bp",
    measure=units.PRESSURE,
    least=20,
    most=320,
    also="sbp systolic systolic_blood_pressure sys_bp sys_blood_pressure sys",
)
DIASTOLIC = Quantity(
    name="diastolic_bp",
    measure=units.PRESSURE,
    least=5,
    most=220,
    usual=(20, 200),
    also="dbp diastolic diastolic_blood_pressure dia_bp dia_blood_pressure dia",
)
MEAN_PRESSURE = Quantity(
    name="mean_arterial_pressure",
    measure=units.PRESSURE,
    least=10,
    most=250,
    usual=(25, 230),
    also="map map_pressure mean_bp",
)
SPO2 = Quantity(
    name="spo2",
    measure=units.PERCENT,
    least=30,
    most=100,
    also="sao2 o2_saturation oxygen_saturation saturation o2_sat sat spo2_percent o2_saturation_percentage",
    otherwise="fraction",
)
FIO2 = Quantity(
    name="fio2",
    text="0.21 is room air",
    measure=units.FRACTION,
    least=0.21,
    most=1,
    also="inspired_oxygen fraction_of_inspired_oxygen",
    otherwise="%",
    words={"room_air": 0.21, "ra": 0.21, "air": 0.21},
)
PAO2 = Quantity(
    name="pao2",
    measure=units.PRESSURE,
    least=10,
    most=760,
    usual=(25, 700),
    also="po2 partial_pressure_of_oxygen arterial_po2",
)
PACO2 = Quantity(
    name="paco2",
    measure=units.PRESSURE,
    least=5,
    most=250,
    usual=(12, 200),
    also="pco2 partial_pressure_of_carbon_dioxide arterial_pco2",
)
ARTERIAL_PH = Quantity(name="arterial_ph", measure=units.PH, least=6.3, most=8.2, also="ph blood_ph")
GCS = Quantity(
    name="gcs",
    text="Glasgow Coma Scale, 3 to 15",
    least=3,
    most=15,
    whole=True,
    also="glasgow_coma_scale glasgow_coma_score gcs_score glasgow",
)

CREATININE = Quantity(
    name="creatinine",
    text="serum creatinine",
    measure=units.CREATININE,
    least=0.1,
    most=40,
    usual=(0.2, 15),
    also="serum_creatinine scr cr creat creatinine_level plasma_creatinine s_creatinine serum_cr plasma_cr pcr",
)
BILIRUBIN = Quantity(
    name="bilirubin",
    text="total bilirubin",
    measure=units.BILIRUBIN,
    least=0.05,
    most=80,
    usual=(0.1, 25),
    also="total_bilirubin serum_bilirubin bili tbili t_bili bilirubin_total",
)
ALBUMIN = Quantity(
    name="albumin",
    text="serum albumin",
    measure=units.ALBUMIN,
    least=0.3,
    most=8,
    usual=(0.5, 6.5),
    also="serum_albumin alb",
)
SODIUM = Quantity(
    name="sodium",
    measure=units.SODIUM,
    least=90,
    most=220,
    also="na serum_sodium plasma_sodium na_serum serum_na plasma_na pna measured_sodium",
)
POTASSIUM = Quantity(name="potassium", measure=units.POTASSIUM, least=0.8, most=12, also="k serum_potassium")
CHLORIDE = Quantity(name="chloride", measure=units.CHLORIDE, least=50, most=170, also="cl serum_chloride")
BICARBONATE = Quantity(
    name="bicarbonate",
    measure=units.BICARBONATE,
    least=1,
    most=70,
    also="hco3 serum_bicarbonate bicarb total_co2 tco2 co2 hco3_level",
)
GLUCOSE = Quantity(
    name="glucose",
    measure=units.GLUCOSE,
    least=20,
    most=3000,
    usual=(60, 1500),
    also="serum_glucose blood_glucose plasma_glucose glu blood_sugar fasting_glucose sugar",
)
UREA_NITROGEN = Quantity(
    name="bun",
    text="blood urea nitrogen; or `urea` with its unit",
    measure=units.UREA_NITROGEN,
    least=0.5,
    most=350,
    usual=(1, 200),
    also="blood_urea_nitrogen urea_nitrogen serum_urea_nitrogen",
    forms={"urea": units.UREA, "serum_urea": units.UREA, "blood_urea": units.UREA},
)
CALCIUM = Quantity(
    name="calcium",
    text="total serum calcium",
    measure=units.CALCIUM,
    least=3.5,
    most=25,
    usual=(5.5, 20),
    also="ca serum_calcium total_calcium",
)
HAEMOGLOBIN = Quantity(
    name="hemoglobin", measure=units.HAEMOGLOBIN, least=1, most=26, usual=(2, 25), also="haemoglobin hb hgb"
)
HAEMATOCRIT = Quantity(
    name="hematocrit",
    measure=units.PERCENT,
    least=5,
    most=80,
    also="haematocrit hct packed_cell_volume pcv",
    otherwise="fraction",
)
PLATELETS = Quantity(
    name="platelets",
    measure=units.CELLS,
    least=0.5,
    most=5000,
    usual=(1, 2000),
    also="platelet_count plt platelet thrombocytes",
    otherwise="/µL",
)
WHITE_CELLS = Quantity(
    name="wbc",
    text="white blood cells",
    measure=units.CELLS,
    least=0.01,
    most=1000,
    usual=(0.05, 500),
    also="white_blood_cells white_blood_cell_count white_cell_count leukocytes leucocytes wbc_count white_cells",
    otherwise="/µL",
)
AST = Quantity(name="ast", measure=units.ENZYME, least=1, most=30_000, also="sgot aspartate_aminotransferase got")
ALT = Quantity(name="alt", measure=units.ENZYME, least=1, most=30_000, also="sgpt alanine_aminotransferase gpt")
INR = Quantity(
    name="inr", measure=units.INDEX, least=0.5, most=25, also="international_normalized_ratio pt_inr prothrombin_inr"
)
TOTAL_CHOLESTEROL = Quantity(
    name="total_cholesterol",
    measure=units.CHOLESTEROL,
    least=30,
    most=1500,
    usual=(50, 1000),
    also="cholesterol tc chol cholesterol_total",
)
HDL = Quantity(
    name="hdl",
    measure=units.CHOLESTEROL,
    least=2,
    most=250,
    usual=(10, 150),
    also="hdl_cholesterol hdl_c high_density_lipoprotein hdlc high_density_lipoprotein_cholesterol",
)
TRIGLYCERIDES = Quantity(
    name="triglycerides",
    measure=units.TRIGLYCERIDES,
    least=10,
    most=20_000,
    usual=(20, 3000),
    also="tg trigs triglyceride",
)
BMI = Quantity(name="bmi", measure=units.KG_PER_M2, least=5, most=150, also="body_mass_index")


def mean_pressure(x: Values) -> float | None:
    """As it was given, else from the cuff's two numbers; None without either."""
    if x.mean_arterial_pressure is not None:
        return float(x.mean_arterial_pressure)
    if x.systolic_bp is None or x.diastolic_bp is None:
        return None
    return float((x.systolic_bp + 2 * x.diastolic_bp) / 3)
