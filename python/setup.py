"""Completes the package for pip: the operations that the build generates, and the path of the library beside them.

In an installation's share/sinter/python both are there. In a checkout they are in a build folder: the newest of build/*/,
or the one that SINTER_BUILD names, from the checkout."""
import glob
import os
import shutil
import tempfile

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = os.path.dirname(os.path.abspath(__file__))


def find():
    """The paths of ops.py and of libsinter.so."""
    ops = os.path.join(HERE, "sinter", "ops.py")
    if os.path.exists(ops):
        prefix = os.path.normpath(os.path.join(HERE, "..", "..", ".."))
        found = sorted(glob.glob(os.path.join(prefix, "lib*", "libsinter.so")) +
                       glob.glob(os.path.join(prefix, "lib", "*", "libsinter.so")))
        return ops, found[0] if found else None
    asked = os.environ.get("SINTER_BUILD")
    root = os.path.dirname(HERE)  # pip runs in HERE
    folders = [os.path.join(root, asked)] if asked else glob.glob(os.path.join(root, "build", "*"))
    made = [(os.path.join(f, "python", "sinter", "ops.py"), os.path.join(f, "libsinter.so")) for f in folders]
    made = [pair for pair in made if all(map(os.path.exists, pair))]
    if not made:
        raise SystemExit("sinter: %s has no python/sinter/ops.py and libsinter.so, which the build makes: run `cmake --preset "
                         "release && cmake --build --preset release` in %s first, or install the folder share/sinter/python of "
                         "an installation" % (asked or "no folder build/*", root))
    return max(made, key=lambda pair: os.path.getmtime(pair[1]))


class Complete(build_py):
    def run(self):
        super().run()
        ops, library = find()
        package = os.path.join(self.build_lib, "sinter")
        shutil.copyfile(ops, os.path.join(package, "ops.py"))
        if library:
            with open(os.path.join(package, "library.txt"), "w") as f:
                f.write(os.path.abspath(library))


find()  # says at once what is missing
with tempfile.TemporaryDirectory() as folder:  # nothing is written into the checkout
    setup(cmdclass={"build_py": Complete},
          options={"build": {"build_base": folder}, "egg_info": {"egg_base": folder}})
