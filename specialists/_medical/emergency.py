"""Built in: emergency and intensive care: consciousness, deterioration, sepsis."""

from specialists._medical import units
from specialists._medical.calculator import Calculator, Example, Source, Values, Worked
from specialists._medical.inputs import Choice, Quantity, YesNo
from specialists._medical.patient import (
    GCS,
    HEART_RATE,
    PACO2,
    RESPIRATORY_RATE,
    SPO2,
    SYSTOLIC,
    TEMPERATURE,
    WHITE_CELLS,
)
from specialists._medical.reading import shown
from specialists._medical.steps import Limit, below, up_to

UNTESTABLE = "not_testable"
EYES = {"spontaneous": 4, "to_speech": 3, "to_pain": 2, "none": 1, UNTESTABLE: 0}
VERBAL = {
    "oriented": 5,
    "confused": 4,
    "inappropriate_words": 3,
    "incomprehensible_sounds": 2,
    "none": 1,
    UNTESTABLE: 0,
}
MOTOR = {
    "obeys_commands": 6,
    "localizes_pain": 5,
    "withdraws": 4,
    "abnormal_flexion": 3,
    "extension": 2,
    "none": 1,
    UNTESTABLE: 0,
}
RCP = Source("Royal College of Physicians. National Early Warning Score (NEWS) 2, 2017")


def _numbers(options: dict[str, int]) -> dict[str, str]:
    """A component may be given by its points as well, and one that cannot be tested by the words of charts."""
    untested = dict.fromkeys(("nt", "untestable", "not_tested", "intubated", "t", "tube"), UNTESTABLE)
    return untested | {str(points): name for name, points in options.items() if points}


def glasgow(x: Values) -> Worked:
    """The sum; without one where a component cannot be tested, since no number stands for that."""
    points = x.scores
    untested = [name for name in points if x[name] == UNTESTABLE]
    if not untested:
        return Worked(int(sum(points.values())), points=points)
    told = " ".join(f"{name[0].upper()}{shown(found) if found else 'NT'}" for name, found in points.items())
    most = sum(max(table.values()) for name, table in _COMPONENTS.items() if name not in untested)
    reading = f"{shown(sum(points.values()))} of {most} points of what could be tested; a sum would mislead"
    as_four = sum(points.values()) + 4 * len(untested)
    notes = [] if "motor" in untested else [f"Some calculators count what cannot be tested as 4: {shown(as_four)}."]
    return Worked(told, notes=notes, reading=reading)


_COMPONENTS = {"eye": EYES, "verbal": VERBAL, "motor": MOTOR}


_SCALE_1 = up_to((91, 3), (93, 2), (95, 1), rest=0)
_SCALE_2_AIR = up_to((83, 3), (85, 2), (87, 1), rest=0)
_SCALE_2_OXYGEN = up_to((83, 3), (85, 2), (87, 1), (92, 0), (94, 1), (96, 2), rest=3)


def news2(x: Values) -> Worked:
    hypercapnic = x.spo2_scale == "2"
    saturation = (_SCALE_2_OXYGEN if x.on_oxygen else _SCALE_2_AIR) if hypercapnic else _SCALE_1
    points = {
        "respiratory_rate": up_to((8, 3), (11, 1), (20, 0), (24, 2), rest=3).of(x.respiratory_rate),
        "spo2": saturation.of(round(x.spo2)),
        "on_oxygen": 2 * x.on_oxygen,
        "systolic_bp": up_to((90, 3), (100, 2), (110, 1), (219, 0), rest=3).of(x.systolic_bp),
        "heart_rate": up_to((40, 3), (50, 1), (90, 0), (110, 1), (130, 2), rest=3).of(x.heart_rate),
        "consciousness": 0 if x.consciousness == "alert" else 3,
        "temperature": up_to((35.0, 3), (36.0, 1), (38.0, 0), (39.0, 1), rest=2).of(round(x.temperature, 1)),
    }
    total = sum(points.values())
    notes = (
        []
        if x.spo2_scale
        else ["SpO2 scale 1 was used; scale 2 is only for prescribed 88 to 92 % in hypercapnic failure."]
    )
    return Worked(total, points=points, notes=notes, reading=_news_reading(total, max(points.values())))


def _news_reading(total: int, highest: int) -> str:
    if total >= 7:
        return "7 or more: high risk: emergency response, continuous monitoring"
    if total >= 5:
        return "5 to 6: medium risk: urgent response, at least hourly observation"
    if highest == 3:
        return "3 in a single parameter: low-medium risk: urgent ward review, at least hourly observation"
    return "0: low risk: observe every 12 hours" if total == 0 else "1 to 4: low risk: observe every 4 to 6 hours"


