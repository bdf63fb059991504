# `make demo` and `make test` build .venv from requirements.txt if it is missing or older, and then run.
PYTHON ?= python3
VENV ?= .venv
RUN := $(VENV)/bin/python
# Tiles are small: threads inside one matrix product cost more than they bring.
export OPENBLAS_NUM_THREADS := 1
export OMP_NUM_THREADS := 1

.PHONY: demo test lint coverage benchmark

$(VENV)/.ready: requirements.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check -r requirements.txt
	$(RUN) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

demo: $(VENV)/.ready
	$(RUN) examples/demo.py

test: $(VENV)/.ready
	$(RUN) -m pytest -n 2 $(PYTEST_ARGS)

lint: $(VENV)/.ready
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

coverage: $(VENV)/.ready
	$(RUN) -m pytest -n 2 --cov=triton_dist --cov-branch --cov-report=term:skip-covered $(PYTEST_ARGS)

benchmark: $(VENV)/.ready
	$(RUN) benchmarks/simulator.py
