"""Built in: intensive care: failing organs (SOFA)."""

from specialists._medical import units
from specialists._medical.calculator import Calculator, Example, Source, Values, Worked
from specialists._medical.inputs import Quantity, YesNo
from specialists._medical.patient import (
    BILIRUBIN,
    CREATININE,
    DIASTOLIC,
    FIO2,
    GCS,
    MEAN_PRESSURE,
    PAO2,
    PLATELETS,
    SYSTOLIC,
    mean_pressure,
)
from specialists._medical.steps import Limit, Steps, below, up_to

UNSUPPORTED_MOST = 2
"""Points for the lungs of a patient without respiratory support."""
_RESPIRATION = below((100, 4), (200, 3), (300, 2), (400, 1), rest=0)

_COMA = up_to((5, 4), (9, 3), (12, 2), (14, 1), rest=0)

_PLATELETS = below((20, 4), (50, 3), (100, 2), (150, 1), rest=0)

_BILIRUBIN = below((1.2, 0), (2, 1), (6, 2), (12, 3), rest=4)

_BILIRUBIN_MOLAR = Steps((*below((20, 0), (33, 1), (102, 2), rest=0).rows, *up_to((204, 3), rest=0).rows), 4)

_CREATININE = below((1.2, 0), (2, 1), (3.5, 2), (5, 3), rest=4)

_CREATININE_MOLAR = Steps((*below((110, 0), (171, 1), (300, 2), rest=0).rows, *up_to((440, 3), rest=0).rows), 4)
"""The paper's table has cut-offs in both units, which are not quite the same."""


def _dose(name: str, most: float, also: str = "") -> Quantity:
    return Quantity(
        name=name,
        text="0 if none",
        measure=units.INFUSION,
        least=0,
        most=most,
        unmeasured=True,
        also=f"{name}_dose {also}",
        words={"no": 0},
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


def lacking(x: Values) -> list[str]:
    """What is missing of the inputs that stand for each other."""
    missing = []
    ratio = _ratio(x)
    if ratio is None and not x.oxygenation_unmeasured:
        missing.append("pao2_fio2 (or pao2 and fio2; or oxygenation_unmeasured: yes)")
    if ratio is not None and _RESPIRATION.of(ratio) > UNSUPPORTED_MOST and x.ventilated is None:
        missing.append("ventilated (below 200 mmHg, 3 and 4 points need respiratory support)")
    if not _by_drugs(x) and mean_pressure(x) is None and x.hypotension is None:
        missing.append("mean_arterial_pressure (or systolic_bp and diastolic_bp)")
    return missing


def _ratio(x: Values) -> float | None:
    if x.pao2_fio2 is None and x.pao2 is not None and x.fio2 is not None:
        return float(x.pao2 / x.fio2)
    ratio: float | None = x.pao2_fio2
    return ratio


def _respiration(x: Values, notes: list[str]) -> int:
    ratio = _ratio(x)
    if ratio is None:
        notes.append("Oxygenation not measured, counted as normal.")
        return 0
    notes.append(f"PaO2/FiO2: {ratio:.0f} mmHg.")
    points = _RESPIRATION.of(ratio)
    return points if x.ventilated else min(points, UNSUPPORTED_MOST)


def _circulation(x: Values) -> int:
    mean = mean_pressure(x)
    return _by_drugs(x) or int(x.hypotension if mean is None else mean < 70)


def _by_drugs(x: Values) -> int:
    dopamine, adrenaline, noradrenaline = x.dopamine or 0, x.epinephrine or 0, x.norepinephrine or 0
    if dopamine > 15 or adrenaline > 0.1 or noradrenaline > 0.1:
        return 4
    if dopamine > 5 or adrenaline > 0 or noradrenaline > 0:
        return 3
    return 2 if dopamine > 0 or x.dobutamine else 0


def _kidney(x: Values, notes: list[str]) -> float:
    by_creatinine = x.scores["creatinine"]
    if x.urine_output is None:
        notes.append("Kidney judged without the urine output.")
        return by_creatinine
    return max(by_creatinine, below((200, 4), (500, 3), rest=0).of(x.urine_output))


CALCULATORS = (
    Calculator(
        name="sofa",
        title="SOFA (Sequential Organ Failure Assessment)",
        also="sequential organ failure assessment, sofa score, sequential organ failure assessment "
        "sofa score, organ failure, sepsis severity",
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
            YesNo(name="hypotension", text="mean pressure below 70, where its value is not known", optional=True),
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
            _dose("epinephrine", 20, "adrenaline"),
            _dose("norepinephrine", 20, "noradrenaline"),
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
        lacks=lacking,
        bands=up_to(
            (1, "0 % mortality"),
            (3, "1.5 % mortality"),
            (5, "6.7 % mortality"),
            (7, "18.2 % mortality"),
            (9, "26.3 % mortality"),
            (11, "45.8 % mortality"),
            (14, "80 % mortality"),
            rest="89.7 % mortality",
        ),
        notes=(
            "Worst values of 24 hours. A rise by 2 or more with infection is sepsis (Sepsis-3). "
            "Mortality: by the highest score of a stay, 352 patients of 2001.",
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
)
