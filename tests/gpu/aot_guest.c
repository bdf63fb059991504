/* A process without Python, for aot_program.py: joins the heap of a rank, sends blocks round by kernels, and leaves.
   Arguments: folder, rank, address of the data, address of the flags, elements, rounds. */
#include "ring_kernels.h"

#include <stdio.h>
#include <stdlib.h>

int main(int count, char **arguments) {
    if (count != 7)
        return 2;
    uint64_t data = strtoull(arguments[3], NULL, 0), flags = strtoull(arguments[4], NULL, 0);
    int32_t elements = atoi(arguments[5]), rounds = atoi(arguments[6]);
    int code = ring_kernels_join(arguments[1], atoi(arguments[2]));
    if (!code)
        code = load_push_ahead();
    if (!code)
        code = load_ring_ahead();
    for (int32_t round = 1; !code && round <= rounds; ++round) {
        code = push_ahead_default(NULL, data, flags, elements, round);
        if (!code)
            code = ring_ahead_default(NULL, data, flags, elements, round);
    }
    if (!code)
        code = ring_kernels_synchronize(NULL);
    if (code) {
        printf("%d %s\n", code, ring_kernels_last_error());
        return 1;
    }
    unload_push_ahead();
    unload_ring_ahead();
    code = ring_kernels_leave();
    printf("%d %s\n", code, code ? ring_kernels_last_error() : "left");
    return code != 0;
}
