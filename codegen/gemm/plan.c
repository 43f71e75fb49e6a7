/* plan.c: the plan of a GEMM kernel, from spec and target: block sizes, what is packed, what is
 * prefetched, the layout of scratch memory. */
#include "codegen/gemm/impl.h"
#include "runtime/memory.h"

enum {
    PAGE_BYTES = 4096,       /* of a page, and of a way of most L1 caches */
    MAX_MR = 14,             /* rows of a microtile */
    AMX_MR = 32,             /* ... of two rows of tiles */
    MAX_MC = 1024,           /* rows of an MC block */
    MAX_UNBLOCKED_K = 24576, /* bytes of a row of A: longer rows are packed in KC blocks ... */
    KC_BYTES = 4096,         /* ... of this size */
    PACKED_KC_BYTES = 1024,  /* ... or this, if all of A is joined anew for each NC block */
    MIN_MC = 64,          /* packed B: if fewer rows fit, K is blocked; twice that with AVX-512 */
    SHORT_K_ROWS = 12,    /* short K: rows of an MC block, or a few more */
    PARTIAL_C_PANELS = 8, /* else if K is blocked: panels of an NC block */
    MAX_NC_PANELS = 64,
    MC_OUTER = 1024,         /* rows that a packed NC block serves ... */
    PACKED_A_BYTES = 1 << 22 /* ... while all their packed A is at most this */
};

/* Shares of a thread's L2, in eighths: an MC block, which stays there while panels stream past; partial
 * C of an MC block and the panels of an NC block (KC of this panel and of the next take two more); an
 * NC block that the kernel packs. */
enum { MC_EIGHTHS = 3, PARTIAL_C_EIGHTHS = 2, NC_EIGHTHS = 2 };

/* Variants for the tuner: sixteenths of L2 for an MC block; MR (0: what the registers hold). The first
 * is usually the fastest. */
static const struct gemm_tile {
    int sixteenths, mr;
    const char *name;
} gemm_tiles[] = {{2 * MC_EIGHTHS, 0, "MC block of 3/8 of L2"},
                  {MC_EIGHTHS, 0, "MC block of 3/16 of L2"},
                  {4 * MC_EIGHTHS, 0, "MC block of 3/4 of L2"},
                  {2 * MC_EIGHTHS, 12, "MC block of 3/8 of L2, at most 12 rows and 2 vectors"},
                  {2 * MC_EIGHTHS, 8, "MC block of 3/8 of L2, at most 8 rows and 2 vectors"}};

int sn_gemm_tiles(const sn_gemm *g) {
    return gemm_is(g->m, 1) ? 1 : (int)(sizeof gemm_tiles / sizeof *gemm_tiles);
}

const char *sn_gemm_tile_name(int i) {
    return gemm_tiles[i].name;
}

int64_t sn_gemm_packed_size(sn_dtype compute, int64_t k, int64_t n) {
    int64_t panel = sn_panel_columns(compute);
    return (n + panel - 1) / panel * panel * k;
}

const gemm_dot *gemm_dot_of(const sn_gemm *g, const sn_target *t) {
    return g->int8 ? gemm_int8_dot(t) : g->bf16 ? gemm_bf16_dot(t) : &gemm_floats;
}

static bool check_int8(const sn_gemm *g, sn_dtype compute) {
    bool a = g->prologue ? sn_dtype_is_float(g->a.dtype) : g->a.dtype == SN_I8;
    return !g->int8 || (a && compute == SN_F32 && g->b_packed && g->b.dtype == SN_I32 &&
                        !g->groups.size && g->k.slot < 0);
}

static bool check_bf16(const sn_gemm *g, sn_dtype compute) {
    bool b =
        g->groups.size || (g->b_packed ? g->b.dtype == SN_BF16 : sn_dtype_is_float(g->b.dtype));
    return !g->bf16 || (b && sn_dtype_is_float(g->a.dtype) && compute == SN_F32 && !g->int8);
}

