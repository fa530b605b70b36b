SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# How much of the parts of `make test-long` that take hours it does. With 1 all of it takes less than an hour on two cores.
PERCENT ?= 100
# The first seed of the histories of `make simulate`: each commit has others, and always the same. 0 draws it, as `make test-long` does.
COMMITS := $(shell git rev-list --count HEAD 2>/dev/null || echo 1)
SEED ?= $(COMMITS)0000
# `make seeded` tries one of so many mistakes, other ones for each commit.
ONE_OF ?= 1
# How long `make fuzz` searches with each target.
FUZZ_FOR ?= 30s
# Which benchmarks `make bench` runs, how long and how often each; benchstat wants six at least.
BENCH ?= .
BENCH_TIME ?= 200ms
BENCH_COUNT ?= 6
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)

# All is compiled as what we ship is: static, without a path of the machine in it. So the tests find every package in the cache that the
# binary has, and the other way round. Only the race detector needs cgo.
export CGO_ENABLED := 0
# The tests leave go vet, which takes as long as compiling them, to the linters of make lint. The compiler and the linker, and only they, collect their garbage
# less often: a fifth less processor time for some more memory. What we ship has no DWARF, so the compiler makes none: a twelfth less.
QUICKER := -vet=off -gcflags=all=-dwarf=false '-toolexec=env GOGC=400'
export GOFLAGS := $(strip $(filter-out -trimpath $(QUICKER),$(shell go env GOFLAGS)) -trimpath $(QUICKER))
RACE := CGO_ENABLED=1 GORACE=atexit_sleep_ms=0 go test -race
# Go 1.26 may crash with the race detector where two processors fire timers of one synctest bubble at once (golang/go#78156). So a package has one
# processor: the detector needs no more to see a race, and packages run beside each other.
BUBBLES := -cpu 1
# Packages in which the race detector may find something: those whose tests look for goroutines that are left (internal/lint), but for some in which only
# the tests start any, or in which all calls come after each other. With it, tests take some seven times the processor time.
SEQUENTIAL := $(addprefix github.com/lessor-dev/lessor/,internal/lint lease store/salvage test/matrix)
LEAKS := {{if eq . "go.uber.org/goleak"}}{{println $$p}}{{end}}
CONCURRENT = $$(go list -f '{{$$p := .ImportPath}}{{range .TestImports}}$(LEAKS){{end}}{{range .XTestImports}}$(LEAKS){{end}}' ./... \
	| grep . | grep -vxF $(addprefix -e ,$(SEQUENTIAL)))
# It leaves out commands whose goroutines those of other scripts have, too, and tests in which next to nothing happens at once. make test runs them.
COMMANDS := arguments auth backup bench bench_profile bench_scattered bulk compact completion disk_full explain help late packages placement queues restore salvage \
	submit_lines tasks tenant tls verify
ALONE := BulkCallContinuesWithAPageToken BulkOverHTTPGoesOn BulkOverHTTPSelectsNoMoreThanMeant CommandsOfThePages \
	CompactKeepsTheFormOfTheSums CrashedUpgradeIsCompleted CrashesInARow ExamplesOfTheHelp FairnessWeights \
	LargestTaskIsRead LedgerTakesLittleSpace LimitsHoldUnderRandomCommands ListTasksScansABoundedNumber \
	LongLineIsNotReadTaskByTask LostWriteIsNoticed ManyParkedTasksAreGrantedInOrder MatchingAgainstAModel \
	NewestFirstIsTheReverse PageOfQueuesReadsNoOtherQueues PagesOfLargeItemsFitIntoAMessage ParkingManyTasksHoldsUpNobody \
	ParserOfOneCommand PurgeContinuesWithAPageToken RandomTurnsMatchTheWeights RunLeavesRoomOnItsDisk \
	TasksBeyondMemoryKeepTheirOrder TimersTakeLittleSpace TornRootPageIsNoticed
