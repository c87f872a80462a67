# Ballast: what can be made. `make help` lists it.

.DEFAULT_GOAL := help
.PHONY: help setup build install packages test test-quick demo bench lint soak sanitize fuzz clean
MAKEFLAGS += --no-print-directory

help: ## list what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install what is missing (apt packages; says which)
	@scripts/setup

build: ## build ballast and the guests' program, optimised
	@scripts/setup build
	@scripts/build

install: ## install ballast, ballast-fleet, their units, and ballast-lab under PREFIX (default /usr/local)
	@scripts/setup build
	@cargo build --profile dist -p ballast --bin ballast -p ballast-fleet-program --bin ballast-fleet -p ballast-lab --bin ballast-lab
	@install -D -m 755 -t $(DESTDIR)$${PREFIX:-/usr/local}/bin $${CARGO_TARGET_DIR:-target}/dist/ballast $${CARGO_TARGET_DIR:-target}/dist/ballast-fleet $${CARGO_TARGET_DIR:-target}/dist/ballast-lab
	@install -d $(DESTDIR)$${PREFIX:-/usr/local}/lib/systemd/system
	@for unit in ballast ballast-fleet; do \
		sed "s:/usr/bin/ballast:$${PREFIX:-/usr/local}/bin/ballast:" packaging/$$unit.service \
			>$(DESTDIR)$${PREFIX:-/usr/local}/lib/systemd/system/$$unit.service; \
	done

packages: ## make .deb and .rpm of ballast, ballast-agent and ballast-lab, in target/packages
	@scripts/setup packages
	@scripts/package

test: ## every check, with real guests: what continuous integration runs
	@scripts/setup
	@scripts/test

test-quick: ## format and the tests without guests
	@scripts/setup build
	@scripts/test quick

demo: ## two real guests, without balancing and with it, side by side
	@scripts/setup lab
	@CARGO_INCREMENTAL=0 scripts/build demo
	@$${CARGO_TARGET_DIR:-target}/debug/ballast demo

bench: ## run the benchmarks and print their figures
	@scripts/setup build
	@cargo bench --workspace --bench '*'
	@scripts/build
	@for name in agent mechanisms mrc policies sim solver; do \
		$${CARGO_TARGET_DIR:-target}/release/ballast bench $$name || exit; \
	done

lint: ## format, clippy, documentation, tidy: the quick part of test
	@scripts/setup build
	@scripts/lint

soak: ## the rounds with real guests in full (BALLAST_SOAK_ROUNDS each, default 100), packages installed, and a storm of a million faults
	@scripts/setup
	@$(MAKE) packages
	@BALLAST_TEST_PACKAGES=$(CURDIR)/target/packages BALLAST_SOAK_ROUNDS=$${BALLAST_SOAK_ROUNDS:-100} scripts/test guests
	@cargo run --release -p ballast-lab --bin ballast-lab -- storm --seeds $${BALLAST_SOAK_SEEDS:-10000}

sanitize: ## unsafe loops under the address sanitizer, the long tests too
	@scripts/setup build
	@scripts/sanitize exact shards::filter

fuzz: ## feed every fuzz target for FUZZ_SECONDS (default 60)
	@scripts/setup fuzz
	@scripts/fuzz

clean: ## remove what was built; the lab's cache stays
	@cargo clean
	@rm -rf fuzz/target fuzz/artifacts demo-report*
