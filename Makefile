# icebridge: `make demo` runs the main job, `make test` passes the tests; both need Python 3.11+ and nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEVELOPMENT := $(VENV)/.development
LOCK = $(BIN)/uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --no-header -q
# What the locks pin by hash is the same wherever it comes from: where uv's cache holds all of it, no index is asked. An
# index whose answers may not be kept would have Spark's 450 MB fetched, and its wheel built, anew each time.
UV = $(BIN)/uv pip install --quiet --python $(BIN)/python
INSTALL = $(UV) --offline $(1) 2>/dev/null || $(UV) $(1)

# Compiled modules are written, whatever the environment says: else every process of the tests compiles them anew.
export PYTHONDONTWRITEBYTECODE :=

UNIT := tests/unit tests/laws tests/model tests/simulation
SERVERS := tests/spark tests/kafka
# Processes with a Spark session each, which take the files that last longest first (tests/harness/order.py).
WORKERS ?= 2
UNIT_WORKERS ?= 2
BY_FILE := -q --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder
# All examples of laws, by a seed of the clock's unless ICEBRIDGE_SEED names one; it is printed.
THOROUGH := ICEBRIDGE_THOROUGH=1 ICEBRIDGE_SEED=$${ICEBRIDGE_SEED:-random}

# What mypy knows of unchanged files is kept beside the other caches: a fresh checkout has none of its own.
TYPES := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/icebridge/mypy

.DEFAULT_GOAL := help
.PHONY: help demo test beside test-all unit servers durations lint soak simulate chaos mutate interop bench bench-peers endurance jars lock docs site images image-test compose-test packages-test clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

# What the product needs, which is all that the demo and the image have.
$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "icebridge needs Python 3.11 or later; say make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet uv==0.13.8
	$(call INSTALL,--compile-bytecode --require-hashes -r requirements.lock)
	$(call INSTALL,--no-deps --editable .)
	$(BIN)/python -m compileall -q connector serde
	$(BIN)/python -m connector.runtime.jvm.jars
	@touch $@

# And what the tests, the checks and the pages need: the same versions, and more.
$(DEVELOPMENT): requirements-dev.lock $(READY)
	$(call INSTALL,--compile-bytecode --require-hashes -r requirements-dev.lock)
	@touch $@

demo: $(READY) ## Replay recorded Debezium events through a broker into Iceberg tables
	$(BIN)/icebridge demo

# Tests with servers wait a good part of their time: what needs none takes what they leave of the machine.
test: $(DEVELOPMENT) ## lint and the tests of every change, always the same examples (about 8 minutes on 2 cores)
	@$(MAKE) --no-print-directory -j2 beside servers

# With one piece of output.
beside: $(DEVELOPMENT)
	@out=$$(mktemp); nice -n 10 $(MAKE) --no-print-directory lint unit >$$out 2>&1; code=$$?; \
		cat $$out; rm -f $$out; exit $$code

test-all: $(DEVELOPMENT) ## lint and all tests but interop and soak, with other examples each time (about an hour on 2 cores)
	@$(MAKE) --no-print-directory lint
	$(THOROUGH) $(BIN)/python -m pytest $(UNIT) -q --numprocesses 2
	$(THOROUGH) $(BIN)/python -m pytest $(SERVERS) -m "not soak" $(BY_FILE)

unit: $(DEVELOPMENT) ## The tests that need no JVM (about two minutes)
	$(BIN)/python -m pytest $(UNIT) -m "not thorough" -q --numprocesses $(UNIT_WORKERS)

servers: $(DEVELOPMENT) ## The tests with servers of every change (about 7 minutes)
	$(BIN)/python -m pytest $(SERVERS) -m "not thorough and not soak" $(BY_FILE)

durations: $(DEVELOPMENT) ## Renew tests/durations.json, by which the tests are put in order (as long as test-all)
	ICEBRIDGE_THOROUGH=1 $(BIN)/python -m pytest $(UNIT) $(SERVERS) -m "not soak" $(BY_FILE) --record-durations

lint: $(DEVELOPMENT) ## ruff, mypy --strict, import-linter
	$(BIN)/ruff check connector serde tests benchmarks
	$(BIN)/ruff format --check connector serde tests benchmarks
	$(BIN)/mypy --cache-dir $(TYPES)
	$(BIN)/lint-imports

