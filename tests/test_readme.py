"""The README is run: its Python, its commands' options, its links."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import torch

from slca_lightning.cli import main
from slca_lightning.models import tiny
from slca_lightning.models.tiny import build_tiny_policy

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def commands() -> list[list[str]]:
    lines = [line for block in blocks("bash") for line in block.splitlines()]
    lines += re.findall(r"`(slca [^`]+)`", README)
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def python_block(mark: str) -> str:
    (block,) = (block for block in blocks("python") if mark in block)
    return block


def test_every_python_block_is_run_here():
    assert len(blocks("python")) == 2


def test_embedding_block(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    build_tiny_policy(tmp_path / "runs" / "sft" / "hf", hidden_size=32, num_layers=1)
    block = python_block("trainer.fit")
    # As it stands, but for a shorter run: fewer tokens and no bar.
    short = block.replace("    group_size=4,", "    group_size=4,\n    limits=RolloutLimits(2, 24),", 1)
    short = short.replace(
        "max_epochs=2,", 'max_epochs=2, accelerator="cpu", enable_progress_bar=False, logger=False,', 1
    )
    assert short.count("RolloutLimits") == 1
    assert "enable_progress_bar" in short
    names: dict[str, object] = {}
    exec("from slca_lightning.rollout.loop import RolloutLimits\n" + short, names)  # noqa: S102
    assert names["trainer"].global_step == 2  # type: ignore[attr-defined]


def test_estimator_block():
    block = python_block("compute_advantages(")
    names: dict[str, object] = {}
    exec(block.replace("\ncompute_advantages(", "\nadvantages = compute_advantages(", 1), names)  # noqa: S102
    expected = [[0.71, 0.0, -0.71], [-0.71, 0.0, 0.71]]
    torch.testing.assert_close(  # the README gives two digits
        names["advantages"], torch.tensor(expected, dtype=torch.float64), atol=5e-3, rtol=0
    )
    assert "+0.71 and -0.71, summary tokens -0.71 and +0.71, results 0" in block


@pytest.mark.parametrize("words", [w for w in commands() if w[0] == "slca" and "--config" in w], ids=" ".join)
def test_slca_commands_parse(words, capsys):
    with pytest.raises(SystemExit) as stop:
        main([*words[1:], "--print_config"])
    assert stop.value.code == 0, capsys.readouterr().err


def test_other_commands(tmp_path, capsys, monkeypatch):
    known = {"slca", "slca-tiny", "slca-demo", "make", "pip", "tensorboard"}
    assert {words[0] for words in commands()} <= known
    scripts = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for words in commands():
        if words[0] == "make":
            assert words[1] in targets
        if words[0].startswith("slca"):
            assert f"\n{words[0]} = " in scripts
    built = []
    monkeypatch.setattr(tiny, "build_tiny_policy", lambda *args: built.append(args[0]) or args[0])
    (words,) = (words for words in commands() if words[0] == "slca-tiny")
    assert tiny.main(words[1:]) == 0
    assert built == ["runs/tiny"]


def test_options_named_in_the_text():
    from slca_lightning.callbacks import SegmentAdvantage
    from slca_lightning.functional import known_estimators

    named = re.search(r"`SegmentAdvantage` \| a Callback: (.*?), or your own", README)
    assert named
    assert set(re.findall(r"`(\w+)`", named[1])) == set(known_estimators())
    for estimator in known_estimators():
        SegmentAdvantage(estimator)


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/how-it-works.md", "docs/metrics.md"]
)
def test_relative_links_resolve(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if "://" not in target:
            assert ((ROOT / page).parent / target).exists(), f"{page}: {target}"
