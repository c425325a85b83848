#!/usr/bin/env bash
# Installs a lock and the wheel in dist/ into an environment of Python, which is made if there is none (Dockerfile).
#
#   .ci/install.sh core|spark|airflow ENVIRONMENT
#
# UV=… names uv. What comes as source is built by the packages of bootstrap.txt.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
UV=${UV:-uv} lock=.ci/locks/$1.txt environment=$2

export UV_CACHE_DIR=/var/cache/uv UV_LINK_MODE=copy UV_COMPILE_BYTECODE=1 UV_PYTHON=$environment/bin/python
# The mirror that pip was told to use, if any, serves uv too.
if [ -n "${PIP_INDEX_URL:-}" ]; then export UV_DEFAULT_INDEX=${UV_DEFAULT_INDEX:-$PIP_INDEX_URL}; fi

[ -x "$environment/bin/python" ] || "$UV" venv --quiet --python python3 "$environment"
"$UV" pip install --quiet --require-hashes --build-constraints .ci/bootstrap.txt --require-build-hashes -r "$lock"
"$UV" pip install --quiet --no-deps dist/regroup-*.whl
