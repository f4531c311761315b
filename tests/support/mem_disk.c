/* mem_disk.c - a disk in memory that fails when asked, and forgets at a crash what was not synced. */
#include "mem_disk.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct node node;

typedef struct entry {
    char name[256];
    node *to;
} entry;

typedef struct names {
    entry *at;
    size_t n, room;
} names;

/* A change of a directory that was not synced: `to` gets the name `name` (NULL: the name is removed); `from` loses its
 * name in the same moment if it is not empty. */
typedef struct change {
    char name[256], from[256];
    node *to;
} change;

struct node {
    node *next; /* in the list of all nodes */
    bool is_dir, is_reached;
    /* a file: its data, and how much of it is on the disk */
    uint8_t *data;
    size_t bytes, room, synced;
    uint8_t *before; /* the first `synced` bytes as the disk has them; NULL: as in `data` */
    bool lost;       /* a sync has failed: the bytes that were not synced then never reach the disk */
    /* a directory: its names, those on the disk, and the changes between them */
    names now, durable;
    change *changes;
    size_t n_changes, changes_room;
};

typedef struct opened {
    node *file;
    char path[200];
} opened;

enum { MOST_OPEN = 16, MOST_CALLS = 4096 };

struct mem_disk {
    node root, *nodes;
    opened open[MOST_OPEN];
    uint64_t limit;
    int64_t calls, fail_at, off_at;
    int fail_number;
    mem_disk_call *record;
    size_t n_record;
};

static bool grow(void **at, size_t *room, size_t want, size_t size)
{
    size_t larger = 2 * *room > want ? 2 * *room : want + 4;
    void *moved;

    if (want <= *room) return true;
    if ((moved = realloc(*at, larger * size)) == NULL) return false;
    *at = moved;
    *room = larger;
    return true;
}

static entry *find(const names *in, const char *name)
{
    for (size_t i = 0; i < in->n; i++)
        if (strcmp(in->at[i].name, name) == 0) return &in->at[i];
    return NULL;
}

/* Makes room for one name more. */
static bool reserve(names *in)
{
    void *at = in->at;
    bool ok = grow(&at, &in->room, in->n + 1, sizeof *in->at);

    in->at = at;
    return ok;
}

/* Gives a node a name, or takes the name away (to is NULL). There is room. */
static void set(names *in, const char *name, node *to)
{
    entry *e = find(in, name);

    if (e != NULL && to != NULL) {
        e->to = to;
    } else if (e != NULL) {
        *e = in->at[--in->n];
    } else if (to != NULL) {
        e = &in->at[in->n++];
        snprintf(e->name, sizeof e->name, "%s", name);
        e->to = to;
    }
}

static void apply(names *in, const change *c)
{
    if (c->from[0] != '\0') set(in, c->from, NULL);
    set(in, c->name, c->to);
}

/* Finds what a path names: sets *dir to its directory and *name to its last part. Returns the node; NULL: there is
 * none. *dir is NULL if even the directory is not there. */
static node *walk(mem_disk *disk, const char *path, node **dir, char name[256])
{
    node *at = &disk->root;
    const char *rest = path;

    *dir = at;
    name[0] = '\0';
    while (*rest == '/') rest++;
    while (*rest != '\0') {
        size_t n = strcspn(rest, "/");
        assert(n < 256);
        *dir = at != NULL && at->is_dir ? at : NULL;
        memcpy(name, rest, n);
        name[n] = '\0';
        const entry *e = *dir != NULL ? find(&(*dir)->now, name) : NULL;
        at = e != NULL ? e->to : NULL;
        rest += n;
        while (*rest == '/') rest++;
    }
    return at;
}

static node *lookup(mem_disk *disk, const char *path)
{
    node *dir;
    char name[256];

    return walk(disk, path, &dir, name);
}

static node *node_new(mem_disk *disk, bool is_dir)
{
    node *made = calloc(1, sizeof *made);

    if (made == NULL) return NULL;
    made->is_dir = is_dir;
    made->next = disk->nodes;
    disk->nodes = made;
    return made;
}

static void node_free(node *n)
{
    free(n->data);
    free(n->before);
    free(n->now.at);
    free(n->durable.at);
    free(n->changes);
}

