#!/bin/sh
# All checks that need an accelerator, by one command, within ten minutes; one table.
#   sh benchmarks/device.sh               on the first GPU
#   sh benchmarks/device.sh --device cpu  the same paths without one, to see that they run
cd "$(dirname "$0")/.." && exec "${PYTHON:-python}" benchmarks/device.py "$@"
