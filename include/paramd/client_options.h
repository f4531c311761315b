/* paramd/client_options.h - what a client handle is opened with. Include paramd/client.h. */
#ifndef PARAMD_CLIENT_OPTIONS_H
#define PARAMD_CLIENT_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

/* What becomes of a job of this name that exists. AUTO: the server decides by the run (client/README.md, "Runs"). YES:
 * continue it, also take over this rank from a process that lives. NO: begin anew, if no worker is connected. */
enum pd_resume { PD_RESUME_AUTO, PD_RESUME_YES, PD_RESUME_NO };

/* Server and job that a client connects to, and the behaviour of the handle. A field that is 0 or NULL is taken from
 * the environment variable that its comment names. Without that variable its default holds. All text is copied. */
typedef struct pd_client_options {
    /* Addresses of the server: "host:port", "[IPv6]:port" or ":port" (this machine), or these with the prefix "tcp://"
     * or "tls://", or "unix:///path". Without a port: 7070. Several addresses are separated by commas and tried in
     * turn. Default: the environment variable PARAMD_URL, else "tcp://127.0.0.1:7070". */
    const char *urls;
    /* Name of the job. Default: the environment variable PARAMD_JOB, else TORCHELASTIC_RUN_ID (set by torchrun) unless
     * that is "none". Else a single worker gets a name that no other process has, and several workers the name of their
     * run (`run`). "" (not NULL): an operator's connection, which belongs to no job. */
    const char *job;
    /* This process's rank, from 0 to world_size - 1, and the number of workers in the job. If world_size is 0, both are
     * taken from the environment variables RANK and WORLD_SIZE. Without these variables: rank 0 of 1 worker. */
    int rank, world_size;
    /* The job's configuration as "name=value" texts, for instance "nonfinite=reject". NULL ends the list. The pointer
     * may be NULL: no configuration. */
    const char *const *options;
    /* Optimizer rules as texts "glob optimizer name=value ...". NULL ends the list. A parameter uses the first rule
     * whose glob matches its name. A value may be a schedule: "* sgd lr=linear_warmup(peak=0.5,warmup_steps=500)". If
     * the pointer is NULL, there is one rule, "* sgd". */
    const char *const *rules;
    /* Text that names this worker in operators' displays. Default: "host:pid". */
    const char *label;
    /* Most seconds that each call with this client waits, for the server and for whatever is between. Default: 120. */
    double deadline;
    /* Makes the client add an XXH3 checksum to every frame. */
    bool checksum;
    /* Makes the client try every address once, then give up: it waits for no server, and gives no notices. Nor does it
     * connect again when its connection breaks. */
    bool impatient;
    /* Identity of this process, by which the server tells it from other processes: any number except 0 that no other
     * process has. Default: random. */
    uint64_t nonce;
    /* Called with a notice: one sentence for the user, without a newline, valid during the call. There are four kinds:
     * calls have waited 2 s without a connection; the server does not let the process into its job yet; the job is left
     * over from an earlier run; the server warns of the job ("warning of the server: ...", each once, to rank 0). The
     * thread that called the library calls it within a call that waits; it must not call the library. NULL: the notice
     * is written to standard error as "paramd: TEXT". */
    void (*notice)(void *arg, const char *text);
    /* A pointer for the program's own use: the first argument of each call of `notice`. */
    void *notice_arg;
    /* Makes the client give no notices: it neither calls `notice` nor writes to standard error. */
    bool quiet;
    /* Sends gradients and weights through the socket even if the server is on this machine. Otherwise they lie in
     * memory that both processes share if the address is a Unix socket, the server allows it (server.shared_memory) and
     * `checksum` is not set. */
    bool no_shared_memory;
    /* pd_client_open returns at once, before there is a connection. The program then calls pd_client_join, before any
     * other call, and makes that call again as long as it returns PD_DEADLINE_EXCEEDED. */
    bool join_later;
    /* Most seconds that one call waits before it returns PD_DEADLINE_EXCEEDED with a text that begins with "waited". It
     * does not count for pd_client_open and pd_client_wait. `deadline` is then no more than the time that notices speak
     * of: the program makes the call again until it has waited long enough. Default: `deadline`. */
    double slice;
    /* Number of steps whose pushes the client keeps, until they are durable: the window. If the server is restarted and
     * goes back to a checkpoint that is not older than that, the client resends them by itself, and the program does
     * not notice. Takes memory for a copy of as many steps' gradients. The server makes checkpoints at least every half
     * window of the job's smallest, if its disk can do it. 0: the client keeps none. A program with a window must
     * handle PD_REWIND, too: a process that began after the checkpoint does not have the pushes that the server needs,
     * and a slow disk may leave the last checkpoint out of reach. Worker states and the ends of steps belong to the
     * window. Outcomes and pulled weights of a push that is sent again are compared with the first ones: a difference
     * ends the handle with PD_FAILED_PRECONDITION. */
    uint32_t window;
    /* Files for tls:// addresses (client/README.md), read for each connection: the worker's token; authorities that
     * sign the server's certificate; the client's own certificate and key. Default: PARAMD_TOKEN_FILE, PARAMD_CA_FILE
     * (else the system's authorities), PARAMD_CERT_FILE and PARAMD_KEY_FILE. */
    const char *token_file, *ca_file, *cert_file, *key_file;
    /* Text that all processes of one launch share, and that no other launch has, at most 128 bytes. Only processes of
     * the job's run continue it and take a rank over from a process that lives. Default: the environment variable
     * PARAMD_RUN, else TORCHELASTIC_RUN_ID unless that is "none", else "slurm-" and SLURM_JOB_ID, else unknown. "" (not
     * NULL): unknown. */
    const char *run;
    /* An enum pd_resume: whether this process continues a job of this name or begins anew. Default: the environment
     * variable PARAMD_RESUME (1: PD_RESUME_YES, 0: PD_RESUME_NO), else PD_RESUME_AUTO. */
    int resume;
    /* Makes the client never create the job: it waits until another process has, and agrees to that job's start_step
     * and seed. */
    bool joins;
} pd_client_options;

#endif
