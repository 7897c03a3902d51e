# Every target makes its own virtual environment on first use; nothing else needs setting up.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

# a processor with other vector instructions rounds otherwise: the widest there are, AVX2, and neither of the AVX
AVX2 := ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2 OPENBLAS_CORETYPE=Haswell
SSE  := ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 OPENBLAS_CORETYPE=Nehalem

.PHONY: screenshots demo test test-quality test-slow test-wheel wheel lint format fuzz faults kills audit sbom release-constraints bench docs clean

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

demo: $(READY)  ## cluster scikit-learn's digits and write a report to open
	$(BIN)/diva fit digits --out demo --overwrite

test: $(READY)  ## everything that fits in a few minutes, but for what `make test-quality` runs
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not slow and not quality"  # long files come first

test-quality: $(READY)  ## the tests that judge a fit, under three instruction sets
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "quality and not slow"
	$(AVX2) $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "quality and not slow"
	$(SSE) $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "quality and not slow"

test-slow: $(READY)  ## the recovery, memory and scale checks that take minutes
	$(BIN)/python -m pytest -m slow

SEED  ?= 0
CASES ?= 100000
FILES ?= 20000
fuzz: $(READY)  ## odd arrays and damaged files for hours; goes on where it stopped: make fuzz SEED=7 CASES=100000
	$(BIN)/python -m tests.fuzz --estimator diva --cases $$(( $(CASES) / 100 )) --seed $(SEED)
	$(BIN)/python -m tests.fuzz.readers --mutations $(FILES) --seed $(SEED)
	$(BIN)/python -m tests.fuzz --estimator dpmixture --cases $(CASES) --seed $(SEED)

faults: $(READY)  ## every command, with every write failing in turn: a full disk, a broken one, a kill
	$(BIN)/python -m pytest -n 2 -m "slow or not slow" tests/faults

kills: $(READY)  ## a thousand kills of diva stream and diva fit, and a judge who does not know the code
	$(BIN)/python -m tests.kills --kills 1000 --seed $(SEED)

wheel: $(READY)  ## dist/diva_clustering-*.whl
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

test-wheel: $(READY)  ## the wheel in an environment without the repository: fit, predict, report
	$(BIN)/python -m pytest -m slow tests/e2e/test_wheel.py

lint: $(READY)  ## style, types, import contract
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)  ## every figure of docs/benchmarks.md
	$(BIN)/python -m benchmarks

audit: $(READY)  ## known vulnerabilities of the pinned dependencies; needs a network
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[release]"
	$(BIN)/python release/audit.py

sbom: $(READY)  ## release/sbom.cdx.json, which is part of the wheel
	$(BIN)/python release/make_sbom.py

release-constraints: $(READY)  ## dist/constraints.txt: all that diva needs, with hashes: pip install --require-hashes -r
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[release]"
	mkdir -p dist
	$(BIN)/python -m piptools compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-header --no-annotate --no-emit-index-url \
		--no-emit-trusted-host --no-emit-find-links --constraint constraints.txt --output-file dist/constraints.txt pyproject.toml

docs: $(READY)  ## the documentation as a site: site/index.html
	$(BIN)/python docs/make_commands.py
	$(BIN)/python docs/make_parameters.py
	$(BIN)/python docs/make_diagrams.py
	$(BIN)/python -m mkdocs build --strict

screenshots: $(READY)  ## pictures of the terminal and of the report in the docs; needs Chromium
	$(BIN)/python docs/make_screenshots.py

clean:
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache
