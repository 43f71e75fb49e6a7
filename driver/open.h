/* open.h: opens a model in one call: from C, a preset with random weights, or a folder, to a compiled
 * program and a session. The library of models adds tokenizers, pictures and other formats through
 * open_hooks (model/open.h). */
#ifndef SN_DRIVER_OPEN_H
#define SN_DRIVER_OPEN_H

#include "driver/model_source.h"
#include "runtime/model_dir.h"

typedef struct open_hooks open_hooks;

typedef struct open_options {
    const char *command; /* "sinter eval", for hints in messages; or NULL */
    /* a model folder; a model in C (model_source.h), with random weights unless there is a
     * checkpoint; an ONNX file, or a folder with one; a graph in text form (.sn), which is compiled only; with hooks also a file of
     * another format, which is imported */
    const char *path;
    const char *checkpoint;  /* weights of a model in C: a .safetensors file or its folder */
    const char *preset;      /* instead of path: a published size with random weights */
    const open_hooks *hooks; /* of the library of models; NULL: without it */
    int entries;             /* SN_FORWARD, …, as in models.h */
    int64_t beams;           /* beams of an encoder-decoder; 0: num_beams of its folder, or 1 */
    int64_t sequences;       /* entries of SN_CACHED for several sequences (models.h); 0: for one */
    int64_t slices;          /* of a batch, of training entries (train.h); 0: it is whole */
    int64_t ranks;           /* that divide what `zero` says, as in sn_training; 0: one */
    int zero;
    const sn_mesh_axis *mesh; /* as in sn_model_options; NULL: one rank */
    int named;                /* entries of `entries` that the model must have (entries.h) */
    int64_t context;          /* maximum sequence length; 0: the model's */
    uint64_t seed;            /* seed of random weights */
    bool compile_only;        /* do not read or create weights or a session */
    bool build_only;          /* nor a program: only config, module and mapped weights */
    sn_options compile;       /* `compute` may be "auto" */
    const char *
        targets; /* of the artefact that will be made, for which that is decided; NULL: this machine */
    /* Called before the module is compiled; may change the options, such as taps. Or NULL. */
    bool (*prepare)(void *user, const sn_model *model, sn_options *compile, sn_error *err);
    void *user;
    /* what the hooks read */
    const char *tokenizer; /* file or folder; NULL: the model's own, if any */
    bool translates;       /* open an encoder-decoder, with SN_CACHED */
    const char *needs;     /* an entry that the model must have, or NULL */
    bool any_model;        /* accept whatever entries the model has, even if it is not a decoder */
} open_options;

/* An open model. It owns everything; the fields are read-only. */
typedef struct open_model {
    sn_model_dir *dir;      /* NULL: a preset or a model in C */
    sn_config *config;      /* NULL: a model in C without a checkpoint folder */
    sn_config *own_config;  /* preset, checkpoint folder or ONNX file */
    char *folder;           /* of config, tokenizer and others; a GGUF file; NULL: none */
    model_source code;      /* of a model in C or an ONNX file */
    sn_weights *checkpoint; /* NULL: none was given */
    char *graph;            /* of text, or of a trained model in C: the file; NULL: none */
    sn_model model;
    sn_program *program;    /* NULL: build_only */
    sn_session *session;    /* NULL: compile_only, build_only */
    sn_options compiled;    /* the options of the program; `source` as in model_weights */
    char storage_note[160]; /* why --weights auto did not choose the first; or "" */
    char compute_note[200]; /* what sn_choose_compute says */
    void **random;          /* [n_random] random weights */
    int n_random;
    int64_t beams; /* rows of tokens (beams) that an encoder-decoder was opened for */
    int64_t image; /* side of the pictures that the folder asks for; 0: it does not */
    const open_hooks *hooks;
    struct model_io *io; /* what the hooks keep (model/open.h); NULL: without them */
} open_model;

/* What the library of models does while a model is opened, in this order. False: err. */
struct open_hooks {
    bool (*knows)(const char *file); /* whether import can read it */
    /* A file that is not a model by itself: opens a folder made from it with model_open_folder. */
    bool (*import)(open_model *m, const open_options *o, sn_error *err);
    /* The model was found, in `folder` or a GGUF file; NULL: in C without a folder, or a preset. */
    bool (*found)(open_model *m, const open_options *o, const char *folder, sn_error *err);
    bool (*built)(open_model *m, const open_options *o, sn_error *err);
    /* Before it is compiled: may change the options. */
    bool (*compile)(open_model *m, const open_options *o, sn_options *compile, sn_error *err);
    bool (*opened)(open_model *m, const open_options *o, sn_error *err); /* with a session */
    void (*close)(open_model *m);                                        /* after a failure, too */
};

bool model_is_graph(const char *path); /* .sn */
/* NULL on error. */
open_model *model_open(const open_options *o, sn_error *err);
/* Of a hook `import`: opens this folder or GGUF file instead of o->path. */
bool model_open_folder(open_model *m, const char *path, const open_options *o, sn_error *err);
void model_close(open_model *m);                      /* NULL is allowed */
const sn_weights *model_weights(const open_model *m); /* as opened; NULL: random weights */
int64_t model_parameters(const open_model *m);        /* number of parameters */

/* The first parameter whose values in the model's file contain NaN. NULL: none, or an error. */
const char *model_nan_parameter(const open_model *m, sn_error *err);

/* The dimensions of a module in the form of sn_options, "B=4,T=64": B is `batch`, the others are
 * `length`, or less if their bounds require it. */
void model_sizes(sn_module *m, int64_t batch, int64_t length, char *text, size_t size);

#endif
