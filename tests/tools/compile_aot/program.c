/* A C program that loads, launches and unloads the kernel ``push``, and says what came of it. Arguments: address, count, algorithm. */
#include "pushes.h"

#include <stdio.h>
#include <stdlib.h>

static int said(const char *what, int code) {
    printf("%s: %d%s%s\n", what, code, code ? " " : "", code ? pushes_last_error() : "");
    return code;
}

int main(int count, char **arguments) {
    uint64_t data = count > 1 ? strtoull(arguments[1], NULL, 0) : 0x108000200000;
    int elements = count > 2 ? atoi(arguments[2]) : 4096;
    setvbuf(stdout, NULL, _IONBF, 0);
    if (said("load", load_push()))
        return 1;
    int code = said("push", push((void *)0x55, data, 0x108000300000, elements, count > 3 ? atoi(arguments[3]) : 0));
    said("unload", unload_push());
    return code != 0;
}
