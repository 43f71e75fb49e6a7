/* context.c: memory, time and bytes of attention whose rows are divided among ranks.
 *
 * usage: context [ROWS [WINDOW [zigzag|plain [check]]]]            one rank; ROWS 16384, no window
 *        mpirun -n 4 context [ROWS [WINDOW [zigzag|plain [check]]]]
 *
 * Causal attention of 4 heads of 64, and the gradients of q, k and v. Prints for each rank the bytes of
 * inputs, results and working memory, the seconds of the best of 3 runs, of the CPU, too, and the
 * bytes sent in a run; and norms of the results of all ranks, which do not depend on their number but for rounding.
 * check: every rank computes all rows alone, too, and compares; memory and differences must be within limits. */
#include "bench/measure.h"
#include "codegen/program/carry.h"
#include "frontend/sinter.h"
#include "runtime/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { HEADS = 4, WIDTH = 64, TENSORS = 4, RUNS = 3 };
static const char *const in_name[TENSORS] = {"q", "k", "v", "g"};
static const char *const out_name[TENSORS] = {"dq", "dk", "dv", "y"};

typedef struct measured {
    double bytes, working, seconds, cpu, sent, square[TENSORS];
    double off[TENSORS];   /* the largest difference to one rank's, relative to its largest value */
    float *value[TENSORS]; /* [HEADS][rows][WIDTH] results */
} measured;

/* A memory of a rank that is this much more than its part is too much. */
static const double memory_slack = 1.1, largest_off = 1e-5;

static sn_module *build(int64_t rows, int64_t window, bool zigzag, int ranks) {
    sn_module *m = sn_module_new("context");
    sn_tensor x[TENSORS], d[3];
    for (int i = 0; i < TENSORS; i++) x[i] = sn_input(m, in_name[i], SN_F32, 1, HEADS, rows, WIDTH);
    sn_tensor y = sn_attention(x[0], x[1], x[2], .causal = true, .window = window,
                               .mesh = "context", .ranks = ranks, .zigzag = zigzag);
    sn_entry_begin(m, "step");
    sn_grad(sn_sum_all(sn_mul(y, x[3])), 3, x, d);
    for (int i = 0; i < 3; i++) sn_output(out_name[i], d[i]);
    sn_output(out_name[3], y);
    return m;
}

/* Where a row of this rank, which has `rows`, is in the whole. */
static int64_t position(const sn_comm *c, bool zigzag, int64_t rows, int64_t row) {
    int64_t ranks = c ? c->size : 1, rank = c ? c->rank : 0, half = rows / 2;
    return !zigzag      ? rank * rows + row
           : row < half ? rank * half + row
                        : (2 * ranks - 1 - rank) * half + row - half;
}

/* Element e of a head's rows. */
static float input(const sn_comm *c, bool zigzag, int64_t rows, int tensor, int head, int64_t e) {
    int64_t at = position(c, zigzag, rows, e / WIDTH);
    return (float)sin(0.37 * (double)(at * WIDTH + e % WIDTH) * (tensor + 1.3) + head);
}