def sirs(x: Values) -> Worked:
    breath = x.respiratory_rate > 20 or (x.paco2 is not None and x.paco2 < 32)
    cells = x.wbc > 12 or x.wbc < 4 or (x.bands is not None and x.bands > 10)
    points = {
        "temperature": int(x.temperature > 38 or x.temperature < 36),
        "heart_rate": int(x.heart_rate > 90),
        "respiration": int(breath),
        "white_cells": int(cells),
    }
    without = [name for name, value in (("PaCO2", x.paco2), ("bands", x.bands)) if value is None]
    notes = [f"Judged without {' and '.join(without)}."] if without else []
    return Worked(sum(points.values()), points=points, notes=notes)


CALCULATORS = (
    Calculator(
        name="gcs",
        title="Glasgow Coma Scale",
        also="score de glasgow, glasgow coma score, glasgow coma scale, coma scale, glasgow, glasgow coma score gcs",
        says="consciousness from eyes, speech and movement, 3 to 15",
        group="emergency",
        inputs=(
            Choice(
                name="eye",
                text="eye opening, also as 1 to 4",
                also="e eye_response best_eye_response eyes eye_opening",
                options=EYES,
                scores=True,
                words=_numbers(EYES)
                | {
                    "to_verbal_command": "to_speech",
                    "to_voice": "to_speech",
                    "to_sound": "to_speech",
                    "to_pressure": "to_pain",
                    "eyes_open_spontaneously": "spontaneous",
                    "eyes_open_to_verbal_command": "to_speech",
                    "eyes_open_to_pain": "to_pain",
                    "verbal_command": "to_speech",
                    "opens_to_speech": "to_speech",
                    "opens_eyes_to_speech": "to_speech",
                    "opens_to_voice": "to_speech",
                    "opens_eyes_to_voice": "to_speech",
                    "opens_to_pain": "to_pain",
                    "opens_eyes_to_pain": "to_pain",
                    "opens_eyes_spontaneously": "spontaneous",
                    "eye_opening_to_verbal_command": "to_speech",
                    "eye_opening_to_pain": "to_pain",
                    "no_eye_opening": "none",
                    "spontaneously": "spontaneous",
                    "speech": "to_speech",
                    "pain": "to_pain",
                    "no_response": "none",
                },
            ),
            Choice(
                name="verbal",
                text="also as 1 to 5",
                also="v verbal_response best_verbal_response speech",
                options=VERBAL,
                scores=True,
                words=_numbers(VERBAL)
                | {
                    "inappropriate": "inappropriate_words",
                    "incomprehensible": "incomprehensible_sounds",
                    "sounds": "incomprehensible_sounds",
                    "moans": "incomprehensible_sounds",
                    "moaning": "incomprehensible_sounds",
                    "groans": "incomprehensible_sounds",
                    "words": "inappropriate_words",
                    "orientated": "oriented",
                    "no_verbal_response": "none",
                    "no_response": "none",
                    "confused_conversation": "confused",
                    "oriented_and_converses": "oriented",
                },
            ),
            Choice(
                name="motor",
                text="also as 1 to 6",
                also="m motor_response best_motor_response movement",
                options=MOTOR,
                scores=True,
                words=_numbers(MOTOR)
                | {
                    "obeys": "obeys_commands",
                    "localizes": "localizes_pain",
                    "localises": "localizes_pain",
                    "localizing": "localizes_pain",
                    "localizes_to_pain": "localizes_pain",
                    "localises_pain": "localizes_pain",
                    "withdrawal_from_pain": "withdraws",
                    "withdrawal": "withdraws",
                    "withdraws_from_pain": "withdraws",
                    "withdraws_to_pain": "withdraws",
                    "normal_flexion": "withdraws",
                    "flexion_to_pain": "abnormal_flexion",
                    "flexion": "abnormal_flexion",
                    "abnormal_flexion_to_pain": "abnormal_flexion",
                    "decorticate": "abnormal_flexion",
                    "extension_to_pain": "extension",
                    "extensor": "extension",
                    "decerebrate": "extension",
                    "no_motor_response": "none",
                    "no_response": "none",
                    "follows_commands": "obeys_commands",
                },
            ),
        ),
        work=glasgow,
        bands=up_to((8, "severe impairment (coma)"), (12, "moderate"), rest="mild or none"),
        notes=('A component that cannot be tested is no 1; say "not testable".',),
        sources=(Source("Teasdale G, Jennett B. Lancet 1974;2:81-84", "10.1016/s0140-6736(74)91639-0"),),
        example=Example({"eye": "to speech", "verbal": "confused", "motor": 6}, 13),
        replaces=("gcs",),
    ),
    Calculator(
        name="qsofa",
        title="qSOFA",
        also="quick sofa, quick sepsis related organ failure assessment",
        says="bedside sign of a bad outcome in suspected infection or sepsis",
        group="emergency",
        inputs=(
            RESPIRATORY_RATE.scoring(below((22, 0), rest=1)),
            SYSTOLIC.scoring(up_to((100, 1), rest=0)),
            YesNo(
                name="altered_mentation",
                text="GCS below 15",
                points=1,
                also="altered_mental_status confusion",
                measured=(GCS, Limit("<", 15)),
                absent=False,
            ),
        ),
        bands=below(
            (2, "not positive; it does not rule out sepsis"),
            rest="positive: higher risk of a bad outcome; look for organ dysfunction",
        ),
        sources=(Source("Seymour CW et al. JAMA 2016;315:762-774", "10.1001/jama.2016.0288"),),
        example=Example({"respiratory_rate": 24, "systolic_bp": 95, "gcs": 15}, 2),
        replaces=("qsofa",),
    ),
    Calculator(
        name="sirs",
        title="SIRS criteria",
        also="systemic inflammatory response syndrome, sirs criteria, sepsis definition of 1992",
        says="systemic inflammatory response (older sign of sepsis), 0 to 4 criteria",
        group="emergency",
        inputs=(
            TEMPERATURE,
            HEART_RATE,
            RESPIRATORY_RATE,
            WHITE_CELLS,
            PACO2.maybe("counts beside the respiratory rate"),
            Quantity(
                name="bands",
                text="immature forms; count beside the white cells",
                measure=units.PERCENT,
                least=0,
                most=100,
                optional=True,
                also="band_forms immature_bands",
            ),
        ),
        work=sirs,
        bands=below((2, "SIRS not met"), rest="SIRS met (2 or more); with infection the older definition of sepsis"),
        notes=(
            "Criteria: temperature above 38 or below 36 °C; heart rate above 90; respiratory rate "
            "above 20 or PaCO2 below 32 mmHg; white cells above 12 or below 4 ×10^9/L, or more than "
            "10 % bands.",
        ),
        sources=(Source("Bone RC et al. Chest 1992;101:1644-1655", "10.1378/chest.101.6.1644"),),
        example=Example({"temperature": "38.5 C", "heart_rate": 100, "respiratory_rate": 18, "wbc": "13 K/µL"}, 3),
    ),
    Calculator(
        name="news2",
        title="NEWS2 (National Early Warning Score 2)",
        also="news, national early warning score, early warning score",
        says="deterioration of acutely ill adults",
        group="emergency",
        inputs=(
            RESPIRATORY_RATE,
            SPO2,
            YesNo(
                name="on_oxygen",
                text="supplemental oxygen",
                also="on_supplemental_o2 supplemental_oxygen oxygen on_o2 supplemental_o2 on_supplemental_oxygen",
                absent=False,
            ),
            SYSTOLIC,
            HEART_RATE,
            Choice(
                name="consciousness",
                also="acvpu avpu level_of_consciousness",
                options={"alert": 0, "confusion": 3, "voice": 3, "pain": 3, "unresponsive": 3},
                words={
                    "a": "alert",
                    "c": "confusion",
                    "v": "voice",
                    "p": "pain",
                    "u": "unresponsive",
                    "new_confusion": "confusion",
                    "confused": "confusion",
                    "cvpu": "confusion",
                },
            ),
            TEMPERATURE,
            Choice(
                name="spo2_scale",
                text="2 only for a prescribed 88 to 92 % in hypercapnic failure",
                also="scale spo2scale",
                options={"1": 0, "2": 0},
                words={"scale_1": "1", "scale_2": "2", "scale1": "1", "scale2": "2"},
                flags=(
                    ("hypercapnic", "2", "1"),
                    ("hypercapnic_respiratory_failure", "2", "1"),
                    ("hypercapnic_scale", "2", "1"),
                ),
                optional=True,
                default="1",
            ),
        ),
        work=news2,
        notes=("From 16 years; not in pregnancy.",),
        sources=(RCP,),
        example=Example(
            {
                "respiratory_rate": 22,
                "spo2": 95,
                "on_oxygen": "no",
                "systolic_bp": 105,
                "heart_rate": 95,
                "consciousness": "alert",
                "temperature": "38.2 °C",
            },
            6,
        ),
        replaces=("news2",),
    ),
)
