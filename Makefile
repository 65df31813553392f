# The targets are the documentation: `make help`.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
VENV ?= .venv
# Test processes side by side: three wait enough for two cores. Files stay whole, so that each process
# starts Spark once at most, and in order: sorted by their number of tests, slow ones would come last
# and one process would wait.
WORKERS ?= 3

BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
CONNECT := $(VENV)/connect/.installed
UV := $(BIN)/uv
ARCHIVE := $(VENV)/spark.jsa
INSTALL := VENV="$(VENV)" .ci/install
# Python keeps what it has compiled, and pytest the tests that it has rewritten, also where the environment
# says otherwise: tests start Python hundreds of times.
export PYTHONDONTWRITEBYTECODE :=
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
NO_JVM := not spark and not fault and not s3
# JVMs of tests have two cores and small heaps, for which other collectors start too many threads, and
# end before code that the second compiler has optimised pays off.
SHORT_LIVED := -XX:+UseSerialGC -XX:TieredStopAtLevel=1
WITH_SPARK = JDK_JAVA_OPTIONS="-XX:SharedArchiveFile=$(abspath $(ARCHIVE)) $(SHORT_LIVED)"
# The archive is of the files of one environment.
WITH_ANOTHER_SPARK := JDK_JAVA_OPTIONS="$(SHORT_LIVED)"

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: machine-demo install ## Generate TPC-H tables, analyze and join them, change them, and show that only changes are read
	@$(BIN)/python examples/project/demo.py

.PHONY: demo-catalog
demo-catalog: install ## Serve a REST catalog on this machine, and keep the statistics of its tables
	@$(BIN)/python examples/catalog/demo.py

.PHONY: demo-duplicates
demo-duplicates: machine-demo install ## Find near-duplicates among products, and group them
	@$(BIN)/python examples/duplicates/demo.py

.PHONY: install
install: $(INSTALLED) $(CONNECT) ## Create .venv with lancestat and all that its tests need, at pinned versions

# Java is out of reach, so that a test which needs it without saying so fails on every machine. These
# tests wait at times, as for Lance, which tries again what fails: a third process uses two cores better.
.PHONY: check
check: machine-check install compiled ## Check style, types and layers, and run the tests of parts, which start no JVM and no other program
	@$(MAKE) -j 2 lint parts

.PHONY: parts
parts:
	@JAVA_HOME=/nonexistent $(PYTEST) -n 3 -q --hypothesis-profile=quick -m "$(NO_JVM) and not wheel and not whole"

.PHONY: test
test: machine-test ## Check style, types and layers, then run tests of every kind, with a share of their cases
	@$(MAKE) -j $(WORKERS) prepared
	@$(WITH_SPARK) $(PYTEST) --hypothesis-profile=quick

.PHONY: thorough
thorough: machine-test ## Do as `make test` does, with every test and all its cases
	@$(MAKE) -j $(WORKERS) prepared
	@$(WITH_SPARK) $(PYTEST)

# Everything before the tests, of which most steps keep one core busy: the longest first.
.PHONY: prepared
prepared: $(INSTALLED) integrations older-sparks $(ARCHIVE) $(CONNECT) lint rewritten browser

# The tests would install them one after the other; they fail with the reason where that fails.
.PHONY: older-sparks
older-sparks: | $(UV)
	-@$(BIN)/python -m tests.versions.environments

.PHONY: matrix
matrix: machine-matrix install compiled ## Run the tests of `make test` that need Spark with Spark 3.5, 4.0, 4.1 and 4.2; takes hours
	@$(BIN)/python -m tests.versions --workers $(WORKERS)

