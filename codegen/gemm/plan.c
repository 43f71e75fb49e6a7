/* plan.c: the plan of a GEMM kernel: what follows from spec and target before anything is emitted:
 * sizes of tiles and groups, what is copied or packed, where things lie in scratch. */
#include "codegen/gemm/impl.h"

enum {
    GEMM_GROUP_BYTES = 3 << 18, /* of A's rows that stay in L2 */
    GEMM_MAX_K_BYTES = 24576,   /* longest row of A that is copied in one piece */
    GEMM_CHUNK_BYTES = 4096,    /* else the piece of a row */
    GEMM_WAIT_FROM = 12288,     /* packed panels: K of longer rows is cut ... */
    GEMM_WAIT_BYTES = 8192,     /* ... in chunks of at most this */
    GEMM_SUMS_BYTES = 1 << 20,  /* of the sums that wait meanwhile */
    GEMM_WAITING_PANELS = 8,    /* chunked: panels whose sums wait for the next chunk */
    GEMM_BLOCK_BYTES = 1 << 19, /* of panels that the kernel packs before it uses them */
    GEMM_COPY_BYTES = 1 << 22,  /* of rows of A that are copied for all of these */
    GEMM_MOST_BLOCK = 64,       /* panels of a block */
    GEMM_MOST_ROWS = 1024,      /* of a group */
    GEMM_SUPER_ROWS = 1024      /* chunked: rows for which a block is packed once */
};

bool gemm_is(sn_gemm_size s, int64_t v) {
    return s.slot < 0 && s.value == v;
}

/* Ways of cutting: bytes of A's rows that stay in L2, most rows of a micro-tile (0: what registers
 * hold). The first is usually the fastest. */
static const struct gemm_tile {
    int64_t group_bytes;
    int rows;
    const char *name;
} gemm_tiles[] = {{GEMM_GROUP_BYTES, 0, "768 KB of rows"},
                  {GEMM_GROUP_BYTES / 2, 0, "384 KB of rows"},
                  {GEMM_GROUP_BYTES * 2, 0, "1536 KB of rows"},
                  {GEMM_GROUP_BYTES, 12, "768 KB of rows, 12 at a time"},
                  {GEMM_GROUP_BYTES, 8, "768 KB of rows, 8 at a time"}};

int sn_gemm_tiles(const sn_gemm *g) {
    return gemm_is(g->m, 1) ? 1 : (int)(sizeof gemm_tiles / sizeof *gemm_tiles);
}

const char *sn_gemm_tile_name(int i) {
    return gemm_tiles[i].name;
}

int sn_gemm_panel(sn_dtype compute) {
    return 128 / (int)sn_dtype_size(compute);
}

int64_t sn_gemm_packed_size(sn_dtype compute, int64_t k, int64_t n) {
    int64_t panel = sn_gemm_panel(compute);
    return (n + panel - 1) / panel * panel * k;
}

static bool check_spec(const sn_gemm *g, sn_dtype compute, sn_error *err) {
    if (compute != SN_F32 && compute != SN_F64)
        return sn_fail(err, SN_ERR_INTERNAL, "gemm: compute type must be f32 or f64, not %s",
                       sn_dtype_name(compute));
    if (g->n_batch < 0 || g->n_batch > SN_GEMM_BATCH)
        return sn_fail(err, SN_ERR_INTERNAL, "gemm: %d batch axes, at most %d", g->n_batch,
                       SN_GEMM_BATCH);
    bool narrow = g->b_packed && (g->b.dtype == SN_I8 || g->scale_group);
    if (g->scale_group && (!g->b_packed || compute != SN_F32 || g->k.slot >= 0 ||
                           g->scale_group % INT4_PER_WORD || g->k.value % g->scale_group))
        return sn_fail(err, SN_ERR_INTERNAL,
                       "gemm: 4-bit integers are for packed f32 products of whole groups");
    if (!sn_dtype_is_float(g->a.dtype) || (!narrow && !sn_dtype_is_float(g->b.dtype)))
        return sn_fail(err, SN_ERR_INTERNAL, "gemm: operands cannot be %s and %s",
                       sn_dtype_name(g->a.dtype), sn_dtype_name(g->b.dtype));
    if (g->pair_distance && (!g->b_packed || !g->epilogue))
        return sn_fail(err, SN_ERR_INTERNAL, "gemm: pairs need packed panels and an epilogue");
    if (!gemm_check_pair(g->n, g->pair_distance, compute, err)) return false;
    if (g->no_store && !g->epilogue)
        return sn_fail(err, SN_ERR_INTERNAL, "gemm: nobody stores the result");
    if (g->n_sums > SN_GEMM_SUMS || (g->n_sums && g->pair_distance))
        return sn_fail(err, SN_ERR_INTERNAL,
                       "gemm: %d reductions of rows, at most %d, none of pairs", g->n_sums,
                       SN_GEMM_SUMS);
    if (g->n_state > SN_GEMM_STATE)
        return sn_fail(err, SN_ERR_INTERNAL, "gemm: %d row values, at most %d", g->n_state,
                       SN_GEMM_STATE);
    return true;
}

