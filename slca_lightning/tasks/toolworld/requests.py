"""What people ask for in toolworld: phrases, and the calls that answer them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from slca_lightning.tasks.toolworld import tools as world
from slca_lightning.tasks.toolworld.tools import execute
from slca_lightning.types import JSON, ToolCall

Arguments = dict[str, JSON]
Phrase = tuple[str, Arguments]
"""A noun phrase and the arguments it stands for."""


def _pair(rng: random.Random, values: list[str]) -> tuple[str, str]:
    first, second = rng.sample(values, 2)
    return first, second


def _weather(r: random.Random) -> Phrase:
    city, days = r.choice(world.CITIES), r.randint(1, 7)
    return f"the weather in {city} for {days} days", {"city": city, "days": days}


def _hour(r: random.Random) -> Phrase:
    city = r.choice(world.CITIES)
    return f"the hour in {city}", {"city": city}


def _population(r: random.Random) -> Phrase:
    city = r.choice(world.CITIES)
    return f"the population of {city}", {"city": city}


def _distance(r: random.Random) -> Phrase:
    origin, destination = _pair(r, world.CITIES)
    unit = r.choice(world.UNITS)
    return (
        f"the distance from {origin} to {destination} in {unit}",
        {"origin": origin, "destination": destination, "unit": unit},
    )


def _flight(r: random.Random) -> Phrase:
    origin, destination = _pair(r, world.CITIES)
    nonstop = r.random() < 0.5
    kind = "a nonstop" if nonstop else "any"
    return (
        f"{kind} flight from {origin} to {destination}",
        {"origin": origin, "destination": destination, "nonstop": nonstop},
    )


def _money(r: random.Random) -> Phrase:
    source, target = _pair(r, world.CURRENCIES)
    amount = r.choice([r.randint(2, 99), r.randint(2, 99) + 0.5])
    return f"{amount} {source} in {target}", {"amount": amount, "source": source, "target": target}


def _stock(r: random.Random) -> Phrase:
    ticker = r.choice(world.TICKERS)
    return f"the price of stock {ticker}", {"ticker": ticker}


def _ticker(r: random.Random) -> Phrase:
    company = r.choice(world.COMPANIES)
    return f"the ticker of {company}", {"company": company}


def _table(r: random.Random) -> Phrase:
    place, guests = r.choice(world.PLACES), r.randint(1, 12)
    return f"a table at {place} for {guests}", {"place": place, "guests": guests}


def _order(r: random.Random) -> Phrase:
    order = r.randint(10, 99)
    return f"the parcel of order {order}", {"order": order}


def _parcel(r: random.Random) -> Phrase:
    parcel = r.randint(10, 99)
    return f"the status of parcel {parcel}", {"parcel": parcel}


def _contact(r: random.Random) -> Phrase:
    person = r.choice(world.PEOPLE)
    return f"the phone of {person}", {"person": person}


def _message(r: random.Random) -> Phrase:
    phone, urgent = r.randint(10, 99), r.random() < 0.5
    return f"{'an urgent' if urgent else 'a calm'} message to {phone}", {"phone": phone, "urgent": urgent}


def _locate(r: random.Random) -> Phrase:
    person = r.choice(world.PEOPLE)
    return f"the city of {person}", {"person": person}


def _room(r: random.Random) -> Phrase:
    building, floor, hours = r.choice(world.BUILDINGS), r.randint(1, 9), r.randint(1, 8)
    return (
        f"a room {building} on floor {floor} for {hours} hours",
        {"room": {"building": building, "floor": floor}, "hours": hours},
    )


def _colors(r: random.Random) -> Phrase:
    colors = r.sample(world.COLORS, r.randint(2, 3))
    return f"a mix of {', '.join(colors)}", {"colors": colors}


def _word(r: random.Random) -> Phrase:
    word, language = r.choice(world.WORDS), r.choice(world.LANGUAGES)
    return f"the word {word} in {language}", {"word": word, "language": language}


def _heating(r: random.Random) -> Phrase:
    room, degrees = r.choice(world.ROOMS), r.choice([r.randint(16, 25), r.randint(16, 25) + 0.5])
    return f"the {room} at {degrees} degrees", {"room": room, "degrees": degrees}


PHRASES: Mapping[str, Callable[[random.Random], Phrase]] = {
    "get_weather": _weather,
    "get_hour": _hour,
    "get_population": _population,
    "get_distance": _distance,
    "find_flight": _flight,
    "convert_money": _money,
    "get_stock": _stock,
    "get_ticker": _ticker,
    "book_table": _table,
    "get_order": _order,
    "track_parcel": _parcel,
    "find_contact": _contact,
    "send_message": _message,
    "locate_person": _locate,
    "reserve_room": _room,
    "mix_colors": _colors,
    "translate_word": _word,
    "set_heating": _heating,
}


def random_call(name: str, rng: random.Random) -> tuple[str, ToolCall]:
    """Draw a phrase for a tool and the call it asks for."""
    phrase, arguments = PHRASES[name](rng)
    return phrase, ToolCall(name, arguments)


def _weather_of_person(r: random.Random, seed: int) -> tuple[str, list[ToolCall]]:
    person, days = r.choice(world.PEOPLE), r.randint(1, 7)
    first = ToolCall("locate_person", {"person": person})
    city = execute(first.name, first.arguments, seed)["city"]
    return f"the weather for {days} days where {person} is", [
        first,
        ToolCall("get_weather", {"city": city, "days": days}),
    ]


def _status_of_order(r: random.Random, seed: int) -> tuple[str, list[ToolCall]]:
    order = parcel = r.randint(10, 99)
    while parcel == order:  # else the second call could be made without the first
        order = r.randint(10, 99)
        first = ToolCall("get_order", {"order": order})
        parcel = execute(first.name, first.arguments, seed)["parcel"]
    return f"the parcel status of order {order}", [first, ToolCall("track_parcel", {"parcel": parcel})]


def _message_to_person(r: random.Random, seed: int) -> tuple[str, list[ToolCall]]:
    person, urgent = r.choice(world.PEOPLE), r.random() < 0.5
    first = ToolCall("find_contact", {"person": person})
    phone = execute(first.name, first.arguments, seed)["phone"]
    return f"{'an urgent' if urgent else 'a calm'} message to {person}", [
        first,
        ToolCall("send_message", {"phone": phone, "urgent": urgent}),
    ]


def _stock_of_company(r: random.Random, seed: int) -> tuple[str, list[ToolCall]]:
    company = r.choice(world.COMPANIES)
    first = ToolCall("get_ticker", {"company": company})
    ticker = execute(first.name, first.arguments, seed)["ticker"]
    return f"the stock price of {company}", [first, ToolCall("get_stock", {"ticker": ticker})]


CHAINS = (_weather_of_person, _status_of_order, _message_to_person, _stock_of_company)
"""Requests whose second call needs what the first one returned."""


def small_talk(rng: random.Random) -> tuple[str, str]:
    """Draw something to say that needs no tool, and a fitting answer."""
    person = rng.choice(world.PEOPLE)
    question = rng.choice(["Hello, I am {}.", "Thank you! {}", "Good morning from {}.", "Nice to meet you, I am {}."])
    return question.format(person), f"Hello {person}, how can I help?"
