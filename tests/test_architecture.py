"""What may import what, and a few things that no file of the package does. Read from the source, not from a run."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import slca_lightning

PACKAGE = Path(slca_lightning.__file__).parent
FILES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))

LEVELS = {
    **dict.fromkeys(("types", "errors", "seeding"), 0),
    "functional": 1,
    "rewards": 2,
    "simulation": 3,
    "tasks": 4,
    "models": 5,
    "rollout": 6,
    "metrics": 7,
    "hooks": 8,
    **dict.fromkeys(("modules", "datamodules", "callbacks"), 9),
    **dict.fromkeys(("cli", "cli_errors", "demo", "report", "evaluation", "__main__"), 10),
}
"""The order of the table in CONTRIBUTING.md: a part imports from its own level and from those before it."""


@cache
def tree(file: str) -> ast.Module:
    return ast.parse((PACKAGE / file).read_text(encoding="utf-8"))


@cache
def imports(file: str) -> tuple[tuple[str, bool], ...]:
    """Full names of what a file imports, and whether at module level. TYPE_CHECKING counts too, but for the root."""
    module_level = {id(node) for node in tree(file).body}
    found = []
    for node in ast.walk(tree(file)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        found += [(name, id(node) in module_level) for name in names]
    return tuple(found)


def part(file: str) -> str:
    return file.split("/")[0].removesuffix(".py")


def tops(file: str) -> set[str]:
    return {name.split(".")[0] for name, _ in imports(file)}


def parts_used(file: str) -> set[str]:
    used = {name.split(".")[1] for name, _ in imports(file) if name.startswith("slca_lightning.")}
    return {name for name in used if (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file()}


def files_of(*parts: str) -> list[str]:
    return [file for file in FILES if part(file) in parts]


def test_every_part_has_its_place():
    assert {part(file) for file in FILES} <= {*LEVELS, "__init__"}


def test_contributing_lists_the_parts_in_this_order():
    text = (PACKAGE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    order = [name.strip(" `").removesuffix("/").removesuffix(".py") for row in rows for name in row.split(",")]
    assert [LEVELS[name] for name in order] == sorted(LEVELS[name] for name in order)
    assert {name for name in LEVELS if name not in ("__main__", "evaluation")} <= set(order)


@pytest.mark.parametrize("file", files_of("functional"))
def test_functional_is_torch_and_the_standard_library(file):
    assert tops(file) <= {"torch", "slca_lightning", *sys.stdlib_module_names}
    assert parts_used(file) <= {"functional", "errors"}


@pytest.mark.parametrize("file", files_of("functional", "rewards", "simulation", "rollout", "tasks", "models"))
def test_the_core_knows_no_lightning(file):
    assert not tops(file) & {"lightning", "pytorch_lightning"}


@pytest.mark.parametrize("file", files_of("rewards", "simulation", "tasks", "types", "errors", "seeding"))
def test_rules_and_tasks_know_no_torch(file):
    assert not tops(file) & {"torch", "transformers", "numpy"} - ({"numpy"} if file == "tasks/gold.py" else set())


@pytest.mark.parametrize("file", [file for file in FILES if file != "__init__.py"])
def test_imports_go_down_the_table(file):
    higher = {used for used in parts_used(file) if LEVELS[used] > LEVELS[part(file)]}
    assert not higher


def test_no_circles_between_parts():
    graph: dict[str, set[str]] = {}
    for file in FILES:
        if file != "__init__.py":
            graph.setdefault(part(file), set()).update(parts_used(file) - {part(file)})
    while graph:
        leaves = {name for name, used in graph.items() if not used & set(graph)}
        assert leaves, f"a circle among {sorted(graph)}"
        graph = {name: used for name, used in graph.items() if name not in leaves}


@pytest.mark.parametrize("file", FILES)
def test_optional_packages_are_imported_where_they_are_used(file):
    top_level = {name.split(".")[0] for name, at_top in imports(file) if at_top}
    assert not top_level & {"vllm", "bfcl", "tau2", "pytorch_lightning"}


@pytest.mark.parametrize("file", FILES)
def test_files_are_short(file):
    assert len((PACKAGE / file).read_text(encoding="utf-8").splitlines()) <= 400


@pytest.mark.parametrize("file", FILES)
def test_nothing_is_swallowed_executed_or_read_from_the_environment(file):
    assert not tops(file) & {"pickle", "cPickle", "dill", "cloudpickle"}
    for node in ast.walk(tree(file)):
        where = f"{file}:{getattr(node, 'lineno', '?')}"
        if isinstance(node, ast.ExceptHandler):
            assert node.type is not None, f"{where}: a bare except"
            kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
            assert not any(isinstance(kind, ast.Name) and kind.id == "Exception" for kind in kinds), where
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in ("eval", "exec", "print"), where
        if isinstance(node, ast.Attribute):
            assert node.attr not in ("environ", "getenv"), where
        if isinstance(node, ast.keyword) and node.arg == "weights_only":
            assert not (isinstance(node.value, ast.Constant) and node.value.value is False), where


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import slca_lightning; dir(slca_lightning)", "torch lightning transformers jsonargparse"),
        ("from slca_lightning import ToolCall, ConfigError", "torch lightning transformers"),
        (
            "import slca_lightning.rewards, slca_lightning.simulation, slca_lightning.types",
            "torch lightning transformers",
        ),
        ("import slca_lightning.tasks", "torch lightning transformers"),
        ("import slca_lightning.functional", "lightning transformers"),
    ],
)
def test_importing_a_part_leaves_the_rest_alone(statement, absent):
    code = f"{statement}\nimport sys\nassert not set({absent.split()}) & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
