/* info_request.c - handles the requests Status and List, with which operators look at the server, and Set, with which
 * they change hyperparameters. Copies the lists of the store into messages. */
#include "handlers.h"

#include "cpu.h"
#include "figures.h"
#include "info.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE_BYTES = PD_MAX_HEADER_BYTES - 1024, MOST_IDENTITIES = 64, MOST_SETTINGS = 16 * 1024 };

/* If the name of a job has more bytes than this, the text of a Set command in the log is cut to half the bytes. */
enum { LONG_NAME = 100 };

static int ask_info(const pd_conn *conn, pd_request *request, const Paramd__ListRequest *list)
{
    request->u.info.what = (int)list->what;
    request->u.info.start = list->start;
    request->u.info.job_name = strdup(list->job);
    request->u.info.pattern = strdup(list->param);
    request->u.info.identity = strdup(conn->peer.identity.text);
    return request->u.info.job_name != NULL && request->u.info.pattern != NULL && request->u.info.identity != NULL
               ? PD_OK
               : PD_NO_MEMORY;
}

int pd_fill_status(pd_conn *conn, pd_request *request, const pd_prefix *prefix, const void *message, pd_error *err)
{
    Paramd__ListRequest list = PARAMD__LIST_REQUEST__INIT;

    (void)prefix, (void)message, (void)err;
    list.what = PD_INFO_STATUS;
    return ask_info(conn, request, &list);
}

static int no_such_list(uint32_t what, pd_error *err)
{
    const pd_info_list *list;
    char all[256] = "";

    for (uint32_t i = 1; (list = pd_info_list_of(i)) != NULL; i++) {
        size_t used = strlen(all);
        snprintf(all + used, sizeof all - used, "%s%u%s %s", i > 1 ? ", " : "", i, i > 1 ? "" : " is", list->about);
    }
    return pd_fail(err, PD_INVALID_ARGUMENT, "List of %u: %s", what, all);
}

int pd_fill_list(pd_conn *conn, pd_request *request, const pd_prefix *prefix, const void *message, pd_error *err)
{
    const Paramd__ListRequest *list = message;

    (void)prefix;
    if (list->what == PD_INFO_STATUS || pd_info_list_of(list->what) == NULL) return no_such_list(list->what, err);
    return ask_info(conn, request, list);
}

typedef struct page {
    const pd_info_list *list;
    const ProtobufCMessageDescriptor *type;                 /* protobuf-c's description of the message that holds one
                                                             * entry of the list */
    const ProtobufCFieldDescriptor *fields[PD_MOST_FIELDS]; /* protobuf-c's descriptions of the fields of an entry's
                                                             * message, in the order of the list's table of fields */
    char *messages;
    void *at[PD_INFO_PAGE];
    uint64_t shapes[PD_INFO_PAGE][PD_MAX_RANK];
    int32_t follows[PD_INFO_PAGE][PD_MAX_RANK];
    Paramd__Scalar scalars[PD_INFO_PAGE][PD_MAX_SCALARS], *scalar_lists[PD_INFO_PAGE][PD_MAX_SCALARS];
    size_t n, bytes;
} page;

static size_t copy_scalars(Paramd__Scalar **list, Paramd__Scalar *to, const pd_scalar_mean *from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        list[i] = &to[i];
        paramd__scalar__init(&to[i]);
        to[i].name = (char *)from[i].name;
        to[i].value = from[i].mean;
        to[i].weight = from[i].weight;
    }
    return n;
}

static size_t count_of(const char *entry, const pd_info_field *field)
{
    return *(const size_t *)(const void *)(entry + field->count_at);
}

/* Copies one field of a list's entry into the page's next message. Pointers in the message refer to memory of the entry
 * or of the page. */
static void copy_field(page *p, char *message, const ProtobufCFieldDescriptor *to, const char *entry,
                       const pd_info_field *from)
{
    void *member = message + to->offset;
    const void *at = entry + from->at, *values = at;
    size_t *count = (size_t *)(void *)(message + to->quantifier_offset);

    switch (from->kind) {
    case PD_INFO_NUMBER: memcpy(member, at, from->bytes); return;
    case PD_INFO_FLAG: *(protobuf_c_boolean *)member = *(const bool *)at; return;
    case PD_INFO_WORD: memcpy(&values, at, sizeof values); break;
    case PD_INFO_TEXT: break;
    case PD_INFO_SHAPE:
        *count = (size_t)((const pd_shape *)at)->rank;
        for (size_t i = 0; i < *count; i++) p->shapes[p->n][i] = (uint64_t)((const pd_shape *)at)->dim[i];
        values = p->shapes[p->n];
        break;
    case PD_INFO_FOLLOWS:
        *count = count_of(entry, from);
        for (size_t i = 0; i < *count; i++) p->follows[p->n][i] = ((const int8_t *)at)[i];
        values = p->follows[p->n];
        break;
    case PD_INFO_SCALARS:
        *count = copy_scalars(p->scalar_lists[p->n], p->scalars[p->n], at, count_of(entry, from));
        values = p->scalar_lists[p->n];
        break;
    }
    *(const void **)member = values;
}

