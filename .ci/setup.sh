#!/usr/bin/env bash
# Installs what Regroup needs, step by step. Safe to repeat; quick when nothing changed.
#
#   .ci/setup.sh [STEP…]      every step but the last five, in this order, when none is named
#
#   java       Java 17 or newer (Spark, and the brokers of the tests)
#   python     Python 3.11 to 3.13 with venv, and the virtual environment .venv/
#   libraries  LZ4 and zstd as C libraries
#   compiler   a C compiler, and Python's headers
#   packages   the locked packages, each checked against its hash
#   project    Regroup itself, editable, with its kernels compiled
#   maven      Maven (fetches the brokers of the tests; `make test` asks for it)
#   browser    Chromium (the tests open reports in it; `make test` asks for it)
#   debian     mmdebstrap (a test carries out the steps of the images in a clean Debian; `make test-full` asks for it)
#   prometheus promtool, Prometheus and its Pushgateway in .cache/prometheus/ (the tests of alerts; `make test` asks for it)
#   services   PostgreSQL and Redis in .cache/services/ (the tests of Airflow's workers; `make test-full` asks for it)
#
# A step uses the system's package manager when something is missing and this user may; else it ends with one line that
# says what to install. Regroup runs without `libraries` and `compiler`, slower: they say so and go on.
# PYTHON=… names the interpreter for a new .venv/, CC=… the C compiler.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

VENV=.venv
export PIP_DISABLE_PIP_VERSION_CHECK=1

say() { printf 'setup: %s\n' "$*" >&2; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# as_root COMMAND…: false when this user may not become root without being asked.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then sudo -n "$@"
    else return 1; fi
}

APT_UPDATED=
# system_install NAME "APT…" "DNF…" "BREW…": installs the first candidate that the package manager has.
system_install() {
    local what=$1 candidates package
    if command -v apt-get >/dev/null; then
        if [ -z "$APT_UPDATED" ]; then
            as_root apt-get update -q >&2 || return 1
            APT_UPDATED=yes
        fi
        candidates=$2
        for package in $candidates; do
            if [ -n "$(apt-cache madison "$package" 2>/dev/null)" ]; then
                say "installing $what: apt-get install $package"
                as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$package" >&2
                return
            fi
        done
    elif command -v dnf >/dev/null; then
        candidates=$3
        for package in $candidates; do
            say "installing $what: dnf install $package"
            if as_root dnf install -q -y "$package" >&2; then return 0; fi
        done
    elif command -v brew >/dev/null; then
        candidates=$4
        for package in $candidates; do
            say "installing $what: brew install $package"
            if brew install -q "$package" >&2; then return 0; fi
        done
    fi
    return 1
}

java_release() {  # prints the major release of the java that would run, or nothing
    local java=java
    [ -z "${JAVA_HOME:-}" ] || java=$JAVA_HOME/bin/java
    "$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1
}

step_java() {
    local release
    release=$(java_release || true)
    if [ "${release:-0}" -lt 17 ]; then
        system_install Java "openjdk-17-jre-headless openjdk-21-jre-headless default-jre-headless" \
            "java-17-openjdk-headless java-21-openjdk-headless" "openjdk@17 openjdk@21" || true
        release=$(java_release || true)
    fi
    [ "${release:-0}" -ge 17 ] || fail "Java 17 or newer is missing and cannot be installed by this user:" \
        "install a JRE (Debian: openjdk-17-jre-headless), or point JAVA_HOME at one"
}

step_maven() {
    command -v mvn >/dev/null || system_install Maven maven maven maven || true
    command -v mvn >/dev/null || fail "Maven is missing and cannot be installed by this user: install it (Debian: maven)"
}

usable_python() {  # whether $1 runs, has a release the locked packages have wheels for, and can make environments
    "$1" -c 'import sys, ensurepip, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null
}

find_python() {
    local candidate
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
        if usable_python "$candidate"; then
            printf '%s\n' "$candidate"
            return 0
        fi
    done
    return 1
}