/* Notes and makes a change of a directory. */
static int alter(node *dir, const char *from, const char *name, node *to)
{
    void *at = dir->changes;
    change *c;

    if (!grow(&at, &dir->changes_room, dir->n_changes + 1, sizeof *dir->changes)) return ENOMEM;
    dir->changes = at;
    if (!reserve(&dir->now)) return ENOMEM;
    c = &dir->changes[dir->n_changes++];
    *c = (change){ .to = to };
    snprintf(c->name, sizeof c->name, "%s", name);
    snprintf(c->from, sizeof c->from, "%s", from);
    apply(&dir->now, c);
    return 0;
}

static void reach(node *at)
{
    if (at->is_reached) return;
    at->is_reached = true;
    for (size_t i = 0; i < at->now.n; i++) reach(at->now.at[i].to);
    for (size_t i = 0; i < at->durable.n; i++) reach(at->durable.at[i].to);
    for (size_t i = 0; i < at->n_changes; i++)
        if (at->changes[i].to != NULL) reach(at->changes[i].to);
}

/* Frees files and directories that have neither a name nor an open file. */
static void collect(mem_disk *disk)
{
    disk->root.is_reached = false;
    for (node *n = disk->nodes; n != NULL; n = n->next) n->is_reached = false;
    reach(&disk->root);
    for (int i = 0; i < MOST_OPEN; i++)
        if (disk->open[i].file != NULL) reach(disk->open[i].file);
    for (node **at = &disk->nodes, *n; (n = *at) != NULL;) {
        if (n->is_reached) {
            at = &n->next;
            continue;
        }
        *at = n->next;
        node_free(n);
        free(n);
    }
}

static uint64_t used_bytes(const mem_disk *disk)
{
    uint64_t bytes = 0;

    for (const node *n = disk->nodes; n != NULL; n = n->next) bytes += n->bytes;
    return bytes;
}

/* Begins a call. Returns the error number with which it must fail; 0: it may go on. */
static int begin(mem_disk *disk)
{
    int64_t n = disk->calls++;

    if (disk->off_at >= 0 && n >= disk->off_at) return EIO;
    return n == disk->fail_at ? disk->fail_number : 0;
}

/* Ends a call: notes it, and returns its number. */
static int end(mem_disk *disk, const char *what, const char *path, uint64_t bytes, int number)
{
    mem_disk_call *call;

    if (disk->n_record == MOST_CALLS) return number;
    call = &disk->record[disk->n_record++];
    *call = (mem_disk_call){ .what = what, .bytes = bytes, .number = number };
    snprintf(call->path, sizeof call->path, "%s", path);
    return number;
}

static int add_new(mem_disk *disk, const char *path, bool is_dir, node **made)
{
    node *dir;
    char name[256];

    if (walk(disk, path, &dir, name) != NULL) return EEXIST;
    if (dir == NULL) return ENOENT;
    if ((*made = node_new(disk, is_dir)) == NULL) return ENOMEM;
    return alter(dir, "", name, *made);
}

static int make_dir(void *arg, const char *path)
{
    mem_disk *disk = arg;
    node *made;
    int number = begin(disk);

    if (number == 0) number = add_new(disk, path, true, &made);
    return end(disk, "make_dir", path, 0, number);
}

static int take_handle(mem_disk *disk, node *file, const char *path, int *out)
{
    for (int i = 0; i < MOST_OPEN; i++) {
        if (disk->open[i].file != NULL) continue;
        disk->open[i].file = file;
        snprintf(disk->open[i].path, sizeof disk->open[i].path, "%s", path);
        *out = i;
        return 0;
    }
    return EMFILE;
}

static int create_file(void *arg, const char *path, uint64_t bytes, int *file)
{
    mem_disk *disk = arg;
    node *made;
    int number = begin(disk);

    if (number == 0 && used_bytes(disk) + bytes > disk->limit) number = ENOSPC;
    if (number == 0) number = add_new(disk, path, false, &made);
    if (number == 0) number = take_handle(disk, made, path, file);
    return end(disk, "create", path, bytes, number);
}

static int append(node *file, const void *at, size_t bytes)
{
    void *data = file->data;

    if (!grow(&data, &file->room, file->bytes + bytes, 1)) return ENOMEM;
    file->data = data;
    if (bytes > 0) memcpy(file->data + file->bytes, at, bytes);
    file->bytes += bytes;
    return 0;
}

