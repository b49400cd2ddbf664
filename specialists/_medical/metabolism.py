"""Built in: sugar and fat."""

from specialists._medical import units
from specialists._medical.calculator import Calculator, Example, Source, Values, Worked
from specialists._medical.inputs import Quantity
from specialists._medical.patient import GLUCOSE, HDL, TOTAL_CHOLESTEROL, TRIGLYCERIDES
from specialists._medical.reading import Wrong
from specialists._medical.steps import below

FRIEDEWALD_MOST = 400


def friedewald(x: Values) -> Worked:
    """LDL, where the estimate holds.

    Raises:
        Wrong: when triglycerides are too high for it, or nothing is left for LDL.
    """
    if x.triglycerides >= FRIEDEWALD_MOST:
        raise Wrong("the formula does not hold from triglycerides of 400 mg/dL (4.5 mmol/L); measure LDL directly")
    value = x.total_cholesterol - x.hdl - x.triglycerides / 5
    if value <= 0:
        raise Wrong(f"an LDL of {value:g} mg/dL is impossible; check the inputs, or measure LDL directly")
    return Worked(value, notes=[f"That is {value / 38.665:.2f} mmol/L."])


CALCULATORS = (
    Calculator(
        name="homa_ir",
        title="HOMA-IR (insulin resistance)",
        also="homa, insulin resistance, homeostatic model assessment, homa ir homeostatic model "
        "assessment for insulin resistance",
        says="insulin resistance from fasting glucose and insulin",
        group="metabolism",
        inputs=(
            GLUCOSE,
            Quantity(
                name="insulin",
                text="fasting",
                measure=units.INSULIN,
                least=0.1,
                most=1000,
                usual=(0.5, 300),
                also="fasting_insulin serum_insulin plasma_insulin",
            ),
        ),
        work=lambda x: x.insulin * x.glucose / 405,
        formula="insulin × glucose / 405",
        digits=2,
        bands=below(
            (2, "no sign of insulin resistance"),
            (2.9, "early insulin resistance possible"),
            rest="insulin resistance likely",
        ),
        notes=("Fasting values. Cut-offs differ between populations and insulin tests; these are common ones.",),
        sources=(Source("Matthews DR et al. Diabetologia 1985;28:412-419"),),
        example=Example({"glucose": "100 mg/dL", "insulin": "10 µIU/mL"}, 2.469),
    ),
    Calculator(
        name="ldl",
        title="LDL cholesterol (Friedewald)",
        also="ldl c, ldl calculated, friedewald, ldl cholesterol, low density lipoprotein, calculated ldl",
        says="LDL from total cholesterol, HDL and triglycerides",
        group="metabolism",
        inputs=(TOTAL_CHOLESTEROL, HDL, TRIGLYCERIDES),
        work=friedewald,
        formula="total_cholesterol − hdl − triglycerides / 5",
        unit="mg/dL",
        digits=1,
        bands=below((100, "optimal"), (130, "near optimal"), (160, "borderline high"), (190, "high"), rest="very high"),
        notes=("Fasting; not from triglycerides of 400 mg/dL. Classes of ATP III.",),
        sources=(Source("Friedewald WT, Levy RI, Fredrickson DS. Clin Chem 1972;18:499-502"),),
        example=Example({"total_cholesterol": 200, "hdl": 50, "triglycerides": 150}, 120),
    ),
)
