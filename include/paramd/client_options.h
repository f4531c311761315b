/* paramd/client_options.h - declares the options of pd_client_open. Programs include paramd/client.h, which includes
 * it. */
#ifndef PARAMD_CLIENT_OPTIONS_H
#define PARAMD_CLIENT_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

/* What pd_client_open does if a job of this name exists. AUTO: the server decides by the run (client/README.md,
 * "Runs"). YES: continue the job, and take this rank over even from a living process. NO: begin the job anew, if no
 * worker is connected. */
enum pd_resume { PD_RESUME_AUTO, PD_RESUME_YES, PD_RESUME_NO };

/* Error feedback: what quantizing has rounded away of a gradient is added to the parameter's next one, so that nothing
 * is lost over the steps. It takes two float32 numbers for each element that this rank pushes.
 *
 * ON: what was rounded away of pushes that counted is added. Pushes that were late, skipped or refused leave it as it
 * was. OFF: nothing is added. CARRY: as ON, and all of a late push is added to the next one, as if it had not been
 * pushed; say so there (pd_push_options.carried). If the shares of such data are leased to others now, the rest becomes
 * 0 (pd_push_options.lost). For programs that push differences from weights, ON is right: such a difference contains
 * late ones anyway. */
enum pd_feedback_mode { PD_FEEDBACK_ON, PD_FEEDBACK_OFF, PD_FEEDBACK_CARRY };

/* In place of a rank: the server chooses it, the lowest that is free. pd_welcome.rank says which one this process got,
 * and keeps when it connects again. */
enum { PD_ANY_RANK = -1 };

/* Server and job that a client connects to, and the behaviour of the handle. A field that is 0 or NULL is taken from
 * the environment variable that its comment names. Without that variable its default holds. All text is copied. */
typedef struct pd_client_options {
    /* Addresses of the server: "host:port", "[IPv6]:port" or ":port" (this machine), or these with the prefix "tcp://"
     * or "tls://", or "unix:///path". Without a port: 7070. Several addresses are separated by commas and tried in
     * turn. Default: the environment variable PARAMD_URL, else "tcp://127.0.0.1:7070".
     *
     * Servers that share the job are separated by blanks (client.h, "Clusters"): "tls://a:7070 tls://b:7070,tls://b2".
     * A range of numbers stands for several servers: "tcp://node{00..15}", "tcp://10.0.0.5:{7070..7073}". */
    const char *urls;
    /* Name of the job. Default: the environment variable PARAMD_JOB, else TORCHELASTIC_RUN_ID (set by torchrun) unless
     * that is "none". Else a single worker gets a name that no other process has, and several workers the name of their
     * run (`run`). "" (not NULL): an operator's connection, which belongs to no job. */
    const char *job;
    /* This process's rank, from 0 to world_size - 1, and the number of workers in the job. If world_size is 0, both are
     * taken from the environment variables RANK and WORLD_SIZE. Without these variables: rank 0 of 1 worker. If `rank`
     * is PD_ANY_RANK, the server chooses the rank, and world_size (or WORLD_SIZE) is the number of workers that the job
     * begins with. */
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
    /* Most seconds that each call with this client waits for the server, the network and name servers. Default: 120. */
    double deadline;
    /* Makes the client add an XXH3 checksum to every frame. */
    bool checksum;
    /* Makes the client try every address once, then give up: it waits for no server, and gives no notices. Nor does it
     * connect again when its connection breaks. A server that accepts the connection and does not answer is given up
     * after a share of `deadline` if there are more addresses. */
    bool impatient;
    /* Identity of this process, by which the server tells it from other processes: any number except 0 that no other
     * process has. Default: random. */
    uint64_t nonce;
    /* Called with a notice: one sentence for the user, without a newline, valid during the call. There are four kinds:
     * calls have waited 2 s without a connection; the server does not let the process into its job yet; the job is left
     * over from an earlier run; the server warns about the job ("warning of the server: ...", each once, to the job's
     * leader: pd_client_leads). A library call that waits calls `notice` in its own thread. `notice` must not call the
     * library. NULL: the notice is written to standard error as "paramd: TEXT". */
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
    /* Most seconds that one call waits before it returns PD_DEADLINE_EXCEEDED with a text that begins with "waited".
     * The program makes the call again until it has waited long enough; notices still name `deadline`. pd_client_open
     * and pd_client_wait do not use this limit. Default: `deadline`. */
    double slice;
    /* The window: most steps whose pushes, worker states and pd_client_close_step the client keeps, until they are
     * durable. 0: it keeps none. It needs memory for a copy of the gradients of so many steps.
     *
     * If a restarted server goes back to a checkpoint that is at most so many steps old, the client sends the steps
     * after the checkpoint again, and the program does not notice. The client compares the outcomes and pulled weights
     * with those of the first time; a difference ends the handle with PD_FAILED_PRECONDITION.
     *
     * So that the window suffices, the server tries to make a checkpoint at least every w/2 steps, where w is the
     * smallest window of the job's workers. A program with a window must still handle PD_REWIND: the disk may be too
     * slow for that, and a process that began after the checkpoint does not have the pushes that the server needs. */
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
    /* Number of this worker's group, from 1. In jobs where not every rank needs to count in a step, the ranks of one
     * group count together or not at all (for instance the ranks of one FSDP replica). 0: a group of its own. */
    uint32_t group;
    /* Number of this launch, which rises each time that the job's workers are formed anew: a counter, or a time. A
     * launch with a higher number takes the job over, also with another world_size, as soon as no step is under way.
     * Processes of an earlier one get PD_FAILED_PRECONDITION. 0: not known. */
    uint64_t generation;
    /* Number of shares of the data (pd_client_share) that this worker wants for each push; 0: it uses none. A push that
     * wants another number says so (pd_push_options.wants). */
    uint32_t shares;
    /* An enum pd_feedback_mode: what happens to that part of a gradient which quantizing (push_dtype PD_INT8 or
     * PD_INT4) rounds away. Default: PD_FEEDBACK_ON. */
    int feedback;
    /* Algorithm by which TCP adapts to the rate of the link, such as "bbr". PD_INVALID_ARGUMENT: the kernel does not
     * have it, or does not allow it to this process. Default: PARAMD_TCP_CONGESTION, else the kernel's own, and "reno"
     * without TLS towards a server on the same machine. */
    const char *tcp_congestion;
} pd_client_options;

#endif
