# Everything that is built, tested and measured, by one name each. Needs make and Go 1.26; `make test` installs the rest.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help build dist test model rules mutants soak bench bench-road cover lint fmt

GO       ?= go
FUZZTIME ?= 10m
BENCH    ?= .
ROAD     ?= -lanes 1,16,64,256 -rounds 3 -messages 20000 -noise 0.1
# SQLite is C translated to Go, whose locks the race detector cannot see: it stays out of there, which takes two thirds of the tests' CPU away.
# No more than that one package: generic code of another would be linked in place of everybody's.
# Packages wait for leases and servers more than they compute: three at a time, however few processors there are.
RACE     := -race -gcflags=modernc.org/sqlite/lib=-race=false
TOOL     := $(GO) tool -modfile=tools/go.mod

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## bin/zabor, one static program
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o bin/zabor ./cmd/zabor

dist: ## dist/: tarballs and Debian packages for amd64 and arm64, with checksums; two runs on a commit give the same bytes
	@GO="$(GO)" scripts/dist.sh

test: ## all tests, with the race detector, on real servers, in ten minutes; installs them where they are missing
	@scripts/install-test-packages.sh
	@CGO_ENABLED=1 ZABOR_TEST_REQUIRE=1 $(GO) test $(RACE) -timeout 40m ./...

model: ## the protocol's model and its mutants; three to four minutes
	@scripts/install-test-packages.sh
	@docs/model/check.sh

rules: ## the alerts and pictures of contrib/, by Prometheus's own parser and engine
	@$(GO) -C tools/rules test ./...

mutants: ## takes one guard away at a time; the test that is there for it must fail; a quarter of an hour or more
	@scripts/install-test-packages.sh
	@$(GO) run ./internal/mutants

soak: ## hours: the tests that kill at random, then each fuzzer for FUZZTIME (10m)
	@scripts/install-test-packages.sh
	CGO_ENABLED=1 ZABOR_SOAK=1 ZABOR_TEST_REQUIRE=1 $(GO) test $(RACE) -count 1 -timeout 12h ./...
	@scripts/fuzz.sh $(FUZZTIME)

bench: ## benchmarks on the real disk; BENCH is a pattern of their names
	@place=$$(mktemp -d /var/tmp/zabor-bench.XXXXXX); chmod 755 "$$place"; trap "rm -rf $$place" EXIT; ZABOR_TEST_DIR=$$place $(GO) test -run "^$$" -bench "$(BENCH)" -benchmem -timeout 1h ./...

bench-road: ## the real worker beside the loops that people write, asynq and river; an hour or two; ROAD has its flags
	@place=$$(mktemp -d /var/tmp/zabor-road.XXXXXX); chmod 755 "$$place"; trap "rm -rf $$place" EXIT; CGO_ENABLED=0 $(GO) build -o "$$place/zabor" ./cmd/zabor; \
		ZABOR_TEST_DIR=$$place $(GO) test -C bench/road -count 1 -v -timeout 6h -args -zabor "$$place/zabor" $(ROAD)

cover: ## cover.html: what the tests run through, over all packages
	@CGO_ENABLED=1 $(GO) test -coverpkg ./... -coverprofile cover.out -timeout 20m ./...
	@$(GO) tool cover -html cover.out -o cover.html
	@$(GO) tool cover -func cover.out | tail -n 1

lint: ## the linters of .golangci.yml
	@$(TOOL) golangci-lint run

fmt: ## formats the code
	@gofmt -w -s $$(git ls-files -co --exclude-standard '*.go')
