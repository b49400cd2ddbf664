"""Built in: intensive care: organ failure (SOFA) and severity (APACHE II)."""

from collections.abc import Mapping

from specialists._medical import units
from specialists._medical.calculator import Calculator, Example, Source, Values, Worked
from specialists._medical.inputs import Choice, Quantity, Wrong, YesNo
from specialists._medical.patient import (
    ADULT,
    ARTERIAL_PH,
    BICARBONATE,
    BILIRUBIN,
    CREATININE,
    DIASTOLIC,
    FIO2,
    GCS,
    HAEMATOCRIT,
    HEART_RATE,
    MEAN_PRESSURE,
    PACO2,
    PAO2,
    PLATELETS,
    POTASSIUM,
    RESPIRATORY_RATE,
    SODIUM,
    SYSTOLIC,
    TEMPERATURE,
    WHITE_CELLS,
)
from specialists._medical.steps import Limit, Steps, below, up_to

_RESPIRATION = below((100, 4), (200, 3), (300, 2), (400, 1), rest=0)
_COMA = up_to((5, 4), (9, 3), (12, 2), (14, 1), rest=0)
_PLATELETS = below((20, 4), (50, 3), (100, 2), (150, 1), rest=0)
_BILIRUBIN = below((1.2, 0), (2, 1), (6, 2), (12, 3), rest=4)
_BILIRUBIN_MOLAR = Steps((*below((20, 0), (33, 1), (102, 2), rest=0).rows, *up_to((204, 3), rest=0).rows), 4)
_CREATININE = below((1.2, 0), (2, 1), (3.5, 2), (5, 3), rest=4)
_CREATININE_MOLAR = Steps((*below((110, 0), (171, 1), (300, 2), rest=0).rows, *up_to((440, 3), rest=0).rows), 4)
"""The paper's table has cut-offs in both units, which are not quite the same."""


def _dose(name: str, most: float) -> Quantity:
    return Quantity(
        name=name, text="0 if none", measure=units.INFUSION, least=0, most=most, unmeasured=True, also=f"{name}_dose"
    )


def sofa(x: Values) -> Worked:
    notes: list[str] = []
    points = {
        "respiration": _respiration(x, notes),
        "coagulation": x.scores["platelets"],
        "liver": x.scores["bilirubin"],
        "circulation": _circulation(x),
        "brain": x.scores["gcs"],
        "kidney": _kidney(x, notes),
    }
    return Worked(sum(points.values()), points=points, notes=notes)


def _respiration(x: Values, notes: list[str]) -> int:
    ratio = x.pao2_fio2
    if ratio is None and x.pao2 is not None and x.fio2 is not None:
        ratio = x.pao2 / x.fio2
        notes.append(f"PaO2/FiO2: {ratio:.0f} mmHg.")
    if ratio is None:
        if not x.oxygenation_unmeasured:
            raise Wrong("pao2_fio2 is missing (or pao2 and fio2; or oxygenation_unmeasured: yes)")
        notes.append("Oxygenation not measured, counted as normal.")
        return 0
    points = _RESPIRATION.of(ratio)
    if points > 2 and x.ventilated is None:
        raise Wrong("ventilated is missing: below 200 mmHg, 3 and 4 points need respiratory support (yes or no)")
    return points if points <= 2 or x.ventilated else 2


def _circulation(x: Values) -> int:
    dopamine, adrenaline, noradrenaline = x.dopamine or 0, x.epinephrine or 0, x.norepinephrine or 0
    if dopamine > 15 or adrenaline > 0.1 or noradrenaline > 0.1:
        return 4
    if dopamine > 5 or adrenaline > 0 or noradrenaline > 0:
        return 3
    if dopamine > 0 or x.dobutamine:
        return 2
    return int(_mean_pressure(x) < 70)