/* A's rows are broadcast from where they lie if the micro-kernel can address them by constants.
 * Rows a multiple of 16 KB apart share cache sets and pages too closely. */
static bool choose_copy(const gemm_plan *p) {
    const sn_gemm *g = p->g;
    if (g->prologue || g->row_prologue || g->a.dtype != p->t || !gemm_is(g->a.col, 1)) return true;
    if (gemm_is(g->m, 1)) return false;
    return g->a.row.slot >= 0 || g->a.row.value * p->esize % 16384 == 0 ||
           g->a.row.value > INT32_MAX / 128 || g->a.row.value < 0;
}

/* Rows a multiple of 4 KB apart share a set of L1, which has fewer ways than a full tile has rows:
 * that costs 2 to 3 %. Copying a row takes as long as half a panel's products with it, so it pays
 * for many panels only. */
static bool choose_pack_a_per_call(const gemm_plan *p, int64_t longest) {
    const sn_gemm *g = p->g;
    bool plain = !g->prologue && !g->row_prologue && g->a.dtype == p->t && gemm_is(g->a.col, 1);
    int64_t row = g->a.row.value;
    return plain && !p->pack_b && !gemm_is(g->m, 1) && g->k.slot < 0 && g->k.value <= longest &&
           g->a.row.slot < 0 && row > 0 && row <= INT32_MAX / 128 && row * p->esize % 4096 == 0;
}

static int64_t round_up(int64_t x, int64_t to) {
    return (x + to - 1) / to * to;
}

/* Long rows would be few in L2, and each panel, which comes from the last-level cache or memory,
 * would serve only these: with packed panels K is cut, and the sums of a block of panels wait while
 * the same rows go on with the next chunk. Below that length it gains nothing: A passes by once a
 * block. */
static void choose_k_blocking(gemm_plan *p) {
    const sn_gemm *g = p->g;
    if (p->pack_b || p->a_transposed || g->k.slot >= 0) return;
    int64_t row = g->k.value * p->esize, chunks = (row + GEMM_WAIT_BYTES - 1) / GEMM_WAIT_BYTES;
    bool few = g->m.slot < 0 && g->m.value * row <= p->mc_bytes;
    p->keeps_partial_c = row > GEMM_WAIT_FROM && !few;
    p->k_blocked = p->keeps_partial_c;
    p->kc = p->keeps_partial_c ? round_up((g->k.value + chunks - 1) / chunks, 64 / p->esize)
                               : g->k.value;
}

/* Panels of a block. */
static int64_t count_nc_panels(const gemm_plan *p) {
    int64_t panels = GEMM_SUMS_BYTES / (p->mc * p->panel * p->esize);
    const sn_gemm_size *n = &p->g->n;
    if (n->slot < 0 && panels * p->epi_cols > n->value) panels = n->value / p->epi_cols + 1;
    return panels < 1 ? 1 : panels;
}

/* Tiles and vectors, and whether B is packed here. */
static void choose_tile(gemm_plan *p, const sn_gemm *g, const sn_target *t, sn_dtype compute) {
    const struct gemm_tile *tile = &gemm_tiles[g->tile];
    *p = (gemm_plan){.g = g, .t = compute, .esize = (int)sn_dtype_size(compute), .nv = 2};
    p->b_type = g->b_packed && !g->scale_group ? g->b.dtype : compute;
    p->lanes = sn_target_lanes(t, compute);
    p->panel = sn_gemm_panel(compute);
    p->epi_cols = g->pair_distance ? p->panel / 2 : p->panel;
    p->nr = p->nv * p->lanes;
    p->panel_tiles = p->panel / p->nr;
    p->mr = (t->vector_regs - 4) / p->nv / 2 * 2;
    if (tile->rows && tile->rows < p->mr) p->mr = tile->rows;
    p->mc_bytes = tile->group_bytes;
    p->pack_b = !g->b_packed || g->scale_group;
    p->b_in_place = !g->b_packed && gemm_is(g->b.col, 1) && g->b.dtype == compute;
    p->direct_c = !g->epilogue && g->c.dtype == compute && gemm_is(g->c.col, 1);
}

/* How K is cut, and where rows of A are read from. */
static void choose_rows_of_a(gemm_plan *p) {
    const sn_gemm *g = p->g;
    int64_t longest = GEMM_MAX_K_BYTES / p->esize;
    p->pack_a_per_call = choose_pack_a_per_call(p, longest);
    p->pack_a = p->pack_a_per_call || choose_copy(p);
    bool long_k = g->k.slot >= 0 || g->k.value > longest;
    p->k_blocked = (p->pack_a || p->pack_b) && long_k;
    p->kc = p->k_blocked ? GEMM_CHUNK_BYTES / p->esize : g->k.slot < 0 ? g->k.value : 0;
    p->a_transposed = p->pack_a && gemm_is(g->a.row, 1) && !gemm_is(g->a.col, 1) && !g->prologue &&
                      !g->row_prologue;
    choose_k_blocking(p);
    p->a_col_stride = p->a_transposed ? round_up(p->mr, p->lanes) : 1;
    if (p->a_transposed) {
        p->a_row_stride = 1;
    } else if (p->pack_a) {
        int64_t line = GEMM_LINE / p->esize;
        p->a_row_stride = round_up(p->keeps_partial_c ? g->k.value : p->kc, line) + line;
        if (p->a_row_stride / line % 2 == 0) p->a_row_stride += line;
    } else {
        p->a_row_stride = gemm_is(g->m, 1) ? 0 : g->a.row.value;
    }
}