step_python() {
    local python
    if [ -x $VENV/bin/python ] && usable_python $VENV/bin/python; then return; fi
    if ! python=$(find_python); then
        system_install Python "python3-venv" "python3.12 python3.11" "python@3.12 python@3.11" || true
        python=$(find_python) || fail "Python 3.11 to 3.13 with its venv module is missing and cannot be installed" \
            "by this user: install it (Debian: python3 and python3-venv), or name it with PYTHON=…"
    fi
    say "creating $VENV with $("$python" --version)"
    rm -rf $VENV
    "$python" -m venv $VENV
}

interpreter() { if [ -x $VENV/bin/python ]; then echo $VENV/bin/python; else find_python; fi; }

has_library() {  # whether processes find the shared library $1
    "$(interpreter)" -c 'import ctypes, sys; ctypes.CDLL(sys.argv[1])' "$1" 2>/dev/null
}

# The names are those that coordinator_core/log/compression/libraries.py opens.
step_libraries() {
    if [[ $OSTYPE = darwin* ]]; then set -- lz4:liblz4.1.dylib zstd:libzstd.1.dylib
    else set -- lz4:liblz4.so.1 zstd:libzstd.so.1; fi
    local each name
    for each in "$@"; do
        name=${each%%:*}
        has_library "${each#*:}" || system_install "$name" "lib${name}-1 lib${name}1" "${name}-libs lib$name" "$name" || true
        has_library "${each#*:}" || say "${each#*:} is missing and cannot be installed by this user: $name batches are" \
            "decompressed by Python packages, slower"
    done
}

can_compile() {  # whether the C compiler finds the headers of the interpreter
    local headers
    headers=$("$(interpreter)" -c 'import sysconfig; print(sysconfig.get_path("include"))') || return 1
    printf '#include <Python.h>\n' | ${CC:-cc} -I"$headers" -x c -fsyntax-only - 2>/dev/null
}

step_compiler() {
    local release
    can_compile || system_install "a C compiler" gcc gcc gcc || true
    can_compile || system_install "headers of the C library" libc6-dev glibc-devel "" || true
    release=$("$(interpreter)" -c 'import sys; print("%d.%d" % sys.version_info[:2])') || true
    can_compile || system_install "headers of Python" "python$release-dev python3-dev" \
        "python$release-devel python3-devel" "" || true
    can_compile || say "a C compiler or Python.h is missing and cannot be installed by this user: kernels run" \
        "uncompiled, slow and correct (Debian: gcc, libc6-dev and python3-dev, then again)"
}

# done_before STEP FILE…: whether STEP was completed with these very files; complete STEP FILE… notes that it was.
digest() { $VENV/bin/python -c 'import hashlib, sys; print(sys.version, *(hashlib.sha256(open(f, "rb").read()).hexdigest() for f in sys.argv[1:]))' "$@"; }
done_before() { [ -f "$VENV/.$1" ] && [ "$(cat "$VENV/.$1")" = "$(digest "${@:2}")" ]; }
complete() { digest "${@:2}" >"$VENV/.$1"; }

