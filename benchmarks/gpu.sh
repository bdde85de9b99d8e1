#!/usr/bin/env bash
# Asks a machine with an NVIDIA GPU everything at once; the answer is gpu.md in the folder of the results.
#
#   benchmarks/gpu.sh run RESULTS [arguments of gpu.py]      where pip reaches its index, or wheels are in .gpu/wheels
#
# For a machine that reaches nothing, and takes little at a time:
#
#   benchmarks/gpu.sh pack PYTHON_VERSION    here, such as 3.12: wheels, cut into .gpu/part-00, part-01, … of 60 MB
#   benchmarks/gpu.sh join                   there, when all parts are in .gpu: makes .gpu/wheels of them
#
# `run` can be repeated: what was installed and measured before is not done again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
wheels=.gpu/wheels

pack() {
    rm -rf .gpu && mkdir -p "$wheels"
    # CUDA's own libraries weigh gigabytes: the machine has them, alone or with its PyTorch.
    python3 -m pip download --quiet --only-binary=:all: --python-version "$1" --implementation cp \
        --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 --platform manylinux_2_17_x86_64 \
        --platform manylinux2014_x86_64 --dest "$wheels" \
        onnxruntime-gpu nvidia-ml-py jinja2 platformdirs rich 'tokenizers<1' typer huggingface_hub ml_dtypes onnx \
        safetensors threadpoolctl
    python3 -m pip wheel --quiet --no-deps --wheel-dir "$wheels" .
    tar -C "$wheels" -cf - . | split --bytes=60000000 --numeric-suffixes - .gpu/part-
    rm -r "$wheels"
    ls -l .gpu
}

join() {
    mkdir -p "$wheels"
    cat .gpu/part-* | tar -C "$wheels" -xf -
}

run() {
    local results=$1
    shift
    if [ ! -x .gpu/venv/bin/python ]; then
        python3 -m venv --system-site-packages .gpu/venv
        if [ -d "$wheels" ]; then
            .gpu/venv/bin/pip install --quiet --no-index --find-links "$wheels" onnxruntime-gpu nvidia-ml-py 'pilotfish[export]'
        else
            .gpu/venv/bin/pip install --quiet '.[cuda,export]'
        fi
    fi
    nvidia-smi || true
    .gpu/venv/bin/python benchmarks/gpu.py "$results" "$@"
    cat "$results/gpu.md"
}

case "${1:-}" in
    pack | join | run) "$@" ;;
    *) sed -n '2,/^set /{/^#/p}' "${BASH_SOURCE[0]}"; exit 2 ;;
esac
