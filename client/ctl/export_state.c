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
#include "state_list.h"

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

/* One tensor of the file to write, and where the daemon keeps its values. */
typedef struct source {
    char *name;        /* name of the tensor in the file; freed with the export */
    const char *param; /* name of the parameter to which the tensor belongs; owned by `params` or `list` */
    /* Description of the slot that has the values. NULL: the values are weights, a counter or a pending root. */
    const pd_state_tensor *slot;
    /* counter: the value is the number of steps that the parameter has taken. root: the values are a pending root. */
    bool counter, root;
    int64_t value; /* value of the step counter, or number of the pending root */
    pd_st_tensor tensor;
} source;

typedef struct export
{
    const pd_line *line;
    const char *job, *path;
    bool state, force, end_other;
    double wait;
    pd_operator op;
    pd_state_list list;
    char **params; /* names of all parameters of the job */
    size_t n_params;
    source *sources; /* all tensors of the file, sorted by name once all of them are known */
    size_t n, room;
    pd_st_tensor *tensors; /* the same tensors for the header, in the order in which they lie in the file */
    new_file file;
    uint8_t *piece;
    uint64_t piece_bytes, bytes, read;
    uint64_t step, roots;
    pd_error err; /* error of the first parameter that could not be added to the list */
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

static int add_param(export *ex, const Paramd__ParamInfo *param, pd_error *err)
{
    source weights = { .tensor = { .dtype = PD_ST_F32 } };
    char **more = realloc(ex->params, (ex->n_params + 1) * sizeof *more);

    if (more == NULL) return no_memory(err);
    ex->params = more;
    if ((ex->params[ex->n_params] = strdup(param->name)) == NULL) return no_memory(err);
    weights.param = ex->params[ex->n_params++];
    for (size_t d = 0; d < param->n_shape && d < PD_MAX_RANK; d++)
        weights.tensor.shape.dim[weights.tensor.shape.rank++] = (int64_t)param->shape[d];
    return add(ex, strdup(param->name), &weights, err);
}

static void add_page(void *arg, const Paramd__ListReply *page)
{
    export *ex = arg;

    for (size_t i = 0; ex->err.code == PD_OK && i < page->n_params; i++) add_param(ex, page->params[i], &ex->err);
}

static int list_params(export *ex, pd_error *err)
{
    Paramd__ListRequest request = PARAMD__LIST_REQUEST__INIT;
    int rc;

    request.what = PARAMD__LIST_KIND__LIST_PARAMS;
    request.job = (char *)ex->job;
    rc = pd_operator_list(&ex->op, &request, add_page, ex, err);
    if (rc == PD_OK && (rc = ex->err.code) != PD_OK) *err = ex->err;
    return rc;
}

static int list_state(export *ex, pd_error *err)
{
    int rc = pd_state_list_fetch(&ex->list, &ex->op, ex->job, NULL, err);

    for (size_t i = 0; i < ex->list.n && rc == PD_OK; i++) {
        const pd_state_tensor *slot = &ex->list.at[i];
        bool wide = strcmp(slot->storage, "float64") == 0;
        source from = { .param = slot->param,
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

static int ask(export *ex, const Paramd__ExportRequest *request, size_t bytes, Paramd__ExportReply **reply,
               pd_error *err)
{
    return pd_client_call_into(ex->op.client, PD_EXPORT, &request->base, ex->piece, bytes, ex->op.arena, (void **)reply,
                               err);
}

static Paramd__ExportRequest request_of(const export *ex, uint32_t act)
{
    Paramd__ExportRequest request = PARAMD__EXPORT_REQUEST__INIT;

    request.job = (char *)ex->job;
    request.act = act;
    request.number = request.block = -1;
    return request;
}

static int begin(export *ex, pd_error *err)
{
    Paramd__ExportRequest request = request_of(ex, 1);
    Paramd__ExportReply *reply;
    int rc;

    request.state = ex->state;
    request.replace = ex->end_other;
    request.wait_ms = (uint32_t)(ex->wait * 1000);
    if ((rc = ask(ex, &request, 0, &reply, err)) != PD_OK) return rc;
    ex->step = reply->step;
    ex->roots = reply->roots;
    return PD_OK;
}

/* Adds a parameter's pending root number k to the tensors to write. Asks the daemon for its size. */
static int add_root(export *ex, const char *param, uint64_t k, pd_error *err)
{
    Paramd__ExportRequest request = request_of(ex, 2);
    Paramd__ExportReply *reply;
    source from = { .param = param, .root = true, .value = (int64_t)k, .tensor = { .dtype = PD_ST_F64 } };
    char name[64];
    int rc;

    request.param = (char *)param;
    request.slot = PENDING_ROOT;
    request.number = (int32_t)k;
    if ((rc = ask(ex, &request, 0, &reply, err)) != PD_OK) return rc;
    from.tensor.shape = (pd_shape){ 1, { (int64_t)reply->elements } };
    snprintf(name, sizeof name, PENDING_ROOT ".%" PRIu64, k);
    return add(ex, join(param, name), &from, err);
}

/* Adds a parameter's step counter and its pending roots to the tensors to write. */
static int add_counted(export *ex, const char *param, pd_error *err)
{
    Paramd__ExportRequest request = request_of(ex, 3);
    Paramd__ExportReply *reply;
    source count = { .param = param, .counter = true, .tensor = { .dtype = PD_ST_I64 } };
    uint64_t roots;
    int rc;

    request.param = (char *)param;
    if ((rc = ask(ex, &request, 0, &reply, err)) != PD_OK) return rc;
    count.value = (int64_t)reply->value;
    roots = reply->roots;
    rc = add(ex, join(param, "step"), &count, err);
    for (uint64_t k = 0; k < roots && rc == PD_OK; k++) rc = add_root(ex, param, k, err);
    return rc;
}

static int end(export *ex, pd_error *err)
{
    Paramd__ExportRequest request = request_of(ex, 4);
    Paramd__ExportReply *reply;

    return ask(ex, &request, 0, &reply, err);
}

static int put(export *ex, const void *at, size_t bytes, pd_error *err)
{
    int rc = file_write(&ex->file, at, bytes, err);

    ex->read += bytes;
    if (!ex->line->json) pd_transfer_show(ex->read, ex->bytes, "exported", false);
    return rc;
}

static int copy_tensor(export *ex, const source *from, uint64_t bytes, pd_error *err)
{
    Paramd__ExportRequest request = request_of(ex, 2);
    Paramd__ExportReply *reply;
    size_t each = pd_st_dtype_size(from->tensor.dtype);
    uint64_t elements = bytes / each;
    int rc = PD_OK;

    request.param = (char *)from->param;
    if (from->slot != NULL) {
        request.slot = (char *)from->slot->slot;
        request.number = from->slot->number;
        request.block = from->slot->block;
    }
    if (from->root) {
        request.slot = PENDING_ROOT;
        request.number = (int32_t)from->value;
    }
    for (; request.first < elements && rc == PD_OK; request.first += request.count) {
        request.count =
            elements - request.first < ex->piece_bytes / each ? elements - request.first : ex->piece_bytes / each;
        rc = ask(ex, &request, request.count * each, &reply, err);
        if (rc == PD_OK) rc = put(ex, ex->piece, request.count * each, err);
    }
    return rc;
}

static int write_header(export *ex, pd_error *err)
{
    char step[32];
    const pd_st_meta meta[] = { { "format", "pt" },
                                { "producer", pd_client_welcome(ex->op.client)->server },
                                { "job", ex->job },
                                { "step", step },
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
        rc = from->counter ? put(ex, &from->value, sizeof from->value, err)
                           : copy_tensor(ex, from, ex->tensors[i].bytes, err);
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
    pd_operator_close(&ex->op);
    pd_state_list_free(&ex->list);
    for (size_t i = 0; i < ex->n_params; i++) free(ex->params[i]);
    for (size_t i = 0; i < ex->n; i++) free(ex->sources[i].name);
    free(ex->params);
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
    for (size_t i = 0; i < ex->n_params && ex->state && rc == PD_OK; i++) rc = add_counted(ex, ex->params[i], err);
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

    if (rc == PD_OK) rc = pd_operator_probe(line->server, line->timeout, &err);
    if (rc == PD_OK) rc = pd_operator_open(&ex->op, line->server, line->timeout + ex->wait, &err);
    if ((opened = rc == PD_OK)) {
        uint64_t most = pd_client_welcome(ex->op.client)->max_payload;
        ex->piece_bytes = most < PIECE_BYTES ? most : PIECE_BYTES;
        rc = (ex->piece = malloc(PIECE_BYTES)) != NULL ? fetch(ex, &err) : no_memory(&err);
    }
    status = rc == PD_OK ? tell(ex) : pd_result_fail(line->json, &err);
    close_export(ex);
    /* The daemon was reached, so a timeout means that the export failed. The exit status must not say "no daemon". */
    return opened && err.code == PD_DEADLINE_EXCEEDED ? PD_CTL_FAILED : status;
}

int pd_run_export_command(pd_line *line)
{
    export ex = { .line = line, .file = { .fd = -1 } };

    ex.job = line->args[0];
    ex.path = line->args[1];
    ex.state = pd_line_has(line, "state");
    ex.force = pd_line_has(line, "force");
    ex.end_other = pd_line_has(line, "end-other");
    ex.wait = pd_line_seconds(line, "wait");
    if (ex.wait > MOST_WAIT) ex.wait = MOST_WAIT;
    return run(&ex);
}