static bool check_groups(const sn_gemm *g, sn_dtype compute) {
    const sn_gemm_groups *q = &g->groups;
    if (!q->size) return true;
    bool outer_divides =
        !q->outer_group || (q->outer_group % (2 * q->size) == 0 &&
                            g->k.value % q->outer_group == 0 && KC_BYTES / 4 % q->outer_group == 0);
    return g->b_packed && compute == SN_F32 && g->k.slot < 0 && q->size % 16 == 0 &&
           outer_divides && g->k.value % q->size == 0 && KC_BYTES / 4 % q->size == 0 &&
           (q->bits == 4 || q->bits == 8) && sn_dtype_is_float(q->factor) == !q->outer_group &&
           (!q->unscaled || (g->bf16 && q->bits == 8 && !q->has_min && !q->outer_group));
}

static bool plain_symmetric(const sn_gemm *g) {
    return !g->b_packed && !g->prologue && !g->row_prologue && !g->half_width &&
           !g->swap_distance && !g->n_blocks && !g->ragged_k && !g->n_sums && !g->int8 &&
           !g->groups.size;
}

static bool check_spec(const sn_gemm *g, sn_dtype compute, sn_error *err) {
    if (compute != SN_F32 && compute != SN_F64)
        return sn_fail(err, SN_ERR_INTERNAL, "gemm: compute type must be f32 or f64, not %s",
                       sn_dtype_name(compute));
    if (g->n_batch < 0 || g->n_batch > SN_GEMM_BATCH)
        return sn_fail(err, SN_ERR_INTERNAL, "gemm: %d batch axes; the maximum is %d", g->n_batch,
                       SN_GEMM_BATCH);
    bool narrow = g->b_packed && (g->b.dtype == SN_I8 || g->groups.size);
    if (!check_bf16(g, compute))
        return sn_fail(err, SN_ERR_INTERNAL, "gemm: products of bf16 need operands of floats");
    if (!check_groups(g, compute))
        return sn_fail(err, SN_ERR_INTERNAL,
                       "gemm: grouped integers need packed B, compute type f32, and whole groups");
    if (!check_int8(g, compute))
        return sn_fail(err, SN_ERR_INTERNAL,
                       "gemm: products of integers need operands of i8, packed B and constant K");
    bool a_known = sn_dtype_is_float(g->a.dtype) || (g->a.dtype == SN_I8 && g->groups.size);
    if (!g->int8 && (!a_known || (!narrow && !sn_dtype_is_float(g->b.dtype))))
        return sn_fail(err, SN_ERR_INTERNAL, "gemm: operands cannot be %s and %s",
                       sn_dtype_name(g->a.dtype), sn_dtype_name(g->b.dtype));
    if (g->half_width && (!g->b_packed || !g->epilogue))
        return sn_fail(err, SN_ERR_INTERNAL, "gemm: pairs need packed B and an epilogue");
    bool plain = !g->b_packed && !g->epilogue && !g->prologue && !g->row_prologue;
    if (g->n_blocks && ((g->b_packed ? g->n.slot >= 0 : !plain) || g->n_batch || g->n_sums ||
                        g->no_store || g->per_row < 1))
        return sn_fail(err, SN_ERR_INTERNAL,
                       "gemm: blocks need one result and, unless B is packed, no epilogue");
    if (g->ragged_k && (!plain || g->n_batch != 1 || g->batch[0].slot >= 0 || g->n_blocks ||
                        g->per_row < 1 || !gemm_is(g->a.row, 1)))
        return sn_fail(err, SN_ERR_INTERNAL, "gemm: ragged K needs plain operands, A by columns");
    if (g->symmetric && !plain_symmetric(g))
        return sn_fail(err, SN_ERR_INTERNAL,
                       "gemm: symmetric products need plain operands and a plain epilogue");
    if (!gemm_check_pair(g->n, g->half_width, compute, err)) return false;
    if (g->no_store && !g->epilogue)
        return sn_fail(err, SN_ERR_INTERNAL, "gemm: no output and no epilogue store");
    if (g->n_sums > SN_GEMM_SUMS || (g->n_sums && g->half_width))
        return sn_fail(err, SN_ERR_INTERNAL,
                       "gemm: %d reductions of rows; the maximum is %d, and none with pairs",
                       g->n_sums, SN_GEMM_SUMS);
    if (g->n_state > SN_GEMM_STATE)
        return sn_fail(err, SN_ERR_INTERNAL, "gemm: %d row values; the maximum is %d", g->n_state,
                       SN_GEMM_STATE);
    return true;
}

