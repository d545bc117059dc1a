# Everything here runs from a clean clone with Go, make and a shell; `make test` sets up
# the servers the tests run against, or says what is missing. Tools and npm packages go
# to .cache/, nothing outside the clone but Debian packages.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GOLANGCI_VERSION := v2.15.0
GOLANGCI := $(CURDIR)/.cache/golangci-lint-$(GOLANGCI_VERSION)/golangci-lint
export PATH := $(CURDIR)/.cache/npm/node_modules/.bin:$(PATH)

# Every module of go.work, the root first.
MODULES = $(shell go list -m -f '{{.Dir}}')
TESTFLAGS ?= -race -shuffle=on -timeout 15m
COUNT ?= 1
FUZZTIME ?= 10s
BENCHCOUNT ?= 5
FX ?= latest
# Where the tests record the signals that they provoke.
SIGNALS := $(CURDIR)/.cache/signals

# each runs a command in every module, and fails at the end if it failed in one.
define each
failed=""; for dir in $(MODULES); do \
  echo "== $${dir#$(CURDIR)}/" | sed 's|^== /*|== coord/|' >&2; \
  (cd "$$dir" && $(1)) || failed="$$failed $$dir"; \
done; \
if [ -n "$$failed" ]; then echo "FAILED in:$$failed" >&2; exit 1; fi
endef

.PHONY: help
help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

.PHONY: setup
setup: ## Install the servers that the tests use (Debian), or say what is missing
	@.ci/setup

.PHONY: test
test: setup ## Test every module with the race detector; CI=true: a missing server fails
	@rm -rf $(SIGNALS) && mkdir -p $(SIGNALS)
	@export COORD_TEST_SIGNALS_DIR=$(SIGNALS); $(call each,go test $(TESTFLAGS) -count=$(COUNT) ./...)
	@$(if $(findstring -run,$(TESTFLAGS)),,go run ./observability/verify/cmd/verify-alarms -emitted $(SIGNALS))

# go.mod asks for the lowest supported fx, which `test` runs with.
.PHONY: test-fx
test-fx: ## Run the tests of the fx wiring with another fx: FX=v1.24.0 (latest)
	@mkdir -p .cache && cp go.mod .cache/fx.mod && cp go.sum .cache/fx.sum
	@GOWORK=off go get -modfile=.cache/fx.mod go.uber.org/fx@$(FX)
	@GOWORK=off go test -modfile=.cache/fx.mod -mod=mod -count=1 -skip TestNoExportedSymbol ./coordfx ./cronfx

.PHONY: cover
cover: setup ## Test the root module and print the coverage of each package's own tests
	@mkdir -p .cache
	@go test -count=1 -coverprofile=.cache/cover.out ./...
	@go tool cover -func=.cache/cover.out | tail -1

.PHONY: verify-alarms
verify-alarms: ## Print what watches each signal, and the verdicts of the checkers
	@go run ./observability/verify/cmd/verify-alarms

.PHONY: mutate-contract
mutate-contract: ## Take out each signal's parts in turn, and fail if nothing misses one
	@go run ./observability/verify/cmd/mutate-contract

.PHONY: fuzz
fuzz: ## Run each fuzz target of the root module for FUZZTIME (10s)
	@for pkg in $$(go list ./...); do \
	  for target in $$(go test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
	    go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$pkg; \
	  done; \
	done

# Each program prints a table and its RATIO lines, medians of BENCHCOUNT runs.
.PHONY: bench
bench: setup ## Measure against the peers: BENCHCOUNT=5 runs, ONLY=lock for a part
	@for dir in testkit/integration/bench/$(or $(ONLY),*)/; do \
	  echo "== $$dir" >&2; go run ./$$dir -runs $(BENCHCOUNT); \
	done

.PHONY: microbench
microbench: ## Run the Go benchmarks of every module
	@$(call each,go test -run '^$$' -bench . -benchmem ./...)

.PHONY: generate
generate: ## Run every go:generate
	@$(call each,go generate ./...)

.PHONY: fmt
fmt: $(GOLANGCI) ## Format the code
	@$(call each,$(GOLANGCI) fmt --config $(CURDIR)/.golangci.yml)

.PHONY: lint
lint: $(GOLANGCI) tidy-lint boundary-lint ## Run the linters
	@$(call each,$(GOLANGCI) run --config $(CURDIR)/.golangci.yml ./...)

# One exception: the test that plants violations.
.PHONY: boundary-lint
boundary-lint: ## Fail if code outside redismodule and testkit can get at a Redis client
	@$(call each,go run github.com/wrkbelt/coord/testkit/boundary/cmd/coordlint -waivers=1 ./...)

.PHONY: tidy-lint
tidy-lint: ## Fail if go mod tidy would change anything; changes nothing
	@$(call each,go mod tidy -diff)

# The linter is built from source once: it must be of the module's Go version or newer.
$(GOLANGCI):
	@echo "building golangci-lint $(GOLANGCI_VERSION), some minutes" >&2
	@GOWORK=off GOBIN=$(@D) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
