# Two commands do all the setting up: `make demo` and `make test`. Both are quick when nothing has changed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Two processes with one thread each; the tests of a file share what they set up.
pytest = OMP_NUM_THREADS=1 $(1)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

.PHONY: demo test lint types docs bench format clean coverage mutants fuzz faults soak architecture uv core lowest python3.12 python3.13 flower audit

demo: $(VENV)/.installed
	$(BIN)/mixtune demo

test: $(VENV)/.installed-dev
	$(call pytest,$(BIN)) $(TESTS)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev
	$(BIN)/mypy

docs: $(VENV)/.installed-dev
	$(BIN)/mkdocs build --strict

bench: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks

coverage: $(VENV)/.installed-dev
	$(BIN)/python -m coverage run -m pytest $(TESTS)
	$(BIN)/python -m coverage report

# Small mistakes made on purpose, one at a time: do the tests notice? `make mutants MUTANTS=regret` for one room, or
# `make mutants MUTANTS='--sample 1000'`; a run that was stopped continues.
MUTANTS ?= --sample 100
mutants: $(VENV)/.installed-dev
	$(BIN)/python tests/mutation.py $(MUTANTS)

# The long forms of tests/fuzz and tests/faults; the suite runs a little of each.
FUZZ_EXAMPLES ?= 300
fuzz: $(VENV)/.installed-dev
	MIXTUNE_FUZZ_EXAMPLES=$(FUZZ_EXAMPLES) $(BIN)/python -m pytest -q tests/fuzz

KILLS ?= 150
faults: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -q tests/faults
	$(BIN)/python tests/faults/kills.py --kills $(KILLS)

MINUTES ?= 60
soak: $(VENV)/.installed-dev
	$(BIN)/python tests/faults/soak.py --minutes $(MINUTES)

architecture: $(VENV)/.installed-dev
	$(BIN)/python -m docs.architecture

# The suite in environments made by uv (in ENVS), or a part of it: make lowest TESTS=tests/data. PyTorch is left out,
# because its default build brings gigabytes along, and what needs it is skipped.
ENVS ?= .envs
UV := $(BIN)/uv
UV_FLOWER := -e '.[test,flower]'
UV_EXTRAS := -e '.[test,data,report,quantlib,onnx,dask]' 'polars>=1.3'

uv: ; $(call suite,uv,3.11,$(UV_EXTRAS))
core: ; $(call suite,core,3.11,-e '.[test]')
# Old typer warns of what new click has deprecated.
lowest: ; $(call suite,lowest,3.11,--resolution lowest-direct $(UV_EXTRAS) 'click>=8.1.8,<8.2')
python3.12: ; $(call suite,python3.12,3.12,$(UV_EXTRAS))
python3.13: ; $(call suite,python3.13,3.13,$(UV_EXTRAS))
# Flower needs older versions of typer, rich and protobuf than the other tests should run with.
flower: TESTS = tests/federated/test_flower.py
flower: ; $(call suite,flower,3.11,$(UV_FLOWER))
uv core lowest python3.12 python3.13 flower: $(UV)

# pyenv keeps interpreters where uv does not look.
PYENV_ROOT ?= $(HOME)/.pyenv
interpreter = $(or $(lastword $(wildcard $(PYENV_ROOT)/versions/$(1).*/bin/python)),$(1))

define suite
	$(UV) venv --quiet --clear --python $(call interpreter,$(2)) $(ENVS)/$(1) || \
	  { echo "make $(1) needs Python $(2), which uv neither found nor could fetch; install it" >&2; exit 1; }
	$(UV) pip install --quiet --python $(ENVS)/$(1)/bin/python $(3)
	$(call pytest,$(ENVS)/$(1)/bin) -p no:cacheprovider $(TESTS)
endef

$(UV): | $(VENV)/bin/python
	$(PIP) install --quiet uv

# Known weaknesses of the packages that an installation brings along; needs the network.
audit: $(UV)
	$(UV) venv --quiet --clear $(ENVS)/audit
	$(UV) pip install --quiet --python $(ENVS)/audit/bin/python . pip-audit
	$(ENVS)/audit/bin/pip-audit --local --skip-editable

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "mixtune needs Python 3.11 or newer; run: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) install --quiet -c constraints.txt -e '.[report,data,excel]'
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) install --quiet -c constraints.txt -e '.[dev,docs,torch,report,quantlib,data,onnx,dask,dp]'
	@touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) $(ENVS) .mutants site .pytest_cache .mypy_cache .ruff_cache .hypothesis
