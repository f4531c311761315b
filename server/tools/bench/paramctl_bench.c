/* paramctl_bench.c - the program behind `paramctl bench`: measures a machine. */
#include <stdio.h>
#include <string.h>

#include "net_bench.h"
#include "programs.h"
#include "result.h"

int main(int argc, char **argv)
{
    pd_line line = pd_line_new(&pd_programs[PD_PROGRAM_BENCH], argc, argv);
    pd_net_bench want;

    pd_line_parse(&line);
    if (strcmp(line.args[0], "net") != 0) pd_line_refuse(&line, "%s: the only benchmark is net", line.args[0]);
    want = (pd_net_bench){ .server = line.server,
                           .timeout = line.timeout,
                           .json = line.json,
                           .workers = pd_line_number(&line, "workers"),
                           .tensors = pd_line_number(&line, "tensors"),
                           .floats = pd_line_number(&line, "floats"),
                           .rounds = pd_line_number(&line, "rounds"),
                           .transport = pd_line_text(&line, "transport"),
                           .beside = pd_line_text(&line, "beside"),
                           .copy = pd_line_has(&line, "copy") };
    return pd_net_bench_run(&want);
}
