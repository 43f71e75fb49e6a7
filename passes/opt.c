/* opt.c: passes on text, for `sinter opt` and the tests of passes. */
#include "passes/opt.h"
#include "passes/passes.h"

bool sn_opt(const char *text, const char *file, const char *passes, FILE *out, sn_error *err) {
    sn_module *m = sn_parse(text, file, true, err);
    if (!m) return false;
    sn_module_set_raw(m, false);
    sn_pass_options o = {
        .level = 4, .backend = "own", .only = passes, .verify = true, .constant_params = true};
    sn_passes p;
    bool ok = !passes || !*passes || sn_passes_run(&p, m, &o);
    if (ok)
        sn_print_module(out, m);
    else if (err)
        *err = *sn_module_error(m);
    sn_module_free(m);
    return ok;
}
