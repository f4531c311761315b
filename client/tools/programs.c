/* programs.c - the table of programs that paramctl executes. */
#include "programs.h"

const pd_command pd_programs[] = {
    [PD_PROGRAM_REPLAY] = { "replay", "TRACE|FOLDER...", "Replay recorded runs, compare the weights",
                            1, 1 << 20, NULL },
    [PD_PROGRAM_PLAN]   = { "plan",   "FILE",            "Tell what a model's optimizer costs",       1, 1, NULL },
    [PD_PROGRAM_BENCH]  = { "bench",  "net",             "Measure throughput beside bare TCP",        1, 1, NULL },
    { 0 }
};
