/* files_none.c: a program without files in it; those of `compile --embed-weights` are linked before this. */
#include "model/deploy/program.h"

const sn_file_inside sn_program_files[1] = {{NULL, NULL, 0}};
