/* cmd_plan.c: `sinter plan`: memory, bytes and time of training on many ranks. */
#include "runtime/cli/drawing.h"
#include "model/commands/commands.h"
#include "model/plan/plan.h"
#include "model/train/train_ranks.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME "sinter plan"

typedef struct options {
    cmd_compile compile;
    const char *config, *ranks, *net, *speed, *plot, *source, *precision;
    int64_t per_machine, cpus, rows, batch, block, slices, zero, tensor;
} options;

#define AT(field) offsetof(options, field)
static const arg table[] = {
    {"CONFIG", 0, ARG_PLACE, AT(config), NULL, NULL, 0, 0, "as for sinter train"},
    {"ranks", 0, ARG_TEXT, AT(ranks), "N,…", NULL, 0, 0,
     "numbers of ranks; default: 1,2,4,8,16,32,64, times --tensor"},
    {"net", 0, ARG_TEXT, AT(net), "RATE,LATENCY", "25Gbit,10us", 0, 0,
     "network of each machine: Gbit, Mbit, GB or MB a second; ns, us or ms; a third value, default "
     "1us, is what each further message of a rank costs"},
    {"per-machine", 0, ARG_INT, AT(per_machine), "N", "1", 1, 1024,
     "ranks on each machine, which share its CPUs and network"},
    {"cpus", 0, ARG_INT, AT(cpus), "N", "0", 0, 1024, "CPUs of a machine; 0: as many as this one"},
    {"rows", 0, ARG_INT, AT(rows), "N", "0", 0, 1 << 20,
     "rows of a batch for each rank, so that the batch grows with the ranks; 0: the config's batch "
     "is "
     "divided, and ranks beyond its rows get a row each"},
    {"batch", 0, ARG_INT, AT(batch), "N", "0", 0, 1 << 20, "rows per batch; 0: as in the config"},
    {"block", 0, ARG_INT, AT(block), "N", "0", 0, 1 << 24, "tokens per row; 0: as in the config"},
    {"slices", 0, ARG_INT, AT(slices), "N", "0", 0, 1 << 20,
     "slices of a batch, at least one for each rank; 0: as sinter train on ranks"},
    {"zero", 0, ARG_INT, AT(zero), "N", "auto", 0, 3,
     "what ranks divide among themselves, as sinter train --zero; auto: as in the config"},
    {"tensor", 0, ARG_INT, AT(tensor), "P", "0", 0, 1024,
     "ranks that share a model, as sinter train --tensor: neighbours, so put them into one machine "
     "(--per-machine); 0: as in the config"},
    {"speed", 0, ARG_CHOICE, AT(speed), "auto|step|roofline", "auto", 0, 0,
     "of this machine: a few measured steps, or the limits of its arithmetic and memory, which "
     "real "
     "kernels do not reach; auto: steps, if there is enough memory"},
    {"precision", 0, ARG_CHOICE, AT(precision), "f32|bf16", NULL, 0, 0,
     "precision of activations stored for the backward pass; default: the config's"},
    {"source", 0, ARG_TEXT, AT(source), "FILE", NULL, 0, 0,
     "the C file (.c, .so) of the model in the folder CONFIG"},
    {"plot", 0, ARG_TEXT, AT(plot), "FILE.svg", NULL, 0, 0,
     "SVG, or PNG if FILE ends so: tokens a second and the parts of a step, by ranks"},
    CMD_COMPILE_ARGS(options),
    {0},
};

