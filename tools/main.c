/* main.c: the program `sinter` without the library of models. */
#include "tools/cmd.h"

int main(int argc, char **argv) {
    return cmd_main(argc, argv, NULL);
}
