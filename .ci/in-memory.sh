#!/usr/bin/env bash
# Runs a command whose temporary files are in memory, where that has room; they are removed when it succeeds.
#
#   .ci/in-memory.sh COMMAND…
#
# Tests write and sync tens of thousands of small files: milliseconds each on a disk. TMPDIR, where it is set, stays as
# it is. REGROUP_DISK is where large files go nevertheless.
set -uo pipefail

memory=/dev/shm
least_mib=8192

free_mib=$(df --output=avail --block-size=1M $memory 2>/dev/null | tail -n 1)
if [ -n "${TMPDIR:-}" ] || [ ! -w $memory ] || [ "${free_mib:-0}" -lt $least_mib ]; then
    exec "$@"
fi
export REGROUP_DISK=/tmp
TMPDIR=$(mktemp -d $memory/regroup.XXXXXX)
# Postgres runs as another user, who finds its own directory there, but no others.
chmod 711 "$TMPDIR"
export TMPDIR
"$@"
status=$?
if [ "$status" -eq 0 ]; then
    rm -rf "$TMPDIR"
else
    echo "Temporary files, in memory: $TMPDIR"
fi
exit "$status"