/* Whether A is always packed. It is read in place if the microkernel can address its rows with
 * constants, unless the rows are a multiple of 16 KB apart: these conflict in caches and TLB. */
static bool choose_pack_a(const gemm_plan *p) {
    const sn_gemm *g = p->g;
    if (g->prologue || g->row_prologue || g->a.dtype != p->t || p->joined_k > 1 ||
        !gemm_is(g->a.col, 1) || g->n_blocks || g->ragged_k)
        return true;
    if (gemm_is(g->m, 1)) return false;
    return g->a.row.slot >= 0 || g->a.row.value * p->esize % 16384 == 0 ||
           g->a.row.value > INT32_MAX / 128 || g->a.row.value < 0;
}

/* Whether A is packed in calls with many panels. Rows a multiple of 4 KB apart share a set of L1,
 * which has fewer ways than MR, unless MR is 3 (count_pack_a_panels). */
static bool choose_pack_a_per_call(const gemm_plan *p, int64_t longest) {
    const sn_gemm *g = p->g;
    bool plain = !g->prologue && !g->row_prologue && g->a.dtype == p->t && p->joined_k == 1 &&
                 gemm_is(g->a.col, 1);
    int64_t row = g->a.row.value;
    return plain && !p->pack_b && !g->n_blocks && !gemm_is(g->m, 1) && g->k.slot < 0 &&
           g->k.value <= longest && g->a.row.slot < 0 && row > 0 && row <= INT32_MAX / 128 &&
           row * p->esize % PAGE_BYTES == 0 && p->mr > 4;
}

/* From how many panels on. Packing a row takes as long as multiplying it with half a panel. Of 14 rows
 * 12 ways (48 KB) keep most: reading A in place costs 4 to 5 %. Of 8 ways (32 KB) each row misses in
 * each step, which costs 20 to 35 %, more than packing costs a single panel. */
static int count_pack_a_panels(const gemm_plan *p) {
    int64_t ways = p->l1_bytes / PAGE_BYTES;
    return 2 * p->mr > 3 * ways ? 1 : GEMM_PACK_A_PANELS;
}

/* Packed B and long K: blocks K within an MC block (keeps_partial_c). Without it few rows would fit
 * in L2, and each panel, which comes from the last-level cache or memory, would serve only these: with MIN_MC rows
 * two multiply-adds a cycle take one byte of B a cycle with vectors of 32 bytes and two with vectors of 64, which
 * therefore have twice the rows. All cores share what that cache gives.
 * Shorter K gains nothing, because A is then read once per NC block. */
static void choose_partial_c(gemm_plan *p) {
    const sn_gemm *g = p->g;
    if (p->pack_b || p->a_transposed || g->k.slot >= 0) return;
    int64_t rows = p->lanes * p->esize < 64 ? MIN_MC : 2 * MIN_MC;
    int64_t row = g->k.value * p->esize, kc = p->mc_bytes / rows, blocks = (row + kc - 1) / kc;
    bool few = g->m.slot < 0 && g->m.value * row <= p->mc_bytes;
    p->keeps_partial_c = row > kc && !few;
    p->k_blocked = p->keeps_partial_c;
    p->kc = p->keeps_partial_c
                ? SN_ROUND_UP((g->k.value + blocks - 1) / blocks, GEMM_LINE / p->esize)
                : g->k.value;
}

/* keeps_partial_c: panels of an NC block. */
static int64_t count_nc_panels(const gemm_plan *p) {
    int64_t panels = p->l2_bytes / 8 * PARTIAL_C_EIGHTHS / (p->mc * p->panel * p->esize);
    const em_size *n = &p->g->n;
    if (n->slot < 0 && panels * p->epi_cols > n->value) panels = n->value / p->epi_cols + 1;
    return panels < 1 ? 1 : panels;
}

