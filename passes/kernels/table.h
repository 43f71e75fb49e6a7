/* table.h: what a kernel can do, one row per kernel family (kernels.def). Passes, plan, reports and
 * the code generator ask the row; nobody compares op codes or fusion levels to find out. No LLVM
 * here: emitters are in codegen (codegen/emit/family.h). */
#ifndef SN_KERNELS_TABLE_H
#define SN_KERNELS_TABLE_H

#include "ir/ir.h"
#include "passes/kernels/levels.h"

struct sn_group; /* passes/holds.h */
struct sn_step;  /* passes/plan/plan.h */

typedef enum sn_kernel_id {
    SN_KERNEL_NONE, /* nodes that no kernel computes: leaves, views */
#define KERNEL(name, ...) SN_KERNEL_##name,
#include "passes/kernels/kernels.def"
    SN_KERNEL_COUNT
} sn_kernel_id;

/* Where a kernel computes other nodes. */
typedef enum sn_kernel_place {
    SN_IN_BODY,     /* of a kernel without a node of its own */
    SN_IN_PROLOGUE, /* on the rows that it reads */
    SN_IN_EPILOGUE, /* on its results, in registers */
    SN_IN_SCORE,    /* of attention, on the score of a query and a key */
    SN_PLACE_COUNT
} sn_kernel_place;

/* Why the kernel of group k (passes/holds.h) cannot compute n; NULL: it can. */
typedef const char *sn_refusal(const struct sn_group *k, const sn_node *n);
enum { SN_ELEMENTWISE = SN_OP_COUNT /* the rule of all elementwise ops */, SN_N_RULES };

/* What a kernel may compute besides the node it is made for. */
typedef enum sn_holds {
    SN_HOLDS_ELEMENTWISE,     /* elementwise operations on its domain */
    SN_HOLDS_RANDOM,          /* random numbers */
    SN_HOLDS_ROWS,            /* reductions along whole rows, look-ups */
    SN_HOLDS_PANEL_REDUCTION, /* reductions along rows, over one panel of columns */
    SN_HOLDS_COLUMN_SWAP,     /* swaps of columns that are in registers at once */
    SN_HOLDS_HALVES,          /* elementwise operations that join two halves of the columns */
    SN_HOLDS_ROW_PROLOGUE,    /* work on the rows that it reads */
    SN_HOLDS_OPERAND,         /* the elementwise operation that makes the operand it reduces */
    SN_HOLDS_COUNT
} sn_holds;

/* Operands of flash and flash_grad by number; captured tensors follow. */
enum {
    SN_FLASH_Q,
    SN_FLASH_K,
    SN_FLASH_V,
    SN_FLASH_CAPTURED,
    SN_FLASH_RESULT = SN_FLASH_CAPTURED, /* from here on of flash_grad: what flash has computed */
    SN_FLASH_LSE,
    SN_FLASH_COTANGENT,
    SN_FLASH_GRAD_CAPTURED
};

/* Those of flash_mixed_grad after v; matrices follow. */
enum { SN_MIXED_LSE = SN_FLASH_CAPTURED, SN_MIXED_COTANGENT, SN_MIXED_GRAD_MATRICES };

#define SN_ALL_OPERANDS UINT32_MAX
#define SN_NO_REGION SN_ATTR_COUNT

typedef struct sn_kernel_traits {
    const char *name;
    const char *title; /* what it computes, for reports; NULL: its operations tell */
    sn_level level;    /* the level from which on it is made */
    /* From which level on it holds such nodes of other operations of the user; NONE: never. Nodes
     * of one composite share a kernel at every level. */
    sn_level holds[SN_HOLDS_COUNT];
    /* [SN_N_RULES] by place: what it computes there; an op without a rule is one that its emitter
     * does not know */
    sn_refusal *const *computes[SN_PLACE_COUNT];
    int max_nodes; /* in it: compile time grows faster than their number */
    /* A contraction: operands 0 and 1 are factors, planned as matrices [.., M, K] and [.., K, N];
     * it computes in the type of the left one. */
    bool contraction;
    uint32_t
        computes_in; /* of a contraction: bits of the types of its result before the epilogue */
    struct {
        int reductions; /* of a row, at most: their results stay in registers */
        int rows;       /* more rows are faster with a kernel of their own for the prologue */
        int row_bytes;  /* longest row that is copied in one piece, or carried by a unit */
    } prologue;
    struct {
        int reductions;    /* over panels, at most */
        int results;       /* at most, if there are reductions */
        int before_halves; /* operations on the whole product before its halves meet, at most */
    } epilogue;
    /* The attribute with the region that makes the results from the operands, element by element;
     * SN_NO_REGION: none. */
    sn_attr_key region;
    uint32_t factors;        /* bits of operands that it rounds if it has {compute} */
    uint32_t widens;         /* bits of operands that it reads in a narrower float type */
    int result_types;        /* result i, up to this number, has the type of operand i: that is not
                         widened if the result is needed wide */
    bool rounds;             /* its region may round results to a narrower type */
    uint32_t unit_rows;      /* bits of operands whose last axis must have stride 1 */
    bool contiguous;         /* operands and results must have no gaps */
    bool writes_into_concat; /* results may be rows of a larger tensor */
    struct {
        int operand, result; /* if this operand is a state, it is read before this result, which may
                              * overwrite it; result 0: none */
    } in_place;
    bool
        follows_sequence; /* results along the axis are stored in the order of operand 1 in memory */
    bool carries_in_place; /* a carry that is a state may be overwritten by its value at the end */
    int optional_result; /* from this number on results are stored up to the last one read; 0: all are */
    bool infinite_results; /* it may write infinity where nothing is wrong */
    int (*partly_written)(
        const sn_node *n); /* the result that is written only in part; NULL: none */
    sn_dim (*macs)(sn_module *m, const struct sn_step *s);  /* multiply-adds; NULL: none */
    sn_dim (*flops)(sn_module *m, const struct sn_step *s); /* operations, roughly */
} sn_kernel_traits;

