/* programs.c - the table of the programs that paramctl executes for some commands, and where they are installed. */
#include "programs.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const pd_command_option plan_options[] = {
    { "rule", 0, PD_OPTION_TEXT, "RULE",
      .help = "\"GLOB OPTIMIZER name=value ...\", as a job gives it; may be repeated, the first that matches a name "
              "wins (default: \"* sgd\")" },
    { "workers", 0, PD_OPTION_NUMBER, "W", .help = "Workers of the job", .preset = "1", .least = 0,
      .most = UINT32_MAX },
    { "fragments", 0, PD_OPTION_NUMBER, "F", .help = "Fragments of the job's parameters", .preset = "1", .least = 1,
      .most = 256 },
    { "option", 0, PD_OPTION_TEXT, "KEY=VALUE",
      .help = "An option of the job, as its workers give it, such as aggregate=median or durability=checkpoint; may be "
              "repeated" },
    { "push-dtype", 0, PD_OPTION_CHOICE, "any|float32|float16|bfloat16|int8|int4",
      .help = "Element type of pushed gradients, if all workers declare it: contributions that are collected take less",
      .preset = "any" },
    { "threads", 0, PD_OPTION_NUMBER, "T", .help = "Threads of the daemon that take optimizer steps, its step_threads",
      .preset = "1", .least = 1, .most = 1024 },
    { "pool-threads", 0, PD_OPTION_NUMBER, "P", .help = "Threads of the daemon's preconditioner pool, its pool_threads",
      .preset = "1", .least = 1, .most = 60 },
    { "shards", 0, PD_OPTION_TEXT, "N,N...",
      .help = "Forecast the job on these numbers of daemons instead, such as 1,4,16: memory, traffic and work of the "
              "one that has most. Options of the job are then those of Python: nonfinite_scope=job" },
    { "rate", 0, PD_OPTION_NUMBER, "MB/S",
      .help = "With --shards: megabytes that a daemon carries in a second, in and out together; about 2000 over TCP, "
              "700 over TLS",
      .preset = "2000", .least = 1, .most = 1000000 },
    { "gflops", 0, PD_OPTION_NUMBER, "N",
      .help = "With --shards: floating-point operations of a thread in a second, in 10^9", .preset = "100", .least = 1,
      .most = 1000000 },
    { "verbose", 'v', PD_OPTION_FLAG, NULL,
      .help = "List every parameter, slot and task; without this option similar ones share a line" },
    { NULL }
};

static const pd_command_option replay_options[] = {
    { "local", 0, PD_OPTION_FLAG, NULL, .help = "Run the optimizer in this process instead of through a daemon" },
    { "state", 0, PD_OPTION_FLAG, NULL, .help = "With --local: also compare recorded optimizer state" },
    { "verbose", 'v', PD_OPTION_FLAG, NULL, .help = "Also show each parameter's largest error" },
    { NULL }
};

static const pd_command_option bench_options[] = {
    { "workers", 0, PD_OPTION_NUMBER, "W", .help = "Client connections, one thread each", .preset = "4", .least = 1,
      .most = 256 },
    { "tensors", 0, PD_OPTION_NUMBER, "N", .help = "Tensors that each connection pushes and pulls in a round",
      .preset = "25", .least = 1, .most = 1 << 20 },
    { "floats", 0, PD_OPTION_NUMBER, "F", .help = "Elements of a tensor", .preset = "1048576", .least = 1,
      .most = 1ll << 32 },
    { "rounds", 0, PD_OPTION_NUMBER, "R", .help = "Rounds measured, at least 5", .preset = "20", .least = 5,
      .most = 100000 },
    { "transport", 0, PD_OPTION_CHOICE, "tcp|tls|unix|shm",
      .help = "How payloads travel: over TCP, over a Unix socket, or in memory shared over a Unix socket",
      .preset = "tcp" },
    { "beside", 0, PD_OPTION_CHOICE, "none|tcp|tls|unix|shm",
      .help = "Another transport, whose rounds alternate with these", .preset = "none" },
    { "copy", 0, PD_OPTION_FLAG, NULL,
      .help = "With shm: gradients are in the worker's own memory and are copied, not in pd_client_buffer" },
    { NULL }
};

static const pd_command_option doctor_options[] = {
    { "config", 'c', PD_OPTION_TEXT, "FILE",
      .help = "The daemon's configuration file (default: the configuration of the daemon that is asked, else "
              "/etc/paramd/paramd.conf if it is there, else none)" },
    { "state-dir", 0, PD_OPTION_TEXT, "DIR",
      .help = "Directory for checkpoints whose disk is measured (default: the configuration's)" },
    { "root", 0, PD_OPTION_TEXT, "DIR", .help = "Read DIR/proc and DIR/sys instead of /proc and /sys" },
    { NULL }
};

