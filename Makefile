# Needs make and Python 3.11 or newer; everything else is installed into .venv by the first target that needs it.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Test processes; a file's tests stay in one, in the order in which the files come.
JOBS ?= 2
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder --durations=25 --durations-min=5 \
  --ignore=tests/ros
INSTALLED := $(VENV)/.installed
TRAINS := $(VENV)/.installed-train
# uv, or pip, which takes several times as long.
INSTALLER ?= uv
INSTALL = $(PYTHON) .ci/install.py --installer $(INSTALLER) $(VENV)
SUPPORTED = @$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("physai needs Python 3.11 or newer, $(PYTHON) is " + sys.version.split()[0] + "; try make PYTHON=python3.12")'
MJLAB := .venv-mjlab
ROS := .venv-ros

# Containers often forbid Python to keep bytecode: each of hundreds of processes would compile torch anew.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow test-all test-ros mutation lint type bench bench-gpu docs docs-build build schema constraints clean

help: ## Show this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(INSTALLED) ## Build .venv with every extra, versions from constraints.txt

$(INSTALLED): pyproject.toml constraints.txt .ci/install.py
	$(SUPPORTED)
	$(INSTALL) '.[bench,robot,dev,docs]'
	@touch $@ $(TRAINS)

$(TRAINS): pyproject.toml constraints.txt .ci/install.py
	$(SUPPORTED)
	$(INSTALL) '.[train]'
	@touch $@

demo: $(TRAINS) ## Train, judge, sign, install and drive a policy; installs only what that needs
	$(BIN)/physai demo

test: $(INSTALLED) ## Run the tests, in JOBS=2 processes; about ten minutes
	$(PYTEST) -m 'not slow'

# Every process imports every file that it is given, so only those that contain such tests.
test-slow: $(INSTALLED) ## Run the tests that take long: the demo, the examples, many kills, planted faults
	$(PYTEST) -m 'slow or mutation' $$(grep -rlE 'mark\.(slow|mutation)\b' tests --include='test_*.py' | sort)

test-all: $(INSTALLED) ## Run both in one go, which imports every file once
	$(PYTEST) -m 'mutation or not mutation'

mutation: $(INSTALLED) ## Plant faults in policies, see the gates block each; minutes
	$(PYTEST) --dist load -m mutation tests/mutation

# In one process, because some count the loop's ticks until it reacts. With rclpy every module of the edge can be imported.
test-ros: $(ROS)/.installed ## Run the tests of the ROS 2 node, on ROS's wheels in .venv-ros
	$(ROS)/bin/python -m pytest --durations=10 --durations-min=5 tests/ros tests/integration/test_edge_imports.py

$(ROS)/.installed: pyproject.toml constraints.txt .ci/ros.txt .ci/install.py
	$(SUPPORTED)
	$(PYTHON) .ci/install.py --installer $(INSTALLER) $(ROS) '.[sim]' pytest hypothesis onnx -r .ci/ros.txt
	@touch $@

lint: $(INSTALLED) ## Check style and import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

type: $(INSTALLED) ## Check types
	$(BIN)/pyright

bench: $(INSTALLED) ## Measure throughput beside other libraries
	$(BIN)/python -m benchmarks

bench-gpu: $(INSTALLED) $(MJLAB)/.installed ## Measure on a GPU beside mjlab, write docs/notes/gpu.md
	mkdir -p runs
	$(BIN)/python -m benchmarks gpu --peer-python $(MJLAB)/bin/python --json > runs/bench-gpu.json
	$(BIN)/python -m benchmarks.gpu.gpu_page runs/bench-gpu.json > docs/notes/gpu.md.new
	mv docs/notes/gpu.md.new docs/notes/gpu.md

# Its requirements exclude ours.
$(MJLAB)/.installed: .ci/mjlab.txt
	test -x $(MJLAB)/bin/python || $(PYTHON) -m venv $(MJLAB)
	$(MJLAB)/bin/python -m pip install --quiet -r .ci/mjlab.txt
	@touch $@

docs: $(INSTALLED) ## Serve the documentation at http://127.0.0.1:8000
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

docs-build: $(INSTALLED) ## Build the documentation into site/; warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

build: $(INSTALLED) ## Build sdist and wheel into dist/
	rm -rf dist
	$(BIN)/python -m build --no-isolation

schema: $(INSTALLED) ## Write the JSON Schemas in docs/
	$(BIN)/physai contract schema > docs/contract.schema.json.new
	mv docs/contract.schema.json.new docs/contract.schema.json
	$(BIN)/python -m physai.sdk.evidence.verdict_schema > docs/verdict.schema.json.new
	mv docs/verdict.schema.json.new docs/verdict.schema.json
	for name in manifest trust verdict-predicate; do \
	  $(BIN)/python -m physai.sdk.signing.document_schemas $$name > docs/$$name.schema.json.new && \
	  mv docs/$$name.schema.json.new docs/$$name.schema.json || exit 1; done

constraints: $(INSTALLED) ## Write constraints.txt from what .venv has
	$(BIN)/python .ci/constraints.py > constraints.txt.new
	mv constraints.txt.new constraints.txt
	@touch $(INSTALLED)

clean: ## Remove build results and caches; .venv and runs/ stay
	rm -rf build dist site .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
