"""Values derived from several inputs of one patient, and checks for impossible combinations."""

from collections.abc import Mapping
from typing import Any, Literal

from specialists._medical.parsing import InvalidInput

Sex = Literal["male", "female"]

CM_PER_INCH = 2.54
FIVE_FEET = 60
"""In inches."""
WATER_VAPOUR, RESPIRATORY_QUOTIENT, SEA_LEVEL = 47, 0.8, 760
"""The pressures are in mmHg."""
_LEAST_BMI, _MOST_BMI = 6, 130
_CHILD_HEIGHT, _MOST_CHILD_BMI = 100, 45
"""Below this height in cm, a larger BMI means that the height was given in inches."""
_OXYGEN_TOLERANCE = 10
"""Tolerance in mmHg for a measured PaO2 above the maximum for the inspired air."""


def body_mass_index(weight: float, height: float) -> float:
    """Return the body mass index in kg/m², for kg and cm.

    Raises:
        InvalidInput: If the result is impossible, because a unit is wrong.
    """
    bmi = weight / (height / 100) ** 2
    most = _MOST_BMI if height >= _CHILD_HEIGHT else _MOST_CHILD_BMI
    if not _LEAST_BMI <= bmi <= most:
        reason = f"weight {weight:g} kg and height {height:g} cm do not match (BMI {bmi:.4g})"
        raise InvalidInput(reason, "give weight and height with units")
    return bmi


def ideal_weight(sex: Sex, height: float) -> float:
    """Return Devine's ideal weight in kg, for a height in cm."""
    return (50 if sex == "male" else 45.5) + 2.3 * (height / CM_PER_INCH - FIVE_FEET)


def adjusted_weight(ideal: float, actual: float) -> float:
    """Return the ideal weight plus two fifths of the difference to the actual weight."""
    return ideal + 0.4 * (actual - ideal)


def mean_pressure(mean: float | None, systolic: float | None, diastolic: float | None) -> float | None:
    """Return the given mean arterial pressure, or compute it from the systolic and diastolic pressure."""
    if mean is not None or systolic is None or diastolic is None:
        return mean
    return (systolic + 2 * diastolic) / 3


def check_plausible(values: Mapping[str, Any]) -> None:
    """Check for impossible combinations of values.

    Raises:
        InvalidInput: With both values.
    """
    systolic, diastolic = values.get("systolic_bp", values.get("systolic_blood_pressure")), values.get("diastolic_bp")
    mean = values.get("mean_arterial_pressure")
    if systolic is not None and diastolic is not None and systolic <= diastolic:
        raise InvalidInput(f"the systolic pressure {systolic:g} mmHg must be above the diastolic {diastolic:g} mmHg")
    if mean is not None and systolic is not None and mean > systolic:
        raise InvalidInput(f"the mean pressure {mean:g} mmHg is above the systolic {systolic:g} mmHg")
    if mean is not None and diastolic is not None and mean < diastolic:
        raise InvalidInput(f"the mean pressure {mean:g} mmHg is below the diastolic {diastolic:g} mmHg")
    pao2, fio2 = values.get("pao2"), values.get("fio2")
    if pao2 is not None and fio2 is not None:  # alveolar gas equation, without PaCO2 the inspired air
        pressure = values.get("atmospheric_pressure") or SEA_LEVEL
        most = fio2 * (pressure - WATER_VAPOUR) - (values.get("paco2") or 0) / RESPIRATORY_QUOTIENT
        if pao2 > most + _OXYGEN_TOLERANCE:
            reason = f"PaO2 {pao2:g} mmHg is impossible with FiO2 {fio2:g} (at most about {max(most, 0):.0f} mmHg)"
            raise InvalidInput(reason, "check pao2 and fio2")
    hdl, total = values.get("hdl", values.get("hdl_cholesterol")), values.get("total_cholesterol")
    if hdl is not None and total is not None and hdl >= total:
        raise InvalidInput(f"hdl {hdl:g} mg/dL must be below total_cholesterol {total:g} mg/dL")
    qt, rate = values.get("qt"), values.get("heart_rate")
    if qt is not None and rate is not None and qt > 60_000 / rate:
        beat = 60_000 / rate
        reason = f"a QT of {qt:g} ms is longer than a beat at {rate:g} /min ({beat:.0f} ms)"
        raise InvalidInput(reason, "check qt and heart_rate")
