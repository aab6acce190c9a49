#!/usr/bin/env bash
# Ingest what is new and find its duplicates: nightly.sh s3://BUCKET, where an encoder and a first run are already.
set -euo pipefail

BUCKET=${1:?usage: nightly.sh s3://BUCKET}

cd "$(dirname "$0")/../.."
export PATH=$PWD/.venv/bin:$PATH
trap 'ray down -y cluster.yaml' EXIT # whatever happens, no machine is left

ray up -y cluster.yaml
ray submit cluster.yaml jobs/ingest.py -- --dump "$BUCKET/dumps" --output "$BUCKET/archive"
ray submit cluster.yaml jobs/dedup.py -- --questions "$BUCKET/archive/questions" --links "$BUCKET/archive/links" \
    --encoder "$BUCKET/encoder" --output "$BUCKET/runs" --previous "$BUCKET/runs" --max-change 0.2
