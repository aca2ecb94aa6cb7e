# `make run` and `make test` need python3 (3.11 or later) and the package index; nothing else, and no root.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
ARGS   ?=
SEED   ?=

.PHONY: help setup run test check hard-test soak bench release-check lock clean

help:            ## Show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

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
	$(BIN)/python tests/run.py test $(ARGS)

check: setup     ## Style, types, layers and the fast tests: about a minute
	$(BIN)/python tests/run.py check $(ARGS)

hard-test: setup ## All tests in random order on a machine kept busy (SEED=123 repeats an order)
	$(BIN)/python tests/run.py hard $(if $(SEED),--seed $(SEED)) $(ARGS)

soak: setup      ## The long runs: many faults, for minutes (ARGS="-k kill" picks some)
	$(BIN)/python -m pytest -m soak $(ARGS)

bench: setup     ## Measure us, the peers and the bare limits in one run; writes docs/benchmarks.md
	$(BIN)/python -m bench $(ARGS)

release-check: setup ## Before a release: secrets in the files, and known vulnerabilities of dependencies (asks the package index)
	$(BIN)/python tests/scan.py
	@$(PYTHON) -m venv .audit && .audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit || true
	$(BIN)/python tests/advisories.py .audit/bin/pip-audit requirements/dev.lock requirements/generators.lock requirements/node.lock

lock: setup      ## Resolve the lock files anew (uses uv, from the package index)
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --extra dev pyproject.toml requirements/build.in -o requirements/dev.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --extra peers pyproject.toml -o requirements/peers.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header requirements/generators.in -o requirements/generators.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header requirements/node.in -o requirements/node.lock

clean:           ## Remove the virtual environment and caches
	rm -rf $(VENV) .audit .peers .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
