# For scripts/coordinator and scripts/hospital: where things are, and how what they begin is ended.
cd "$(dirname "${BASH_SOURCE[0]}")/.."
umask 077
python=${PYTHON:-$PWD/.venv/bin/python}
if [ -n "${FLOWER:-}" ]; then
    flower=$(cd "$given" && realpath -ms "$FLOWER")
elif [ -d .flower ]; then
    flower=$PWD/.flower/bin
else # in the project's environment, as the extra `flower` of the language stack installs it
    flower=$(dirname "$(realpath -ms "$(type -P "$python" || echo "$python")")")
fi
# Flower sends usage data to flower.ai and asks for newer versions of itself, unless it is told not to.
export FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1
export PYTHONPATH=$PWD PATH=$flower:$PATH

fail() {
    echo "tff-re: $1" >&2
    exit "${2:-2}"
}
need_flower() {
    [ -x "$flower/python" ] || fail "there is no Python in $flower; run scripts/setup-flower, or name another folder by FLOWER=/path/to/bin"
    "$flower/python" scripts/flower/tested_versions.py || exit 2
}
# Flower starts processes in sessions of their own: what is begun here is ended with all that descends from it.
begun=()
begin() { # LOG COMMAND…
    local log=$1
    shift
    "$@" >>"$log" 2>&1 </dev/null &
    begun+=($!)
    disown # or this shell would tell of its end
}
finish() {
    trap '' INT TERM HUP
    "$python" - "${begun[@]}" <<'PYTHON' || true
import sys
import psutil

def all_of(number):
    try:
        first = psutil.Process(number)
        return [first, *first.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []

processes = [process for number in sys.argv[1:] for process in all_of(int(number))]
for end in (psutil.Process.terminate, psutil.Process.kill):
    for process in processes:
        try:
            end(process)
        except psutil.NoSuchProcess:
            pass
    _, processes = psutil.wait_procs(processes, timeout=10)
PYTHON
}
until_ended() { # ends what was begun, however this script ends
    trap finish EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
}
wait_for() { # SECONDS WHAT LOG COMMAND…
    local seconds=$1 what=$2 log=$3 number
    shift 3
    for _ in $(seq $((4 * seconds))); do
        if "$@" >/dev/null 2>&1; then return; fi
        for number in "${begun[@]}"; do
            kill -0 "$number" 2>/dev/null || fail "$what ended: $(tail -n 1 "$log"); see $log" 1
        done
        sleep 0.25
    done
    fail "$what is not there after $seconds s; see $log" 1
}
stay() { # WHAT LOG: until one of what was begun ends
    local number
    while sleep 1; do
        for number in "${begun[@]}"; do
            kill -0 "$number" 2>/dev/null || fail "$1 ended: $(tail -n 1 "$2"); see $2" 1
        done
    done
}
