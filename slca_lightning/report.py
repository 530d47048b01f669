"""Learning curves of a run, as a picture."""

from __future__ import annotations

from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from slca_lightning.errors import DataError

PANELS = (
    ("success", ("rollout/success@0.9", "val/success@0.9", "rollout/joint_success")),
    ("rewards", ("reward/tool", "reward/summary")),
    ("process reward", ("reward/format", "reward/name", "reward/key", "reward/value", "reward/parallel")),
    ("behaviour", ("rollout/omission", "rollout/redundant_calls", "rollout/truncation")),
    ("KL to the reference", ("train/kl",)),
    ("entropy (nats)", ("train/entropy",)),
)
"""Title and scalars of each panel."""


def read_scalars(run: Path) -> dict[str, list[tuple[int, float]]]:
    """Return the scalars that a run logged to TensorBoard: name to (step, value) pairs, in order.

    Raises:
        DataError: where the folder holds no events.
    """
    if not list(run.glob("events.out.tfevents.*")):
        raise DataError(f"no TensorBoard events in {run}; is it the folder of a run with a TensorBoard logger?")
    events = EventAccumulator(str(run), size_guidance={"scalars": 0})
    events.Reload()
    return {name: [(event.step, event.value) for event in events.Scalars(name)] for name in events.Tags()["scalars"]}


def plot_curves(run: Path, out: Path) -> Path:
    """Draw a run's learning curves to a PNG file, and return its path.

    Raises:
        DataError: where the folder holds no events.
    """
    # Here, not above: it takes a second to import, and only a report needs it. The object interface, not pyplot,
    # leaves the caller's figures and backend alone.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    scalars = read_scalars(run)
    panels = [(title, [name for name in names if name in scalars]) for title, names in PANELS]
    panels = [(title, names) for title, names in panels if names]
    figure = Figure(figsize=(12, 2.8 * ((len(panels) + 2) // 3)), layout="constrained")
    FigureCanvasAgg(figure)
    for i, (title, names) in enumerate(panels):
        axes = figure.add_subplot((len(panels) + 2) // 3, 3, i + 1)
        for name in names:
            steps, values = zip(*scalars[name], strict=True)
            axes.plot(steps, values, marker="o" if len(steps) < 10 else None, markersize=4, label=name)
        axes.set_title(title)
        axes.set_xlabel("optimiser steps")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=120)
    return out
