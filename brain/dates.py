"""Dates, times and recurrences in words: one table for tasks, the calendar and assisted calls.

`docs/reference/dates-and-times.md` lists the forms. All functions take text from outside, and their time is linear in
its length.
"""

import re
from calendar import monthrange
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import NamedTuple

MAX_MESSAGE = 2_000
"""Characters read of a message."""
MAX_TIME = 100
"""Characters of a text that is a time."""

# Words


def _numbered(start: int, *rows: str) -> dict[str, int]:
    """Return the words of each row with their places; `-` is no word."""
    return {word: number for row in rows for number, word in enumerate(row.split(), start) if word != "-"}


DAY_NAMES = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTH_NAMES = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
WEEK = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
WEEKDAYS = _numbered(
    0,
    "monday tuesday wednesday thursday friday saturday sunday",
    "mondays tuesdays wednesdays thursdays fridays saturdays sundays",
    "mon tue wed thu fri - -",
    "- tues weds thurs - - -",
    "montag dienstag mittwoch donnerstag freitag samstag sonntag",
    "montags dienstags mittwochs donnerstags freitags sonnabend sonntags",
    "lundi mardi mercredi jeudi vendredi samedi dimanche",
    "lunes martes miércoles jueves viernes sábado domingo",
    "lunedì martedì mercoledì giovedì venerdì sabato domenica",
    "maandag dinsdag woensdag donderdag vrijdag zaterdag zondag",
    "segunda-feira terça-feira quarta-feira quinta-feira sexta-feira - -",
    "poniedziałek wtorek środa czwartek piątek sobota niedziela",
    "- - środę - - sobotę niedzielę",
)
MONTHS = _numbered(
    1,
    "january february march april may june july august september october november december",
    "jan feb mar apr - jun jul aug sep oct nov dec",
    "januar februar märz april mai juni juli august september oktober november dezember",
    "- - - - - - - - sept okt - dez",
    "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
    "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
    "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre",
    "januari februari maart april mei juni juli augustus september oktober november december",
    "janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro",
    "stycznia lutego marca kwietnia maja czerwca lipca sierpnia września października listopada grudnia",
)
COUNTS = _numbered(
    1,
    "one two three four five six seven eight nine ten eleven twelve",
    "ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf",
    "un deux trois quatre cinq six sept huit - dix onze douze",
    "uno dos tres cuatro cinco seis siete ocho nueve diez - doce",
    *("a", "an", "eine", "einer", "einem", "une", "una", "een", "uma"),
)
_HOURS = "|".join(list(COUNTS)[:12])
_UNITS = {
    "second": "s(?:ec(?:onds?|s)?)?|sekunden?|secondes?|segundos?",
    "minute": "min(?:ute|uten|utes|s|utos?|uti|uut)?",
    "hour": "h(?:ours?|rs?|eures?|oras?)?|stunden?|or[ae]|uur|uren|godzin[ęy]?",
    "day": "days?|tage?n?|jours?|d[íi]as?|giorn[oi]|dag(?:en)?|dni",
    "week": "weeks?|wochen?|semaines?|semanas?|settiman[ae]|weken?|tygodni[ea]?",
    "month": "months?|monate?n?|mois|mes(?:es)?|mes[ie]|maand(?:en)?",
    "year": "years?|jahre?n?|ans?|a[ñn]os?|ann[oi]|jaar",
}
_PARTS = {
    "morning": (time(8), r"\bmornings?|vormittags?|früh|\bmorgens|\bmatin|\b(?:por|de|en) la mañana|(?<=esta )mañana"
                         "|mattina|ochtend|manhã|rano|(?<=heute )morgen|(?<=tag)[ ]?morgen|(?<=mittwoch)[ ]?morgen"),
    "afternoon": (time(13), r"\bafternoons?|nachmittags?|après-midi|\b(?:por|de|en) la tarde|(?<=esta )tarde"
                            r"|pomeriggio|\bmiddag|\b(?:à|de|da) tarde"),
    "evening": (time(18), r"\bevenings?|(?<!sonn)abends?|\bsoir(?:ée)?|\bsera|avond|wieczorem"),
    "night": (time(20), r"\btonight|\bnights?|nachts?|\bnuit|\b(?:por|de|en) la noche|(?<=esta )noche|\banoche|notte"
                        "|noite"),
}  # fmt: skip
"""What the parts of a day mean as a time."""
_PART = re.compile("|".join(rf"(?P<{name}>(?:{words})(?!\w))" for name, (_, words) in _PARTS.items()))


class AmbiguousDate(ValueError):
    """A date or a time can be read in two ways; the message names both, for people."""


class Period(NamedTuple):
    """A first and a last day."""

    first: date
    last: date


@dataclass(frozen=True, slots=True)
class When:
    """What a text names: the days from `first` to `last`, and a time of the first one.

    Attributes:
        at: None for whole days. It has a time zone if the text fixes one.
    """

    first: date
    last: date
    at: time | None = None


# Days: dates

