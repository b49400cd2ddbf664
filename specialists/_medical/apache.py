"""Built in: intensive care: severity on the first day (APACHE II)."""

from collections.abc import Mapping

from specialists._medical import units
from specialists._medical.calculator import Calculator, Example, Source, Values, Worked
from specialists._medical.inputs import Choice, Quantity, YesNo
from specialists._medical.patient import (
    ADULT,
    ARTERIAL_PH,
    BICARBONATE,
    CREATININE,
    DIASTOLIC,
    FIO2,
    GCS,
    HAEMATOCRIT,
    HEART_RATE,
    MEAN_PRESSURE,
    PACO2,
    PAO2,
    POTASSIUM,
    RESPIRATORY_RATE,
    SODIUM,
    SYSTOLIC,
    TEMPERATURE,
    WHITE_CELLS,
    mean_pressure,
)
from specialists._medical.steps import Steps, below, up_to

HALF = 0.5
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
    values = {**x, "mean_arterial_pressure": mean_pressure(x)}
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


def lacking(x: Values) -> list[str]:
    """What is missing of the inputs that stand for each other."""
    missing = []
    if mean_pressure(x) is None:
        missing.append("mean_arterial_pressure (or systolic_bp and diastolic_bp)")
    if x.arterial_ph is None and x.bicarbonate is None:
        missing.append("arterial_ph (or, without a blood gas, bicarbonate)")
    if x.fio2 is not None and x.fio2 < HALF and x.pao2 is None:
        missing.append("pao2 (below FiO2 0.5 it scores, not the gradient)")
    if x.fio2 is not None and x.fio2 >= HALF and _gradient(x) is None:
        missing.append("aa_gradient (or pao2 and paco2; from FiO2 0.5 it scores)")
    return missing


def _gradient(x: Values) -> float | None:
    if x.aa_gradient is None and x.pao2 is not None and x.paco2 is not None:
        return float(x.fio2 * 713 - x.paco2 / 0.8 - x.pao2)
    gradient: float | None = x.aa_gradient
    return gradient


def _apache_oxygen(x: Values, notes: list[str]) -> int:
    """By the gradient where half or more of the breath is oxygen, else by arterial oxygen."""
    gradient = _gradient(x)
    if x.fio2 < HALF or gradient is None:
        return _ARTERIAL_OXYGEN.of(x.pao2)
    notes.append(f"A-a gradient: {gradient:.0f} mmHg (FiO2 × 713 − PaCO2 / 0.8 − PaO2, where it was not given).")
    return _GRADIENT.of(gradient)


CALCULATORS = (
    Calculator(
        name="apache_ii",
        title="APACHE II",
        also="apache 2, apache, apache ii score, acute physiology and chronic health evaluation, icu mortality",
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
            YesNo(
                name="chronic_renal_failure",
                text="scores by creatinine alone, undoubled",
                also="chronic_kidney_disease ckd",
                optional=True,
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
                "severe_organ_failure_or_immunocompromise chronic_organ_failure chronic_organ_insufficiency "
                "immunocompromised",
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
                    "emergency_postoperative": "emergency_surgery",
                    "postoperative_emergency": "emergency_surgery",
                    "elective_postoperative": "elective_surgery",
                    "postoperative_elective": "elective_surgery",
                    "nonsurgical": "nonoperative",
                    "none": "nonoperative",
                    "non_surgical": "nonoperative",
                    "no_surgery": "nonoperative",
                },
            ),
        ),
        work=apache,
        lacks=lacking,
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
