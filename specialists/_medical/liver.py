"""Built in: liver and gut: reserve, fibrosis, bleeding."""

from math import log

from specialists._medical.calculator import Calculator, Example, Source, Values, Worked
from specialists._medical.inputs import Choice, YesNo
from specialists._medical.patient import (
    ADULT,
    ALBUMIN,
    ALT,
    AST,
    BILIRUBIN,
    CREATININE,
    HAEMOGLOBIN,
    HEART_RATE,
    INR,
    PLATELETS,
    SEX,
    SODIUM,
    SYSTOLIC,
    UREA_NITROGEN,
)
from specialists._medical.steps import below, between, up_to

DIALYSIS = YesNo(
    name="dialysis",
    text="twice in the last week, or 24 h of CVVHD",
    also="on_dialysis dialysis_twice dialysis_at_least_twice_in_the_past_week "
    "continuous_veno_venous_hemodialysis_for_24_hours",
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


def fib4(x: Values) -> float:
    return float(x.age * x.ast / (x.platelets * x.alt**0.5))


_HB_MEN, _HB_WOMEN = below((10, 6), (12, 3), (13, 1), rest=0), below((10, 6), (12, 1), rest=0)
_UREA, _UREA_MOLAR = (
    below((18.2, 0), (22.4, 2), (28, 3), (70, 4), rest=6),
    below((6.5, 0), (8, 2), (10, 3), (25, 4), rest=6),
)


def blatchford(x: Values) -> Worked:
    points = {
        "bun": x.scores["bun"],
        "hemoglobin": (_HB_MEN if x.sex == "male" else _HB_WOMEN).of(x.hemoglobin),
        "systolic_bp": below((90, 3), (100, 2), (110, 1), rest=0).of(x.systolic_bp),
        "heart_rate": int(x.heart_rate >= 100),
        "melena": int(x.melena),
        "syncope": 2 * x.syncope,
        "hepatic_disease": 2 * x.hepatic_disease,
        "cardiac_failure": 2 * x.cardiac_failure,
    }
    return Worked(sum(points.values()), points=points)


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
        also="meld 3.0, meld 30, meld3",
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
    Calculator(
        name="child_pugh",
        title="Child-Pugh",
        also="child pugh, child turcotte pugh, ctp, child pugh score for cirrhosis mortality, cirrhosis severity",
        says="severity of cirrhosis, class A to C",
        group="liver",
        inputs=(
            BILIRUBIN.scoring(between(2, 3, (1, 2, 3)), umol_l=between(34, 50, (1, 2, 3))),
            ALBUMIN.scoring(between(2.8, 3.5, (3, 2, 1))),
            INR.scoring(between(1.7, 2.3, (1, 2, 3))),
            Choice(
                name="ascites",
                options={"none": 1, "slight": 2, "moderate_or_severe": 3},
                words={
                    "no": "none",
                    "absent": "none",
                    "mild": "slight",
                    "small": "slight",
                    "controlled": "slight",
                    "mild_to_moderate": "slight",
                    "diuretic_responsive": "slight",
                    "medically_controlled": "slight",
                    "1": "none",
                    "2": "slight",
                    "3": "moderate_or_severe",
                    "moderate": "moderate_or_severe",
                    "severe": "moderate_or_severe",
                    "moderate_to_severe": "moderate_or_severe",
                    "refractory": "moderate_or_severe",
                    "tense": "moderate_or_severe",
                    "poorly_controlled": "moderate_or_severe",
                    "large": "moderate_or_severe",
                },
                absent="none",
                scores=True,
            ),
            Choice(
                name="encephalopathy",
                also="hepatic_encephalopathy",
                options={"none": 1, "grade_1_2": 2, "grade_3_4": 3},
                words={
                    "no": "none",
                    "no_encephalopathy": "none",
                    "absent": "none",
                    "grade_1": "grade_1_2",
                    "grade_2": "grade_1_2",
                    "grade_i": "grade_1_2",
                    "grade_ii": "grade_1_2",
                    "grade_i_ii": "grade_1_2",
                    "mild": "grade_1_2",
                    "minimal": "grade_1_2",
                    "medically_controlled": "grade_1_2",
                    "grade_1_to_2": "grade_1_2",
                    "grade_3_to_4": "grade_3_4",
                    "grade_0": "none",
                    "0": "none",
                    "1_2": "grade_1_2",
                    "3_4": "grade_3_4",
                    "grade_3": "grade_3_4",
                    "grade_4": "grade_3_4",
                    "grade_iii": "grade_3_4",
                    "grade_iv": "grade_3_4",
                    "grade_iii_iv": "grade_3_4",
                    "severe": "grade_3_4",
                    "coma": "grade_3_4",
                    "poorly_controlled": "grade_3_4",
                },
                absent="none",
                scores=True,
            ),
        ),
        bands=up_to(
            (6, "class A, well compensated (1-year survival about 100 %)"),
            (9, "class B, significantly impaired (1-year survival about 80 %)"),
            rest="class C, decompensated (1-year survival about 45 %)",
        ),
        notes=("Bilirubin cut-offs are higher in cholestatic disease (4 and 10 mg/dL), which this does not use.",),
        sources=(Source("Pugh RNH et al. Br J Surg 1973;60:646-649", "10.1002/bjs.1800600817"),),
        example=Example(
            {"bilirubin": "2.5 mg/dL", "albumin": "3 g/dL", "inr": 1.5, "ascites": "slight", "encephalopathy": "none"},
            8,
        ),
        replaces=("child_pugh",),
    ),
    Calculator(
        name="fib4",
        title="FIB-4 (liver fibrosis)",
        also="fib 4, fibrosis 4, fibrosis 4 fib 4 index for liver fibrosis, fibrosis index, liver fibrosis",
        says="chance of advanced liver fibrosis",
        group="liver",
        inputs=(ADULT, AST, ALT, PLATELETS),
        work=fib4,
        formula="age × ast / (platelets × √(alt))",
        digits=2,
        bands=between(
            1.45, 3.25, ("advanced fibrosis unlikely", "indeterminate", "advanced fibrosis likely (Ishak 4 to 6)")
        ),
        notes=(
            "Cut-offs of Sterling 2006 (HIV and hepatitis C); for fatty liver 1.3 and 2.67 are used. "
            "Less exact below 35 and above 65 years.",
        ),
        sources=(Source("Sterling RK et al. Hepatology 2006;43:1317-1325", "10.1002/hep.21178"),),
        example=Example({"age": 60, "ast": 80, "alt": 64, "platelets": "150 K/µL"}, 4.0),
        replaces=("fib4",),
    ),
    Calculator(
        name="glasgow_blatchford",
        title="Glasgow-Blatchford bleeding score",
        also="gbs, blatchford, glasgow blatchford bleeding score, glasgow blatchford bleeding score "
        "gbs, upper gi bleeding",
        says="need for treatment in upper gastrointestinal bleeding",
        group="liver",
        inputs=(
            SEX,
            UREA_NITROGEN.scoring(_UREA, mmol_l=_UREA_MOLAR),
            HAEMOGLOBIN,
            SYSTOLIC,
            HEART_RATE,
            YesNo(name="melena", also="melaena melena_present"),
            YesNo(name="syncope", also="recent_syncope"),
            YesNo(name="hepatic_disease", also="liver_disease hepatic_disease_history"),
            YesNo(name="cardiac_failure", also="heart_failure congestive_heart_failure"),
        ),
        work=blatchford,
        bands=up_to(
            (0, "very low risk: may be treated as an outpatient"),
            (1, "low risk"),
            rest="higher risk: likely to need treatment in hospital",
        ),
        notes=(
            "Points: hemoglobin men below 13: 1, 12: 3, 10: 6; women below 12: 1, 10: 6; "
            "systolic below 110: 1, 100: 2, 90: 3; heart rate from 100: 1; melena 1; syncope, liver "
            "disease, heart failure 2 each.",
        ),
        sources=(Source("Blatchford O et al. Lancet 2000;356:1318-1321", "10.1016/S0140-6736(00)02816-6"),),
        example=Example(
            {
                "sex": "male",
                "bun": "30 mg/dL",
                "hemoglobin": "11 g/dL",
                "systolic_bp": 95,
                "heart_rate": 110,
                "melena": "yes",
                "others_absent": True,
            },
            11,
        ),
        replaces=("glasgow_blatchford",),
    ),
)
