/* entry_frame.h: how the generated function of an entry calls kernels. A model has hundreds of calls,
 * so what all have in common is in a frame and in functions that get it: a step is few bytes. */
#ifndef SN_ENTRY_FRAME_H
#define SN_ENTRY_FRAME_H

#include "codegen/emit/signature.h"
#include "codegen/entry.h"

/* What a thread's kernel calls share, in words on its stack. The arguments of a step follow:
 * pointers, then dims. */
enum {
    SN_FRAME_THREADS,
    SN_FRAME_BARRIER,
    SN_FRAME_PROFILE,
    SN_FRAME_SCRATCH,
    SN_FRAME_TID,
    SN_FRAME_N_THREADS,
    SN_FRAME_BUFS
};
_Static_assert(SN_FRAME_SCRATCH < SN_FRAME_TID,
               "words before SN_FRAME_TID are pointers, others numbers");

/* The most arguments of a step of u: pointers (bufs) or dims. */
int sn_frame_arguments(const sn_entry_code *u, bool bufs);
/* Address and value of word i; address of the dims. */
em_val sn_frame_at(em *e, em_val frame, int i);
em_val sn_frame_word(em *e, em_val frame, int i);
em_val sn_frame_dims(em *e, const sn_entry_code *u, em_val frame);

/* Waits for all threads. */
#define SN_WAIT_PARAMS(P) P(ptr, frame)
EM_SIGNATURE(entry_wait, SN_WAIT_PARAMS)
/* Marks that a step begins or ends on a thread, if there is a profile. */
#define SN_MARK_PARAMS(P) P(ptr, frame) P(i64, step) P(i64, end)
EM_SIGNATURE(entry_mark, SN_MARK_PARAMS)
/* Calls a kernel with the frame's arguments and, unless finish is NULL, that one after a barrier. */
#define SN_RUN_PARAMS(P) P(ptr, frame) P(i64, step) P(ptr, kernel) P(ptr, finish)
EM_SIGNATURE(entry_run, SN_RUN_PARAMS)

typedef struct sn_frame_calls {
    em_val wait, mark, run;
} sn_frame_calls;

/* Emits these functions of entry u. */
sn_frame_calls sn_frame_calls_emit(em *e, const sn_entry_code *u);

#endif
