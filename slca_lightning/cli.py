"""The command line: ``slca fit``, ``slca validate`` and ``slca test`` on any configuration."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningDataModule, LightningModule, Trainer
from lightning.pytorch.cli import ArgsType, LightningArgumentParser, LightningCLI
from lightning.pytorch.loggers import TensorBoardLogger
from transformers.utils.logging import disable_progress_bar

from slca_lightning import callbacks, datamodules, modules, tasks  # noqa: F401 - configs name their classes
from slca_lightning.callbacks import SegmentAdvantage, WeightSync
from slca_lightning.cli_errors import SLCAArgumentParser, own_error
from slca_lightning.errors import ConfigError, SLCAError

CONFIGS = files("slca_lightning") / "configs"


class SLCACommandLine(LightningCLI):
    """LightningCLI with the two callbacks that no training run can do without.

    They are configured under ``advantage`` and ``weight_sync``, so that a configuration that lists its own
    ``trainer.callbacks`` does not lose them.
    """

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add the two callbacks, and let the data module use the model's tokenizer."""
        parser.add_lightning_class_args(SegmentAdvantage, "advantage")
        parser.add_lightning_class_args(WeightSync, "weight_sync")
        parser.link_arguments("model.init_args.model_path", "data.init_args.model_path")

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Log to TensorBoard, right in the run's own folder, unless another logger is configured."""
        trainer = self._get(self.config_init, "trainer", default={})
        if trainer.get("logger") in (None, True):
            folder = trainer.get("default_root_dir") or "."
            kwargs["logger"] = TensorBoardLogger(save_dir=folder, name="", version="")
        return super().instantiate_trainer(**kwargs)

    def _parse_ckpt_path(self) -> None:
        """Do nothing; Lightning's puts the checkpoint's settings in place of those that are given."""

    def before_instantiate_classes(self) -> None:
        """Look for the checkpoint before anything is made or written."""
        path = self._get(self.config, "ckpt_path")
        if path and path not in ("best", "last", "hpc") and "://" not in path and not Path(path).exists():
            raise ConfigError(f"ckpt_path: there is no checkpoint {path!r}; a run keeps its own in RUN/checkpoints/")

    def instantiate_classes(self) -> None:
        """Make all parts; an error of this package comes out as itself, not as what jsonargparse makes of it."""
        try:
            super().instantiate_classes()
        except (ValueError, TypeError, RuntimeError) as error:
            raise (own_error(error) or error) from error

    def parse_arguments(self, parser: LightningArgumentParser, args: ArgsType) -> None:
        """Parse arguments in which configurations may be given by name."""
        given = args if isinstance(args, list) else sys.argv[1:]
        self.config = parser.parse_args(resolve_configs(given))


def known_configs() -> list[str]:
    """Return the names of the configurations that come with the package, such as ``toolworld/slca``."""
    root = Path(str(CONFIGS))
    return sorted(path.relative_to(root).with_suffix("").as_posix() for path in root.rglob("*.yaml"))


def resolve_configs(args: Sequence[str]) -> list[str]:
    """Replace the name of a configuration by its path, wherever ``--config`` or ``-c`` is given one.

    Raises:
        SystemExit: where there is neither a file nor a configuration of that name; lists the known ones.
    """
    resolved = []
    for i, arg in enumerate(args):
        if arg.startswith("--config="):
            resolved.append(f"--config={_config_path(arg.removeprefix('--config='))}")
        elif i and args[i - 1] in ("--config", "-c"):
            resolved.append(_config_path(arg))
        else:
            resolved.append(arg)
    return resolved


def _config_path(name: str) -> str:
    if Path(name).is_file():
        return name
    packaged = Path(str(CONFIGS)) / f"{name}.yaml"
    if packaged.is_file():
        return str(packaged)
    sys.exit(f"slca: there is no file {name!r} and no configuration of that name; known: {', '.join(known_configs())}")


def run(args: Sequence[str] | None = None) -> SLCACommandLine:
    """Run a command, such as ``["fit", "--config", "toolworld/slca"]``, and return what it was made of."""
    _be_quiet()
    return SLCACommandLine(
        LightningModule,
        LightningDataModule,
        subclass_mode_model=True,
        subclass_mode_data=True,
        auto_configure_optimizers=False,
        parser_class=SLCAArgumentParser,
        save_config_kwargs={"overwrite": True},
        args=None if args is None else list(args),
    )


def _be_quiet() -> None:
    """Silence what would be said of every run and asks nothing of anyone."""
    disable_progress_bar()  # of transformers, each time a model is read or written
    for message in (
        ".*module.s. in eval mode at the start of training",  # on purpose: dropout would blur the probability ratio
        ".*isinstance.treespec, LeafSpec.",
        "Total length of `list` across ranks is zero",  # a run without validation tasks
    ):
        warnings.filterwarnings("ignore", message)


def main(args: Sequence[str] | None = None) -> int:
    """Entry point of ``slca``. What a user can set right ends with one line instead of a stack of internals."""
    try:
        run(args)
    except SLCAError as error:
        sys.stderr.write(f"slca: {type(error).__name__}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
