"""Built in: the lungs: gas exchange and pneumonia."""

from specialists._medical import units
from specialists._medical.calculator import Calculator, Example, Source, Values, Worked
from specialists._medical.inputs import Quantity, YesNo
from specialists._medical.patient import (
    ADULT,
    AGE,
    ARTERIAL_PH,
    DIASTOLIC,
    FIO2,
    GLUCOSE,
    HAEMATOCRIT,
    HEART_RATE,
    PACO2,
    PAO2,
    RESPIRATORY_RATE,
    SEX,
    SODIUM,
    SYSTOLIC,
    TEMPERATURE,
    UREA_NITROGEN,
)
from specialists._medical.steps import Limit, below, up_to
from specialists._medical.together import RESPIRATORY_QUOTIENT, SEA_LEVEL, WATER_VAPOUR

PSI_CLASSES = up_to(
    (70, "class II (0.6 to 0.7 % mortality): outpatient"),
    (90, "class III (0.9 to 2.8 %): outpatient or short stay"),
    (130, "class IV (8.2 to 9.3 %): hospital"),
    rest="class V (27 to 31 %): hospital",
)
_COMORBIDITIES = {
    "neoplastic_disease": (30, "cancer malignancy neoplasm neoplastic_disease_history"),
    "liver_disease": (20, "liver_disease_history"),
    "congestive_heart_failure": (
        10,
        "chf heart_failure congestive_heart_failure_history heart_failure_history "
        "congestive_heart_failure_diagnosis_or_history",
    ),
    "cerebrovascular_disease": (10, "cerebrovascular_disease_history stroke"),
    "renal_disease": (10, "renal_disease_history kidney_disease"),
}


def aa_gradient(x: Values) -> Worked:
    pressure = x.atmospheric_pressure or SEA_LEVEL
    alveolar = x.fio2 * (pressure - WATER_VAPOUR) - x.paco2 / RESPIRATORY_QUOTIENT
    gradient = alveolar - x.pao2
    notes = [] if x.atmospheric_pressure else ["Atmospheric pressure not given: 760 mmHg, sea level."]
    reading = ""
    if gradient < 0:
        notes.append("A gradient just below 0 comes of rounding and of measuring.")
    if x.age is None:
        notes.append("Without the age no expected value is given (age / 4 + 4).")
    else:
        expected = x.age / 4 + 4
        found = "raised" if gradient > expected else "normal"
        reading = f"{found}: expected for the age at most {expected:g} mmHg (age / 4 + 4, on room air)"
    return Worked(gradient, {"pressure": pressure, "alveolar": round(alveolar, 2)}, notes=notes, reading=reading)


def psi(x: Values) -> Worked:
    points: dict[str, float] = {"age": int(x.age), "sex": -10 if x.sex == "female" else 0}
    points["nursing_home"] = 10 * x.nursing_home
    points |= {name: weight * x[name] for name, (weight, _) in _COMORBIDITIES.items()}
    points |= {
        "altered_mental_status": 20 * x.altered_mental_status,
        "respiratory_rate": 20 * (x.respiratory_rate >= 30),
        "systolic_bp": 20 * (x.systolic_bp < 90),
        "temperature": 15 * (x.temperature < 35 or x.temperature >= 40),
        "heart_rate": 10 * (x.heart_rate >= 125),
        "arterial_ph": _if(x.arterial_ph, Limit("<", 7.35), 30),
        "bun": _if(x.bun, Limit("≥", 30), 20),
        "sodium": _if(x.sodium, Limit("<", 130), 20),
        "glucose": _if(x.glucose, Limit("≥", 250), 10),
        "hematocrit": _if(x.hematocrit, Limit("<", 30), 10),
        "pao2": _if(x.pao2, Limit("<", 60), 10),
        "pleural_effusion": 10 * x.pleural_effusion,
    }
    total = sum(points.values())
    signs = ("altered_mental_status", "respiratory_rate", "systolic_bp", "temperature", "heart_rate")
    first = x.age <= 50 and not any(points[name] for name in (*_COMORBIDITIES, *signs))
    reading = f"{PSI_CLASSES.range_of(total)}: {PSI_CLASSES.of(total)}"
    if first:
        reading = "class I (0.1 to 0.4 % mortality): outpatient; age at most 50, no comorbidity, no abnormal vital sign"
    return Worked(total, points=points, reading=reading)


