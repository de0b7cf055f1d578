#!/bin/sh
# All checks that need an accelerator, by one command, within eight minutes; one table.
#   sh benchmarks/device.sh               on the first GPU
#   sh benchmarks/device.sh --device cpu  a dry run without one: the same paths, smaller
cd "$(dirname "$0")/.." && exec "${PYTHON:-python}" benchmarks/device.py "$@"
