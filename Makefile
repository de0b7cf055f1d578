# The commands need Python 3.11 or newer, and make; they set up everything else in .venv.
PYTHON ?= python3
CONFIG ?= quickstart.yaml
ARGS ?=
BIN = .venv/bin
JOBS ?= 2
# one copy of the data sets may serve several checkouts that lie beside it
export FEDLIT_DATA ?= $(abspath $(wildcard ../shared/data))
QUICK = tests/data tests/exchange tests/tasks tests/test_*.py --ignore tests/test_pages.py fedlit

.PHONY: fit sites test pytest test-quick test-all lint lists docs clean

fit: .venv/base
	$(BIN)/fedlit fit --config $(CONFIG) $(ARGS)

# a coordinator and three sites in processes of their own, TLS on (docs/institutions.md)
sites: .venv/flower
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/institutions.py demo $(ARGS)

# what a change must pass: of many alike combinations (marked `full`) a part that covers them. mypy keeps one core busy for
# most of a minute, so the linters run beside the tests
test: .venv/dev
	$(MAKE) --jobs 2 lint pytest

pytest: .venv/dev
	OMP_NUM_THREADS=1 $(BIN)/pytest -n $(JOBS) --dist worksteal

# for other versions of Python: a part that imports every module and runs its example
test-quick: .venv/dev
	OMP_NUM_THREADS=1 $(BIN)/pytest -n $(JOBS) --dist worksteal $(QUICK)

# all combinations
test-all: lint
	OMP_NUM_THREADS=1 $(BIN)/pytest -n $(JOBS) --dist worksteal -m ""

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python benchmarks/shape.py --check
	$(BIN)/lint-imports --no-logo --no-cache
	$(BIN)/deptry fedlit
	$(BIN)/pip-licenses > /dev/null
	$(BIN)/mypy

# what follows from methods, rules and their cards; tests compare it
lists: .venv/dev
	PYTHONPATH=tests $(BIN)/python tests/run/test_listed.py
	PYTHONPATH=tests $(BIN)/python tests/run/test_allowed.py
	PYTHONPATH=tests $(BIN)/python tests/run/test_catalogue.py

# site/index.html opens in a browser, without a server or a network; a warning ends the build
docs: .venv/docs
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/zensical build --strict --clean

.venv/base: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .
	touch $@

.venv/dev .venv/docs .venv/flower: .venv/base
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[$(@F)]'
	touch $@

clean:
	rm -rf .venv .cache build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache
