#!/usr/bin/env bash
# Packs a wheel of Regroup and the locked packages that it needs into an environment for the executors of a Spark cluster.
#
#   .ci/environment.sh WHEEL ARCHIVE.tar.gz
#
# Spark unpacks it anywhere; its bin/python is a link to the interpreter that .venv/ is made of.
set -euo pipefail
absolute() { printf '%s/%s\n' "$(cd "$(dirname "$1")" && pwd)" "$(basename "$1")"; }
wheel=$(absolute "$1") archive=$(absolute "$2")
cd "$(dirname "${BASH_SOURCE[0]}")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
environment=$work/environment
# The mirror that pip was told to use, if any, serves uv too.
if [ -n "${PIP_INDEX_URL:-}" ]; then export UV_DEFAULT_INDEX=${UV_DEFAULT_INDEX:-$PIP_INDEX_URL}; fi

.venv/bin/uv venv --quiet --relocatable --python .venv/bin/python "$environment"
# As constraints, so that what the wheel does not need stays out; a file that differs from its hash is refused all the same.
# Bytecode now: executors unpack the archive anew for each app.
.venv/bin/uv pip install --quiet --python "$environment/bin/python" --compile-bytecode --link-mode copy --only-binary :all: \
    --constraints .ci/locks/core.txt "$wheel"
tar -C "$environment" -czf "$archive" .
