/* train_ranks.c: trains on MPI's ranks with a step compiled ahead of time: the bits of
 * `sinter train CONFIG --slices N` on N ranks, where N is a power of 2.
 *
 *   sinter compile --train examples/train/shakespeare.json --slices 2 --name training -o out
 *   mpicc train_ranks.c -Iout out/training.o -lsinter_text -lsinter_rt -lgomp -lm -o train_ranks
 *   mpirun -n 2 ./train_ranks out examples/data/tinyshakespeare.txt 20
 *
 * Every rank has a slice of each batch. The sums start while the step still computes. Each takes log2(N)
 * exchanges of whole tensors between pairs of ranks, which add in the order of a binary tree. Rank 0 writes
 * out/training.model/model.safetensors, for `sinter generate out/training.model`. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sinter/dataset.h>
#include <sinter/weights.h>

#include "training.h"

/* as in the config */
enum { BATCH = 12, BLOCK = 64, SEED = 1337 };
static const double validation_part = 0.1;

/* ---- sums ---- */

typedef struct sum {
    float *data, *other;
    int64_t n;
    int bit; /* of the partner in the exchange that is under way */
    MPI_Request request[2];
} sum;

typedef struct ranks {
    int rank, size;
    sum sum[TRAINING_SUMS];
} ranks;

/* Exchanges data with the partner whose number differs in one bit; tags tell sums and exchanges apart. */
static int exchange(const ranks *r, sum *s, int64_t number) {
    int partner = r->rank ^ s->bit, tag = (int)number * 32 + __builtin_ctz((unsigned)s->bit);
    int code =
        MPI_Irecv(s->other, (int)s->n, MPI_FLOAT, partner, tag, MPI_COMM_WORLD, &s->request[0]);
    return code ? code
                : MPI_Isend(s->data, (int)s->n, MPI_FLOAT, partner, tag, MPI_COMM_WORLD,
                            &s->request[1]);
}

static int start(training_comm *self, int64_t number, float *data, int64_t n) {
    ranks *r = self->state;
    sum *s = &r->sum[number];
    if (!s->other && !(s->other = malloc((size_t)n * sizeof *s->other))) return 1;
    s->data = data, s->n = n, s->bit = 1;
    return s->bit < r->size ? exchange(r, s, number) : 0;
}

static int finish(training_comm *self, int64_t number) {
    ranks *r = self->state;
    sum *s = &r->sum[number];
    while (s->bit < r->size) {
        MPI_Status status[2];
        int code = MPI_Waitall(2, s->request, status);
        if (code) return code;
        for (int64_t i = 0; i < s->n; i++) s->data[i] += s->other[i];
        s->bit *= 2;
        if (s->bit < r->size && (code = exchange(r, s, number))) return code;
    }
    return 0;
}

/* ---- data ---- */

typedef struct text {
    char *text;
    sn_tokenizer *tokenizer;
    sn_documents documents;
    sn_dataset *rows;
} text;

static char *read_text(const char *path, size_t *size) {
    FILE *f = fopen(path, "rb");
    char *s = NULL;
    if (f && !fseek(f, 0, SEEK_END) && (s = malloc((size_t)ftell(f) + 1))) {
        *size = (size_t)ftell(f);
        rewind(f);
        *size = fread(s, 1, *size, f);
    }
    if (f) fclose(f);
    return s;
}

static bool open_text(text *t, const char *folder, const char *path, sn_error *err) {
    size_t size = 0, cut[2];
    sn_document_range rows, rest, none = {0};
    sn_dataset_options o = sn_dataset_options_default();
    t->text = read_text(path, &size);
    if (!t->text) return snprintf(err->message, sizeof err->message, "cannot read %s", path), false;
    t->tokenizer = sn_tokenizer_load(folder, err);
    o.order = SN_ORDER_RANDOM;
    o.batch = BATCH, o.block = BLOCK, o.seed = SEED, o.vocab = TRAINING_VOCAB;
    if (!t->tokenizer ||
        !sn_tokenizer_encode(t->tokenizer, t->text, size, 0, &t->documents.ids, err) ||
        !sn_documents_close(&t->documents, err) ||
        !sn_documents_split(&t->documents, validation_part, &rows, &rest, cut, err))
        return false;
    t->rows = sn_dataset_new(&o, rows, none, NULL, err);
    return t->rows != NULL;
}

/* ---- training ---- */

static int end_all(const char *what) {
    fprintf(stderr, "%s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
    return 1;
}

static void *allocate(int64_t bytes) {
    return aligned_alloc(TRAINING_ALIGN,
                         (size_t)(bytes + TRAINING_ALIGN - 1) / TRAINING_ALIGN * TRAINING_ALIGN);
}

static int train(const training *m, const ranks *r, const text *t, void *state, void *workspace,
                 int64_t steps) {
    sn_error err = {0};
    sn_batch b = {0};
    int code = 0;
    for (int64_t step = 0; step < steps && !code; step++) {
        float loss, norm, rate, all;
        if (!sn_dataset_batch(t->rows, step, &b, &err)) return end_all(err.message);
        int64_t first = b.B * r->rank / r->size, rows = b.B * (r->rank + 1) / r->size - first;
        float weight = (float)((double)rows / (double)b.B); /* every token is a target */
        code = training_train_step(m, state, workspace, b.T, rows, b.tokens + first * b.T,
                                   b.targets + first * b.T, &weight, &loss, &norm, &rate);
        loss *= weight;
        MPI_Reduce(&loss, &all, 1, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
        if (r->rank == 0) printf("step %lld: loss %.4f\n", (long long)step + 1, all);
    }
    sn_batch_free(&b);
    return code;
}

int main(int argc, char **argv) {
    ranks r = {0};
    text t = {0};
    training m;
    sn_error err = {0};
    char weights[4096], folder[4096], out[4096];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &r.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &r.size);
    if (argc != 4) return end_all("usage: train_ranks FOLDER TEXT STEPS");
    if (r.size & (r.size - 1)) return end_all("the number of ranks must be a power of 2");
    snprintf(weights, sizeof weights, "%s/training.weights", argv[1]);
    snprintf(folder, sizeof folder, "%s/training.model", argv[1]);
    snprintf(out, sizeof out, "%s/training.model/model.safetensors", argv[1]);
    int code = training_open(&m, weights);
    if (code) return end_all(training_message(code));
    if (!open_text(&t, folder, argv[2], &err)) return end_all(err.message);
    training_comm comm = {start, finish, &r};
    m.comm = &comm;
    void *state = allocate(TRAINING_STATE_BYTES),
         *workspace =
             allocate(training_train_step_workspace(&m, BLOCK, (BATCH + r.size - 1) / r.size));
    code = training_state_init(&m, state);
    if (!code) code = train(&m, &r, &t, state, workspace, atoll(argv[3]));
    if (code) return end_all(training_message(code));
    if (r.rank == 0 && !sn_weights_save_state(out, (const sn_weight_place *)training_parameters(),
                                              TRAINING_PARAMETERS, state, &err))
        return end_all(err.message);
    for (int i = 0; i < TRAINING_SUMS; i++) free(r.sum[i].other);
    sn_dataset_free(t.rows);
    sn_documents_free(&t.documents);
    sn_tokenizer_free(t.tokenizer);
    free(t.text);
    free(state);
    free(workspace);
    training_close(&m);
    MPI_Finalize();
    return 0;
}
