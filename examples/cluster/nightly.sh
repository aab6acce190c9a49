#!/usr/bin/env bash
# Ingest what is new and find its duplicates: nightly.sh s3://BUCKET, where an encoder and a first run are already.
# One at a time: a second call ends at once, with 7. What fails is tried again, and goes on where it stopped; but not
# what was refused for an argument, a setting or a gate, which would be refused again.
set -euo pipefail

BUCKET=${1:?usage: nightly.sh s3://BUCKET}
ATTEMPTS=${ATTEMPTS:-3}
PAUSE=${PAUSE:-600} # seconds between them

cd "$(dirname "$0")/../.."
export PATH=$PWD/.venv/bin:$PATH
exec 9> "$HOME/.dupq-nightly.lock"
flock -n 9 || { echo "nightly.sh: another one is at work" >&2 && exit 7; }
SAID=$HOME/.dupq-nightly.log # of the last attempt
trap 'ray down -y cluster.yaml' EXIT # whatever happens, no machine is left

night() ( # the first failure ends it
    set -e
    ray up -y cluster.yaml
    ray submit cluster.yaml jobs/ingest.py -- --dump "$BUCKET/dumps" --output "$BUCKET/archive"
    ray submit cluster.yaml jobs/dedup.py -- --questions "$BUCKET/archive/questions" --links "$BUCKET/archive/links" \
        --encoder "$BUCKET/encoder" --output "$BUCKET/runs" --previous "$BUCKET/runs" --max-change 0.2 \
        --min-rows-share 0.9
    ray exec cluster.yaml "dupq prune --output $BUCKET/runs --keep 7 --keep-monthly 12"
)

is_refused() { # the last error of a job names an argument or a setting
    grep -o 'error: .*' "$SAID" | tail -n 1 | grep -Eq '^error: (--|setting)|--max-reject-share allows|--help shows all'
}

for ((attempt = 1; ; attempt++)); do
    set +e
    rm -f "$SAID" # so that a full disk leaves no earlier attempt's
    night 2>&1 | tee "$SAID"
    failed=${PIPESTATUS[0]} # not that of tee
    set -e
    ((failed && attempt < ATTEMPTS)) || exit "$failed"
    ! is_refused || { echo "nightly.sh: not tried again, as it would be refused again" >&2 && exit "$failed"; }
    echo "nightly.sh: attempt $attempt of $ATTEMPTS failed; the next one in $PAUSE s" >&2
    sleep "$PAUSE"
done
