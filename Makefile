# `make demo` and `make test`, not `make gpu-test`, build .venv from requirements.txt if it is missing or older, and then run.
PYTHON ?= python3
VENV ?= .venv
RUN := $(VENV)/bin/python
# Each process begins with a half of its own: what tests of a folder or file share, such as worker processes, is made in one of them.
PARALLEL := -n 2 --dist worksteal
# Tiles are small: threads inside one matrix product cost more than they bring.
export OPENBLAS_NUM_THREADS := 1
export OMP_NUM_THREADS := 1

.PHONY: help demo test gpu-test gpu-soak lint coverage benchmark performance soak

help:
	@echo "make demo       all-gather + GEMM on simulated ranks, then a hang that is named (sets up $(VENV))"
	@echo "make test       the tests, with no GPU (sets up $(VENV))"
	@echo "make gpu-test   the tests on this machine's GPUs, by PYTHON=$(PYTHON) as it is: no package is installed"
	@echo "make gpu-soak   every operator 100,000 times on all GPUs of this machine (SOAK_ARGS='--calls 1000 all_reduce' for less)"
	@echo "make lint       format, lint and types        make coverage    tests with coverage"
	@echo "make benchmark  times of the simulator"
	@echo "make performance    tables of README.md and docs anew from benchmarks/results"
	@echo "make soak       race corpus and mutants over 200 seeds, hours; writes docs/soak.md (SOAK_ARGS='--seeds 20' for less)"

$(VENV)/.ready: requirements.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check -r requirements.txt
	$(RUN) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

demo: $(VENV)/.ready
	$(RUN) examples/demo.py

test: $(VENV)/.ready
	$(RUN) -m pytest $(PARALLEL) $(PYTEST_ARGS)

gpu-test:
	PYTHONPATH=src$(if $(PYTHONPATH),:$(PYTHONPATH)) $(PYTHON) -m pytest tests/gpu $(PYTEST_ARGS)

gpu-soak:
	PYTHONPATH=src$(if $(PYTHONPATH),:$(PYTHONPATH)) $(PYTHON) -m torch.distributed.run --standalone --nproc-per-node gpu tests/gpu/soak_program.py $(SOAK_ARGS)

lint: $(VENV)/.ready
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

coverage: $(VENV)/.ready
	$(RUN) -m pytest $(PARALLEL) --cov=triton_dist --cov-branch --cov-report=term:skip-covered $(PYTEST_ARGS)

benchmark: $(VENV)/.ready
	$(RUN) benchmarks/simulator.py

performance: $(VENV)/.ready
	$(RUN) benchmarks/tables.py README.md docs/*.md benchmarks/*.md

soak: $(VENV)/.ready
	$(RUN) -m tests.mutation.soak $(SOAK_ARGS)
