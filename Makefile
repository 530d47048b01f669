# `make demo` and `make test` need Python 3.11 or newer and make; they create the environment in .venv themselves.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test lint types docs-check install constraints clean help

help:
	@echo "make demo        train a tiny policy on toolworld, before and after (9 to 13 minutes on 2 cores)"
	@echo "make test        lint, types, tests with coverage"
	@echo "make lint types  one of them"
	@echo "make clean       remove the environment and all caches"

# Made anew when the requirements change.
$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	@touch $@

install: $(VENV)/.installed

# Threads that wait for each other do so without spinning: on a busy machine the difference is a factor of three or more.
demo: $(VENV)/.installed
	OMP_WAIT_POLICY=PASSIVE $(BIN)/slca-demo

test: lint types
	$(BIN)/python -m pytest --cov --cov-fail-under=90

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed
	$(BIN)/mypy

constraints: $(VENV)/.installed
	@grep '^#' constraints.txt > constraints.new
	@$(BIN)/python -m pip freeze --exclude-editable | sed 's/+cpu//' >> constraints.new
	@mv constraints.new constraints.txt

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist *.egg-info
