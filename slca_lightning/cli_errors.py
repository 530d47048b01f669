"""What the command line says of a mistake: one line that names the thing and the way out, not a page of usage."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from importlib import import_module
from typing import NoReturn

from lightning.pytorch.cli import LightningArgumentParser

from slca_lightning.errors import SLCAError

# jsonargparse reports every way in which a value fails to be one of several types. What is left says what is wrong.
_NOISE = re.compile(
    r"^(Does not validate against any of the Union subtypes|Subtypes: .*|Errors:|Expected a <class 'NoneType'>.*"
    r"|Given value type: .*|Given value: (Namespace|NestedArg|[{\[]).*|Given value: .{60,})$"
)


class SLCAArgumentParser(LightningArgumentParser):
    """A parser whose errors are one line, with the nearest known name where one was misspelt."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Exit with status 2, or raise where the parser was told to."""
        if not self.exit_on_error:
            super().error(message, ex)
        parser = getattr(ex, "subcommand_parser", None) or self
        self.exit(2, f"slca: {explain(message, _options(parser))}\n")


def explain(message: str, options: Iterable[str] = ()) -> str:
    """Return what a message of jsonargparse says is wrong, in one line, with a suggestion.

    Args:
        message: as the parser reports it.
        options: names of the options that the parser knows.
    """
    lines = [line.strip().removeprefix("- ") for line in message.splitlines()]
    said = " ".join(dict.fromkeys(line for line in lines if line and not _NOISE.match(line)))
    return f"{said.removesuffix('.')}{_suggestion(said, options)}"


def own_error(error: BaseException) -> SLCAError | None:
    """Return the error of this package that ``error`` was raised from, or None: jsonargparse wraps them."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        if isinstance(link, SLCAError):
            return link
        seen.add(id(link))
        link = link.__cause__ or link.__context__
    return None


def _options(parser: object) -> Iterator[str]:
    for action in getattr(parser, "_actions", ()):
        yield from (option.removeprefix("--") for option in action.option_strings)


def _suggestion(said: str, options: Iterable[str]) -> str:
    classes = re.findall(r"class_path '([\w.]+)'", said)
    wrong = re.search(r"Option '([\w.]+)' is not accepted", said)
    if wrong and classes:
        return _near(wrong[1].split(".")[-1], _arguments(classes[-1]))
    wrong = re.search(r"(?:unrecognized arguments: --|does not accept option ')([\w.]+)", said)
    return _near(wrong[1], list(options)) if wrong else "; see slca fit --help"


def _arguments(class_path: str) -> list[str]:
    module, _, name = class_path.rpartition(".")
    try:
        return [*inspect.signature(getattr(import_module(module), name)).parameters]
    except (ImportError, AttributeError, TypeError, ValueError):
        return []


def _near(wrong: str, known: list[str]) -> str:
    near = get_close_matches(wrong, known, n=1, cutoff=0.5)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; known: {', '.join(known)}" if 0 < len(known) < 30 else "; see slca fit --help"
