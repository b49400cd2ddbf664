"""Built in: the units of measured quantities, and the one table by which they are converted."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")
_ZERO_CELSIUS_IN_FAHRENHEIT = 32
_ZERO_CELSIUS_IN_KELVIN = 273.15


@dataclass(frozen=True)
class Measure:
    """One kind of quantity in one unit.

    Attributes:
        unit: in which a formula wants it, and in which a bare number is taken.
        factors: by how much a value in a unit (spelled as `plain` does) is multiplied to be in `unit`.
        shown: units to name to a reader, the canonical one first.
        zeros: for scales that do not begin at the same place: what is subtracted before multiplying.
        adds_up: whether `5 ft 11 in` is a sum.
        counts: its smaller units count single things, so that a decimal point in them is doubtful.
        bare: whether a number without a unit may be taken; not where two units are equally common.
    """

    unit: str
    factors: Mapping[str, float]
    shown: tuple[str, ...]
    zeros: Mapping[str, float]
    adds_up: bool = False
    bare: bool = True
    counts: bool = False

    def converted(self, value: float, unit: str) -> float | None:
        """The value in the canonical unit; None for a unit that is none of its own."""
        name = plain(unit)
        if name not in self.factors:
            return None
        return tidy((value - self.zeros.get(name, 0)) * self.factors[name])

    def into(self, unit: str) -> "Measure":
        """The same quantity with another canonical unit."""
        target = self.factors[plain(unit)]
        factors = {name: factor / target for name, factor in self.factors.items()}
        shown = (unit, *(one for one in self.shown if plain(one) != plain(unit)))
        return Measure(unit, factors, shown, self.zeros, self.adds_up, self.bare, self.counts)


def tidy(value: float) -> float:
    """Without the last digits, which binary fractions get wrong: 102.2 °F is 39 °C, not 39.00000000000001."""
    return float(f"{value:.10g}")


_WORDS: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"\b(?:micro|mc)(?=[a-z])", "u"),
    (r"\bmilli(?=[a-z])", "m"),
    (r"\b(u|m|n|k)?mol(?:e|es|s)\b", r"\1mol"),
    (r"\b(u|m|k)?grams?\b", r"\1g"),
    (r"\b(deci|d|m|u)?lit(?:er|re)s?\b", lambda found: f"{(found[1] or '')[:1]}l"),
    (r"\bmmeters? of mercury\b", "mmhg"),
    (r"^per (?=[a-z])", "/"),
    (r"(?<=[a-z\d]) per (?=[a-z\d])", "/"),
)
"""Units written out: `micromoles per liter` is `umol/l`, and `mcg` is `ug`."""


def plain(unit: str) -> str:
    """One spelling of a unit: `µmol / L` and `umol/l`, `×10⁹/L` and `10^9/l`, `mcg` and `ug` are the same."""
    text = re.sub(r"10([⁰¹²³⁴⁵⁶⁷⁸⁹]+)", lambda power: "10^" + power[1].translate(SUPERSCRIPTS), unit)
    text = text.translate(SUPERSCRIPTS).lower().translate(str.maketrans("µμ−×·", "uu-x*"))
    for pattern, short in _WORDS:
        text = re.sub(pattern, short, text)
    text = re.sub(r"\s([a-z]+)-1$", r"/\1", text)
    text = re.sub(r"[\s_]+|\.$|^-(?=[a-z])", "", text)
    text = re.sub(r"^[x*]+(?=10)", "", text)
    text = re.sub(r"^10\((\d+)\)", r"10^\1", text)
    text = re.sub(r"^10(?:\*\*|\*|e\+?)(?=\d)", "10^", text)
    return re.sub(r"(?<=m)\^(?=[23]\b)", "", text)


def measure(unit: str, factors: Mapping[str, float], shown: Iterable[str] = (), **more: bool) -> Measure:
    """A quantity; a key may hold several spellings of a unit, with spaces between them."""
    table = {plain(name): factor for names, factor in factors.items() for name in names.split()}
    others = tuple(names.split()[0] for names in factors)
    chosen = tuple(shown) or tuple(name for name in others if name != unit)
    return Measure(unit, table, (unit, *chosen), {}, **more)


# Concentrations: grams per litre, moles per litre; the molar mass leads from one to the other.
_GRAMS = {
    "kg/m3 g/l gm/l mg/ml": 1.0,
    "g/dl gm/dl g% gm% g/100ml": 10.0,
    "mg/dl mg% mg/100ml": 1e-2,
    "mg/l ug/ml": 1e-3,
    "ug/dl ug%": 1e-5,
    "ug/l ng/ml": 1e-6,
    "ng/dl": 1e-8,
    "ng/l pg/ml": 1e-9,
}
_MOLES = {
    "mol/l": 1.0,
    "mmol/l mm mmoles/l mm/l mol/m3": 1e-3,
    "umol/l um umoles/l": 1e-6,
    "nmol/l": 1e-9,
    "pmol/l": 1e-12,
}


def substance(unit: str, molar_mass: float, shown: str, *, valence: int = 0, bare: bool = True) -> Measure:
    """A dissolved substance, by mass (g/L), amount (mol/L) or, for ions, equivalents (Eq/L)."""
    grams = dict(_GRAMS) | {names: factor * molar_mass for names, factor in _MOLES.items()}
    if valence:
        grams |= {"eq/l": molar_mass / valence, "meq/l": molar_mass / valence / 1000}
    table = {plain(name): factor for names, factor in grams.items() for name in names.split()}
    target = table[plain(unit)]
    return Measure(
        unit, {name: factor / target for name, factor in table.items()}, (unit, *shown.split()), {}, bare=bare
    )


CREATININE = substance("mg/dL", 113.12, "µmol/L mmol/L")
BILIRUBIN = substance("mg/dL", 584.66, "µmol/L")
GLUCOSE = substance("mg/dL", 180.156, "mmol/L")
CALCIUM = substance("mg/dL", 40.078, "mmol/L mEq/L", valence=2)
CHOLESTEROL = substance("mg/dL", 386.65, "mmol/L")
TRIGLYCERIDES = substance("mg/dL", 885.7, "mmol/L")
ALBUMIN = substance("g/dL", 66_500, "g/L µmol/L")
HAEMOGLOBIN = substance("g/dL", 16_114, "g/L mmol/L")
URIC_ACID = substance("mg/dL", 168.11, "µmol/L")
MAGNESIUM = substance("mg/dL", 24.305, "mmol/L mEq/L", valence=2)
PHOSPHATE = substance("mg/dL", 30.974, "mmol/L")
LACTATE = substance("mmol/L", 90.08, "mg/dL", valence=1)
SODIUM = substance("mEq/L", 22.990, "mmol/L", valence=1)
POTASSIUM = substance("mEq/L", 39.098, "mmol/L", valence=1)
CHLORIDE = substance("mEq/L", 35.453, "mmol/L", valence=1)
BICARBONATE = substance("mEq/L", 61.017, "mmol/L", valence=1)
UREA_NITROGEN = substance("mg/dL", 28.013, "mmol/L")
"""Of blood; a millimole of urea holds 28.013 mg of nitrogen, so that mmol/L means the same for both names."""
_AMOUNTS = frozenset(" ".join(_MOLES).split())
UREA = Measure(
    "mg/dL",
    {name: factor * (1 if name in _AMOUNTS else 28.013 / 60.056) for name, factor in UREA_NITROGEN.factors.items()},
    ("mmol/L", "mg/dL"),
    {},
    bare=False,
)
"""The same from urea itself; mmol/L and mg/dL are both common, so that the unit must be said."""
ACETAMINOPHEN = substance("µg/mL", 151.163, "mg/L µmol/L")
CRP = substance("mg/L", 115_135, "mg/dL")
FIBRINOGEN = substance("g/L", 340_000, "mg/dL")
INSULIN = measure("µIU/mL", {"uiu/ml uu/ml miu/l mu/l": 1, "pmol/l": 1 / 6.0}, ("mIU/L", "pmol/L"))
"""6.0 pmol/L a µIU/mL, the conversion of the present WHO standard."""

ENZYME = measure("U/L", {"u/l iu/l ui/l units/l": 1, "ukat/l": 60, "nkat/l": 0.06}, ("IU/L", "µkat/L"))
CELLS = measure(
    "10^9/L",
    {
        "10^9/l g/l giga/l billion/l 10^3/ul 10^3/mm3 k/ul k/mm3 k/mcl k thou/ul thousand/ul 1000/ul 10^6/ml k/cumm": 1,
        "10^3/cumm thousands/ul thousand/mm3 thousand/cumm thou/mm3 10^3 10^9 thousand thousands/mm3 10^3cells/ul": 1,
        "10^9cells/l 10^3cells/mm3 kcells/ul 109/l 103/ul 103/mm3 /nl tsd/ul": 1,
        "10^12/l t/l": 1000,
        "/ul /mm3 /cumm ul mm3 cells/ul cells/mm3 cells/cumm count/ul platelets/ul 1/ul per/ul": 1e-3,
        "/l count/l cells/l 1/l": 1e-9,
        "/ml cells/ml ml /cm3 cm3": 1e-6,
        "lakh/ul lakh/mm3 lakhs/ul lakh/cumm 10^5/ul": 100,
    },
    ("10^3/µL", "K/µL", "/µL", "/mm3"),
    counts=True,
)
PRESSURE = measure(
    "mmHg",
    {
        "mmhg torr mm[hg]": 1,
        "kpa": 7.50061683,
        "cmh2o": 0.73555912,
        "atm": 760,
        "hpa mbar": 0.750061683,
        "pa": 0.00750061683,
    },
    ("kPa", "cmH2O"),
)
LENGTH = measure(
    "cm",
    {
        "cm cms centimeter centimeters centimetre centimetres": 1,
        "m meter meters metre metres": 100,
        "mm millimeter millimeters": 0.1,
        "in inch inches \" ″ ” ''": 2.54,
        "ft feet foot ' ′ ’": 30.48,
    },
    ("m", "in", "ft"),
    adds_up=True,
)
MASS = measure(
    "kg",
    {
        "kg kgs kilo kilos kilogram kilograms": 1,
        "g gm gms gram grams": 1e-3,
        "lb lbs pound pounds #": 0.45359237,
        "oz ounce ounces": 0.028349523125,
        "st stone stones": 6.35029318,
    },
    ("lb", "g", "oz", "st"),
    adds_up=True,
)
AGE = measure(
    "years",
    {
        "years year y yr yrs yo y/o y.o yearsold yearold year-old years-old a jahre jahr ans an años": 1,
        "months month mo mos mths monthsold": 1 / 12,
        "weeks week wk wks w weeksold": 7 / 365.25,
        "days day d daysold": 1 / 365.25,
    },
    ("months", "weeks", "days"),
    adds_up=True,
)
DAYS = measure("days", {"days day d": 1, "weeks week wk wks w": 7}, ("weeks",), adds_up=True)
MILLISECONDS = measure("ms", {"ms msec msecs millisecond milliseconds": 1, "s sec secs second seconds": 1000}, ("s",))
SECONDS = measure("s", {"s sec secs second seconds": 1, "ms msec": 1e-3}, ("ms",))
HOURS = measure("h", {"h hr hrs hour hours": 1, "min minute minutes mins": 1 / 60, "days day d": 24}, ("min",))
PER_MINUTE = measure(
    "/min",
    {
        "/min 1/min bpm beats/min beat/min breaths/min breath/min min-1 beatsperminute "
        "beats/minute breaths/minute breathsperminute /minute cpm rpm /min. min^-1": 1
    },
    ("bpm", "breaths/min"),
)
PERCENT = measure("%", {"% percent pct %ra %onra %roomair %onroomair": 1, "fraction l/l": 100}, ("fraction", "L/L"))
FRACTION = measure("fraction", {"fraction": 1, "% percent pct": 0.01}, ("%",))
RATIO = measure("ratio", {"ratio": 1, "mmhg": 1, "kpa": 7.50061683}, ("mmHg", "kPa"))
INDEX = measure("ratio", {"ratio index inr units unit": 1}, ())
PH = measure("pH", {"ph units unit": 1}, ())
OSMOLALITY = measure("mOsm/kg", {"mosm/kg mosmol/kg mmol/kg mosm/l mosmol/l mosm/kgh2o": 1}, ())
KG_PER_M2 = measure("kg/m2", {"kg/m2 kg/m^2 kg/m**2": 1}, ())
CLEARANCE = measure("mL/min", {"ml/min cc/min": 1, "ml/s": 60, "l/min": 1000, "ml/min/1.73m2": 1}, ("mL/s",))
URINE_OUTPUT = measure(
    "mL/day",
    {"ml/day ml/d ml/24h ml/24hr ml/24hours cc/24h cc/day ml": 1, "l/day l/d l/24h": 1000, "ml/h ml/hr ml/hour": 24},
    ("L/day", "mL/h"),
)
INFUSION = measure(
    "µg/kg/min", {"ug/kg/min ug/kg/minute": 1, "mg/kg/min": 1000, "ug/kg/h ug/kg/hr": 1 / 60}, ("mg/kg/min",)
)
DOSE = measure("mg", {"mg mg/day mg/d mg/24h mgdaily mgs": 1, "g g/day": 1000, "ug ug/day": 1e-3}, ("µg", "g"))
MICROGRAMS = measure("µg", {"ug ug/day ug/d": 1, "mg mg/day": 1000}, ("mg",))
MICROGRAMS_AN_HOUR = measure("µg/h", {"ug/h ug/hr ug/hour ug": 1, "mg/h": 1000}, ())
LITRES = measure("L", {"l": 1, "ml cc": 1e-3}, ("mL",))
ESR = measure("mm/h", {"mm/h mm/hr mm/1h mm/hour mmh mm": 1}, ())
COUNT = Measure("", {}, (), {})
PER_WEEK = measure("/week", {"/week perweek drinks/week drinksperweek units/week drinks": 1})
PER_DAY = measure("/day", {"/day perday day timesaday times/day x/day daily doses/day": 1}, ())
_CELSIUS = (
    "°",
    "º",
    "degrees",
    "deg",
    "grad",
    "°c",
    "ºc",
    "c",
    "oc",
    "celsius",
    "degc",
    "degreesc",
    "degreescelsius",
    "degreecelsius",
)
_FAHRENHEIT = ("°f", "ºf", "f", "of", "fahrenheit", "degf", "degreesf", "degreesfahrenheit", "degreefahrenheit")
_KELVIN = ("k", "kelvin")
TEMPERATURE = Measure(
    "°C",
    dict.fromkeys(_CELSIUS, 1) | dict.fromkeys(_FAHRENHEIT, 5 / 9) | dict.fromkeys(_KELVIN, 1),
    ("°C", "°F"),
    dict.fromkeys(_FAHRENHEIT, _ZERO_CELSIUS_IN_FAHRENHEIT) | dict.fromkeys(_KELVIN, _ZERO_CELSIUS_IN_KELVIN),
)