/* Returns the field of the reply that has the entries of a list: the repeated field with the list's name. */
static const ProtobufCFieldDescriptor *list_in(const ProtobufCMessage *reply, const pd_info_list *list)
{
    return protobuf_c_message_descriptor_get_field_by_name(reply->descriptor, list->name);
}

static void fill_entries(page *p, const pd_info *info)
{
    for (size_t i = 0; i < info->n; i++) {
        char *message = p->messages + i * p->type->sizeof_message;
        const char *entry = (const char *)info->entries + i * p->list->entry_bytes;
        protobuf_c_message_init(p->type, message);
        for (size_t f = 0; p->list->fields[f].name != NULL; f++)
            copy_field(p, message, p->fields[f], entry, &p->list->fields[f]);
        p->bytes += protobuf_c_message_get_packed_size((ProtobufCMessage *)(void *)message) + 8;
        if (p->bytes > PAGE_BYTES) break;
        p->at[p->n++] = message;
    }
}

/* Copies as many entries of a list as fit into one frame into the reply. PD_NO_MEMORY: the reply is unchanged. */
static int fill_page(page *p, const pd_info *info, ProtobufCMessage *reply)
{
    const ProtobufCFieldDescriptor *list = list_in(reply, info->list);

    p->list = info->list;
    p->type = list->descriptor;
    for (size_t f = 0; p->list->fields[f].name != NULL; f++)
        p->fields[f] = protobuf_c_message_descriptor_get_field_by_name(p->type, p->list->fields[f].name);
    if ((p->messages = calloc(info->n + 1, p->type->sizeof_message)) == NULL) return PD_NO_MEMORY;
    fill_entries(p, info);
    *(void ***)(void *)((char *)reply + list->offset) = p->at;
    *(size_t *)(void *)((char *)reply + list->quantifier_offset) = p->n;
    return PD_OK;
}

static int list_reply(pd_conn *conn, pd_pending *pending, const pd_info *info, page *p)
{
    Paramd__ListReply reply = PARAMD__LIST_REPLY__INIT;
    uint64_t next;

    if (fill_page(p, info, &reply.base) != PD_OK) return PD_NO_MEMORY;
    next = info->start + p->n;
    reply.next = next < info->total && next <= UINT32_MAX ? (uint32_t)next : 0;
    pd_conn_answer(conn, pending, &reply.base);
    return PD_OK;
}

/* Fills in the figures of the whole daemon, which include connections and jobs that the operator may not see. */
static void fill_whole(const pd_server_figures *server, const pd_lag *lag, Paramd__StatusReply *reply)
{
    reply->connections = (uint32_t)server->connections;
    reply->time_ms = (uint64_t)(server->time * 1e3);
    reply->ingest_used = server->ingest_used;
    reply->resident_bytes = server->resident_bytes;
    reply->peak_resident_bytes = server->peak_resident_bytes;
    reply->bytes_in = server->bytes_in;
    reply->bytes_out = server->bytes_out;
    reply->frames_in = server->frames_in;
    reply->frames_refused = server->frames_refused;
    reply->loop_polls = lag->polls;
    reply->loop_busy_ms = (double *)server->loop_busy_ms;
    reply->n_loop_busy_ms = 4;
}

static void fill_status(const pd_daemon *daemon, const pd_info *info, Paramd__StatusReply *reply)
{
    reply->server = "paramd " PD_VERSION;
    reply->protocol = PD_PROTOCOL_VERSION;
    reply->cpu = (char *)pd_cpu_names[pd_cpu_in_use];
    reply->blas_core = (char *)daemon->config.blas_core;
    reply->uptime_ms = pd_loop_now_ms(daemon) - daemon->counters.started_ms;
    reply->drain_timeout_ms = daemon->config.times.drain_ms;
    reply->keep_timeout_ms = daemon->config.times.keep_ms;
    reply->draining = info->draining || daemon->shutdown.begun;
    reply->ingest_bytes = daemon->ingest.admission.budget;
}

/* The messages for the identities in an answer to Status. */
typedef struct identity_list {
    Paramd__IdentityInfo infos[MOST_IDENTITIES], *list[MOST_IDENTITIES];
} identity_list;

