"""Built in: the body: weights, mass index, surface."""

from collections.abc import Callable
from dataclasses import replace

from specialists._medical import units
from specialists._medical.calculator import Calculator, Example, Source, Values, Worked
from specialists._medical.inputs import Quantity
from specialists._medical.patient import HEIGHT, SEX, WEIGHT
from specialists._medical.reading import Wrong
from specialists._medical.steps import below

CM_PER_INCH = 2.54
FIVE_FEET = 60
LEAST_BMI, MOST_BMI = 6, 130
CHILD_HEIGHT, MOST_BMI_OF_A_CHILD = 100, 45
"""Below this height, in cm, a larger index comes of inches that were taken as centimetres."""
DEVINE = Source("Devine BJ. Gentamicin therapy. Drug Intell Clin Pharm 1974;8:650-655")
ADULT_HEIGHT = HEIGHT.within(100, 250)
ADULT_WEIGHT = WEIGHT.within(20, 650)


def ideal_weight(sex: str, height: float) -> float:
    """Devine's ideal weight in kg, of a height in cm."""
    return (50 if sex == "male" else 45.5) + 2.3 * (height / CM_PER_INCH - FIVE_FEET)


def adjusted_weight(ideal: float, actual: float) -> float:
    """Ideal weight and two fifths of what is above it (or below it)."""
    return ideal + 0.4 * (actual - ideal)


def mosteller(height: float, weight: float) -> float:
    return float((height * weight / 3600) ** 0.5)


def du_bois(height: float, weight: float) -> float:
    return float(0.007184 * weight**0.425 * height**0.725)


def checked_bmi(weight: float, height: float) -> float:
    """The mass index; a number taken in the wrong unit makes an impossible one.

    Raises:
        Wrong: when it is impossible.
    """
    bmi = weight / (height / 100) ** 2
    most = MOST_BMI if height >= CHILD_HEIGHT else MOST_BMI_OF_A_CHILD
    if not LEAST_BMI <= bmi <= most:
        raise Wrong(
            f"weight {weight:g} kg and height {height:g} cm do not go together (BMI {bmi:.4g}); give their units"
        )
    return bmi


def _surface(
    formula: Callable[[float, float], float], other: Callable[[float, float], float], name: str
) -> Callable[[Values], Worked]:
    def work(x: Values) -> Worked:
        checked_bmi(x.weight, x.height)
        return Worked(formula(x.height, x.weight), notes=[f"By {name} it is {other(x.height, x.weight):.3f} m²."])

    return work


def _ideal(x: Values) -> Worked:
    notes = (
        []
        if x.height >= FIVE_FEET * CM_PER_INCH
        else ["Below 5 feet the formula was not made; it is continued downwards."]
    )
    return Worked(ideal_weight(x.sex, x.height), _devine(x), notes=notes)


def _adjusted(x: Values) -> Worked:
    checked_bmi(x.weight, x.height)
    ideal = ideal_weight(x.sex, x.height)
    return Worked(adjusted_weight(ideal, x.weight), {"ideal": round(ideal, 2)})


def _devine(x: Values) -> dict[str, float]:
    return {"base": 50 if x.sex == "male" else 45.5, "inches": round(x.height / CM_PER_INCH, 2)}