static int write_file(void *arg, int file, const void *at, size_t bytes)
{
    mem_disk *disk = arg;
    opened *o = &disk->open[file];
    bool is_off = disk->off_at >= 0 && disk->calls >= disk->off_at;
    int number = begin(disk);

    if (number != 0 && !is_off) (void)append(o->file, at, bytes / 2);
    if (number == 0 && used_bytes(disk) + bytes > disk->limit) number = ENOSPC;
    if (number == 0) number = append(o->file, at, bytes);
    return end(disk, "write", o->path, bytes, number);
}

static int reopen_file(void *arg, const char *path, uint64_t bytes, int *file)
{
    mem_disk *disk = arg;
    int number = begin(disk);
    node *found = lookup(disk, path);

    if (number == 0 && found == NULL) number = ENOENT;
    if (number == 0 && found->is_dir) number = EISDIR;
    if (number == 0) number = take_handle(disk, found, path, file);
    return end(disk, "reopen", path, bytes, number);
}

/* Writes over bytes of a file, and adds those beyond its end. Keeps the bytes that the disk has until the next sync. */
static int overwrite(node *file, uint64_t offset, const uint8_t *at, size_t bytes)
{
    size_t over = file->bytes - offset < bytes ? file->bytes - (size_t)offset : bytes;

    if (bytes > 0 && offset < file->synced && file->before == NULL) {
        if ((file->before = malloc(file->synced)) == NULL) return ENOMEM;
        memcpy(file->before, file->data, file->synced);
    }
    if (over > 0) memcpy(file->data + offset, at, over);
    return append(file, at + over, bytes - over);
}

static int write_file_at(void *arg, int file, uint64_t offset, const void *at, size_t bytes)
{
    mem_disk *disk = arg;
    opened *o = &disk->open[file];
    bool is_off = disk->off_at >= 0 && disk->calls >= disk->off_at;
    int number = begin(disk);
    uint64_t end_of_write = offset + bytes, more = end_of_write > o->file->bytes ? end_of_write - o->file->bytes : 0;

    assert(offset <= o->file->bytes);
    if (number != 0 && !is_off) (void)overwrite(o->file, offset, at, bytes / 2);
    if (number == 0 && more > 0 && used_bytes(disk) + more > disk->limit) number = ENOSPC;
    if (number == 0) number = overwrite(o->file, offset, at, bytes);
    return end(disk, "write_at", o->path, bytes, number);
}

/* Syncs a file, by the function of this name. */
static int sync_as(mem_disk *disk, int file, const char *what)
{
    opened *o = &disk->open[file];
    bool is_off = disk->off_at >= 0 && disk->calls >= disk->off_at;
    int number = begin(disk);

    if (number != 0 && !is_off) {
        o->file->lost = true;
    } else if (number == 0 && !o->file->lost) {
        o->file->synced = o->file->bytes;
        free(o->file->before);
        o->file->before = NULL;
    }
    return end(disk, what, o->path, 0, number);
}

static int sync_file(void *arg, int file)
{
    return sync_as(arg, file, "sync_file");
}

static int sync_data(void *arg, int file)
{
    return sync_as(arg, file, "sync_data");
}

static int open_file(void *arg, const char *path, int *file)
{
    mem_disk *disk = arg;
    int number = begin(disk);
    node *found = lookup(disk, path);

    if (number == 0 && found == NULL) number = ENOENT;
    if (number == 0 && found->is_dir) number = EISDIR;
    if (number == 0) number = take_handle(disk, found, path, file);
    return end(disk, "open", path, 0, number);
}

static int size_of_file(void *arg, int file, uint64_t *bytes)
{
    mem_disk *disk = arg;
    int number = begin(disk);

    *bytes = disk->open[file].file->bytes;
    return end(disk, "size", disk->open[file].path, 0, number);
}

static int read_file(void *arg, int file, uint64_t offset, void *at, size_t bytes)
{
    mem_disk *disk = arg;
    const node *from = disk->open[file].file;
    int number = begin(disk);

    if (number == 0 && (offset > from->bytes || bytes > from->bytes - offset)) number = ENODATA;
    if (number == 0 && bytes > 0) memcpy(at, from->data + offset, bytes);
    return end(disk, "read", disk->open[file].path, bytes, number);
}