/* Adds the identities that have connections to the reply, at most MOST_IDENTITIES. Returns the bytes that they take. */
static size_t fill_identities(const pd_daemon *daemon, Paramd__StatusReply *reply, identity_list *to)
{
    size_t bytes = 0;

    reply->identities = to->list;
    for (const pd_usage *usage = daemon->peers.usages.table; usage != NULL; usage = usage->hh.next) {
        Paramd__IdentityInfo *info = &to->infos[reply->n_identities];
        if (reply->n_identities == MOST_IDENTITIES) {
            reply->identities_left_off++;
            continue;
        }
        paramd__identity_info__init(info);
        info->identity = (char *)usage->identity;
        info->connections = (uint32_t)usage->connections;
        info->requests = (uint32_t)usage->requests;
        bytes += protobuf_c_message_get_packed_size(&info->base) + 8;
        to->list[reply->n_identities++] = info;
    }
    return bytes;
}

/* Answers Status with the state of the server and the first page of the list of jobs. The other pages are requested by
 * List. */
static int status_reply(pd_conn *conn, pd_pending *pending, const pd_info *info, page *p)
{
    Paramd__StatusReply reply = PARAMD__STATUS_REPLY__INIT;
    identity_list identities;
    pd_server_figures server;
    size_t settings;

    if (pd_access_has_server(conn, PD_ROLE_ADMIN)) {
        p->bytes = fill_identities(conn->daemon, &reply, &identities);
        settings = conn->daemon->config.settings != NULL ? strlen(conn->daemon->config.settings) : 0;
        if (settings > 0 && settings <= MOST_SETTINGS) {
            reply.settings = (char *)conn->daemon->config.settings;
            p->bytes += settings + 8;
        }
    }
    if (fill_page(p, info, &reply.base) != PD_OK) return PD_NO_MEMORY;
    fill_status(conn->daemon, info, &reply);
    if (pd_access_has_server(conn, PD_ROLE_READ)) {
        pd_server_figures_read(&server, conn->daemon);
        fill_whole(&server, &conn->daemon->counters.lag, &reply);
    }
    pd_conn_answer(conn, pending, &reply.base);
    return PD_OK;
}

void pd_reply_info(pd_conn *conn, pd_pending *pending, pd_effect *effect)
{
    pd_info *info = effect->u.info;
    page *p = calloc(1, sizeof *p);
    int rc = PD_NO_MEMORY;

    /* The store does not know how many bytes connections have moved: the loop thread counts them. */
    for (size_t i = 0; strcmp(info->list->name, "jobs") == 0 && i < info->n; i++)
        pd_traffic_read(conn->daemon->traffic, info->jobs[i].number, &info->jobs[i].bytes_in, &info->jobs[i].bytes_out);
    if (p != NULL) rc = (pending->method == PD_STATUS ? status_reply : list_reply)(conn, pending, info, p);
    if (rc != PD_OK) pd_conn_close(conn, pd_code_text(rc));
    if (p != NULL) free(p->messages);
    free(p);
}

static int copy_set(pd_request *request, const pd_conn *conn, const Paramd__SetRequest *set)
{
    request->u.set.job_name = strdup(set->job);
    request->u.set.pattern = strdup(set->pattern);
    request->u.set.by = strdup(conn->peer.label);
    request->u.set.from_step = set->from_step;
    if (request->u.set.job_name == NULL || request->u.set.pattern == NULL || request->u.set.by == NULL)
        return PD_NO_MEMORY;
    return pd_options_copy(&request->u.set.options, &request->u.set.n, set->options, set->n_options);
}

/* Logs an operator's command "set PATTERN NAME=VALUE... from step N", with its author. A long text is cut. */
static void log_set(const pd_conn *conn, const Paramd__SetRequest *set)
{
    char text[240];
    size_t most = strlen(set->job) > LONG_NAME ? sizeof text / 2 : sizeof text; /* leaves room for the author after a
                                                                                 * long name of a job */
    size_t used = (size_t)snprintf(text, most, "%.100s", set->pattern);

    for (size_t i = 0; i < set->n_options && used < most; i++)
        used += (size_t)snprintf(text + used, most - used, " %s=%s", set->options[i]->name, set->options[i]->value);
    if (set->from_step > 0 && used < most)
        snprintf(text + used, most - used, " from step %llu", (unsigned long long)set->from_step);
    pd_conn_log_command(conn, set->job, "set %s", text);
}

int pd_fill_set(pd_conn *conn, pd_request *request, const pd_prefix *prefix, const void *message, pd_error *err)
{
    const Paramd__SetRequest *set = message;

    (void)prefix, (void)err;
    if (copy_set(request, conn, set) != PD_OK) return PD_NO_MEMORY;
    log_set(conn, set);
    return PD_OK;
}

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

void pd_reply_set(pd_conn *conn, pd_pending *pending, pd_effect *effect)
{
    const pd_set_result *result = effect->u.set;
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
