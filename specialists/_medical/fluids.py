"""Built in: salts, water and acids: gaps, corrections, deficits."""

from collections.abc import Callable

from specialists._medical.calculator import Calculator, Example, Source, Values, Worked
from specialists._medical.inputs import Choice
from specialists._medical.patient import (
    AGE,
    ALBUMIN,
    BICARBONATE,
    CALCIUM,
    CHLORIDE,
    GLUCOSE,
    SEX,
    SODIUM,
    UREA_NITROGEN,
    WEIGHT,
)
from specialists._medical.steps import below, between

NORMAL_GAP, NORMAL_BICARBONATE = 12, 24
ELECTROLYTES = (SODIUM, CHLORIDE, BICARBONATE)
EMMETT = Source("Emmett M, Narins RG. Medicine (Baltimore) 1977;56:38-54")
FIGGE = Source("Figge J et al. Anion gap and hypoalbuminemia. Crit Care Med 1998;26:1807-1810")
WREN = Source("Wrenn K. The delta gap: an approach to mixed acid-base disorders. Ann Emerg Med 1990;19:1310-1313")
RATIO_BANDS = below(
    (0.4, "pure normal-gap (hyperchloraemic) acidosis"),
    (0.8, "mixed high-gap and normal-gap acidosis"),
    (2, "pure high-gap acidosis (0.8 to 1 may still be mixed)"),
    rest="high-gap acidosis with metabolic alkalosis, or with a bicarbonate that was high before",
)
DELTA_GAP_BANDS = below(
    (-6, "a normal-gap (hyperchloraemic) acidosis beside it"),
    (6, "a high-gap acidosis alone, or none"),
    rest="a metabolic alkalosis beside it",
)


def gap(x: Values) -> float:
    return float(x.sodium - (x.chloride + x.bicarbonate))


def corrected_gap(x: Values) -> float:
    """Figge's correction: albumin is most of the unmeasured anions."""
    return gap(x) + 2.5 * float(4 - x.albumin)


def _ratio(of: Callable[[Values], float]) -> Callable[[Values], Worked]:
    def work(x: Values) -> Worked:
        anion_gap = of(x)
        if x.bicarbonate == NORMAL_BICARBONATE:
            return Worked("not defined", reading="bicarbonate is 24: there is no fall to compare the gap with")
        ratio = (anion_gap - NORMAL_GAP) / (NORMAL_BICARBONATE - x.bicarbonate)
        no_fall = "bicarbonate is above 24: it has not fallen, and the ratio says nothing about mixed disorders"
        return Worked(ratio, {"anion_gap": anion_gap}, reading=no_fall if x.bicarbonate > NORMAL_BICARBONATE else "")

    return work


def _delta(of: Callable[[Values], float]) -> Callable[[Values], Worked]:
    """The gap's rise. What it says about mixed disorders takes the bicarbonate's fall too."""

    def work(x: Values) -> Worked:
        anion_gap = of(x)
        rise, fall = anion_gap - NORMAL_GAP, NORMAL_BICARBONATE - x.bicarbonate
        compared = rise - fall
        found = DELTA_GAP_BANDS.of(compared)
        note = f"Rise of the gap minus fall of bicarbonate (24 − {x.bicarbonate:g}): {compared:g}: {found}."
        return Worked(rise, {"anion_gap": anion_gap}, notes=[note])

    return work


def corrected_sodium(x: Values) -> Worked:
    factor = float(x.factor or "2.4")
    other = "1.6" if factor == 2.4 else "2.4"
    by_other = x.sodium + float(other) / 100 * (x.glucose - 100)
    name = {"1.6": "Katz 1973", "2.4": "Hillier 1999"}
    notes = [f"Factor {factor:g} ({name[f'{factor:g}']}); with {other} ({name[other]}) it is {by_other:.1f} mEq/L."]
    if x.glucose < 100:
        notes.append("Glucose is below 100 mg/dL: there is no hyperglycaemia to correct for.")
    return Worked(x.sodium + factor / 100 * (x.glucose - 100), {"factor": factor}, notes=notes)


def free_water(x: Values) -> Worked:
    if x.age < 18:
        share, who = 0.6, "child"
    elif x.sex == "male":
        share, who = (0.5, "man of 65 or older") if x.age >= 65 else (0.6, "man below 65")
    else:
        share, who = (0.45, "woman of 65 or older") if x.age >= 65 else (0.5, "woman below 65")
    return Worked(
        share * x.weight * (x.sodium / 140 - 1),
        {"body_water": share},
        notes=[f"Body water {share:g} of the weight: {who}."],
    )


def maintenance(x: Values) -> Worked:
    """Four millilitres an hour for each of the first ten kilograms, two for the next ten, one for the rest."""
    rate = 4 * min(x.weight, 10) + 2 * min(max(x.weight - 10, 0), 10) + max(x.weight - 20, 0)
    notes = [f"That is {rate * 24:g} mL/day by this rule of hours."]
    if x.weight < 3:
        notes.append("Newborns need another rule.")
    return Worked(rate, notes=notes)