# What click prints and what PySpark has differs by version: the tests of that are left out, as is a
# plugin of pytest's that comes with libraries and may be too old for it.
.PHONY: lowest
lowest: machine-check machine-pages install browser ## Run tests that start no JVM with the oldest libraries that pyproject.toml allows
	@$(UV) venv --quiet --clear --python $(BIN)/python $(VENV)-lowest
	@$(UV) pip compile --quiet --resolution lowest-direct --python $(BIN)/python --no-header \
	    --no-annotate --no-emit-index-url --output-file $(VENV)-lowest/lowest.txt pyproject.toml
	@$(INSTALL) $(VENV)-lowest --requirements $(VENV)-lowest/lowest.txt
	@$(INSTALL) $(VENV)-lowest --constraints $(VENV)-lowest/lowest.txt \
	    --group test --group docs --group release
	@$(INSTALL) $(VENV)-lowest --no-deps --editable .
	@$(VENV)-lowest/bin/python -m pytest -q -n $(WORKERS) --hypothesis-profile=quick \
	    -p no:anyio --ignore tests/cli --ignore tests/ci --ignore tests/spark -m "$(NO_JVM)"

.PHONY: cluster
cluster: machine-matrix install compiled ## Kill processes of a Spark cluster while it works, at random moments, and compare
	@$(BIN)/python -m tests.cluster

.PHONY: connect
connect: machine-matrix install compiled ## Change tables at random, analyze and join them on a Spark Connect server, and compare
	@$(BIN)/python -m tests.histories --connect --histories 50

DAGSTER := integrations/dagster

.PHONY: integration-dagster
integration-dagster: machine-demo $(DAGSTER)/.venv/.installed ## Test the Dagster integration with the pinned Dagster, in an environment of its own
	@cd $(DAGSTER) && .venv/bin/mypy && $(WITH_ANOTHER_SPARK) .venv/bin/python -m pytest -q

AIRFLOW := integrations/airflow

.PHONY: integrations
integrations: integration-dagster integration-airflow

.PHONY: integration-airflow
integration-airflow: machine-demo $(AIRFLOW)/.venv/.installed ## Test the Airflow integration with the pinned Airflow, in an environment of its own
	@cd $(AIRFLOW) && .venv/bin/mypy && $(WITH_ANOTHER_SPARK) .venv/bin/python -m pytest -q

# They call what is not public, and are to notice when it changes.
OF_BENCHMARKS := --config-file ../pyproject.toml --cache-dir ../.mypy_cache \
    --disable-error-code misc --disable-error-code type-arg --disable-error-code assignment

.PHONY: lint
lint: $(INSTALLED) ## Check style, types and layers
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@cd benchmarks && MYPYPATH=.. $(abspath $(BIN))/mypy $(OF_BENCHMARKS) *.py
	@$(BIN)/lint-imports

.PHONY: format
format: install ## Let ruff write the code's layout
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

.PHONY: generate
generate: install ## Generate schemas/, docs/reference/{yaml,errors}.md from the code
	@$(BIN)/python -m lancestat.spec.schema
	@$(BIN)/python -m lancestat.errors.reference
	@$(BIN)/python -m lancestat.pipelines.artifacts
	@$(BIN)/python -m lancestat.pipelines.column_facet

.PHONY: golden
golden: install ## Rewrite tests/golden; read the difference before you commit it
	@$(BIN)/python -m pytest -q -m "$(NO_JVM)" --update-golden
	@git --no-pager diff --stat -- tests/golden

.PHONY: site
site: install ## Build the documentation as a site in site/, which opens from disk and needs no network
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "open site/index.html, or run: make site-serve"

.PHONY: site-serve
site-serve: install ## Serve the documentation at http://127.0.0.1:8000, and build it again as files change
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve --strict

.PHONY: pictures
pictures: machine-demo machine-pages install browser ## Draw the pictures of README again, from real output
	@$(BIN)/python docs/pictures.py

.PHONY: golden-notebook
golden-notebook: machine-demo install ## Run the notebook of the examples, and keep it with its outputs
	@$(BIN)/python -m pytest -q tests/test_notebook.py --update-golden