def _if(value: float | None, limit: Limit, points: int) -> int:
    return points if value is not None and limit.holds(value) else 0


def _symptoms(x: Values) -> list[str]:
    return ["mmrc_dyspnea (or cat_score)"] if x.mmrc_dyspnea is None and x.cat_score is None else []


def gold(x: Values) -> Worked:
    """Grade by spirometry; group by exacerbations, else by whichever measure of symptoms is high."""
    grade = below((30, 4), (50, 3), (80, 2), rest=1).of(x.fev1_percent_predicted)
    many = (x.mmrc_dyspnea or 0) >= 2 or (x.cat_score or 0) >= 10
    often = x.exacerbations_past_year >= 2 or x.hospitalizations_past_year >= 1
    group = "E" if often else "B" if many else "A"
    return Worked(f"GOLD {grade}, group {group}", reading=f"{_GOLD_GRADES[grade]}; {_GOLD_GROUPS[group]}")


_GOLD_GRADES = {
    1: "1: FEV1 80 % or more, mild",
    2: "2: 50 to 79 %, moderate",
    3: "3: 30 to 49 %, severe",
    4: "4: below 30 %, very severe",
}
_GOLD_GROUPS = {
    "A": "A: few exacerbations, few symptoms",
    "B": "B: few exacerbations, more symptoms (mMRC from 2 or CAT from 10)",
    "E": "E: 2 or more moderate exacerbations, or one that led to hospital",
}


def _count(name: str, text: str, also: str, most: int) -> Quantity:
    return Quantity(name=name, text=text, least=0, most=most, whole=True, also=also)


