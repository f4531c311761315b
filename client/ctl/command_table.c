/* command_table.c - the table of the paramctl commands that ask a daemon, or read its files. A new command needs a row
 * here and a function. */
#include "commands.h"

static const pd_command_option watch_options[] = { PD_WATCH_OPTION, { NULL } };

static const pd_command_option ping_options[] = {
    { "quiet", 'q', PD_OPTION_FLAG, NULL, .help = "Print nothing: the exit status is the answer" }, { NULL }
};

static const pd_command_option dashboard_options[] = {
    { "port", 0, PD_OPTION_NUMBER, "PORT", .help = "Port of 127.0.0.1 (default: a free one)", .preset = "0", .least = 0,
      .most = 65535 },
    { "open", 0, PD_OPTION_FLAG, NULL, .help = "Open the page in the desktop's browser (xdg-open)" },
    { NULL }
};

static const pd_command_option top_options[] = { { "sort", 0, PD_OPTION_CHOICE, "name|speed|memory|traffic",
                                                   .help = "Order of the jobs", .preset = "name" },
                                                 PD_WATCH_OPTION,
                                                 { NULL } };

static const pd_command_option params_options[] = {
    { "verbose", 'v', PD_OPTION_FLAG, NULL,
      .help = "Also show axes, remarks, scalars of the last round, and the error of each root" },
    PD_WATCH_OPTION,
    { NULL }
};

static const pd_command_option export_options[] = {
    { "state", 0, PD_OPTION_FLAG, NULL,
      .help = "Export optimizer state too; the job is quiesced at its step until the file is written" },
    { "form", 0, PD_OPTION_TEXT, "FORM",
      .help = "Weights to export: train, those that are trained, or eval, those to evaluate with (default: eval, with "
              "--state train)" },
    { "force", 'f', PD_OPTION_FLAG, NULL, .help = "Replace FILE if it exists" },
    { "wait", 0, PD_OPTION_SECONDS, "SECONDS",
      .help = "Time for other exports to end, and for all parameters to reach the same step, at most 600",
      .preset = "30" },
    { "end-other", 0, PD_OPTION_FLAG, NULL,
      .help = "End another export of the job that is under way; for admins of the job" },
    { NULL }
};

static const pd_command_option checkpoint_options[] = {
    { "step", 0, PD_OPTION_NUMBER, "STEP",
      .help = "Least step that the checkpoint must have (default: the job's present step)", .least = 1,
      .most = INT64_MAX },
    { "wait", 0, PD_OPTION_SECONDS, "SECONDS", .help = "Time limit for the checkpoint to reach the disk, at most 600",
      .preset = "30" },
    { NULL }
};

static const pd_command_option go_back_options[] = {
    { "step", 0, PD_OPTION_NUMBER, "STEP", .help = "Step of the checkpoint (default: the newest checkpoint)",
      .least = 0, .most = INT64_MAX },
    { NULL }
};

static const pd_command_option reset_options[] = {
    { "keep-counts", 0, PD_OPTION_FLAG, NULL,
      .help = "Keep the step counts, which schedules and bias corrections use" },
    { NULL }
};
static const pd_command_option import_options[] = {
    { "partial", 0, PD_OPTION_FLAG, NULL,
      .help = "Skip names that the job does not know, and keep state that the file does not have" },
    { "verbose", 'v', PD_OPTION_FLAG, NULL, .help = "List all names that are unknown or missing" },
    { NULL }
};

static const pd_command_option set_options[] = {
    { "from", 0, PD_OPTION_NUMBER, "STEP",
      .help = "First step with the new value (default: each parameter's next step that has not begun)", .least = 1,
      .most = INT64_MAX },
    { NULL }
};

static const pd_command_option settings_options[] = {
    { "verbose", 'v', PD_OPTION_FLAG, NULL,
      .help = "List every parameter; without this option those with equal values share a line" },
    PD_WATCH_OPTION,
    { NULL }
};

static const pd_command_option drain_options[] = { { "within", 0, PD_OPTION_SECONDS, "SECONDS",
                                                     .help = "Time limit for open rounds to close", .preset = "60" },
                                                   { NULL } };

