# Copyright 2026 The grpcretry Authors
# SPDX-License-Identifier: Apache-2.0

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --no-print-directory --warn-undefined-variables

GO ?= go
# What the test targets test, e.g. make race PKG=./testserver/...
PKG ?= ./...
# How long each fuzz target runs, or how often, like 10000x.
FUZZTIME ?= 30s
# Which benchmarks run, and with what other flags.
BENCH ?= .
BENCHFLAGS ?= -count=6 -benchtime=300ms
# How long the soak over TCP runs; the other soak tests count calls.
SOAKTIME ?= 10m
# The longest that the soak tests of one package may take, SOAKTIME included.
SOAKTIMEOUT ?= 40m
# The longest that one example may take, in seconds, compiling included.
EXAMPLETIMEOUT ?= 180

# The tests of the pure functions, to which most mutants fall: they are tried
# before the whole suite, which takes some hundred times as long.
MUTATEFIRST ?= Backoff|Outcome|Ledger|Decide
# What else the mutation runner is told, e.g. -v.
MUTATEFLAGS ?=

# Each tool is pinned, with all that it is built from, by its own module file
# in tools/, so that its dependencies never meet this module's.
tool = $(GO) tool -modfile=$(CURDIR)/tools/$(1).mod $(1)
golangci-lint = $(call tool,golangci-lint)
buf = $(call tool,buf)

# Directories with a go.mod of their own, the root first. The tools' module
# files have other names and are not among them.
nested := $(patsubst ./%/go.mod,%,$(shell find . -mindepth 2 -name go.mod -not -path '*/testdata/*' -not -path './.*' | sort))
modules := . $(nested)

# What the code is covered for: generated code and programs are left out.
covered = $(shell $(GO) list ./... | grep -v -e /proto/ -e /examples/ -e /interop -e /tools/ | paste -s -d , -)

.PHONY: all
all: checkfmt lint vet race ## Check the format, lint, vet and run the race tests (default)

.PHONY: help
help: ## List the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | \
		while IFS='|' read -r name text; do printf '%-14s %s\n' "$$name" "$$text"; done

.PHONY: fmt
fmt: ## Format Go and protobuf files in place
	@for dir in $(modules); do (cd "$$dir"; $(golangci-lint) fmt --config $(CURDIR)/.golangci.yml); done
	$(buf) format --write

.PHONY: checkfmt
checkfmt: ## Fail if a file is not formatted
	@for dir in $(modules); do (cd "$$dir"; $(golangci-lint) fmt --diff --config $(CURDIR)/.golangci.yml); done
	$(buf) format --diff --exit-code

.PHONY: lint
lint: ## Lint Go and protobuf files
	@for dir in $(modules); do \
		printf 'golangci-lint: %s\n' "$$dir"; \
		(cd "$$dir"; $(golangci-lint) run --config $(CURDIR)/.golangci.yml --modules-download-mode=readonly --timeout=15m); \
	done
	$(buf) lint

.PHONY: vet
vet: ## Run go vet
	$(GO) vet ./...

.PHONY: test
test: ## Run the tests
	$(GO) test $(PKG)

.PHONY: race
race: ## Run the tests three times in random order with the race detector
	$(GO) test -race -shuffle=on -count=3 $(PKG)

.PHONY: nested
nested: ## Vet and test the modules in subdirectories
	@for dir in $(nested); do \
		printf 'module %s\n' "$$dir"; \
		(cd "$$dir"; $(GO) vet ./...; $(GO) test ./...); \
	done; \
	if [[ -z '$(nested)' ]]; then echo 'no nested modules'; fi

# The end of each package's list of tests is a line "ok <package> <time>".
.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME (30s)
	@found=0; \
	for dir in $(modules); do \
		list=$$(cd "$$dir"; $(GO) test -list '^Fuzz' ./...); \
		names=(); \
		while read -r first package _; do \
			case "$$first" in \
			Fuzz*) names+=("$$first") ;; \
			ok) for name in $${names[@]+"$${names[@]}"}; do \
				found=1; \
				printf '%s %s\n' "$$package" "$$name"; \
				(cd "$$dir"; $(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) "$$package"); \
				done; names=() ;; \
			esac; \
		done <<< "$$list"; \
	done; \
	if [[ $$found == 0 ]]; then echo 'no fuzz targets'; fi

