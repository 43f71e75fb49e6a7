/* cmd_generate.c: `sinter generate`: runs a language model with the JIT, on one rank or several;
 * model/generation.h does the work. */
#include "model/commands/commands.h"
#include "ir/ir.h"
#include "model/lm_impl.h"
#include "model/ranks.h"
#include "model/cli/text_gen.h"
#include "tools/model/same.h"

#include <stdio.h>

#define NAME "sinter generate"

typedef struct options {
    cmd_model model;
    cmd_compile compile;
    text_options text;
    const char *profile;
} options;

static const arg table[] = {
    CMD_MODEL_ARGS(options),   TEXT_ARGS(options),         CMD_PROFILE_ARG(options),
    CMD_COMPILE_ARGS(options), CMD_CHECK_NAN_ARG(options), {0},
};

static const arg_command command = {
    NAME,
    "continue a text with a language model",
    "Prints the prompt and its continuation. A model without a tokenizer reads and prints token\n"
    "ids. Stops at the model's end-of-text token, after N tokens, or when the context is full.\n"
    "\n"
    "With --batch N, each line of the prompt file is a prompt; N run at once. Text i is the one "
    "that\n"
    "-p with --seed S+i-1 gives alone.\n"
    "\n"
    "On several ranks of MPI (mpirun -n 2 sinter generate …) each holds its share of the model.\n",
    table,
    .examples = "sinter generate MODEL -p \"Once upon a time\" --json\n"
                "sinter generate MODEL -p \"Once upon a time\" -n 200 --temperature 0 --stats\n",
    .json = sn_text_keys};

/* Writes the texts, and closes the model, whether or not there is an sn_lm of it. */
static int write_texts(options *o, open_model *m, sn_lm_engine *engine) {
    sn_error err = {0};
    sn_trace *trace = cmd_profile_begin(o->profile, m->session, &err);
    sn_lm *l = err.code ? NULL : lm_new_with(m, engine, &err);
    bool ok = l && sn_text_generate(NAME, l, &o->text, &err);
    ok = cmd_profile_end(o->profile, trace, &err) && ok;
    int code = ok ? cmd_finish(NAME) : cmd_fail(NAME, &err);
    if (l && o->text.stats) {
        if (!sn_screen()->verbose) cmd_print_model(m);
        sn_text_print_times(l);
        fprintf(stderr, "recompilations %d\n", sn_program_stats(m->program).recompilations);
    }
    if (l)
        sn_lm_close(l);
    else
        engine->close(engine->model);
    return code;
}

/* ---- several ranks ---- */

static bool is_divided(sn_module *m) {
    for (uint32_t i = 0; i < sn_module_node_count(m); i++)
        if (sn_module_node(m, i)->op == SN_OP_shard) return true;
    return false;
}

static open_model *open_share(const options *o, sn_comm *c, sn_error *err) {
    const sn_mesh_axis mesh[] = {{"tensor", c->size, c->rank}, {0}};
    int64_t sequences = sn_text_sequences(&o->text);
    open_options lo = {.entries = SN_CACHED,
                       .sequences = sequences > 1 ? sequences : 0,
                       .mesh = mesh,
                       .compile = cmd_options(&o->compile)};
    lo.compile.threads = cmd_rank_threads(c, lo.compile.threads);
    if (c->rank) lo.compile.advance = NULL;
    open_model *m = cmd_open_model(NAME, &o->model, lo, err);
    if (!m || is_divided(m->model.module)) return m;
    sn_fail(err, SN_ERR_USAGE, "%s models cannot be divided among ranks: run them on one",
            m->model.type);
    model_close(m);
    return NULL;
}

/* Rank 0 speaks; an error of a rank that the others do not know ends all. */
static int run_share(options *o, sn_comm *c, open_model *m, lm_ranks *r) {
    sn_error err = {0};
    sn_lm_engine engine = lm_engine(m);
    lm_ranks_bind(r, m->session);
    if (c->rank == 0) {
        lm_ranks_lead(r, &engine);
        return write_texts(o, m, &engine);
    }
    if (!lm_ranks_serve(r, &engine, &err)) {
        sn_screen_error(NAME, "rank %d on %s: %s\n", c->rank, c->host[c->rank], err.message);
        c->ops->abort(c, EXIT_WRONG);
    }
    model_close(m);
    return EXIT_OK;
}

static bool check_machines(const options *o, sn_comm *c, sn_error *err) {
    sn_comm_same list[SAME_MACHINE];
    bool ok = same_machine(cmd_options(&o->compile).target, list, err);
    return sn_comm_agree(c, ok, err) && sn_comm_check_same(c, list, SAME_MACHINE, err);
}

static bool check_models(const open_model *m, sn_comm *c, sn_error *err) {
    sn_comm_same list[2] = {same_model(m)};
    bool ok = same_kernels(m->program, NULL, &list[1], err);
    return sn_comm_agree(c, ok, err) && sn_comm_check_same(c, list, 2, err);
}

static int run_ranks(options *o, sn_comm *c) {
    sn_error err = {0};
    open_model *m = NULL;
    lm_ranks *r = NULL;
    int code = EXIT_WRONG;
    sn_screen()->quiet |= c->rank != 0;
    bool ok = check_machines(o, c, &err);
    if (ok) {
        m = open_share(o, c, &err);
        r = m ? lm_ranks_new(c, "tensor", &err) : NULL;
        ok = sn_comm_agree(c, r != NULL, &err) && check_models(m, c, &err);
    }
    if (ok) {
        code = run_share(o, c, m, r);
    } else {
        if (c->rank == 0) code = cmd_fail(NAME, &err);
        model_close(m);
    }
    lm_ranks_free(r);
    return code;
}

int cmd_generate(int argc, char **argv) {
    options o = {0};
    int code = sn_args_parse(&command, argc, argv, &o);
    if (code != ARGS_RUN) return code;
    sn_error err = {0};
    sn_comm *comm = NULL;
    if (!sn_text_check(&o.text, &err)) return cmd_fail(NAME, &err);
    if (!sn_comm_open(&comm, &err)) return cmd_fail(NAME, &err);
    if (comm && comm->size > 1) {
        code = run_ranks(&o, comm);
    } else {
        int64_t n = sn_text_sequences(&o.text);
        open_model *m =
            cmd_open(NAME, &o.model, &o.compile,
                     (open_options){.entries = SN_CACHED, .sequences = n > 1 ? n : 0}, &code);
        sn_lm_engine engine = m ? lm_engine(m) : (sn_lm_engine){0};
        if (m) code = write_texts(&o, m, &engine);
    }
    sn_comm_close(comm);
    return code;
}