soak: $(DEVELOPMENT) ## What takes long: minutes of other writers and of maintenance beside the sink in each write mode, 21 kills
	ICEBRIDGE_CONCURRENCY_S=$${ICEBRIDGE_CONCURRENCY_S:-300} $(BIN)/python -m pytest -m soak -q
	ICEBRIDGE_KILLS=$${ICEBRIDGE_KILLS:-21} $(BIN)/python -m pytest -q $(wildcard tests/*/test_*_kill.py)
	ICEBRIDGE_MAINTENANCE_S=$${ICEBRIDGE_MAINTENANCE_S:-300} $(BIN)/python -m pytest -q tests/kafka/test_sink_maintenance.py

simulate: $(DEVELOPMENT) ## Histories of the simulated world without end (Ctrl-C); options in SIMULATE="--seconds 60 --tally simulated.jsonl"
	$(BIN)/python -m tests.simulation $(SIMULATE)

chaos: $(DEVELOPMENT) ## Kills of all that is between PostgreSQL and its replicas, half an hour of them; options in CHAOS="--minutes 5 --seed 7"
	$(BIN)/python -m connector.runtime.jvm.jars connect postgres-source postgresql
	$(BIN)/python -m tests.chaos $(CHAOS)

mutate: $(DEVELOPMENT) ## Faults put into the pure rules and the commit protocol one at a time, and whether unit tests notice (minutes)
	$(BIN)/mutmut run $(MUTATE)
	$(BIN)/mutmut results

interop: $(DEVELOPMENT) ## Debezium and Iceberg connectors on Kafka Connect, other databases, migrations, emulators of GCS and Azure (minutes)
	$(BIN)/python -m connector.runtime.jvm.jars connect jdbc-sink mariadb-source mysql-source postgres-source iceberg-connect avro-converter gcs adls nessie
	$(BIN)/python -m pytest -m interop -q

bench: $(DEVELOPMENT) ## The benchmark of docs/benchmarks.md (about an hour, on a quiet machine)
	$(BIN)/python -m benchmarks

bench-peers: $(DEVELOPMENT) ## Flink, Kafka Connect and Spark beside the sink (an hour); options in PEERS="--scale 0.1 --rounds 1"
	$(BIN)/python -m connector.runtime.jvm.jars flink connect iceberg-connect
	$(BIN)/python -m benchmarks.peers $(PEERS)

endurance: $(DEVELOPMENT) ## An hour of a sink under load, and what grows; options in ENDURANCE="--minutes 10 --rate 5000"
	$(BIN)/python -m benchmarks.endurance $(ENDURANCE)

images: ## The container image icebridge:VERSION, by docker or buildah; prints its size in bytes
	sh docker/build.sh

image-test: $(READY) ## What the built image is, and does on its own (CONTAINER_TOOL=podman where there is no docker)
	$(BIN)/python -m tests.compose.image

compose-test: $(DEVELOPMENT) ## The stack of docker/compose.yaml: the tutorial, a row's way from PostgreSQL to everywhere (minutes)
	$(BIN)/python -m tests.compose

packages-test: $(READY) ## The wheel, by pip in a fresh environment of Python 3.11, 3.12 and 3.13: the demo (minutes)
	$(BIN)/python -m tests.wheel

jars: $(READY) ## Fetch the jars of jars.lock
	$(BIN)/python -m connector.runtime.jvm.jars

lock: $(DEVELOPMENT) ## Renew the locks of packages and jars
	$(LOCK) --group dev -o requirements-dev.lock
	$(LOCK) --constraints requirements-dev.lock -o requirements.lock
	$(LOCK) --all-extras --constraints requirements-dev.lock -o requirements-extras.lock
	$(BIN)/python -m connector.runtime.jvm.lock

docs: $(READY) ## Renew the generated reference and the sample files in config/
	$(BIN)/python -m connector.settings.reference.markdown
	$(BIN)/python -m connector.iceberg.types.schemas.reference
	$(BIN)/python -m connector.runtime.monitoring.prometheus.reference
	$(BIN)/python -m connector.settings.reference.error_messages

site: $(DEVELOPMENT) ## The pages of docs/ as a site, in build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean: ## Remove what make made here
	rm -rf $(VENV) build icebridge-demo .mypy_cache .ruff_cache .pytest_cache .hypothesis
