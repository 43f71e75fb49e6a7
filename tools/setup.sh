#!/bin/sh
# setup.sh [--dev]: installs missing packages for building and testing Sinter with
# apt-get (Debian 12 or newer, Ubuntu with LLVM 19). Prints nothing if nothing is missing.
# --dev: also clang-format 14 for the format check, emulators that run code for other CPUs in tests, and a browser.
# On other systems it lists what is missing.
set -u
dev=no
[ "${1:-}" = --dev ] && dev=yes

# has KIND NAME: whether a tool is on the path (one of several names), pkg-config knows a library, a file exists
has() {
    kind=$1
    shift
    case $kind in
    tool) for t in "$@"; do command -v "$t" >/dev/null 2>&1 && return 0; done ;;
    lib) pkg-config --exists "$1" 2>/dev/null && return 0 ;;
    file) for f in "$@"; do ls $f >/dev/null 2>&1 && return 0; done ;;
    esac
    return 1
}

missing=''
# need PACKAGE KIND NAME…: the Debian package that provides it
need() {
    package=$1
    shift
    has "$@" || missing="$missing $package"
}
need cmake tool cmake
need ninja-build tool ninja
need gcc tool gcc cc
need libc6-dev file /usr/include/stdio.h
need pkg-config tool pkg-config
need llvm-19-dev file '/usr/lib/llvm-19/lib/cmake/llvm/LLVMConfig.cmake' '/usr/lib/cmake/llvm-19/LLVMConfig.cmake'
need llvm-19-tools tool FileCheck-19 FileCheck
need libxxhash-dev lib libxxhash
need libpcre2-dev lib libpcre2-8
need libutf8proc-dev lib libutf8proc
need libcjson-dev lib libcjson
need libcmocka-dev lib cmocka
need zlib1g-dev lib zlib
need libpng-dev lib libpng
need libjpeg-dev lib libjpeg
need libdnnl-dev file '/usr/include/dnnl.h' '/usr/include/*/dnnl.h' '/usr/local/include/dnnl.h'
if [ $dev = yes ]; then
    need clang-format-14 tool clang-format-14
    need mold tool mold ld.lld # links a hundred test programs in a tenth of the time
    need g++ tool g++ c++ # for sinter.hpp and headers of artefacts
    # for tests of deployment to other CPUs
    need python3-numpy file '/usr/lib/python3/dist-packages/numpy/__init__.py' # for the Python module
    need python3-onnx file '/usr/lib/python3/dist-packages/onnx/__init__.py' # for tests/onnx/node_tests.py
    need librsvg2-bin tool rsvg-convert # for pictures as PNG
    need chromium tool chromium chromium-browser google-chrome # for pages of `sinter report` and of modules
    need lld-19 tool wasm-ld-19 wasm-ld # for WebAssembly modules
    need nodejs tool node
    need z3 tool z3 # proves the rules of the passes
    need qemu-user tool qemu-aarch64
    need openmpi-bin tool mpirun.openmpi # for training on several ranks
    need libopenmpi-dev lib ompi-c
    need gcc-aarch64-linux-gnu tool aarch64-linux-gnu-gcc
    need libc6-dev-arm64-cross file /usr/aarch64-linux-gnu/include/stdio.h
    need gcc-riscv64-linux-gnu tool riscv64-linux-gnu-gcc
    need libc6-dev-riscv64-cross file /usr/riscv64-linux-gnu/include/stdio.h
fi
[ -z "$missing" ] && exit 0

by_hand() {
    echo "setup: $1" >&2
    echo "setup: please install these, under the names that your system has for them:" >&2
    echo "setup:  $missing" >&2
    echo "setup: (LLVM 19 with its C API as a shared library; oneDNN 2.x or 3.x is optional)" >&2
    exit 1
}
command -v apt-get >/dev/null 2>&1 || by_hand "there is no apt-get here"
as_root=''
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null 2>&1 || by_hand "installing needs root, and there is no sudo"
    as_root=sudo
fi
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
echo "setup: installing$missing" >&2
export DEBIAN_FRONTEND=noninteractive
try() { $as_root env DEBIAN_FRONTEND=noninteractive apt-get "$@" >>"$log" 2>&1; }
try update || echo "setup: apt-get update failed; trying with the lists that are there" >&2
# shellcheck disable=SC2086
if ! try install -y --no-install-recommends $missing; then
    tail -15 "$log" >&2
    by_hand "apt-get install failed (above)"
fi
