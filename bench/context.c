/* context.c: memory, time and bytes of attention whose rows are divided among ranks.
 *
 * usage: context [ROWS [WINDOW [zigzag]]]            one rank; ROWS 16384, no window
 *        mpirun -n 4 context [ROWS [WINDOW [zigzag]]]
 *
 * Causal attention of 4 heads of 64, and the gradients of q, k and v. Prints for each rank the bytes of
 * inputs, results and working memory, the seconds of the best of 3 runs, of the CPU, too, and the
 * bytes sent in a run; and norms of the results of all ranks, which do not depend on their number but for rounding. */
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
} measured;

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

/* Element e of a head's rows, of which this rank has `rows`. */
static float input(const sn_comm *c, bool zigzag, int64_t rows, int tensor, int head, int64_t e) {
    int64_t ranks = c ? c->size : 1, rank = c ? c->rank : 0, half = rows / 2, row = e / WIDTH;
    int64_t at = !zigzag      ? rank * rows + row
                 : row < half ? rank * half + row
                              : (2 * ranks - 1 - rank) * half + row - half;
    return (float)sin(0.37 * (double)(at * WIDTH + e % WIDTH) * (tensor + 1.3) + head);
}

/* Seconds of the CPU that this process has had. */
static double cpu_time(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool measure(sn_comm *c, sn_program *p, int64_t rows, bool zigzag, measured *out,
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
    for (int n = 0; ok && n < RUNS; n++) {
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
        free(in[i].data), free(to[i].data);
    }
    sn_session_free(s);
    sn_carrier_free(k);
    return ok;
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
    bool zigzag = argc > 3 && !strcmp(argv[3], "zigzag");
    sn_error err = {0};
    sn_comm *c = NULL;
    sn_options o = sn_options_default();
    o.threads = 1;
    bool ok = sn_comm_open(&c, &err);
    int ranks = c ? c->size : 1, self = c ? c->rank : 0;
    if (ok && (rows < ranks || rows % (zigzag ? 2 * ranks : ranks) || window < 0))
        ok = sn_fail(
            &err, SN_ERR_USAGE,
            "usage: context [ROWS [WINDOW [zigzag]]]; the ranks, with zigzag twice as many, "
            "divide ROWS");
    sn_module *m = ok ? build(rows / ranks, window, zigzag, ranks) : NULL;
    sn_program *p = m ? sn_compile(m, &o, &err) : NULL;
    measured *all = calloc((size_t)ranks, sizeof *all);
    ok = p && all && measure(c, p, rows / ranks, zigzag, &all[self], &err);
    if (c) ok = sn_comm_agree(c, ok, &err) && sn_comm_gather(c, all, sizeof *all, &err);
    if (!self && ok) print(all, ranks, rows, window);
    if (!self && !ok) fprintf(stderr, "context: %s\n", err.message);
    free(all);
    sn_program_free(p);
    if (m) sn_module_free(m);
    sn_comm_close(c);
    return !ok;
}
