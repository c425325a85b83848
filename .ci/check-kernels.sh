#!/usr/bin/env bash
# Builds the kernels with bounds checks and sanitizers, and runs on them: their tests, the corpus, the fuzzer.
# A bounds error is an exception, a finding of a sanitizer ends the process; either fails this script.
#
#   .ci/check-kernels.sh [OPTION…]      options of python -m tests.fuzz
#
# Needs gcc with its sanitizers (Debian: gcc).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

PYTHON=.venv/bin/python
# The fuzzer compares dumps; the tests of whole dumps take half an hour with these checks.
TESTS=(tests/kernels tests/fold tests/fuzz
    tests/lifecycle/test_compact_changes.py tests/lifecycle/test_compact_corpus.py)

CC=${CC:-gcc}
preload=
for library in libasan.so libstdc++.so; do
    # The runtime of the sanitizer comes first; with it what throws exceptions, for it to take their place.
    found=$($CC -print-file-name=$library)
    [ "$found" != $library ] || { echo "check-kernels: $CC has no $library" >&2; exit 1; }
    preload="$preload $found"
done

export REGROUP_CHECKED_KERNELS=1
CC=$CC $PYTHON setup.py --quiet build_ext

checked() {  # python with the checked kernels
    PYTHONPATH=$PWD LD_PRELOAD=$preload UBSAN_OPTIONS=print_stacktrace=1 \
        ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:quarantine_size_mb=16:malloc_context_size=8 \
        "$PYTHON" "$@"
}
checked -m pytest -q -p no:cacheprovider --hypothesis-profile all "${TESTS[@]}"
checked -m tests.fuzz "$@"
