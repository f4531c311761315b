/* info_reply.c - answers operators: fills the messages of lists, of the status, and of the result of Set. */
#include "info_reply.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { PAGE_BYTES = PD_MAX_HEADER_BYTES - 1024 };

/* ---- entries ---- */

static void fill_job(Paramd__JobInfo *to, const pd_job_info *from)
{
    paramd__job_info__init(to);
    to->name = (char *)from->name;
    to->state = (char *)from->state;
    to->world_size = from->world_size;
    to->connected = from->connected;
    to->params = from->params;
    to->elements = from->elements;
    to->weight_bytes = from->weight_bytes;
    to->state_bytes = from->state_bytes;
    to->committed_bytes = from->committed_bytes;
    to->held_bytes = from->held_bytes;
    to->step_least = from->step_least;
    to->step_most = from->step_most;
    to->contributions = from->contributions;
    to->steps = from->steps;
    to->skipped = from->skipped;
    to->refused = from->refused;
    to->duplicates = from->duplicates;
    to->roots_due = from->roots_due;
    to->roots_adopted = from->roots_adopted;
    to->roots_failed = from->roots_failed;
    to->roots_replaced = from->roots_replaced;
    to->root_waits = from->root_waits;
    to->refused_steps = from->refused_steps;
    to->gradient_norm = from->gradient_norm;
    to->clipped_steps = from->clipped_steps;
}

/* Copies the dimensions to `at`. */
static uint64_t *fill_shape(uint64_t *at, size_t *n, const pd_shape *from)
{
    for (int i = 0; i < from->rank; i++) at[i] = (uint64_t)from->dim[i];
    *n = (size_t)from->rank;
    return at;
}

static void fill_param(Paramd__ParamInfo *to, const pd_param_info *from, uint64_t *shape)
{
    paramd__param_info__init(to);
    to->name = (char *)from->name;
    to->optimizer = (char *)from->optimizer;
    to->shape = fill_shape(shape, &to->n_shape, &from->shape);
    to->step = from->step;
    to->version = from->version;
    to->count = from->count;
    to->skipped = from->skipped;
    to->contributions = from->contributions;
    to->state_bytes = from->state_bytes;
    to->initialised = from->initialised;
    to->missing = (char *)from->missing;
    to->roots = from->roots;
    to->roots_failing = from->roots_failing;
    to->roots_failed = from->roots_failed;
    to->root_waits = from->root_waits;
    to->refused_steps = from->refused_steps;
    to->root_error = from->root_error;
    to->note = (char *)from->note;
    to->axes = (char *)from->axes;
    to->aggregate = (char *)from->aggregate;
    to->gather_bytes = from->gather_bytes;
}

static void fill_root(Paramd__RootInfo *to, const pd_root_info *from, uint64_t *shape)
{
    paramd__root_info__init(to);
    to->param = (char *)from->param;
    to->root = (char *)from->root;
    to->shape = fill_shape(shape, &to->n_shape, &from->shape);
    to->condition = from->condition;
    to->error = from->error;
    to->kept_error = from->kept_error;
    to->age = from->age;
    to->ms = from->ms;
    to->adopted = from->adopted;
    to->failed = from->failed;
    to->failing = from->failing;
}

static void fill_worker(Paramd__WorkerInfo *to, const pd_worker_info *from)
{
    paramd__worker_info__init(to);
    to->rank = from->rank;
    to->label = (char *)from->label;
    to->state = (char *)from->state;
    to->nonce = from->nonce;
    to->step = from->step;
    to->contributions = from->contributions;
    to->held_bytes = from->held_bytes;
}

static void fill_setting(Paramd__SettingInfo *to, const pd_override_info *from)
{
    paramd__setting_info__init(to);
    to->param = (char *)from->param;
    to->name = (char *)from->name;
    to->value = (char *)from->value;
    to->from = from->from;
    to->in_force = from->in_force;
    to->by = (char *)from->by;
    to->pattern = (char *)from->pattern;
}

