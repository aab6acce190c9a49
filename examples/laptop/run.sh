#!/usr/bin/env bash
# From a dump to clusters on one machine, job by job: run.sh [DUMP [OUT]]; without a dump, on the built-in sample.
set -euo pipefail

DUMP=${1:-}
OUT=${2:-out/laptop}
cd "$(dirname "$0")/../.." # relative paths are below the repository
export PATH=$PWD/.venv/bin:$PATH

if [ -z "$DUMP" ]; then
    python -m examples.sample "$OUT/dump"
    DUMP=$OUT/dump
fi

dupq ingest --dump "$DUMP" --output "$OUT"

LINKS=() # a dump without PostLinks.xml has none
if compgen -G "$OUT/links/*/*.parquet" > /dev/null; then
    LINKS=(--links "$OUT/links")
fi
dupq train --questions "$OUT/questions" "${LINKS[@]}" --output "$OUT/encoder"
dupq dedup --questions "$OUT/questions" "${LINKS[@]}" --encoder "$OUT/encoder" --output "$OUT/runs"
dupq report --run "$OUT/runs"

python examples/laptop/read_run.py "$OUT/runs"
