#!/bin/sh
# test_format.sh SOURCE_DIR: every C file is formatted by clang-format 14 (other versions differ).
# Exit code 77 (skipped) if it is not installed.
cd "$1" || exit 1
tool=$(command -v clang-format-14) || tool=$(command -v clang-format)
case $([ -n "$tool" ] && "$tool" --version) in
*'version 14.'*) ;;
*) echo "no clang-format 14 here" && exit 77 ;;
esac
find ir frontend passes codegen runtime model tools tests bench examples -name '*.[ch]' -print0 |
    xargs -0 "$tool" --dry-run -Werror
