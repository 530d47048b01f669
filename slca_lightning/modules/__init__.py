"""LightningModules: SLCA-GRPO, and the supervised stage before it."""

from slca_lightning.modules.sft import SFTModule
from slca_lightning.modules.slca import SLCAModule

__all__ = ["SFTModule", "SLCAModule"]