static int close_file(void *arg, int file)
{
    mem_disk *disk = arg;
    int number = begin(disk);

    assert(disk->open[file].file != NULL);
    disk->open[file].file = NULL; /* a file is closed even if that fails */
    return end(disk, "close", disk->open[file].path, 0, number);
}

static int sync_names(node *dir)
{
    for (size_t i = 0; i < dir->n_changes; i++) {
        if (!reserve(&dir->durable)) return ENOMEM;
        apply(&dir->durable, &dir->changes[i]);
    }
    dir->n_changes = 0;
    return 0;
}

static int sync_dir(void *arg, const char *path)
{
    mem_disk *disk = arg;
    int number = begin(disk);
    node *dir = lookup(disk, path);

    if (number == 0 && dir == NULL) number = ENOENT;
    if (number == 0 && !dir->is_dir) number = ENOTDIR;
    if (number == 0) number = sync_names(dir);
    collect(disk);
    return end(disk, "sync_dir", path, 0, number);
}

static int move(mem_disk *disk, const char *from, const char *to)
{
    node *dir, *other, *found, *target;
    char name[256], new_name[256];

    if ((found = walk(disk, from, &dir, name)) == NULL) return ENOENT;
    target = walk(disk, to, &other, new_name);
    assert(dir == other);
    if (target != NULL && target->is_dir && target->now.n > 0) return ENOTEMPTY;
    if (target != NULL && target->is_dir != found->is_dir) return found->is_dir ? ENOTDIR : EISDIR;
    return alter(dir, name, new_name, found);
}

static int rename_path(void *arg, const char *from, const char *to)
{
    mem_disk *disk = arg;
    int number = begin(disk);

    if (number == 0) number = move(disk, from, to);
    return end(disk, "rename", from, 0, number);
}

static int remove_path(void *arg, const char *path)
{
    mem_disk *disk = arg;
    node *dir, *found;
    char name[256];
    int number = begin(disk);

    found = walk(disk, path, &dir, name);
    if (number == 0 && found == NULL) number = ENOENT;
    if (number == 0 && found->is_dir && found->now.n > 0) number = ENOTEMPTY;
    if (number == 0) number = alter(dir, "", name, NULL);
    return end(disk, "remove", path, 0, number);
}

static int list_dir(void *arg, const char *path, void (*each)(void *what, const char *name), void *what)
{
    mem_disk *disk = arg;
    int number = begin(disk);
    const node *dir = lookup(disk, path);

    if (number == 0 && dir == NULL) number = ENOENT;
    if (number == 0 && !dir->is_dir) number = ENOTDIR;
    for (size_t i = 0; number == 0 && i < dir->now.n; i++) each(what, dir->now.at[i].name);
    return end(disk, "list", path, 0, number);
}

static int space_of_disk(void *arg, const char *path, uint64_t *bytes)
{
    mem_disk *disk = arg;
    int number = begin(disk);
    uint64_t used = used_bytes(disk);

    *bytes = used < disk->limit ? disk->limit - used : 0;
    return end(disk, "space", path, 0, number);
}

pd_disk mem_disk_table(mem_disk *disk)
{
    return (pd_disk){ .arg = disk,
                      .make_dir = make_dir,
                      .create = create_file,
                      .write = write_file,
                      .reopen = reopen_file,
                      .write_at = write_file_at,
                      .sync_file = sync_file,
                      .sync_data = sync_data,
                      .open = open_file,
                      .size = size_of_file,
                      .read = read_file,
                      .close = close_file,
                      .sync_dir = sync_dir,
                      .rename = rename_path,
                      .remove = remove_path,
                      .list = list_dir,
                      .space = space_of_disk };
}

mem_disk *mem_disk_new(void)
{
    mem_disk *disk = calloc(1, sizeof *disk);

    if (disk == NULL) return NULL;
    disk->root.is_dir = true;
    disk->limit = UINT64_MAX / 2;
    disk->fail_at = disk->off_at = -1;
    if ((disk->record = calloc(MOST_CALLS, sizeof *disk->record)) != NULL) return disk;
    free(disk);
    return NULL;
}