_Reader = Callable[[re.Match[str], date], Period | None]
_NAME = r"(?P<month>[^\W\d_]{3,12})"
_YEAR_FIRST = re.compile(
    r"(?<![\w./-])([0-9]{4})([-/.])([0-9]{1,2})\2([0-9]{1,2})(?:t(?=[0-9]{2}:)|(?![\w/-]|\.[0-9]))"
)
_DOTTED = re.compile(r"(?<![\w./-])(?P<day>[0-9]{1,2})\. ?(?P<month>[0-9]{1,2})\.(?: ?(?P<year>[0-9]{4}))?(?![0-9])")
_DOTTED_SHORT = re.compile(r"(?<![\w./-])(?P<day>[0-9]{1,2})\.(?P<month>[0-9]{1,2})\.(?P<year>[0-9][0-9])(?![\w./-])")
_NUMERIC = re.compile(r"(?<![\w./-])([0-9]{1,2})([/-])([0-9]{1,2})(?:\2([0-9]{4}|[0-9][0-9]))?(?![\w/-]|[.:][0-9])")
_DAY_MONTH = re.compile(
    rf"\b(?:the )?(?P<day>[0-9]{{1,2}})(?:st|nd|rd|th|er|\.)? ?(?:of |de )?{_NAME}\b\.?,?"
    r"(?: (?:de )?(?P<year>[0-9]{4})\b)?"
)
_MONTH_DAY = re.compile(
    rf"\b{_NAME}\.? (?P<day>[0-9]{{1,2}})(?:st|nd|rd|th)?\b(?:,? (?P<year>[0-9]{{4}})\b)?(?![:.][0-9])"
)
_MONTH_ALONE = re.compile(rf"\b(?:in|im|en|for|this|next|diesen|nächsten|de|since|until|of) {_NAME}\b")
_DAY_ALONE = re.compile(r"^(?:the )?([0-9]{1,2})(?:st|nd|rd|th|er|\.)?$")


def _read_year_first(found: re.Match[str], today: date) -> Period | None:
    """Read all dates of a text that begin with a year, at its first date."""
    if _YEAR_FIRST.search(found.string, 0, found.start()):
        return None
    dates = [tuple(map(int, one.group(1, 3, 4))) for one in _YEAR_FIRST.finditer(found.string)]
    days = [day for one in dates if (day := _make_day(*one))]
    return Period(min(days), max(days)) if days else None


def _read_date(found: re.Match[str], today: date) -> Period | None:
    name = found["month"]
    month = int(name) if name.isdecimal() else MONTHS.get(name)
    return _one(_next_date(int(found["day"]), month, found["year"], today)) if month else None


def _read_numeric(found: re.Match[str], today: date) -> Period | None:
    """Read a date with one reading, such as `13/4`."""
    readings = _readings(found, today)
    is_range = found[0] == "24/7" or (found[2] == "-" and not found[4])
    return _one(readings[0]) if len(readings) == 1 and not is_range else None


def _readings(found: re.Match[str], today: date) -> Sequence[date]:
    """Return the days that numbers with `/` or `-` can be: day first, month first, or the last two digits of a year."""
    one, two, year = found[1], found[3], found[4]
    orders = [(one, two, year), (two, one, year)]
    if year and len(year) == len(one) == 2:
        orders.append((year, two, one))
    days = [_next_date(int(day), int(month), of_year, today) for day, month, of_year in orders]
    return list(dict.fromkeys(day for day in days if day))


def _check_numeric(text: str, today: date, *, is_date: bool = False) -> None:
    """Refuse numbers that can be two dates; with `is_date` also `3-4`, which may be a range beside other words."""
    for found in _NUMERIC.finditer(text):
        readings = _readings(found, today)
        if len(readings) > 1 and (is_date or found[2] == "/" or found[4]):
            days = [f"{day.day} {MONTH_NAMES[day.month - 1]}{f' {day.year}' if found[4] else ''}" for day in readings]
            raise AmbiguousDate(f"{found[0]} can mean {days[0]} or {days[1]}; write the month as a word")


def _read_month(found: re.Match[str], today: date) -> Period | None:
    month = MONTHS.get(found["month"])
    is_in_date = re.search("[0-9][a-z.]{0,2} $", found.string[: found.start()][-5:])  # the 31st of February
    if month is None or is_in_date or found["month"] in ("mar", "sept"):
        return None
    begin = date(today.year + (month < today.month), month, 1)
    return Period(max(begin, today), _end_month(begin))


def _next_date(day: int, month: int, year: str | None, today: date) -> date | None:
    """Return a date; without a year, the next one from today on."""
    if year:
        return _make_day(int(year if len(year) == 4 else f"20{year}"), month, day)
    found = (_make_day(number, month, day) for number in range(today.year, min(today.year + 9, 9999)))
    return next((one for one in found if one and one >= today), None)