/* Whether rows of A lie side by side. */
static bool transposes(const sn_gemm *g) {
    return g->ragged_k || (gemm_is(g->a.row, 1) && !gemm_is(g->a.col, 1));
}

/* Microtiles of few registers are 3 rows by 4 vectors instead of 6 by 2: 7 loads instead of 8 for 12
 * multiply-adds, and whole cache lines of a panel, where half of each would occupy only every second
 * set of L1. They need multiply-adds that take no register of their own, rows of A that are not
 * transposed for more of them, and columns in (nearly) all of their vectors. By lane they are 6 rows by
 * 4 vectors, transposed or not: 14 or 16 loads for 96 multiply-adds, where 14 by 2 would take 60 for 112. */
static bool takes_four_vectors(const gemm_plan *p, const sn_target *t,
                               const struct gemm_tile *tile) {
    const sn_gemm *g = p->g;
    if (!(p->small_tile || p->by_lane) || 4 * p->lanes > p->panel || !t->has_fma || tile->mr ||
        g->groups.size || ((p->dot->k_of_word > 1 || transposes(g)) && !p->by_lane))
        return false;
    int64_t padding = SN_ROUND_UP(g->n.value, 4 * p->lanes) - SN_ROUND_UP(g->n.value, 2 * p->lanes);
    return g->n.slot >= 0 || padding * 16 <= g->n.value;
}

/* Vectors of a microtile's row: one if that holds all columns, so that nothing is multiplied with the
 * panel's padding only. */
static int choose_vectors(const gemm_plan *p, const sn_target *t, const struct gemm_tile *tile) {
    const sn_gemm *g = p->g;
    if (takes_four_vectors(p, t, tile)) return 4;
    bool narrow =
        g->n.slot < 0 && g->n.value <= p->lanes && !g->half_width && !g->groups.size && !g->int8;
    return narrow ? 1 : 2;
}

/* Rows of a microtile: as many as there are registers for accumulators. */
static int choose_rows(const gemm_plan *p, const sn_target *t, const struct gemm_tile *tile) {
    if (p->amx) return AMX_MR;
    if (p->by_lane && p->nv == 2) return 8; /* SVE takes lanes from 8 registers only */
    if (p->nv == 4)
        return p->small_tile ? 3 : p->g->bf16 ? 5 : 6; /* lanes of bf16: of 16 registers only */
    int others = p->dot->terms > 1 ? 8 : 4;            /* registers: B, A, intermediate values */
    /* LLVM loads three neighbours of a transposed A at once, and spills an accumulator for it: each step then
     * waits for the memory of the one before (0.77 of the speed). */
    if (p->g->bf16 && p->dot->terms == 1 && transposes(p->g)) others += 2;
    int rows = (t->vector_regs - others) / p->nv / 2 * 2, most = tile->mr ? tile->mr : MAX_MR;
    return rows < most ? rows : most;
}

/* x elements of A in words; false: that is not known to be a whole number. */
static bool to_words(em_size *x, int64_t k_of_word) {
    if (x->slot >= 0 || x->value % k_of_word) return false;
    x->value /= k_of_word;
    return true;
}

/* Whether rows of A are words already; it becomes that. */
static bool a_is_words(const gemm_plan *p, sn_gemm *g) {
    sn_gemm_operand *a = &g->a;
    const int n = p->dot->k_of_word;
    if (!g->bf16 || a->dtype != SN_BF16 || g->ragged_k || g->prologue || g->row_prologue ||
        !gemm_is(a->col, 1) || !to_words(&a->offset, n) ||
        !(gemm_is(g->m, 1) || to_words(&a->row, n)))
        return false;
    for (int i = 0; i < g->n_batch; i++)
        if (!to_words(&a->batch[i], n)) return false;
    a->dtype = p->t;
    return g->k.slot < 0 && g->k.value % n == 0;
}

/* The spec with K in words. */
static const sn_gemm *in_words(gemm_plan *p) {
    const int n = p->dot->k_of_word;
    sn_gemm words = *p->g;
    const bool is_words = a_is_words(p, &words);
    p->joined_k = is_words ? 1 : n;
    p->word_spec = is_words ? words : *p->g;
    p->word_spec.k.value = (p->k.value + n - 1) / n;
    return &p->word_spec;
}