static const arg_key keys[] = {
    {"model", "text", "architecture"},
    {"parameters", "integer", "number of parameters"},
    {"speed", "text", "step: measured steps; roofline: limits of this machine"},
    {"threads", "integer", "of a rank"},
    {"others_pct", "number",
     "of this machine's CPUs, used by other programs during the measurement; -1: unknown"},
    {"points", "list", "one object for each number of ranks"},
    {"points[].ranks", "integer", "number of ranks"},
    {"points[].machines", "integer", "with --per-machine ranks each"},
    {"points[].batch", "integer", "rows of a batch"},
    {"points[].slices", "integer", "slices of a batch"},
    {"points[].memory_mb", "number", "of a rank: parameters, states, gradients, activations"},
    {"points[].sent_mb", "number", "by each rank in a step"},
    {"points[].network_ms", "number", "of a step in which bytes are under way"},
    {"points[].hidden", "number", "share of the time of sums that computation hides, 0 to 1"},
    {"points[].step_ms", "number", "time of a step"},
    {"points[].tokens_per_second", "number", "of all ranks"},
    {"points[].speedup", "number", "tokens a second against the first point"},
    {0}};

static const arg_command command = {
    NAME,
    "predict memory, communication and speed of training on many ranks",
    "Compiles the training step, measures its slices on this machine, under the load of as many "
    "ranks\n"
    "as a machine is to have, and lets ranks make the step with each other over a network of the "
    "given\n"
    "rate and latency. The machines are like this one; --threads are those of a rank, by default "
    "its\n"
    "share of the CPUs.\n",
    table,
    .examples = "sinter plan examples/train/shakespeare.json --ranks 8,64,1024 --net 25Gbit,10us\n"
                "sinter plan examples/train/shakespeare.json --per-machine 2 --plot plan.svg\n",
    .json = keys};

/* Numbers of groups of `share` ranks. */
static bool read_ranks(const char *text, int share, plan_request *r, sn_error *err) {
    for (const char *s = text; *s;) {
        char *end;
        long n = strtol(s, &end, 10);
        bool ok = end != s && (*end == 0 || (*end == ',' && end[1])) && n >= 1 && n <= 1 << 16 &&
                  r->n < PLAN_POINTS && (!r->n || n * share > r->ranks[r->n - 1]);
        if (!ok) break;
        r->ranks[r->n++] = (int)n * share;
        s = end + (*end == ',');
        if (!*s) return true;
    }
    return sn_fail(err, SN_ERR_USAGE,
                   "--ranks '%s': give up to %d ascending numbers from 1 to %d, such as 8,64,1024",
                   text, PLAN_POINTS, 1 << 16);
}

static int count_cpus(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
}

static bool read_request(const options *o, train_settings *s, plan_request *r, sn_error *err) {
    if (o->batch) s->data.batch = o->batch;
    if (o->block) s->data.block = o->block;
    if (o->slices) s->slices = o->slices;
    if (o->zero >= 0) s->zero = (int)o->zero;
    if (o->tensor) s->tensor = o->tensor;
    if (o->precision) s->precision = o->precision;
    if (!s->slices) s->slices = train_ranks_slices(s->data.batch);
    r->settings = s;
    r->rows = o->rows;
    r->per_machine = (int)o->per_machine;
    r->cpus = o->cpus ? (int)o->cpus : count_cpus();
    r->speed = !strcmp(o->speed, "auto")   ? PLAN_AUTO
               : !strcmp(o->speed, "step") ? PLAN_STEP
                                           : PLAN_ROOFLINE;
    r->compile = cmd_options(&o->compile);
    int share = r->cpus / r->per_machine;
    if (!r->compile.threads) r->compile.threads = share > 1 ? share : 1;
    bool listed = o->ranks ? read_ranks(o->ranks, 1, r, err)
                           : read_ranks("1,2,4,8,16,32,64", plan_shares(r), r, err);
    return listed && plan_net_read(o->net, &r->net, err);
}

static int machines(const plan *p, const plan_point *o) {
    return (o->ranks + p->r->per_machine - 1) / p->r->per_machine;
}

