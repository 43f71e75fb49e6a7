/* planner.h: planning in progress, shared by plan.c and the nodes that are planned apart (scan.c). */
#ifndef SN_PLANNER_H
#define SN_PLANNER_H

#include "passes/plan/plan.h"

typedef struct sn_planner {
    sn_module *m;
    const sn_entry *entry;
    const sn_budget *budget; /* NULL: none */
    sn_plan *plan;
    sn_order order;
    int at;         /* index in order */
    bool inside;    /* the body of a row_blocked node or a scan */
    bool exchanges; /* between neighbours: the ranks share rows that are too long for one */
    bool local;     /* the body of a scan: temporaries belong to a thread */
    sn_view **view; /* by node id: [n_result] views, NULL: not planned yet */
    int *users;     /* by node id: users in this entry; roots count */
    sn_node **user; /* by node id: the last user that is a node */
    int cap_step, cap_buffer;
    void (*node)(struct sn_planner *p, sn_node *n); /* plans a node whose operands are planned */
    uint32_t n_id; /* number of nodes when planning began; copies add more */
} sn_planner;

int sn_planner_buffer(sn_planner *p, sn_buffer_kind kind, const sn_node *type, const char *name);
sn_step *sn_planner_step(sn_planner *p, sn_node *node, int n_in, int n_out);
/* Makes a step of the steps from `first` on. */
sn_step *sn_planner_fold(sn_planner *p, sn_step_kind kind, sn_node *node, int first);
/* The buffer with this name, -1: there is none; the whole of a state, as the destination. */
int sn_planner_find_buffer(const sn_planner *p, sn_buffer_kind kind, const char *name);
sn_view sn_planner_state(sn_planner *p, const sn_node *type, const char *name,
                         const int64_t *order);
/* The view of a node; of several results the first. */
void sn_planner_set_view(sn_planner *p, const sn_node *n, sn_view v);
sn_view sn_planner_view(sn_planner *p, const sn_node *n);
/* A temporary of the node's type, with its axes stored in this order (NULL: unchanged). */
sn_view sn_planner_fresh(sn_planner *p, const sn_node *type, const int64_t *order);
/* Adds a step that copies. */
void sn_planner_copy(sn_planner *p, sn_view src, sn_view dst, const char *why); /* why: a literal */

/* plan/scan.c */
void sn_planner_scan(sn_planner *p, sn_node *n);

#endif
