"""``slca-demo``: the whole story on a laptop, from an untrained policy to a table of before and after."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from slca_lightning.cli import run
from slca_lightning.errors import SLCAError
from slca_lightning.models.tiny import build_tiny_policy
from slca_lightning.report import plot_curves

SHOWN = (
    "success@0.7",
    "success@0.8",
    "success@0.9",
    "success@1.0",
    "process",
    "name_f1",
    "key",
    "value",
    "arg_match",
    "format",
    "parallel",
    "summary",
    "exact_calls",
    "joint_success",
    "omission",
    "tool_turns",
    "calls",
    "redundant_calls",
    "truncation",
)
"""Metrics in the table, in this order."""


def demo(
    out: Path,
    estimator: str,
    seed: int,
    extra: Sequence[str] = (),
    sft_args: Sequence[str] = (),
    rl_args: Sequence[str] = (),
) -> tuple[dict[str, float], dict[str, float]]:
    """Train a tiny policy on toolworld, first supervised, then with rollouts, and validate before and after.

    Args:
        out: folder for everything; it must not exist yet.
        estimator: of the advantages.
        seed: of both stages.
        extra: further arguments for all ``slca`` commands, such as ``--trainer.enable_progress_bar=false``.
        sft_args: further arguments for the supervised stage only.
        rl_args: further arguments for all commands but the supervised stage.

    Returns:
        Validation metrics before and after the rollouts.
    """
    console = Console(stderr=True)
    policy = build_tiny_policy(out / "tiny", seed=seed)
    sft, rl = out / "sft", out / "rl"
    train = ["--config=toolworld/slca", f"--model.init_args.model_path={sft / 'hf'}", *rl_args]
    before = [*train, "--trainer.logger=false"]
    after = [*before, f"--model.init_args.model_path={rl / 'hf'}"]
    common = [f"--seed_everything={seed}", *extra]

    def step(title: str, args: list[str]) -> dict[str, float]:
        console.rule(title)
        console.print("slca " + " ".join(args), style="dim", highlight=False, soft_wrap=True)
        metrics = run([*args, *common]).trainer.callback_metrics
        return {name.removeprefix("val/"): float(value) for name, value in metrics.items() if name.startswith("val/")}

    step(
        "1/4  imitate a mediocre demonstrator",
        [
            "fit",
            "--config=toolworld/sft",
            f"--model.init_args.model_path={policy}",
            f"--trainer.default_root_dir={sft}",
            *sft_args,
        ],
    )
    start = step(
        "2/4  validate on held-out tasks", ["validate", *before, f"--trainer.default_root_dir={out / 'before'}"]
    )
    step(
        "3/4  learn from rollouts",
        ["fit", *train, f"--advantage.estimator={estimator}", f"--trainer.default_root_dir={rl}"],
    )
    end = step("4/4  validate again", ["validate", *after, f"--trainer.default_root_dir={out / 'after'}"])
    return start, end


def table(before: dict[str, float], after: dict[str, float]) -> Table:
    """Return the metrics before and after, side by side."""
    shown = Table("held-out toolworld tasks", title="before and after learning from rollouts")
    for column in ("after SFT", "after rollouts", "change"):
        shown.add_column(column, justify="right")
    for name in SHOWN:
        if name in before and name in after:
            start, end = before[name], after[name]
            shown.add_row(name, f"{start:.3f}", f"{end:.3f}", f"{end - start:+.3f}")
    return shown


def main(args: Sequence[str] | None = None) -> int:
    """Entry point of ``slca-demo``. Exits with 1 where Success@0.9 did not rise."""
    parser = argparse.ArgumentParser(prog="slca-demo", description=__doc__)
    parser.add_argument("--out", type=Path, default=None, help="new folder; default: runs/demo-DATE-TIME")
    parser.add_argument("--estimator", default="slca", help="estimator of the advantages")
    parser.add_argument("--seed", type=int, default=0)
    for stage, commands in (("sft", "the supervised stage"), ("rl", "the rollouts and both validations")):
        parser.add_argument(
            f"--{stage}-arg",
            action="append",
            default=[],
            metavar="ARG",
            help=f"further argument of slca for {commands}",
        )
    options, extra = parser.parse_known_args(args)
    out: Path = options.out or Path("runs") / time.strftime("demo-%Y%m%d-%H%M%S")
    if out.exists():
        parser.error(f"{out} exists already; give another folder, or remove it")
    started = time.monotonic()
    try:
        before, after = demo(out, options.estimator, options.seed, extra, options.sft_arg, options.rl_arg)
    except SLCAError as error:
        sys.stderr.write(f"slca-demo: {type(error).__name__}: {error}\n")
        return 1
    minutes = (time.monotonic() - started) / 60
    figures = {"estimator": options.estimator, "minutes": round(minutes, 1), "before": before, "after": after}
    (out / "report.json").write_text(json.dumps(figures, indent=2) + "\n")
    curves = plot_curves(out / "rl", out / "curves.png")
    console = Console()
    console.print(table(before, after))
    gain = after["success@0.9"] - before["success@0.9"]
    console.print(
        f"Success@0.9 went from {before['success@0.9']:.3f} to {after['success@0.9']:.3f} in {minutes:.1f} minutes\n"
        f"learning curves   {curves}\n"
        f"figures           {out / 'report.json'}\n"
        f"TensorBoard       tensorboard --logdir {out}\n"
        f"checkpoints       {out / 'rl' / 'checkpoints'}\n"
        f"trained policy    {out / 'rl' / 'hf'} (transformers and vLLM load it)",
        highlight=False,
        soft_wrap=True,
    )
    if gain <= 0:
        sys.stderr.write("slca-demo: Success@0.9 did not rise\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
