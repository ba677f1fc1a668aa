# make train       train the example CNN on two workers      (ARGS="--epochs 10")
# make test        check everything, and test what takes seconds
# make test-nets   the longer tests: drills, hosts, deaths, other people's scripts (a share of them)
# make test-deaths all of tests/deaths: a worker dies at every place, with every kind of data
# make test-hosts  jobs over SSH, in Slurm and as pods, on hosts made of network namespaces (root);
#                  and the longest of the other tests
# make test-scripts  all of tests/scripts: other people's scripts on 1, 2 and 3 workers
# make test-options  each option of the command line, alone and beside every other one
# make test-gpu    jobs on a machine with an NVIDIA GPU
# make bench       run the benchmarks on a quiet machine; results in bench/results
# make docs        build the site of the documentation into site; it can be read without a network
# make wheel       build what is published into dist, and check it
# make tree        write the file tree into docs/tree.md
# make clean       remove what the targets above have made
#
# All of it happens in a virtual environment in $(VENV). Choose the Python with PYTHON=python3.12.

VENV ?= .venv
ARGS ?=
# Tests mostly wait for processes: two at a time take two thirds of the time, also on two cores.
PARALLEL ?= 2
BIN := $(VENV)/bin
SUPPORTED := import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.10; do \
	"$$p" -c '$(SUPPORTED)' 2>/dev/null && echo "$$p" && exit; done; echo python3)

.PHONY: train test test-nets test-deaths test-scripts test-options test-hosts test-gpu bench docs wheel tree clean

train: $(VENV)/.installed-train
	$(BIN)/tfrun -n 2 examples/digits.py $(ARGS)

test: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/pytest -n $(PARALLEL) -m "not net" $(ARGS)

test-nets: $(VENV)/.installed-test
	$(BIN)/pytest -n $(PARALLEL) -m net $(ARGS)

test-deaths: $(VENV)/.installed-test
	TFRUN_TEST_SHARE=all $(BIN)/pytest -n $(PARALLEL) tests/deaths $(ARGS)

test-hosts: $(VENV)/.installed-test
	TFRUN_HOST_TESTS=1 $(BIN)/pytest tests/hosts tests/drills tests/cluster/test_preemption.py $(ARGS)
	TFRUN_HOST_TESTS=1 $(BIN)/pytest -m thorough tests/unit tests/cluster tests/deaths $(ARGS)

test-scripts: $(VENV)/.installed-test
	TFRUN_TEST_SHARE=all $(BIN)/pytest -n $(PARALLEL) tests/scripts $(ARGS)

test-options: $(VENV)/.installed-test
	TFRUN_TEST_SHARE=all $(BIN)/pytest -n $(PARALLEL) tests/options $(ARGS)

test-gpu: $(VENV)/.installed-test
	$(BIN)/pytest -rs tests/gpu $(ARGS)

bench: $(VENV)/.installed-train
	$(BIN)/python bench

docs: $(VENV)/.installed-test
	$(BIN)/mkdocs build --strict

wheel: $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check build check-wheel-contents twine
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/twine check --strict dist/*
	$(BIN)/check-wheel-contents dist/*.whl

tree:
	$(PYTHON) docs/tree.py

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis dist site

# The stamps: installing again is only needed when the dependencies have changed.
$(VENV)/.installed-train: pyproject.toml $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[cpu,examples]"
	@touch $@

$(VENV)/.installed-test: pyproject.toml $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[cpu,examples,dev]"
	@touch $@ $(VENV)/.installed-train

$(BIN)/python:
	@$(PYTHON) -c '$(SUPPORTED)' || { \
		echo "tfrun needs Python 3.10 to 3.13, found: $$($(PYTHON) --version 2>&1)." >&2; \
		echo "Install one of these, then: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { \
		echo "The virtual environment could not be made." >&2; \
		echo "On Debian and Ubuntu: apt-get install python3-venv" >&2; \
		rm -rf $(VENV); exit 1; }