static void fill_state(Paramd__StateInfo *to, const pd_state_info *from, uint64_t *shape, int32_t *follows)
{
    paramd__state_info__init(to);
    to->param = (char *)from->param;
    to->slot = (char *)from->slot;
    to->number = from->number;
    to->block = from->block;
    to->shape = fill_shape(shape, &to->n_shape, &from->shape);
    to->storage = (char *)from->storage;
    to->bytes = from->bytes;
    to->kept = from->kept;
    to->follows_known = from->follows_known;
    if (!from->follows_known) return;
    for (int d = 0; d < from->shape.rank; d++) follows[d] = from->follows[d];
    to->follows = follows;
    to->n_follows = (size_t)from->shape.rank;
}

/* ---- a page: as many of the entries as fit a header ---- */

typedef union entry {
    Paramd__JobInfo     job;
    Paramd__ParamInfo   param;
    Paramd__WorkerInfo  worker;
    Paramd__RootInfo    root;
    Paramd__SettingInfo setting;
    Paramd__StateInfo   state;
    ProtobufCMessage    base;
} entry;

typedef struct page {
    entry    at[PD_INFO_PAGE];
    void    *list[PD_INFO_PAGE];
    uint64_t shapes[PD_INFO_PAGE][PD_MAX_RANK];
    Paramd__Scalar scalars[PD_INFO_PAGE][PD_MAX_SCALARS], *scalar_lists[PD_INFO_PAGE][PD_MAX_SCALARS];
    int32_t  follows[PD_INFO_PAGE][PD_MAX_RANK];
    size_t   n, bytes;
} page;

static void fill_param_of(page *p, Paramd__ParamInfo *to, const pd_param_info *from)
{
    fill_param(to, from, p->shapes[p->n]);
    to->scalars = p->scalar_lists[p->n];
    to->n_scalars = from->n_scalars;
    for (size_t k = 0; k < from->n_scalars; k++) {
        Paramd__Scalar *scalar = to->scalars[k] = &p->scalars[p->n][k];
        paramd__scalar__init(scalar);
        scalar->name = (char *)from->scalars[k].name;
        scalar->value = from->scalars[k].mean;
        scalar->weight = from->scalars[k].weight;
    }
}

static void fill_entry(page *p, const pd_info *info, size_t i)
{
    entry *to = &p->at[p->n];

    if (info->jobs != NULL) fill_job(&to->job, &info->jobs[i]);
    else if (info->params != NULL) fill_param_of(p, &to->param, &info->params[i]);
    else if (info->roots != NULL) fill_root(&to->root, &info->roots[i], p->shapes[p->n]);
    else if (info->settings != NULL) fill_setting(&to->setting, &info->settings[i]);
    else if (info->state != NULL) fill_state(&to->state, &info->state[i], p->shapes[p->n], p->follows[p->n]);
    else fill_worker(&to->worker, &info->workers[i]);
}

static void fill_page(page *p, const pd_info *info, size_t n)
{
    for (size_t i = 0; i < n && p->n < PD_INFO_PAGE; i++) {
        fill_entry(p, info, i);
        p->bytes += protobuf_c_message_get_packed_size(&p->at[p->n].base) + 8;
        if (p->bytes > PAGE_BYTES) break;
        p->list[p->n] = &p->at[p->n];
        p->n++;
    }
}

static void list_reply(pd_conn *conn, pd_pending *pending, const pd_info *info, page *p)
{
    Paramd__ListReply reply = PARAMD__LIST_REPLY__INIT;
    uint64_t next;

    fill_page(p, info, info->n_jobs + info->n_params + info->n_workers + info->n_roots + info->n_settings
              + info->n_state);         /* only one of these lists has entries */
    next = info->start + p->n;
    if (info->jobs != NULL) {
        reply.jobs = (Paramd__JobInfo **)p->list;
        reply.n_jobs = p->n;
    } else if (info->params != NULL) {
        reply.params = (Paramd__ParamInfo **)p->list;
        reply.n_params = p->n;
    } else if (info->state != NULL) {
        reply.state = (Paramd__StateInfo **)p->list;
        reply.n_state = p->n;
    } else if (info->roots != NULL) {
        reply.roots = (Paramd__RootInfo **)p->list;
        reply.n_roots = p->n;
    } else if (info->settings != NULL) {
        reply.settings = (Paramd__SettingInfo **)p->list;
        reply.n_settings = p->n;
    } else {
        reply.workers = (Paramd__WorkerInfo **)p->list;
        reply.n_workers = p->n;
    }
    reply.next = next < info->total && next <= UINT32_MAX ? (uint32_t)next : 0;
    pd_conn_answer(conn, pending, &reply.base);
}

