/* target.h: what the code is made for: one CPU kind with its vector width and features.
 * Made from the host or from a name and a feature list; everything that depends on the ISA asks
 * here. Includes no LLVM header, so that the command line may use it. */
#ifndef SN_TARGET_H
#define SN_TARGET_H

#include "codegen/emit/caches.h"

#ifdef __cplusplus
extern "C" {
#endif

struct LLVMOpaqueTargetMachine;

typedef enum sn_arch { SN_ARCH_X86_64, SN_ARCH_AARCH64, SN_ARCH_RISCV64, SN_ARCH_WASM32 } sn_arch;

/* What artefacts for a system look like, and what `sinter compile` cannot make for it. */
typedef enum sn_system { SN_LINUX, SN_WINDOWS, SN_MACOS, SN_BROWSER } sn_system;
enum {
    SN_USE_ARCHIVE = 1,
    SN_USE_SHARED = 2,
    SN_USE_PROGRAM = 4,
    SN_USE_STATIC = 8,
    SN_USE_EMBED = 16,
    SN_USE_PAGE = 32,
    SN_USE_TARGETS = 64, /* several targets */
    SN_USE_WORKERS = 128,
};
typedef struct sn_system_facts {
    const char *name; /* of os=NAME */
    const char *triple[SN_ARCH_WASM32 + 1];
    const char *object, *archive, *program; /* endings of files */
    unsigned refuses;                       /* SN_USE_… */
    const char *instead;                    /* what to do */
} sn_system_facts;

typedef struct sn_target {
    char name[128]; /* as it was asked for: "native", "x86-64-v3,+avxvnni" */
    char triple[64];
    char cpu[64];
    char tune[64];       /* the CPU whose timing LLVM assumes; "": cpu */
    char features[4096]; /* LLVM feature string, complete for "native" */
    sn_arch arch;
    sn_system system;
    bool bitcode;  /* objects are LLVM's bitcode (codegen/jit/object.h); always, but for Linux */
    int sve_bytes; /* AArch64: length of SVE's registers, if kernels use them; 0: NEON */
    int vector_bytes; /* width of the vectors to emit: 64 with AVX-512, 32 with AVX, sve_bytes, else 16 */
    int vector_regs; /* 32 with AVX-512 and AArch64, else 16 */
    bool has_fma;    /* fused multiply-add in one instruction */
    bool has_avx2;
    bool has_avx512;  /* F, BW, DQ and VL: predicated loads and stores, vscalefps */
    bool has_f16c;    /* f16 <-> f32 conversion in one instruction */
    bool has_fp16;    /* f16 arithmetic */
    bool has_bf16;    /* multiply-adds of bf16 (vdpbf16ps, bfmlal), and conversions */
    bool slow_bf16;   /* widening and two multiply-adds are faster */
    bool amx;         /* products of bf16 are those of AMX's tiles; sn_target_take_amx sets it */
    bool has_vnni;    /* u8*i8 dot products on the full vector width */
    sn_caches caches; /* of one thread */
    uint64_t feature_set; /* one bit a row of the feature table in target.c */
} sn_target;

/* Fills `t` from `spec`: NULL or "native" for this machine, or a name, optionally followed by
 * features, sizes of caches, a length of SVE's vectors in bits, and a system: "x86-64-v3,+avxvnni,-fma",
 * "native,-avx512f", "aarch64,l2=1M", "neoverse-v1,sve=256", "x86-64-v3,os=windows". Of two systems the last
 * one counts.
 * Caches are this machine's for "native", typical of the name otherwise. Fails with SN_ERR_TARGET on
 * an unknown name or feature and lists the nearest known ones. */
bool sn_target_init(sn_target *t, const char *spec, sn_error *err);

/* The next target of a list, "A,+x,l2=1M,B": "A,+x,l2=1M"; *list becomes the rest, "B". */
bool sn_target_take(sn_target *t, const char **list, sn_error *err);

/* Whether this machine (CPU and operating system) can run code made for `t`. */
bool sn_target_runs_here(const sn_target *t);

/* Whether code for `t` may use a feature, by the name that a feature list has for it. */
bool sn_target_has(const sn_target *t, const char *feature);

/* Has products of bf16 computed by AMX's tiles, which sum in an order of their own, if t has them and the
 * operating system lets this process use them. */
bool sn_target_take_amx(sn_target *t);

/* Whether it has instructions that sum products of u8 and i8. */
bool sn_target_multiplies_bytes(const sn_target *t);

const sn_system_facts *sn_target_system(const sn_target *t);

/* False: `t`'s system refuses one of uses, SN_USE_…; then err names it. */
bool sn_target_allows(const sn_target *t, unsigned uses, sn_error *err);

/* Name of the calling convention for LLVM; NULL: the architecture has only one. */
const char *sn_target_abi(const sn_target *t);

/* Vector lanes of an element type at the target's width: 16 for f32 with AVX-512. */
int sn_target_lanes(const sn_target *t, sn_dtype dtype);

/* Names that sn_target_init knows, for help texts: the i-th, or NULL after the last. */
const char *sn_target_known(size_t i);

/* Fills LLVM's global tables, at the first call in a process. LLVM holds locks meanwhile, so that this
 * must not be abandoned when memory ends: it fails in time if little is left (SN_ERR_MEMORY).
 * Thread-safe. */
bool sn_llvm_start(sn_error *err);

/* An LLVM target machine: PIC, small code model; code generation that optimises, or that takes the
 * least time. The caller disposes of it; one machine serves one thread at a time. NULL and `err` on
 * failure. */
struct LLVMOpaqueTargetMachine *sn_target_machine(const sn_target *t, bool optimise, sn_error *err);

#ifdef __cplusplus
}
#endif
#endif
