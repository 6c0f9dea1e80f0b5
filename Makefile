# Kafscale's tasks. Every target sets up what it needs; `make help` lists them.
#
# PYTHON       the interpreter for .venv, 3.11 or newer (default: the first of the usual names that is)
# PYTEST_ARGS  more arguments for `make test` and `make test-k8s`, such as `-k produce` or `-n 2`
SUITABLE := import sys; sys.exit(sys.version_info < (3, 11))
# Looked for once, and only by a target that needs it: some of these names start slowly.
NAMES := python3 python3.11 python3.12 python3.13 python3.14
FIND := for name in $(NAMES); do if $$name -c '$(SUITABLE)' >/dev/null 2>&1; then echo $$name; break; fi; done
PYTHON ?= $(eval PYTHON := $(shell $(FIND)))$(PYTHON)
PYTEST_ARGS ?=
BENCH_ARGS ?=
FUZZ_ARGS ?=
MYPY_ARGS ?=
CLUSTER_ARGS ?=
DEMO_ARGS ?=
PACK_ARGS ?=
SPARK ?= 4.0
LAKE_TESTS ?= tests/spark_jobs/test_server_catalogs.py tests/spark_jobs/test_spark_pack.py tests/spark_jobs/test_export_kills.py tests/lake/iceberg/test_engines.py
VENV := .venv
BIN := $(VENV)/bin

# Tests start hundreds of processes: without stored bytecode each of them compiles every module, minutes in all.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup dist setup-spark run cluster demo test test-paused test-bytecode test-k8s test-lake test-spark spark-pack test-tools nightly nightly-long-forms nightly-fuzz tools check lock format chaos simulate large-segment group-chaos transaction-chaos fuzz bench bench-failover bench-reads bench-compaction bench-lake docs examples clean

help: ## list the targets
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-15s %s\n", $$1, $$2}'

