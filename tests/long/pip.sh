#!/bin/sh
# pip.sh SOURCE BUILD: the Python package from a checkout into a virtual environment, without a network: what is missing before
# a build, how it completes the package, and that it runs outside of the checkout.
set -e
source=$1 build=$(cd "$2" && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir "$tmp/checkout"
cp -r "$source/python" "$tmp/checkout"
/usr/bin/python3 -m venv --system-site-packages "$tmp/venv"
install() { "$tmp/venv/bin/pip" install --no-build-isolation --no-index "$1" >"$tmp/log" 2>&1; }

if install "$tmp/checkout/python"; then echo "installed without a build"; exit 1; fi
grep -q 'which the build makes: run `cmake --preset' "$tmp/log"
if SINTER_BUILD=$tmp/none install "$tmp/checkout/python"; then echo "installed from no build"; exit 1; fi
grep -q "$tmp/none has no python/sinter/ops.py" "$tmp/log"

SINTER_BUILD=$build install "$tmp/checkout/python" || { cat "$tmp/log"; exit 1; }
[ -z "$(find "$tmp/checkout/python" -name build -o -name '*.egg-info')" ]
cd "$tmp"
"$tmp/venv/bin/python" -c "
import numpy as np, sinter
assert sinter.__file__.startswith('$tmp/venv/')
f = sinter.compile(lambda x: sinter.softmax(x, -1), {'x': 'f32[T,64]'})
assert abs(f(np.ones((5, 64), np.float32)) - 1 / 64).max() < 1e-7
print(sinter.Model('$source/examples/models/stories260K/stories260K.bin').generate('Once upon a time', tokens=9))"