empty :=
alternatives = ($(subst $(empty) ,|,$(strip $(1))))
SKIPPED := -skip '^TestScripts$$/^$(call alternatives,$(COMMANDS))$$|^Test$(call alternatives,$(ALONE))$$'
# Tests that start processes wait for them, for leases and for disks more than they compute: three packages at once keep two processors busy.
BESIDE := $(shell [ "$$(getconf _NPROCESSORS_ONLN)" -ge 3 ] || echo -p 3)

# The quick tests have their files in memory, unless TMPDIR says where, or there is no room for them or programs may not run there: what they wait for most is the
# disk. Those of crashes, of full disks and of power cuts are among the faults. What the Go command builds is there, too, up to a gigabyte of it: t.TempDir
# goes by GOTMPDIR first, so that must not lead it elsewhere.
IN_MEMORY := $(if $(TMPDIR),,$(shell tried=$$(mktemp /dev/shm/lessor.XXXXXX 2>/dev/null) || exit 0; chmod +x $$tried; \
	$$tried 2>/dev/null && df -Pk /dev/shm | awk 'END { if ($$4 > 2000000) print "GOTMPDIR=/dev/shm TMPDIR=/dev/shm" }'; rm -f $$tried))

# Each tool has a modfile of its own: its dependencies never decide the versions of what we ship. They collect less often, too. BUF=COMMAND is another
# buf of the same version.
BUF ?= GOGC=400 go tool -modfile=proto/buf.mod buf
GOLANGCI := GOGC=400 go tool -modfile=internal/lint/golangci.mod golangci-lint

.PHONY: help
help: ## Show this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "%-16s %s\n", $$1, $$2}'

##### Build and run

.PHONY: build
build: ## Build bin/lessor, a static binary
	go build -ldflags '-s -w -X main.version=$(VERSION)' -o bin/lessor ./cmd/lessor

.PHONY: notices
notices: ## Write bin/THIRD_PARTY_NOTICES, the licences of all that is in the binary; pass them on with it
	mkdir -p bin
	go run ./test/notices ./cmd/lessor bin/THIRD_PARTY_NOTICES

.PHONY: run
run: build ## Start a coordinator on the default loopback ports, with its data in bin/data
	bin/lessor serve --data bin/data

.PHONY: clean
clean: ## Remove bin/, the data of `make run` included
	rm -rf bin

##### Test

# The quick tests and the small worlds collect less often, too; races, faults and benchmarks run as for users.
.PHONY: test
test: ## Run the quick tests
	$(QUICK) | go run ./test/rules

.PHONY: rules
rules: ## List which rule of docs/rules.md each quick test checks; fails where one has none. What has passed is not run again
	$(QUICK) | go run ./test/rules -require AHKPSTVWX docs/rules.md

QUICK = $(IN_MEMORY) GOGC=400 go test $(BESIDE) -json ./...

.PHONY: race
race: ## Run the quick tests with the race detector, where it may find something
	$(IN_MEMORY) $(RACE) $(BUBBLES) $(BESIDE) $(SKIPPED) -timeout 20m $(CONCURRENT)

.PHONY: simulate
simulate: ## Simulate 5 million steps of the authority and its workers, 150 histories of the engine and of its matching, 150 of each of its indexes, 100 of sessions, and 6 of the whole (docs/testing/models.md)
	go test -count=1 -v -timeout 10m ./lease -run '^TestSimulation$$' -simulate.steps 5000000 -simulate.seed $(SEED)
	go test -count=1 -timeout 10m ./coordinator/engine -run '^(TestRandomHistories|TestMatchingAgainstAModel)$$' -random.histories 150 -random.seed $(SEED)
	go test -count=1 -timeout 10m ./store/keyindex ./store/timerindex -run '^TestRandomHistories$$' -random.histories 150 -random.seed $(SEED)
	go test -count=1 -timeout 10m ./coordinator/session -run '^TestRandomHistories$$' -random.histories 100 -random.seed $(SEED)
	go test -count=1 -timeout 10m ./test/limits -run '^TestRandomHistories$$' -random.histories 6 -random.seed $(SEED)

