#!/usr/bin/env bash
# All dumps of a folder to clusters, on one machine with many cores: run.sh DUMPS OUT
set -euo pipefail

DUMPS=$(realpath "${1:?usage: run.sh DUMPS OUT}")
OUT=$(realpath -m "${2:?usage: run.sh DUMPS OUT}")
PRESET=${PRESET:-dupq}
WORKERS=${WORKERS:-4}            # of training
ACTORS=${ACTORS:-0}              # of encoding; 0: in large runs one per GPU or CPU
BLOCK_ROWS=${BLOCK_ROWS:-200000} # of the search for neighbours; 0: chosen from the memory
PRECISION=${PRECISION:-0.8}
MAX_CHANGE=${MAX_CHANGE:-0.2} # from the second run on, a run that differs more from the one before fails
MIN_ROWS_SHARE=${MIN_ROWS_SHARE:-0.9}

cd "$(dirname "$0")/../.."
export PATH=$PWD/.venv/bin:$PATH

dupq ingest --dump "$DUMPS" --output "$OUT"

LINKS=() # dumps without PostLinks.xml have none
if compgen -G "$OUT/links/*/*.parquet" > /dev/null; then
    LINKS=(--links "$OUT/links")
fi
if [ ! -f "$OUT/encoder/latest.json" ]; then # kept: with another encoder no embedding and no score would be the same
    dupq train --questions "$OUT/questions" "${LINKS[@]}" --output "$OUT/encoder" --preset "$PRESET" \
        --workers "$WORKERS" --set title_body.questions=1000000
fi

PREVIOUS=() # from the second run on, only what is new is searched
if [ -f "$OUT/runs/latest.json" ]; then
    PREVIOUS=(--previous "$OUT/runs" --max-change "$MAX_CHANGE" --min-rows-share "$MIN_ROWS_SHARE")
fi
dupq dedup --questions "$OUT/questions" "${LINKS[@]}" --encoder "$OUT/encoder" --output "$OUT/runs" "${PREVIOUS[@]}" \
    --precision "$PRECISION" --set encode.actors="$ACTORS" --set neighbours.block_rows="$BLOCK_ROWS"
dupq prune --output "$OUT/runs" --keep 7 --keep-monthly 12
