#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the frameworks that people train with, each with feedline's wheel into an environment of its own where
# versions clash, runs the examples in examples/python, and prints a table. Takes about 8 GB and an hour's patience
# on a small machine, so it is no part of scripts/test.sh.
# usage: scripts/test-frameworks.sh [FOLDER [ENVIRONMENT ...]]     FOLDER: default build/frameworks
set -uo pipefail
cd "$(dirname "$0")/.."
folder=${1:-build/frameworks}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
shift || true
[ $# -gt 0 ] || set -- torch jax tf nemo

# PyTorch's CPU build where there is one to be had; elsewhere the default one, which also runs on a CPU.
torch=${TORCH:-torch==2.13.0}
declare -A packages=(
    [torch]="$torch lightning transformers accelerate keras deepspeed"
    [jax]="jax flax optax"
    [tf]="tensorflow-cpu"
    [nemo]="$torch lightning nemo_toolkit[core]"
)
declare -A examples=(
    [torch]="torch ddp lightning transformers accelerate deepspeed keras"
    [jax]="jax"
    [tf]="tensorflow"
    [nemo]="nemo"
)
declare -A shown=( # what stands for an example in the table
    [torch]=torch [ddp]=torch [lightning]=lightning [transformers]=transformers [accelerate]=accelerate
    [deepspeed]=deepspeed [keras]=keras [jax]="jax flax" [tensorflow]="tensorflow-cpu keras" [nemo]=nemo_toolkit
)

declare -A unit=([torch]="test_torch.py test_migrating.py" [jax]=test_jax.py [tf]=test_tensorflow.py)

versions()
{
    local name
    for name in $2; do
        printf '%s %s ' "$name" "$("$1/bin/python" -c "import importlib.metadata as m; print(m.version('$name'))" 2>/dev/null)"
    done
}

[ -x "$folder/build/bin/python" ] || python3 -m venv "$folder/build" || exit 1
"$folder/build/bin/pip" -q --disable-pip-version-check install 'scikit-build-core>=0.10' cmake ninja || exit 1
rm -rf "$folder/wheel"
PATH=$folder/build/bin:$PATH "$folder/build/bin/pip" -q --disable-pip-version-check wheel --no-deps --no-build-isolation \
    -w "$folder/wheel" -C build-dir="$folder/cmake" -C cmake.define.FL_CUDA="${FL_CUDA:-off}" . || exit 1
if [ -z "${FEEDLINE:-}" ]; then
    cmake -S . -B "$folder/tools" -G Ninja -DFL_CUDA=off >/dev/null &&
        cmake --build "$folder/tools" --target feedline_command >/dev/null || exit 1
    export FEEDLINE=$folder/tools/tools/feedline
fi

table=()
failed=0
for env in "$@"; do
    venv=$folder/$env
    [ -x "$venv/bin/python" ] || python3 -m venv "$venv" || exit 1
    pip=("$venv/bin/pip" --disable-pip-version-check -q)
    # shellcheck disable=SC2086
    if ! "${pip[@]}" install numpy pillow pytest ${packages[$env]} >"$folder/$env.log" 2>&1; then
        reason=$(grep -E '^ERROR|error:' "$folder/$env.log" | tail -1)
        for name in ${examples[$env]}; do
            table+=("$(printf '%-14s %-40s %s' "$name" "-" "not installable: $reason")")
        done
        continue
    fi
    "${pip[@]}" install --force-reinstall --no-deps "$folder"/wheel/*.whl || exit 1
    # shellcheck disable=SC2086
    if [ -n "${unit[$env]:-}" ]; then
        (cd python/tests && "$venv/bin/python" -m pytest -q -p no:cacheprovider ${unit[$env]}) >"$folder/$env.log" 2>&1 &&
            result=$(tail -1 "$folder/$env.log") || { result="FAILED: see $folder/$env.log" && failed=1; }
        table+=("$(printf '%-14s %-40s %s' "$env tests" "${unit[$env]}" "$result")")
        echo "${table[-1]}"
    fi
    for name in ${examples[$env]}; do
        begun=$SECONDS
        if (cd python/tests && "$venv/bin/python" -m pytest -q -p no:cacheprovider -rs \
            "test_frameworks.py::test_example[$name]") >"$folder/$name.log" 2>&1; then
            result=passed
            grep -q skipped "$folder/$name.log" && result="skipped: $(grep -m1 SKIPPED "$folder/$name.log")"
        else
            result="FAILED: see $folder/$name.log"
            failed=1
        fi
        table+=("$(printf '%-14s %-40s %s (%d s)' "$name" "$(versions "$venv" "${shown[$name]}")" "$result" \
            $((SECONDS - begun)))")
        echo "${table[-1]}"
    done
done
printf '\n%-14s %-40s %s\n' example versions result
printf '%s\n' "${table[@]}"
exit $failed
