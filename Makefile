# Two commands do all the set-up: `make demo` and `make test`. Python 3.11 or later is all they need.
PYTHON ?= python3
BIN := .venv/bin
INSTALL = $(BIN)/python -m pip install --quiet --constraint constraints.txt --editable

.PHONY: demo test check format clean

demo: .venv/for-demo  ## train XENT, DAD, E2E and MIXER on the built-in tasks; a table, and a report in demo/
	$(BIN)/seqmixer demo

test: .venv/for-test  ## all tests
	$(BIN)/python -m pytest -n 2

check: .venv/for-test  ## style, types and the fast tests
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2 -m "not slow"

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
	$(INSTALL) ".[report]"
	touch $@
