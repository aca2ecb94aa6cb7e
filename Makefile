# `make run` and `make test` need python3 (3.11 or later) and the package index; nothing else, and no root.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
ARGS   ?=

# First what may run side by side, then clusters, then the rest one by one. (5: nothing of that kind was asked for.)
define pytest
$(BIN)/python -m pytest -n 2 --dist loadfile -m '$(1) and not alone and not cluster' $(ARGS) || [ $$? -eq 5 ]
$(BIN)/python -m pytest -n 2 --dist worksteal -m '$(1) and cluster' $(ARGS) || [ $$? -eq 5 ]
$(BIN)/python -m pytest -m '$(1) and alone' $(ARGS) || [ $$? -eq 5 ]
endef

.PHONY: help setup run test check soak bench lock clean

help:            ## Show this list
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

setup: $(STAMP)  ## Install Duetime and its tools into .venv

$(STAMP): pyproject.toml requirements/dev.lock
	@$(PYTHON) -c 'import sys; sys.exit("Duetime needs Python 3.11 or later; this is " + sys.version.split()[0] + ". Try: make setup PYTHON=python3.12") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements/dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(STAMP)

run: setup       ## Serve on http://127.0.0.1:8080 (ARGS="--port 9000" adds flags)
	$(BIN)/duetime serve $(ARGS)

test: setup      ## Everything that must hold: style, types, layers, and all tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(call pytest,not soak)

check: setup     ## The same without the slow tests: a few minutes
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(call pytest,not slow)

soak: setup      ## The long runs: many faults, for minutes (ARGS="-k kill" picks some)
	$(BIN)/python -m pytest -m soak $(ARGS)

bench: setup     ## Measure us, the peers and the bare limits in one run; writes docs/benchmarks.md
	$(BIN)/python -m bench $(ARGS)

lock: setup      ## Resolve the lock files anew (uses uv, from the package index)
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --extra dev pyproject.toml requirements/build.in -o requirements/dev.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --extra peers pyproject.toml -o requirements/peers.lock

clean:           ## Remove the virtual environment and caches
	rm -rf $(VENV) .peers .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