CALCULATORS = (
    Calculator(
        name="bmi",
        title="Body mass index",
        also="imc, korpermasseindex, body mass index, quetelet, body mass index bmi, obesity",
        says="weight for height, WHO classes for adults",
        group="body",
        inputs=(WEIGHT, HEIGHT),
        work=lambda x: checked_bmi(x.weight, x.height),
        formula="weight / (height / 100)^2",
        unit="kg/m²",
        digits=1,
        bands=below(
            (16, "severe thinness"),
            (17, "moderate thinness (underweight)"),
            (18.5, "mild thinness (underweight)"),
            (25, "normal weight"),
            (30, "overweight (pre-obesity)"),
            (35, "obesity class I"),
            (40, "obesity class II"),
            rest="obesity class III",
        ),
        notes=("Classes are for adults; Asian cut-offs are lower (23 and 27.5).",),
        sources=(
            Source("WHO. Obesity: preventing and managing the global epidemic. Technical Report Series 894, 2000"),
        ),
        example=Example({"weight": "70 kg", "height": "1.75 m"}, 22.86),
        replaces=("bmi",),
    ),
    Calculator(
        name="bsa_mosteller",
        title="Body surface area (Mosteller)",
        also="korperoberflache, surface corporelle, bsa, body surface area, mosteller, body surface area "
        "calculator, surface area",
        says="body surface in m², for doses",
        group="body",
        inputs=(HEIGHT, WEIGHT),
        work=_surface(mosteller, du_bois, "Du Bois"),
        formula="√(height × weight / 3600)",
        unit="m²",
        digits=2,
        sources=(Source("Mosteller RD. N Engl J Med 1987;317:1098", "10.1056/NEJM198710223171717"),),
        example=Example({"height": "180 cm", "weight": "80 kg"}, 2.0),
        replaces=("bsa_mosteller",),
    ),
    Calculator(
        name="bsa_du_bois",
        title="Body surface area (Du Bois)",
        also="du bois bsa, du bois, dubois, bsa dubois, body surface area du bois",
        says="body surface in m² by the formula of 1916",
        group="body",
        inputs=(HEIGHT, WEIGHT),
        work=_surface(du_bois, mosteller, "Mosteller"),
        formula="0.007184 × weight^0.425 × height^0.725",
        unit="m²",
        digits=2,
        sources=(Source("Du Bois D, Du Bois EF. Arch Intern Med 1916;17:863-871"),),
        example=Example({"height": "180 cm", "weight": "80 kg"}, 1.996),
    ),
    Calculator(
        name="ideal_body_weight",
        title="Ideal body weight (Devine)",
        also="idealgewicht, poids ideal, ibw, ideal weight, devine",
        says="weight by height and sex, for doses and tidal volumes",
        group="body",
        inputs=(SEX, ADULT_HEIGHT),
        work=_ideal,
        formula="base + 2.3 × (inches − 60)",
        unit="kg",
        digits=1,
        sources=(DEVINE,),
        example=Example({"sex": "male", "height": "70 in"}, 73.0),
    ),
    Calculator(
        name="adjusted_body_weight",
        title="Adjusted body weight",
        also="abw, adjbw, adjusted weight, corrected body weight",
        says="ideal weight plus 0.4 of the rest, for doses in obesity",
        group="body",
        inputs=(SEX, ADULT_HEIGHT, ADULT_WEIGHT),
        work=_adjusted,
        formula="ideal + 0.4 × (weight − ideal)",
        unit="kg",
        digits=1,
        sources=(DEVINE, Source("Bauer LA et al. Eur J Clin Pharmacol 1983;24:643-647")),
        example=Example({"sex": "female", "height": "64 in", "weight": "90 kg"}, 68.82),
    ),
    Calculator(
        name="target_weight",
        title="Target weight for a BMI",
        also="weight for bmi, goal weight, weight from bmi",
        says="the weight at which a height has a given BMI",
        group="body",
        inputs=(
            replace(HEIGHT, usual=(100, 250)),
            Quantity(
                name="target_bmi",
                measure=units.KG_PER_M2,
                least=10,
                most=60,
                also="bmi body_mass_index goal_bmi desired_bmi",
            ),
        ),
        work=lambda x: x.target_bmi * (x.height / 100) ** 2,
        formula="target_bmi × (height / 100)^2",
        unit="kg",
        digits=1,
        sources=(Source("The definition of the body mass index, solved for weight"),),
        example=Example({"height": "170 cm", "target_bmi": 22}, 63.58),
    ),
)