static void print_json(const plan *p) {
    json_out j = sn_json_begin(stdout);
    sn_json_text(&j, "model", p->model);
    sn_json_integer(&j, "parameters", p->parameters);
    sn_json_text(&j, "speed", p->measured ? "step" : "roofline");
    sn_json_integer(&j, "threads", p->r->compile.threads);
    sn_json_number(&j, "others_pct", p->others);
    sn_json_list(&j, "points");
    for (int i = 0; i < p->r->n; i++) {
        const plan_point *o = &p->point[i];
        sn_json_object(&j, NULL);
        sn_json_integer(&j, "ranks", o->ranks);
        sn_json_integer(&j, "machines", machines(p, o));
        sn_json_integer(&j, "batch", o->batch);
        sn_json_integer(&j, "slices", o->slices);
        sn_json_number(&j, "memory_mb", o->memory * 1e-6);
        sn_json_number(&j, "sent_mb", o->sent * 1e-6);
        sn_json_number(&j, "network_ms", o->network * 1e3);
        sn_json_number(&j, "hidden", o->hidden);
        sn_json_number(&j, "step_ms", o->step * 1e3);
        sn_json_number(&j, "tokens_per_second", o->tokens);
        sn_json_number(&j, "speedup", o->tokens / p->point[0].tokens);
        sn_json_close(&j);
    }
    sn_json_end(&j);
}

static void print_table(const plan *p) {
    const plan_net *net = &p->r->net;
    printf("%s, %.4g M parameters; %d rank%s a machine, %d thread%s each; %.3g Gbit/s, %.3g µs\n",
           p->model, (double)p->parameters * 1e-6, p->r->per_machine,
           p->r->per_machine > 1 ? "s" : "", p->r->compile.threads,
           p->r->compile.threads > 1 ? "s" : "", net->bandwidth * 8e-9, net->latency * 1e6);
    printf("speed: %s\n\n", p->measured
                                ? "steps measured on this machine"
                                : "the limits of this machine, which real kernels do not reach");
    printf("%6s %8s %6s %6s %9s %9s %10s %7s %9s %10s %8s\n", "ranks", "machines", "batch",
           "slices", "MB a rank", "MB sent", "network ms", "hidden", "step ms", "tokens/s",
           "speed-up");
    for (int i = 0; i < p->r->n; i++) {
        const plan_point *o = &p->point[i];
        char hidden[16] = "-";
        if (o->network > 0) snprintf(hidden, sizeof hidden, "%.0f %%", 100 * o->hidden);
        printf("%6d %8d %6lld %6lld %9.4g %9.4g %10.3g %7s %9.4g %10.4g %8.3g\n", o->ranks,
               machines(p, o), (long long)o->batch, (long long)o->slices, o->memory * 1e-6,
               o->sent * 1e-6, o->network * 1e3, hidden, o->step * 1e3, o->tokens,
               o->tokens / p->point[0].tokens);
    }
}

int cmd_plan(int argc, char **argv) {
    options o;
    int code = sn_args_parse(&command, argc, argv, &o);
    if (code != ARGS_RUN) return code;
    sn_error err = {0};
    train_settings settings;
    plan_request r = {0};
    plan p = {0};
    bool ok = sn_drawing_named(o.plot, &err) && cmd_can_write(o.plot, &err) &&
              train_settings_read(o.config, o.source, &settings, &err);
    if (!ok) return cmd_fail(NAME, &err);
    ok = read_request(&o, &settings, &r, &err) && plan_make(&r, &p, &err) &&
         (!o.plot || plan_draw(&p, o.plot, &err));
    if (ok && sn_screen()->json)
        print_json(&p);
    else if (ok)
        print_table(&p);
    enum { MUCH = 10 };
    if (ok && p.measured && p.others > MUCH)
        sn_screen_note(
            NAME,
            "other programs used %.0f %% of the CPUs while steps were measured: on an idle "
            "machine the times are shorter and more exact",
            p.others);
    if (ok) sn_screen_wrote(NAME, o.plot);
    plan_free(&p);
    train_settings_free(&settings);
    return ok ? cmd_finish(NAME) : cmd_fail(NAME, &err);
}