static const pd_command_option restore_options[] = {
    { "job", 0, PD_OPTION_TEXT, "JOB", .help = "Name of the job" },
    { "step", 0, PD_OPTION_NUMBER, "STEP", .help = "Step of the checkpoint, as `paramctl checkpoints DIR' lists it",
      .least = 0, .most = INT64_MAX },
    { "creator", 0, PD_OPTION_TEXT, "HEX",
      .help = "Creator of the job, the end of its directory's name: only needed if several jobs have had this name" },
    { NULL }
};

#define CHECKPOINTS_DETAILS                                                                                            \
    "DIR is a daemon's server.state_dir, or a copy of it; no daemon is asked, and one may be running. STATE is: "      \
    "valid, if the manifest is intact and all files have their sizes (`paramctl verify' reads all bytes); damaged; "   \
    "set aside by `paramctl restore'; job ended, so that a restart does not restore it. Each checkpoint is a "         \
    "directory, whose weights.safetensors any reader of safetensors opens: a copy of this file is an export of the "   \
    "weights."

#define VERIFY_DETAILS                                                                                                 \
    "DIR is a daemon's server.state_dir, or the directory of one checkpoint. Reads every byte and compares it with "   \
    "the manifest's sizes and checksums (XXH3). Prints which file is damaged and what differs; the exit status is "    \
    "then 1. A checkpoint that a running daemon removes meanwhile counts as damaged."

#define RESTORE_DETAILS                                                                                                \
    "DIR is the server.state_dir of a stopped daemon. Newer checkpoints of the job are renamed to aside-STEP, and "    \
    "stay until you remove them. A job that has ended is restored, too. The checkpoint is verified first."

#define ROLES_DETAILS                                                                                                  \
    "FILE is what a daemon's server.roles names; no daemon is asked. IDENTITY is user:UID for the peers of Unix "      \
    "sockets, token:ID, certificate:NAME, or anyone. Prints the role for JOB and for the whole server, and the "       \
    "quota, each with the line of FILE that decides."

#define EXPORT_DETAILS                                                                                                 \
    "FILE is a safetensors file; - is standard output. It appears under its name when it is complete. Weights have "   \
    "the names of their parameters, float32. With --state a parameter NAME also has NAME.SLOT and "                    \
    "NAME.block_B.SLOT.I, as `paramctl state JOB' lists them, NAME.step, the steps that its optimizer has counted, "   \
    "and NAME.pending_root.K, roots that are computed and used in later steps.\n"                                      \
    "The optimizers schedule_free and gpa evaluate an average of their weights. --form eval writes this average, and " \
    "the job is quiesced until the file is written. --form train writes the weights that gradients belong to. For "    \
    "all "                                                                                                             \
    "other optimizers both are the same.\n"                                                                            \
    "To continue from such a file: start a job with the same rules and start_step = the step of the export, give it "  \
    "the weights of the file, and then `paramctl import-state JOB FILE'."

#define CHECKPOINT_DETAILS                                                                                             \
    "Prints step, size and time when the checkpoint is on the disk. Its directory is named by this step: with "        \
    "several fragments that of the one that is furthest behind. Daemons whose steps differ, since not every rank "     \
    "counts in each, have checkpoints of different steps: the lowest and the highest are printed. Training "           \
    "continues meanwhile. The daemon needs a directory for checkpoints (server.state_dir), and the job's key "         \
    "durability must not be none. After a restart the daemon resumes each job from its last checkpoint."