/* Sizes of microtile and panel; how B is read and C is written. */
static void choose_tile(gemm_plan *p, const sn_gemm *g, const sn_target *t, sn_dtype compute) {
    const struct gemm_tile *tile = &gemm_tiles[g->tile];
    *p = (gemm_plan){.g = g, .k = g->k, .t = compute, .dot = gemm_dot_of(g, t), .joined_k = 1};
    if (g->int8) {
        p->sum_rows = 1;
        p->t = SN_I32;
    }
    p->amx = t->amx && g->bf16 && !g->ragged_k && !g->symmetric;
    if (p->dot->k_of_word > 1) g = p->g = in_words(p);
    p->esize = (int)sn_dtype_size(p->t);
    p->b_type = g->b_packed && !g->groups.size && !g->bf16 ? g->b.dtype : compute;
    p->lanes = sn_target_lanes(t, compute);
    p->panel = sn_panel_columns(compute);
    p->epi_cols = g->half_width ? p->panel / 2 : p->panel;
    p->small_tile = t->vector_regs < 32;
    p->by_lane = t->arch == SN_ARCH_AARCH64 && p->esize == 4 && p->dot->terms == 1;
    p->nv = choose_vectors(p, t, tile); /* 4 if by_lane and the columns fit */
    p->by_lane &= p->nv == 4 || (t->sve_bytes == 64 && p->nv == 2 && !tile->mr && !g->groups.size);
    p->nr = p->nv * p->lanes;
    p->panel_tiles = p->panel / p->nr;
    p->mr = choose_rows(p, t, tile);
    p->l1_bytes = t->caches.l1;
    p->l2_bytes = t->caches.l2;
    p->mc_bytes = p->l2_bytes / 16 * tile->sixteenths;
    p->pack_b = !g->b_packed || g->groups.size;
    p->b_in_place =
        !g->b_packed && !g->ragged_k && !g->bf16 && gemm_is(g->b.col, 1) && g->b.dtype == compute;
    p->direct_c =
        !g->epilogue && g->c.dtype == p->t && gemm_is(g->c.col, 1) && !g->n_blocks && !g->symmetric;
}

/* KC, and how A is read. */
static void choose_a(gemm_plan *p) {
    const sn_gemm *g = p->g;
    int64_t longest = MAX_UNBLOCKED_K / p->esize;
    p->pack_a_per_call = choose_pack_a_per_call(p, longest);
    p->pack_a_panels = count_pack_a_panels(p);
    p->pack_a = p->pack_a_per_call || choose_pack_a(p);
    bool long_k = g->k.slot >= 0 || g->k.value > longest || g->ragged_k;
    p->k_blocked = (p->pack_a || p->pack_b) && long_k;
    p->a_by_columns = p->pack_a && !g->int8 && gemm_is(g->a.row, 1) && !gemm_is(g->a.col, 1) &&
                      !g->prologue && !g->row_prologue && !g->n_blocks;
    p->a_transposed = (p->a_by_columns && !p->amx) || g->ragged_k;
    bool few_reads = p->joined_k > 1 && p->pack_b && !p->a_transposed && !g->groups.size;
    int64_t kc = (few_reads ? PACKED_KC_BYTES : KC_BYTES) / p->esize;
    p->kc = p->k_blocked ? kc : g->k.slot < 0 ? g->k.value : 0;
    choose_partial_c(p);
    p->a_col_stride = p->a_transposed ? SN_ROUND_UP(p->mr, p->lanes) : p->dot->a_words;
    if (p->a_transposed) {
        p->a_row_stride = 1;
    } else if (p->pack_a) {
        int64_t line = GEMM_LINE / p->esize; /* an odd number of lines: different sets of L1 */
        int64_t k = p->keeps_partial_c ? g->k.value : p->kc;
        p->a_row_stride = SN_ROUND_UP(k * p->a_col_stride, line) + line;
        if (p->a_row_stride / line % 2 == 0) p->a_row_stride += line;
    } else {
        p->a_row_stride = gemm_is(g->m, 1) ? 0 : g->a.row.value;
    }
}

