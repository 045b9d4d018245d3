# `make` alone prints the targets. Everything runs in .venv, which is made on the first need; without it, the demo runs in
# .venv-demo, which has no tools of development.

PYTHON ?= python3
# PIPESTATUS is of bash.
SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed
DEMO_VENV := .venv-demo
SERVER_FOLDERS := mathrag_gate services shared migrations models deploy docs
UV := $(VENV)/lock/bin/uv
AUDIT := $(VENV)/advisories/bin/pip-audit
ZENSICAL := $(VENV)/docs/bin/zensical

# The tests start hundreds of processes from the same files: each is compiled once.
unexport PYTHONDONTWRITEBYTECODE

# Each process has servers of its own; a database that is given is for one alone.
parallel = $(if $(DATABASE_URL)$(REDIS_URL),1,$(1))
XDIST = $(if $(DATABASE_URL)$(REDIS_URL),,--numprocesses 2 --dist loadfile)

# The programs whose logs are read, each in an environment of its own.
LOGS := $(addprefix logs-,inspect lm-eval ragas deepeval)

# Which tests took how long.
REAL := --durations=0 --durations-min=1

# --no-header, no index: a lock file names packages and hashes, never where they came from.
COMPILE := $(UV) pip compile --quiet --universal --generate-hashes --no-header \
	--no-emit-index-url --no-emit-find-links

.DEFAULT_GOAL := help
.PHONY: help demo reproduce-world reproduce-pilot reproduce-defaults reproduce-rules compose test $(GROUPS) integration affected properties e2e pages commands smoke slow faults simulate node bench real real-vllm real-logs $(LOGS) lint generate docs wheels lock advisories ci ci-full clean

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z0-9.-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

