"""Units of measurement: spellings, and conversion to the unit of a formula."""

import re
from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache

from msgspec import Struct

_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")
_WRITTEN_OUT: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"\b(?:micro|mc)(?=[a-z])", "u"),
    (r"\bmilli(?=[a-z])", "m"),
    (r"\b(u|m|n|k)?mol(?:e|es|s)\b", r"\1mol"),
    (r"\b(u|m|k)?grams?\b", r"\1g"),
    (r"\b(deci|d|m|u)?lit(?:er|re)s?\b", lambda found: f"{(found[1] or '')[:1]}l"),
    (r"\bmmeters? of mercury\b", "mmhg"),
    (r"^per (?=[a-z])", "/"),
    (r"(?<=[a-z\d]) per (?=[a-z\d])", "/"),
)
"""`micromoles per liter` becomes `umol/l`, and `mcg` becomes `ug`."""

_GRAMS_PER_LITRE: Mapping[str, float] = {
    "kg/m3 g/l gm/l mg/ml": 1.0,
    "g/dl gm/dl g% gm% g/100ml": 10.0,
    "mg/dl mg% mg/100ml": 1e-2,
    "mg/l ug/ml": 1e-3,
    "ug/dl ug%": 1e-5,
    "ug/l ng/ml": 1e-6,
    "ng/dl": 1e-8,
    "ng/l pg/ml": 1e-9,
}
_MOLES_PER_LITRE: Mapping[str, float] = {
    "mol/l": 1.0,
    "mmol/l mm mmoles/l mm/l mol/m3": 1e-3,
    "umol/l um umoles/l": 1e-6,
    "nmol/l": 1e-9,
    "pmol/l": 1e-12,
}


@lru_cache(maxsize=2048)
def normalize_unit(unit: str) -> str:
    """Return the normalized spelling of a unit: `umol/l` for `µmol / L`, `10^9/l` for `×10⁹/L`, `ug` for `mcg`."""
    text = re.sub(r"10([⁰¹²³⁴⁵⁶⁷⁸⁹]+)", lambda power: "10^" + power[1].translate(_SUPERSCRIPTS), unit)
    text = text.translate(_SUPERSCRIPTS).lower().translate(str.maketrans("µμ−×·", "uu-x*"))
    for pattern, short in _WRITTEN_OUT:
        text = re.sub(pattern, short, text)
    text = re.sub(r"\s([a-z]+)-1$", r"/\1", text)
    text = re.sub(r"[\s_]+|\.$|^-(?=[a-z])", "", text)
    text = re.sub(r"^[x*]+(?=10)", "", text)
    text = re.sub(r"^10\((\d+)\)", r"10^\1", text)
    text = re.sub(r"^10(?:\*\*|\*|e\+?)(?=\d)", "10^", text)
    return re.sub(r"(?<=m)\^(?=[23]\b)", "", text)


def round_noise(value: float) -> float:
    """Round away binary noise: 102.2 °F is 39 °C, not 39.00000000000001."""
    return float(f"{value:.10g}")


class Measure(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True, eq=False):
    """A kind of quantity, such as length or a creatinine concentration, with its units.

    Attributes:
        unit: Canonical unit, used in formulas and assumed for a number without a unit.
        shown: Units in texts. The default is `unit`.
        units: Factors to convert into `unit`. A key has the spellings of one unit, separated by spaces.
            A factor is a number or a fraction such as `"1/12"`.
        zeros: Zero point of a scale by the first spelling of its unit, subtracted before multiplying.
        molar_mass: Molar mass of a dissolved substance in g/mol. Units of mass and amount then need no `units`.
        counted_mass: Mass in g/mol of the part that `unit` weighs, such as the nitrogen of urea.
        valence: Valence of an ion, for equivalents.
        adds_up: Whether several numbers add up, as in `5 ft 11 in`.
        counts: Whether smaller units count single cells. A decimal point in such a number is ambiguous.
        bare: Whether a number without a unit is accepted. False if two units are equally common.
    """

    unit: str
    shown: tuple[str, ...] = ()
    units: dict[str, float | str] = {}
    zeros: dict[str, float] = {}
    molar_mass: float | None = None
    counted_mass: float | None = None
    valence: int = 0
    adds_up: bool = False
    counts: bool = False
    bare: bool = True

    def __post_init__(self) -> None:
        for unit in (self.unit, *self.shown):
            if unit and self.convert(1, unit) is None:
                raise ValueError(f"no factor for '{unit}'")

    @cached_property
    def factors(self) -> Mapping[str, float]:
        """The factor of each unit, by normalized spelling."""
        rows: dict[str, float] = {spellings: _parse_factor(factor) for spellings, factor in self.units.items()}
        part = 1.0
        if self.molar_mass is not None:
            counted = self.counted_mass or self.molar_mass
            part = counted / self.molar_mass
            rows |= {units: factor * part for units, factor in _GRAMS_PER_LITRE.items()}
            rows |= {units: factor * counted for units, factor in _MOLES_PER_LITRE.items()}
            if self.valence:
                rows |= {"eq/l": counted / self.valence, "meq/l": counted / self.valence / 1000}
        factors = {normalize_unit(unit): factor for units, factor in rows.items() for unit in units.split()}
        own = factors.get(normalize_unit(self.unit), 1) / part  # `unit` covers only the counted part
        return {unit: factor / own for unit, factor in factors.items()}

    @cached_property
    def offsets(self) -> Mapping[str, float]:
        """The zero point of each unit that has one, by normalized spelling."""
        return {
            normalize_unit(unit): self.zeros[units.split()[0]]
            for units in self.units
            if units.split()[0] in self.zeros
            for unit in units.split()
        }

    @property
    def named(self) -> tuple[str, ...]:
        """The units to mention in texts."""
        return self.shown or (self.unit,)

    def convert(self, value: float, unit: str) -> float | None:
        """Return the value in the canonical unit, or None for an unknown unit."""
        unit = normalize_unit(unit)
        if unit not in self.factors:
            return None
        return round_noise((value - self.offsets.get(unit, 0)) * self.factors[unit])


def _parse_factor(factor: float | str) -> float:
    if not isinstance(factor, str):
        return factor
    dividend, _, divisor = factor.partition("/")
    return float(dividend) / float(divisor)
