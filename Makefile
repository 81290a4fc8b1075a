# `make help` lists the targets.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

# The first Python of a supported version; `make PYTHON=…` overrides it.
PYTHON ?= $(shell for python in python3 python3.11 python3.12 python3.13 python3.10; do \
	if $$python -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 14))' 2>/dev/null; \
	then echo $$python; exit; fi; done)
VENV ?= .venv
BIN := $(VENV)/bin
# setuptools warns at each editable install of what such an install is.
INSTALL := PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet
ARGS ?=

# What the build makes something of: a change here makes the editable install anew.
BUILT_FROM := pyproject.toml setup.py tools/npm.py $(wildcard proto/*) \
	$(shell find frontend -name node_modules -prune -o -type f ! -path frontend/src/lib/schema.ts -print)

.PHONY: help
help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: demo
demo: $(VENV)/.installed  ## Diagnose a badly fed training and serve the tab; ARGS=--no-serve only reports
	$(BIN)/plumber demo $(ARGS)

.PHONY: test
test: $(VENV)/.installed-dev chromium  ## Run all tests but the slow ones, from nothing; ARGS go to pytest
	$(BIN)/python tools/npm.py test
	$(BIN)/python -m pytest $(ARGS)

.PHONY: test-slow
test-slow: $(VENV)/.installed-dev chromium  ## Run the tests that take minutes
	$(BIN)/python -m pytest -m slow $(ARGS)

.PHONY: test-versions
test-versions: $(VENV)/.installed-dev  ## Run what depends on TensorFlow with 2.17 to 2.21, each in its own environment
	$(BIN)/python tools/test_versions.py $(ARGS)

.PHONY: lint
lint: $(VENV)/.installed-dev  ## Check style and types, Python and TypeScript
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tools/npm.py run typecheck

.PHONY: format
format: $(VENV)/.installed-dev  ## Bring Python into the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: bench
bench: $(VENV)/.installed-dev  ## Measure overhead, accuracy and time to solve (half an hour); ARGS=--smoke only tries
	$(BIN)/python -m benchmarks.run $(ARGS)

.PHONY: bench-predict
bench-predict: $(VENV)/.installed-dev  ## Predict rates of settings that never ran, then measure them (20 minutes)
	$(BIN)/python -m benchmarks.predict $(ARGS)

.PHONY: bench-optimize
bench-optimize: $(VENV)/.installed-dev  ## Measure what optimize gains over AUTOTUNE (two hours); ARGS=--smoke only tries
	$(BIN)/python -m benchmarks.optimize $(ARGS)

.PHONY: screenshot
screenshot: $(VENV)/.installed-dev chromium  ## Make the README's picture of the tab anew
	$(BIN)/python tools/screenshot.py $(ARGS)

.PHONY: build
build: $(VENV)/.installed-dev  ## Build sdist and wheel into dist/
	$(BIN)/python -m build

.PHONY: clean
clean:  ## Remove all that is generated, the virtual environment included
	rm -rf $(VENV) build dist *.egg-info frontend/node_modules frontend/src/lib/schema.ts \
		tensorboard_plugin_plumber/plugin/static \
		tensorboard_plugin_plumber/schema/descriptors.binpb tensorboard_plugin_plumber/schema/*.pyi

# Debian's browser for the tests of the tab.
.PHONY: chromium
chromium:
	@command -v chromium >/dev/null || { \
		root=$$( [ "$$(id -u)" = 0 ] || echo sudo ); \
		$$root apt-get update -qq && \
		DEBIAN_FRONTEND=noninteractive $$root apt-get install -y -qq --no-install-recommends chromium; }

$(VENV)/bin/python:
	@[ -n "$(PYTHON)" ] || { echo "No Python 3.10 to 3.13 found: install one, or name it: make PYTHON=…" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --upgrade pip

$(VENV)/.installed: $(BUILT_FROM) | $(VENV)/bin/python
	$(INSTALL) --editable .
	@touch $@

$(VENV)/.installed-dev: $(BUILT_FROM) | $(VENV)/bin/python
	$(INSTALL) --editable '.[dev]'
	@touch $@ $(VENV)/.installed