extern const sn_kernel_traits sn_kernels[SN_KERNEL_COUNT];

/* The row for the node's op; that of SN_KERNEL_NONE if no kernel computes it. */
const sn_kernel_traits *sn_kernel_of(const sn_node *n);
/* The same, and of several families for the op the one that makes this node's kernel. */
sn_kernel_id sn_kernel_variant(const sn_node *n);

/* Is the kernel able to hold such nodes, and does it at this level? */
bool sn_kernel_can_hold(const sn_kernel_traits *k, sn_holds what);
bool sn_kernel_holds(const sn_kernel_traits *k, sn_holds what, int level);
/* What n, which is computed besides a kernel's first node, is to the kernel. */
sn_holds sn_kernel_part(const sn_node *n);
/* The type of an epilogue's arithmetic: that of the product `dot`; f32 if it is of integers. */
sn_dtype sn_epilogue_type(const sn_node *dot);
/* Can an epilogue of a product of type `product` compute n in the product's precision? */
bool sn_epilogue_precision(sn_dtype product, const sn_node *n);

/* The kernel of n computes its region on operands from this one on. Before them a contraction has
 * its factors, scales of int4, indices of blocks, and operands of the prologue, which start at
 * sn_kernel_prologue_operand. */
int sn_kernel_region_operand(const sn_node *n);
int sn_kernel_prologue_operand(const sn_node *n);
/* The region's argument that is this operand; -1: none. A contraction's argument 0 is its result. */
int sn_kernel_region_arg(const sn_node *n, int operand);

/* How a row of an argsort is sorted: so few indices by insertion, of so few candidates by counting those before each,
 * more by passes over digits. */
enum {
    SN_SORT_INSERTED = 16,
    SN_SORT_RANKED = 192,
    SN_SORT_DIGIT = 8,
    SN_SORT_BUCKETS = 1 << SN_SORT_DIGIT
};

/* Columns of the table: passes/holds.c */
extern sn_refusal *const sn_in_rows[SN_N_RULES];       /* of map_reduce */
extern sn_refusal *const sn_in_columns[SN_N_RULES];    /* of column */
extern sn_refusal *const sn_in_prologue[SN_N_RULES];   /* of gemm */
extern sn_refusal *const sn_in_epilogue[SN_N_RULES];   /* of gemm */
extern sn_refusal *const sn_in_recurrence[SN_N_RULES]; /* before and after it */
extern sn_refusal *const sn_in_scan[SN_N_RULES];
extern sn_refusal *const sn_in_running[SN_N_RULES]; /* of cumulate */
extern sn_refusal *const sn_in_groups[SN_N_RULES];  /* of pack */
extern sn_refusal *const sn_in_score[SN_N_RULES];

/* Columns of the table: passes/plan/work.c */
sn_dim sn_macs_gemm(sn_module *m, const struct sn_step *s);
sn_dim sn_macs_flash(sn_module *m, const struct sn_step *s);
sn_dim sn_macs_flash_mixed(sn_module *m, const struct sn_step *s);
sn_dim sn_macs_flash_mixed_grad(sn_module *m, const struct sn_step *s);
sn_dim sn_macs_flash_grad(sn_module *m, const struct sn_step *s);
sn_dim sn_macs_recurrence(sn_module *m, const struct sn_step *s);
sn_dim sn_flops_recurrence(sn_module *m, const struct sn_step *s);
int sn_states_of_recurrence(const sn_node *n); /* -1: none */
sn_dim sn_flops_fused_scan(sn_module *m, const struct sn_step *s);
sn_dim sn_macs_grouped(sn_module *m, const struct sn_step *s);
sn_dim sn_flops_grouped(sn_module *m, const struct sn_step *s);
sn_dim sn_flops_elementwise(sn_module *m, const struct sn_step *s);
sn_dim sn_flops_argsort(sn_module *m, const struct sn_step *s);
sn_dim sn_macs_solve(sn_module *m, const struct sn_step *s);
sn_dim sn_flops_solve(sn_module *m, const struct sn_step *s);
sn_dim sn_flops_rows(sn_module *m, const struct sn_step *s);
sn_dim sn_flops_gemm(sn_module *m, const struct sn_step *s);
sn_dim sn_flops_flash(sn_module *m, const struct sn_step *s);
sn_dim sn_flops_flash_grad(sn_module *m, const struct sn_step *s);

/* A gather along the last axis that swaps columns at distance h in blocks of 2h: returns h. 0:
 * something else. */
int64_t sn_swap_distance(const sn_node *n);

#endif
