"""The tools of toolworld: their JSON Schemas, and what they answer.

Each tool is a small pure function of the world's seed and its arguments. Its results look plausible and cannot be
guessed, so a summary is right only if it repeats what the tool returned.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from slca_lightning.seeding import derive_seed
from slca_lightning.types import JSON, ToolSchema

CITIES = (
    "Oslo Bergen Paris Lyon Rome Milan Berlin Munich Madrid Porto Lisbon Vienna Prague Warsaw Dublin London Athens Riga"
).split()
PEOPLE = "Ada Ben Cleo Dora Emil Finn Gina Hugo Iris Jonas Karin Lars".split()
COMPANIES = "Norvik Solaris Quanta Fjordia Zenith Lumen Arctica Delphi".split()
TICKERS = "NVK SLR QNT FJD ZNT LMN ARC DLP".split()
PLACES = "Rosa Basilico Maritim Olive Saffron Cedar".split()
WORDS = "bread water house river winter bridge garden window".split()
TRANSLATIONS = "velan mirok tasune polir sedak nuvia corim halet".split()
ROOMS = "kitchen bedroom office hall".split()
CURRENCIES = ["EUR", "USD", "GBP", "NOK"]
LANGUAGES = ["french", "polish", "greek"]
COLORS = ["red", "blue", "green", "white", "black"]
SHADES = "amber coral ivory olive violet teal".split()
SKIES = "sun rain snow fog wind".split()
STATUSES = "packed shipped delayed delivered lost".split()
BUILDINGS = ["north", "south", "east"]
UNITS = ["km", "miles"]

Answer = Callable[[random.Random], Mapping[str, JSON]]

_STRING = {"type": "string"}
_INTEGER = {"type": "integer"}
_NUMBER = {"type": "number"}
_BOOLEAN = {"type": "boolean"}


def _one_of(values: list[str]) -> dict[str, Any]:
    return {"type": "string", "enum": values}


def _count(maximum: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": 1, "maximum": maximum}


@dataclass(frozen=True, slots=True)
class WorldTool:
    """A tool: what the policy is shown of it, and how its answer is drawn."""

    description: str
    properties: Mapping[str, Mapping[str, Any]]
    answer: Answer
    """Draws the result from a generator that is seeded by the world, the tool and the arguments."""

    def schema(self, name: str) -> ToolSchema:
        """Return the OpenAI-style description of the tool."""
        parameters = {"type": "object", "properties": dict(self.properties), "required": list(self.properties)}
        return {
            "type": "function",
            "function": {
                "name": name,
                "description": self.description,
                "parameters": {**parameters, "additionalProperties": False},
            },
        }


TOOLS: Mapping[str, WorldTool] = {
    "get_weather": WorldTool(
        "Weather forecast",
        {"city": _STRING, "days": _count(7)},
        lambda r: {"sky": r.choice(SKIES), "high": r.randint(10, 38)},
    ),
    "get_hour": WorldTool("Local hour of a city", {"city": _STRING}, lambda r: {"hour": r.randint(0, 23)}),
    "get_population": WorldTool("People in a city", {"city": _STRING}, lambda r: {"people": r.randint(10, 99)}),
    "get_distance": WorldTool(
        "Distance of two cities",
        {"origin": _STRING, "destination": _STRING, "unit": _one_of(UNITS)},
        lambda r: {"distance": r.randint(10, 99)},
    ),
    "find_flight": WorldTool(
        "Cheapest flight",
        {"origin": _STRING, "destination": _STRING, "nonstop": _BOOLEAN},
        lambda r: {"flight": r.randint(10, 99), "price": r.randint(10, 99)},
    ),
    "convert_money": WorldTool(
        "Convert an amount of money",
        {"amount": _NUMBER, "source": _one_of(CURRENCIES), "target": _one_of(CURRENCIES)},
        lambda r: {"amount": r.randint(10, 99)},
    ),
    "get_stock": WorldTool("Price of a stock", {"ticker": _STRING}, lambda r: {"price": r.randint(10, 99)}),
    "get_ticker": WorldTool("Ticker of a company", {"company": _STRING}, lambda r: {"ticker": r.choice(TICKERS)}),
    "book_table": WorldTool(
        "Book a restaurant table",
        {"place": _STRING, "guests": _count(12)},
        lambda r: {"table": r.randint(10, 99)},
    ),
    "get_order": WorldTool("Parcel of an order", {"order": _INTEGER}, lambda r: {"parcel": r.randint(10, 99)}),
    "track_parcel": WorldTool("Status of a parcel", {"parcel": _INTEGER}, lambda r: {"status": r.choice(STATUSES)}),
    "find_contact": WorldTool("Phone of a person", {"person": _STRING}, lambda r: {"phone": r.randint(10, 99)}),
    "send_message": WorldTool(
        "Message to a phone",
        {"phone": _INTEGER, "urgent": _BOOLEAN},
        lambda r: {"ticket": r.randint(10, 99)},
    ),
    "locate_person": WorldTool("City of a person", {"person": _STRING}, lambda r: {"city": r.choice(CITIES)}),
    "reserve_room": WorldTool(
        "Reserve a meeting room",
        {
            "room": {
                "type": "object",
                "properties": {"building": _one_of(BUILDINGS), "floor": _count(9)},
                "required": ["building", "floor"],
                "additionalProperties": False,
            },
            "hours": _count(8),
        },
        lambda r: {"code": r.randint(10, 99)},
    ),
    "mix_colors": WorldTool(
        "Mix colors",
        {"colors": {"type": "array", "items": _one_of(COLORS), "minItems": 2}},
        lambda r: {"shade": r.choice(SHADES)},
    ),
    "translate_word": WorldTool(
        "Translate a word",
        {"word": _STRING, "language": _one_of(LANGUAGES)},
        lambda r: {"translation": r.choice(TRANSLATIONS)},
    ),
    "set_heating": WorldTool(
        "Heat a room",
        {"room": _STRING, "degrees": _NUMBER},
        lambda r: {"watts": r.randint(10, 99)},
    ),
}


def execute(name: str, arguments: Mapping[str, JSON], world_seed: int) -> Mapping[str, JSON]:
    """Answer a call: a pure function of the world, the tool and the arguments.

    Raises:
        KeyError: there is no tool of that name in toolworld.
    """
    tool = TOOLS[name]
    canonical = json.dumps(arguments, sort_keys=True)
    return tool.answer(random.Random(derive_seed("toolworld", world_seed, name, canonical)))
