/* paramctl_bench.c - the program behind `paramctl bench`: measures a machine. */
#include <stdio.h>
#include <string.h>

#include "net_bench.h"
#include "programs.h"
#include "result.h"

int main(int argc, char **argv)
{
    pd_net_bench want = { .workers = 4, .tensors = 25, .floats = 1 << 20, .rounds = 20 };
    const pd_line_option options[] = {
        { "workers", 0, "W", "Client connections, one thread each (default 4)", pd_take_number, &want.workers, 1, 256 },
        { "tensors", 0, "N", "Tensors that each pushes and pulls in a round (default 25)", pd_take_number,
          &want.tensors, 1, 1 << 20 },
        { "floats", 0, "F", "Elements of a tensor (default 1048576)", pd_take_number, &want.floats, 1, 1ll << 32 },
        { "rounds", 0, "R", "Rounds measured, at least 5 (default 20)", pd_take_number, &want.rounds, 5, 100000 },
        { 0 }
    };
    pd_line line = pd_line_new(&pd_programs[PD_PROGRAM_BENCH], argc, argv);

    pd_line_parse(&line, options);
    if (strcmp(line.args[0], "net") != 0) {
        fprintf(stderr, "paramctl: bench %.40s: the only benchmark is net\n", line.args[0]);
        return PD_EXIT_USAGE;
    }
    want.server = line.server;
    want.timeout = line.timeout;
    want.json = line.json;
    return pd_net_bench_run(&want);
}