.PHONY: soak
soak: ## Run the soak tests, which go test skips, the one over TCP for SOAKTIME (10m); TestSoakRace… with the race detector
	@found=0; \
	for dir in $(modules); do \
		list=$$(cd "$$dir"; $(GO) test -list '^TestSoak' ./...); \
		if grep -q '^TestSoak' <<< "$$list"; then \
			found=1; \
			packages=$$(awk '/^TestSoak/ { has = 1 } /^ok/ { if (has) print $$2; has = 0 }' <<< "$$list"); \
			(cd "$$dir"; GRPCRETRY_SOAK=$(SOAKTIME) $(GO) test -v -run '^TestSoak' -count=1 -timeout $(SOAKTIMEOUT) $$packages); \
			(cd "$$dir"; GRPCRETRY_SOAK=$(SOAKTIME) $(GO) test -v -race -run '^TestSoakRace' -count=1 -timeout $(SOAKTIMEOUT) $$packages); \
		fi; \
	done; \
	if [[ $$found == 0 ]]; then echo 'no soak tests'; fi

# Ratios count, not times: libraries alternate within a run, and benchstat
# compares the runs. BENCH=Stub BENCHFLAGS=-count=10, for example.
.PHONY: bench
bench: ## Compare the suite with its peers: the benchmarks in bench/ that match BENCH
	@out=$$(mktemp); trap 'rm -f "$$out"' EXIT; \
	(cd bench; $(GO) test -run '^$$' -bench '$(BENCH)' $(BENCHFLAGS) .) | tee "$$out"; \
	$(call tool,benchstat) -col /lib "$$out"

.PHONY: cover
cover: ## Run the tests for their coverage; leaves cover.out
	$(GO) test -covermode=atomic -coverpkg=$(covered) -coverprofile=cover.out ./...
	@$(GO) tool cover -func=cover.out | tail -n 1

.PHONY: mutate
mutate: ## Mutate the deciding code and check that the tests notice; lists the survivors
	$(GO) run ./tools/mutate -min 90 -also . -first '$(MUTATEFIRST)' $(MUTATEFLAGS) \
		ledger.go backoff.go failure.go ./internal/replay

.PHONY: examples
examples: ## Run every example
	@shopt -s nullglob; \
	found=0; \
	for main in examples/*/main.go; do \
		found=1; \
		dir=$${main%/main.go}; \
		printf '%s\n' "$$dir"; \
		if [[ -f "$$dir/go.mod" ]]; then (cd "$$dir"; timeout $(EXAMPLETIMEOUT) $(GO) run .); \
		else timeout $(EXAMPLETIMEOUT) $(GO) run "./$$dir"; fi; \
	done; \
	if [[ $$found == 0 ]]; then echo 'no examples'; fi

.PHONY: interop
interop: ## Check that clients in other languages obey our service configs; installs Node.js and Python's gRPC
	interop/setup
	GRPCRETRY_INTEROP=1 $(GO) test -v -count=1 -timeout 5m ./interop

.PHONY: generate
generate: ## Regenerate the Go code of the .proto files
	$(buf) generate

# Compared as trees, so that files that should not be there are found too, and
# no clean working tree is asked for.
.PHONY: checkgenerate
checkgenerate: ## Fail if the generated code differs from what generate writes
	@temp=$$(mktemp -d); trap 'rm -rf "$$temp"' EXIT; \
	$(buf) generate --output "$$temp/want"; \
	mkdir "$$temp/got"; cp -R proto "$$temp/got/proto"; \
	find "$$temp/got" -type f -not -name '*.pb.go' -delete; \
	git diff --no-index --exit-code "$$temp/got" "$$temp/want"

.PHONY: tidycheck
tidycheck: ## Fail if a go.mod or go.sum is not tidy
	@for dir in $(modules); do (cd "$$dir"; $(GO) mod tidy -diff); done

.PHONY: tools
tools: ## Build every tool and print its version
	@for mod in tools/*.mod; do \
		name=$${mod#tools/}; name=$${name%.mod}; \
		printf '%s: ' "$$name"; \
		$(GO) tool -modfile="$$mod" "$$name" --version; \
	done
