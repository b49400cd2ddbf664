"""Built in: liver and gut: reserve, fibrosis, bleeding."""

from specialists._medical.calculator import Calculator, Example, Source, Values, Worked
from specialists._medical.inputs import Choice, YesNo
from specialists._medical.patient import (
    ADULT,
    ALBUMIN,
    ALT,
    AST,
    BILIRUBIN,
    HAEMOGLOBIN,
    HEART_RATE,
    INR,
    PLATELETS,
    SEX,
    SYSTOLIC,
    UREA_NITROGEN,
)
from specialists._medical.steps import below, between, up_to


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


def rockall(x: Values) -> Worked:
    points = {
        "age": x.scores["age"],
        "shock": 2 if x.systolic_bp < 100 else int(x.heart_rate >= 100),
        "comorbidity": x.scores["comorbidity"],
        "diagnosis": x.scores.get("diagnosis", 0),
        "stigmata": x.scores.get("stigmata", 0),
    }
    total = int(sum(points.values()))
    if x.diagnosis is None:
        return Worked(
            total, points=points, reading=f"before endoscopy, 0 to 7: {'low risk' if total == 0 else 'admit'}"
        )
    return Worked(total, points=points, reading=f"full, 0 to 11: {_ROCKALL.of(total)} of rebleeding and death")


_ROCKALL = up_to((2, "low risk"), (7, "raised risk"), rest="high risk")


def _after_endoscopy(x: Values) -> list[str]:
    """Both findings of an endoscopy, or none."""
    if (x.diagnosis is None) == (x.stigmata is None):
        return []
    return ["stigmata" if x.stigmata is None else "diagnosis"]


CALCULATORS = (
    Calculator(
        name="rockall",
        title="Rockall score",
        also="rockall score upper gi bleeding, full rockall, clinical rockall, pre endoscopy rockall",
        says="risk of rebleeding and death in upper gastrointestinal bleeding, before and after endoscopy",
        group="liver",
        inputs=(
            ADULT.scoring(below((60, 0), (80, 1), rest=2)),
            HEART_RATE,
            SYSTOLIC,
            Choice(
                name="comorbidity",
                text="major: heart failure, ischaemia and the like; last: kidney or liver failure, metastases",
                options={"none": 0, "major": 2, "renal_liver_malignancy": 3},
                words={
                    "renal_failure": "renal_liver_malignancy",
                    "liver_failure": "renal_liver_malignancy",
                    "metastatic_cancer": "renal_liver_malignancy",
                    "disseminated_malignancy": "renal_liver_malignancy",
                    "heart_failure": "major",
                    "ischemic_heart_disease": "major",
                },
                absent="none",
                scores=True,
            ),
            Choice(
                name="diagnosis",
                text="by endoscopy; Mallory-Weiss, or no lesion and no stigmata",
                options={"mallory_weiss": 0, "other": 1, "malignancy": 2},
                words={"none": "mallory_weiss", "no_lesion": "mallory_weiss"},
                scores=True,
                optional=True,
            ),
            Choice(
                name="stigmata",
                text="by endoscopy: blood, adherent clot, visible or spurting vessel",
                options={"none": 0, "present": 2},
                words={"no": "none", "dark_spot": "none", "yes": "present", "absent": "none"},
                scores=True,
                optional=True,
            ),
        ),
        work=rockall,
        lacks=_after_endoscopy,
        notes=("Shock: systolic below 100 2, else heart rate from 100 1.",),
        sources=(Source("Rockall TA et al. Gut 1996;38:316-321", "10.1136/gut.38.3.316"),),
        example=Example({"age": 70, "heart_rate": 100, "systolic_bp": 110, "comorbidity": "major"}, 4),
        replaces=("rockall",),
    ),
    Calculator(
        name="child_pugh",
        title="Child-Pugh",
        also="child pugh class, childs pugh, child, child pugh, child turcotte pugh, ctp, child pugh score for "
        "cirrhosis mortality, cirrhosis severity",
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
                    "controlled_with_diuretics": "slight",
                    "diuretic_controlled": "slight",
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
            YesNo(name="syncope", also="recent_syncope recent_syncope_episode"),
            YesNo(name="hepatic_disease", also="liver_disease hepatic_disease_history"),
            YesNo(name="cardiac_failure", also="heart_failure congestive_heart_failure cardiac_failure_present chf"),
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
