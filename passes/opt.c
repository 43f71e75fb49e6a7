/* opt.c: passes on text, for `sinter opt` and the tests of passes. */
#include "passes/opt.h"
#include "passes/passes.h"

#include <string.h>

bool sn_opt(const char *text, const char *file, const char *passes, int level,
            const char *precision, FILE *out, sn_error *err) {
    if (precision && !strcmp(precision, "f32")) precision = NULL;
    if (precision && !sn_narrow_knows(precision))
        return sn_fail(err, SN_ERR_USAGE, "precision '%s': choose f32 or bf16", precision);
    sn_module *m = sn_parse(text, file, true, err);
    if (!m) return false;
    sn_module_set_raw(m, false);
    sn_pass_options o = {.level = level,
                         .backend = "native",
                         .only = passes,
                         .verify = true,
                         .precision = precision,
                         .constant_params = true};
    sn_passes p;
    bool ok = !passes || !*passes || sn_passes_run(&p, m, &o);
    if (!ok && err) *err = *sn_module_error(m);
    if (ok && !sn_print_module(out, m)) ok = sn_fail(err, SN_ERR_MEMORY, "out of memory");
    sn_module_free(m);
    return ok;
}
