"""Makes the parameters of assisted calls: list events, or find free time."""

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from brain import AssistContext, Refused
from specialists._kit.requests import compile_requests
from specialists._kit.text import word_set

_READS_ONLY = (
    "With this model, Brain only reads your calendar. Make the change in your calendar app, or choose a larger model."
)
_CHANGES = compile_requests(
    "put add schedule(?!_(?:for|of|on|today|tomorrow|this|next)) book(?!_(?:club|fair)) cancel move push reschedule "
    "postpone plan(?!_(?:for|of)) create delete remove set make enter note block invite rename shift change insert "
    "mark trage? füge? verschiebe? lösche? streiche? sage?(?=[^.?!]{1,80}\\bab\\b) plane erstelle? buche? "
    "lege?(?=[^.?!]{1,80}\\ban\\b) notiere? setze? mache? ändere? verlege? reserviere? vereinbare? ajoute[rz]? mets "
    "mett(?:ez|re) crée[rz]? supprime[rz]? annule[rz]? déplace[rz]? reporte[rz]? décale[rz]? note[rz]? planifie[rz]? "
    "programme[rz]?(?!_d[eu]) inscri(?:s|re) bloque[rz]? réserve[rz]? modifie[rz]? enregistre[rz]? añad(?:e|ir) "
    "agregar? pon(?:er)? crear? borrar? elimin(?:a|ar) cancelar? muev(?:e|a) mover reprogramar? programar? apuntar? "
    "anotar? agenda_una? agendar cambi(?:a|ar) reservar? aplazar? pospón",
    "eintragen verschieben löschen absagen anlegen hinzufügen buchen planen ändern verlegen streichen vereinbaren",
)
_FREE = re.compile(
    r"\b(?:free|available|availability|gaps?|slots?|busy|booked|openings?|spare|fit|frei|freie[nrs]?|verfügbar|verplant"
    r"|belegt|lücken?|zeitfenster|libres?|disponibles?|créneaux?|creneaux?|occupée?|huecos?|ocupad[oa])\b"
    r"|\bwork for me\b|\bhave time\b|\bzeit für\b|\bdu temps\b|\btengo tiempo\b",
    re.IGNORECASE,
)
_CONTINUES = re.compile(r"\W*(?:and|und|et|y)\b", re.IGNORECASE)
_PAST = re.compile(r"\b(?:last|was|were|had|did|letzte[nrs]?|war|hatte|dernière?|était|últim[oa]|fue)\b", re.IGNORECASE)
_WORDS = word_set(
    "cancelled canceled "
    "appointment appointments meeting meetings agenda calendar schedule scheduled diary event events planned plans "
    "plan start starts begin begins begun few ready between then work works busy booked book free available gap slot "
    "slots fit find shift list everything due happening occupied workshop call calls entry entries calender planner "
    "o'clock kindly dear half quarter termin termine terminen kalender verabredung verabredungen geplant "
    "anstehen ansteht beginnt frei lücke treffen besprechung rendez-vous réunion réunions calendrier prévu prévue "
    "prévus commence libre événements événement emploi cita citas reunión reuniones calendario evento eventos "
    "programado empieza hueco libres next last coming past recent morning afternoon evening night noon midday "
    "midnight today tomorrow nächste nächsten nächster letzte letzten vormittag mittag nachmittag abend matin "
    "après-midi soir prochain prochaine dernier dernière tarde mañana noche próxima próximo última último day days "
    "week weeks"
)
MAX_WORDS = 3
LIST_DAYS = 13
SEARCH_DAYS = 90


def make_params(message: str, context: AssistContext) -> Mapping[str, Any]:
    """Return the parameters that a message gives.

    Raises:
        Refused: The message asks for a change.
    """
    if _CHANGES.search(message):
        raise Refused(_READS_ONLY)
    today = context.now.date()
    named, days, text = context.find_subject(message, _WORDS), context.find_days(message), message
    if context.previous and not _FREE.search(message):  # "and on Friday?"
        names = AssistContext(context.now).find_subject(message, _WORDS)
        if named != names or not (names or days) or _CONTINUES.match(message):
            text = f"{context.previous}\n{message}"
            days = days or context.find_days(text)
    span = {"start": days[0].isoformat(), "end": days[1].isoformat()} if days else {}
    if _FREE.search(text):
        minutes = find_minutes(message)
        return {"action": "free", **span, **({"duration_minutes": minutes} if minutes else {})}
    if days:
        return {"action": "list", **span}
    first = today - timedelta(SEARCH_DAYS) if _PAST.search(message) else today
    words = [word for word in named if not word.isdigit() and context.find_days(word) is None][:MAX_WORDS]
    last = today + timedelta(SEARCH_DAYS if words else LIST_DAYS)
    query = {"query": " ".join(words)} if words else {}
    return {"action": "list", "start": first.isoformat(), "end": last.isoformat(), **query}


_COUNTS = {
    "a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "eine": 1, "einer": 1, "zwei": 2, "drei": 3, "vier": 4,
    "une": 1, "deux": 2, "trois": 3, "quatre": 4, "una": 1, "dos": 2, "tres": 3, "cuatro": 4,
}  # fmt: skip
_MINUTES = re.compile(r"\b(\d{1,4})[ -]?(?:minutes?|mins?|minuten|minutos)\b", re.IGNORECASE)
_HALF = re.compile(r"\bhalf an hour\b|\bhalf-hour\b|\bhalben? stunde\b|\bdemi-heure\b|\bmedia hora\b", re.IGNORECASE)
_HOURS = re.compile(
    rf"\b(\d{{1,2}}|{'|'.join(_COUNTS)})(?:[.,](?P<half>5))?[ -](?P<more>and a half )?"
    r"(?:hours?|hrs?|stunden?|heures?|horas?)\b",
    re.IGNORECASE,
)


def find_minutes(message: str) -> int | None:
    """Return the duration that a message names, in minutes."""
    if found := _MINUTES.search(message):
        return max(1, int(found[1]))
    if _HALF.search(message):
        return 30
    if found := _HOURS.search(message):
        hours = int(found[1]) if found[1].isdigit() else _COUNTS[found[1].lower()]
        return max(30, hours * 60 + (30 if found["half"] or found["more"] else 0))
    return None
