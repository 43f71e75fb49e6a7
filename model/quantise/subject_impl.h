/* subject_impl.h: the parts of subject.c. Private. */
#ifndef SN_SUBJECT_IMPL_H
#define SN_SUBJECT_IMPL_H

#include "model/quantise/subject.h"

/* Fills param, matrix and product from the graph of `measured`. */
bool subject_find(subject *s, sn_error *err);
/* Fills text. */
bool subject_read_texts(subject *s, const subject_options *o, sn_error *err);

#endif
