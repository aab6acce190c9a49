#!/usr/bin/env bash
# A night on a Ray cluster that is running, with all data below BUCKET: ingest what is new, find its duplicates, remove
# old runs. It ends with the exit code of the job that failed (docs/operations.md); called again, it goes on there.
# `night.sh first` trains the encoder and makes the run that all nights build on.
set -euo pipefail

: "${BUCKET:?set it to the folder of dumps, archive, encoder and runs, such as s3://BUCKET}"
PRESET=${PRESET:-dupq}
WORKERS=${WORKERS:-1} # of training
PRECISION=${PRECISION:-0.8}
MAX_CHANGE=${MAX_CHANGE:-0.2} # a night that differs more from the one before fails
MIN_ROWS_SHARE=${MIN_ROWS_SHARE:-0.9}
read -ra MORE <<< "${MORE:-}" # options of dedup, such as --gpus 2

dupq ingest --dump "$BUCKET/dumps" --output "$BUCKET/archive"
NIGHT=()
if [[ ${1:-} == first ]]; then
    dupq train --questions "$BUCKET/archive/questions" --links "$BUCKET/archive/links" --output "$BUCKET/encoder" \
        --preset "$PRESET" --workers "$WORKERS"
else
    NIGHT=(--previous "$BUCKET/runs" --max-change "$MAX_CHANGE" --min-rows-share "$MIN_ROWS_SHARE")
fi
dupq dedup --questions "$BUCKET/archive/questions" --links "$BUCKET/archive/links" --encoder "$BUCKET/encoder" \
    --output "$BUCKET/runs" "${NIGHT[@]}" --precision "$PRECISION" "${MORE[@]}"
dupq prune --output "$BUCKET/runs" --keep 7 --keep-monthly 12