.PHONY: stress
stress: ## Run the quick tests twenty times in a row, with the race detector where it may find something
	concurrent=$(CONCURRENT); $(RACE) $(BUBBLES) -count=20 -timeout 30m $$concurrent; \
		go test -count=20 -timeout 30m $$(go list ./... | grep -vxF "$$concurrent")

# Parts that fail early come first, and each prints what it counted. Only the histories know no patience of their own for what hangs.
.PHONY: test-long
test-long: rules race ## Run the quick tests, all faults and the tests behind the tag `long` with the race detector; then, without it, many images, histories, power cuts and kills
	$(RACE) -count=1 -v $(BESIDE) -timeout 60m -tags faults $(call TAGGED,faults)
	$(RACE) -count=1 -v -timeout 60m -tags long $(call TAGGED,long)
	go run ./test/seeded
	go test -count=1 -v -timeout 0 -tags faults ./test/crash -run '^TestWalk$$' -steps 1000 -gap 1
	go test -count=1 -v -timeout 0 -tags faults ./test/linear -histories $$(($(PERCENT) * 2))
	go test -count=1 -v -timeout 0 -tags faults ./test/images -one-of 1 -images $$(($(PERCENT) * 5000))
	$(HISTORIES) ./store/keyindex ./store/timerindex -random.histories $$(($(PERCENT) * 1000)) -random.seed 0
	$(HISTORIES) ./coordinator/engine ./coordinator/session -random.histories $$(($(PERCENT) * 500)) -random.seed 0
	$(HISTORIES) ./test/limits -random.histories $$(($(PERCENT) * 50)) -random.seed 0
	go test -count=1 -v -timeout 0 ./lease -run '^TestSimulation$$' -simulate.for $$(($(PERCENT) * 36))s -simulate.seed 0
	go test -count=1 -v -timeout 0 -tags faults ./test/crash -run '^TestPowerCut(XFS)?$$' -cuts $$(($(PERCENT) * 30))
	go test -count=1 -v -timeout 0 -tags faults ./test/crash -run '^TestKill$$' -kills $$(($(PERCENT) * 200))

HISTORIES := go test -count=1 -v -timeout 12h -run '^(TestRandomHistories|TestMatchingAgainstAModel)$$'

# The packages in test/ to which a build tag gives other files. The rest of test/ is run by `make test`.
FILES := {{.ImportPath}} {{.GoFiles}} {{.TestGoFiles}} {{.XTestGoFiles}}
TAGGED = $$(comm -13 <(go list -f '$(FILES)' ./test/... | sort) <(go list -tags $(1) -f '$(FILES)' ./test/... | sort) | cut -d ' ' -f 1)

.PHONY: faults
faults: ## Run the fault injection in test/: kill -9, power cuts, lost connections (docs/testing/faults.md)
	go test -count=1 -v $(BESIDE) -timeout 20m -tags faults $(call TAGGED,faults)

.PHONY: bench-faults
bench-faults: ## Print how long calls and starts take while something is wrong
	go test -tags faults -run '^$$' -bench . -benchtime 200x ./test/latency -timeout 30m

# Each target in turn: go test searches with one at a time.
.PHONY: fuzz
fuzz: ## Search with each fuzz target for FUZZ_FOR; what is found stays in testdata/fuzz, and is a test from then on
	git grep -oE '^func Fuzz[A-Za-z0-9]+' -- '*_test.go' | sed 's/:func /:/' | while IFS=: read -r file name; do \
		go test -run '^$$' -fuzz "^$$name$$" -fuzztime $(FUZZ_FOR) -fuzzminimizetime 1s "./$${file%/*}" < /dev/null; done

.PHONY: prove
prove: ## Visit every state of small worlds (docs/testing/models.md), and every cell of the authorization matrix (docs/testing.md)
	GOGC=400 go test -count=1 -v -timeout 10m -run EveryState ./test/exhaustive -full
	go test -count=1 -v -timeout 10m ./test/matrix -full

