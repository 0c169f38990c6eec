# `make demo` and `make test` set up everything they need first; both are quick when nothing has changed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
PACKAGES := packages/mixtune packages/mixtune-options packages/mixtune-federated packages/mixtune-paper
PROJECTS := pyproject.toml constraints.txt $(PACKAGES:=/pyproject.toml)
# What pip does, line by line; what is there already is left out.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
progress := 2>&1 | { grep --line-buffered -v -e '^Requirement already' -e '^WARNING: Location' || true; }
# Two processes with one thread each; the tests of a file share what they set up.
pytest = OMP_NUM_THREADS=1 $(1)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

.PHONY: demo test test-core lint types docs bench format clean coverage mutants fuzz faults soak golden architecture
.PHONY: uv core lowest python3.12 python3.13 flower audit

demo: $(VENV)/.installed-demo
	$(BIN)/mixtune demo

test: $(VENV)/.installed
	$(call pytest,$(BIN)) $(TESTS)

# The tests of the core in an environment without companions and optional packages; fuzz, faults and properties of numbers
# do not depend on these.
core_only := $(addprefix --ignore=packages/mixtune/tests/,fuzz faults properties)
test-core: $(VENV)-core/.installed
	$(call pytest,$(VENV)-core/bin) packages/mixtune $(core_only)

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed
	$(BIN)/mypy

docs: $(VENV)/.installed-docs
	$(BIN)/mkdocs build --strict

bench: $(VENV)/.installed
	$(BIN)/python -m benchmarks

coverage: $(VENV)/.installed
	$(BIN)/python -m coverage run -m pytest $(TESTS)
	$(BIN)/python -m coverage report

# Small mistakes made on purpose, one at a time: do the tests notice? `make mutants MUTANTS=regret` for one folder, or
# `make mutants MUTANTS='--sample 1000'`; a run that was stopped continues.
MUTANTS ?= --sample 100
mutants: $(VENV)/.installed
	$(BIN)/python tests/mutation.py $(MUTANTS)

# The long forms of the tests in fuzz and faults; the suite runs a little of each.
FUZZ_EXAMPLES ?= 300
fuzz: $(VENV)/.installed
	MIXTUNE_FUZZ_EXAMPLES=$(FUZZ_EXAMPLES) $(BIN)/python -m pytest -q packages/mixtune/tests/fuzz

KILLS ?= 150
faults: $(VENV)/.installed
	$(BIN)/python -m pytest -q packages/mixtune/tests/faults
	$(BIN)/python packages/mixtune/tests/faults/kills.py --kills $(KILLS)

MINUTES ?= 60
soak: $(VENV)/.installed
	$(BIN)/python packages/mixtune/tests/faults/soak.py --minutes $(MINUTES)

# Results that must not change unnoticed: shows what differs, and with GOLDEN=--force stores the present ones.
golden: $(VENV)/.installed
	cd tests && OMP_NUM_THREADS=1 ../$(BIN)/python -m golden.write $(GOLDEN)

architecture: $(VENV)/.installed
	$(BIN)/python -m docs.architecture

# The suite in environments made by uv (in ENVS), or a part of it: make lowest TESTS=packages/mixtune/tests/data.
# PyTorch is left out, because its default build brings gigabytes along, and what needs it is skipped.
ENVS ?= .envs
UV := $(BIN)/uv
EDITABLE := $(addprefix -e ,$(PACKAGES))
UV_FLOWER := $(EDITABLE) 'mixtune[test]' 'mixtune-federated[flower]'
UV_EXTRAS := $(EDITABLE) 'mixtune[test,data,report,onnx,dask]' 'mixtune-options[quantlib]' 'polars>=1.3'

uv: ; $(call suite,uv,3.11,$(UV_EXTRAS))
core: ; $(call suite,core,3.11,-e 'packages/mixtune[test]')
core: TESTS = packages/mixtune
# Old typer warns of what new click has deprecated.
lowest: ; $(call suite,lowest,3.11,--resolution lowest-direct $(UV_EXTRAS) 'click>=8.1.8,<8.2')
python3.12: ; $(call suite,python3.12,3.12,$(UV_EXTRAS))
python3.13: ; $(call suite,python3.13,3.13,$(UV_EXTRAS))
# Flower needs older versions of typer, rich and protobuf than the other tests should run with.
flower: TESTS = packages/mixtune-federated/tests/test_flower.py
flower: ; $(call suite,flower,3.11,$(UV_FLOWER))
uv core lowest python3.12 python3.13 flower: $(UV)

# pyenv keeps interpreters where uv does not look.
PYENV_ROOT ?= $(HOME)/.pyenv
interpreter = $(or $(lastword $(wildcard $(PYENV_ROOT)/versions/$(1).*/bin/python)),$(1))

define suite
	$(UV) venv --quiet --clear --python $(call interpreter,$(2)) $(ENVS)/$(1) || \
	  { echo "make $(1) needs Python $(2), which uv neither found nor could fetch; install it" >&2; exit 1; }
	$(UV) pip install --python $(ENVS)/$(1)/bin/python $(3)
	$(call pytest,$(ENVS)/$(1)/bin) -p no:cacheprovider $(TESTS)
endef

$(UV): | $(VENV)/bin/python
	$(PIP) install --quiet uv

# Known weaknesses of the packages that an installation brings along; needs the network.
audit: $(UV)
	$(UV) venv --quiet --clear $(ENVS)/audit
	$(UV) pip install --quiet --python $(ENVS)/audit/bin/python $(PACKAGES) pip-audit
	$(ENVS)/audit/bin/pip-audit --local --skip-editable

format: $(VENV)/.installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(VENV)/bin/python $(VENV)-core/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "mixtune needs Python 3.11 or newer; run: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(@D:/bin=)

# The core with the data of the example, and nothing else.
$(VENV)/.installed-demo: $(PROJECTS) | $(VENV)/bin/python
	$(PIP) install -c constraints.txt -e 'packages/mixtune[data]' $(progress)
	@touch $@

# All packages with their extras and the tools of the checks.
$(VENV)/.installed: $(PROJECTS) requirements/test.txt requirements/docs.txt | $(VENV)/bin/python
	$(PIP) install -c constraints.txt -r requirements/test.txt -r requirements/docs.txt $(progress)
	@touch $@ $(VENV)/.installed-demo $(VENV)/.installed-docs

$(VENV)/.installed-docs: $(PROJECTS) requirements/docs.txt | $(VENV)/bin/python
	$(PIP) install -c constraints.txt -r requirements/docs.txt $(progress)
	@touch $@

$(VENV)-core/.installed: $(PROJECTS) | $(VENV)-core/bin/python
	$(VENV)-core/bin/python -m pip --disable-pip-version-check install -c constraints.txt -e 'packages/mixtune[test]' $(progress)
	@touch $@

clean:
	rm -rf $(VENV) $(VENV)-core $(ENVS) .mutants site .pytest_cache .mypy_cache .ruff_cache .hypothesis