/* Rows of the microkernels, at most `max_rows`, and MC. */
static void choose_sizes(gemm_plan *p, int max_rows) {
    const em_size *m = &p->g->m;
    if (max_rows == p->mr) p->tile_rows[p->n_tile_rows++] = p->mr;
    for (p->half_mr = 1; 2 * p->half_mr < p->mr;) p->half_mr *= 2;
    p->odd_tiles = p->g->n_blocks > 0 && !p->amx;
    for (int r = p->mr - 1; r >= 1; r--)
        if (gemm_has_tile(p, r) && (r <= max_rows || r == 1)) p->tile_rows[p->n_tile_rows++] = r;
    int64_t k = p->kc > 0 ? p->kc : KC_BYTES / p->esize;
    if (p->g->int8) k *= p->a_col_stride;
    int64_t rows = p->mc_bytes / p->esize / k;
    if (rows > MAX_MC) rows = MAX_MC;
    rows = rows / p->mr * p->mr;
    p->mc = rows < p->mr ? p->mr : rows;
    if (m->slot < 0 && m->value < p->mc) p->mc = SN_ROUND_UP(m->value > 0 ? m->value : 1, p->mr);
}

/* Short K: the time goes into writing C, and a panel of B serves a microtile for a few steps only. If
 * all panels stay in L2 and the rows of a microtile in L1, an MC block is the rows of one or few
 * microtiles, so that C is written row after row: column by column, each line would be on another page
 * than the one before, and rows whose distance is a multiple of 4 KB would share a set of L1. */
static void choose_short_k(gemm_plan *p) {
    const sn_gemm *g = p->g;
    if (!g->b_packed || p->pack_b || p->k_blocked || p->pack_a_per_call || g->int8 || g->n_blocks ||
        p->amx)
        return;
    if (!p->direct_c || p->tile_rows[0] < p->mr || g->n.slot >= 0 || g->k.slot >= 0) return;
    if (gemm_one_panel(p)) return;
    int64_t a_bytes = p->mr * g->k.value * p->esize;
    int64_t b_bytes =
        sn_gemm_packed_size(p->t, g->k.value, g->n.value) * (int64_t)sn_dtype_size(p->b_type);
    p->short_k = a_bytes <= p->l1_bytes / 2 && b_bytes <= p->l2_bytes / 8 * NC_EIGHTHS;
    int64_t rows = SN_ROUND_UP(SHORT_K_ROWS, p->mr);
    if (p->short_k && rows < p->mc) p->mc = rows;
}

/* Microkernels for calls with few rows. */
static void choose_row_kernels(gemm_plan *p) {
    const sn_gemm *g = p->g;
    bool joins = p->joined_k > 1;
    bool plain = !g->prologue && g->a.dtype == p->t && gemm_is(g->a.col, 1) && !joins;
    bool packed = (g->prologue || g->a.dtype == SN_I8 || joins) && !p->a_transposed &&
                  (!p->k_blocked || p->ints.on);
    p->has_group_row = g->groups.size && (plain || (packed && !g->n_blocks));
    if (p->ints.on && g->groups.bits == 4) p->has_group_row = false;
    if (g->rows_alike && (!g->bf16 || p->amx)) p->has_group_row = false; /* bf16: the same sums */
    p->has_ukr_1x2 = g->b_packed && !p->pack_b && !p->amx && sn_dtype_size(p->b_type) <= 4 &&
                     (!p->k_blocked || p->keeps_partial_c);
}

/* What an MC block does for the next one. */
static void choose_next_a(gemm_plan *p, int max_rows) {
    const sn_gemm *g = p->g;
    bool contiguous = !(p->joined_k > 1 && p->small_tile) && !p->amx && !g->n_blocks &&
                      !p->pack_b && gemm_is(g->a.col, 1) && g->a.row.slot < 0 && g->k.slot < 0 &&
                      g->a.row.value == (p->joined_k > 1 ? p->k.value : g->k.value) &&
                      !gemm_is(g->m, 1);
    p->prefetch_next_a = contiguous && !p->k_blocked && !p->by_lane;
    p->next_a_bytes = p->mr * (int)sn_dtype_size(g->a.dtype) * p->joined_k;
    p->pack_in_microkernel = p->pack_a_per_call && contiguous && max_rows == p->mr &&
                             g->k.value % (GEMM_LINE / p->esize) == 0;
    p->pack_next_a = p->pack_a && !p->a_transposed && !p->pack_b && !p->short_k &&
                     (!p->k_blocked || p->keeps_partial_c);
}

/* NC, and the rows that a packed NC block serves. */
static void choose_nc(gemm_plan *p) {
    p->nc_panels = p->k_blocked ? PARTIAL_C_PANELS : 1;
    if (p->keeps_partial_c) p->nc_panels = count_nc_panels(p);
    p->mc_outer = p->mc;
    int64_t panel_bytes = p->kc * p->panel * p->esize;
    if (!p->pack_b || panel_bytes <= 0) return;
    int64_t max = p->l2_bytes / 8 * NC_EIGHTHS / panel_bytes, wanted = MC_OUTER;
    p->nc_panels = max < 1 ? 1 : max > MAX_NC_PANELS ? MAX_NC_PANELS : max;
    if (p->pack_a && wanted > PACKED_A_BYTES / p->esize / p->kc)
        wanted = PACKED_A_BYTES / p->esize / p->kc;
    if (p->mc < wanted) p->mc_outer = wanted / p->mc * p->mc;
}

/* Scratch: partial C, packed A, packed B, prefetch lists of B and C. */
static void place_scratch(gemm_plan *p) {
    int64_t tiles = p->mc_outer / p->mr + 4; /* the remainder: 8, 4 .. rows */
    int64_t a_rows =
        p->a_transposed ? tiles * p->kc * p->a_col_stride : p->mc_outer * p->a_row_stride;
    int64_t partial_c = (p->k_blocked ? p->mc_outer * p->nc_panels : p->mr) * p->panel;
    int64_t panels = p->nc_panels * p->kc * p->panel;
    p->a_offset = SN_ROUND_UP(partial_c * p->esize, GEMM_LINE);
    p->b_offset = p->a_offset + (p->pack_a ? SN_ROUND_UP(a_rows * p->esize, GEMM_LINE) : 0);
    p->b_list_offset = p->b_offset + (p->pack_b ? SN_ROUND_UP(panels * p->esize, GEMM_LINE) : 0);
    p->c_list_offset = p->b_list_offset + p->b_prefetch * 8;
    p->sums_offset = p->c_list_offset + p->c_prefetch * 8;
    p->scratch_bytes = p->sums_offset;
    const sn_gemm_groups *g = &p->g->groups;
    if (g->has_min) p->scratch_bytes += SN_ROUND_UP(p->g->k.value / g->size * p->esize, 8);
    p->mirror_offset = p->scratch_bytes;
    if (p->g->symmetric) p->scratch_bytes += SN_ROUND_UP(p->mr, p->lanes) * p->panel * p->esize;
    p->sort_offset = p->scratch_bytes;
    p->scratch_bytes +=
        gemm_count_blocks(p->g) * 8; /* and the sorted rows: sn_gemm_scratch_per_row */
}

bool gemm_check_pair(em_size n, int64_t half_width, sn_dtype compute, sn_error *err) {
    bool blocks = n.slot < 0 && half_width > 0 && n.value % (2 * half_width) == 0;
    bool whole = n.value == 2 * half_width || half_width % (sn_panel_columns(compute) / 2) == 0;
    if (half_width && (!blocks || !whole))
        return sn_fail(err, SN_ERR_INTERNAL, "gemm: the columns cannot be paired at distance %lld",
                       (long long)half_width);
    return true;
}

