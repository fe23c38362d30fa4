# Every target sets up .venv by itself, once per change of pyproject.toml.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# Where the caller's environment forbids it, every process that a test starts would compile the package anew.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test lint suite bench clean

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/pip install --quiet --disable-pip-version-check --editable ".[dev]"
	touch $(READY)

test: $(READY)
	$(MAKE) --jobs 2 lint suite  # side by side: the type checker keeps one core busy for a minute

suite: $(READY)
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile

lint: $(READY)
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/mypy

demo: $(READY)
	$(BIN)/factorjepa demo --out demo
	@echo 'Next: source $(BIN)/activate, then factorjepa --help'

bench: $(READY)
	for script in benchmarks/bench_*.py; do $(BIN)/python $$script || exit 1; done

clean:
	rm -rf $(VENV) demo build dist
