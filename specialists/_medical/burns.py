"""Built in: burns: how much of the body."""

from specialists._medical.calculator import Calculator, Example, Source
from specialists._medical.inputs import YesNo
from specialists._medical.steps import up_to

NINES = {
    "head_and_neck": 9,
    "anterior_trunk": 18,
    "posterior_trunk": 18,
    "left_upper_extremity": 9,
    "right_upper_extremity": 9,
    "left_lower_extremity": 18,
    "right_lower_extremity": 18,
    "perineum": 1,
}
"""Wallace's share of each region of an adult, in per cent."""
_OTHER_NAMES = {
    "head_and_neck": "head",
    "anterior_trunk": "chest_and_abdomen anterior_torso",
    "posterior_trunk": "back posterior_torso",
    "left_upper_extremity": "left_arm",
    "right_upper_extremity": "right_arm",
    "left_lower_extremity": "left_leg",
    "right_lower_extremity": "right_leg",
    "perineum": "genitalia",
}

CALCULATORS = (
    Calculator(
        name="tbsa",
        title="Burned body surface (rule of nines)",
        also="rule of nines, burns, burned surface, wallace, total body surface area burned",
        says="share of the surface that is burned, adults",
        group="emergency",
        inputs=tuple(YesNo(name=name, points=share, also=_OTHER_NAMES[name]) for name, share in NINES.items()),
        unit="%",
        bands=up_to((9, "minor by extent"), (20, "moderate by extent"), rest="major by extent"),
        notes=(
            "Whole regions with second or third degree burns, adults; for parts of one the palm is about 1 %. "
            "Face, hands, feet, genitals, joints and inhalation weigh more than the extent.",
        ),
        sources=(Source("Wallace AB. Lancet 1951;1:501-504", "10.1016/S0140-6736(51)91975-7"),),
        example=Example({"anterior_trunk": "yes", "left_arm": "yes", "others_absent": True}, 27),
        replaces=("tbsa",),
    ),
)