#define IMPORT_DETAILS                                                                                                 \
    "FILE is a safetensors file. Names that it may have, for a parameter NAME:\n"                                      \
    "NAME.SLOT, NAME.block_B.SLOT.I, NAME.step, NAME.pending_root.K: as `paramctl state JOB' lists them and "          \
    "`paramctl export' writes them.\n"                                                                                 \
    "NAME[\"block_B\", \"shampoo\", \"factor_matrices\", I, \"quantized_values\"], NAME[\"step\"]: "                   \
    "flat keys of Meta's distributed_state_dict.\n"                                                                    \
    "count, stats/NAME/momentum/quantized, stats/NAME/statistics/I: "                                                  \
    "paths into scalable_shampoo's ShampooState; integers with their bucket_size and diagonal.\n"                      \
    "step, param_states/NAME/v_row (v_col, v, m): T5X's Adafactor.\n"                                                  \
    "count, update_counter, mu/NAME, Qs_preconditioners/NAME/I: distributed_kron.\n"                                   \
    "Paths may be joined by / or ., or be jax.tree_util.keystr's; they may begin with an index or a word like "        \
    "opt_state, and NAME may have either separator.\n"                                                                 \
    "The command ends when the state is in the job and, if this has checkpoints, on the disk. Of several daemons "     \
    "each "                                                                                                            \
    "imports its part by itself: if one fails, call the command again when all answer."

#define TOKEN_DETAILS                                                                                                  \
    "`paramctl token new ID' prints a line with a new random key for ID, a worker or a person: letters, digits and "   \
    ". _ @ -. The line goes into the daemon's file of tokens (tls.tokens), and into the worker's "                     \
    "(PARAMD_TOKEN_FILE). With it, worker and daemon authenticate each other without certificates. No daemon is "      \
    "asked.\n"                                                                                                         \
    "An ID may have two keys, so a key is replaced while workers train: add the new line to the daemon's file and "    \
    "reload it, put the new line into the worker's file, then remove the old line."

#define MIRROR_DETAILS                                                                                                 \
    "MIRROR is a daemon's server.mirror. Copies the intact checkpoints and the WAL of each job that has not ended to " \
    "STATE_DIR, which the next daemon gets as server.state_dir, and verifies every byte. A job appears there when it " \
    "is complete. WAL TO is the last step that the WAL adds to the checkpoint of STEP. An older state of a job in "    \
    "STATE_DIR is replaced; a newer one is refused, and nothing changes then. No daemon may use STATE_DIR; one may "   \
    "still write to MIRROR."

#define DAEMONS_DETAILS                                                                                                \
    "Local daemons are those that Python programs start by themselves, one for each run. JOBS has the name and the "   \
    "step of each job. `paramctl -s NAME ...' talks to the daemon of that name; its last nine characters may be left " \
    "out. Its log and the dashboard's socket are in the same folder."

#define DASHBOARD_DETAILS                                                                                              \
    "Serves the page of a local daemon (-s NAME, or the only one) at an address of this machine, and prints it. It "   \
    "runs until Ctrl-C or the end of the daemon. Every user of this machine can look at the page meanwhile, and "      \
    "nobody can change anything. A daemon with http.listen serves the page by itself."

#define RESET_DETAILS                                                                                                  \
    "Recovers a job whose optimizer refuses all steps because its state is no longer finite. Every parameter whose "   \
    "name matches PATTERN (* matches all) gets its initial state; weights stay. Parameters that count their steps "    \
    "together, as those of Shampoo do, are reset together. Step counts become the job's start_step, so schedules "     \
    "start again. A job with checkpoints writes one at once."

#define GO_BACK_DETAILS                                                                                                \
    "The daemon reads the whole checkpoint while the job trains on; if it is damaged, nothing changes. Then the job "  \
    "continues from it, as if the daemon had been restarted with it. Workers connect again by themselves: those "      \
    "whose "                                                                                                           \
    "resend window reaches back send their pushes again, the others get PD_REWIND (Python: Rewind), and go on from "   \
    "the checkpoint's step. Later checkpoints and the WAL are set aside, as `paramctl restore' does, which needs a "   \
    "stopped daemon. Jobs of several servers go back together by themselves: use this command on each server only to " \
    "repair a job by hand."

#define KICK_DETAILS                                                                                                   \
    "The worker's process gets the error ABORTED. What the job then does is its key on_lost_worker: shrink: it "       \
    "continues with the others; wait: it waits for another worker of this rank; fail: it ends. `paramctl workers "     \
    "JOB' "                                                                                                            \
    "lists the ranks."

