#!/bin/sh
# ranks_asan.sh SINTER SOURCE_DIR MPIRUN ranks|tensor [long], or matrix [MODEL…]: tests/tools/ranks/test_NAME.sh, or
# ranks_matrix.sh, with a program built with AddressSanitizer. MPI unloads its parts at the end, and then nobody can tell whose leaks these are: so they stay.
set -eu
sinter=$(realpath "$1") source=$(realpath "$2") mpirun=$3 name=$4
shift 4
dir=$(mktemp -d "${TMPDIR:-/tmp}/sinter-asan.XXXXXX")
trap 'rm -rf "$dir"' EXIT
printf 'int dlclose(void *handle);\nint dlclose(void *handle) { return !handle; }\n' >"$dir/stay.c"
cc -shared -fPIC -o "$dir/stay.so" "$dir/stay.c"
# the launcher must run without the preloaded library
cat >"$dir/sinter" <<W
#!/bin/sh
export LD_PRELOAD=$dir/stay.so
export ASAN_OPTIONS=verify_asan_link_order=0:fast_unwind_on_malloc=0:detect_leaks=1
export LSAN_OPTIONS=suppressions=$source/tests/tools/ranks/lsan_mpi.txt:print_suppressions=0
exec "$sinter" "\$@"
W
chmod +x "$dir/sinter"
test=$source/tests/tools/ranks/test_$name.sh
[ "$name" != matrix ] || test=$source/tests/long/ranks_matrix.sh
SLOW=10 sh "$test" "$dir/sinter" "$source" "$mpirun" "$@"
