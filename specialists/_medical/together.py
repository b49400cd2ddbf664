"""Built in: values of one patient that cannot be true together, whatever is computed of them."""

from collections.abc import Mapping
from typing import Any

from specialists._medical.reading import Wrong

WATER_VAPOUR, RESPIRATORY_QUOTIENT, SEA_LEVEL = 47, 0.8, 760
"""Pressures in mmHg."""
MEASURING_ERROR = 10
"""By so many mmHg a blood gas may be above what the air that is breathed can give."""


def check_together(x: Mapping[str, Any]) -> None:
    """Compares the inputs that a calculator has, by their names; None for one that was not given.

    Raises:
        Wrong: naming both values.
    """
    _check_pressures(x)
    _check_oxygen(x)
    hdl, total = x.get("hdl", x.get("hdl_cholesterol")), x.get("total_cholesterol")
    if hdl is not None and total is not None and hdl >= total:
        raise Wrong(f"hdl {hdl:g} mg/dL is a part of total_cholesterol {total:g} mg/dL and must be below it")
    qt, rate = x.get("qt"), x.get("heart_rate")
    if qt is not None and rate is not None and qt > 60_000 / rate:
        raise Wrong(f"a QT of {qt:g} ms is longer than a beat at {rate:g} /min ({60_000 / rate:.0f} ms); check both")


def _check_pressures(x: Mapping[str, Any]) -> None:
    systolic, diastolic = x.get("systolic_bp", x.get("systolic_blood_pressure")), x.get("diastolic_bp")
    mean = x.get("mean_arterial_pressure")
    if systolic is not None and diastolic is not None and systolic <= diastolic:
        raise Wrong(f"the systolic pressure {systolic:g} mmHg must be above the diastolic {diastolic:g} mmHg")
    if mean is not None and systolic is not None and mean > systolic:
        raise Wrong(f"the mean pressure {mean:g} mmHg is above the systolic {systolic:g} mmHg")
    if mean is not None and diastolic is not None and mean < diastolic:
        raise Wrong(f"the mean pressure {mean:g} mmHg is below the diastolic {diastolic:g} mmHg")


def _check_oxygen(x: Mapping[str, Any]) -> None:
    """By the alveolar gas equation; without PaCO2, by what is inspired."""
    pao2, fio2 = x.get("pao2"), x.get("fio2")
    if pao2 is None or fio2 is None:
        return
    pressure = x.get("atmospheric_pressure") or SEA_LEVEL
    most = fio2 * (pressure - WATER_VAPOUR) - (x.get("paco2") or 0) / RESPIRATORY_QUOTIENT
    if pao2 > most + MEASURING_ERROR:
        raise Wrong(
            f"PaO2 {pao2:g} mmHg is more than FiO2 {fio2:g} can give (about {max(most, 0):.0f} mmHg); check both"
        )
