/* evidence.h: a folder from which another user can repeat a measurement of `sinter bench`, and compare its claims. */
#ifndef SN_EVIDENCE_H
#define SN_EVIDENCE_H

#include "bench/measure.h"

/* Whether `dir` could be written: it does not exist, and the folder that it would be in takes new ones. */
bool evidence_can(const char *dir, sn_error *err);

/* "'gemm' '--shape' '1,2,3'": the arguments of `sinter bench` for a shell, without those that name outputs; `model`
 * (NULL: none), one of them, is written as `as`, and the numbers of threads, rounds and processes are given. malloc;
 * NULL: out of memory. */
char *evidence_command(int argc, char **argv, const char *model, const char *as,
                       const sn_bench_options *o);

/* How many arguments the option at `arg` takes up if it says where results go or how many processes and rounds there
 * are, or, with `local`, if it is of this machine; 0: it does not. */
int evidence_leaves_out(const char *arg, bool local);

/* Writes `dir`: records.json with all samples, claims.txt with tables and verdicts, `model/` with the model if it is a
 * file or a folder (of a folder its config and ONNX files), repeat.sh, and files.sha256. All of it, or nothing: a
 * temporary folder beside it is renamed at the end. argv: of `sinter bench`. Fails if the run claims nothing. */
bool evidence_write(const char *dir, int argc, char **argv, const char *model,
                    const sn_bench_report *r, const sn_bench_options *o, sn_error *err);

#endif
