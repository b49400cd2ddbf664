"""Specialists with three examples each, for `questions-strangers.jsonl`."""

from typing import Literal

from brain import specialist


@specialist(
    read_only=True,
    examples=[
        "Has my Hermes delivery H1000730118 left the depot?",
        "Follow shipment 1Z12345E0205271688",
        "Status of consignment 6120 4471 8890 from DPD",
    ],
)
async def parcel(
    tracking_number: str,
    carrier: Literal["auto", "dhl", "dpd", "fedex", "gls", "hermes", "ups"] = "auto",
) -> str:
    """Tracks a parcel by its tracking number: where it is and when it will be delivered."""
    return (
        f"Parcel {tracking_number} (carrier: {carrier})\n"
        "06:12 Loaded onto the delivery vehicle\n"
        "Yesterday 21:40 Arrived at the depot in Kassel\n"
        "Expected today between 13:00 and 15:00."
    )


@specialist(
    read_only=True,
    examples=[
        "When is the next underground from Odenplan?",
        "Departure board of York for one hour",
        "I'm standing at Cross Street, what can I catch in the next 20 minutes?",
    ],
)
async def departures(
    stop: str,
    mode: Literal["any", "bus", "ferry", "train", "tram", "underground"] = "any",
    minutes: int = 60,
) -> str:
    """Lists live departures of public transport from a stop or station."""
    return (
        f"Departures from {stop} (mode: {mode}) in the next {minutes} minutes\n"
        "in 4 min   line 12  Harbour\n"
        "in 9 min   line 3   Central Station, 2 min late\n"
        "in 11 min  line 12  University"
    )


@specialist(
    read_only=True,
    examples=[
        "Can I borrow Middlemarch from the public library?",
        "Search the library catalogue for watercolour painting",
        "Is the latest National Geographic out on loan?",
    ],
)
async def library(
    words: str,
    kind: Literal["any", "book", "audiobook", "film", "magazine"] = "any",
) -> str:
    """Searches the catalogue of the city library by title, author or subject, and says what can be borrowed now."""
    return (
        f"City library, {kind} matching '{words}': 2 titles\n"
        "1. Main branch, shelf R 11: available\n"
        "2. East branch: on loan, due back in 9 days, 1 reservation"
    )


@specialist(
    read_only=True,
    examples=[
        "What time is Oppenheimer showing in Sheffield?",
        "Cinema times for The Lion King in Brighton tomorrow",
        "Can I see Vertigo in Oxford at the weekend?",
    ],
)
async def film_times(title: str, city: str, day: Literal["today", "tomorrow", "weekend"] = "today") -> str:
    """Show at which times a film runs in the cinemas of a city."""
    return f"'{title}' in {city} ({day}): Odeon 17:15 and 20:40, Picturehouse 18:30, Regal 21:00."


@specialist(
    read_only=True,
    examples=[
        "Petrol prices near Swindon",
        "How expensive is diesel in Lincoln at the moment?",
        "Find filling stations with LPG within 10 km of Perth",
    ],
)
async def fuel_prices(place: str, fuel: Literal["petrol", "diesel", "lpg"] = "petrol", radius_km: int = 5) -> str:
    """List the cheapest filling stations around a place with their current prices per litre."""
    return f"Cheapest {fuel} within {radius_km} km of {place}: Ring Road 1.42, Station Street 1.44, North 1.47."


@specialist(
    read_only=True,
    examples=[
        "On which day is the glass bin emptied in M14 6HR?",
        "Next recycling date for plastic, postcode B29 6SA",
        "When is the residual waste collected in OX4 1JE?",
    ],
)
async def bin_collection(postcode: str, bin: Literal["paper", "plastic", "glass", "organic", "residual"]) -> str:
    """Tell the next dates on which the council empties a household bin at a postcode."""
    return f"Bin '{bin}' at {postcode}: next collection on Thursday from 06:30, then every second Thursday."