#define ROUNDS_DETAILS                                                                                                 \
    "STATE is idle (no contribution has come), open (a quorum is missing), grace (the quorum has come, and the step "  \
    "waits for others, for as long as it says; with grace = auto also the rank that can wait least), or stepping "     \
    "(the "                                                                                                            \
    "last set's step is being taken). WHOLE tells how many of the expected workers have contributed to all "           \
    "parameters, QUORUM how many must. LAST SET is the last step for which it is decided which ranks count, these "    \
    "ranks, and with ages which of them have contributed to an earlier step, by how many."

#define MEMBERS_DETAILS                                                                                                \
    "STATE is expected or welcome while a step is open: the step waits for the worker, or takes it if it comes in "    \
    "time. A rank that is lost stays a member for the job's reconnect_grace, or until it comes back. STEP is the "     \
    "step "                                                                                                            \
    "that the worker works on, with + once its contribution has come. COUNTED, SHARE (of the steps), LATE (its "       \
    "contributions that came too late) and AGE (by how many steps they were old, on average) count from the start of " \
    "the daemon. PATIENCE is how long the worker can do without an answer, which grace = auto goes by."

#define SHARDS_DETAILS                                                                                                 \
    "Give the list of daemons that the workers have: --server \"tls://a:7070 tls://b:7070\" or PARAMD_URL. LIFE is "   \
    "the beginning of a number that changes when a daemon creates the job or loads it from its disk. OF MEAN is the "  \
    "job's memory on this shard over the mean of all shards, STEPPING the mean time of a step's clipping and "         \
    "optimizers, LOOP 99 % how long the daemon's loop thread is busy at a time. Below the table stands what does not " \
    "fit together: another order of the list, daemons of different runs, different maps of the parameters, a shard "   \
    "that is behind or has no owner; the exit status is then 1.\n"                                                     \
    "Daemons with an engine (cluster.engine) have a table of the shards, which is printed below: the owner of each, "  \
    "its TENURE, a number that grows with each new owner, and how long its LEASE lasts; and the spares. The address "  \
    "of one of these daemons suffices: this command, and all others about jobs, then ask all of them."

#define SET_DETAILS                                                                                                    \
    "Every parameter whose name matches PATTERN (* matches all) takes those values that its optimizer has, or "        \
    "nothing changes. VALUE is a number, flag or schedule, as in a job's rules, and takes precedence over values "     \
    "sent with a push; NAME= withdraws a value that was set before."

