/* export_state.c - paramctl export: writes a job's weights, and with --state its optimizer state, to a safetensors
 * file.
 *
 * All tensors are of the same step. The command first fetches the names and shapes of the weights and of the slots.
 * Then it begins the export on the daemon. It fetches the step counters and the pending roots. Now everything in the
 * header of the file is known. So the command writes the header, and then fetches the tensors' values in the order in
 * which they lie in the file. */
#include "commands.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "format.h"
#include "grow.h"
#include "result.h"
#include "safetensors.h"
#include "job_steps.h"
#include "state_list.h"
#include "whole_params.h"

/* A file that is being written. It has no name until it is complete, so that nothing is left if the program is killed.
 * On a file system without nameless files it has a temporary name in the same folder. */
typedef struct new_file {
    int fd;           /* descriptor of the file; -1: no file is open */
    const char *path; /* borrowed */
    char *part;       /* temporary name of the file; NULL: the output is standard output */
    bool nameless;    /* the file has no name yet, not even its temporary name */
    bool force;
} new_file;

static int fail(const char *path, pd_error *err)
{
    return pd_fail(err, PD_FAILED_PRECONDITION, "%.300s: %s", path, strerror(errno));
}

static int exists(const char *path, pd_error *err)
{
    return pd_fail(err, PD_ALREADY_EXISTS, "%.300s: file exists: choose another name or add --force", path);
}

static int open_output(new_file *out, pd_error *err)
{
    if (isatty(STDOUT_FILENO))
        return pd_fail(err, PD_FAILED_PRECONDITION, "standard output is a terminal: redirect it to a file or a pipe");
    out->fd = STDOUT_FILENO;
    return PD_OK;
}

/* Returns the path of the folder in which a file is. The caller frees it. NULL: out of memory. */
static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash == NULL ? strdup(".") : strndup(path, slash == path ? 1 : (size_t)(slash - path));
}

static int open_part(new_file *out)
{
    char *folder = folder_of(out->path);

    out->fd = folder != NULL ? open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666) : -1;
    out->nameless = out->fd >= 0;
    free(folder);
    if (!out->nameless) out->fd = open(out->part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    return out->fd;
}

/* Opens a new file; the path "-" is standard output. PD_ALREADY_EXISTS: the file exists and `force` is false.
 * PD_FAILED_PRECONDITION: the file cannot be made in that folder, or standard output is a terminal. */
static int file_open(new_file *out, const char *path, bool force, pd_error *err)
{
    *out = (new_file){ .fd = -1, .path = path, .force = force };
    if (strcmp(path, "-") == 0) return open_output(out, err);
    if (!force && access(path, F_OK) == 0) return exists(path, err);
    if (asprintf(&out->part, "%s.%ld.part", path, (long)getpid()) < 0) {
        out->part = NULL;
        return pd_fail(err, PD_NO_MEMORY, "out of memory");
    }
    return open_part(out) >= 0 ? PD_OK : fail(out->part, err);
}

