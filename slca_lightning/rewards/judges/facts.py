"""Which facts of the tool results a text reports, and which numbers it made up. Rules only."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

from slca_lightning.types import JSON, ResultStatus, ToolResult

# A digit that continues a Latin word ("b12") or a decimal is no number of its own; a minus after one is a hyphen.
_NUMBER = re.compile(
    r"(?<![0-9A-Za-z_\u00c0-\u024f.])[-\u2212]?"
    r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3}(?![0-9]))?"
)
_ROUNDED_DIGITS = 15
"""Numbers with fewer digits before the point are compared to nine decimals, longer ones exactly."""
_SPACELESS_SCRIPTS = 0x2E80
"""From this code point on, scripts (Chinese, Japanese ...) set no spaces between words."""

Fact = Decimal | str
"""A number, or a lower-case text with single spaces."""


@dataclass(frozen=True, slots=True)
class FactReport:
    """How a text relates to the tool results."""

    total: int
    """Distinct facts in the results."""
    reported: int
    """Those of them that the text states; at most ``total``."""
    invented: int
    """Distinct numbers in the text that occur neither in the results nor in the question."""

    @property
    def faithful(self) -> bool:
        """Whether the text reports every fact and makes up no number."""
        return self.reported == self.total and self.invented == 0


def fact_report(results: Sequence[ToolResult], question: str, text: str) -> FactReport:
    """Compare a final text with the tool results.

    Facts are the distinct leaves of the JSON in results with status OK: numbers, and non-empty strings (a string that
    is a numeral is a number). Booleans and nulls are not facts: a text says them in too many ways for a rule to tell.
    Of a content that is not JSON, its numbers are the facts. A number is reported where the text holds an equal number
    (``1234`` = ``1,234.0``; ``4`` is neither in ``42`` nor in ``-4``); a string where the text holds it between word
    boundaries, whatever the case and the spacing. Numbers in words are not understood.
    """
    facts: set[Fact] = set()
    known = set(_numbers(question))
    for result in results:
        leaves = _leaves(result.content)
        known.update(_numbers(result.content))
        # Once more from the decoded strings: in raw JSON an escape such as \n runs into the digit after it.
        known.update(number for leaf in leaves for number in _numbers(str(leaf)))
        if result.status is ResultStatus.OK:
            facts.update(leaves)
    stated = set(_numbers(text))
    folded = _fold(text)
    reported = sum(fact in stated if isinstance(fact, Decimal) else _holds(folded, fact) for fact in facts)
    return FactReport(len(facts), reported, len(stated - known))


def _leaves(content: str) -> set[Fact]:
    try:
        pending: list[JSON] = [json.loads(content)]
    except (ValueError, RecursionError):
        return set(_numbers(content))
    leaves: set[Fact] = set()
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)
        elif isinstance(value, str):
            text = _fold(value)
            if text:
                leaves.add(_key(text) if _NUMBER.fullmatch(text) else text)
        elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(_as_float(value)):
            leaves.add(_key(repr(value)))
    return leaves


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer beyond the floats
        return math.inf


def _numbers(text: str) -> Iterator[Decimal]:
    return (_key(match[0]) for match in _NUMBER.finditer(text))


def _key(numeral: str) -> Decimal:
    """Return a number that is equal and hashes equally for equal values, however written; nine decimals count."""
    value = Decimal(numeral.replace(",", "").replace("\u2212", "-"))
    return round(value, 9) if value.adjusted() < _ROUNDED_DIGITS else value


def _fold(text: str) -> str:
    return " ".join(text.lower().split())


def _holds(text: str, phrase: str) -> bool:
    """Return whether ``text`` holds ``phrase`` without cutting a word or a number at either end."""
    position = text.find(phrase)
    while position >= 0:
        end = position + len(phrase)
        cuts_start = position > 0 and _is_word(text[position - 1]) and _is_word(phrase[0])
        cuts_end = end < len(text) and _is_word(text[end]) and _is_word(phrase[-1])
        if not cuts_start and not cuts_end:
            return True
        position = text.find(phrase, position + 1)
    return False


def _is_word(character: str) -> bool:
    return character == "_" or (character.isalnum() and ord(character) < _SPACELESS_SCRIPTS)
