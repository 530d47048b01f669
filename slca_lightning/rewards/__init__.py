"""Rewards: the tool-call parser, the process score, judges and HierR. Imports neither torch nor Lightning."""

from slca_lightning.rewards.baselines import baseline_rewards
from slca_lightning.rewards.calls import CallStatistics, call_statistics, calls_match, count_correct
from slca_lightning.rewards.compare import values_match
from slca_lightning.rewards.hier import HierR, reward_streams
from slca_lightning.rewards.judges import RATINGS, FactReport, Judge, JudgeRequest, RuleJudge, fact_report
from slca_lightning.rewards.parser import CallBlock, CallProblem, ParsedTurn, parse_turn
from slca_lightning.rewards.process import ProcessWeights, process_reward, process_reward_from_parsed

__all__ = [
    "RATINGS",
    "CallBlock",
    "CallProblem",
    "CallStatistics",
    "FactReport",
    "HierR",
    "Judge",
    "JudgeRequest",
    "ParsedTurn",
    "ProcessWeights",
    "RuleJudge",
    "baseline_rewards",
    "call_statistics",
    "calls_match",
    "count_correct",
    "fact_report",
    "parse_turn",
    "process_reward",
    "process_reward_from_parsed",
    "reward_streams",
    "values_match",
]