/* Seconds of the CPU that this process has had. */
static double cpu_time(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool measure(sn_comm *c, sn_program *p, int64_t rows, bool zigzag, int runs, measured *out,
                    sn_error *err) {
    const int64_t shape[4] = {1, HEADS, rows, WIDTH}, each = rows * WIDTH;
    sn_arg_binding in[TENSORS], to[TENSORS];
    bool ok = true;
    for (int i = 0; i < TENSORS; i++) {
        size_t bytes = (size_t)(HEADS * each) * sizeof(float);
        in[i] = (sn_arg_binding){in_name[i], SN_F32, 4, shape, malloc(bytes)};
        to[i] = (sn_arg_binding){out_name[i], SN_F32, 4, shape, malloc(bytes)};
        ok = ok && in[i].data && to[i].data;
        for (int64_t e = 0; ok && e < HEADS * each; e++)
            ((float *)in[i].data)[e] = input(c, zigzag, rows, i, (int)(e / each), e % each);
        out->bytes += 2 * (double)bytes;
    }
    sn_session *s = ok ? sn_session_new_arrays(p, NULL, 0, err) : NULL;
    sn_carrier *k = s && c ? sn_carrier_new(1, &(sn_carrier_axis){.comm = c}, err) : NULL;
    if (k) sn_session_set_collectives(s, sn_carrier_collectives(k));
    ok = s && (k || !c);
    for (int n = 0; ok && n < runs; n++) {
        size_t sent = c ? c->sent : 0;
        double begin = sn_clock(), cpu = cpu_time();
        ok = sn_run(s, "step", in, TENSORS, to, TENSORS, err);
        double seconds = sn_clock() - begin;
        cpu = cpu_time() - cpu;
        if (!n || seconds < out->seconds) out->seconds = seconds;
        if (!n || cpu < out->cpu) out->cpu = cpu;
        out->sent = c ? (double)(c->sent - sent) : 0;
    }
    out->working = s ? (double)sn_session_workspace(s) : 0;
    for (int i = 0; i < TENSORS; i++) {
        for (int64_t e = 0; ok && e < HEADS * each; e++)
            out->square[i] += pow(((float *)to[i].data)[e], 2);
        out->value[i] = to[i].data;
        free(in[i].data);
    }
    sn_session_free(s);
    sn_carrier_free(k);
    return ok;
}

static void free_values(measured *x) {
    for (int i = 0; i < TENSORS; i++) free(x->value[i]);
}

/* Computes all rows without other ranks, and compares this rank's. */
static bool compare(const sn_comm *c, int64_t rows, int64_t window, bool zigzag, measured *mine,
                    sn_error *err) {
    int64_t all = rows * (c ? c->size : 1);
    sn_options o = sn_options_default();
    o.threads = 1;
    measured whole = {0};
    sn_module *m = build(all, window, false, 1);
    sn_program *p = m ? sn_compile(m, &o, err) : NULL;
    bool ok = p && measure(NULL, p, all, false, 1, &whole, err);
    for (int i = 0; ok && i < TENSORS; i++) {
        double off = 0, largest = 0;
        for (int64_t e = 0; e < HEADS * all * WIDTH; e++)
            largest = fmax(largest, fabs(whole.value[i][e]));
        for (int64_t r = 0; r < HEADS * rows; r++) {
            int64_t at = r / rows * all + position(c, zigzag, rows, r % rows);
            for (int k = 0; k < WIDTH; k++)
                off = sn_bench_worse(
                    off, fabs(mine->value[i][r * WIDTH + k] - whole.value[i][at * WIDTH + k]));
        }
        mine->off[i] = off / largest;
    }
    free_values(&whole);
    sn_program_free(p);
    if (m) sn_module_free(m);
    double limit = memory_slack * (whole.bytes + whole.working) * (double)rows / (double)all,
           used = mine->bytes + mine->working;
    if (ok && used > limit)
        ok = sn_fail(err, SN_ERR_MEMORY, "a rank has %.1f MiB, more than %.2f of one rank's part",
                     used / 0x1p20, memory_slack);
    for (int i = 0; ok && i < TENSORS; i++)
        if (!(mine->off[i] <= largest_off))
            ok = sn_fail(err, SN_ERR_INTERNAL, "%s differs by %.2g", out_name[i], mine->off[i]);
    return ok;
}

static void print_check(const measured *all, int ranks) {
    double off = 0;
    for (int r = 0; r < ranks; r++)
        for (int i = 0; i < TENSORS; i++) off = sn_bench_worse(off, all[r].off[i]);
    printf("largest difference to one rank: %.1e of the largest value\n", off);
}

static void print(const measured *all, int ranks, int64_t rows, int64_t window) {
    double sum[TENSORS] = {0};
    char far[40] = "";
    if (window) snprintf(far, sizeof far, ", window %lld", (long long)window);
    printf("causal attention, %lld rows%s, %d heads of %d, %d rank%s\n", (long long)rows, far,
           HEADS, WIDTH, ranks, ranks > 1 ? "s" : "");
    printf("rank  tensors MiB  working MiB  seconds      CPU  sent MiB\n");
    for (int r = 0; r < ranks; r++) {
        printf("%4d  %11.1f  %11.1f  %7.3f  %7.3f  %8.1f\n", r, all[r].bytes / 0x1p20,
               all[r].working / 0x1p20, all[r].seconds, all[r].cpu, all[r].sent / 0x1p20);
        for (int i = 0; i < TENSORS; i++) sum[i] += all[r].square[i];
    }
    for (int i = 0; i < TENSORS; i++)
        printf("|%s| = %.7g%s", out_name[i], sqrt(sum[i]), i < 3 ? ", " : "\n");
}

int main(int argc, char **argv) {
    int64_t rows = argc > 1 ? atoll(argv[1]) : 16384, window = argc > 2 ? atoll(argv[2]) : 0;
    bool zigzag = argc > 3 && !strcmp(argv[3], "zigzag"), check = argc > 4;
    sn_error err = {0};
    sn_comm *c = NULL;
    sn_options o = sn_options_default();
    o.threads = 1;
    bool ok = sn_comm_open(&c, &err);
    int ranks = c ? c->size : 1, self = c ? c->rank : 0;
    if (ok && (rows < ranks || rows % (zigzag ? 2 * ranks : ranks) || window < 0))
        ok = sn_fail(&err, SN_ERR_USAGE,
                     "usage: context [ROWS [WINDOW [zigzag|plain [check]]]]; the ranks, with "
                     "zigzag twice as "
                     "many, "
                     "divide ROWS");
    sn_module *m = ok ? build(rows / ranks, window, zigzag, ranks) : NULL;
    sn_program *p = m ? sn_compile(m, &o, &err) : NULL;
    measured *all = calloc((size_t)ranks, sizeof *all);
    ok = p && all && measure(c, p, rows / ranks, zigzag, RUNS, &all[self], &err);
    ok = ok && (!check || compare(c, rows / ranks, window, zigzag, &all[self], &err));
    if (all) free_values(&all[self]);
    if (c) ok = sn_comm_agree(c, ok, &err) && sn_comm_gather(c, all, sizeof *all, &err);
    if (!self && ok) print(all, ranks, rows, window);
    if (!self && ok && check) print_check(all, ranks);
    if (!self && !ok) fprintf(stderr, "context: %s\n", err.message);
    free(all);
    sn_program_free(p);
    if (m) sn_module_free(m);
    sn_comm_close(c);
    return !ok;
}