/* Rows of micro-tiles, of which there are at most `most`, and of a group. */
static void choose_sizes(gemm_plan *p, int most) {
    const sn_gemm_size *m = &p->g->m;
    if (most == p->mr) p->tile_rows[p->n_tile_rows++] = p->mr;
    for (p->half_mr = 1; 2 * p->half_mr < p->mr;) p->half_mr *= 2;
    for (int r = p->half_mr; r >= 1; r /= 2)
        if (r <= most || r == 1) p->tile_rows[p->n_tile_rows++] = r;
    int64_t k = p->kc > 0 ? p->kc : GEMM_CHUNK_BYTES / p->esize;
    int64_t rows = p->mc_bytes / p->esize / k;
    if (rows > GEMM_MOST_ROWS) rows = GEMM_MOST_ROWS;
    rows = rows / p->mr * p->mr;
    p->mc = rows < p->mr ? p->mr : rows;
    if (m->slot < 0 && m->value < p->mc) p->mc = round_up(m->value > 0 ? m->value : 1, p->mr);
}

/* What is done for the next group ahead of time. */
static void choose_next_a(gemm_plan *p, int most) {
    const sn_gemm *g = p->g;
    p->prefetch_next_a = !p->k_blocked && !p->pack_b && gemm_is(g->a.col, 1) && g->a.row.slot < 0 &&
                         g->k.slot < 0 && g->a.row.value == g->k.value && !gemm_is(g->m, 1);
    p->pack_in_microkernel = p->pack_a_per_call && p->prefetch_next_a && most == p->mr &&
                             g->k.value % (GEMM_LINE / p->esize) == 0;
    p->pack_next_a =
        p->pack_a && !p->a_transposed && !p->pack_b && (!p->k_blocked || p->keeps_partial_c);
}

/* Panels of a block, and the rows for which it is packed once. */
static void choose_block(gemm_plan *p) {
    p->nc_panels = p->k_blocked ? GEMM_WAITING_PANELS : 1;
    if (p->keeps_partial_c) p->nc_panels = count_nc_panels(p);
    p->mc_outer = p->mc;
    int64_t panel_bytes = p->kc * p->panel * p->esize;
    if (!p->pack_b || panel_bytes <= 0) return;
    int64_t most = GEMM_BLOCK_BYTES / panel_bytes, wanted = GEMM_SUPER_ROWS;
    p->nc_panels = most < 1 ? 1 : most > GEMM_MOST_BLOCK ? GEMM_MOST_BLOCK : most;
    if (p->pack_a && wanted > GEMM_COPY_BYTES / p->esize / p->kc)
        wanted = GEMM_COPY_BYTES / p->esize / p->kc;
    if (p->mc < wanted) p->mc_outer = wanted / p->mc * p->mc;
}

/* Where in scratch sums, rows of A, panels and the lists of lines to fetch lie. */
static void place_scratch(gemm_plan *p) {
    int64_t tiles = p->mc_outer / p->mr + 4; /* the last ones: 8, 4 .. rows */
    int64_t a_rows =
        p->a_transposed ? tiles * p->kc * p->a_col_stride : p->mc_outer * p->a_row_stride;
    int64_t sums = (p->k_blocked ? p->mc_outer * p->nc_panels : p->mr) * p->panel;
    int64_t panels = p->nc_panels * p->kc * p->panel;
    p->a_offset = round_up(sums * p->esize, GEMM_LINE);
    p->b_offset = p->a_offset + (p->pack_a ? round_up(a_rows * p->esize, GEMM_LINE) : 0);
    p->b_list_offset = p->b_offset + (p->pack_b ? round_up(panels * p->esize, GEMM_LINE) : 0);
    p->c_list_offset = p->b_list_offset + p->b_prefetch * 8;
    p->scratch_bytes = p->c_list_offset + p->c_prefetch * 8;
}

bool gemm_plan_make(gemm_plan *p, const sn_gemm *g, const sn_target *t, sn_dtype compute,
                    sn_error *err) {
    if (!check_spec(g, compute, err)) return false;
    choose_tile(p, g, t, compute);
    choose_rows_of_a(p);
    int most = g->m.slot < 0 && g->m.value < p->mr ? (int)g->m.value : p->mr;
    choose_sizes(p, most);
    choose_next_a(p, most);
    choose_block(p);
    gemm_plan_prefetch(p);
    place_scratch(p);
    return true;
}

int64_t sn_gemm_scratch(const sn_gemm *g, const sn_target *t, sn_dtype compute) {
    gemm_plan p;
    return gemm_plan_make(&p, g, t, compute, NULL) ? p.scratch_bytes : 0;
}
