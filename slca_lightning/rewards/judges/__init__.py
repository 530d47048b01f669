"""Judges of final texts: the interface and the embedded rule judge."""

from slca_lightning.rewards.judges.base import RATINGS, Judge, JudgeRequest
from slca_lightning.rewards.judges.facts import FactReport, fact_report
from slca_lightning.rewards.judges.rule import RuleJudge

__all__ = ["RATINGS", "FactReport", "Judge", "JudgeRequest", "RuleJudge", "fact_report"]
