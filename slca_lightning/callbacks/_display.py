"""Live progress displays that get along with Lightning's own bars."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Protocol

import rich
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import ProgressBar, RichProgressBar, TQDMProgressBar
from rich.errors import LiveError
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn


class Display(Protocol):
    """One bar that can be shown again and again."""

    def start(self, title: str, total: int | None) -> None:
        """Show the bar, empty."""

    def update(self, done: int, note: str) -> None:
        """Show how far it is, and a note beside it."""

    def stop(self) -> None:
        """Take the bar off the screen. Does nothing where it is not shown."""


def live_display(trainer: Trainer) -> Display | None:
    """Return the display that fits the trainer's own bar; None where no terminal can show one.

    Only one rich display can be live, so the bar joins Lightning's where that is a rich one.
    """
    bar = trainer.progress_bar_callback
    if isinstance(bar, RichProgressBar) and bar.is_enabled:
        return _JoinedBar(bar) if bar.progress is not None and bar.progress.console.is_interactive else None
    return _OwnBar(bar) if rich.get_console().is_interactive else None


class _JoinedBar:
    """A line in Lightning's RichProgressBar."""

    def __init__(self, bar: RichProgressBar) -> None:
        self._bar = bar
        self._progress: Progress | None = None
        self._task = TaskID(0)
        self._title = ""

    def start(self, title: str, total: int | None) -> None:
        self._title, size = title, math.inf if total is None else total
        if self._progress is not self._bar.progress:  # with leave=True Lightning makes one for each epoch
            assert self._bar.progress is not None
            self._progress = self._bar.progress
            self._task = self._progress.add_task(title, total=size)
        elif self._progress is not None:
            self._progress.reset(self._task, total=size, description=title, visible=True)

    def update(self, done: int, note: str) -> None:
        assert self._progress is not None
        self._progress.update(self._task, completed=done, description=f"{self._title} {note}")
        self._bar.refresh()

    def stop(self) -> None:
        # Hidden, not removed: Lightning finds its own tasks by their position.
        if self._progress is not None:
            self._progress.update(self._task, visible=False)
            self._bar.refresh()


class _OwnBar:
    """A bar of its own, in place of Lightning's tqdm bars while it is shown."""

    def __init__(self, bar: ProgressBar | None) -> None:
        self._bar = bar
        self._progress: Progress | None = None
        self._task = TaskID(0)

    def start(self, title: str, total: int | None) -> None:
        self.stop()
        for line in self._tqdm_lines():
            line.clear()
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
        )
        progress = Progress(*columns, transient=True)
        self._task = progress.add_task(title, total=total, note="")
        try:
            progress.start()
        except LiveError:  # somebody else's display is live: rather no bar than a failed run
            return
        self._progress = progress

    def update(self, done: int, note: str) -> None:
        if self._progress is not None:
            self._progress.update(self._task, completed=done, note=note)

    def stop(self) -> None:
        if self._progress is None:
            return
        self._progress.stop()
        self._progress = None
        for line in self._tqdm_lines():
            line.refresh()

    def _tqdm_lines(self) -> list[_TqdmLine]:
        lines: list[_TqdmLine] = []
        if isinstance(self._bar, TQDMProgressBar):
            for name in ("train_progress_bar", "val_progress_bar", "test_progress_bar"):
                with suppress(TypeError):  # there is none at this stage
                    lines.append(getattr(self._bar, name))
        return [line for line in lines if not line.disable]


class _TqdmLine(Protocol):
    """What is used of a tqdm bar."""

    disable: bool

    def clear(self) -> None:
        """Take it off the screen."""

    def refresh(self) -> None:
        """Show it."""
