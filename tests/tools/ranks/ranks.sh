# ranks.sh: what the tests of several ranks begin with. Their arguments: SINTER SOURCE_DIR MPIRUN [long]. It enters an
# empty folder, which is removed at the end.
# shellcheck shell=sh disable=SC2034 # who reads it uses these
set -u
sinter=$1 source=$2 mpirun=$3 long=${4:-}
dir=$(mktemp -d "${TMPDIR:-/tmp}/sinter-ranks.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
options=''
case $mpirun in *mpich*) ;; *) options='--oversubscribe --allow-run-as-root' ;; esac
: "${SLOW:=1}" # how many times as long a program may take as a plain release build
export OMP_WAIT_POLICY=passive

fail() {
    echo "FAILED: $*" >&2
    exit 1
}
