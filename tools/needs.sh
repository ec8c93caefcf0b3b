#!/bin/sh
# needs.sh PYTHON run|test: says in a line each what this machine lacks, and how to get it; exit status 1 if anything.
# `make` runs this before it installs or builds.
python=$1
purpose=$2
lacking=0

lack() {
    echo "make: $1" >&2
    lacking=1
}

# The first two numbers of a version as one: 3.11.7 is 3011.
number() {
    echo "$1" | sed -n 's/^[^0-9]*\([0-9][0-9]*\)\.\([0-9][0-9]*\).*/\1 \2/p' | awk '{ print $1 * 1000 + $2 }'
}

if ! command -v "$python" >/dev/null 2>&1; then
    lack "no $python: install Python 3.11 or later (Debian: apt install python3 python3-venv), or name one with make PYTHON=…"
elif ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
    lack "$python is $("$python" --version 2>&1), and Python 3.11 or later is needed: name one with make PYTHON=python3.12"
elif ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
    lack "$python cannot make virtual environments: apt install python3-venv, or name another with make PYTHON=…"
fi

wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' core/Cargo.toml)
if ! command -v cargo >/dev/null 2>&1 || ! command -v rustc >/dev/null 2>&1; then
    lack "no Rust toolchain: install Rust $wanted or later with rustup (https://rustup.rs)"
else
    found=$(rustc --version 2>/dev/null)
    if [ "$(number "${found:-0.0}")" -lt "$(number "$wanted")" ]; then
        lack "${found:-rustc does not run}, and Rust $wanted or later is needed: rustup update stable"
    fi
fi
command -v cc >/dev/null 2>&1 || lack "no C compiler, which links the core: apt install gcc libc6-dev"

needed=2
if [ "$purpose" = test ]; then
    needed=5
    command -v curl >/dev/null 2>&1 || lack "no curl, which the tests use: apt install curl"
fi
free=$(df -Pk . 2>/dev/null | awk 'NR == 2 { print int($4 / 1048576) }')
if [ "${free:-$needed}" -lt "$needed" ]; then
    lack "$free GiB are free on this disk, and $needed GiB are needed: make room, or clone elsewhere"
fi

exit $lacking
