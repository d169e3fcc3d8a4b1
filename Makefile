# One command for each thing one does here. `make help` lists them.
# Every target that checks something runs the same stages as CI does, by the same script.

.DEFAULT_GOAL := help
.PHONY: help run demo build test test-long bench simulate fuzz clients kills faults chaos tidy

help: ## what can be made
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

run: ## build in release and serve every protocol on its usual port of 127.0.0.1
	cargo build --release --locked --package weir
	exec target/release/weir serve

demo: ## the Debian package index through Kafka clients, the broker killed in the middle, compared by hash
	cargo build --release --locked --package weir
	@suites/demo

build: ## the binary as the tests use it (dev profile)
	cargo build --locked --package weir

test: ## everything that a change must pass: format, lints, build, tests, tidiness
	@suites/stages test

test-long: ## 1,000 kills, slow faults, chaos, Kafka's own dump tool, whole foreign suites, licences (hours)
	@suites/stages test-long

# GROUPS="produce latency" measures only these; WRITE=1 puts the result into docs/benchmarks.md.
bench: ## Weir beside the real Apache Kafka and RabbitMQ, same machine and clients (QUICK=1: some four minutes)
	cargo build --release --locked --package weir
	@bench/run $(GROUPS) $(if $(QUICK),--quick) $(if $(WRITE),--write)

FUZZ_SECONDS ?= 60
fuzz: ## every parser under libFuzzer, FUZZ_SECONDS each (needs a nightly toolchain and cargo-fuzz)
	cargo run --locked --package weir-fuzz-targets -- --write-seeds fuzz/corpus
	for target in $$(cargo run --locked --quiet --package weir-fuzz-targets -- --list); do \
		cargo +nightly fuzz run $$target -- -max_total_time=$(FUZZ_SECONDS) || exit 1; \
	done

clients: build ## other people's clients in seven languages, each on a Weir of its own
	@suites/run

SECONDS ?= 60
simulate: ## three voters under simulated faults: SECONDS=s for as long, or SEED=n to replay one with its log
	cargo build --locked --package weir-sim
	@target/debug/weir-sim $(if $(SEED),--seed $(SEED) --log,--seconds $(SECONDS))

CYCLES ?= 30
kills: build ## kill -9 a loaded broker CYCLES times and compare what it holds with what it acknowledged
	@suites/kills --cycles $(CYCLES)

faults: build ## every fault of docs/reliability.md that is quick, done to a real broker
	@suites/faults --quick

# SECONDS=s is how long faults are done, SEED=n repeats the draws of a run, NODES=5 takes five.
chaos: build ## three nodes under kills, partitions and harm of every kind, each promise checked
	@suites/chaos --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) $(if $(NODES),--nodes $(NODES))

tidy: ## banned words, long files, dead links
	@suites/tidy