static const pd_command_option reshard_options[] = {
    { "shards", 0, PD_OPTION_NUMBER, "M", .help = "New number of daemons", .least = 1, .most = 64 },
    { "job", 0, PD_OPTION_TEXT, "JOB", .help = "Name of the job (default: all jobs that have not ended)" },
    { "step", 0, PD_OPTION_NUMBER, "STEP",
      .help = "Step of the checkpoints (default: the newest of which all directories have one)", .least = 0,
      .most = INT64_MAX },
    { "drop-log", 0, PD_OPTION_FLAG, NULL,
      .help = "Leave out the steps that the WAL has after the checkpoints (durability = log)" },
    { NULL }
};

#define RESHARD_DETAILS                                                                                                \
    "STATE_DIR is the server.state_dir of a stopped daemon: give those of all daemons that the job is on. Writes the " \
    "directories OUT/0 to OUT/M-1, one for each daemon in the order of the new list of addresses. Start the daemons "  \
    "with them, and the workers with the new list and the same rules and options. They go on from the step of the "    \
    "checkpoints, with the bits that the old daemons would have computed.\n"                                           \
    "All files are compared with their checksums first. The old directories stay as they are. OUT appears when it is " \
    "complete; until then it is OUT.part. Memory is needed for a few copies of the largest parameter's state only. "   \
    "Stop "                                                                                                            \
    "daemons with `paramctl shutdown', which writes checkpoints of one step, their last."

#define DOCTOR_DETAILS                                                                                                 \
    "Needs no daemon: it runs the program paramd beside paramctl, reads /proc and /sys, and measures the disk and "    \
    "the loopback interface for 0.2 s each. With --server or PARAMD_URL it asks that daemon, too, and examines what "  \
    "that daemon's configuration names, unless --config names another. STATUS is ok, "                                 \
    "warn or fail; the exit status is 1 if a check fails. Limits are those of this shell: run it as the daemon's "     \
    "user."

const pd_command pd_programs[] = {
    [PD_PROGRAM_OPTIMIZERS] = { "optimizers", "[NAME]", "List optimizers, or the hyperparameters of one",
                                "Lists the optimizers of this release, without a daemon. With --server it asks that "
                                "daemon, which may be of another release.",
                                NULL, 0, 1 },
    [PD_PROGRAM_PLAN] = { "plan", "FILE",
                          "Forecast what a model's optimizer costs in memory and work, without a daemon",
                          "FILE has the names and shapes of the parameters; - is standard input. It is one of\n"
                          "text: a line for each parameter, `wte 50257 768' or `wte (50257, 768)', and "
                          "`axes=vocab,embed' at its end names the dimensions; # begins a comment;\n"
                          "JSON: {\"wte\": [50257, 768], ...};\n"
                          "a safetensors file, of which only the header is read.\n"
                          "`memory' is the number that `paramctl jobs' shows as MEMORY for such a job on a daemon with "
                          "these threads. A daemon with a directory for checkpoints counts what the last line adds.",
                          plan_options, 1, 1 },
    [PD_PROGRAM_REPLAY] = { "replay", "TRACE|FOLDER...", "Replay recorded runs of reference optimizers and compare",
                            NULL, replay_options, 1, 1 << 20 },
    [PD_PROGRAM_BENCH] = { "bench", "net", "Measure throughput through a daemon beside bare TCP", NULL, bench_options,
                           1, 1 },
    [PD_PROGRAM_DOCTOR] = { "doctor", "", "Check this machine and the installation, and give advice", DOCTOR_DETAILS,
                            doctor_options, 0, 0 },
    [PD_PROGRAM_RESHARD] = { "reshard", "OUT STATE_DIR...",
                             "Write the state directories of another number of daemons, without a daemon",
                             RESHARD_DETAILS, reshard_options, 2, 65 },
    { 0 }
};

int pd_sibling_path(char *path, size_t size, const char *name, pd_error *err)
{
    ssize_t n = readlink("/proc/self/exe", path, size - strlen(name) - 1);

    if (n <= 0) return pd_fail(err, PD_UNAVAILABLE, "cannot determine this program's path: %s", strerror(errno));
    path[n] = '\0';
    strcpy(strrchr(path, '/') + 1, name);
    if (access(path, X_OK) != 0) return pd_fail(err, PD_UNAVAILABLE, "%.400s: %s", path, strerror(errno));
    return PD_OK;
}
