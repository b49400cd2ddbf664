"""Built in: end-stage liver disease: the versions of MELD."""

from math import log

from specialists._medical.calculator import Calculator, Example, Source, Values, Worked
from specialists._medical.inputs import YesNo
from specialists._medical.patient import (
    ALBUMIN,
    BILIRUBIN,
    CREATININE,
    INR,
    SEX,
    SODIUM,
)
from specialists._medical.steps import up_to

DIALYSIS = YesNo(
    name="dialysis",
    text="twice in the last week, or 24 h of CVVHD",
    also="on_dialysis dialysis_twice dialysis_at_least_twice_in_the_past_week "
    "continuous_veno_venous_hemodialysis_for_24_hours "
    "continuous_veno_venous_hemodialysis_for_24_hours_in_the_past_week",
    joins=True,
)

KAMATH = Source("Kamath PS et al. Hepatology 2001;33:464-470", "10.1053/jhep.2001.22172")

MELD_BANDS = up_to(
    (9, "1.9 % mortality in 3 months"),
    (19, "6.0 % mortality in 3 months"),
    (29, "19.6 % mortality in 3 months"),
    (39, "52.6 % mortality in 3 months"),
    rest="71.3 % mortality in 3 months",
)

MELD_NOTE = "Values below 1 count as 1; mortality: hospital patients of Wiesner 2003, by MELD."


def _clamped(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)


def rounded(value: float) -> int:
    """To the nearest whole number, halves up, as scores are rounded."""
    return int(value + 0.5) if value >= 0 else -int(-value + 0.5)


def meld_i(x: Values) -> int:
    """MELD before sodium: logarithms of values of at least 1, creatinine at most 4, and 4 under dialysis."""
    creatinine = 4.0 if x.dialysis else _clamped(x.creatinine, 1, 4)
    bilirubin, inr = max(x.bilirubin, 1), max(x.inr, 1)
    return rounded(9.57 * log(creatinine) + 3.78 * log(bilirubin) + 11.2 * log(inr) + 6.43)


def _terms(x: Values, most_creatinine: float) -> dict[str, float]:
    """The values that go into the logarithms, by the names they have in the formula."""
    creatinine = most_creatinine if x.dialysis else _clamped(x.creatinine, 1, most_creatinine)
    return {"creatinine": creatinine, "bilirubin": max(x.bilirubin, 1), "inr": max(x.inr, 1)}


def meld(x: Values) -> Worked:
    return Worked(min(max(meld_i(x), 6), 40), _terms(x, 4))


def meld_na(x: Values) -> Worked:
    first, sodium = meld_i(x), _clamped(x.sodium, 125, 137)
    if first <= 11:
        notes = ["MELD(i) is 11 or less, so that sodium does not count (OPTN 2016)."]
        return Worked(max(first, 6), {"MELD_i": first, "sodium": sodium}, notes=notes, formula="MELD_i")
    value = first + 1.32 * (137 - sodium) - 0.033 * first * (137 - sodium)
    return Worked(min(rounded(value), 40), {"MELD_i": first, "sodium": sodium})


def meld_3(x: Values) -> Worked:
    terms = _terms(x, 3)
    sodium, albumin = _clamped(x.sodium, 125, 137), _clamped(x.albumin, 1.5, 3.5)
    bili, inr, creatinine = log(terms["bilirubin"]), log(terms["inr"]), log(terms["creatinine"])
    value = (
        1.33 * (x.sex == "female")
        + 4.56 * bili
        + 0.82 * (137 - sodium)
        - 0.24 * (137 - sodium) * bili
        + 9.09 * inr
        + 11.14 * creatinine
        + 1.85 * (3.5 - albumin)
        - 1.83 * (3.5 - albumin) * creatinine
        + 6
    )
    steps = {**terms, "sodium": sodium, "albumin": albumin, "female": int(x.sex == "female")}
    return Worked(min(max(rounded(value), 6), 40), steps)


CALCULATORS = (
    Calculator(
        name="meld",
        title="MELD (UNOS)",
        also="meld original, model for end stage liver disease, meld score, meld unos",
        says="severity of end-stage liver disease, 6 to 40, without sodium",
        group="liver",
        inputs=(CREATININE, BILIRUBIN, INR, DIALYSIS),
        work=meld,
        formula="9.57 × ln(creatinine) + 3.78 × ln(bilirubin) + 11.2 × ln(inr) + 6.43, rounded, 6 to 40",
        bands=MELD_BANDS,
        notes=(MELD_NOTE, "Creatinine counts as at most 4, and as 4 under dialysis."),
        sources=(KAMATH, Source("Wiesner R et al. Gastroenterology 2003;124:91-96", "10.1053/gast.2003.50016")),
        example=Example({"creatinine": "1.9 mg/dL", "bilirubin": "4.2 mg/dL", "inr": 1.2, "dialysis": "no"}, 20),
    ),
    Calculator(
        name="meld_na",
        title="MELD-Na (OPTN 2016)",
        also="meld sodium, meld na unos optn, mayo end stage liver disease with sodium, meldna",
        says="MELD with sodium, for the allocation of livers 2016 to 2023",
        group="liver",
        inputs=(CREATININE, BILIRUBIN, INR, SODIUM, DIALYSIS),
        work=meld_na,
        formula="MELD_i + 1.32 × (137 − sodium) − 0.033 × MELD_i × (137 − sodium), rounded, at most 40",
        bands=MELD_BANDS,
        notes=(
            "MELD_i = 9.57 × ln(creatinine) + 3.78 × ln(bilirubin) + 11.2 × ln(inr) + 6.43, rounded.",
            "Creatinine counts as 1 to 4 (4 under dialysis), bilirubin and INR as at least 1, sodium as 125 to 137.",
            MELD_NOTE,
        ),
        sources=(
            Source("Kim WR et al. N Engl J Med 2008;359:1018-1026", "10.1056/NEJMoa0801209"),
            Source("OPTN Policy 9.1.D, January 2016"),
        ),
        example=Example(
            {"creatinine": "1.9 mg/dL", "bilirubin": "4.2 mg/dL", "inr": 1.2, "sodium": 130, "dialysis": "no"}, 25
        ),
        replaces=("meld_na",),
    ),
    Calculator(
        name="meld_3",
        title="MELD 3.0 (OPTN 2022)",
        also="meld 3.0, meld 30, meld3, liver transplant priority",
        says="MELD with sodium, albumin and sex, for the allocation of livers since 2023",
        group="liver",
        inputs=(SEX, CREATININE, BILIRUBIN, INR, SODIUM, ALBUMIN, DIALYSIS),
        work=meld_3,
        formula="1.33 × female + 4.56 × ln(bilirubin) + 0.82 × (137 − sodium) − 0.24 × (137 − sodium) × ln(bilirubin) "
        "+ 9.09 × ln(inr) + 11.14 × ln(creatinine) + 1.85 × (3.5 − albumin) "
        "− 1.83 × (3.5 − albumin) × ln(creatinine) + 6, rounded, 6 to 40",
        bands=MELD_BANDS,
        notes=(
            "Creatinine counts as 1 to 3 (3 under dialysis), bilirubin and INR as at least 1, sodium "
            "as 125 to 137, albumin as 1.5 to 3.5.",
            MELD_NOTE,
        ),
        sources=(Source("Kim WR et al. Gastroenterology 2021;161:1887-1895", "10.1053/j.gastro.2021.08.050"),),
        example=Example(
            {
                "sex": "female",
                "creatinine": "1.9 mg/dL",
                "bilirubin": "4.2 mg/dL",
                "inr": 1.2,
                "sodium": 130,
                "albumin": "2.8 g/dL",
                "dialysis": "no",
            },
            26,
        ),
    ),
)
