#!/bin/sh
# avx512.sh SINTER SOURCE_DIR [CASE…]: runs AVX-512 code, also its products of 8-bit integers (VNNI), on machines
# without it. Artefacts for Ice Lake are linked with a few lines instead of an operating system, and run in the
# emulator Bochs. Numbers must be those of the same artefact for AVX2 on this machine, tokens the same.
# Needs Debian's bochs, bochsbios, bochs-term, vgabios, isolinux, syslinux-common and xorriso; half a minute a case.
set -u
sinter=$(realpath "$1") source=$(realpath "$2")
shift 2
here=$source/tests/long/avx512
for file in /usr/bin/bochs /usr/bin/xorriso /usr/lib/ISOLINUX/isolinux.bin /usr/lib/syslinux/modules/bios/mboot.c32 \
    /usr/share/bochs/BIOS-bochs-latest /usr/share/bochs/VGABIOS-lgpl-latest; do
    [ -e $file ] && continue
    echo "avx512.sh: no $file: install bochs bochsbios bochs-term vgabios isolinux syslinux-common xorriso"
    exit 2
done
dir=$(mktemp -d "${TMPDIR:-/tmp}/sinter-avx512.XXXXXX")
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
failed=0
story=$source/examples/models/stories260K
variants=$source/examples/variants

# image PROGRAM.elf: image.iso, from which it starts
image() {
    rm -rf image
    mkdir -p image/isolinux
    for part in ldlinux mboot libcom32; do cp /usr/lib/syslinux/modules/bios/$part.c32 image/isolinux/; done
    cp /usr/lib/ISOLINUX/isolinux.bin image/isolinux/
    cp "$1" image/program
    printf 'default program\nprompt 0\nlabel program\n kernel mboot.c32\n append /program\n' >image/isolinux/isolinux.cfg
    xorriso -as mkisofs -quiet -o image.iso -b isolinux/isolinux.bin -c isolinux/boot.cat -no-emul-boot -boot-load-size 4 \
        -boot-info-table image 2>/dev/null
}

# emulate: what the program of image.iso says
emulate() {
    cat >bochsrc <<C
cpu: model=corei7_icelake_u, count=1, ips=200000000, reset_on_triple_fault=0
memory: guest=512, host=512
romimage: file=/usr/share/bochs/BIOS-bochs-latest
vgaromimage: file=/usr/share/bochs/VGABIOS-lgpl-latest
display_library: term
ata0-master: type=cdrom, path=$dir/image.iso, status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev=$dir/serial
log: $dir/log
panic: action=fatal
clock: sync=none
C
    echo c >commands # Debian's Bochs waits in its debugger
    rm -f serial
    TERM=xterm timeout 900 script -qc "bochs -q -f bochsrc -rc commands" /dev/null </dev/null >/dev/null 2>&1
    cat serial 2>/dev/null
}

# differ WANT GOT: the largest difference of numbers, as a part of the largest in its line; or what is different
differ() {
    paste -d '\n' "$1" "$2" | awk '
        NR % 2 { n = split($0, a, " "); next }
        { if (split($0, b, " ") != n) { print "another number of words in line " NR / 2; bad = 1; exit }
          top = 1; for (i = 1; i <= n; i++) if (a[i] * a[i] > top * top) top = a[i] < 0 ? -a[i] : a[i]
          for (i = 1; i <= n; i++) { d = (a[i] - b[i]) / top; d = d < 0 ? -d : d; if (d > most) most = d } }
        END { if (!bad) printf "%.1e\n", most }'
}

# compare NAME PROGRAM MODEL OPTIONS…: the program with the artefact for both CPUs; also counts what it came for
compare() {
    name=$1 program=$2 model=$3
    shift 3
    echo "$wanted" | grep -qE "^all$|(^| )$name( |$)" || return
    case $program in past) file=generate flag=-DCALLER_PAST ;; *) file=$program flag= ;; esac
    for cpu in x86-64-v3 icelake-server; do
        rm -rf $cpu
        case $program in
        train) "$sinter" compile --train "$model" --name story -o $cpu --target $cpu --threads none --embed-weights -q "$@" ;;
        *) "$sinter" compile "$model" --name story -o $cpu --target $cpu --threads none --embed-weights -q "$@" ;;
        esac || { echo "FAILED: $name: compile for $cpu"; failed=1; return; }
    done
    common="-O1 -std=gnu11 -Wall -Wextra -Werror $flag"
    cc $common "$here/$file.c" "$here/hosted.c" -I"$here" -Ix86-64-v3 x86-64-v3/story.o -lm -o hosted && ./hosted >want
    bare="$common -ffreestanding -fno-pic -mno-red-zone -fno-stack-protector"
    cc $bare -c "$here/$file.c" -I"$here" -Iicelake-server -o program.o && cc $bare -c "$here/bare.c" -I"$here" -o bare.o &&
        cc $bare -mgeneral-regs-only -c "$here/gather.c" -I"$here" -o gather.o && cc -c "$here/boot.S" -o boot.o &&
        ld -n -static --no-warn-rwx-segments -T "$here/bare.ld" -o linked boot.o bare.o gather.o program.o icelake-server/story.o &&
        objcopy -O elf32-i386 linked program.elf && image program.elf || { echo "FAILED: $name: no image"; failed=1; return; }
    emulate >got
    objdump -d icelake-server/story.o >code
    d=$(differ want got)
    wide=$(grep -c '%zmm' code) vnni=$(grep -c vpdpbusd code)
    echo "$name: difference $d; instructions with zmm $wide, vpdpbusd $vnni"
    grep -q '^exit 0$' got && [ "$wide" -gt 0 ] && awk -v d="$d" 'BEGIN { exit !(d + 0 == d && d <= 1e-4) }' || {
        echo "FAILED: $name: got"
        cut -c1-200 got
        tail -40 log | grep -E 'PANIC|RIP' | head -3
        failed=1
    }
    case " $* " in *" --compute int8 "*) [ "$vnni" -gt 0 ] || { echo "FAILED: $name: no vpdpbusd" && failed=1; } ;; esac
}

wanted=${*:-all}
tokens="--tokenizer $story/tok512.bin"
compare f32 past $story/stories260K.bin $tokens
compare bf16 past $story/stories260K.bin $tokens --weights bf16 --cache bf16
compare int8 past $story/stories260K.bin $tokens --weights int8 --compute int8 --cache int8
compare int4 past $story/stories260K.bin $tokens --weights int4 --compute int8
compare train train $source/examples/train/shakespeare.json
for v in gated_deltanet rwkv7 mamba2 gated_linear_attention mamba; do compare $v generate $variants/$v.c; done
for v in retention talking_heads sigmoid_attention mixture_of_experts; do compare $v past $variants/$v.c; done
[ $failed = 0 ] && echo "all numbers are those of AVX2"
exit $failed
