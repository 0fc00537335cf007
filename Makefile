# Two commands do all the set-up: `make demo` and `make test`. Python 3.11 or later is all they need.
PYTHON ?= python3
BIN := .venv/bin
INSTALL = $(BIN)/python -m pip install --quiet --constraint constraints.txt --editable

.PHONY: demo test lint check stress format clean

demo: .venv/for-demo  ## train XENT, DAD, E2E and MIXER on the built-in tasks; a table, and a report in demo/
	$(BIN)/seqmixer demo

test: .venv/for-test  ## all tests
	$(BIN)/python -m pytest -n 2

lint: .venv/for-test  ## style and types
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy

check: lint  ## style, types and the fast tests
	$(BIN)/python -m pytest -n 2 -m "not slow"

stress: .venv/for-test  ## half an hour of kills, damaged and hostile files and failing rewards: docs/reliability.md
	PYTHONPATH=tests $(BIN)/python -m stress --out runs/stress

format: .venv/for-test
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean:
	rm -rf .venv demo runs

.venv/for-test: .venv/for-demo
	$(INSTALL) ".[dev]"
	touch $@

.venv/for-demo: pyproject.toml constraints.txt
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'seqmixer needs Python 3.11 or later, got ' + sys.version)"
	$(PYTHON) -m venv .venv
	$(INSTALL) .
	touch $@
