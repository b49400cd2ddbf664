"""Built in: the kidney: filtration, clearance, excretion."""

from specialists._medical import units
from specialists._medical.body import adjusted_weight, checked_bmi, ideal_weight
from specialists._medical.calculator import Calculator, Example, Source, Values, Worked
from specialists._medical.inputs import Choice, Quantity
from specialists._medical.patient import ADULT, CREATININE, HEIGHT, SEX, SODIUM, WEIGHT
from specialists._medical.reading import Wrong
from specialists._medical.steps import below

KDIGO_STAGES = below(
    (15, "G5, kidney failure"),
    (30, "G4, severely decreased"),
    (45, "G3b, moderately to severely decreased"),
    (60, "G3a, mildly to moderately decreased"),
    (90, "G2, mildly decreased"),
    rest="G1, normal or high",
)
_STAGES_NOTE = "G1 and G2 alone are no chronic kidney disease; it needs 3 months, or another marker of damage."


def ckd_epi(x: Values) -> Worked:
    female = x.sex == "female"
    kappa, alpha = (0.7, -0.241) if female else (0.9, -0.302)
    ratio = x.creatinine / kappa
    value = 142 * min(ratio, 1) ** alpha * max(ratio, 1) ** -1.2 * 0.9938**x.age * (1.012 if female else 1)
    return Worked(value, {"κ": kappa, "α": alpha, "sex_factor": 1.012 if female else 1})


def cockcroft_gault(x: Values) -> Worked:
    weight, said = _weight_for_clearance(x)
    sex_factor = 0.85 if x.sex == "female" else 1
    value = (140 - x.age) * weight * sex_factor / (72 * x.creatinine)
    return Worked(value, {"used_weight": round(weight, 2), "sex_factor": sex_factor}, notes=[said])


def _weight_for_clearance(x: Values) -> tuple[float, str]:
    """The weight that goes into Cockcroft and Gault's formula, and why that one."""
    choice = x.weight_used or "by_bmi"
    bmi = 0 if x.height is None else checked_bmi(x.weight, x.height)
    if choice == "actual" or x.height is None:
        given = "as asked" if choice == "actual" else "no height was given; with it, the weight is chosen by BMI"
        return x.weight, f"Weight used: actual ({given})."
    ideal = ideal_weight(x.sex, x.height)
    adjusted = adjusted_weight(ideal, x.weight)
    if choice == "ideal":
        return ideal, "Weight used: ideal (Devine), as asked."
    if choice == "adjusted":
        return adjusted, "Weight used: adjusted (ideal + 0.4 × the rest), as asked."
    if bmi < 18.5:
        return x.weight, f"Weight used: actual, because BMI {bmi:.1f} is below 18.5."
    if bmi < 25:
        return min(
            ideal, x.weight
        ), f"Weight used: the lower of ideal and actual, because BMI {bmi:.1f} is 18.5 to < 25."
    return adjusted, f"Weight used: adjusted (ideal + 0.4 × the rest), because BMI {bmi:.1f} is 25 or more."


def fractional_excretion(x: Values) -> float:
    """Of sodium, in percent.

    Raises:
        Wrong: when more would be excreted than was filtered.
    """
    value = float(100 * x.urine_sodium * x.creatinine / (x.sodium * x.urine_creatinine))
    if value > 100:
        raise Wrong(f"{value:.4g} % is more than all that was filtered; check the values and their units")
    return value


def mdrd(x: Values) -> Worked:
    sex_factor = 0.742 if x.sex == "female" else 1
    race_factor = 1.212 if x.race_factor == "black" else 1
    value = 175 * x.creatinine**-1.154 * x.age**-0.203 * sex_factor * race_factor
    notes = ["Factor 1.212 of the original equation for Black patients used, as asked."] if race_factor > 1 else []
    return Worked(value, {"sex_factor": sex_factor, "race_factor": race_factor}, notes=notes)


CALCULATORS = (
    Calculator(
        name="cockcroft_gault",
        title="Creatinine clearance (Cockcroft-Gault)",
        also="clcr, cockroft, cockroft gault, creatinin clearance, clairance creatinine, "
        "crcl, creatinine clearance, ccr, kreatinin clearance, cockcroft, clearance, cockcroft gault equation, "
        "creatinine clearance cockcroft gault equation",
        says="creatinine clearance in mL/min, for drug dosing by renal function",
        group="kidney",
        inputs=(
            ADULT,
            SEX,
            WEIGHT.within(20, 400),
            CREATININE,
            HEIGHT.within(100, 250).maybe("for choosing the weight by BMI"),
            Choice(
                name="weight_used",
                text="which weight goes in; by BMI is below 18.5 actual, below 25 the lower of ideal and "
                "actual, else adjusted",
                also="weight_type weight_choice",
                options={"by_bmi": 0, "actual": 0, "ideal": 0, "adjusted": 0},
                optional=True,
                default="by_bmi",
            ),
        ),
        work=cockcroft_gault,
        formula="(140 − age) × used_weight × sex_factor / (72 × creatinine)",
        unit="mL/min",
        digits=1,
        bands=below(
            (15, "kidney failure range"),
            (30, "severe impairment"),
            (60, "moderate impairment"),
            (90, "mild impairment"),
            rest="normal",
        ),
        notes=("Adults with stable creatinine.",),
        sources=(Source("Cockcroft DW, Gault MH. Nephron 1976;16:31-41", "10.1159/000180580"),),
        example=Example({"age": 60, "sex": "male", "weight": "72 kg", "creatinine": "1 mg/dL"}, 80.0),
        replaces=("cockcroft_gault",),
    ),
    Calculator(
        name="ckd_epi_2021",
        title="eGFR (CKD-EPI 2021, creatinine, without race)",
        also="dfg, kreatinin, nierenfunktion, fonction renale, ckd epi creatinine, egfr, gfr, ckd epi, "
        "glomerular filtration rate, estimated gfr, kidney "
        "function, ckd stage, ckdepi, "
        "ckd epi equations for glomerular filtration rate, ckd epi 2021 creatinine",
        says="estimated glomerular filtration rate and KDIGO stage",
        group="kidney",
        inputs=(ADULT, SEX, CREATININE),
        work=ckd_epi,
        formula="142 × min(creatinine / κ, 1)^α × max(creatinine / κ, 1)^−1.2 × 0.9938^age × sex_factor",
        unit="mL/min/1.73 m²",
        digits=1,
        bands=KDIGO_STAGES,
        notes=(_STAGES_NOTE,),
        sources=(Source("Inker LA et al. N Engl J Med 2021;385:1737-1749", "10.1056/NEJMoa2102953"),),
        example=Example({"age": 50, "sex": "female", "creatinine": "0.7 mg/dL"}, 105.3),
        replaces=("ckd_epi",),
    ),
    Calculator(
        name="mdrd",
        title="GFR (MDRD, 4 variables, IDMS)",
        also="mdrd 4, gfr mdrd, mdrd gfr equation, mdrd gfr, modification of diet in renal disease",
        says="estimated glomerular filtration rate by the older MDRD equation",
        group="kidney",
        inputs=(
            ADULT,
            SEX,
            CREATININE,
            Choice(
                name="race_factor",
                text="the original equation's factor; black multiplies by 1.212",
                also="race",
                options={"none": 0, "black": 0},
                words={
                    "african_american": "black",
                    "caucasian": "none",
                    "hispanic": "none",
                    "white": "none",
                    "asian": "none",
                    "other": "none",
                    "no": "none",
                    "yes": "black",
                },
                flags=(("is_black", "black", "none"),),
                optional=True,
                default="none",
            ),
        ),
        work=mdrd,
        formula="175 × creatinine^−1.154 × age^−0.203 × sex_factor × race_factor",
        unit="mL/min/1.73 m²",
        digits=1,
        bands=KDIGO_STAGES,
        notes=("Less exact above 60; CKD-EPI 2021 (ckd_epi_2021) has taken its place.", _STAGES_NOTE),
        sources=(Source("Levey AS et al. Ann Intern Med 2006;145:247-254"),),
        example=Example({"age": 50, "sex": "female", "creatinine": "1 mg/dL"}, 58.69),
    ),
    Calculator(
        name="fena",
        title="Fractional excretion of sodium (FENa)",
        also="fractional excretion of sodium, fe na, fractional sodium excretion, fractional excretion of sodium fena",
        says="share of filtered sodium that is excreted, for the cause of an acute kidney injury",
        group="kidney",
        inputs=(
            SODIUM,
            CREATININE,
            Quantity(
                name="urine_sodium",
                measure=units.SODIUM,
                least=1,
                most=400,
                also="una urinary_sodium sodium_urine u_na urine_na",
            ),
            Quantity(
                name="urine_creatinine",
                measure=units.CREATININE,
                least=1,
                most=1000,
                usual=(15, 500),
                also="ucr urinary_creatinine creatinine_urine u_cr urine_cr",
            ),
        ),
        work=fractional_excretion,
        formula="100 × urine_sodium × creatinine / (sodium × urine_creatinine)",
        unit="%",
        digits=2,
        bands=below(
            (1, "prerenal cause likelier"),
            (2, "indeterminate: prerenal or intrinsic"),
            rest="intrinsic cause (such as tubular necrosis) likelier; above 4 % also postrenal",
        ),
        notes=("Not to be read under diuretics.",),
        sources=(Source("Espinel CH. JAMA 1976;236:579-581"),),
        example=Example(
            {"sodium": 140, "creatinine": "2 mg/dL", "urine_sodium": 20, "urine_creatinine": "100 mg/dL"}, 0.2857
        ),
    ),
)
