/* sim_disk.c - a disk in memory (tests/support/mem_disk.h) for the simulated server, with calls that fail by chance. */
#include "sim_disk.h"

#include "mem_disk.h"

#include <errno.h>
#include <stdlib.h>

struct sim_disk {
    mem_disk *memory;
    pd_disk inner, functions; /* the functions of `memory`, and those that the server gets */
    uint64_t calls, dies_at;  /* calls that change the disk: how many there were, and in which one the server dies */
    uint64_t random;          /* of its own, so that a disk draws nothing from the run's numbers */
    int writes;               /* the file to which the last call wrote; -1: that call was another one */
    bool dead, starting;      /* starting: a server comes back, during which no call fails by chance */
    int error;
    uint64_t fails_of;
    bool dies_of_it; /* the server dies soon after some of the calls that fail */
};

/* Prepares a call that changes the disk: it may fail, or the server dies in it. A write that fails is made in part.
 * Memory of the disk is none of the server's: returns the side that the call came from. */
static sim_side begin(sim_disk *disk)
{
    sim_side before = sim_enter(SIM_HARNESS);

    disk->writes = -1;
    mem_disk_forget_calls(disk->memory);
    if (disk->dead) return before;
    if (disk->calls++ == disk->dies_at) {
        disk->dead = true;
        mem_disk_power_off_at(disk->memory, sim_once_in(&disk->random, 2) ? 0 : 1);
        mem_disk_fail_at(disk->memory, 0, EIO);
    } else if (disk->fails_of > 0 && !disk->starting && sim_once_in(&disk->random, disk->fails_of)) {
        mem_disk_fail_at(disk->memory, 0, disk->error);
        if (disk->dies_of_it && sim_once_in(&disk->random, 2)) sim_disk_die_in(disk, sim_below(&disk->random, 12));
    }
    return before;
}

static int make_dir(void *arg, const char *path)
{
    sim_disk *disk = arg;
    sim_side before = begin(disk);
    int rc = disk->inner.make_dir(disk->inner.arg, path);

    sim_enter(before);
    return rc;
}

static int create(void *arg, const char *path, uint64_t bytes, int *file)
{
    sim_disk *disk = arg;
    sim_side before = begin(disk);
    int rc = disk->inner.create(disk->inner.arg, path, bytes, file);

    sim_enter(before);
    return rc;
}

static int put(void *arg, int file, const void *at, size_t bytes)
{
    sim_disk *disk = arg;
    /* Where the keeper's memory lies decides how many calls write a file, so they count as one. */
    sim_side before = disk->writes == file ? sim_enter(SIM_HARNESS) : begin(disk);
    int rc = disk->inner.write(disk->inner.arg, file, at, bytes);

    disk->writes = file;
    sim_enter(before);
    return rc;
}

static int reopen(void *arg, const char *path, uint64_t bytes, int *file)
{
    sim_disk *disk = arg;
    sim_side before = sim_enter(SIM_HARNESS);
    int rc = disk->inner.reopen(disk->inner.arg, path, bytes, file);

    sim_enter(before);
    return rc;
}

static int put_at(void *arg, int file, uint64_t offset, const void *at, size_t bytes)
{
    sim_disk *disk = arg;
    sim_side before = disk->writes == file ? sim_enter(SIM_HARNESS) : begin(disk);
    int rc = disk->inner.write_at(disk->inner.arg, file, offset, at, bytes);

    disk->writes = file;
    sim_enter(before);
    return rc;
}

static int sync_data(void *arg, int file)
{
    sim_disk *disk = arg;
    sim_side before = begin(disk);
    int rc = disk->inner.sync_data(disk->inner.arg, file);

    sim_enter(before);
    return rc;
}

static int sync_file(void *arg, int file)
{
    sim_disk *disk = arg;
    sim_side before = begin(disk);
    int rc = disk->inner.sync_file(disk->inner.arg, file);

    sim_enter(before);
    return rc;
}

static int sync_dir(void *arg, const char *path)
{
    sim_disk *disk = arg;
    sim_side before = begin(disk);
    int rc = disk->inner.sync_dir(disk->inner.arg, path);

    sim_enter(before);
    return rc;
}

static int move(void *arg, const char *from, const char *to)
{
    sim_disk *disk = arg;
    sim_side before = begin(disk);
    int rc = disk->inner.rename(disk->inner.arg, from, to);

    sim_enter(before);
    return rc;
}

static int take_away(void *arg, const char *path)
{
    sim_disk *disk = arg;
    sim_side before = begin(disk);
    int rc = disk->inner.remove(disk->inner.arg, path);

    sim_enter(before);
    return rc;
}

static int look(void *arg, const char *path, int *file)
{
    sim_disk *disk = arg;
    sim_side before = sim_enter(SIM_HARNESS);
    int rc = disk->inner.open(disk->inner.arg, path, file);

    sim_enter(before);
    return rc;
}

static int size(void *arg, int file, uint64_t *bytes)
{
    sim_disk *disk = arg;
    sim_side before = sim_enter(SIM_HARNESS);
    int rc = disk->inner.size(disk->inner.arg, file, bytes);

    sim_enter(before);
    return rc;
}

