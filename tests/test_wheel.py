"""The package as others get it: built, installed elsewhere, used from another folder."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.slow

CHECK = """
import importlib.metadata, sys
from importlib.resources import files
import slca_lightning
assert slca_lightning.__file__.startswith(sys.argv[1]), slca_lightning.__file__
package = files("slca_lightning")
assert (package / "py.typed").is_file()
(distribution,) = importlib.metadata.distributions(name="slca-lightning", path=[sys.argv[1]])
scripts = [entry for entry in distribution.entry_points if entry.group == "console_scripts"]
assert sorted(entry.name for entry in scripts) == ["slca", "slca-demo", "slca-tiny"]
assert all(callable(entry.load()) for entry in scripts)
from slca_lightning.cli import known_configs, main
assert {"toolworld/sft", "toolworld/slca", "toucan"} <= set(known_configs())
main(["fit", "--config", "toolworld/slca", "--print_config"])
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Build from a copy, so that the working tree gets no ``build`` folder."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    names = ["pyproject.toml", "setup.cfg", "README.md", "LICENSE", "slca_lightning"]
    for name in [*names, "modules", "datamodules", "callbacks", "configs"]:
        (source / name).symlink_to(ROOT / name) if (ROOT / name).is_symlink() else _copy(ROOT / name, source / name)
    options = ["--no-deps", "--no-build-isolation", "--quiet", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", str(out), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (built,) = out.glob("slca_lightning-*.whl")
    return built


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        for path in source.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                _copy(path, target / path.relative_to(source))
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(source.read_bytes())


def test_contents(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"slca_lightning"}  # neither links nor tests
    package = ROOT / "slca_lightning"
    files = [path for path in package.rglob("*") if path.suffix in (".py", ".yaml") or path.name == "py.typed"]
    wanted = {f"slca_lightning/{path.relative_to(package).as_posix()}" for path in files}
    assert {name for name in names if name.startswith("slca_lightning/")} == wanted
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_installed_elsewhere(wheel, tmp_path):
    target, elsewhere = tmp_path / "installed", tmp_path / "elsewhere"
    elsewhere.mkdir()
    install = [sys.executable, "-m", "pip", "install", "--no-deps", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, "--target", str(target), str(wheel)], check=True)
    done = subprocess.run(
        [sys.executable, "-c", CHECK, str(target)],
        cwd=elsewhere,
        env={**os.environ, "PYTHONPATH": str(target)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "SLCAModule" in done.stdout
    assert list(elsewhere.iterdir()) == []
