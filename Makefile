# The interpreter for .venv; empty: the best one on this machine (scripts/setup.sh).
PYTHON ?=
# Passed on to pytest: make test ARGS="tests/unit -k cron"
ARGS ?=

BIN := .venv/bin
STAMP := .venv/.fleetcron-setup

.DEFAULT_GOAL := help
.PHONY: help setup services test lint demo soak bench bench-peers clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 18

setup: $(STAMP) ## make .venv, with the locked versions of everything

$(STAMP): pyproject.toml uv.lock scripts/setup.sh
	@scripts/setup.sh $(PYTHON)
	@touch $@

services: ## install the servers that tests use (as root, on Debian)
	@scripts/install-services.sh

# On the build machine a test that fails is run again, twice, and shown as such: it is shared, and a second may last ten. A fault fails thrice.
RERUNS := $(if $(CI),--reruns 2 --reruns-delay 2)

# Two workers share the servers; a file's tests stay together.
test: setup services ## run the tests
	$(BIN)/python -m pytest -n 2 --dist loadfile $(RERUNS) $(ARGS)

lint: setup ## ruff, mypy --strict, import contracts
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

soak: setup services ## the long runs: minutes each, on a machine that does nothing else
	CRASH_SECONDS=120 CRASH_LATE=0.05 $(BIN)/python -m pytest tests/crash -s $(ARGS)
	$(BIN)/python -m pytest -m soak -s $(ARGS)

demo: setup ## see it work
	@$(BIN)/fleetcron demo

# make bench ARGS="drain pickup --repeat 5"
bench: setup services ## measure, ours and the peers' that are installed, side by side
	$(BIN)/python -m benchmarks $(or $(ARGS),drain enqueue pickup precision herd wal idle sqlite startup) --out benchmarks/results

bench-peers: setup ## install the peers (npm, pip) below .bench
	benchmarks/install-peers.sh

clean: ## remove caches and build results, not .venv
	rm -rf build dist htmlcov .coverage* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