$(BIN)/python:
	@$(or $(PYTHON),python3) -c '$(SUITABLE)' || { \
		echo "Kafscale needs Python 3.11 or newer, and '$(or $(PYTHON),python3)' is not: make PYTHON=/path/to/python3.11 ..." >&2; \
		exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(BIN)/.runtime: pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[cluster]'
	@touch $@

# What uv has installed before it installs again without asking any registry: two CPU seconds instead of twenty. What
# it does not have it fetches. So versions stay until `uv cache clean`, or until pyproject.toml asks for newer ones.
UV_DEVELOP = $(BIN)/uv pip install --quiet --python $(BIN)/python --editable '.[all,bench,check,test]'
$(BIN)/.develop: pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet --no-compile --disable-pip-version-check 'uv>=0.8,<1'
	$(UV_DEVELOP) --offline 2>/dev/null || $(UV_DEVELOP)
	@touch $@ $(BIN)/.runtime

# Once, not in each worker: what a new checkout's tests import is compiled, their assertions rewritten.
$(BIN)/.bytecode: $(BIN)/.develop
	$(BIN)/python -m tests.bytecode
	@touch $@

$(BIN)/.spark: pyproject.toml spark_jobs/pom.xml | $(BIN)/python
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[spark]'
	@$(BIN)/python -m spark_jobs.jars
	@touch $@ $(BIN)/.runtime

setup-spark: $(BIN)/.spark ## add the lake export: PySpark and Iceberg's jars (needs Java 17 or newer)

setup: $(BIN)/.runtime ## create .venv with the kafscale command

run: $(BIN)/.runtime ## start a broker with nothing configured
	@$(BIN)/kafscale serve

cluster: $(BIN)/.runtime ## start etcd, an S3 server and three brokers here (CLUSTER_ARGS: see python -m scripts.local_cluster --help)
	@$(BIN)/python -m scripts.local_cluster $(CLUSTER_ARGS)

demo: | $(BIN)/python ## the lake export in one story: broker, events, export to Iceberg, SQL (about two minutes on two free cores)
	@$(BIN)/python -m tests.support.java_install
	@$(MAKE) --no-print-directory setup-spark
	@$(BIN)/python -m scripts.demo $(DEMO_ARGS)

test: test-tools test-bytecode ## run all tests: 12 to 19 minutes on two cores
	$(BIN)/python -m tests.run $(PYTEST_ARGS)

test-paused: test-tools test-bytecode ## run all tests while their processes stand still now and then: a third longer
	$(BIN)/python -m tests.pauses $(BIN)/python -m tests.run $(PYTEST_ARGS)

test-bytecode: $(BIN)/.bytecode

test-tools: | $(BIN)/python ## fetch what tests need beyond Python: clients, stores, helm
	$(BIN)/python -m tests.compat.tools

nightly: test-tools $(BIN)/.develop ## all that takes too long for `make test`, whatever fails of it: about three and a half hours (docs/testing.md)
	$(MAKE) --keep-going nightly-long-forms chaos group-chaos transaction-chaos large-segment nightly-fuzz

nightly-long-forms: $(BIN)/.develop
	$(BIN)/python -m tests.support.chromium
	KAFSCALE_TEST_NIGHTLY=1 $(BIN)/pytest -n 2 $$(grep -rlE 'support.nightly import|mark.nightly|^from hypothesis' tests --include='test_*.py')

nightly-fuzz: $(BIN)/.develop
	$(BIN)/python -m tests.fuzz --frames 1000000 --seconds 3600 $(FUZZ_ARGS)

test-k8s: $(BIN)/.develop ## run the tests against a real Kubernetes control plane; builds it with Go the first time (5 to 15 minutes, 4 GB in Go's caches)
	$(BIN)/python -m tests.compat.tools etcd versitygw
	$(BIN)/python -m tests.support.k8s_install helm control-plane
	$(BIN)/python -m tests.support.debian_base
	$(BIN)/pytest tests/k8s $(PYTEST_ARGS)

tools: $(BIN)/.runtime ## fetch Kafka's own command-line tools into .tools/kafka-libs, with Maven
	@$(BIN)/python -m tests.compat.tools --required kafka

check: $(BIN)/.develop ## format, lint, strict types, import contract
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy $(MYPY_ARGS)
	$(BIN)/lint-imports

lock: $(BIN)/.develop ## write the images' lock files: the newest versions that pyproject.toml allows, with hashes
	$(BIN)/python -m scripts.lock_images

dist: $(BIN)/.develop ## build the sdist and the wheel into dist/, the same bytes from the same commit, and check them
	$(BIN)/python -m scripts.build_dist
	$(BIN)/twine check --strict dist/*

format: $(BIN)/.develop ## rewrite the code in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

chaos: $(BIN)/.develop ## crashes and a troubled cluster: 100 kills for each flush interval, 120 s of each trouble: about 45 minutes
	$(BIN)/python -m tests.compat.tools kafka etcd versitygw
	KAFSCALE_TEST_KILLS=$${KAFSCALE_TEST_KILLS:-100} $(BIN)/pytest -s tests/integration/test_crash.py
	KAFSCALE_TEST_CLUSTER_SECONDS=$${KAFSCALE_TEST_CLUSTER_SECONDS:-120} $(BIN)/pytest -s tests/integration/test_cluster_chaos.py

simulate: $(BIN)/.develop ## 50,000 histories of a simulated cluster, by seed: about 40 minutes on two free cores
	KAFSCALE_TEST_SIMULATIONS=$${KAFSCALE_TEST_SIMULATIONS:-50000} $(BIN)/pytest -s -n 2 tests/sim/test_broker_cluster.py

large-segment: $(BIN)/.develop ## a segment of more than 2 GiB, made by merging and read at both ends: about 20 s, 5 GB of disk
	KAFSCALE_TEST_MERGED_BYTES=$${KAFSCALE_TEST_MERGED_BYTES:-2200000000} $(BIN)/pytest -s --timeout=1800 tests/integration/test_large_segment.py

group-chaos: $(BIN)/.develop ## groups of each kind whose members, brokers and stores are killed, stopped and away, 120 s each: about 45 minutes
	$(BIN)/python -m tests.compat.tools kafka kafka-share etcd versitygw
	KAFSCALE_TEST_GROUP_SECONDS=$${KAFSCALE_TEST_GROUP_SECONDS:-120} $(BIN)/pytest -s tests/integration/test_group_chaos.py tests/integration/test_group_cluster_chaos.py tests/integration/test_share_chaos.py tests/integration/test_rolling_change_kills.py

transaction-chaos: $(BIN)/.develop ## transactions of both protocols on a troubled cluster for ten minutes, and a broker killed at each step: about 20 minutes
	$(BIN)/python -m tests.compat.tools etcd versitygw
	KAFSCALE_TEST_CLUSTER_SECONDS=$${KAFSCALE_TEST_CLUSTER_SECONDS:-600} $(BIN)/pytest -s tests/integration/test_transaction_chaos.py tests/integration/test_transaction_kills.py

fuzz: $(BIN)/.develop ## mutated frames of every API, ten million of them: hours (FUZZ_ARGS: see python -m tests.fuzz --help)
	$(BIN)/python -m tests.fuzz --frames 10000000 $(FUZZ_ARGS)

bench: $(BIN)/.develop ## measure, side by side with Apache Kafka: about two hours (BENCH_ARGS: see python -m bench --help)
	$(BIN)/python -m tests.compat.tools kafka etcd versitygw
	$(BIN)/python -m bench $(BENCH_ARGS)

bench-failover: $(BIN)/.develop ## how long partitions wait when their leader stops or dies (BENCH_ARGS: see python -m bench.failover --help)
	$(BIN)/python -m tests.compat.tools etcd versitygw
	$(BIN)/python -m bench.failover $(BENCH_ARGS)

bench-reads: $(BIN)/.develop ## cold and warm reads of 1,000 small slices over a slow store, GETs counted (BENCH_ARGS: see python -m bench.reads --help)
	$(BIN)/python -m tests.compat.tools etcd versitygw
	$(BIN)/python -m bench.reads $(BENCH_ARGS)

bench-compaction: $(BIN)/.develop ## compaction of 10 million updates of 100,000 keys (BENCH_ARGS: see python -m bench.compaction --help)
	$(BIN)/python -m bench.compaction $(BENCH_ARGS)

bench-lake: $(BIN)/.develop setup-spark ## reads into Spark beside Spark's own Kafka source: about 25 minutes (BENCH_ARGS: see python -m bench.lake --help)
	$(BIN)/python -m tests.compat.tools kafka
	$(BIN)/python -m bench.lake $(BENCH_ARGS)

$(VENV)-lake/.installed: pyproject.toml | $(BIN)/.develop
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(VENV)-lake
	$(BIN)/uv pip install --quiet --python $(VENV)-lake/bin/python --editable '.[all,test]' --group lake-platforms uv
	@touch $@

test-lake: $(VENV)-lake/.installed test-tools ## the lake's platforms: catalogs of servers, engines, a cluster of executors, kills (15 to 30 minutes)
	$(VENV)-lake/bin/python -m pytest $(LAKE_TESTS) $(PYTEST_ARGS)

$(VENV)-spark-%/.installed: pyproject.toml | $(BIN)/.develop
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(VENV)-spark-$*
	$(BIN)/uv pip install --quiet --python $(VENV)-spark-$*/bin/python --editable '.[all,test]' 'pyspark==$*.*'
	$(VENV)-spark-$*/bin/python -m spark_jobs.jars
	@touch $@

test-spark: $(VENV)-spark-$(SPARK)/.installed test-tools ## the lake export's tests with an older Spark, SPARK=4.0 (default) or 3.5: about ten minutes
	$(VENV)-spark-$(SPARK)/bin/python -m pytest -m 'not nightly or every_spark' -W default -o filterwarnings= tests/spark_jobs $(PYTEST_ARGS)

spark-pack: $(BIN)/.develop ## pack Kafscale and its libraries for Spark's executors: dist/kafscale-spark.tar.gz (PACK_ARGS: see python -m scripts.spark_pack --help)
	$(BIN)/python -m scripts.spark_pack $(PACK_ARGS)

docs: $(BIN)/.develop ## rewrite the generated parts of the documents
	$(BIN)/python -m scripts.generate_docs

$(VENV)-notebook/.installed: pyproject.toml | $(BIN)/.develop
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(VENV)-notebook
	$(BIN)/uv pip install --quiet --python $(VENV)-notebook/bin/python --requirements pyproject.toml --extra arrow --group notebook
	@touch $@

examples: $(VENV)-notebook/.installed ## execute the notebooks in examples/notebook, from their sources: half a minute
	PYTHONPATH=. $(VENV)-notebook/bin/python -m scripts.build_notebooks

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) $(VENV)-notebook $(VENV)-lake $(VENV)-spark-3.5 $(VENV)-spark-4.0 .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build *.egg-info