CALCULATORS = (
    Calculator(
        name="anion_gap",
        title="Anion gap",
        also="anionenlucke, trou anionique, ag, serum anion gap, gap acidosis",
        says="unmeasured anions, in metabolic acidosis",
        group="fluids",
        inputs=(*ELECTROLYTES, ALBUMIN.maybe("for the corrected gap beside it")),
        work=lambda x: Worked(gap(x), notes=_with_albumin(x)),
        formula="sodium − (chloride + bicarbonate)",
        unit="mEq/L",
        digits=1,
        bands=between(4, 12, ("low: think of low albumin or of an error", "normal", "raised: high-gap acidosis")),
        notes=("Without potassium; normal 4 to 12 here, but it depends on the laboratory.",),
        sources=(EMMETT,),
        example=Example({"sodium": 140, "chloride": 104, "bicarbonate": 24}, 12),
        replaces=("anion_gap",),
    ),
    Calculator(
        name="anion_gap_albumin",
        title="Albumin-corrected anion gap",
        also="anion gap albumin corrected, albumin corrected anion gap, corrected anion gap, anion gap "
        "corrected for albumin",
        says="anion gap as it would be with albumin 4 g/dL",
        group="fluids",
        inputs=(*ELECTROLYTES, ALBUMIN),
        work=lambda x: Worked(corrected_gap(x), {"anion_gap": gap(x)}),
        formula="anion_gap + 2.5 × (4 − albumin)",
        unit="mEq/L",
        digits=1,
        bands=between(4, 12, ("low", "normal", "raised: high-gap acidosis")),
        sources=(FIGGE,),
        example=Example({"sodium": 140, "chloride": 104, "bicarbonate": 24, "albumin": "2 g/dL"}, 17),
    ),
    Calculator(
        name="delta_gap",
        title="Delta gap",
        also="delta anion gap, rise of the anion gap",
        says="anion gap above 12, for mixed acid-base disorders",
        group="fluids",
        inputs=ELECTROLYTES,
        work=_delta(gap),
        formula="anion_gap − 12",
        unit="mEq/L",
        digits=1,
        sources=(WREN,),
        example=Example({"sodium": 140, "chloride": 100, "bicarbonate": 10}, 18),
    ),
    Calculator(
        name="delta_ratio",
        title="Delta ratio",
        also="delta delta, delta delta ratio, delta over delta",
        says="rise of the anion gap by fall of bicarbonate, for mixed acid-base disorders",
        group="fluids",
        inputs=ELECTROLYTES,
        work=_ratio(gap),
        formula="(anion_gap − 12) / (24 − bicarbonate)",
        digits=2,
        bands=RATIO_BANDS,
        sources=(WREN,),
        example=Example({"sodium": 140, "chloride": 100, "bicarbonate": 10}, 1.2857),
    ),
    Calculator(
        name="delta_gap_albumin",
        title="Albumin-corrected delta gap",
        also="albumin corrected delta gap, corrected delta gap",
        says="albumin-corrected anion gap above 12",
        group="fluids",
        inputs=(*ELECTROLYTES, ALBUMIN),
        work=_delta(corrected_gap),
        formula="anion_gap − 12",
        unit="mEq/L",
        digits=1,
        notes=("anion_gap is the one corrected for albumin: + 2.5 × (4 − albumin).",),
        sources=(WREN, FIGGE),
        example=Example({"sodium": 140, "chloride": 100, "bicarbonate": 10, "albumin": "2 g/dL"}, 23),
    ),
    Calculator(
        name="delta_ratio_albumin",
        title="Albumin-corrected delta ratio",
        also="albumin corrected delta ratio, corrected delta ratio, albumin corrected delta delta",
        says="delta ratio with the albumin-corrected anion gap",
        group="fluids",
        inputs=(*ELECTROLYTES, ALBUMIN),
        work=_ratio(corrected_gap),
        formula="(anion_gap − 12) / (24 − bicarbonate)",
        digits=2,
        bands=RATIO_BANDS,
        notes=("anion_gap is the one corrected for albumin: + 2.5 × (4 − albumin).",),
        sources=(WREN, FIGGE),
        example=Example({"sodium": 140, "chloride": 100, "bicarbonate": 10, "albumin": "2 g/dL"}, 1.6429),
    ),
    Calculator(
        name="corrected_calcium",
        title="Calcium corrected for albumin (Payne)",
        also="payne, korrigiertes calcium, calcium corrige, "
        "calcium correction, calcium correction for hypoalbuminemia, adjusted calcium, albumin corrected calcium, "
        "corrected calcium for albumin",
        says="total calcium as it would be with albumin 4 g/dL",
        group="fluids",
        inputs=(CALCIUM, ALBUMIN),
        work=lambda x: Worked(
            (value := x.calcium + 0.8 * (4 - x.albumin)), notes=[f"That is {value * 10 / 40.078:.2f} mmol/L."]
        ),
        formula="calcium + 0.8 × (4 − albumin)",
        unit="mg/dL",
        digits=2,
        bands=between(8.5, 10.5, ("low", "normal", "high")),
        notes=("Ionised calcium is the better measure where it matters.",),
        sources=(Source("Payne RB et al. Br Med J 1973;4:643-646", "10.1136/bmj.4.5893.643"),),
        example=Example({"calcium": "8 mg/dL", "albumin": "2 g/dL"}, 9.6),
        replaces=("corrected_calcium",),
    ),
    Calculator(
        name="corrected_sodium",
        title="Sodium corrected for glucose",
        also="sodium correction hyperglycaemia, sodium correction, sodium correction for hyperglycemia, glucose "
        "corrected sodium, hyperglycemia sodium, "
        "katz, hillier",
        says="sodium as it would be with glucose 100 mg/dL",
        group="fluids",
        inputs=(
            SODIUM,
            GLUCOSE,
            Choice(
                name="factor",
                text="mEq/L for each 100 mg/dL: 2.4 Hillier 1999, 1.6 Katz 1973",
                also="correction_factor method",
                options={"2.4": 0, "1.6": 0},
                words={"hillier": "2.4", "katz": "1.6", "2_4": "2.4", "1_6": "1.6", "0_024": "2.4", "0_016": "1.6"},
                optional=True,
                default="2.4",
            ),
        ),
        work=corrected_sodium,
        formula="sodium + factor / 100 × (glucose − 100)",
        unit="mEq/L",
        digits=1,
        bands=between(135, 145, ("low", "normal", "high")),
        sources=(
            Source("Hillier TA et al. Am J Med 1999;106:399-403"),
            Source("Katz MA. N Engl J Med 1973;289:843-844"),
        ),
        example=Example({"sodium": 130, "glucose": "600 mg/dL"}, 142),
        replaces=("corrected_sodium",),
    ),
    Calculator(
        name="serum_osmolality",
        title="Serum osmolality, calculated",
        also="serum osmolarity, plasma osmolality, osmolalitat, osmolalite, "
        "osmolality, osmolarity, osm, calculated osmolality, serum osm",
        says="osmolality from sodium, glucose and urea nitrogen",
        group="fluids",
        inputs=(SODIUM, GLUCOSE, UREA_NITROGEN),
        work=lambda x: 2 * x.sodium + x.bun / 2.8 + x.glucose / 18,
        formula="2 × sodium + bun / 2.8 + glucose / 18",
        unit="mOsm/kg",
        digits=1,
        bands=between(275, 295, ("low", "normal", "high")),
        sources=(
            Source("Dorwart WV, Chalmers L. Clin Chem 1975;21:190-194", "10.1093/clinchem/21.2.190"),
            Source("Rasouli M. Basic concepts and practical equations on osmolality. Clin Biochem 2016;49:936-941"),
        ),
        example=Example({"sodium": 140, "glucose": "90 mg/dL", "bun": "14 mg/dL"}, 290),
        replaces=("serum_osmolality",),
    ),
    Calculator(
        name="free_water_deficit",
        title="Free water deficit",
        also="wasserdefizit, water deficit, fwd, hypernatremia deficit",
        says="water missing in hypernatraemia, in litres",
        group="fluids",
        inputs=(SODIUM, WEIGHT, AGE, SEX),
        work=free_water,
        formula="body_water × weight × (sodium / 140 − 1)",
        unit="L",
        digits=2,
        bands=below(
            (0, "no deficit: sodium is below 140, water is in excess"), rest="water is missing; correct it slowly"
        ),
        sources=(Source("Adrogué HJ, Madias NE. Hypernatremia. N Engl J Med 2000;342:1493-1499"),),
        example=Example({"sodium": 160, "weight": "70 kg", "age": 40, "sex": "male"}, 6.0),
    ),
    Calculator(
        name="maintenance_fluids",
        title="Maintenance fluids (Holliday-Segar, 4-2-1)",
        also="maintenance iv fluids, 4 2 1 rule, 421 rule, holliday segar, maintenance fluids calculations, fluid rate",
        says="fluid an hour by weight",
        group="fluids",
        inputs=(WEIGHT,),
        work=maintenance,
        formula="4 mL/h for each of the first 10 kg + 2 for each of the next 10 + 1 for each above 20",
        unit="mL/h",
        digits=1,
        notes=("Made for children; adults often need less per kg. Not for newborns, burns or losses.",),
        sources=(Source("Holliday MA, Segar WE. Pediatrics 1957;19:823-832", "10.1542/peds.19.5.823"),),
        example=Example({"weight": "25 kg"}, 65),
        replaces=("maintenance_iv_fluids",),
    ),
)


def _with_albumin(x: Values) -> list[str]:
    return (
        [] if x.albumin is None else [f"Corrected for albumin {x.albumin:g} g/dL it is {corrected_gap(x):.1f} mEq/L."]
    )