def _mean_pressure(x: Values) -> float:
    """As it was given, else from the cuff's two numbers."""
    if x.mean_arterial_pressure is not None:
        return float(x.mean_arterial_pressure)
    if x.systolic_bp is None or x.diastolic_bp is None:
        raise Wrong("mean_arterial_pressure is missing (or systolic_bp and diastolic_bp)")
    return float((x.systolic_bp + 2 * x.diastolic_bp) / 3)


def _kidney(x: Values, notes: list[str]) -> float:
    by_creatinine = x.scores["creatinine"]
    if x.urine_output is None:
        notes.append("Kidney judged without the urine output.")
        return by_creatinine
    return max(by_creatinine, below((200, 4), (500, 3), rest=0).of(x.urine_output))


_APACHE: Mapping[str, Steps[int]] = {
    "temperature": below((30, 4), (32, 3), (34, 2), (36, 1), (38.5, 0), (39, 1), (41, 3), rest=4),
    "mean_arterial_pressure": below((50, 4), (70, 2), (110, 0), (130, 2), (160, 3), rest=4),
    "heart_rate": below((40, 4), (55, 3), (70, 2), (110, 0), (140, 2), (180, 3), rest=4),
    "respiratory_rate": below((6, 4), (10, 2), (12, 1), (25, 0), (35, 1), (50, 3), rest=4),
    "arterial_ph": below((7.15, 4), (7.25, 3), (7.33, 2), (7.5, 0), (7.6, 1), (7.7, 3), rest=4),
    "bicarbonate": below((15, 4), (18, 3), (22, 2), (32, 0), (41, 1), (52, 3), rest=4),
    "sodium": below((111, 4), (120, 3), (130, 2), (150, 0), (155, 1), (160, 2), (180, 3), rest=4),
    "potassium": below((2.5, 4), (3, 2), (3.5, 1), (5.5, 0), (6, 1), (7, 3), rest=4),
    "creatinine": below((0.6, 2), (1.5, 0), (2, 2), (3.5, 3), rest=4),
    "hematocrit": below((20, 4), (30, 2), (46, 0), (50, 1), (60, 2), rest=4),
    "wbc": below((1, 4), (3, 2), (15, 0), (20, 1), (40, 2), rest=4),
}
"""Points of the acute physiology score; each row ends below its edge, as `39 to 40.9` ends below 41."""
_GRADIENT = below((200, 0), (350, 2), (500, 3), rest=4)
_ARTERIAL_OXYGEN = Steps((*below((55, 4), rest=0).rows, *up_to((60, 3), (70, 1), rest=0).rows), 0)
_AGES = below((45, 0), (55, 2), (65, 3), (75, 5), rest=6)
_DEATHS = below(
    (5, "about 4 % hospital mortality"),
    (10, "about 8 %"),
    (15, "about 15 %"),
    (20, "about 25 %"),
    (25, "about 40 %"),
    (30, "about 55 %"),
    (35, "about 73 %"),
    rest="about 85 %",
)


def apache(x: Values) -> Worked:
    notes: list[str] = []
    values = {**x, "mean_arterial_pressure": _mean_pressure(x)}
    if x.arterial_ph is None and x.bicarbonate is None:
        raise Wrong("arterial_ph is missing (or, without a blood gas, bicarbonate)")
    skipped = "arterial_ph" if x.arterial_ph is None else "bicarbonate"
    points: dict[str, int] = {
        name: steps.of(values[name]) for name, steps in _APACHE.items() if name != skipped and values[name] is not None
    }
    if x.acute_renal_failure and x.creatinine is not None:
        points["creatinine"] *= 2 if x.creatinine >= 1.5 else 1
    points["oxygenation"] = _apache_oxygen(x, notes)
    points["gcs"] = 15 - x.gcs
    points["age"] = _AGES.of(x.age)
    if x.organ_failure_or_immunocompromise:
        points["chronic_health"] = 2 if x.admission == "elective_surgery" else 5
    return Worked(sum(points.values()), points=points, notes=notes)