CHECK_PYTHON = $(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("error: Python 3.11 or newer is needed, and $(PYTHON) is " + sys.version.split()[0] + "\n  fix: make PYTHON=python3.12 ...")'
CHECK_VENV = $(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	{ echo "error: Python lacks its venv module"; echo "  fix: install your system's package python3-venv"; exit 1; } >&2

.venv: $(STAMP) ## Create the environment; afterwards .venv/bin/mathrag works

# --no-compile: most modules are never imported, and compiling them all takes longer than the rest (97 s against 39 s of
# processor time).
# Uninstalled first: up to 0.1.0 of November 2026 the server's distribution had the client's files, and pip would delete the new
# ones with it.
$(STAMP): requirements/dev.txt requirements/build.txt pyproject.toml mathrag/pyproject.toml
	@$(CHECK_PYTHON)
	@$(CHECK_VENV)
	@echo "Creating $(VENV), once: $$(grep -c == requirements/dev.txt) packages, which takes one to five minutes."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --no-compile --disable-pip-version-check --require-hashes -r requirements/dev.txt \
		-r requirements/build.txt | awk '\
		/^Collecting / { sub(/==.*/, "", $$2); printf "  %d %s\n", ++n, $$2; fflush() } \
		/^Installing collected/ { print "  installing them"; fflush() }'; test $${PIPESTATUS[0]} -eq 0
	@$(BIN)/python -m pip uninstall --quiet --disable-pip-version-check --yes mathrag-gate mathrag 2>/dev/null
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable mathrag --editable .
	@touch $@
	@echo "$(VENV) is ready: $(BIN)/mathrag --help"

demo: $(if $(wildcard $(STAMP)),,$(DEMO_VENV)/installed) ## Start everything, answer two small batches, and explain what came out; QUICK=1 asks few questions, STOP=1 stops it at the end
	@$(if $(wildcard $(STAMP)),$(VENV),$(DEMO_VENV))/bin/mathrag demo $(if $(QUICK),--quick) $(if $(STOP),--stop)

# Without --quiet, both print a line for each package; errors are printed with it, too.
EMBEDDED := --quiet --require-hashes -r requirements/base.txt -r requirements/embedded.txt -r requirements/build.txt
ITSELF := --quiet --no-deps --no-build-isolation --editable mathrag --editable .
$(DEMO_VENV)/installed: requirements/base.txt requirements/embedded.txt requirements/build.txt pyproject.toml mathrag/pyproject.toml
	@$(CHECK_PYTHON)
	@echo "Installing about 100 packages into $(DEMO_VENV), once: one to three minutes"
	@rm -rf $(DEMO_VENV)
	@if command -v uv >/dev/null; then \
		uv venv --quiet --python "$$(command -v $(PYTHON))" $(DEMO_VENV) && \
		uv pip install --python $(DEMO_VENV)/bin/python $(EMBEDDED) && \
		uv pip install --python $(DEMO_VENV)/bin/python $(ITSELF); \
	else \
		$(CHECK_VENV) && $(PYTHON) -m venv $(DEMO_VENV) && \
		$(DEMO_VENV)/bin/python -m pip install --no-compile --disable-pip-version-check $(EMBEDDED) && \
		$(DEMO_VENV)/bin/python -m pip install --disable-pip-version-check $(ITSELF); \
	fi
	@touch $@

reproduce-world: SCALE ?= full
reproduce-world: $(STAMP) ## The paper's effect in the problem world: run, figures, docs/reference/reproduction.md; SCALE=quick
	@$(BIN)/python -m tools.reproduction.world --scale $(SCALE)

reproduce-pilot: $(STAMP) ## What a pilot recommends on ten data sets, and the truth afterwards: docs/reference/pilot.md
	@$(BIN)/python -m tools.reproduction.pilot

reproduce-defaults: $(STAMP) ## Pipelines as they are by default against hybrid: docs/reference/defaults.md; DATA=folder of graphs and Cranfield
	@$(BIN)/python -m tools.reproduction.defaults --data "$(or $(DATA),$(error DATA=DIR: docs/reference/defaults.md says what it holds))"

reproduce-rules: $(STAMP) ## What rules do on two knowledge graphs: run, figures, docs/reference/rule-reproduction.md; DATA=folder of both
	@$(BIN)/python -m tools.reproduction.rules --data "$(or $(DATA),$(error DATA=DIR: docs/reference/rule-reproduction.md says what it holds))" $(if $(TRAINER),--trainer $(TRAINER))

compose: ## Build and start everything in containers; `docker compose down` stops it
	MATHRAG_REVISION=$$(git rev-parse HEAD 2>/dev/null) docker compose up --build --wait

# Tests in groups, each in a process of its own, two at a time: one process for all would be three times as large. What a
# group prints is shown when it ends. The largest group comes last, in two processes.
GROUPS := unit-shared integration-pages integration-schema integration-retrieval unit-texts unit-retriever unit-services \
	unit-commands unit-others
SELECTED := -m "not e2e and not faults and not slow"
SYNC := $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)
TEXTS := $(addprefix tests/unit/shared/,ingest mathtext questions rag rules)
HANDS := $(addprefix tests/unit/,mathrag/cli mathrag_gate/cli mathrag_gate/test_report.py) tests/unit/shared/pages tests/unit/tools
unit-texts: TESTS := $(TEXTS)
unit-shared: TESTS := tests/unit/shared $(addprefix --ignore=,$(TEXTS) $(HANDS))
unit-retriever: TESTS := tests/unit/services/retriever
unit-services: TESTS := tests/unit/services --ignore=tests/unit/services/retriever
unit-commands: TESTS := $(HANDS)
unit-others: TESTS := tests/unit $(addprefix --ignore=,tests/unit/shared tests/unit/services $(HANDS))

# The doctor's tests build an index, and this group has the memory to spare.
PAGES := tests/integration/pages tests/integration/test_doctor.py
RETRIEVAL := $(patsubst %,tests/integration/test_%.py,methods openai_retrieval retriever)
# These describe every operation.
SCHEMA := tests/integration/test_api_schema.py tests/integration/test_hostile_requests.py
integration-pages: TESTS := $(PAGES)
integration-schema: TESTS := $(SCHEMA)
integration-retrieval: TESTS := $(RETRIEVAL)

# Half a second in each process, and of use where the API is tried with whatever its document allows.
$(filter-out integration-schema,$(GROUPS)) integration: PLUGINS := -p no:schemathesis

test: $(STAMP) ## Unit and integration tests; T=tests/unit/shared/rag runs a part of them
	@failed=0; $(if $(T),\
		$(BIN)/python -m pytest $(T) $(SELECTED) || failed=1,\
		$(MAKE) --no-print-directory --keep-going --jobs=$(call parallel,2) $(SYNC) $(GROUPS) || failed=1; \
		$(MAKE) --no-print-directory integration || failed=1); exit $$failed

$(GROUPS): $(STAMP)
	$(BIN)/python -m pytest $(TESTS) $(SELECTED) $(PLUGINS)

integration: $(STAMP)
	$(BIN)/python -m pytest tests/integration $(addprefix --ignore=,$(PAGES) $(SCHEMA) $(RETRIEVAL)) $(SELECTED) $(PLUGINS) $(XDIST)

affected: $(STAMP) ## The tests nearest to what changed since the last commit on main; ALL=1 for all that import it; T=tests/unit
	@tests=$$($(BIN)/python .ci/affected.py $(if $(ALL),--all) $(T)) && \
		if [ -n "$$tests" ]; then $(BIN)/python -m pytest $(SELECTED) $$tests; else echo "no test imports what changed"; fi

properties: $(STAMP) ## The property tests of both, with ten times as many examples
	$(BIN)/python -m pytest tests/unit tests/integration -m "hypothesis and not slow" --hypothesis-profile=full $(XDIST)

e2e: $(STAMP) ## Tests against the whole running stack
	$(BIN)/python -m pytest tests/e2e -m "not faults and not slow" $(XDIST)

pages: $(STAMP) ## Every page in a real Chromium (Debian's `chromium`): themes, widths, keys, no script, live; build/screenshots
	$(BIN)/python -m pytest tests/pages

commands: $(STAMP) ## Every command of tutorial and how-to pages, on an embedded stack; what cannot be run is named
	$(BIN)/python -m pytest tests/docs $(REAL)

smoke: $(STAMP) ## The few tests of a whole running stack that every change must pass: a job, the command line, a killed worker
	$(BIN)/python -m pytest tests/e2e tests/faults -m smoke

slow: $(STAMP) ## Upgrades, backup and restore with jobs in flight, and the longest unit and integration tests
	$(BIN)/python -m pytest tests/unit tests/integration tests/e2e -m slow

faults: $(STAMP) ## Every fault of the catalogue, within 90 minutes, or K=P6,P7; writes docs/reference/faults.md
	$(BIN)/python -m pytest tests -m "faults or fault" --record --fault "$(K)"

simulate: SCHEDULES ?= 1000
simulate: $(STAMP) ## Schedules with faults in virtual time, by the thousand; then mutants of the runtime
	$(BIN)/python -m pytest tests/simulation
	$(BIN)/python -m tests.simulation --schedules $(SCHEDULES) --record
	$(BIN)/python -m tests.simulation --mutants

node: $(STAMP) ## OpenAI's client for Node, of the version in tests/openai_node/package.json; skipped where Node is missing
	$(BIN)/python -m pytest tests/openai_node

bench: $(STAMP) ## Everything that has a goal in speed or memory, in about 20 minutes, on a quiet machine; PART=floor runs one; writes docs/reference/performance.md
	@$(BIN)/python -m tools.bench.goals $(PART)

real: $(STAMP) ## Elasticsearch, llama-server and Ollama themselves: conformance, jobs, kills; what cannot be had is skipped by name
	$(BIN)/python -m pytest tests/real -m "not vllm" $(REAL)

real-vllm: $(STAMP) ## vLLM itself, on the processor: 6 GB
	$(BIN)/python -m pytest tests/real -m vllm $(REAL)

real-logs: $(STAMP) ## Logs that the newest inspect_ai, lm_eval, ragas and deepeval write are read; 2 GB; what pip cannot get is skipped
	@failed=0; rm -rf build/logs; $(MAKE) --no-print-directory --keep-going $(LOGS) || failed=1; \
		FRESH_LOGS=$(CURDIR)/build/logs $(BIN)/python -m pytest tests/unit/shared/ingest/test_logs.py || failed=1; exit $$failed

logs-inspect: PACKAGES := inspect_ai openai
logs-lm-eval: PACKAGES := 'lm_eval[api]'
logs-ragas: PACKAGES := ragas rapidfuzz 'langchain-community<0.4'
logs-deepeval: PACKAGES := deepeval

$(LOGS):
	@test -x $(VENV)/$@/bin/python || $(PYTHON) -m venv $(VENV)/$@
	@if $(VENV)/$@/bin/python -m pip install --quiet --no-compile --disable-pip-version-check --upgrade $(PACKAGES); then \
		$(VENV)/$@/bin/python -W ignore tests/real_logs/write_logs.py $(@:logs-%=%) build/logs; fi

lint: $(STAMP) ## Style, types, imports, plain words, and whether generated files are up to date
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python .ci/generate --check
	$(BIN)/python .ci/words.py

generate: $(STAMP) ## Write what repeats the code: schemas, mathrag.example.yaml, pages of docs/reference/
	$(BIN)/python .ci/generate

# In a copy, as a build writes its files beside what it packs.
wheels: $(STAMP) ## Both distributions, the client and the server, into dist/
	@rm -rf build/wheels dist && mkdir -p build/wheels
	@git archive HEAD LICENSE pyproject.toml mathrag $(SERVER_FOLDERS) | tar -x -C build/wheels
	@cp LICENSE build/wheels/mathrag
	@$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist \
		build/wheels/mathrag build/wheels
	@rm -rf build/wheels
	@du -h dist/*.whl

docs: $(ZENSICAL) ## The documentation as a site that opens without a server: build/site/index.html
	@$(ZENSICAL) build --strict --clean
	@$(VENV)/docs/bin/python .ci/llms.py
	@$(VENV)/docs/bin/python .ci/site_links.py

$(ZENSICAL): requirements/docs.txt
	@$(PYTHON) -m venv $(VENV)/docs
	@$(VENV)/docs/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

lock: $(UV) ## Pin the newest allowed versions, with hashes, into requirements/
	$(COMPILE) pyproject.toml --upgrade --no-emit-package mathrag --output-file requirements/base.txt
	$(COMPILE) pyproject.toml --upgrade --no-emit-package mathrag --group dev --extra embedded --constraint requirements/base.txt \
		--output-file requirements/dev.txt
	set -o pipefail; $(COMPILE) pyproject.toml --no-emit-package mathrag --extra embedded --constraint requirements/dev.txt \
		$$(sed -n 's/==.*//p' requirements/base.txt | sed 's/^/--no-emit-package /') \
		| sed '/^$$/,$$d' > requirements/embedded.txt
	set -o pipefail; $(COMPILE) pyproject.toml --no-emit-package mathrag --extra parquet --constraint requirements/dev.txt \
		$$(sed -n 's/==.*//p' requirements/base.txt | sed 's/^/--no-emit-package /') \
		| sed '/^$$/,$$d' > requirements/parquet.txt
	$(COMPILE) --group build --upgrade --output-file requirements/build.txt
	$(COMPILE) --group audit --upgrade --output-file requirements/audit.txt
	$(COMPILE) --group docs --upgrade --output-file requirements/docs.txt
	$(COMPILE) --group nvml --upgrade --output-file requirements/nvml.txt
	$(COMPILE) --group llama-server --upgrade --output-file requirements/llama-server.txt
	$(COMPILE) --group vllm --upgrade --override requirements/vllm-overrides.in --output-file requirements/vllm.txt

$(UV):
	@$(PYTHON) -m venv $(VENV)/lock
	@$(VENV)/lock/bin/python -m pip install --quiet --disable-pip-version-check uv

advisories: $(STAMP) $(AUDIT) ## Known vulnerabilities of what is installed
	@$(BIN)/python .ci/advisories.py

$(AUDIT): requirements/audit.txt
	@$(PYTHON) -m venv $(VENV)/advisories
	@$(VENV)/advisories/bin/python -m pip install --quiet --no-compile --disable-pip-version-check --require-hashes -r $<
	@touch $@

ci: ## What runs before a change is accepted; ends with flaky tests, processor time and the sum of all tests
	@.ci/run

ci-full: ## That and all the rest: containers, upgrades, mutants, every fault, real servers; ends with what was skipped
	@.ci/full

clean: ## Remove the environment and all caches; data in .mathrag stay
	rm -rf build dist $(VENV) $(DEMO_VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .cache
