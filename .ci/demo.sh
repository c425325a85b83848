#!/usr/bin/env bash
# The main job end to end: the DAGs over the bundled snapshot, which real 4.3.1 brokers wrote (demo/README.md), and what happened there.
# Called by `make demo`. Needs no network and opens no port to others; everything it writes is in demo-output/.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

BIN=$PWD/.venv/bin
OUTPUT=$PWD/demo-output
LOG=$OUTPUT/airflow.log
SNAPSHOT=demo/shop
# The time at which the snapshot was taken: the same now, so the same state hash every time.
NOW_MS=$(sed -n 's/^ "finished_at_ms": \([0-9]*\),$/\1/p' "$SNAPSHOT/capture.json")

# The demo must not depend on, nor touch, an Airflow that this user runs otherwise.
for name in $(compgen -e | grep -E '^(AIRFLOW|REGROUP_)' || true); do unset "$name"; done
export AIRFLOW_HOME=$OUTPUT/airflow
export AIRFLOW__CORE__DAGS_FOLDER=$PWD/dags
export AIRFLOW__CORE__LOAD_EXAMPLES=False
export AIRFLOW__LOGGING__COLORED_CONSOLE_LOG=False
export AIRFLOW__USAGE_DATA_COLLECTION__ENABLED=False
export PATH=$BIN:$PATH

say() { printf '%s\n' "$*"; }

# step NAME COMMAND…: runs it with its output in the log; says how long it took, or shows the end of the log.
step() {
    local name=$1 began=$SECONDS
    shift
    printf '%-42s' "$name"
    if ! "$@" >>"$LOG" 2>&1 </dev/null; then
        say "failed"
        tail -n 40 "$LOG" >&2
        say "demo: $name failed; everything it said is in $LOG" >&2
        exit 1
    fi
    say "$((SECONDS - began)) s"
}

mkdir -p "$AIRFLOW_HOME"
: >"$LOG"
step "Preparing Airflow's database" "$BIN/airflow" db migrate
step "Running the DAG offsets_load" "$BIN/airflow" dags test offsets_load \
    --conf "{\"cluster\": \"demo\", \"now_ms\": $NOW_MS}"

# What the task `summary` logged.
summary=$(sed -n 's/^[^ ]* \[info *\] \(.*[^ ]\) *\[dags\.common\.load\] loc=.*/\1/p' "$LOG" | sed -n '/^run  /,$p')
run=$(sed -n 's/^run  *//p' <<<"$summary")
[ -n "$run" ] || { say "demo: the log has no summary, see $LOG" >&2; exit 1; }

step "Running the DAG offsets_reconcile" "$BIN/airflow" dags test offsets_reconcile \
    --conf "{\"cluster\": \"demo\", \"run\": \"$run\"}"

# What the task `rules` logged: the summary in Markdown; and where the task `gate` says that everything is.
said() { sed -n "s/^[^ ]* \[info *\] \(.*[^ ]\) *\[dags\.common\.reconcile\] loc=.*/\1/p" "$LOG"; }
findings=$(said | sed -n '/^\*\*/,/^- report/p')
docs=$(said | sed -n 's/^data docs  *//p')
[ -n "$findings" ] || { say "demo: the log has no findings, see $LOG" >&2; exit 1; }

say
say "The groups:"
"$BIN/python" -m coordinator_core list "$run" --format json | "$BIN/python" -c '
import json, sys
for group in json.load(sys.stdin):
    # Ids can be any text; these stay on one line.
    name = json.dumps(group["group_id"], ensure_ascii=False)[1:-1]
    name = name if len(name) <= 40 else name[:37] + "..."
    print("  {:<42}{:<10}{}".format(name, group["type"], group["state"]))
'
say
say "$summary"
say
say "$findings"
say "- Data Docs: $docs/index.html"
say
say "More: .venv/bin/regroup describe '$run' --all-groups"

# investigate DIR ARGUMENT…: its text; it exits with 1 when it has found something.
investigate() {
    "$BIN/python" -m coordinator_core investigate "$SNAPSHOT" --kafka-version 4.3.1 --now-ms "$NOW_MS" --output "$@" 2>>"$LOG" || [ $? -eq 1 ]
}

say
say "That afternoon customers were charged twice. What happened? (regroup investigate $SNAPSHOT)"
verdict=$(investigate "$OUTPUT/investigation")
investigate "$OUTPUT/investigation-payments" --group payments >>"$LOG"
say
say "${verdict%%$'\n'*}"
say
say "- page of the cluster: $OUTPUT/investigation/investigation.html"
say "- page of payments:    $OUTPUT/investigation-payments/investigation.html"
