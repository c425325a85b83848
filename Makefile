# Everything a newcomer runs. Each target installs what it needs (into .venv/ and, when permitted, Java; for tests also
# Maven and what else they run).
.DEFAULT_GOAL := help
BIN := .venv/bin
# Tiers of the tests, and which tests stay on one worker: tests/conftest.py.
# Tests with their assertions rewritten are kept as bytecode, also where an image sets that variable: half of the
# collection.
PYTEST := env PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest
PYTEST_WORKERS ?= 2
TESTS = $(PYTEST) -n $(PYTEST_WORKERS) $(PYTEST_ARGS)
IN_MEMORY = .ci/in-memory.sh
# What a target says stays together, where make can do that.
SYNC := $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)
# None: those that .ci/setup.sh does by itself.
SETUP_STEPS :=

.PHONY: help setup downloads brokers maven browser debian prometheus services demo check test test-full kafka-next durations lint style check-kernels fuzz bench bench-full wheel sbom audit environment lock clean

help: ## This list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 15

setup: ## Install everything; afterwards .venv/bin/regroup runs
	@.ci/setup.sh $(SETUP_STEPS)

demo: setup ## Run the main job, through its DAGs, on the log of an incident (demo/README.md), and explain it
	@.ci/demo.sh

check: setup ## Fast tests: no JVM, no browser
	$(IN_MEMORY) $(TESTS) -m fast

# Side by side, of a fresh clone: packages and downloads, then lint, and the kernels with the first broker. What comes
# before them asks the system's package manager, as the downloads do: it serves one at a time.
test: ## Lint, then fast and real tests: real brokers, Spark, Airflow, a browser, Prometheus
	@.ci/setup.sh java python libraries compiler
	@$(MAKE) --no-print-directory -j 2 $(SYNC) SETUP_STEPS=packages style brokers
	$(IN_MEMORY) $(TESTS) -m "fast or real"

test-full: maven browser debian services ## The other tests: images, installations, scale, every release, drills, walks, clusters; all examples
	$(IN_MEMORY) $(TESTS) --hypothesis-profile all -m "full or hypothesis"

kafka-next: maven ## Compare our record schemas with those of the newest Kafka that Maven has
	$(PYTEST) -q tests/live/test_schemas.py --kafka-schemas RELEASE

durations: maven browser debian prometheus services ## Print the table of tiers in CONTRIBUTING.md: each tier is run, one after the other
	@printf '| Tier | Tests | Minutes | Minutes of all workers |\n|---|---:|---:|---:|\n'
	@for tier in fast real full; do $(IN_MEMORY) $(TESTS) -m $$tier; done | sed -n '/^| /p; / failed/p'

downloads:
	@.ci/setup.sh maven browser prometheus

brokers: setup downloads
	@.ci/setup.sh project
	@$(BIN)/python -c "from tests.live.broker import Kafka; Kafka.fetch()"

maven: setup
	@.ci/setup.sh maven

browser: setup
	@.ci/setup.sh browser

debian: setup
	@.ci/setup.sh debian

prometheus: setup
	@.ci/setup.sh prometheus

services: setup
	@.ci/setup.sh services

style: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

lint: style ## ruff, mypy, the direction of imports
	$(PYTEST) -q tests/test_architecture.py

check-kernels: setup ## Kernels with bounds checks and sanitizers: tests, corpus, fuzzer; INPUTS=… SECONDS=… SEED=…
	@.ci/check-kernels.sh $(if $(INPUTS),--inputs $(INPUTS)) $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SEED),--seed $(SEED))

fuzz: setup ## Hostile logs, to kernels and commands, against the plain readers; SECONDS=… INPUTS=… SEED=…
	$(BIN)/python -m tests.fuzz $(if $(INPUTS),--inputs $(INPUTS)) $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SEED),--seed $(SEED))

bench: maven ## Measure; ratios against Kafka's own tools on the same bytes, some minutes
	$(BIN)/python -m tests.bench $(BENCH_ARGS)

bench-full: maven ## All tables of docs/performance.md, some 40 minutes; goes on where it stopped
	$(BIN)/python -m tests.bench --full --publish $(BENCH_ARGS)

wheel: setup ## Build dist/regroup-*.whl, for this platform and release of Python
	@rm -rf build dist/regroup-*.whl
	$(BIN)/python -m pip wheel --quiet --no-index --no-deps --no-build-isolation --wheel-dir dist .

sbom: setup ## Write the bill of materials and docs/licences.md, after make lock
	$(BIN)/python .ci/sbom.py

audit: setup ## Compare the lock with known vulnerabilities in ADVISORIES, a directory or zip of OSV files (osv.dev)
	$(BIN)/python .ci/audit.py "$(ADVISORIES)"

environment: wheel ## Build dist/regroup-environment.tar.gz, Python environment for executors of a Spark cluster
	.ci/environment.sh dist/regroup-*.whl dist/regroup-environment.tar.gz

lock: setup ## Lock the newest versions that pyproject.toml allows
	$(BIN)/uv pip compile --quiet --upgrade --generate-hashes --universal --python-version 3.11 \
		--custom-compile-command "make lock" .ci/bootstrap.in --output-file .ci/bootstrap.txt
	$(BIN)/python .ci/lock.py --upgrade

clean: ## Remove what the other targets made, except .venv/
	rm -rf build dist *.egg-info .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis demo-output spark-warehouse metastore_db derby.log