def _apache_oxygen(x: Values, notes: list[str]) -> int:
    """By the gradient where half or more of the breath is oxygen, else by arterial oxygen."""
    if x.fio2 < 0.5:
        if x.pao2 is None:
            if x.aa_gradient is None:
                raise Wrong("pao2 is missing: below FiO2 0.5 it is what scores")
            raise Wrong("pao2 is missing: below FiO2 0.5 it scores, not the gradient")
        return _ARTERIAL_OXYGEN.of(x.pao2)
    gradient = x.aa_gradient
    if gradient is None:
        if x.pao2 is None or x.paco2 is None:
            raise Wrong("aa_gradient is missing (or pao2 and paco2): from FiO2 0.5 it is what scores")
        gradient = x.fio2 * 713 - x.paco2 / 0.8 - x.pao2
        notes.append(f"A-a gradient: {gradient:.0f} mmHg (FiO2 × 713 − PaCO2 / 0.8 − PaO2).")
    return _GRADIENT.of(gradient)


CALCULATORS = (
    Calculator(
        name="sofa",
        title="SOFA (Sequential Organ Failure Assessment)",
        also="sequential organ failure assessment, sofa score, sequential organ failure assessment "
        "sofa score, organ failure",
        says="organ dysfunction in intensive care and sepsis, 0 to 24",
        group="intensive care",
        inputs=(
            Quantity(
                name="pao2_fio2",
                text="ratio; or pao2 and fio2",
                measure=units.RATIO,
                least=20,
                most=800,
                also="pf_ratio p_f_ratio pao2_fio2_ratio",
                optional=True,
            ),
            PAO2.maybe("with fio2, instead of the ratio"),
            FIO2.maybe(),
            YesNo(name="oxygenation_unmeasured", text="count oxygenation as normal", optional=True),
            YesNo(
                name="ventilated",
                text="respiratory support, CPAP too; needed below 200 mmHg",
                optional=True,
                joins=True,
                also="mechanical_ventilation mechanically_ventilated respiratory_support cpap "
                "on_mechanical_ventilation continuous_positive_airway_pressure",
            ),
            PLATELETS.scoring(_PLATELETS).if_measured(),
            BILIRUBIN.scoring(_BILIRUBIN, umol_l=_BILIRUBIN_MOLAR).if_measured(),
            MEAN_PRESSURE.maybe("or systolic_bp and diastolic_bp"),
            SYSTOLIC.maybe(),
            DIASTOLIC.maybe(),
            _dose("dopamine", 100),
            YesNo(
                name="dobutamine",
                text="at any dose",
                also="dobutamine_dose",
                measured=(
                    Quantity(name="dobutamine_infusion", measure=units.INFUSION, least=0, most=100),
                    Limit(">", 0),
                ),
            ),
            _dose("epinephrine", 20),
            _dose("norepinephrine", 20),
            GCS.scoring(_COMA).if_measured(),
            CREATININE.scoring(_CREATININE, umol_l=_CREATININE_MOLAR).if_measured(),
            Quantity(
                name="urine_output",
                measure=units.URINE_OUTPUT,
                least=0,
                most=20_000,
                optional=True,
                also="urine diuresis",
            ),
        ),
        work=sofa,
        bands=up_to(
            (1, "low: mortality below 10 %"),
            (3, "about 10 %"),
            (5, "about 20 %"),
            (7, "about 30 %"),
            (9, "about 40 to 50 %"),
            (11, "above 50 %"),
            (14, "above 80 %"),
            rest="above 90 %",
        ),
        notes=(
            "Worst values of 24 hours. A rise by 2 or more with infection is sepsis (Sepsis-3). "
            "Mortality: of the highest score during the stay.",
            "3 and 4 points for respiration need respiratory support. Vasopressors count when given "
            "for an hour or more.",
        ),
        sources=(
            Source("Vincent JL et al. Intensive Care Med 1996;22:707-710", "10.1007/BF01709751"),
            Source("Ferreira FL et al. JAMA 2001;286:1754-1758", "10.1001/jama.286.14.1754"),
        ),
        example=Example(
            {
                "pao2_fio2": 180,
                "ventilated": "yes",
                "platelets": "90 K/µL",
                "bilirubin": "2.5 mg/dL",
                "mean_arterial_pressure": 60,
                "norepinephrine": 0.05,
                "gcs": 14,
                "creatinine": "2.1 mg/dL",
                "others_absent": True,
            },
            13,
        ),
        replaces=("sofa",),
    ),
    Calculator(
        name="apache_ii",
        title="APACHE II",
        also="apache 2, apache, apache ii score, acute physiology and chronic health evaluation",
        says="severity in intensive care, 0 to 71, from the worst values of the first 24 hours",
        group="intensive care",
        inputs=(
            ADULT.within(16, 120),
            TEMPERATURE,
            MEAN_PRESSURE.maybe("or systolic_bp and diastolic_bp"),
            SYSTOLIC.maybe(),
            DIASTOLIC.maybe(),
            HEART_RATE,
            RESPIRATORY_RATE,
            FIO2,
            PAO2.maybe("needed below FiO2 0.5"),
            PACO2.maybe("with pao2, for the gradient from FiO2 0.5"),
            Quantity(
                name="aa_gradient",
                text="from FiO2 0.5, instead of pao2 and paco2",
                measure=units.PRESSURE,
                least=-50,
                most=720,
                optional=True,
                also="a_a_gradient aado2",
            ),
            ARTERIAL_PH.maybe(),
            BICARBONATE.maybe("only without a blood gas"),
            SODIUM,
            POTASSIUM,
            CREATININE,
            YesNo(
                name="acute_renal_failure",
                text="doubles the points of creatinine",
                also="arf acute_kidney_injury acute_kidney_failure",
            ),
            HAEMATOCRIT,
            WHITE_CELLS,
            GCS,
            YesNo(
                name="organ_failure_or_immunocompromise",
                text="severe, known before: cirrhosis, NYHA IV, chronic hypoxia, dialysis, immunosuppression",
                also="severe_organ_insufficiency_or_immunocompromised "
                "history_of_severe_organ_failure_or_immunocompromise chronic_health "
                "diagnosis_of_severe_organ_failure_or_immunocompromise "
                "severe_organ_failure_or_immunocompromise",
            ),
            Choice(
                name="admission",
                also="admission_type surgery_type surgery type_of_admission",
                options={"nonoperative": 0, "emergency_surgery": 0, "elective_surgery": 0},
                words={
                    "non_operative": "nonoperative",
                    "medical": "nonoperative",
                    "emergency": "emergency_surgery",
                    "elective": "elective_surgery",
                    "nonsurgical": "nonoperative",
                    "none": "nonoperative",
                    "non_surgical": "nonoperative",
                    "no_surgery": "nonoperative",
                },
            ),
        ),
        work=apache,
        bands=_DEATHS,
        notes=("Mortality: of the original non-operative patients, by five points; today's is lower.",),
        sources=(Source("Knaus WA et al. Crit Care Med 1985;13:818-829", "10.1097/00003246-198510000-00009"),),
        example=Example(
            {
                "age": 60,
                "temperature": "39.2 °C",
                "mean_arterial_pressure": 65,
                "heart_rate": 120,
                "respiratory_rate": 28,
                "fio2": 0.4,
                "pao2": 65,
                "arterial_ph": 7.3,
                "sodium": 140,
                "potassium": 4,
                "creatinine": "2.2 mg/dL",
                "acute_renal_failure": "no",
                "hematocrit": "32 %",
                "wbc": "18 K/µL",
                "gcs": 14,
                "organ_failure_or_immunocompromise": "no",
                "admission": "nonoperative",
            },
            19,
        ),
        replaces=("apache2",),
    ),
)
