# Every target sets up what it needs; a machine with Python 3.11, make and package registries is enough.
PYTHON ?= python3
BIN := .venv/bin
CODE := src tests tools benchmarks
# Seconds that the long suites may take, and where their randomness starts.
DEEP_SECONDS ?= 600
# Many short tests: an idle worker takes over half of another one's tests. A third one works while others wait for
# processes and servers; what waits longest comes first.
FAST := tests/deploy tests/repository tests/unit --dist worksteal -m "not deep"
FAST_WORKERS ?= 3
# Tests with a JVM, a service or a browser share the cores too: each worker has one session and services of its
# own, less than 5 GiB. A third one, where there is memory for it, works while others wait for intervals, retries
# and processes. tests/conftest.py says which files come first.
FULL := tests/services tests/spark tests/web -m "not deep"
FULL_WORKERS ?= $(shell awk '/MemTotal/ {if ($$2 > 15000000) n = 3} END {print n ? n : 2}' /proc/meminfo 2>/dev/null | grep . || echo 2)
FULL_ORDER := --dist loadfile --no-loadscope-reorder

# Hundreds of processes load the same modules: they are compiled once, whatever the machine's habit is.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-kafscale test test-fast test-web test-deploy test-image test-deep check fmt bench docs lock build release-check clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F'\t' '{printf "  make %-13s %s\n", $$1, $$2}'

setup: ## Install everything into .venv and the machine's cache
	@$(PYTHON) tools/bootstrap.py

demo: ## Run the tour on embedded services and prove the result
	@$(PYTHON) tools/bootstrap.py demo
	@$(BIN)/frazil demo

demo-kafscale: ## Run the tour of KafScale's topics
	@$(PYTHON) tools/bootstrap.py demo-kafscale
	@$(BIN)/frazil demo kafscale

# The checks leave a core idle, which makes what the tests need meanwhile.
test: setup ## Run the checks and all tests (what CI runs)
	@{ $(BIN)/python -m tests.support.process.class_archive && $(BIN)/python -m tools.build_etcd && \
	  $(BIN)/python -m tools.deploy.deploy_tools; } & \
	  archive=$$!; $(MAKE) --no-print-directory check; checked=$$?; wait $$archive && exit $$checked
	@$(BIN)/pytest -q -n $(FAST_WORKERS) $(FAST)
	@$(BIN)/pytest -q -n $(FULL_WORKERS) $(FULL_ORDER) $(FULL)

test-fast: setup ## Run the tests that need no JVM, no service and no browser
	@$(BIN)/pytest -q -n $(FAST_WORKERS) $(FAST)

test-web: setup ## Run the tests of the status page in the machine's Chromium
	@$(BIN)/python -m tools.browser
	@$(BIN)/pytest -q -m web

test-deploy: setup ## Check chart, manifests, image, rules and dashboards
	@$(BIN)/python -m tools.deploy.deploy_tools
	@$(BIN)/pytest -q -n $(FAST_WORKERS) tests/deploy

test-image: setup ## Build the image from Debian packages and run it, or say why not here
	@$(BIN)/python -m tools.deploy.build_image
	@$(BIN)/pytest -q -n0 tests/deploy/test_image.py tests/image

test-deep: setup ## Run long property budgets (DEEP_SECONDS=600)
	@$(BIN)/python -m tools.build_etcd
	@$(BIN)/python -m tools.deploy.fetch_trino
	@FRAZIL_DEEP_SECONDS=$(DEEP_SECONDS) $(BIN)/pytest -q -m "hypothesis and not deep" --timeout=0
	@FRAZIL_DEEP_SECONDS=$(DEEP_SECONDS) $(BIN)/pytest -s -m deep --timeout=0

check: setup ## Check style, types, imports, dependencies and documentation
	@$(BIN)/ruff format --check --quiet $(CODE)
	@$(BIN)/ruff check --quiet $(CODE)
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-logo > .tools/lint-imports.log || { cat .tools/lint-imports.log; exit 1; }
	@$(BIN)/deptry --no-ansi . > .tools/deptry.log 2>&1 || { cat .tools/deptry.log; exit 1; }
	@$(BIN)/python -m tools.docs.reference_pages --check
	@$(BIN)/python -m tools.docs.site --check
	@echo "check: style, types, imports, dependencies and documentation are in order"

fmt: setup ## Format the code and apply safe fixes
	@$(BIN)/ruff check --fix --quiet $(CODE) || true
	@$(BIN)/ruff format --quiet $(CODE)

bench: setup ## Measure, check the results, and write benchmarks/results
	@$(BIN)/python -m benchmarks

docs: setup ## Generate docs/reference and the chart's schema from the code, and build the site into site
	@$(BIN)/python -m tools.docs.reference_pages
	@$(BIN)/python -m tools.deploy.values_schema
	@$(BIN)/python -m tools.docs.site
	@echo "docs: site/index.html"

lock: setup ## Refresh the locked dependencies with their hashes
	@$(PYTHON) -m tools.lock

build: setup ## Build the wheel and the source archive into dist
	@$(BIN)/hatchling build

release-check: setup ## Build both archives and prove that they are complete
	@$(BIN)/python -m tools.release_check

clean: ## Remove what setup and the tests made in this checkout
	@rm -rf .venv .tools dist site .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
