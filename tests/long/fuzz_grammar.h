/* fuzz_grammar.h: files of fuzz_files that come from a grammar, because changed bytes do not lead to
 * them: shapes with a zero beside a huge size, values of other types, graphs of ONNX, chat templates. */
#ifndef SN_TESTS_FUZZ_GRAMMAR_H
#define SN_TESTS_FUZZ_GRAMMAR_H

#include "model/tokenizer.h"

/* A random number below n. */
uint64_t grammar_below(uint64_t *s, uint64_t n);

/* Each appends a file to `out`. */
void grammar_gguf(uint64_t *s, sn_bytes *out);
void grammar_safetensors(uint64_t *s, sn_bytes *out);
void grammar_json_tensors(uint64_t *s, sn_bytes *out);
void grammar_npy(uint64_t *s, sn_bytes *out);
void grammar_npz(uint64_t *s, sn_bytes *out);
void grammar_idx(uint64_t *s, sn_bytes *out);
void grammar_llama2c(uint64_t *s, sn_bytes *out);
void grammar_wav(uint64_t *s, sn_bytes *out);
void grammar_gguf_keys(uint64_t *s, sn_bytes *out);
void grammar_onnx(uint64_t *s, sn_bytes *out);
void grammar_artefact(uint64_t *s, sn_bytes *out); /* its weights */
/* Of a chat. "{#RESULT#}" at its beginning: what it must render to. */
void grammar_template(uint64_t *s, sn_bytes *out);

#endif