/* ---- status ---- */

static uint64_t resident_bytes(const pd_daemon *daemon)
{
    char text[128];
    ssize_t n = pread(daemon->statm, text, sizeof text - 1, 0);
    char *space;

    if (n <= 0) return 0;
    text[n] = '\0';
    space = strchr(text, ' ');
    return space != NULL ? strtoull(space, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

/* Returns the peak of resident memory. The kernel samples the peak, so the memory resident now may be more. */
static uint64_t peak_resident_bytes(uint64_t resident)
{
    struct rusage usage;
    uint64_t peak = getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_maxrss * 1024 : 0;

    return peak > resident ? peak : resident;
}

static void fill_status(const pd_daemon *daemon, const pd_info *info, Paramd__StatusReply *reply, double busy[4])
{
    reply->server = "paramd " PD_VERSION;
    reply->protocol = PD_PROTOCOL_VERSION;
    reply->blas_core = (char *)daemon->config.blas_core;
    reply->uptime_ms = pd_loop_now_ms(daemon) - daemon->started_ms;
    reply->draining = info->draining || daemon->shutdown.begun;
    reply->connections = (uint32_t)daemon->n_conns;
    reply->ingest_bytes = daemon->admission.budget;
    reply->ingest_used = daemon->admission.used;
    reply->resident_bytes = resident_bytes(daemon);
    reply->peak_resident_bytes = peak_resident_bytes(reply->resident_bytes);
    reply->bytes_in = daemon->bytes_in;
    reply->bytes_out = daemon->bytes_out;
    reply->frames_in = daemon->frames_in;
    reply->frames_refused = daemon->frames_refused;
    reply->loop_polls = daemon->lag.polls;
    busy[0] = pd_lag_percentile(&daemon->lag, 0.5);
    busy[1] = pd_lag_percentile(&daemon->lag, 0.99);
    busy[2] = pd_lag_percentile(&daemon->lag, 0.999);
    busy[3] = (double)daemon->lag.largest_ns / 1e6;
    reply->loop_busy_ms = busy;
    reply->n_loop_busy_ms = 4;
}

static void status_reply(pd_conn *conn, pd_pending *pending, const pd_info *info, page *p)
{
    Paramd__StatusReply reply = PARAMD__STATUS_REPLY__INIT;
    double busy[4];

    fill_status(conn->daemon, info, &reply, busy);
    fill_page(p, info, info->n_jobs);        /* the first page of them; List has all */
    reply.jobs = (Paramd__JobInfo **)p->list;
    reply.n_jobs = p->n;
    pd_conn_answer(conn, pending, &reply.base);
}

void pd_reply_info(pd_conn *conn, pd_pending *pending, const pd_info *info)
{
    page *p = calloc(1, sizeof *p);

    if (p == NULL) pd_conn_close(conn, pd_code_text(PD_NO_MEMORY));
    else if (pending->method == PD_STATUS) status_reply(conn, pending, info, p);
    else list_reply(conn, pending, info, p);
    free(p);
}

/* ---- what an operator has set ---- */

static void fill_change(Paramd__SetChange *to, const pd_set_change *from)
{
    paramd__set_change__init(to);
    to->optimizer = (char *)from->optimizer;
    to->name = (char *)from->name;
    to->before = (char *)from->before;
    to->mixed = from->mixed;
    to->value = (char *)from->value;
    to->withdrawn = from->withdrawn;
    to->params = from->params;
    to->from_least = from->from_least;
    to->from_most = from->from_most;
}

void pd_reply_set(pd_conn *conn, pd_pending *pending, const pd_set_result *result)
{
    Paramd__SetReply reply = PARAMD__SET_REPLY__INIT;
    Paramd__SetChange changes[PD_MAX_CHANGES], *list[PD_MAX_CHANGES];

    reply.params = result->params;
    reply.left_off = result->left_off;
    reply.changes = list;
    for (size_t i = 0; i < result->n; i++) {
        fill_change(&changes[i], &result->at[i]);
        list[reply.n_changes++] = &changes[i];
    }
    pd_conn_answer(conn, pending, &reply.base);
}
