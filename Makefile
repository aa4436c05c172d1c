# Everything a checkout can do. Each target sets up what it needs and does nothing twice.
# ARGS are handed on, for example: make test ARGS="tests/domain -k duplicate"

MAKEFLAGS += --no-print-directory
ARGS =
CHECKED = src tests scripts $(wildcard bench)
export PYTHON
# What is compiled is kept, whatever the environment says of it: else each of the many processes of a test run, and each
# start of the service, would compile everything again.
export PYTHONDONTWRITEBYTECODE =
# Unbuffered, a line that a command prints and its end would be two writes, between which another process may write.
export PYTHONUNBUFFERED =

.PHONY: help setup setup-run run test proof check format bench drill dist image chart lock clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

setup: ## Create .venv with everything for running, testing and checking
	@sh scripts/setup dev

run: setup-run ## Start the service, with all of its set-up
	@exec .venv/bin/hookmill serve $(ARGS)

test: setup ## Run all tests, or those that ARGS select
	@exec .venv/bin/pytest -n auto --no-loadscope-reorder $(ARGS)

proof: setup ## Run the tests, with race-prone ones repeated as often as for a release
	@exec .venv/bin/pytest -n auto --no-loadscope-reorder --full-counts $(ARGS)

check: setup ## Check format, lint, types and imports
	@.venv/bin/ruff format --check --quiet --output-format concise $(CHECKED)
	@.venv/bin/ruff check --quiet $(CHECKED)
	@.venv/bin/mypy --num-workers auto --no-error-summary $(CHECKED)
	@report=$$(.venv/bin/lint-imports --no-logo) || { echo "$$report"; exit 1; }
	@echo "Format, code, types and imports are in order."

format: setup ## Format the code, and apply the fixes of the linter
	@.venv/bin/ruff check --quiet --fix-only $(CHECKED)
	@.venv/bin/ruff format --quiet $(CHECKED)

bench: setup ## Measure the service under load
	@exec .venv/bin/python -m bench $(ARGS)

drill: setup ## Disturb the service, and audit every delivery and run
	@exec .venv/bin/python -m tests.drill $(ARGS)

dist: setup ## Build the wheel, the sdist and the list of components from HEAD
	@exec .venv/bin/python -m scripts.dist

image: ## Build the container image with docker, podman or buildah
	@exec scripts/image $(ARGS)

chart: setup ## Render the Helm chart again for the tests, with helm
	@exec .venv/bin/python -m scripts.chart

lock: ## Compile the lock files from pyproject.toml (newer versions: ARGS=--upgrade)
	@sh scripts/setup lock $(ARGS)

clean: ## Remove everything that make created (stop the service first)
	@rm -rf .venv .tools dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

setup-run:
	@sh scripts/setup run
