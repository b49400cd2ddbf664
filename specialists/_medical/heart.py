"""Built in: the heart: mean pressure and the QT interval."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from specialists._medical import units
from specialists._medical.calculator import Calculator, Example, Source, Values
from specialists._medical.inputs import Quantity
from specialists._medical.patient import (
    DIASTOLIC,
    HEART_RATE,
    SYSTOLIC,
)
from specialists._medical.reading import key_of
from specialists._medical.steps import below, up_to

QT = Quantity(
    name="qt",
    text="measured QT interval",
    measure=units.MILLISECONDS,
    least=150,
    most=900,
    also="qt_interval qt_time",
    otherwise="s",
)
QT_RATE = HEART_RATE.within(20, 300)
QTC_BANDS = up_to(
    (350, "short, or at the lower edge"),
    (450, "normal for men and women"),
    (460, "prolonged for men, normal for women"),
    (500, "prolonged"),
    rest="prolonged, high risk of torsades de pointes",
)


RR = Quantity(name="rr_interval", also="rr", measure=units.SECONDS, least=0.2, most=3, otherwise="ms")


def _with_rate(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs with the heart rate of an RR interval, where that was given instead.

    Raises:
        Wrong: when the interval cannot be read.
    """
    found = dict(raw)
    names = dict(RR.names())
    for name in raw:
        if key_of(name) in names and "heart_rate" not in raw:
            found["heart_rate"] = 60 / RR.read(found.pop(name), names[key_of(name)]).value
    return found


_SHORT = {"bazett": "qtcb", "fridericia": "qtcf, qtc fredericia, fredericia"}


def _qtc(name: str, work: Callable[[Values], float], formula: str, value: float, *sources: Source) -> Calculator:
    """One correction of the QT interval; the library's one offers Bazett's and Fridericia's."""
    title = name.capitalize()
    return Calculator(
        name=f"qtc_{name}",
        title=f"QTc ({title})",
        also=f"{'' if name == 'framingham' else name}, qtc {name} calculator, corrected qt {name}, "
        f"qt corrected {name}, {name} qtc, qtc, {_SHORT.get(name, '')}",
        says=f"QT corrected for the heart rate by {title}",
        group="heart",
        inputs=(QT, replace(QT_RATE, text="or rr_interval in s or ms")),
        prepare=_with_rate,
        work=work,
        formula=formula,
        unit="ms",
        digits=1,
        bands=QTC_BANDS,
        sources=sources,
        example=Example({"qt": "400 ms", "heart_rate": "80 bpm"}, value),
        replaces=("corrected_qtc",),
    )


CALCULATORS = (
    Calculator(
        name="mean_arterial_pressure",
        title="Mean arterial pressure",
        also="mittlerer arterieller druck, mean arterial blood pressure, "
        "map, mean arterial pressure map, mean blood pressure",
        says="mean pressure from systolic and diastolic",
        group="heart",
        inputs=(SYSTOLIC, DIASTOLIC),
        work=lambda x: (x.systolic_bp + 2 * x.diastolic_bp) / 3,
        formula="(systolic_bp + 2 × diastolic_bp) / 3",
        unit="mmHg",
        digits=1,
        bands=below(
            (60, "low: organs may be under-perfused"), (65, "below the usual target of 65"), (105, "usual"), rest="high"
        ),
        sources=(Source("Standard cuff approximation: a third of the pulse pressure above the diastolic pressure"),),
        example=Example({"systolic_bp": 120, "diastolic_bp": 80}, 93.33),
    ),
    _qtc(
        "bazett",
        lambda x: float(x.qt / (60 / x.heart_rate) ** 0.5),
        "qt / √(60 / heart_rate)",
        461.88,
        Source("Bazett HC. Heart 1920;7:353-370"),
    ),
    _qtc(
        "fridericia",
        lambda x: float(x.qt / (60 / x.heart_rate) ** (1 / 3)),
        "qt / (60 / heart_rate)^(1/3)",
        440.26,
        Source("Fridericia LS. Acta Med Scand 1920;53:469-486"),
    ),
    _qtc(
        "framingham",
        lambda x: float(x.qt + 154 * (1 - 60 / x.heart_rate)),
        "qt + 154 × (1 − 60 / heart_rate)",
        438.5,
        Source("Sagie A et al. Am J Cardiol 1992;70:797-801"),
    ),
    _qtc(
        "hodges",
        lambda x: float(x.qt + 1.75 * (x.heart_rate - 60)),
        "qt + 1.75 × (heart_rate − 60)",
        435.0,
        Source("Hodges M et al. J Am Coll Cardiol 1983;1:694"),
    ),
    _qtc(
        "rautaharju",
        lambda x: float(x.qt * (120 + x.heart_rate) / 180),
        "qt × (120 + heart_rate) / 180",
        444.44,
        Source("Rautaharju PM, Mason JW, Akiyama T. Int J Cardiol 2014;174:535-540"),
    ),
)
