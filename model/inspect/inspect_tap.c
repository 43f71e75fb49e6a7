/* inspect_tap.c: lists the named tensors, or prints the value of one. */
#include "model/inspect/inspect.h"
#include "tools/inspect/summary.h"
#include "ir/ir.h"
#include "runtime/cli/json_out.h"
#include "runtime/npy.h"

#include <stdio.h>
#include <string.h>

bool inspect_taps(const inspect_options *o, sn_error *err) {
    open_options lo = {.entries = SN_FORWARD | SN_ENCODE, .build_only = true};
    open_model *m = cmd_open_model("sinter inspect", &o->model, lo, err);
    if (!m) return false;
    int count = 0;
    for (int i = 0; i < sn_entry_count(m->model.module); i++) {
        const sn_entry *e = sn_entry_at(m->model.module, i);
        for (int t = 0; t < e->n_tap; t++, count++) {
            const sn_node *n = e->tap[t].node;
            char shape[128];
            sn_shape_print(m->model.module, n->rank, n->shape, shape, sizeof shape);
            if (sn_screen()->json) {
                json_out j = sn_json_begin(stdout);
                sn_json_text(&j, "entry", e->name);
                sn_json_text(&j, "name", e->tap[t].name);
                sn_json_text(&j, "type", sn_dtype_name((sn_dtype)n->dtype));
                sn_json_text(&j, "shape", shape);
                sn_json_end(&j);
                continue;
            }
            printf("%-8s %-40s %s%s\n", e->name, e->tap[t].name, sn_dtype_name((sn_dtype)n->dtype),
                   shape);
        }
    }
    if (!count)
        sn_fail(err, SN_ERR_USAGE,
                "%s has no named tensors; name them in its code: sn_name(tensor, \"name\")",
                m->model.type);
    model_close(m);
    return count > 0;
}

static bool is_tap(const inspect_options *o, const char *name) {
    return !strcmp(o->tap, name);
}

/* Prints the first values of each of the last rows, as many as fit on a screen. */
static void print_rows(const inspect_tensor *t) {
    enum { ROWS = 12, COLUMNS = 8 };
    int64_t width = t->rank ? t->shape[t->rank - 1] : 1, rows = width ? t->count / width : 0;
    for (int64_t r = rows > ROWS ? rows - ROWS : 0; r < rows; r++) {
        printf("%6lld ", (long long)r);
        for (int64_t c = 0; c < width && c < COLUMNS; c++)
            printf(" %12.6g", t->data[r * width + c]);
        printf("%s\n", width > COLUMNS ? " …" : "");
    }
}

bool inspect_tap(const inspect_options *o, sn_error *err) {
    look l = {0};
    bool ok = inspect_run(&l, o, SN_FORWARD | SN_ENCODE, is_tap, o->tap, err);
    if (ok && !l.n)
        ok =
            sn_fail(err, SN_ERR_USAGE,
                    "entry '%s' has no tensor named '%s'; `sinter inspect MODEL --taps` lists them",
                    l.entry, o->tap);
    if (ok && o->output)
        ok = sn_npy_save_f32(o->output, l.list->rank, l.list->shape, l.list->data, err);
    if (ok) inspect_summarise(l.list->name, SN_F32, l.list->rank, l.list->shape, l.list->data);
    if (ok) sn_screen_wrote("sinter inspect", o->output);
    if (ok && !o->output && !sn_screen()->json) print_rows(l.list);
    inspect_close(&l);
    return ok;
}