static int file_write(new_file *file, const void *at, size_t bytes, pd_error *err)
{
    const char *from = at;

    while (bytes > 0) {
        ssize_t n = write(file->fd, from, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return fail(file->part != NULL ? file->part : "standard output", err);
        from += n;
        bytes -= (size_t)n;
    }
    return PD_OK;
}

/* Syncs the folder of a file, so that the file's new name is on the disk. Some file systems cannot do it, so errors
 * are ignored. */
static void sync_folder(const char *path)
{
    char *folder = folder_of(path);
    int fd = folder != NULL ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

    if (fd >= 0) {
        (void)fsync(fd);
        close(fd);
    }
    free(folder);
}

/* Renames the file from its temporary name to its final name. Without `force` an existing file is not replaced,
 * except on a file system that cannot rename in this way. */
static int give_name(const new_file *file, pd_error *err)
{
    int rc = renameat2(AT_FDCWD, file->part, AT_FDCWD, file->path, file->force ? 0 : RENAME_NOREPLACE);

    if (rc != 0 && errno == EEXIST) return exists(file->path, err);
    if (rc != 0 && (errno == EINVAL || errno == ENOSYS)) rc = rename(file->part, file->path);
    return rc == 0 ? PD_OK : fail(file->path, err);
}

/* Gives a file that was opened without a name its temporary name. */
static int name_part(new_file *file, pd_error *err)
{
    char self[64];

    if (!file->nameless) return PD_OK;
    snprintf(self, sizeof self, "/proc/self/fd/%d", file->fd);
    if (linkat(AT_FDCWD, self, AT_FDCWD, file->part, AT_SYMLINK_FOLLOW) != 0) return fail(file->part, err);
    file->nameless = false;
    return PD_OK;
}

/* Syncs the complete file to disk and gives it its name. PD_ALREADY_EXISTS: without `force`, another program has made a
 * file of that name in the meantime; that file stays. */
static int file_commit(new_file *file, pd_error *err)
{
    int rc;

    if (file->part == NULL) return PD_OK;
    if (fsync(file->fd) != 0) return fail(file->part, err);
    if ((rc = name_part(file, err)) != PD_OK) return rc;
    rc = close(file->fd);
    file->fd = -1;
    if (rc != 0) return fail(file->part, err);
    if ((rc = give_name(file, err)) != PD_OK) return rc;
    sync_folder(file->path);
    free(file->part);
    file->part = NULL;
    return PD_OK;
}

/* Removes a new file that was not completed. Does nothing if no file is open. */
static void file_drop(new_file *file)
{
    if (file->part == NULL) return;
    if (file->fd >= 0) close(file->fd);
    if (!file->nameless) unlink(file->part);
    free(file->part);
    *file = (new_file){ .fd = -1 };
}

#define PENDING_ROOT "pending_root"
enum { PIECE_BYTES = 1 << 20, MOST_WAIT = 600 };

/* One tensor of the file to write, and where the daemons keep its values. */
typedef struct source {
    char *name;                  /* name of the tensor in the file; freed with the export */
    const pd_whole_param *param; /* the parameter to which the tensor belongs */
    /* Description of the slot that has the values. NULL: the values are weights, a counter or a pending root. */
    const pd_state_tensor *slot;
    /* counter: the value is the number of steps that the parameter has taken. root: the values are a pending root. */
    bool counter, root;
    int64_t value; /* value of the step counter, or number of the pending root among those of its portion */
    size_t part;   /* index of the portion that has the pending root */
    pd_st_tensor tensor;
} source;

typedef struct export
{
    const pd_line *line;
    const char *job, *path;
    bool state, evaluates, force, end_other;
    double wait;
    pd_cluster cluster;
    pd_state_list list;
    pd_whole_params params;
    source *sources; /* all tensors of the file, sorted by name once all of them are known */
    size_t n, room;
    pd_st_tensor *tensors; /* the same tensors for the header, in the order in which they lie in the file */
    new_file file;
    uint8_t *piece;
    uint64_t piece_bytes, bytes, read;
    uint64_t step, roots;
}
export;

static int no_memory(pd_error *err)
{
    return pd_fail(err, PD_NO_MEMORY, "out of memory");
}

/* Adds a tensor to the list of tensors to write. Takes ownership of its name. A name of NULL means that the caller
 * ran out of memory. */
static int add(export *ex, char *name, const source *from, pd_error *err)
{
    if (name == NULL || pd_grow((void **)&ex->sources, &ex->room, ex->n + 1, sizeof *from) != PD_OK) {
        free(name);
        return no_memory(err);
    }
    ex->sources[ex->n] = *from;
    ex->sources[ex->n].name = name;
    ex->sources[ex->n++].tensor.name = name;
    return PD_OK;
}

static char *join(const char *param, const char *rest)
{
    char *name;

    return asprintf(&name, "%s.%s", param, rest) >= 0 ? name : NULL;
}

static int list_params(export *ex, pd_error *err)
{
    int rc = pd_whole_params_fetch(&ex->params, &ex->cluster, ex->job, err);

    for (size_t i = 0; i < ex->params.n && rc == PD_OK; i++) {
        const pd_whole_param *param = &ex->params.at[i];
        source weights = { .param = param, .tensor = { .dtype = PD_ST_F32, .shape = param->shape } };
        rc = add(ex, strdup(param->name), &weights, err);
    }
    return rc;
}

static int list_state(export *ex, pd_error *err)
{
    int rc = pd_state_list_fetch(&ex->list, &ex->cluster, ex->job, NULL, err);

    if (rc == PD_OK) rc = pd_whole_params_join_state(&ex->params, &ex->list, err);
    for (size_t i = 0; i < ex->list.n && rc == PD_OK; i++) {
        const pd_state_tensor *slot = &ex->list.at[i];
        bool wide = strcmp(slot->storage, "float64") == 0;
        source from = { .param = pd_whole_params_find(&ex->params, slot->param),
                        .slot = slot,
                        .tensor = { .dtype = wide ? PD_ST_F64 : PD_ST_F32, .shape = slot->shape } };
        char name[128];
        rc = add(ex, join(slot->param, pd_state_tensor_name(slot, name, sizeof name)), &from, err);
    }
    return rc;
}

static int by_name(const void *left, const void *right)
{
    const source *a = left, *b = right;

    return strcmp(a->name, b->name);
}

/* Sorts the tensors to write by name, and makes the list for the header of the file. */
static int arrange(export *ex, pd_error *err)
{
    qsort(ex->sources, ex->n, sizeof *ex->sources, by_name);
    if ((ex->tensors = calloc(ex->n + 1, sizeof *ex->tensors)) == NULL) return no_memory(err);
    for (size_t i = 0; i < ex->n; i++) ex->tensors[i] = ex->sources[i].tensor;
    return PD_OK;
}

static int ask(export *ex, uint32_t shard, const Paramd__ExportRequest *request, size_t bytes,
               Paramd__ExportReply **reply, pd_error *err)
{
    pd_operator *op = &ex->cluster.at[shard].op;

    return pd_client_call_into(op->client, PD_EXPORT, &request->base, ex->piece, bytes, op->arena, (void **)reply, err);
}

static Paramd__ExportRequest request_of(const export *ex, uint32_t act)
{
    Paramd__ExportRequest request = PARAMD__EXPORT_REQUEST__INIT;

    request.job = (char *)ex->job;
    request.act = act;
    request.number = request.block = -1;
    return request;
}

/* Ends the exports of all daemons, so that they can be begun again. Errors are ignored: a daemon without an export has
 * nothing to end. */
static void give_up(export *ex)
{
    Paramd__ExportRequest request = request_of(ex, 4);
    pd_error ignored;

    for (size_t i = 0; i < ex->cluster.n; i++) {
        pd_operator *op = &ex->cluster.at[i].op;
        (void)pd_client_call(op->client, PD_EXPORT, &request.base, op->arena, NULL, &ignored);
    }
}

/* Begins the export on every daemon. Returns whether all of them export the same step. */
static int begin_all(export *ex, const Paramd__ExportRequest *request, bool *same, pd_error *err)
{
    void **replies = calloc(ex->cluster.n, sizeof *replies);
    int rc = replies != NULL ? pd_cluster_ask(&ex->cluster, PD_EXPORT, &request->base, replies, err) : no_memory(err);

    *same = true;
    ex->roots = 0;
    for (size_t i = 0; rc == PD_OK && i < ex->cluster.n; i++) {
        const Paramd__ExportReply *reply = replies[i];
        *same = *same && (i == 0 || reply->step == ex->step);
        if (i == 0 || reply->step > ex->step) ex->step = reply->step;
        ex->roots += reply->roots;
    }
    free(replies);
    return rc;
}

/* Begins the export. With several daemons, all export the same step: the present one, or if the job is training, one
 * that none of them has begun. If they need not come to the same steps, each exports its own present one. */
static int begin(export *ex, pd_error *err)
{
    enum { TRIES = 4 };
    Paramd__ExportRequest request = request_of(ex, 1);
    bool several = ex->cluster.n > 1, same = true, apart;
    pd_job_steps steps;
    int rc = PD_OK;

    request.state = ex->state;
    request.form = ex->evaluates ? PD_FORM_EVAL : PD_FORM_TRAIN;
    request.replace = ex->end_other;
    request.wait_ms = (uint32_t)(ex->wait * 1000);
    for (int i = 0; i < TRIES; i++) {
        if (several && (rc = pd_job_steps_ask(&steps, &ex->cluster, ex->job, err)) != PD_OK) return rc;
        apart = several && steps.apart;
        if (several && !apart) request.step = i == 0 ? steps.most : pd_job_steps_ahead(&steps) + (uint64_t)(4 * i);
        rc = begin_all(ex, &request, &same, err);
        if (!several || (rc == PD_OK && (same || apart))) return rc;
        give_up(ex);
        if (rc != PD_OK && rc != PD_OUT_OF_RANGE && rc != PD_FAILED_PRECONDITION) return rc;
    }
    if (rc != PD_OK) return rc;
    return pd_fail(err, PD_ABORTED, "job %.200s: the daemons have exported different steps: export again", ex->job);
}

/* Adds a portion's pending root number k to the tensors to write, as number `number` of the parameter. Asks the daemon
 * for its size. */
static int add_root(export *ex, const pd_whole_param *param, size_t part, uint64_t k, uint64_t number, pd_error *err)
{
    Paramd__ExportRequest request = request_of(ex, 2);
    const pd_whole_part *at = &ex->params.parts[param->first + part];
    Paramd__ExportReply *reply;
    source from = { .param = param, .root = true, .value = (int64_t)k, .part = part, .tensor = { .dtype = PD_ST_F64 } };
    char name[64];
    int rc;

    request.param = at->name;
    request.slot = PENDING_ROOT;
    request.number = (int32_t)k;
    if ((rc = ask(ex, at->shard, &request, 0, &reply, err)) != PD_OK) return rc;
    from.tensor.shape = (pd_shape){ 1, { (int64_t)reply->elements } };
    snprintf(name, sizeof name, PENDING_ROOT ".%" PRIu64, number);
    return add(ex, join(param->name, name), &from, err);
}

/* Adds a parameter's step counter and its pending roots to the tensors to write. The portions of a parameter have the
 * same counter. */
static int add_counted(export *ex, const pd_whole_param *param, pd_error *err)
{
    Paramd__ExportRequest request = request_of(ex, 3);
    Paramd__ExportReply *reply;
    source count = { .param = param, .counter = true, .tensor = { .dtype = PD_ST_I64 } };
    uint64_t roots, number = 0;
    int rc = PD_OK;

    for (size_t part = 0; part < param->n && rc == PD_OK; part++) {
        const pd_whole_part *at = &ex->params.parts[param->first + part];
        request.param = at->name;
        if ((rc = ask(ex, at->shard, &request, 0, &reply, err)) != PD_OK) return rc;
        count.value = (int64_t)reply->value;
        roots = reply->roots;
        if (part == 0) rc = add(ex, join(param->name, "step"), &count, err);
        for (uint64_t k = 0; k < roots && rc == PD_OK; k++) rc = add_root(ex, param, part, k, number++, err);
    }
    return rc;
}

static int end(export *ex, pd_error *err)
{
    Paramd__ExportRequest request = request_of(ex, 4);

    return pd_cluster_ask(&ex->cluster, PD_EXPORT, &request.base, NULL, err);
}

static int put(export *ex, const void *at, size_t bytes, pd_error *err)
{
    int rc = file_write(&ex->file, at, bytes, err);

    ex->read += bytes;
    if (!ex->line->json) pd_transfer_show(ex->read, ex->bytes, "exported", false);
    return rc;
}

/* Adds the number of roots of the portions before to the root's index, which is the first number of a pending root. */
static void shift_root(export *ex, const source *from)
{
    double index;

    memcpy(&index, ex->piece, sizeof index);
    index += (double)pd_whole_param_roots(&ex->params, from->param, from->part);
    memcpy(ex->piece, &index, sizeof index);
}

/* Copies all elements that one daemon has of a tensor, `elements` of them, to the file. */
static int copy_elements(export *ex, const source *from, Paramd__ExportRequest *request, uint32_t shard,
                         uint64_t elements, pd_error *err)
{
    Paramd__ExportReply *reply;
    size_t each = pd_st_dtype_size(from->tensor.dtype);
    int rc = PD_OK;

    for (request->first = 0; request->first < elements && rc == PD_OK; request->first += request->count) {
        uint64_t left = elements - request->first;
        request->count = left < ex->piece_bytes / each ? left : ex->piece_bytes / each;
        rc = ask(ex, shard, request, request->count * each, &reply, err);
        if (rc == PD_OK && from->root && request->first == 0) shift_root(ex, from);
        if (rc == PD_OK) rc = put(ex, ex->piece, request->count * each, err);
    }
    return rc;
}

static uint64_t elements_of(const pd_shape *shape)
{
    int64_t elements = 0;

    (void)pd_shape_elements(shape, &elements);
    return (uint64_t)elements;
}

/* Copies weights: those of all portions of the parameter. */
static int copy_weights(export *ex, const source *from, pd_error *err)
{
    int rc = PD_OK;

    for (size_t i = 0; i < from->param->n && rc == PD_OK; i++) {
        const pd_whole_part *part = &ex->params.parts[from->param->first + i];
        Paramd__ExportRequest request = request_of(ex, 2);
        request.param = part->name;
        rc = copy_elements(ex, from, &request, part->shard, elements_of(&part->shape), err);
    }
    return rc;
}

/* Copies a tensor of optimizer state: all pieces of it, or one of several that are equal. */
static int copy_slot(export *ex, const source *from, pd_error *err)
{
    const pd_state_tensor *slot = from->slot;
    int rc = PD_OK;

    for (size_t i = 0; i < (slot->copies ? 1 : slot->n_pieces) && rc == PD_OK; i++) {
        const pd_state_piece *piece = &ex->list.pieces[slot->first_piece + i];
        Paramd__ExportRequest request = request_of(ex, 2);
        request.param = (char *)piece->param;
        request.slot = (char *)slot->slot;
        request.number = slot->number;
        request.block = piece->block;
        rc = copy_elements(ex, from, &request, piece->shard, (uint64_t)piece->elements, err);
    }
    return rc;
}

static int copy_root(export *ex, const source *from, pd_error *err)
{
    const pd_whole_part *part = &ex->params.parts[from->param->first + from->part];
    Paramd__ExportRequest request = request_of(ex, 2);

    request.param = part->name;
    request.slot = PENDING_ROOT;
    request.number = (int32_t)from->value;
    return copy_elements(ex, from, &request, part->shard, elements_of(&from->tensor.shape), err);
}

static int copy_tensor(export *ex, const source *from, pd_error *err)
{
    if (from->counter) return put(ex, &from->value, sizeof from->value, err);
    if (from->root) return copy_root(ex, from, err);
    return from->slot != NULL ? copy_slot(ex, from, err) : copy_weights(ex, from, err);
}

static int write_header(export *ex, pd_error *err)
{
    char step[32];
    const pd_st_meta meta[] = { { "format", "pt" },
                                { "producer", pd_client_welcome(ex->cluster.at[0].op.client)->server },
                                { "job", ex->job },
                                { "step", step },
                                { "form", ex->evaluates ? "eval" : "train" },
                                { "optimizer_state", ex->state ? "yes" : "no" } };
    uint8_t *header;
    size_t bytes;
    int rc;

    snprintf(step, sizeof step, "%" PRIu64, ex->step);
    rc = pd_safetensors_header(&header, &bytes, ex->tensors, ex->n, meta, sizeof meta / sizeof *meta, err);
    if (rc != PD_OK) return rc;
    for (size_t i = 0; i < ex->n; i++) ex->bytes += ex->tensors[i].bytes;
    rc = file_write(&ex->file, header, bytes, err);
    free(header);
    return rc;
}

static int write_all(export *ex, pd_error *err)
{
    int rc = write_header(ex, err);

    for (size_t i = 0; i < ex->n && rc == PD_OK; i++) {
        source wanted = { .name = (char *)ex->tensors[i].name };
        const source *from = bsearch(&wanted, ex->sources, ex->n, sizeof wanted, by_name);
        rc = copy_tensor(ex, from, err);
    }
    if (rc == PD_OK && !ex->line->json) pd_transfer_show(ex->read, ex->bytes, "exported", true);
    return rc;
}

static int tell(const export *ex)
{
    bool to_output = strcmp(ex->path, "-") == 0;
    char bytes[PD_CELL];

    if (ex->line->json && !to_output)
        return pd_result_json(json_pack("{s:s, s:I, s:I, s:I, s:b, s:I}", "job", ex->job, "step", (json_int_t)ex->step,
                                        "tensors", (json_int_t)ex->n, "bytes", (json_int_t)ex->bytes, "state",
                                        ex->state, "pending_roots", (json_int_t)ex->roots));
    pd_print_line(to_output ? stderr : stdout, "exported step %" PRIu64 " of job %s: %zu tensors, %s", ex->step,
                  ex->job, ex->n, pd_bytes_text(bytes, ex->bytes));
    return PD_CTL_OK;
}

static void close_export(export *ex)
{
    file_drop(&ex->file);
    pd_cluster_close(&ex->cluster);
    pd_state_list_free(&ex->list);
    pd_whole_params_free(&ex->params);
    for (size_t i = 0; i < ex->n; i++) free(ex->sources[i].name);
    free(ex->sources);
    free(ex->tensors);
    free(ex->piece);
}

static int fetch(export *ex, pd_error *err)
{
    int rc = list_params(ex, err);

    if (rc == PD_OK && ex->state) rc = list_state(ex, err);
    if (rc == PD_OK) rc = begin(ex, err);
    /* Only now can the daemon list step counters and pending roots, since they change with every step. */
    for (size_t i = 0; i < ex->params.n && ex->state && rc == PD_OK; i++) rc = add_counted(ex, &ex->params.at[i], err);
    if (rc == PD_OK) rc = arrange(ex, err);
    if (rc == PD_OK) rc = write_all(ex, err);
    if (rc == PD_OK) rc = end(ex, err);
    return rc == PD_OK ? file_commit(&ex->file, err) : rc;
}

static int run(export *ex)
{
    const pd_line *line = ex->line;
    pd_error err = { 0 };
    int rc = file_open(&ex->file, ex->path, ex->force, &err), status;
    bool opened = false;

    if (rc == PD_OK) rc = pd_cluster_probe(line, &err);
    if (rc == PD_OK) rc = pd_cluster_open_complete(&ex->cluster, line, ex->wait, &err);
    if ((opened = rc == PD_OK)) {
        ex->piece_bytes = pd_cluster_payload(&ex->cluster, PIECE_BYTES);
        rc = (ex->piece = malloc(PIECE_BYTES)) != NULL ? fetch(ex, &err) : no_memory(&err);
    }
    status = rc == PD_OK ? tell(ex) : pd_result_fail(line->json, &err);
    close_export(ex);
    /* The daemon was reached, so a timeout means that the export failed. The exit status must not say "no daemon". */
    return opened && err.code == PD_DEADLINE_EXCEEDED ? PD_CTL_FAILED : status;
}

/* Returns whether the weights to evaluate with are exported: by default, unless optimizer state is, which belongs to
 * the weights that are trained. */
static bool reads_form(pd_line *line, bool state)
{
    const char *form = pd_line_text(line, "form");
    bool evaluates = form == NULL ? !state : strcmp(form, "eval") == 0;

    if (form != NULL && !evaluates && strcmp(form, "train") != 0)
        pd_line_refuse(line, "--form %.60s: expected train or eval", form);
    if (evaluates && state)
        pd_line_refuse(line, "--form eval with --state: the state belongs to the weights that are trained");
    return evaluates;
}

int pd_run_export_command(pd_line *line)
{
    export ex = { .line = line, .file = { .fd = -1 } };

    ex.job = line->args[0];
    ex.path = line->args[1];
    ex.state = pd_line_has(line, "state");
    ex.evaluates = reads_form(line, ex.state);
    ex.force = pd_line_has(line, "force");
    ex.end_other = pd_line_has(line, "end-other");
    ex.wait = pd_line_seconds(line, "wait");
    if (ex.wait > MOST_WAIT) ex.wait = MOST_WAIT;
    return run(&ex);
}