.PHONY: seeded
seeded: ## Put known mistakes into the code, one of each ONE_OF, and check that the test named for each fails
	go run ./test/seeded -one-of $(ONE_OF) -turn $(COMMITS)

# A Python with gRPC, which may be that of the system only.
PYTHON_GRPC = $(or $(shell for p in python3 /usr/bin/python3; do $$p -c 'import grpc' 2>/dev/null && echo $$p && break; done),$(error no python3 has grpc: see examples/python-grpc/README.md))
STUBS := bin/stubs

.PHONY: examples
examples: build ## Run the tests of the examples, and check them and lessor worker run as workers; those in other languages need npm, Python 3.11 and its gRPC
	go test -count=1 -timeout 5m ./examples/...
	cd examples/node && npm ci --ignore-scripts --no-audit --no-fund && npm test
	cd examples/python && python3 -m unittest
	bin/lessor worker check --type count --quick 1 --long 50 --failing x -v -- node examples/node/main.js --addr {addr} --queue {queue}
	bin/lessor worker check --quick '{"to": 1}' --long '{"to": 50}' --failing x -v -- python3 examples/python/main.py --addr {url} --queue {queue}
	mkdir -p $(STUBS)
	protoc -I proto -I examples/python-grpc --python_out=$(STUBS) --grpc_out=$(STUBS) --plugin=protoc-gen-grpc="$$(command -v grpc_python_plugin)" proto/lessor/v1/*.proto retry.proto
	cd examples/python-grpc && PYTHONPATH=$(abspath $(STUBS)) $(PYTHON_GRPC) -m unittest
	PYTHONPATH=$(STUBS) bin/lessor worker check --quick 1 --long 50 --failing x -v -- $(PYTHON_GRPC) examples/python-grpc/worker.py --addr {addr} --queue {queue}
	bin/lessor worker check --quick 0 --long 5 --failing x -v -- bin/lessor worker run --addr {addr} --queue {queue} -- sh -c 'sleep $$(cat)'

# Packages with benchmarks of the code; those in test/ are of the whole, and have verbs of their own.
BENCHED = $$(git grep -l '^func Benchmark' -- '*_test.go' ':!test' | sed 's,^,./,; s,/[^/]*$$,,' | sort -u)

.PHONY: bench
bench: ## Run the Go benchmarks that match BENCH, BENCH_COUNT times over, for benchstat (docs/benchmarks.md)
	go test -run '^$$' -bench '$(BENCH)' -benchmem -benchtime $(BENCH_TIME) -count $(BENCH_COUNT) -timeout 60m $(BENCHED)

.PHONY: plots
plots: ## Draw the pictures of docs/benchmarks.md from the figures in docs/benchmarks/
	go run ./test/plots docs/benchmarks

##### Check

.PHONY: lint
lint: ## Check the Go code and the protos, style included, and that the code compiles for other platforms
	$(GOLANGCI) run
	go test -count=1 -tags platforms ./internal/lint -run '^TestOtherPlatforms$$'
	$(BUF) lint
	$(BUF) format --diff --exit-code

.PHONY: tools
tools: ## Build the tools of the other verbs, which takes minutes the first time
	$(GOLANGCI) version
	$(BUF) --version

.PHONY: fmt
fmt: ## Format the Go code and the protos
	$(GOLANGCI) fmt
	$(BUF) format --write

.PHONY: breaking
breaking: ## Check that the protos still serve every client of proto/baseline.binpb
	$(BUF) breaking --against proto/baseline.binpb

##### Generate

.PHONY: generate
generate: ## Generate gen/ from proto/
	$(BUF) generate

.PHONY: check-generate
check-generate: ## Check that gen/ is what `make generate` makes, and that go.mod is tidy
	tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; \
		$(BUF) generate --output "$$tmp"; \
		diff -r gen "$$tmp/gen"
	go mod tidy -diff

.PHONY: baseline
baseline: breaking ## Renew proto/baseline.binpb; only in the commit that prepares a release
	$(BUF) build --exclude-source-info --output proto/baseline.binpb
