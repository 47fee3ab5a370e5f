# Two commands: `make figures` and `make test`. Each sets up all that it needs in .venv from constraints.txt.
.PHONY: figures analysis public-model test test-long torture lint benchmarks clean

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --constraint constraints.txt
STAMPS := .venv/stamps
WORKERS ?= 2
MINUTES ?= 60

figures: $(STAMPS)/figures
	$(BIN)/python -m figures $(FIGURES)

analysis: $(STAMPS)/analysis

public-model: $(STAMPS)/analysis
	$(PIP) --group public
	$(BIN)/python -m analysis fetch

test: $(STAMPS)/test
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m "not long" $(TESTS)

test-long: $(STAMPS)/test
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --hypothesis-profile=search $(TESTS)

torture: $(STAMPS)/test
	$(BIN)/python -m tests.torture --minutes $(MINUTES) --workers $(WORKERS) $(TORTURE)

lint: $(STAMPS)/lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

benchmarks: $(STAMPS)/test
	$(BIN)/python -m benchmarks

$(STAMPS)/venv: constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	mkdir -p $(STAMPS) && touch $@

$(STAMPS)/figures: $(STAMPS)/venv pyproject.toml
	$(PIP) --editable . --group figures
	touch $@

$(STAMPS)/analysis: $(STAMPS)/figures
	$(PIP) --editable '.[analysis]'
	touch $@

$(STAMPS)/test: $(STAMPS)/analysis
	$(PIP) --editable '.[analysis]' --group cluster --group hub --group spread --group test --group lint
	touch $@

$(STAMPS)/lint: $(STAMPS)/analysis
	$(PIP) --editable . --group lint
	touch $@

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