step_packages() {
    local inputs=(requirements.lock .ci/locks/*.txt .ci/bootstrap.txt .ci/setup.sh)
    if done_before packages "${inputs[@]}"; then return; fi
    say "installing the locked packages"
    rm -f $VENV/.packages $VENV/.project
    $VENV/bin/python -m pip install --quiet --require-hashes -r .ci/bootstrap.txt
    # The mirror that pip was told to use, if any, serves uv too.
    if [ -n "${PIP_INDEX_URL:-}" ]; then export UV_DEFAULT_INDEX=${UV_DEFAULT_INDEX:-$PIP_INDEX_URL}; fi
    # pyspark comes as source; building it with the pinned setuptools keeps the whole installation under hashes.
    # Bytecode now, once: under PYTHONDONTWRITEBYTECODE, which many images set, every process would compile anew
    # what it imports (pandas 2 s, the parts of Airflow more).
    VIRTUAL_ENV=$PWD/$VENV $VENV/bin/uv pip sync --quiet --require-hashes --no-build-isolation --compile-bytecode \
        .ci/bootstrap.txt requirements.lock
    complete packages "${inputs[@]}"
}

step_project() {
    local kernels=coordinator_core/kernels
    local inputs=(pyproject.toml setup.py .ci/setup.sh coordinator_core/__init__.py coordinator_core/log/layout.py
        $kernels/*.py $kernels/*.pyx $kernels/native.h)
    $VENV/bin/python -m compileall -q coordinator_core spark_apps expectations dags
    if done_before project "${inputs[@]}" && [ -x $VENV/bin/regroup ]; then
        if compgen -G "$kernels/compiled.*.so" >/dev/null || ! can_compile; then return; fi
    fi
    say "installing regroup"
    # Kernels of another source must not be left where these cannot be compiled.
    rm -f $VENV/.project $kernels/compiled.*.so
    # As a path: the import hook that setuptools makes otherwise costs each process 15 ms.
    $VENV/bin/uv pip install --quiet --python $VENV/bin/python --no-deps --no-build-isolation \
        --config-settings editable_mode=compat --editable .
    complete project "${inputs[@]}"
}

step_browser() {
    local name
    for name in chromium chromium-browser google-chrome; do
        if command -v "$name" >/dev/null; then return; fi
    done
    system_install Chromium chromium chromium chromium || true
    command -v chromium >/dev/null || fail "Chromium is missing and cannot be installed by this user: install it" \
        "(Debian: chromium)"
}

# unpacked PLACE PACKAGE…: Debian's packages below PLACE, with what they need and this machine lacks. Not installed: they
# would start servers.
unpacked() {
    local place=$1 package
    command -v apt-get >/dev/null || return 1
    as_root apt-get update -q >&2 || true
    say "fetching ${*:2}"
    mkdir -p "$place/archives/partial"
    # Not as root, if need be: nothing but that directory is written.
    apt-get install -q -y --download-only --no-install-recommends -o Debug::NoLocking=1 \
        -o Dir::Cache::archives="$PWD/$place/archives" "${@:2}" >&2 || return 1
    for package in "$place"/archives/*.deb; do dpkg-deb -x "$package" "$place"; done
    rm -r "$place/archives"
}

step_debian() {
    command -v mmdebstrap >/dev/null || system_install mmdebstrap mmdebstrap "" "" || true
    command -v mmdebstrap >/dev/null || fail "mmdebstrap is missing and cannot be installed by this user: install it" \
        "(Debian: mmdebstrap)"
}

step_prometheus() {
    local programs=(promtool prometheus prometheus-pushgateway) PATH=$PATH:$PWD/.cache/prometheus/usr/bin
    if type "${programs[@]}" &>/dev/null; then return; fi
    unpacked .cache/prometheus prometheus prometheus-pushgateway || true
    type "${programs[@]}" &>/dev/null || fail "Prometheus is missing and cannot be fetched by this user: put" \
        "promtool, prometheus and prometheus-pushgateway on the PATH (Debian: prometheus, prometheus-pushgateway)"
}

step_services() {
    local place=.cache/services missing=()
    compgen -G "/usr/lib/postgresql/*/bin/initdb" >/dev/null || type initdb postgres &>/dev/null ||
        compgen -G "$place/usr/lib/postgresql/*/bin/initdb" >/dev/null || missing+=(postgresql)
    type redis-server &>/dev/null || [ -x $place/usr/bin/redis-server ] || missing+=(redis-server)
    [ ${#missing[@]} -eq 0 ] || unpacked $place "${missing[@]}" ||
        fail "PostgreSQL or Redis is missing and cannot be fetched by this user: install them (Debian: ${missing[*]})"
}

if [ $# -eq 0 ]; then set -- java python libraries compiler packages project; fi
for step in "$@"; do
    case $step in
        java | python | libraries | compiler | packages | project | maven | browser | debian | prometheus | services) "step_$step" ;;
        *) fail "unknown step '$step'; the steps are java, python, libraries, compiler, packages, project," \
            "maven, browser, debian, prometheus, services" ;;
    esac
done