def _make_day(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None


def _end_month(day: date) -> date:
    return day.replace(day=monthrange(day.year, day.month)[1])


def _one(day: date | None) -> Period | None:
    return Period(day, day) if day else None


# Days: words

_LAST, _NEXT, _THIS = (
    "last|past|letzte[nrs]?|dernière?|pasad[oa]",
    "next|coming|following|nächste[nrs]?|kommende[nrs]?|prochaine?|próxim[oa]",
    "this|diese[nrs]?|ce|cette|est[ea]",
)
_PERIOD = re.compile(
    rf"\b(?:(?P<before>{_LAST}|{_NEXT}|{_THIS}|übernächste[ns]?) )?"
    r"(?:(?P<weekend>week-?end|wochenende|fin de semana)|(?P<week>week|woche|semaine|semana)"
    rf"|(?P<month>month|monat|mois|mes))\b(?!-)(?: (?P<after>after next|{_LAST}|{_NEXT}|que viene)\b)?"
)
_WEEKDAY = re.compile(
    rf"\b(?:(?P<week>next|this) week,? (?:on )?)?(?:(?P<before>{_LAST}|{_NEXT}|{_THIS}|on) )?"
    rf"(?P<day>{'|'.join(sorted(WEEKDAYS, key=len, reverse=True))})"
    r"(?:(?=(?:vormittag|nachmittag|abend|morgen|nacht|mittag)s?\b)|(?![\w-])"
    rf"(?:,? (?:of )?(?P<of>next|this) week\b| (?P<after>after next|{_LAST}|{_NEXT}|que viene)\b)?)"
)
_WEEKDAY_BEFORE = re.compile(rf"(?<!\w)({'|'.join(WEEKDAYS)})\.?,? (?:the |den |le |el )?$")
_BEFORE_MON = r"\b(?:on|this|next|from|by|until|till|before|after|and|or|since|last|for|every) $"
_AFTER_MON = r" (?:to|till|until|at|morning|afternoon|evening|night|[0-9])|[^ ]|$"
_RANGE = re.compile(
    r"\b(?:from|between|vom?|zwischen|du|de|entre|del) (?P<first>[^,?!]{1,30}?) "
    r"(?:to|till|until|and|through|bis|und|au|à|et|al|a|hasta|y) (?P<last>[^,?!]{1,40})"
    r"|\b(?P<day>[a-zäéá]{3,12}) ?(?:to|till|until|through|bis|à|a|-|–) ?(?P<other>[a-zäéá]{3,12})\b"
)
"""Two days with a word for a range between them; `from 1 to 7 December`."""


_WHICH = {-1: _LAST, 1: f"{_NEXT}|que viene", 2: "after next|übernächste[ns]?"}


def _which(found: re.Match[str]) -> int:
    """Return the number of weeks or months ahead that words such as `next` mean."""
    given = [found["before"] or "", found["after"] or ""]
    return next((ahead for word in given for ahead, words in _WHICH.items() if re.fullmatch(words, word)), 0)


def _read_period(found: re.Match[str], today: date) -> Period | None:
    """Read a week, a weekend or a month; what has passed of this one does not count."""
    ahead = _which(found)
    end = today + timedelta(7 * ahead + 6 - today.weekday())
    begin = end - timedelta(1 if found["weekend"] else 6)
    if found["month"]:
        month = _add(today.replace(day=1), ahead, "month") if ahead or found["before"] else None
        if month is None:
            return None
        begin, end = month, _end_month(month)
    return Period(begin if ahead else max(begin, today), end)


def _read_weekday(found: re.Match[str], today: date) -> Period | None:
    begin, end = found.span("day")
    is_sure = re.match(_AFTER_MON, found.string[end : end + 12]) or re.search(_BEFORE_MON, found.string[:begin][-8:])
    if found["day"] == "mon" and not is_sure:  # French: my
        return None
    ahead = WEEKDAYS[found["day"]] - today.weekday()
    if week := found["week"] or found["of"]:
        return _one(today + timedelta(ahead + 7 * (week == "next")))
    which = _which(found)
    if which == -1:
        return _one(today - timedelta(-ahead % 7 or 7))
    return _one(today + timedelta((ahead % 7 or 7 * bool(which)) + 7 * (which == 2)))


def _read_range(found: re.Match[str], today: date) -> Period | None:
    """Read the days from the first to the last one that a text names."""
    last = _find(found["last"] or found["other"], today, _NAMED_DAYS)
    if last is None:
        return None
    end = last.days.last
    if alone := _DAY_ALONE.match(found["first"] or found["day"]):
        first = _make_day(end.year, end.month, int(alone[1]))
    else:
        named = _find(found["first"] or found["day"], today, _NAMED_DAYS)
        first = named and named.days.first
    if first and end < first <= end + timedelta(7):  # Friday to Monday
        end += timedelta(7)
    return Period(first, end) if first and first <= end else None


# Days and times: lengths from now

_COUNT = rf"(?:[0-9]{{1,6}}|{'|'.join(sorted(COUNTS, key=len, reverse=True))})"
_ANY_UNIT, _LONG_UNIT = "|".join(_UNITS.values()), "|".join(list(_UNITS.values())[3:])
_PIECE = (
    rf"(half an?|einer halben|une demi|media|{_COUNT}) ?-?"
    rf"(?:({_UNITS['hour']}) ?([0-5][0-9])(?! ?(?:{_ANY_UNIT})(?!\w))|({_ANY_UNIT}))(?!\w|[.:][0-9])( and a half\b)?"
)
_LENGTH = rf"{_PIECE}(?:,? (?:(?:and|und|et|y) )?{_PIECE}){{0,3}}"
_AHEAD = re.compile(
    rf"\b(?:(?:in|dans|en|dentro de|fra|tra|over|em|za) (?P<length>{_LENGTH})|(?P<before>{_LENGTH}) from now\b)"
)
_PIECES = re.compile(_PIECE)
_SECONDS = {"second": 1, "minute": 60, "hour": 3600}
_COMING_DAYS = re.compile(
    rf"\b(?:next|coming|nächsten|kommenden|prochaine?s|próxim[oa]s) ({_COUNT}) ({_LONG_UNIT})(?!\w)"
    rf"|\b({_COUNT}) prochaine?s (jours)\b"
)


def _read_ahead(found: re.Match[str], now: datetime) -> When | None:
    """Return the day after some days, or the moment after an exact number of hours, whatever the clocks do."""
    moment, seconds, units = now, 0.0, list[str]()
    for amount, hour, minutes, unit, half in _PIECES.findall(found["length"] or found["before"]):
        units.append(_unit(hour or unit))
        number = _count(amount) + (0.5 if half else 0)
        if number % 1 and units[-1] != "hour":
            return None
        if units[-1] in _SECONDS:
            seconds += _SECONDS[units[-1]] * number + 60 * int(minutes or 0)
        elif day := _add(moment.date(), int(number), units[-1]):
            moment = moment.replace(year=day.year, month=day.month, day=day.day)
        else:
            return None
    if units != [unit for unit in reversed(_UNITS) if unit in units]:  # in 30 minutes 2 hours
        return None
    if units[-1] not in _SECONDS:
        return When(moment.date(), moment.date())
    return _of((moment.astimezone(UTC) + timedelta(seconds=seconds)).astimezone(now.tzinfo))


def _read_days_ahead(found: re.Match[str], today: date) -> Period | None:
    when = _read_ahead(found, datetime.combine(today, time(), UTC))
    return Period(when.first, when.last) if when and when.at is None else None


def _read_coming_days(found: re.Match[str], today: date) -> Period | None:
    end = _add(today, int(_count(found[1] or found[3])), _unit(found[2] or found[4]))
    return Period(today, end) if end else None


def _count(word: str) -> float:
    return int(word) if word.isdecimal() else COUNTS.get(word, 0.5)


def _unit(word: str) -> str:
    return next(unit for unit, pattern in _UNITS.items() if re.fullmatch(pattern, word))


def _add(day: date, number: int, unit: str) -> date | None:
    """Return a day later by days, weeks, months or years, or the last one of its month; None beyond the year 9999."""
    try:
        if unit in ("day", "week"):
            return day + timedelta(number * (7 if unit == "week" else 1))
        year, month = divmod(day.year * 12 + day.month - 1 + number * (12 if unit == "year" else 1), 12)
        return day.replace(year, month + 1, min(day.day, monthrange(min(year, 9999), month + 1)[1]))
    except (OverflowError, ValueError):
        return None


# Days: the table

_Forms = Sequence[tuple[re.Pattern[str], _Reader]]


def _offset(days: int, words: str) -> tuple[re.Pattern[str], _Reader]:
    return re.compile(rf"(?<!\w)(?:{words})(?!\w)"), lambda found, today: _one(today + timedelta(days))


_DATES: _Forms = (
    (_YEAR_FIRST, _read_year_first),
    (_DOTTED, _read_date),
    (_NUMERIC, _read_numeric),
    (_DAY_MONTH, _read_date),
    (_MONTH_DAY, _read_date),
)
_NAMED_DAYS: _Forms = (*_DATES, (_MONTH_ALONE, _read_month), (_WEEKDAY, _read_weekday))
_FORMS: _Forms = (
    _DATES[0],
    (_RANGE, _read_range),
    *_DATES[1:],
    (_MONTH_ALONE, _read_month),
    _offset(2, "(?:the )?day after tomorrow|übermorgen|après-demain|pasado mañana|dopodomani|overmorgen|pojutrze"),
    _offset(-2, "(?:the )?day before yesterday|vorgestern|avant-hier|anteayer"),
    _offset(
        0,
        "today|tonight|heute|aujourd'hui|hoy|this(?= (?:morning|afternoon|evening|night))|ce(?= (?:matin|soir))"
        "|cet(?= après-midi)|cette(?= nuit)|esta(?= (?:mañana|tarde|noche))|right now|(?<!from )now|oggi|vandaag|hoje"
        "|dziś|dzisiaj",
    ),
    (_COMING_DAYS, _read_coming_days),
    (_AHEAD, _read_days_ahead),
    (_WEEKDAY, _read_weekday),
    _offset(
        1,
        "tomorrow|tmrw|tomorow|demain|(?<!am )(?<!guten )morgen(?:s|früh|vormittag|nachmittag|abend)?|(?<!la )mañana"
        "|domani|amanhã|jutro",
    ),
    _offset(-1, "yesterday|gestern|ayer|anoche|last(?= night)|d'hier|hier(?= (?:soir|matin))"),
    (_PERIOD, _read_period),
)
"""What names days, in the order in which a sentence is searched; the first that it has counts."""


class _Found(NamedTuple):
    days: Period
    match: re.Match[str]
    read: _Reader


def _find(text: str, today: date, forms: _Forms) -> _Found | None:
    for pattern, read in forms:
        for match in pattern.finditer(text):
            if days := read(match, today):
                return _Found(days, match, read)
    return None


# Times of day

_SHIFTS = {
    "half past": 30, "half after": 30, "quarter past": 15, "quarter after": 15, "quarter to": -15, "halb": -30,
    "viertel nach": 15, "viertel vor": -15,
}  # fmt: skip
"""What stands before an hour, in minutes."""
_SHIFT = "|".join(_SHIFTS)
_CLOCK = re.compile(
    rf"(?<![\w.,:/-])(?:(?P<at>at|um|gegen|à|a las?|alle|om|às) )?(?:(?:a )?(?P<shift>{_SHIFT}) )?"
    r"(?:(?P<noon>noon|midday|mittags?|midi|mediodía)|(?P<midnight>midnight|mitternacht|minuit|medianoche)"
    rf"|(?P<hour>[0-9]{{1,2}}|{_HOURS})(?:(?P<sep>[:.h])(?P<minute>[0-9][0-9]))?"
    r"(?: ?(?P<half>[ap]\.?m\b\.?|uhr\b|h\b|o'?clock\b|heures\b|horas\b|uur\b))?)(?!\w|[.,:/-][0-9]|-)"
)
_HALF = re.compile(rf"(?<![\w.,:/-])half ([1-9]|1[0-2]|{_HOURS})(?![\w:/-]|[.,][0-9])")


def _read_clock(found: re.Match[str], *, is_clock: bool = False) -> time | None:
    """Return a time that has a sign of one: minutes, `am`, `Uhr`, or a word such as `at`; with `is_clock` any time."""
    shift, half, hour = _SHIFTS.get(found["shift"], 0), (found["half"] or "").replace(".", ""), 0
    minute = int(found["minute"] or 0)
    if not found["hour"]:
        hour = 12 if found["noon"] else 0
    elif not (found["at"] or shift or is_clock) and (
        not (found["minute"] or half)
        or (found["sep"] == "." and not half)
        or half in ("heures", "horas", "uur")  # may be a duration
    ):
        return None
    else:
        hour = int(_count(found["hour"]))
    if half in ("am", "pm"):
        hour = hour % 12 + (12 if half == "pm" else 0) if 1 <= hour <= 12 else 24
    if hour > 23 or minute > 59 or (shift and found["minute"]):
        return None
    hour, minute = divmod((60 * hour + minute + shift) % (24 * 60), 60)
    return time(hour, minute)


def _find_clock(text: str, *, is_bare: bool = False) -> tuple[time, re.Match[str]] | None:
    """Return the first time of day; with `is_bare`, a number is one."""
    for found in _CLOCK.finditer(text):
        is_number = found[0].isdecimal() and not re.match("[.,:/-]", text[found.end() :])
        if at := _read_clock(found, is_clock=is_bare and is_number):
            return at, found
    return None


def _check_half(text: str) -> None:
    """Refuse `half 8`, which is 7:30 in German and Dutch, and 8:30 in British English."""
    if found := _HALF.search(text):
        hour = int(_count(found[1]))
        raise AmbiguousDate(f"{found[0]} can mean {(hour - 1) or 12}:30 or {hour}:30; write one of them")


def _fit(clock: tuple[time, re.Match[str]] | None, part: re.Match[str] | None) -> time | None:
    """Return a time of day with its part of the day; None for none, or if the part does not have the time."""
    if clock is None or part is None:
        return clock[0] if clock else _PARTS[str(part.lastgroup)][0] if part else None
    at, found = clock
    if part.lastgroup == "morning":
        return at if at.hour < 12 else None
    has_half = (found["half"] or "").startswith(("a", "p"))
    if not has_half and at.hour < 12 and (part.lastgroup != "night" or at.hour >= 6):
        at = at.replace(hour=at.hour + 12)
    fits = {"afternoon": 12 <= at.hour < 19, "evening": at.hour >= 16, "night": at.hour >= 18 or at.hour < 6}
    return at if fits[str(part.lastgroup)] else None


# Texts and sentences

_FILLER = re.compile(
    r"(?<!\w)(?:on|at|the|of|in|by|am|an|den|der|dem|das|um|im|le|la|el|il|à|a|las|alle|de|du|o|w|em|na|op|às)(?!\w)"
)
_SHORT_DAYS = {"sat": "saturday", "sun": "sunday"}


def parse_time(text: str, now: datetime) -> When | None:
    """Return what a text means that is nothing but a date, a time, or both; None for other texts.

    Args:
        now: The time in the zone of the user.

    Raises:
        AmbiguousDate: The text has a date such as `3/4`, or a time such as `half 8`.
    """
    plain = " ".join(text.split())
    if len(plain) > MAX_TIME:
        return None
    for parse in (date.fromisoformat, datetime.fromisoformat):
        try:
            iso = parse(plain.upper())
        except ValueError:
            continue
        return _of(iso) if isinstance(iso, datetime) else When(iso, iso)
    lowered = re.sub(r"\b(?:sat|sun)\b", lambda found: _SHORT_DAYS[found[0]], plain.lower().replace("’", "'"))
    today = now.date()
    if lowered == "now":
        return _of(now)
    if ahead := _AHEAD.fullmatch(lowered):
        return _read_ahead(ahead, now)
    _check_half(lowered)
    _check_numeric(lowered, today)
    day = _find(lowered, today, (*_FORMS, (_DOTTED_SHORT, _read_date)))
    if day is None:
        _check_numeric(lowered, today, is_date=True)
        if re.fullmatch(r"[0-9]+ ?h", lowered):  # may be a duration
            return None
    part, name = _PART.search(lowered), _named_weekday(lowered, day) if day else None
    rest = _blank(lowered, day and day.match)
    clock = _find_clock(rest) or (_find_clock(rest, is_bare=True) if day else None)
    for found in (clock and clock[1], part, name):
        rest = _blank(rest, found)
    at = _fit(clock, part)
    if not (day or clock) or ((clock or part) and at is None) or _FILLER.sub("", rest).strip(" ,."):
        return None
    return _settle(day, at, now)


def find_time(message: str, now: datetime) -> When | None:
    """Return the days and the time that a sentence names, in English, German, French or Spanish; None without a day.

    Raises:
        AmbiguousDate: It names no other day than one such as `3/4`, or a time such as `half 8`.
    """
    text = " ".join(message[:MAX_MESSAGE].lower().replace("’", "'").split())
    _check_half(text)
    if day := _find(text, now.date(), _FORMS):
        _named_weekday(text, day)
        return _settle(day, _fit(_find_clock(_blank(text, day.match)), _PART.search(text)), now)
    _check_numeric(text, now.date())
    ahead = _AHEAD.search(text)
    return _read_ahead(ahead, now) if ahead else None


def find_days(message: str, now: datetime) -> Period | None:
    """Return the first and last day that a sentence names; see `find_time`."""
    found = find_time(message, now)
    return Period(found.first, found.last) if found else None


def find_clock(message: str) -> time | None:
    """Return the first time of day in a sentence that has minutes, `am`, `Uhr`, or a word such as `at` before it."""
    text = " ".join(message[:MAX_MESSAGE].lower().split())
    clock = _find_clock(text)
    return _fit(clock, _PART.search(text)) or clock[0] if clock else None


def next_time(at: time, now: datetime) -> When:
    """Return the next moment with a time of day."""
    day = now.date() + timedelta(days=at <= now.time())
    return When(day, day, at)


def is_delay(text: str) -> bool:
    """Whether a text is a time from now, such as `in 2 hours` and `in 3 days`."""
    return _AHEAD.fullmatch(" ".join(text[:MAX_TIME].lower().split())) is not None


def is_time_of_day(text: str) -> bool:
    """Whether a text is a time without a date, such as `9:30` and `at 9`."""
    return _CLOCK.fullmatch(" ".join(text[:MAX_TIME].lower().split())) is not None


def _named_weekday(text: str, day: _Found) -> re.Match[str] | None:
    """Return the weekday before a date: `Friday, 3 April`; refuse a wrong one."""
    begin = day.match.start()
    is_date = day.read in (_read_year_first, _read_date, _read_numeric)
    name = _WEEKDAY_BEFORE.search(text, max(0, begin - 40), begin) if is_date else None
    if name and (number := WEEKDAYS[name[1]]) != (actual := day.days.first.weekday()):
        names = f"a {DAY_NAMES[actual]}, not a {DAY_NAMES[number]}"
        raise AmbiguousDate(f"{day.days.first} is {names}; write only the date")
    return name


def _blank(text: str, found: re.Match[str] | None) -> str:
    return f"{text[: found.start()]}{' ' * len(found[0])}{text[found.end() :]}" if found else text


def _settle(day: _Found | None, at: time | None, now: datetime) -> When:
    """Return days with a time. Without a day, or on a day such as `Friday`, a time that has passed is the next one."""
    if day is None:
        assert at is not None
        return next_time(at, now)
    days, is_next = day.days, day.read in (_read_weekday, _read_date, _read_numeric)
    if is_next and at and days.first == now.date() and at <= now.time() and not re.match(_THIS, day.match[0]):
        days = day.read(day.match, now.date() + timedelta(days=1)) or days
    return When(days.first, days.last, at)


def _of(moment: datetime) -> When:
    return When(moment.date(), moment.date(), moment.timetz())


# Recurrences

_AND = "(?:, and |, | and )(?:the |at )?"
_WORKDAYS = "weekdays?|work(?:ing)? ?days?|business days?"
_DAY = "(mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?s?"
_POSITIONS = {**_numbered(1, "first second third fourth fifth", "1st 2nd 3rd 4th 5th"), "last": -1}
_POSITION = "|".join(_POSITIONS)
_MONTHLY_DAY = re.compile(rf"(?:the )?((?:{_POSITION})(?:{_AND}(?:{_POSITION}))*) (?:(days?)|({_WORKDAYS})|{_DAY})")
_MONTHLY_NUMBERS = re.compile(rf"(?:the )?[0-9]{{1,2}}(?:st|nd|rd|th)?(?:{_AND}[0-9]{{1,2}}(?:st|nd|rd|th)?)*")
_OF_MONTH = re.compile(" (?:(?:of |in )?(?:the|each|every|a) month|monthly)$")
_TIME = re.sub(r"\?P<\w+>", "?:", _CLOCK.pattern)
_TIMES = rf"(?P<times>{_TIME}(?:{_AND}{_TIME})*)"
_TIMES_LAST, _TIMES_FIRST = re.compile(rf"(?:^|,? ){_TIMES}$"), re.compile(rf"{_TIMES}(?:,? |$)")
_EVERY_PART = re.compile(r"(?:^| )(?:in the )?(?P<part>(?:morning|afternoon|evening|night)s?)$")
_EVERY = re.compile("(?:on )?(?:every|each)(?: |$)|once (?:a|an|every|per) |on ")
_EVERY_NUMBERS = {**COUNTS, "other": 2, "alternate": 2, "second": 2}
_EVERY_UNITS = {
    "MINUTELY": "minutes?|mins?", "HOURLY": "hours?|hrs?|hourly", "DAILY": "days?|daily", "WEEKLY": "weeks?|weekly",
    "MONTHLY": "months?|monthly", "YEARLY": "years?|yearly|annually",
}  # fmt: skip
_INTERVAL = re.compile(
    rf"(?:([0-9]{{1,3}}|other|alternate|second|an?|{_HOURS}) )?"
    rf"(?:{'|'.join(f'(?P<{freq}>{words})' for freq, words in _EVERY_UNITS.items())})(?:,? (?:on )?(?P<on>.+))?"
)
_SAME = {
    "half (?:an )?hour": "30 minutes", "fortnight(?:ly|s?)": "2 weeks", "quarter(?:ly|s?)": "3 months",
    "bi-?weekly(?= .)": "2 weeks", "bi-?monthly(?= .)": "2 months",  # with a day they do not mean twice
}  # fmt: skip
"""What is said as an interval."""


def parse_recurrence(text: str) -> str | None:
    """Return the RRULE of a recurrence in English words, or of five cron fields; None for other texts.

    Raises:
        ValueError: Why a recurrence is refused, for people.
    """
    plain = " ".join(text.lower().split())
    if _CRON.fullmatch(fields := _CRON_NAMES.get(plain, plain)):
        return _cron_rule(fields.split(" "))
    _check_half(plain)
    words, at = _split_times(re.sub("^(?=(?:morning|afternoon|evening|night)s)", "every ", plain))
    if at is None:
        return None
    every = _EVERY.match(words)
    rest = words[every.end() :] if every else words
    if not rest and every and at:
        return f"FREQ=DAILY{at}"
    rule = _rule_of_words(rest, is_every=every is not None)
    return None if rule is None or (at and rule.startswith(("FREQ=HOURLY", "FREQ=MINUTELY"))) else rule + at


def _split_times(text: str) -> tuple[str, str | None]:
    """Return a text without its times of day, and the parts of a rule for them; None for times that do not exist."""
    part = _EVERY_PART.search(text)
    words = text[: part.start()] if part else text
    for found in (_TIMES_LAST.search(words), _TIMES_FIRST.match(words)):
        if found and _find_clock(found["times"]) and not re.search("[0-9 ]h$", found["times"]):
            words = f"{words[: found.start()]}{words[found.end() :]}"
            break
    else:
        found = None
    if part is None and (part := _EVERY_PART.search(words)):
        words = words[: part.start()]
    if not (found or part):
        return text, ""
    in_part = _PART.search(part["part"]) if part else None
    clocks = [(_read_clock(one, is_clock=True), one) for one in _CLOCK.finditer(found["times"])] if found else []
    times = {_fit((at, one), in_part) if at else None for at, one in clocks} if found else {_fit(None, in_part)}
    known = sorted(at for at in times if at is not None)
    if len(known) < len(times):
        return words, None
    if len({at.minute for at in known}) > 1:
        raise ValueError("has times with different minutes; use one task for each")
    return words, f";BYHOUR={','.join(str(at.hour) for at in known)};BYMINUTE={known[0].minute}"


def _rule_of_words(words: str, *, is_every: bool) -> str | None:
    """Return the RRULE of words without times; `is_every` if they stood after `every`."""
    if re.fullmatch("bi-?(?:weekly|monthly|annual(?:ly)?)", words):
        raise ValueError(f"is ambiguous: {words} can mean twice in that time or every second time; say which")
    if in_week := _rule_in_week(words):
        return f"FREQ=WEEKLY;{in_week}"
    number, _, day = words.partition(" ")
    if number in ("other", "alternate") and not re.fullmatch(_WORKDAYS, day) and (in_week := _rule_in_week(day)):
        return f"FREQ=WEEKLY;INTERVAL=2;{in_week}"
    monthly = _OF_MONTH.sub("", words)
    position = _MONTHLY_DAY.fullmatch(monthly)
    if is_every and position and position[4] and monthly == words and _POSITIONS.get(position[1], 0) > 1:
        place, name = _POSITIONS[position[1]], DAY_NAMES[WEEK.index(_code(position[4]))]
        weeks = f"every other {name}" if place == 2 else f"every {place} weeks on {name}"
        raise ValueError(f"is ambiguous: it can mean the {position[1]} {name} of the month or {weeks}; say which")
    if (monthly != words or (position and position[4])) and (in_month := _rule_in_month(monthly)):
        return f"FREQ=MONTHLY;{in_month}"
    if is_every and (in_year := _rule_in_year(words)):
        return f"FREQ=YEARLY;{in_year}"
    for same, interval in _SAME.items():
        words = re.sub(f"^{same}(?![^ ])", interval, words)
    found = _INTERVAL.fullmatch(words)
    if found is None:
        return None
    number, on = found[1], found["on"]
    freq = next(freq for freq in _EVERY_UNITS if found[freq])
    if number and found[freq].endswith("ly"):
        return None
    rule = f"FREQ={freq}" + (f";INTERVAL={_EVERY_NUMBERS.get(number) or int(number)}" if number else "")
    if on is None:
        return rule
    parse = {"WEEKLY": _rule_in_week, "MONTHLY": _rule_in_month, "YEARLY": _rule_in_year}.get(freq)
    in_period = parse(on) if parse else None
    return f"{rule};{in_period}" if in_period else None


def _rule_in_month(words: str) -> str | None:
    """Return the part of a rule for days of a month, such as `the first and third monday` and `the 1st and 15th`."""
    if _MONTHLY_NUMBERS.fullmatch(words):
        return f"BYMONTHDAY={','.join(re.findall('[0-9]+', words))}"
    found = _MONTHLY_DAY.fullmatch(words)
    if found is None:
        return None
    positions = [str(_POSITIONS[one]) for one in re.findall(_POSITION, found[1])]
    if found[2]:
        return f"BYMONTHDAY={','.join(positions)}"
    if found[3]:
        return f"BYDAY={','.join(WEEK[:5])};BYSETPOS={','.join(positions)}"
    return f"BYDAY={','.join(f'{one}{_code(found[4])}' for one in positions)}"


def _rule_in_year(words: str) -> str | None:
    """Return the part of a rule for a date without a year, such as `the 25th of december` and `24.12.`."""
    leap = date(2024, 1, 1)
    _check_numeric(words, leap, is_date=True)
    found = _find(words, leap, _DATES)
    if found is None or found.match[0] != words or re.search("[0-9]{4}", words):
        return None
    return f"BYMONTH={found.days.first.month};BYMONTHDAY={found.days.first.day}"


def _rule_in_week(words: str) -> str | None:
    """Return the part of a rule for weekdays, such as `monday and thursday`, `mon-fri` and `weekends`."""
    if span := re.fullmatch(f"{_DAY} ?(?:to|through|till|-|–) ?{_DAY}", words):
        first, last = (WEEK.index(_code(name)) for name in span.groups())
        days = [WEEK[(first + number) % 7] for number in range((last - first) % 7 + 1)]
    elif re.fullmatch(f"{_WORKDAYS}|weekends?", words):
        days = list(WEEK[5:] if words.startswith("weekend") else WEEK[:5])
    else:
        names = re.split(_AND, words)
        if len(names) > 7 or not all(re.fullmatch(_DAY, name) for name in names):
            return None
        days = sorted({_code(name) for name in names}, key=WEEK.index)
    return f"BYDAY={','.join(days)}"


def _code(day: str) -> str:
    return day[:2].upper()


# Cron

_CRON_NAMES = {
    "@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
}  # fmt: skip
_CRON = re.compile(r"[0-9*][0-9*/,-]* [0-9*][0-9*/,-]*(?: (?:[0-9*?l]|[a-z]{3}(?![a-z]))[0-9a-z*/,#?-]*){3,5}")
_CRON_FIELDS: Sequence[tuple[str, int, int, Mapping[str, int]]] = (
    ("minute", 0, 59, {}), ("hour", 0, 23, {}), ("day of month", 1, 31, {}),
    ("month", 1, 12, {name[:3].lower(): number for number, name in enumerate(MONTH_NAMES, 1)}),
    ("day of week", 0, 7, {name[:3].lower(): number % 7 for number, name in enumerate(DAY_NAMES, 1)}),
)  # fmt: skip


def _cron_rule(fields: Sequence[str]) -> str:
    """Return the RRULE that runs at exactly the times of cron fields."""
    if len(fields) != 5:
        raise ValueError(f"has {len(fields)} cron fields; use five: minute, hour, day of month, month, day of week")
    minutes, hours, days, months, weekdays = (
        _cron_values(field, *about) for field, about in zip(fields, _CRON_FIELDS, strict=True)
    )
    if days and weekdays:
        raise ValueError(
            "has a day of month and a day of week, and cron runs on days that fit one of them; use one task for each"
        )
    names = list(dict.fromkeys(WEEK[(day - 1) % 7] for day in weekdays or ()))
    parts = {"BYMONTH": months, "BYMONTHDAY": days, "BYDAY": names, "BYHOUR": hours, "BYMINUTE": minutes or range(60)}
    freq = "HOURLY" if hours is None else "WEEKLY" if weekdays else "MONTHLY" if days else "DAILY"
    return f"FREQ={freq}" + "".join(f";{name}={','.join(map(str, all))}" for name, all in parts.items() if all)


def _cron_values(field: str, name: str, low: int, high: int, names: Mapping[str, int]) -> Sequence[int] | None:
    """Return the numbers of a field; None for `*`."""
    if field in ("*", "*/1"):
        return None
    values = set[int]()
    for piece in field.split(","):
        found = re.fullmatch(r"(?:\*|(\w+)(?:-(\w+))?)(?:/([0-9]{1,2}))?", piece)
        first, last = (
            names.get(text, int(text) if text.isdecimal() else -1)
            for text in ((found[1] or str(low), found[2] or found[1] or str(high)) if found else ("", ""))
        )
        step = int(found[3]) if found and found[3] else 1
        if found is None or not low <= first <= last <= high or (found[3] and found[1] and not found[2]):
            raise ValueError(
                f"has the cron field {field[:20]} as {name}, which is not supported; use numbers from {low} to {high}, "
                "lists, ranges and steps"
            )
        if not 1 <= step <= max(last - first, 1):
            raise ValueError(f"has a step of {step} as {name}, and cron starts again at {low}; use a smaller step")
        values.update(range(first, last + 1, step))
    return sorted(values)
