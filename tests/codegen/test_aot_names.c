/* test_aot_names.c: headers of artefacts: names that C or C++ would not take, names that come
 * twice, and what the header says of each argument. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "frontend/models.h"
#include "ir/ir.h"
#include "tests/support/artefact.h"
#include "tests/support/model_case.h"

static char *header; /* text of the last artefact's */

static bool emit(model_case *c, sn_emit_options *o, sn_error *err) {
    sn_program *p;
    sn_session *s = case_compile(c, 4, NULL, &p);
    o->name = "named";
    o->dir = scratch_dir;
    o->threads = "none";
    o->compile.cache_dir = scratch_path("cache");
    bool ok = sn_emit(s, o, err);
    sn_session_free(s);
    sn_program_free(p);
    if (!ok) return false;
    artefact_check_header("named");
    FILE *f = fopen(scratch_path("named.h"), "r");
    assert_non_null(f);
    header = realloc(header, 1 << 16);
    assert_non_null(header);
    header[fread(header, 1, (1 << 16) - 1, f)] = 0;
    fclose(f);
    return true;
}

static void expect(const char *text) {
    if (!strstr(header, text)) fail_msg("no \"%s\" in:\n%s", text, header);
}

/* Every name is one that breaks a declaration, or collides with another. */
static sn_module *build_odd(void) {
    static const char *const names[] = {"int",   "class", "state",      "m",        "a.b",
                                        "a_b",   "NULL",  "workspace",  "int32_t",  "0th",
                                        "_Bool", "__x",   "with blank", "template", "linux"};
    sn_module *m = sn_module_new("odd");
    sn_entry_begin(m, "state");
    sn_dim size = sn_symbol(m, "named", 1, 8);
    sn_tensor y = sn_input(m, "bytes", SN_F32, size, 4);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        y = sn_add(y, sn_input(m, names[i], SN_F32, size, 4));
    sn_output("int", y);
    sn_output("m", sn_neg(y));
    sn_output("bytes", sn_sum(sn_reshape(y, SN_REST), 0));
    sn_entry_begin(m, "error");
    sn_output("range", sn_neg(sn_input(m, "range", SN_F32, 3)));
    return m;
}

static void odd_names(void **state) {
    (void)state;
    model_case c;
    sn_error err = {0};
    case_adopt(&c, build_odd());
    sn_emit_options o = sn_emit_options_default();
    need(emit(&c, &o, &err), &err);
    expect("const float *int_in");
    expect("const float *range, float *range_out");
    expect("#define NAMED_STATE_BYTES_OUT 1 /* elements */");
    assert_null(strstr(header, "VOCAB"));
    assert_null(strstr(header, "state_init")); /* there is no state */
    case_close(&c);
}

static void entries_that_are_no_functions(void **state) {
    (void)state;
    static const char *const names[] = {"a-b", "threads", "parameter", "weights_image", "open"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        model_case c;
        sn_error err = {0};
        sn_module *m = sn_module_new("odd");
        sn_entry_begin(m, names[i]);
        sn_output("y", sn_neg(sn_input(m, "x", SN_F32, 3)));
        case_adopt(&c, m);
        sn_emit_options o = sn_emit_options_default();
        assert_false(emit(&c, &o, &err));
        assert_int_equal(err.code, SN_ERR_USAGE);
        if (!strstr(err.message, names[i])) fail_msg("%s", err.message);
        case_close(&c);
    }
}

/* An encoder-decoder has an output that is called as an input. */
static void told_arguments(void **state) {
    (void)state;
    model_case c;
    sn_error err = {0};
    case_open(&c,
              "{\"model_type\": \"edt\", \"vocab_size\": 11, \"max_position_embeddings\": 8, "
              "\"d_model\": 8, \"ffn_dim\": 8, \"encoder_layers\": 1, \"decoder_layers\": 1, "
              "\"attention_heads\": 2}",
              SN_CACHED);
    const int32_t ends[] = {3, 7};
    sn_emit_options o = sn_emit_options_default();
    o.describe = sn_model_describe;
    o.vocab = 11;
    o.context = 8;
    o.bos = 0;
    o.eos = ends;
    o.n_eos = 2;
    need(emit(&c, &o, &err), &err);
    expect("const int32_t *parents, int32_t *parents_out");
    expect("P          a length, 0 to 7: tokens that are already in the state");
    expect("read, 0 to 0: row i (of R and the following) continues row parents[i]");
    expect("#define NAMED_VOCAB 11 ");
    expect("#define NAMED_CONTEXT 8 ");
    expect("#define NAMED_BOS 0 ");
    expect("#define NAMED_EOS 3 ");
    expect("#define NAMED_EOS_LIST {3, 7} ");
    case_close(&c);
}

/* Whatever the built-in architectures take and give is described. */
static void all_are_described(void **state) {
    (void)state;
    static const char *const configs[] = {
        "{\"model_type\": \"bert\", \"vocab_size\": 19, \"max_position_embeddings\": 8, "
        "\"hidden_size\": 8, \"intermediate_size\": 8, \"num_hidden_layers\": 1, "
        "\"num_attention_heads\": 2}",
        "{\"model_type\": \"gpt2\", \"vocab_size\": 19, \"n_positions\": 8, \"n_embd\": 8, "
        "\"n_layer\": 1, \"n_head\": 2}",
        "{\"model_type\": \"vit\", \"image_size\": 4, \"patch_size\": 2, \"num_channels\": 1, "
        "\"hidden_size\": 8, \"intermediate_size\": 8, \"num_hidden_layers\": 1, "
        "\"num_attention_heads\": 2, \"num_labels\": 2}",
        "{\"model_type\": \"edt\", \"vocab_size\": 11, \"max_position_embeddings\": 8, "
        "\"d_model\": 8, \"ffn_dim\": 8, \"encoder_layers\": 1, \"decoder_layers\": 1, "
        "\"attention_heads\": 2}"};
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        sn_error err = {0};
        sn_model model;
        sn_config *c = sn_config_parse("config", configs[i], strlen(configs[i]), &err);
        const sn_model_options o = {.entries =
                                        SN_ALL_ENTRIES | SN_STEP | SN_EMBED | SN_LENS | SN_TRAIN};
        need(c && sn_model_build(c, &o, &model, &err), &err);
        for (int e = 0; e < sn_entry_count(model.module); e++) {
            const sn_entry *entry = sn_entry_at(model.module, e);
            sn_order order = sn_entry_topo(model.module, entry);
            for (int k = 0; k < order.n + entry->n_output; k++) {
                const char *name = k >= order.n ? entry->output[k - order.n].name
                                   : order.node[k]->op == SN_OP_input
                                       ? sn_attr_str(order.node[k], SN_A_name, "")
                                       : NULL;
                if (name && !sn_model_describe(entry->name, name))
                    fail_msg("%s: %s: nothing says what it is", entry->name, name);
            }
        }
        sn_module_free(model.module);
        sn_config_free(c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(odd_names), cmocka_unit_test(entries_that_are_no_functions),
        cmocka_unit_test(told_arguments), cmocka_unit_test(all_are_described)};
    int failed = cmocka_run_group_tests(tests, scratch_make, scratch_end);
    free(header);
    return failed;
}
