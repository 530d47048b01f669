"""Data modules: fresh rollouts for reinforcement learning, demonstrations for the supervised stage."""

from slca_lightning.datamodules.rollout import RolloutDataModule
from slca_lightning.datamodules.sft import SFTDataModule

__all__ = ["RolloutDataModule", "SFTDataModule"]
