#!/usr/bin/env bash
# Measures how long a newcomer takes: from a Python and the wheel to the first training on two workers.
#
#   bench/newcomer.sh [WHEEL]
#
# Without WHEEL it builds one first, which is not counted. All else is what the README tells a
# newcomer to do: an empty virtual environment, pip (without its cache, so everything is downloaded),
# the README's script, two workers. Prints each command with its seconds, and the sum.
#
# PYTHON      the Python to begin with; python3 otherwise
# DIRECTORY   where to do it, empty and kept; otherwise a temporary directory, which is removed
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}
wheel=${1:-}

# As on a machine that knows nothing of tfrun.
unset PYTHONPATH VIRTUAL_ENV TF_CONFIG
for name in $(compgen -e TFRUN_); do unset "$name"; done
export PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_QUIET=1

if [ -z "${DIRECTORY:-}" ]; then
  DIRECTORY=$(mktemp -d)
  trap 'rm -rf "$DIRECTORY"' EXIT
fi
if [ -z "$wheel" ]; then
  "$python" -m venv "$DIRECTORY/builds"
  "$DIRECTORY/builds/bin/pip" install build
  "$DIRECTORY/builds/bin/python" -m build --wheel --outdir "$DIRECTORY/dist" "$root" >"$DIRECTORY/build.log"
  wheel=$(ls "$DIRECTORY"/dist/*.whl)
fi
wheel=$(realpath "$wheel")
cd "$DIRECTORY"

commands=0
tenths() { echo $(($(date +%s%N) / 100000000)); }
# Runs a command as a person would type it, and tells how long it has taken.
step() {
  local began
  began=$(tenths)
  echo "\$ $*"
  "$@"
  commands=$((commands + 1))
  took=$(($(tenths) - began))
  echo "  $((took / 10)).$((took % 10)) s"
}

start=$(tenths)
step "$python" -m venv venv
step source venv/bin/activate
step pip install "${wheel}[cpu]"
# The file that the README shows: a person copies it into an editor.
# shellcheck disable=SC2016
sed -n '/^```python file=train.py$/,/^```$/{/^```/d;p}' "$root/README.md" >train.py
step tfrun -n 2 train.py
all=$(($(tenths) - start))
echo "$commands commands, $((all / 600)).$((all % 600 / 60)) minutes to the end of the first training on two workers ($("$python" --version), $(nproc) cores)"