.PHONY: bench
bench: install ## List the benchmarks and how to run them
	@for file in $$(grep -l __main__ benchmarks/*.py); do \
	    echo "  $(BIN)/python $$file"; sed -n '1s/^"""/      /p' "$$file"; \
	done

.PHONY: release-check
release-check: install ## Check that this commit can be released, and build what would be; docs/release.md has the steps
	@$(BIN)/python .ci/release-check

.PHONY: lock
lock: install ## Resolve requirements-dev.lock and requirements-connect.lock anew from pyproject.toml
	@$(UV) pip compile --quiet --upgrade --universal --python-version 3.10 --group test \
	    --group docs --group release --no-emit-index-url --no-header \
	    --output-file requirements-dev.lock pyproject.toml
	@$(UV) pip compile --quiet --upgrade --universal --python-version 3.10 --extra connect \
	    --constraint requirements-dev.lock --no-annotate --no-emit-index-url --no-header pyproject.toml \
	    | grep -vFf <(grep -v '^ ' requirements-dev.lock) > requirements-connect.lock

.PHONY: clean
clean: ## Remove what the other targets made, .venv too
	@rm -rf $(VENV) $(VENV)-lowest build dist site examples/project/warehouse examples/project/.lancestat examples/catalog/.lancestat examples/duplicates/.lancestat .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# pip is the venv's own: nothing on the machine but Python is needed.
$(BIN)/python:
	@PYTHON="$(PYTHON)" .ci/machine venv
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	    { echo "lancestat needs Python 3.10 or newer: make PYTHON=python3.11 ..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(UV): | $(BIN)/python
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==0.13.9

$(INSTALLED): requirements-dev.lock pyproject.toml | $(UV)
	@echo "installing into $(VENV); the first time takes a minute or two" >&2
	@$(INSTALL) $(BIN)/python --no-deps -r requirements-dev.lock
	@$(INSTALL) $(BIN)/python --no-deps --editable .
	@touch $@

$(CONNECT): requirements-connect.lock | $(UV)
	@$(INSTALL) $(BIN)/python --no-deps --upgrade --target $(VENV)/connect -r requirements-connect.lock
	@touch $@

# After the tests' own environment, of which they share Spark: it takes longest to build.
$(DAGSTER)/.venv/.installed $(AIRFLOW)/.venv/.installed: %/.venv/.installed: %/requirements.lock %/pyproject.toml | $(INSTALLED)
	@$(PYTHON) -m venv --without-pip $(@D)
	@$(INSTALL) $(@D)/bin/python --no-deps -r $<
	@$(INSTALL) $(@D)/bin/python --no-deps --editable . --editable $*
	@touch $@

# Tests start Spark's JVM hundreds of times: with its classes in an archive that takes half the time.
$(ARCHIVE): $(INSTALLED) lancestat/query/warm_up.py
	@echo "making an archive of Spark's classes, with which the tests start Spark in half the time" >&2
	@$(BIN)/python -m lancestat.query.warm_up $@.new >$@.log 2>&1 || { cat $@.log >&2; exit 1; }
	@mv $@.new $@

# Spark runs on a JRE; the tests have javac check the Java sources, which is in a JDK alone.
# The tests start Python hundreds of times, perhaps where it may not write bytecode by itself.
.PHONY: compiled
compiled: $(INSTALLED)
	@$(BIN)/python -m compileall -q -x '/test_[^/]*$$' lancestat tests benchmarks

# Each of its processes would rewrite all tests.
.PHONY: rewritten
rewritten: compiled
	@$(BIN)/python -m pytest --collect-only -qq >/dev/null

# What the machine itself has to have: .ci/machine installs what is missing, or says how to.
MACHINE := machine-demo machine-check machine-pages machine-test machine-matrix
machine-demo: needs := java
machine-check: needs := zones keys
machine-pages: needs := browser
machine-test: needs := jdk browser zones clocks keys
machine-matrix: needs := jdk
.PHONY: $(MACHINE)
$(MACHINE):
	@PYTHON="$(PYTHON)" .ci/machine $(if $(wildcard $(BIN)/python),,venv) $(needs)

.PHONY: browser
browser: $(INSTALLED)
	@VENV="$(VENV)" .ci/machine chromium
