#!/usr/bin/env bash
# Rebuilds recipes/quickstart: exports the digits, draws the pictures, pre-trains the base with lft
# itself and stores it in FP16.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ $# = 0 ] || { echo "error: train.sh takes no arguments; found: $*" >&2; exit 2; }
scripts/setup --peers
python=.deps/venv/bin/python here=scripts/quickstart_model work=runs/quickstart-drawings
$python $here/digits.py recipes/quickstart/digits
$python $here/draw.py $work
$python $here/base.py $work/model
rm -rf runs/quickstart-base
build/lft train recipes/quickstart-base.yaml
$python $here/store.py runs/quickstart-base/model recipes/quickstart/model
