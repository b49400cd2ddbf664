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
_HOURS = tuple(COUNTS)[:12]
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
    """A date can be read in two ways; the message names both, for people."""


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


# Days

_Reader = Callable[[re.Match[str], date], Period | None]
_NAME = r"([^\W\d_]{3,12})"
_ORDINAL = r"([0-9]{1,2})(?:st|nd|rd|th|er|\.)?"
_YEAR_FIRST = re.compile(
    r"(?<![\w./-])([0-9]{4})([-/.])([0-9]{1,2})\2([0-9]{1,2})(?:t(?=[0-9]{2}:)|(?![\w/-]|\.[0-9]))"
)
_DOTTED = re.compile(r"(?<![\w./-])([0-9]{1,2})\. ?([0-9]{1,2})\.(?: ?([0-9]{4}))?(?![0-9])")
_DOTTED_SHORT = re.compile(r"(?<![\w./-])([0-9]{1,2})\.([0-9]{1,2})\.([0-9][0-9])(?![\w./-])")
_NUMERIC = re.compile(r"(?<![\w./-])([0-9]{1,2})([/-])([0-9]{1,2})(?:\2([0-9]{4}|[0-9][0-9]))?(?![\w/-]|[.:][0-9])")
_DAY_MONTH = re.compile(rf"\b(?:the )?{_ORDINAL} ?(?:of |de )?{_NAME}\b\.?,?(?: (?:de )?([0-9]{{4}})\b)?")
_MONTH_DAY = re.compile(rf"\b{_NAME}\.? ([0-9]{{1,2}})(?:st|nd|rd|th)?\b(?:,? ([0-9]{{4}})\b)?(?![:.][0-9])")
_MONTH_ALONE = re.compile(rf"\b(?:in|im|en|for|this|next|diesen|nächsten|de|since|until|of) {_NAME}\b")
_DAY_ALONE = re.compile(r"^(?:the )?([0-9]{1,2})(?:st|nd|rd|th|er|\.)?$")
_COUNT = rf"([0-9]{{1,6}}|{'|'.join(sorted(COUNTS, key=len, reverse=True))})"
_LONG_UNIT = rf"({'|'.join(_UNITS[unit] for unit in ('day', 'week', 'month', 'year'))})"
_SHORT_UNIT = "|".join(_UNITS[unit] for unit in ("second", "minute", "hour"))
_IN = "(?:in|dans|en|dentro de|fra|tra|over|em|za)"
_AHEAD_DAYS = re.compile(rf"\b{_IN} {_COUNT} {_LONG_UNIT}(?!\w)|\b{_COUNT} {_LONG_UNIT} from now\b")
_AHEAD = re.compile(
    rf"\b{_IN} (half an?|einer halben|une demi|media|{_COUNT}) ?-?({_SHORT_UNIT})(?!\w)"
    rf"(?:,? (?:and |und |et |y )?{_COUNT} ?({_UNITS['minute']})(?!\w))?"
    rf"|\b{_COUNT} ({_SHORT_UNIT}) from now\b"
)
_COMING_DAYS = re.compile(
    rf"\b(?:next|coming|nächsten|kommenden|prochaine?s|próxim[oa]s) {_COUNT} {_LONG_UNIT}(?!\w)"
    rf"|\b{_COUNT} prochaine?s (jours)\b"
)
_AFTER_TOMORROW = "(?:the )?day after tomorrow|übermorgen|après-demain|pasado mañana|dopodomani|overmorgen|pojutrze"
_BEFORE_YESTERDAY = "(?:the )?day before yesterday|vorgestern|avant-hier|anteayer"
_TODAY = (
    "today|tonight|heute|aujourd'hui|hoy|this(?= (?:morning|afternoon|evening|night))|ce(?= (?:matin|soir))"
    "|cet(?= après-midi)|cette(?= nuit)|esta(?= (?:mañana|tarde|noche))|right now|(?<!from )now|oggi|vandaag|hoje"
    "|dziś|dzisiaj"
)
_TOMORROW = (
    "tomorrow|tmrw|tomorow|demain|(?<!am )(?<!guten )morgen(?:s|früh|vormittag|nachmittag|abend)?|(?<!la )mañana|domani"
    "|amanhã|jutro"
)
_YESTERDAY = "yesterday|gestern|ayer|anoche|last(?= night)|d'hier|hier(?= (?:soir|matin))"
_LAST, _NEXT, _THIS = (
    "last|past|letzte[nrs]?|dernière?|pasad[oa]",
    "next|coming|following|nächste[nrs]?|kommende[nrs]?|prochaine?|próxim[oa]",
    "this|diese[nrs]?|ce|cette|est[ea]",
)
_WEEK = "week|woche|semaine|semana"
_MONTH = "month|monat|mois|mes"
_WEEKEND = "week-?end|wochenende|fin de semana"
_WEEKDAY = re.compile(
    rf"\b(?:(?P<week>next|this) week,? (?:on )?)?(?:(?P<before>{_LAST}|{_NEXT}|{_THIS}|on) )?"
    rf"(?P<day>{'|'.join(sorted(WEEKDAYS, key=len, reverse=True))})"
    r"(?:(?=(?:vormittag|nachmittag|abend|morgen|nacht|mittag)s?\b)|(?![\w-])"
    rf"(?:,? (?:of )?(?P<of>next|this) week\b| (?P<after>{_LAST}|{_NEXT}|que viene)\b)?)"
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


def _words(words: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w)(?:{words})(?!\w)")


def _relative(which: str, unit: str) -> re.Pattern[str]:
    """Return the pattern of `next week`, `la semaine prochaine` and `la semana que viene`."""
    after = f"{which}|que viene" if which == _NEXT else which
    return re.compile(rf"\b(?:(?:{which}) (?:{unit})|(?:{unit}) (?:{after}))\b(?!-)")


def _one(day: date) -> Period:
    return Period(day, day)


def _offset(days: int) -> _Reader:
    return lambda found, today: _one(today + timedelta(days))


def _week(weeks: int, first: int = 0) -> _Reader:
    """Read a week, or its end from a weekday on; what has passed of this week does not count."""

    def read(found: re.Match[str], today: date) -> Period:
        monday = today + timedelta(7 * weeks - today.weekday())
        begin = monday + timedelta(first)
        return Period(begin if weeks else max(begin, today), monday + timedelta(6))

    return read


def _month(months: int) -> _Reader:
    def read(found: re.Match[str], today: date) -> Period:
        begin = _add_months(today.replace(day=1), months)
        return Period(begin if months else today, _end_month(begin))

    return read


def _read_year_first(found: re.Match[str], today: date) -> Period | None:
    """Read all dates of a text that begin with a year, at its first date."""
    if _YEAR_FIRST.search(found.string, 0, found.start()):
        return None
    dates = [tuple(map(int, one.group(1, 3, 4))) for one in _YEAR_FIRST.finditer(found.string)]
    days = [day for one in dates if (day := _make_day(*one))]
    return Period(min(days), max(days)) if days else None


def _read_numeric(found: re.Match[str], today: date) -> Period | None:
    """Read a date with one reading, such as `13/4`."""
    if (found[2] == "-" and not found[4]) or found[0] == "24/7":
        return None
    readings = _readings(found, today)
    return _one(readings[0]) if len(readings) == 1 else None


def _readings(found: re.Match[str], today: date) -> Sequence[date]:
    """Return the days that numbers with `/` or `-` can be: day first, month first, or the last two digits of a year."""
    one, two, three = found[1], found[3], found[4]
    year = f"20{three}" if three and len(three) == 2 else three
    found_days = [_next_date(int(one), int(two), year, today), _next_date(int(two), int(one), year, today)]
    if three and len(three) == 2 and len(one) == 2:
        found_days.append(_next_date(int(three), int(two), f"20{one}", today))
    return list(dict.fromkeys(day.first for day in found_days if day))


def _check_numeric(text: str, today: date, *, is_date: bool = False) -> None:
    """Refuse numbers that can be two dates.

    Args:
        is_date: The text has nothing else, so that `3-4` is no range.

    Raises:
        AmbiguousDate: With both dates.
    """
    for found in _NUMERIC.finditer(text):
        readings = _readings(found, today)
        if len(readings) > 1 and (is_date or found[2] == "/" or found[4]):
            days = [f"{day.day} {MONTH_NAMES[day.month - 1]}{f' {day.year}' if found[4] else ''}" for day in readings]
            raise AmbiguousDate(f"{found[0]} can mean {days[0]} or {days[1]}; write the month as a word")


def _read_dotted(found: re.Match[str], today: date) -> Period | None:
    year = found[3] and (found[3] if len(found[3]) == 4 else f"20{found[3]}")
    return _next_date(int(found[1]), int(found[2]), year, today)


def _read_day_month(found: re.Match[str], today: date) -> Period | None:
    month = MONTHS.get(found[2])
    return _next_date(int(found[1]), month, found[3], today) if month else None


def _read_month_day(found: re.Match[str], today: date) -> Period | None:
    month = MONTHS.get(found[1])
    return _next_date(int(found[2]), month, found[3], today) if month else None


def _read_month(found: re.Match[str], today: date) -> Period | None:
    month = MONTHS.get(found[1])
    is_in_date = re.search("[0-9][a-z.]{0,2} $", found.string[: found.start()][-5:])  # the 31st of February
    if month is None or is_in_date or found[1] in ("mar", "sept"):
        return None
    begin = date(today.year + (month < today.month), month, 1)
    return Period(max(begin, today), _end_month(begin))


def _read_ahead_days(found: re.Match[str], today: date) -> Period | None:
    return _ahead_of(found[1] or found[3], found[2] or found[4], today)


def _read_coming_days(found: re.Match[str], today: date) -> Period | None:
    end = _ahead_of(found[1] or found[3], found[2] or found[4], today)
    return Period(today, end.first) if end else None


def _ahead_of(count: str, unit: str, today: date) -> Period | None:
    number = _count(count)
    try:
        match _unit(unit):
            case "day":
                return _one(today + timedelta(number))
            case "week":
                return _one(today + timedelta(7 * number))
            case "month":
                return _one(_add_months(today, number))
            case _:
                return _one(_add_months(today, 12 * number))
    except (OverflowError, ValueError):
        return None


def _read_weekday(found: re.Match[str], today: date) -> Period | None:
    begin, end = found.span("day")
    is_sure = re.match(_AFTER_MON, found.string[end : end + 12]) or re.search(_BEFORE_MON, found.string[:begin][-8:])
    if found["day"] == "mon" and not is_sure:  # French: my
        return None
    ahead = (WEEKDAYS[found["day"]] - today.weekday()) % 7
    before, after = found["before"] or "", found["after"] or ""
    if week := found["week"] or found["of"]:
        return _one(today + timedelta(WEEKDAYS[found["day"]] - today.weekday() + 7 * (week == "next")))
    if re.fullmatch(_LAST, before) or re.fullmatch(_LAST, after):
        return _one(today - timedelta((7 - ahead) % 7 or 7))
    is_next = re.fullmatch(_NEXT, before) or re.fullmatch(f"{_NEXT}|que viene", after)
    return _one(today + timedelta(7 if is_next and not ahead else ahead))


def _read_range(found: re.Match[str], today: date) -> Period | None:
    """Read the days from the first to the last one that a text names."""
    last = _find(found["last"] or found["other"], today, _NAMED_DAYS)
    if last is None:
        return None
    if alone := _DAY_ALONE.match(found["first"] or found["day"]):
        first = _make_day(last.days.last.year, last.days.last.month, int(alone[1]))
    else:
        named = _find(found["first"] or found["day"], today, _NAMED_DAYS)
        first = named and named.days.first
    if first is None:
        return None
    end = last.days.last
    if end < first <= end + timedelta(7):  # Friday to Monday
        end += timedelta(7)
    return Period(first, end) if first <= end else None


_Forms = Sequence[tuple[re.Pattern[str], _Reader]]
_DATES: _Forms = (
    (_YEAR_FIRST, _read_year_first),
    (_DOTTED, _read_dotted),
    (_NUMERIC, _read_numeric),
    (_DAY_MONTH, _read_day_month),
    (_MONTH_DAY, _read_month_day),
)
_NAMED_DAYS: _Forms = (*_DATES, (_MONTH_ALONE, _read_month), (_WEEKDAY, _read_weekday))
_FORMS: _Forms = (
    (_YEAR_FIRST, _read_year_first),
    (_RANGE, _read_range),
    *_DATES,
    (_MONTH_ALONE, _read_month),
    (_words(_AFTER_TOMORROW), _offset(2)),
    (_words(_BEFORE_YESTERDAY), _offset(-2)),
    (_words(_TODAY), _offset(0)),
    (_COMING_DAYS, _read_coming_days),
    (_AHEAD_DAYS, _read_ahead_days),
    (_WEEKDAY, _read_weekday),
    (_words(_TOMORROW), _offset(1)),
    (_words(_YESTERDAY), _offset(-1)),
    (_relative(_NEXT, _WEEKEND), _week(1, 5)),
    (_relative(_LAST, _WEEKEND), _week(-1, 5)),
    (re.compile(rf"\b(?:(?:{_THIS}) )?(?:{_WEEKEND})\b"), _week(0, 5)),
    (_relative(_NEXT, _WEEK), _week(1)),
    (_relative(_LAST, _WEEK), _week(-1)),
    (re.compile(rf"\b(?:(?:{_THIS}) )?(?:{_WEEK})\b"), _week(0)),
    (_relative(_NEXT, _MONTH), _month(1)),
    (_relative(_LAST, _MONTH), _month(-1)),
    (_relative(_THIS, _MONTH), _month(0)),
)
"""What names days, in the order in which a sentence is searched; the first that it has counts."""
_ROLLING = (_WEEKDAY, _DOTTED, _NUMERIC, _DAY_MONTH, _MONTH_DAY)
"""Forms that mean the next such day, and so not today if its time has passed."""


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


def _next_date(day: int, month: int, year: str | None, today: date) -> Period | None:
    """Return a date; without a year, the next one from today on."""
    for number in [int(year)] if year else range(today.year, min(today.year + 9, 9999)):
        found = _make_day(number, month, day)
        if found and (year or found >= today):
            return _one(found)
    return None


def _make_day(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None


def _add_months(day: date, months: int) -> date:
    """Return the same day of a later month, or its last day.

    Raises:
        ValueError: The year does not exist.
    """
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    if not 1 <= year <= 9999:
        raise ValueError("a year that does not exist")
    return date(year, month + 1, min(day.day, monthrange(year, month + 1)[1]))


def _end_month(day: date) -> date:
    return day.replace(day=monthrange(day.year, day.month)[1])


def _count(word: str) -> int:
    return int(word) if word.isdecimal() else COUNTS[word]


def _unit(word: str) -> str:
    return next(unit for unit, pattern in _UNITS.items() if re.fullmatch(pattern, word))


# Times of day

_AT = "at|um|gegen|à|a las?|alle|om|às"
_SHIFT = "(?:half|(?:a )?quarter) (?:past|after|to)"
_CLOCK = re.compile(
    rf"(?<![\w.,:/-])(?:(?P<at>{_AT}) )?(?:(?P<shift>{_SHIFT}) )?"
    r"(?:(?P<named>noon|midday|mittags?|midi|mediodía|midnight|mitternacht|minuit|medianoche)"
    rf"|(?P<hour>[0-9]{{1,2}}|{'|'.join(_HOURS)})(?:(?P<sep>[:.h])(?P<minute>[0-9][0-9]))?"
    r"(?: ?(?P<half>[ap]\.?m\b\.?|uhr\b|h\b|o'?clock\b|heures\b|horas\b|uur\b))?)(?!\w|[.,:/-][0-9]|-)"
)
_BARE = re.compile(r"(?<![\w.,:/-])(?P<hour>[0-9]{1,2})(?![\w.,:/-])")
_SHIFTS = {"half past": 30, "half after": 30, "quarter past": 15, "quarter after": 15, "quarter to": -15}
"""What stands before an hour, in minutes. `half 8` is no time: it means 7:30 or 8:30."""
_MIDNIGHTS = ("midnight", "mitternacht", "minuit", "medianoche")


def _read_clock(found: re.Match[str], *, is_clock: bool = False) -> time | None:
    """Return a time that has a sign of one: minutes, `am`, `Uhr`, or the word `at` before it.

    Args:
        is_clock: Read it without a sign, too.
    """
    shift = _SHIFTS.get(found["shift"].removeprefix("a ")) if found["shift"] else 0
    if shift is None or (shift and found["minute"]):
        return None
    if found["named"]:
        return _shift(time(0 if found["named"] in _MIDNIGHTS else 12), shift)
    half = (found["half"] or "").replace(".", "")
    if not (found["at"] or shift or is_clock):
        if not (found["minute"] or half) or (found["sep"] == "." and not half):
            return None
        if half in ("heures", "horas", "uur"):  # may be a duration
            return None
    hour = int(found["hour"]) if found["hour"].isdecimal() else COUNTS[found["hour"]]
    if half in ("am", "pm"):
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if half == "pm" else 0)
    minute = int(found["minute"] or 0)
    return _shift(time(hour, minute), shift) if hour < 24 and minute < 60 else None


def _shift(at: time, minutes: int) -> time:
    return (datetime.combine(date.min + timedelta(days=1), at) + timedelta(minutes=minutes)).time()


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
        AmbiguousDate: The text has a date such as `3/4`.
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
    if lowered == "now":
        return _of(now)
    if ahead := _AHEAD.fullmatch(lowered):
        return _of_ahead(ahead, now)
    _check_numeric(lowered, now.date())
    day = _find(lowered, now.date(), (*_FORMS, (_DOTTED_SHORT, _read_dotted)))
    if day is None:
        _check_numeric(lowered, now.date(), is_date=True)
    rest = _blank(lowered, day.match) if day else lowered
    clock = _find_clock(rest)
    if clock is None and day is not None:
        clock = next(((at, found) for found in _BARE.finditer(rest) if (at := _hour(found[0]))), None)
    elif clock is not None and day is None and re.fullmatch(r"[0-9]+ ?h", lowered):
        return None  # may be a duration
    rest = _blank(rest, clock[1]) if clock else rest
    part = _PART.search(lowered)
    rest = _blank(rest, part) if part else rest
    at = _fit(clock, part)
    if day and (name := _named_weekday(lowered, day)):
        rest = _blank(rest, name)
    if (day is None and clock is None) or ((clock or part) and at is None) or _FILLER.sub("", rest).strip(" ,."):
        return None
    return _settle(day, at, now)


def find_time(message: str, now: datetime) -> When | None:
    """Return the days and the time that a sentence names, in English, German, French or Spanish; None without a day.

    Raises:
        AmbiguousDate: It names no other day than one such as `3/4`.
    """
    text = " ".join(message[:MAX_MESSAGE].lower().replace("’", "'").split())
    if day := _find(text, now.date(), _FORMS):
        _named_weekday(text, day)
        clock, part = _find_clock(_blank(text, day.match)), _PART.search(text)
        return _settle(day, _fit(clock, part), now)
    _check_numeric(text, now.date())
    if ahead := _AHEAD.search(text):
        return _of_ahead(ahead, now)
    return None


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
    lowered = " ".join(text[:MAX_TIME].lower().split())
    return bool(_AHEAD.fullmatch(lowered) or _AHEAD_DAYS.fullmatch(lowered))


def is_time_of_day(text: str) -> bool:
    """Whether a text is a time without a date, such as `9:30` and `at 9`."""
    lowered = " ".join(text[:MAX_TIME].lower().split())
    return bool(_CLOCK.fullmatch(lowered) or _BARE.fullmatch(lowered))


def _named_weekday(text: str, day: _Found) -> re.Match[str] | None:
    """Return the weekday before a date: `Friday, 3 April`.

    Raises:
        AmbiguousDate: The date is on another one.
    """
    begin = day.match.start()
    is_date = any(day.read is read for _, read in _DATES)
    name = _WEEKDAY_BEFORE.search(text, max(0, begin - 40), begin) if is_date else None
    if name and WEEKDAYS[name[1]] != day.days.first.weekday():
        is_on = DAY_NAMES[day.days.first.weekday()]
        raise AmbiguousDate(f"{day.days.first} is a {is_on}, not a {DAY_NAMES[WEEKDAYS[name[1]]]}; write only the date")
    return name


def _blank(text: str, found: re.Match[str]) -> str:
    return f"{text[: found.start()]}{' ' * len(found[0])}{text[found.end() :]}"


def _find_clock(text: str) -> tuple[time, re.Match[str]] | None:
    return next(((at, found) for found in _CLOCK.finditer(text) if (at := _read_clock(found))), None)


def _hour(digits: str) -> time | None:
    return time(int(digits)) if int(digits) < 24 else None


def _fit(clock: tuple[time, re.Match[str]] | None, part: re.Match[str] | None) -> time | None:
    """Return a time of day with its part of the day; None for none, or if the part does not have the time."""
    if clock is None or part is None:
        return clock[0] if clock else _PARTS[str(part.lastgroup)][0] if part else None
    at, found = clock
    if part.lastgroup == "morning":
        return at if at.hour < 12 else None
    has_half = (found.groupdict().get("half") or "").startswith(("a", "p"))
    if not has_half and at.hour < 12 and (part.lastgroup != "night" or at.hour >= 6):
        at = at.replace(hour=at.hour + 12)
    fits = {"afternoon": 12 <= at.hour < 19, "evening": at.hour >= 16, "night": at.hour >= 18 or at.hour < 6}
    return at if fits[str(part.lastgroup)] else None


def _settle(day: _Found | None, at: time | None, now: datetime) -> When:
    """Return days with a time. Without a day, or on a day such as `Friday`, a time that has passed is the next one."""
    if day is None:
        assert at is not None
        return next_time(at, now)
    days = day.days
    is_past = at is not None and days.first == now.date() and at <= now.time()
    if is_past and day.match.re in _ROLLING and not re.match(_THIS, day.match[0]):
        days = day.read(day.match, now.date() + timedelta(days=1)) or days
    return When(days.first, days.last, at)


def _of(moment: datetime) -> When:
    return When(moment.date(), moment.date(), moment.timetz())


def _of_ahead(found: re.Match[str], now: datetime) -> When | None:
    """Return a time after an exact number of seconds, minutes or hours, whatever the clocks do."""
    amount, unit = (found[1], found[3]) if found[1] else (found[6], found[7])
    seconds = {"second": 1, "minute": 60, "hour": 3600}[_unit(unit)]
    is_half = not (amount.isdecimal() or amount in COUNTS)
    if (is_half or found[4]) and seconds != 3600:
        return None
    length = timedelta(
        minutes=_count(found[4]) if found[4] else 0, seconds=1800 if is_half else seconds * _count(amount)
    )
    return _of((now.astimezone(UTC) + length).astimezone(now.tzinfo))


# Recurrences

_WORKDAYS = "weekdays?|work(?:ing)? ?days?|business days?"
_DAY = "(mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?s?"
_POSITIONS = {**_numbered(1, "first second third fourth fifth", "1st 2nd 3rd 4th 5th"), "last": -1}
_AND = "(?:, and |, | and )(?:the |at )?"
_POSITION = "|".join(_POSITIONS)
_MONTHLY_DAY = re.compile(rf"(?:the )?((?:{_POSITION})(?:{_AND}(?:{_POSITION}))*) (?:(days?)|({_WORKDAYS})|{_DAY})")
_MONTHLY_NUMBERS = re.compile(rf"(?:the )?[0-9]{{1,2}}(?:st|nd|rd|th)?(?:{_AND}[0-9]{{1,2}}(?:st|nd|rd|th)?)*")
_OF_MONTH = re.compile(" (?:(?:of |in )?(?:the|each|every|a) month|monthly)$")
_EVERY_TIME = (
    rf"(?:{_SHIFT} )?(?:noon|midday|midnight|(?:{'|'.join(_HOURS)}|[0-9]{{1,2}}(?:[:.][0-9]{{2}})?)"
    r"(?: ?[ap]\.?m\.?)?(?: o'clock)?)"
)
_EVERY_TIMES = rf"(?P<at>at )?(?P<times>{_EVERY_TIME}(?:{_AND}{_EVERY_TIME})*)"
_TIMES_LAST, _TIMES_FIRST = re.compile(rf"(?:^|,? ){_EVERY_TIMES}$"), re.compile(rf"{_EVERY_TIMES}(?:,? |$)")
_IS_TIME = re.compile(r"[:]|past|after|to |[ap]\.?m\b|noon|midday|midnight|o'clock")
_EVERY_PART = re.compile(r"(?:^| )(?:in the )?(?P<part>(?:morning|afternoon|evening|night)s?)$")
_EVERY = re.compile("(?:on )?(?:every|each)(?: |$)|once (?:a|an|every|per) |on ")
_EVERY_UNITS = {
    "MINUTELY": "minutes?|mins?", "HOURLY": "hours?|hrs?|hourly", "DAILY": "days?|daily", "WEEKLY": "weeks?|weekly",
    "MONTHLY": "months?|monthly", "YEARLY": "years?|yearly|annually",
}  # fmt: skip
_EVERY_NUMBERS = {"other": 2, "second": 2, "a": 1} | {word: COUNTS[word] for word in _HOURS}
_INTERVAL = re.compile(
    rf"(?:([0-9]{{1,3}}|{'|'.join(_EVERY_NUMBERS)}) )?({'|'.join(_EVERY_UNITS.values())})(?:,? (?:on )?(?P<on>.+))?"
)
_WORDS_OF_RULES = {
    "half hour": "FREQ=MINUTELY;INTERVAL=30", "half an hour": "FREQ=MINUTELY;INTERVAL=30",
    "fortnightly": "FREQ=WEEKLY;INTERVAL=2", "quarterly": "FREQ=MONTHLY;INTERVAL=3",
}  # fmt: skip


def parse_recurrence(text: str) -> str | None:
    """Return the RRULE of a recurrence in English words, or of five cron fields; None for other texts.

    Raises:
        ValueError: Why a recurrence is refused, for people.
    """
    plain = " ".join(text.lower().split())
    if fields := _cron_fields(plain):
        return _cron_rule(fields)
    words, at = _split_times(re.sub("^(?=(?:morning|afternoon|evening|night)s)", "every ", plain))
    if at is None:
        return None
    every = _EVERY.match(words)
    rest = words[every.end() :] if every else words
    rule = _rule_of_words(rest, is_every=every is not None, has_time=bool(at))
    return None if rule is None or (at and rule.startswith(("FREQ=HOURLY", "FREQ=MINUTELY"))) else rule + at


def _split_times(text: str) -> tuple[str, str | None]:
    """Return a text without its times of day, and the parts of a rule for them; None for times that do not exist.

    Raises:
        ValueError: The times have different minutes.
    """
    part = _EVERY_PART.search(text)
    words = text[: part.start()] if part else text
    found = next((one for one in (_TIMES_LAST.search(words), _TIMES_FIRST.match(words)) if one and _is_time(one)), None)
    words = f"{words[: found.start()]}{words[found.end() :]}" if found else words
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


def _is_time(found: re.Match[str]) -> bool:
    return bool(found["at"] or _IS_TIME.search(found["times"]))


def _rule_of_words(words: str, *, is_every: bool, has_time: bool) -> str | None:
    """Return the RRULE of words without times.

    Args:
        is_every: The words stood after `every`.

    Raises:
        ValueError: They have two meanings.
    """
    if not words:
        return "FREQ=DAILY" if is_every and has_time else None
    if words in _WORDS_OF_RULES:
        return _WORDS_OF_RULES[words]
    if days := _parse_days(words):
        return f"FREQ=WEEKLY;BYDAY={days}"
    other = words.removeprefix("other ").removeprefix("alternate ")
    if other != words and not re.fullmatch(_WORKDAYS, other) and (days := _parse_days(other)):
        return f"FREQ=WEEKLY;INTERVAL=2;BYDAY={days}"
    if on_days := re.fullmatch("bi(weekly|monthly)(?: on)? (.+)", words):  # not twice, on one day
        return _rule_of_interval(f"2 {on_days[1].removesuffix('ly')}s on {on_days[2]}")
    if re.fullmatch("bi(?:weekly|monthly|annual(?:ly)?)", words):
        raise ValueError(f"is ambiguous: {words} can mean twice in that time or every second time; say which")
    monthly = _OF_MONTH.sub("", words)
    position = _MONTHLY_DAY.fullmatch(monthly)
    if position and position[4] and monthly == words and is_every and position[1] in _POSITIONS:
        number, day_name = _POSITIONS[position[1]], DAY_NAMES[_find_day(position[4])]
        if number > 1:
            weeks = f"every other {day_name}" if number == 2 else f"every {number} weeks on {day_name}"
            raise ValueError(
                f"is ambiguous: it can mean the {position[1]} {day_name} of the month or {weeks}; say which"
            )
    if (monthly != words or (position and position[4])) and (rule := _rule_in_month(monthly)):
        return f"FREQ=MONTHLY;{rule}"
    if is_every and (day := _find_date_without_year(words)):
        return f"FREQ=YEARLY;BYMONTH={day.month};BYMONTHDAY={day.day}"
    return _rule_of_interval(words)


def _rule_of_interval(words: str) -> str | None:
    found = _INTERVAL.fullmatch(words)
    if found is None:
        return None
    number, unit, on = found[1], found[2], found["on"]
    freq = next(freq for freq, pattern in _EVERY_UNITS.items() if re.fullmatch(pattern, unit))
    interval = (_EVERY_NUMBERS.get(number) or int(number)) if number else 1
    if number and unit.endswith("ly"):
        return None
    rule = f"FREQ={freq}" + (f";INTERVAL={interval}" if number else "")
    if on is None:
        return rule
    if freq == "WEEKLY" and (days := _parse_days(on)):
        return f"{rule};BYDAY={days}"
    if freq == "MONTHLY" and (in_month := _rule_in_month(on)):
        return f"{rule};{in_month}"
    if freq == "YEARLY" and (day := _find_date_without_year(on)):
        return f"{rule};BYMONTH={day.month};BYMONTHDAY={day.day}"
    return None


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
    return f"BYDAY={','.join(f'{one}{WEEK[_find_day(found[4])]}' for one in positions)}"


def _parse_days(text: str) -> str:
    """Return "MO,TH" for "monday and thursday"; empty for other words."""
    if re.fullmatch(_WORKDAYS, text):
        return ",".join(WEEK[:5])
    if text in ("weekend", "weekends"):
        return ",".join(WEEK[5:])
    if span := re.fullmatch(f"{_DAY} ?(?:to|through|till|-|–) ?{_DAY}", text):
        first, last = _find_day(span[1]), _find_day(span[2])
        return ",".join(WEEK[(first + number) % 7] for number in range((last - first) % 7 + 1))
    names = re.split(_AND, text)
    days = [re.fullmatch(_DAY, name) for name in names]
    if len(names) > 7 or not all(days):
        return ""
    return ",".join(WEEK[number] for number in sorted({_find_day(day[1]) for day in days if day}))


def _find_day(name: str) -> int:
    return [day[:3].lower() for day in DAY_NAMES].index(name[:3])


def _find_date_without_year(words: str) -> date | None:
    """Return a date in a leap year for `the 25th of december` and `24.12.`.

    Raises:
        AmbiguousDate: Such as `3/4`.
    """
    leap = date(2024, 1, 1)
    _check_numeric(words, leap, is_date=True)
    found = _find(words, leap, _DATES)
    has_year = found and re.search("[0-9]{4}", words)
    return found.days.first if found and not has_year and found.match[0] == words else None


# Cron

_CRON_NAMES = {
    "@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
}  # fmt: skip
_CRON_MONTHS = {name[:3].lower(): number for number, name in enumerate(MONTH_NAMES, 1)}
_CRON_DAYS = {name[:3].lower(): number % 7 for number, name in enumerate(DAY_NAMES, 1)}
_CRON_NAME = "|".join((*_CRON_MONTHS, *_CRON_DAYS))
_CRON = re.compile(
    rf"[0-9*][0-9*/,-]* [0-9*][0-9*/,-]*((?: (?:[0-9*?l]|{_CRON_NAME})(?:[0-9*/,#?lw-]|{_CRON_NAME})*){{3,5}})"
)
_CRON_FIELDS: Sequence[tuple[str, int, int, Mapping[str, int]]] = (
    *(("minute", 0, 59, {}), ("hour", 0, 23, {}), ("day of month", 1, 31, {})),
    *(("month", 1, 12, _CRON_MONTHS), ("day of week", 0, 7, _CRON_DAYS)),
)


def _cron_fields(text: str) -> Sequence[str] | None:
    text = _CRON_NAMES.get(text, text)
    return text.split(" ") if _CRON.fullmatch(text) else None


def _cron_rule(fields: Sequence[str]) -> str:
    """Return the RRULE of cron fields.

    Raises:
        ValueError: No RRULE runs at exactly the same times.
    """
    if len(fields) != 5:
        raise ValueError(f"has {len(fields)} cron fields; use five: minute, hour, day of month, month, day of week")
    minutes, hours, days, months, weekdays = (
        _cron_values(field, *about) for field, about in zip(fields, _CRON_FIELDS, strict=True)
    )
    if days and weekdays:
        raise ValueError(
            "has a day of month and a day of week, and cron runs on days that fit one of them; use one task for each"
        )
    parts = {
        "BYMONTH": months,
        "BYMONTHDAY": days,
        "BYDAY": list(dict.fromkeys(WEEK[(day - 1) % 7] for day in weekdays)) if weekdays else None,
        "BYHOUR": hours,
        "BYMINUTE": minutes or range(60),
    }
    freq = "HOURLY" if hours is None else "WEEKLY" if weekdays else "MONTHLY" if days else "DAILY"
    return f"FREQ={freq}" + "".join(f";{name}={','.join(map(str, all))}" for name, all in parts.items() if all)


def _cron_values(field: str, name: str, low: int, high: int, names: Mapping[str, int]) -> Sequence[int] | None:
    """Return the numbers of a field; None for `*`."""
    if field in ("*", "*/1"):
        return None
    values = set[int]()
    for piece in field.split(","):
        found = re.fullmatch(r"(?:\*|(\w+)(?:-(\w+))?)(?:/([0-9]{1,2}))?", piece)
        first = _cron_number(found[1], names) if found and found[1] else low
        last = high if found and not found[1] else _cron_number(found[2], names) if found and found[2] else first
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


def _cron_number(text: str, names: Mapping[str, int]) -> int:
    return names.get(text, int(text) if text.isdecimal() else -1)
