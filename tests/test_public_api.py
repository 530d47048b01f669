"""The names that others build on. A change here is a change for them: it belongs in the CHANGELOG."""

from __future__ import annotations

import inspect
from importlib import import_module
from importlib.metadata import version

import pytest

import slca_lightning

PUBLIC = {
    "": """
        ConfigError DataError EmbeddedBackend EngineError HFExport HierR JudgeError ProcessWeights RewardBreakdown
        Rollout RolloutDataModule RolloutLogger RolloutProgress RuleJudge SFTDataModule SFTModule SLCAError SLCAModule
        Score SegmentAdvantage Simulator SimulatorError ToolCall ToolResult ToolTask WeightSync __version__
        compute_advantages parse_turn process_reward segment_masks""",
    ".modules": "SFTModule SLCAModule",
    ".datamodules": "RolloutDataModule SFTDataModule",
    ".callbacks": "HFExport RolloutLogger RolloutProgress SegmentAdvantage WeightSync",
    ".metrics": "ROLLOUT_METRICS SUCCESS_THRESHOLDS RolloutMetrics success_at",
    ".functional": """
        AdvantageInputs ClippedObjective EstimatorSpec compute_advantages entropy estimator estimator_inputs
        group_normalize kl_divergence known_estimators masked_mean masked_sum policy_runs ppo_clip segment_masks
        token_logprobs""",
    ".rewards": """
        RATINGS CallBlock CallProblem CallStatistics FactReport HierR Judge JudgeRequest ParsedTurn ProcessWeights
        RuleJudge baseline_rewards call_statistics calls_match count_correct fact_report parse_turn process_reward
        process_reward_from_parsed reward_streams values_match""",
    ".simulation": """
        Answer AnswerCache ArgumentFault Backend BackendRequest CacheKey EmbeddedBackend Executor Malformed MemoryCache
        SchemaChecker Simulator SimulatorSession ToolRefusalError UnknownExecutor placeholder_answer session_state
        truncate_middle""",
    ".tasks": "DemonstrationSource TaskSource ToolWorldDemonstrations ToolWorldTasks ToucanTasks epoch_indices",
    ".tasks.toolworld": "DemonstratorErrors ToolWorldDemonstrations ToolWorldTasks execute",
}

OPTIONS = {
    "SLCAModule": """
        model_path optimizer lr_scheduler clip_low clip_high kl_coef kl_kind lora dtype attn_implementation
        random_weights trust_remote_code""",
    "RolloutDataModule": """
        model_path tasks val_tasks engine simulator reward limits tasks_per_epoch group_size micro_batch_size
        val_batch_size temperature max_prompt_tokens on_long_prompt on_template_drift max_failed_fraction seed
        template_options trust_remote_code""",
    "SegmentAdvantage": "estimator boundary normalize_std options",
    "HierR": """
        judge weights weight_tool weight_summary omission_reward min_summary_chars judge_no_call_tasks
        failed_judge_is_zero no_call_format""",
    "Simulator": "backend max_parallel_calls schema_guidance max_result_chars cache",
}
"""Options of ``slca fit``, in the order that positional callers rely on."""


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names(module):
    imported = import_module(f"slca_lightning{module}")
    assert sorted(imported.__all__) == sorted(PUBLIC[module].split())
    for name in imported.__all__:
        assert getattr(imported, name) is not None
        assert name in dir(imported)


@pytest.mark.parametrize("name", OPTIONS)
def test_options_of_the_command_line(name):
    assert list(inspect.signature(getattr(slca_lightning, name)).parameters) == OPTIONS[name].split()


def test_lazy_names_are_the_same_objects_and_others_are_missing():
    from slca_lightning.modules.slca import SLCAModule

    assert slca_lightning.SLCAModule is SLCAModule
    assert not hasattr(slca_lightning, "SLCAModul")
    with pytest.raises(ImportError, match="Nothing"):
        from slca_lightning import Nothing  # type: ignore[attr-defined]  # noqa: F401


def test_version_is_the_installed_one():
    assert slca_lightning.__version__ == version("slca-lightning")