bool gemm_plan_make(gemm_plan *p, const sn_gemm *g, const sn_target *t, sn_dtype compute,
                    sn_error *err) {
    if (!check_spec(g, compute, err)) return false;
    choose_tile(p, g, t, compute);
    choose_a(p);
    int max_rows = g->m.slot < 0 && g->m.value < p->mr ? (int)g->m.value : p->mr;
    choose_sizes(p, max_rows);
    choose_short_k(p);
    gemm_plan_ints(p, t);
    choose_row_kernels(p);
    choose_next_a(p, max_rows);
    choose_nc(p);
    if (!p->amx) gemm_plan_prefetch(p);
    if (!p->ints.on) place_scratch(p);
    return true;
}

int sn_gemm_scratch_per_row(const sn_gemm *g) {
    return gemm_count_blocks(g) ? 8 : 0;
}

int64_t sn_gemm_scratch(const sn_gemm *g, const sn_target *t, sn_dtype compute) {
    gemm_plan p;
    return gemm_plan_make(&p, g, t, compute, NULL) ? p.scratch_bytes : 0;
}

/* ---- flags ---- */

/* Name, condition. */
#define PLAN_FLAGS(F)                                                                              \
    F(packed_b, p->g->b_packed)                                                                    \
    F(narrow_b, p->g->b_packed && p->b_type != p->t)                                               \
    F(int8, p->g->int8)                                                                            \
    F(bf16, p->g->bf16)                                                                            \
    F(amx, p->amx)                                                                                 \
    F(groups, p->g->groups.size > 0)                                                               \
    F(pairs, p->g->half_width > 0)                                                                 \
    F(prologue, p->g->prologue != NULL)                                                            \
    F(pack_b, p->pack_b)                                                                           \
    F(b_in_place, p->b_in_place)                                                                   \
    F(direct_c, p->direct_c)                                                                       \
    F(pack_a, p->pack_a)                                                                           \
    F(pack_a_per_call, p->pack_a_per_call)                                                         \
    F(a_transposed, p->a_transposed)                                                               \
    F(k_blocked, p->k_blocked)                                                                     \
    F(keeps_partial_c, p->keeps_partial_c)                                                         \
    F(nc_blocks, p->nc_panels > 1)                                                                 \
    F(mc_outer, p->mc_outer > p->mc)                                                               \
    F(prefetch_next_a, p->prefetch_next_a)                                                         \
    F(pack_next_a, p->pack_next_a)                                                                 \
    F(pack_in_microkernel, p->pack_in_microkernel)                                                 \
    F(ukr_1x2, p->has_ukr_1x2)                                                                     \
    F(group_row, p->has_group_row)                                                                 \
    F(integer_units, p->ints.on)                                                                   \
    F(b_prefetch, p->b_prefetch > 0)                                                               \
    F(c_prefetch, p->c_prefetch > 0 || p->c_at_once)                                               \
    F(short_k, p->short_k)                                                                         \
    F(blocks, p->g->n_blocks > 0)                                                                  \
    F(ragged_k, p->g->ragged_k)                                                                    \
    F(symmetric, p->g->symmetric)                                                                  \
    F(few_rows, p->tile_rows[0] < p->mr)

#define BIT(name, condition) FLAG_##name,
enum { PLAN_FLAGS(BIT) N_FLAGS };
#undef BIT

uint32_t sn_gemm_plan_flags(const sn_gemm *g, const sn_target *t, sn_dtype compute) {
    gemm_plan plan, *p = &plan;
    uint32_t flags = 0;
    if (!gemm_plan_make(p, g, t, compute, NULL)) return 0;
#define SET(name, condition) flags |= (condition) ? UINT32_C(1) << FLAG_##name : 0;
    PLAN_FLAGS(SET)
#undef SET
    return flags | UINT32_C(1) << N_FLAGS;
}

const char *sn_gemm_plan_text(uint32_t flags, char *text, size_t size) {
#define NAME(name, condition) #name,
    static const char *const names[N_FLAGS] = {PLAN_FLAGS(NAME)};
#undef NAME
    size_t used = 0;
    if (size) text[0] = 0;
    for (int i = 0; i < N_FLAGS; i++) {
        if (!(flags >> i & 1)) continue;
        int n = snprintf(text + used, size - used, "%s%s", used ? "+" : "", names[i]);
        if (n < 0 || (size_t)n >= size - used) break;
        used += (size_t)n;
    }
    return text;
}
