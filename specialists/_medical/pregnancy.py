"""Built in: pregnancy: days counted from the last menstrual period."""

from datetime import date, timedelta

from specialists._medical import units
from specialists._medical.calculator import Calculator, Example, Source, Values, Worked
from specialists._medical.inputs import Day, Quantity
from specialists._medical.reading import Wrong

LMP = Day(
    name="lmp",
    text="first day of the last menstrual period",
    also="last_menstrual_period last_menstrual_date lmp_date last_menstruation",
)
CYCLE = Quantity(
    name="cycle_length",
    text="28 in the rule, when it is not given",
    measure=units.DAYS,
    least=20,
    most=45,
    whole=True,
    also="cycle cycle_days average_cycle_length",
    optional=True,
)
NAEGELE = Source("Naegele's rule; ACOG Committee Opinion 700. Obstet Gynecol 2017;129:e150-e154")
TERM, OVULATION, USUAL_CYCLE = 280, 14, 28


def _after(x: Values, days: int) -> Worked:
    """A day after the last period, later by as much as the cycle is longer than usual."""
    longer = (x.cycle_length or USUAL_CYCLE) - USUAL_CYCLE
    found: date = x.lmp + timedelta(days + longer)
    notes = [] if x.cycle_length else ["Cycle length not given: the rule's 28 days."]
    return Worked(found.isoformat(), {"days_later": longer}, notes=[f"A {found:%A}.", *notes], reading="")


def gestational_age(x: Values) -> Worked:
    days = (x.on - x.lmp).days
    if days < 0:
        raise Wrong("on: it is before lmp")
    if days > 310:
        raise Wrong(f"on: {days} days after lmp is longer than a pregnancy (at most 310 here)")
    weeks, rest = divmod(days, 7)
    return Worked(
        f"{weeks} weeks {rest} days",
        {},
        notes=[f"{days} days; due on {x.lmp + timedelta(TERM)} (28-day cycle)."],
        reading=_trimester(weeks),
    )


def _trimester(weeks: int) -> str:
    if weeks >= 42:
        return "post-term (from 42 weeks)"
    if weeks >= 37:
        return "third trimester, term (37 to 41 weeks)"
    return (
        "first trimester (to 13 weeks 6 days)"
        if weeks < 14
        else "second trimester (14 to 27 weeks)"
        if weeks < 28
        else "third trimester (from 28 weeks)"
    )


CALCULATORS = (
    Calculator(
        name="due_date",
        title="Estimated due date (Naegele)",
        also="geburtstermin, terme de grossesse, errechneter geburtstermin, nagele, expected delivery date, "
        "estimated due date, edd, naegele, naegele rule, expected date of delivery, delivery date",
        says="day of birth from the last menstrual period",
        group="pregnancy",
        inputs=(LMP, CYCLE),
        work=lambda x: _after(x, TERM),
        formula="lmp + 280 days + (cycle_length − 28)",
        notes=("An early ultrasound is more exact.",),
        sources=(NAEGELE,),
        example=Example({"lmp": "2024-01-01"}, "2024-10-07"),
    ),
    Calculator(
        name="conception_date",
        title="Estimated date of conception",
        also="conception, estimated date of conception, estimated of conception, date of conception, ovulation date",
        says="day of conception from the last menstrual period",
        group="pregnancy",
        inputs=(LMP, CYCLE),
        work=lambda x: _after(x, OVULATION),
        formula="lmp + 14 days + (cycle_length − 28)",
        sources=(NAEGELE,),
        example=Example({"lmp": "2024-01-01"}, "2024-01-15"),
    ),
    Calculator(
        name="gestational_age",
        title="Gestational age",
        also="schwangerschaftswoche, ssw, estimated gestational age, weeks of pregnancy, pregnancy week, weeks "
        "pregnant",
        says="weeks and days of a pregnancy on a day",
        group="pregnancy",
        inputs=(
            LMP,
            Day(
                name="on",
                text="the day asked about",
                also="date today current_date as_of on_date date_on reference_date",
            ),
        ),
        work=gestational_age,
        formula="on − lmp, in weeks and days",
        sources=(NAEGELE,),
        example=Example({"lmp": "2024-01-01", "on": "2024-04-01"}, "13 weeks 0 days"),
    ),
)
