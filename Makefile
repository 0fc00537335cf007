# Two commands do all the set-up: `make demo` and `make test`. Python 3.11 or later is all they need.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check format clean

demo: .venv/installed  ## train XENT, DAD, E2E and MIXER on the built-in tasks; a table, and a report in demo/
	$(BIN)/seqmixer demo

test: .venv/installed  ## all tests
	$(BIN)/python -m pytest -n 2

check: .venv/installed  ## style, types and the fast tests
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2 -m "not slow"

format: .venv/installed
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean:
	rm -rf .venv demo runs

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'seqmixer needs Python 3.11 or later, got ' + sys.version)"
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@