const pd_command pd_commands[] = {
    { "ping", "", "Ask whether the daemon answers", NULL, ping_options, 0, 0, .run = pd_run_ping },
    { "daemons", "", "List this user's local daemons, their jobs and steps", DAEMONS_DETAILS, watch_options, 0, 0,
      .run = pd_run_daemons },
    { "dashboard", "", "Show the dashboard of a local daemon in a browser", DASHBOARD_DETAILS, dashboard_options, 0, 0,
      .run = pd_run_dashboard },
    { "status", "", "Show the daemon's memory and traffic, and its jobs", NULL, watch_options, 0, 0,
      .run = pd_run_status },
    { "top", "", "Show speed, loss, waits, roots, memory and traffic of each job while they change",
      "Traffic is measured between two answers, so the first figures appear after half a second. ROOTS shows how many "
      "preconditioner tasks are outstanding and how many roots fail. On a terminal the selected job is described below "
      "the table: what a step spends its time on, who was last to contribute, roots, memory, traffic and the last "
      "checkpoint. The keys are: q quits; arrows (or j and k) select a job; n, s, m and t sort by name, speed, memory "
      "and traffic. Elsewhere it prints one table, or with --watch one after the other.",
      top_options, 0, 0, .draws = true, .run = pd_run_top },
    { "jobs", "[JOB-GLOB]", "List jobs: optimizer, workers, step, steps per second, loss, state and memory",
      "MEMORY is what the daemon counts against limits.max_total_bytes: `paramctl plan' forecasts it. A job whose "
      "DURABLE is not - also holds memory for a checkpoint.",
      watch_options, 0, 1, .run = pd_run_jobs },
    { "shards", "[JOB]", "List the daemons of a cluster, and whether they agree about a job", SHARDS_DETAILS,
      watch_options, 0, 1, .run = pd_run_shards },
    { "params", "JOB [PARAM-GLOB]", "List a job's parameters and the ranks they wait for", NULL, params_options, 1, 2,
      .run = pd_run_params },
    { "workers", "JOB", "List a job's workers, and which of them steps wait for",
      "LAST is the share of the steps in which the worker was the last one to contribute, and LATE BY by how much it "
      "was then later than the worker before it, on average. Both count from the start of the daemon.",
      watch_options, 1, 1, .run = pd_run_list },
    { "rounds", "[JOB]", "List the steps that jobs collect, and whom these wait for", ROUNDS_DETAILS, watch_options, 0,
      1, .run = pd_run_rounds },
    { "members", "JOB", "List a job's members, and how often each of them counts", MEMBERS_DETAILS, watch_options, 1, 1,
      .run = pd_run_members },
    { "roots", "JOB [PARAM-GLOB]", "List the inverse roots of a job's blocks", NULL, watch_options, 1, 2,
      .run = pd_run_list },
    { "state", "JOB [PARAM-GLOB]", "List the tensors of a job's optimizer state", NULL, watch_options, 1, 2,
      .run = pd_run_state },
    { "export", "JOB FILE", "Write a job's weights, and its optimizer state, to a file", EXPORT_DETAILS, export_options,
      2, 2, .run = pd_run_export_command },
    { "checkpoint", "JOB", "Write a checkpoint of a job to the daemon's disk now", CHECKPOINT_DETAILS,
      checkpoint_options, 1, 1, .run = pd_run_checkpoint_command },
    { "checkpoints", "DIR", "List the checkpoints in a directory, without a daemon", CHECKPOINTS_DETAILS, watch_options,
      1, 1, .run = pd_run_checkpoints },
    { "verify", "DIR", "Read checkpoints and report damaged ones, without a daemon", VERIFY_DETAILS, NULL, 1, 1,
      .run = pd_run_verify },
    { "restore", "DIR", "Choose the checkpoint that the daemon's next start loads", RESTORE_DETAILS, restore_options, 1,
      1, .run = pd_run_restore },
    { "mirror", "fetch MIRROR STATE_DIR", "Make a state directory from a mirror, without a daemon", MIRROR_DETAILS,
      NULL, 3, 3, .run = pd_run_mirror },
    { "roles", "check FILE IDENTITY JOB", "Show what an identity may do, without a daemon", ROLES_DETAILS, NULL, 4, 4,
      .run = pd_run_roles },
    { "import-state", "JOB FILE", "Put saved optimizer state into a job", IMPORT_DETAILS, import_options, 2, 2,
      .run = pd_run_import_state },
    { "reset-state", "JOB PATTERN", "Reset optimizer state to its initial values", RESET_DETAILS, reset_options, 2, 2,
      .run = pd_run_reset_state },
    { "set", "JOB PATTERN NAME=VALUE...", "Set hyperparameters while a job runs", SET_DETAILS, set_options, 3,
      2 + PD_MOST_SETTINGS, .run = pd_run_set },
    { "settings", "JOB [PARAM-GLOB]", "List the values that operators have set in a job", NULL, settings_options, 1, 2,
      .run = pd_run_settings },
    { "token", "new ID", "Make a key for tls:// addresses", TOKEN_DETAILS, NULL, 2, 2, .run = pd_run_token },
    { "go-back", "JOB", "Let a job continue from an earlier checkpoint", GO_BACK_DETAILS, go_back_options, 1, 1,
      .run = pd_run_go_back },
    { "kick", "JOB RANK", "Remove a worker from a job, as if it had left for good", KICK_DETAILS, NULL, 2, 2,
      .run = pd_run_kick },
    { "drop", "JOB", "End a job; its workers get an error", NULL, NULL, 1, 1, .run = pd_run_drop },
    { "drain", "", "Finish the open steps and begin no new ones", NULL, drain_options, 0, 0, .run = pd_run_drain },
    { "shutdown", "", "Stop the daemon, and wait until it has ended",
      "Open rounds may close within the daemon's server.drain_timeout; meanwhile this command prints the ranks that "
      "the daemon waits for. Jobs with checkpoints then write a last one.",
      NULL, 0, 0, .run = pd_run_shutdown },
    { 0 }
};