static int get(void *arg, int file, uint64_t offset, void *at, size_t bytes)
{
    sim_disk *disk = arg;
    sim_side before = sim_enter(SIM_HARNESS);
    int rc = disk->inner.read(disk->inner.arg, file, offset, at, bytes);

    sim_enter(before);
    return rc;
}

static int end(void *arg, int file)
{
    sim_disk *disk = arg;
    sim_side before = sim_enter(SIM_HARNESS);
    int rc = disk->inner.close(disk->inner.arg, file);

    sim_enter(before);
    return rc;
}

/* The names in a directory, which `each` of the server gets on the server's side. */
typedef struct listing {
    void (*each)(void *what, const char *name);
    void *what;
    sim_side side;
} listing;

static void hand_on(void *arg, const char *name)
{
    const listing *l = arg;
    sim_side before = sim_enter(l->side);

    l->each(l->what, name);
    sim_enter(before);
}

static int list(void *arg, const char *path, void (*each)(void *what, const char *name), void *what)
{
    sim_disk *disk = arg;
    listing l = { .each = each, .what = what, .side = sim_enter(SIM_HARNESS) };
    int rc = disk->inner.list(disk->inner.arg, path, hand_on, &l);

    sim_enter(l.side);
    return rc;
}

static int space(void *arg, const char *path, uint64_t *bytes)
{
    const sim_disk *disk = arg;

    if (disk->error != ENOSPC) return disk->inner.space(disk->inner.arg, path, bytes);
    *bytes = 0;
    return 0;
}

/* Returns the functions of a disk that a server has. */
static pd_disk functions_of(sim_disk *disk)
{
    return (pd_disk){ .arg = disk,
                      .make_dir = make_dir,
                      .create = create,
                      .write = put,
                      .reopen = reopen,
                      .write_at = put_at,
                      .sync_file = sync_file,
                      .sync_data = sync_data,
                      .open = look,
                      .size = size,
                      .read = get,
                      .close = end,
                      .sync_dir = sync_dir,
                      .rename = move,
                      .remove = take_away,
                      .list = list,
                      .space = space };
}

sim_disk *sim_disk_new(sim *s, uint32_t number, const char *root)
{
    sim_side before = sim_enter(SIM_HARNESS);
    sim_disk *disk = sim_must(calloc(1, sizeof *disk));

    disk->random = sim_mix(s->plan->seed, 4, 7, 11 + number);
    disk->dies_at = UINT64_MAX;
    disk->writes = -1;
    disk->memory = sim_must(mem_disk_new());
    disk->inner = mem_disk_table(disk->memory);
    disk->functions = functions_of(disk);
    if (disk->inner.make_dir(disk->inner.arg, root) != 0 || disk->inner.sync_dir(disk->inner.arg, "/") != 0)
        sim_fail("harness", "the disk has no %s", root);
    sim_enter(before);
    return disk;
}

void sim_disk_free(sim_disk *disk)
{
    sim_side before = sim_enter(SIM_HARNESS);

    if (disk != NULL) mem_disk_free(disk->memory);
    free(disk);
    sim_enter(before);
}

const pd_disk *sim_disk_functions(const sim_disk *disk)
{
    return &disk->functions;
}

void sim_disk_trouble(sim_disk *disk, int error, uint64_t n, bool dies)
{
    disk->error = error;
    disk->fails_of = n;
    disk->dies_of_it = dies;
}

void sim_disk_die_in(sim_disk *disk, uint64_t calls)
{
    disk->dies_at = calls == UINT64_MAX ? calls : disk->calls + calls;
}

void sim_disk_start(sim_disk *disk, bool starting)
{
    disk->starting = starting;
}

bool sim_disk_is_dead(const sim_disk *disk)
{
    return disk->dead;
}

uint64_t sim_disk_calls(const sim_disk *disk)
{
    return disk->calls;
}

void sim_disk_lose(sim_disk *disk)
{
    sim_side before = sim_enter(SIM_HARNESS);
    static const mem_disk_crash_kind kinds[] = { MEM_DISK_LOSE, MEM_DISK_KEEP, MEM_DISK_TEAR, MEM_DISK_TEAR };

    mem_disk_crash(disk->memory, kinds[sim_below(&disk->random, 4)], sim_next(&disk->random));
    disk->dead = false;
    disk->dies_at = UINT64_MAX;
    sim_enter(before);
}

void sim_disk_take(sim_disk *disk, sim_disk *from)
{
    mem_disk *memory = from->memory;

    from->memory = disk->memory;
    from->inner = mem_disk_table(from->memory);
    from->functions = sim_disk_lost;
    disk->memory = memory;
    disk->inner = mem_disk_table(memory);
    disk->functions = functions_of(disk);
    sim_disk_trouble(from, 0, 0, false);
    sim_disk_trouble(disk, 0, 0, false);
    sim_disk_die_in(from, UINT64_MAX);
    disk->writes = from->writes = -1;
    sim_disk_lose(disk);
}