void mem_disk_free(mem_disk *disk)
{
    if (disk == NULL) return;
    for (node *n = disk->nodes, *next; n != NULL; n = next) {
        next = n->next;
        node_free(n);
        free(n);
    }
    node_free(&disk->root);
    free(disk->record);
    free(disk);
}

void mem_disk_fail_at(mem_disk *disk, int64_t n, int number)
{
    disk->fail_at = n < 0 ? -1 : disk->calls + n;
    disk->fail_number = number;
}

void mem_disk_power_off_at(mem_disk *disk, int64_t n)
{
    disk->off_at = n < 0 ? -1 : disk->calls + n;
}

void mem_disk_limit(mem_disk *disk, uint64_t bytes)
{
    disk->limit = bytes;
}

/* Returns the next random number (splitmix64). */
static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Decides which names a directory has after a crash. */
static void crash_dir(node *dir, mem_disk_crash_kind kind, uint64_t *state)
{
    for (size_t i = 0; i < dir->n_changes; i++) {
        bool kept = kind == MEM_DISK_KEEP || (kind == MEM_DISK_TEAR && next(state) % 2 == 0);
        if (kept && reserve(&dir->durable)) apply(&dir->durable, &dir->changes[i]);
    }
    dir->n_changes = 0;
    dir->now.n = 0;
    for (size_t i = 0; i < dir->durable.n && reserve(&dir->now); i++) dir->now.at[dir->now.n++] = dir->durable.at[i];
}

/* Decides which bytes that were written over a file has after a crash: sectors of 512 bytes are old or new. */
static void crash_before(node *file, mem_disk_crash_kind kind, uint64_t *state)
{
    for (size_t at = 0, n; file->before != NULL && at < file->synced; at += n) {
        n = file->synced - at < 512 ? file->synced - at : 512;
        if (kind == MEM_DISK_KEEP && !file->lost) break;
        if (kind == MEM_DISK_TEAR && next(state) % 2 == 0) continue;
        memcpy(file->data + at, file->before + at, n);
    }
    free(file->before);
    file->before = NULL;
}

/* Decides which data a file has after a crash. */
static void crash_file(node *file, mem_disk_crash_kind kind, uint64_t *state)
{
    size_t left = file->bytes - file->synced, kept = kind == MEM_DISK_KEEP && !file->lost ? left : 0;

    crash_before(file, kind, state);
    if (kind == MEM_DISK_TEAR && left > 0) {
        kept = (size_t)(next(state) % (left + 1));
        if (next(state) % 2 == 0) { /* the length is on the disk, but not all data */
            memset(file->data + file->synced + kept, (int)(next(state) % 2) * 0xa5, left - kept);
            kept = left;
        }
    }
    file->bytes = file->synced += kept;
    file->lost = false;
}

void mem_disk_crash(mem_disk *disk, mem_disk_crash_kind kind, uint64_t seed)
{
    uint64_t state = seed;

    crash_dir(&disk->root, kind, &state);
    for (node *n = disk->nodes; n != NULL; n = n->next) {
        if (n->is_dir)
            crash_dir(n, kind, &state);
        else
            crash_file(n, kind, &state);
    }
    memset(disk->open, 0, sizeof disk->open);
    disk->fail_at = disk->off_at = -1;
    collect(disk);
}

const mem_disk_call *mem_disk_calls(const mem_disk *disk, size_t *n)
{
    *n = disk->n_record;
    return disk->record;
}

void mem_disk_forget_calls(mem_disk *disk)
{
    disk->n_record = 0;
}

uint8_t *mem_disk_file(mem_disk *disk, const char *path, size_t *bytes)
{
    node *found = lookup(disk, path);

    if (found == NULL || found->is_dir) return NULL;
    *bytes = found->bytes;
    return found->data;
}

bool mem_disk_has(mem_disk *disk, const char *path)
{
    return lookup(disk, path) != NULL;
}

void mem_disk_resize(mem_disk *disk, const char *path, size_t bytes)
{
    node *file = lookup(disk, path);
    void *data = file->data;

    if (grow(&data, &file->room, bytes, 1)) {
        file->data = data;
        if (bytes > file->bytes) memset(file->data + file->bytes, 0, bytes - file->bytes);
        file->bytes = file->synced = bytes;
    }
}