CALCULATORS = (
    Calculator(
        name="gold_copd",
        title="GOLD grade and group of COPD (ABE, since 2023)",
        also="gold, copd severity, gold classification, gold abe, abe assessment",
        says="severity of COPD: grade 1 to 4 by FEV1, group A, B or E",
        group="lungs",
        inputs=(
            Quantity(
                name="fev1_percent_predicted",
                text="of the predicted value, after bronchodilation",
                measure=units.PERCENT,
                least=5,
                most=150,
                also="fev1 fev1_percent fev1_predicted",
            ),
            _count("exacerbations_past_year", "moderate ones", "exacerbations moderate_exacerbations", 50),
            _count(
                "hospitalizations_past_year",
                "exacerbations that led to hospital",
                "hospitalizations hospital_admissions hospitalisations",
                50,
            ),
            _count("mmrc_dyspnea", "mMRC dyspnoea, 0 to 4", "mmrc mmrc_score", 4).maybe(),
            _count("cat_score", "CAT, 0 to 40; one of the two suffices", "cat", 40).maybe(),
        ),
        work=gold,
        lacks=_symptoms,
        notes=("Only where FEV1/FVC stays below 0.7 after bronchodilation.",),
        sources=(Source("Agustí A et al. Am J Respir Crit Care Med 2023;207:819-837", "10.1164/rccm.202301-0106PP"),),
        example=Example({"fev1": "55 %", "exacerbations": 1, "hospitalizations": 0, "mmrc": 3}, "GOLD 2, group B"),
        replaces=("gold_copd",),
    ),
    Calculator(
        name="aa_gradient",
        title="Alveolar-arterial oxygen gradient",
        also="a a gradient, a-a gradient, alveolar arterial gradient, aado2, alveolar gas equation, a a o2 gradient",
        says="difference of oxygen between alveoli and arteries",
        group="lungs",
        inputs=(
            FIO2,
            PAO2,
            PACO2,
            Quantity(
                name="atmospheric_pressure",
                text="760 mmHg (sea level) is used when it is not given",
                measure=units.PRESSURE,
                least=250,
                most=800,
                also="patm barometric_pressure pressure",
                optional=True,
            ),
            AGE.maybe("for the expected value"),
        ),
        work=aa_gradient,
        formula="fio2 × (pressure − 47) − paco2 / 0.8 − pao2",
        unit="mmHg",
        digits=1,
        notes=("Respiratory quotient 0.8, water vapour 47 mmHg.",),
        sources=(
            Source("Kanber GJ et al. Am Rev Respir Dis 1968;97:376-381"),
            Source("West JB. Respiratory Physiology: The Essentials"),
        ),
        example=Example({"fio2": 0.21, "pao2": 60, "paco2": 40, "age": 40}, 39.73),
        replaces=("aa_gradient",),
    ),
    Calculator(
        name="curb_65",
        title="CURB-65",
        also="curb65, curb 65 score for pneumonia severity, pneumonia severity, curb",
        says="severity of community-acquired pneumonia",
        group="lungs",
        inputs=(
            YesNo(name="confusion", text="new", points=1, also="new_confusion"),
            YesNo(
                name="urea_raised",
                text="BUN above 19 mg/dL, urea above 7 mmol/L",
                points=1,
                also="bun_over_19",
                measured=(UREA_NITROGEN, Limit(">", 19)),
                published={"mmol/l": Limit(">", 7)},
                absent=False,
            ),
            RESPIRATORY_RATE.scoring(below((30, 0), rest=1)),
            SYSTOLIC,
            DIASTOLIC,
            ADULT.scoring(below((65, 0), rest=1)),
        ),
        work=lambda x: curb(x),
        bands=up_to(
            (0, "low: 0.7 % mortality; outpatient"),
            (1, "low: 3.2 %; outpatient"),
            (2, "intermediate: 13 %; consider hospital"),
            (3, "severe: 17 %; hospital"),
            (4, "severe: 41.5 %; hospital, consider intensive care"),
            rest="severe: 57 %; hospital, consider intensive care",
        ),
        sources=(Source("Lim WS et al. Thorax 2003;58:377-382", "10.1136/thorax.58.5.377"),),
        example=Example({"confusion": "no", "bun": "25 mg/dL", "respiratory_rate": 32, "bp": "110/70", "age": 70}, 3),
        replaces=("curb65",),
    ),
    Calculator(
        name="psi",
        title="Pneumonia Severity Index (PSI, PORT)",
        also="psi port, port score, pneumonia severity index, psi score pneumonia severity index for cap, fine score, "
        "psi port score pneumonia severity index for cap",
        says="risk class I to V in community-acquired pneumonia",
        group="lungs",
        inputs=(
            ADULT,
            SEX,
            YesNo(name="nursing_home", also="nursing_home_resident"),
            *(YesNo(name=name, also=also) for name, (_, also) in _COMORBIDITIES.items()),
            YesNo(name="altered_mental_status", also="altered_mentation confusion"),
            RESPIRATORY_RATE,
            SYSTOLIC,
            TEMPERATURE,
            HEART_RATE,
            ARTERIAL_PH.if_measured(),
            UREA_NITROGEN.if_measured(),
            SODIUM.if_measured(),
            GLUCOSE.if_measured(),
            HAEMATOCRIT.if_measured(),
            PAO2.if_measured(),
            YesNo(name="pleural_effusion", also="pleural_effusion_on_x_ray"),
        ),
        work=psi,
        notes=("Adults. Tests that were not done count as normal, as in the study.",),
        sources=(Source("Fine MJ et al. N Engl J Med 1997;336:243-250", "10.1056/NEJM199701233360402"),),
        example=Example(
            {
                "age": 70,
                "sex": "female",
                "congestive_heart_failure": "yes",
                "respiratory_rate": 32,
                "systolic_bp": 110,
                "temperature": "38.5 °C",
                "heart_rate": 130,
                "bun": "35 mg/dL",
                "others_absent": True,
            },
            120,
        ),
        replaces=("psi_port",),
    ),
)


def curb(x: Values) -> Worked:
    points = {
        "confusion": int(x.confusion),
        "urea": int(x.urea_raised),
        "respiratory_rate": int(x.respiratory_rate >= 30),
        "blood_pressure": int(x.systolic_bp < 90 or x.diastolic_bp <= 60),
        "age": int(x.age >= 65),
    }
    return Worked(sum(points.values()), points=points)
