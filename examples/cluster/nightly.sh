#!/usr/bin/env bash
# Bring the cluster up, run night.sh on its head, and take the cluster down: nightly.sh s3://BUCKET, where an encoder and
# a first run are already. One at a time: a second call ends at once, with 7. What fails is tried again, and goes on
# where it stopped; but not what was refused for a setting (2), broken rows (3) or a gate (4), and would be again.
set -euo pipefail

BUCKET=${1:?usage: nightly.sh s3://BUCKET}
ATTEMPTS=${ATTEMPTS:-3}
PAUSE=${PAUSE:-600} # seconds between them

cd "$(dirname "$0")/../.."
export PATH=$PWD/.venv/bin:$PATH
exec 9> "$HOME/.dupq-nightly.lock"
flock -n 9 || { echo "nightly.sh: another one is at work" >&2 && exit 7; }
trap 'ray down -y cluster.yaml' EXIT # whatever happens, no machine is left

night() ( # the first failure ends it; `ray exec` has no exit code but 0 and 1, so the head writes it to a file
    set -e
    code=$(mktemp)
    ray up -y cluster.yaml
    ray exec cluster.yaml "echo 1 > ~/night-code; BUCKET=$BUCKET ~/dupq/examples/cluster/night.sh; echo \$? > ~/night-code"
    ray rsync-down cluster.yaml '~/night-code' "$code"
    exit "$(< "$code")"
)

for ((attempt = 1; ; attempt++)); do
    set +e
    night
    failed=$?
    set -e
    ((failed && attempt < ATTEMPTS)) || exit "$failed"
    case $failed in
        2 | 3 | 4) echo "nightly.sh: not tried again, as it would be refused again ($failed)" >&2 && exit "$failed" ;;
    esac
    echo "nightly.sh: attempt $attempt of $ATTEMPTS failed ($failed); the next one in $PAUSE s" >&2
    sleep "$PAUSE"
done
