/* runner.c - the main of a folder's test program: runs the tests of the file that its argument names, for instance
 * `unit_tests kron`, or one of them: `unit_tests kron NAME`. */
#include "cpu.h"
#include "test.h"

#include <pthread.h>

static test_entry *entries; /* of all files */

void test_register(test_entry *entry)
{
    entry->next = entries;
    entries = entry;
}

/* Writes the name of the test file, X of test_X.c. */
static void name_of(const test_entry *entry, char *name, size_t size)
{
    const char *base = strrchr(entry->file, '/');

    snprintf(name, size, "%s", base == NULL ? entry->file : base + 1);
    memmove(name, name + strlen("test_"), strlen(name) - strlen("test_") + 1);
    name[strlen(name) - strlen(".c")] = '\0';
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int list_files(const char *program)
{
    enum { MOST = 1024 };
    static char *names[MOST];
    size_t n = 0;

    for (const test_entry *entry = entries; entry != NULL && n < MOST; entry = entry->next) {
        char name[128];
        name_of(entry, name, sizeof name);
        names[n++] = strdup(name);
        if (n > 1 && strcmp(names[n - 1], names[n - 2]) == 0) free(names[--n]);
    }
    qsort(names, n, sizeof *names, compare_names);
    fprintf(stderr, "Usage: %s FILE [TEST], where FILE is one of:\n", program);
    for (size_t i = 0; i < n; i++) fprintf(stderr, "  %s\n", names[i]);
    return 2;
}

typedef struct test_file {
    test_entry **at; /* in the order of the source */
    size_t n;
    const test_entry *each, *fixture, *group; /* or NULL */
    bool has_threads;                         /* WITH_THREADS */
} test_file;

static bool may_start_threads;

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg);

/* What our own code calls in place of pthread_create. */
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
    if (may_start_threads) return __real_pthread_create(thread, attr, run, arg);
    fputs("a thread starts: the test's file needs WITH_THREADS(), to run under ThreadSanitizer, too\n", stderr);
    abort();
}

static int compare_places(const void *a, const void *b)
{
    return (*(test_entry *const *)a)->place - (*(test_entry *const *)b)->place;
}

/* Collects the entries of a file. There are none if the file is unknown, or out of memory. */
static test_file collect(const char *wanted)
{
    test_file file = { 0 };

    for (test_entry *entry = entries; entry != NULL; entry = entry->next) {
        test_entry **more;
        char name[128];
        name_of(entry, name, sizeof name);
        if (strcmp(name, wanted) != 0) continue;
        if (entry->kind == TEST_EACH) file.each = entry;
        if (entry->kind == TEST_FIXTURE) file.fixture = entry;
        if (entry->kind == TEST_GROUP) file.group = entry;
        if (entry->kind == TEST_THREADS) file.has_threads = true;
        more = realloc(file.at, (file.n + 1) * sizeof *more);
        if (more == NULL) return (test_file){ 0 };
        file.at = more;
        file.at[file.n++] = entry;
    }
    qsort(file.at, file.n, sizeof(test_entry *), compare_places);
    return file;
}

/* Returns the test with the set-up and the tear-down that the file names for it. */
static struct CMUnitTest make_test(const test_file *file, const test_entry *entry)
{
    const test_entry *around = entry;

    if (entry->kind == TEST_PLAIN && file->each != NULL) around = file->each;
    if (entry->kind == TEST_PLAIN && file->fixture != NULL && entry->takes) around = file->fixture;
    return (struct CMUnitTest){
        .name = entry->name, .test_func = entry->run, .setup_func = around->set_up, .teardown_func = around->tear_down
    };
}

/* Runs a file's tests: all, or the one of that name. Returns the exit status. */
static int run(const char *name, const test_file *file, const char *only)
{
    struct CMUnitTest *tests = calloc(file->n, sizeof *tests);
    const test_entry none = { 0 }, group = file->group == NULL ? none : *file->group;
    size_t n = 0;
    int status = 0;

    if (tests == NULL) return 2;
    for (size_t i = 0; i < file->n; i++) {
        const test_entry *entry = file->at[i];
        if (entry->run != NULL && (only == NULL || strcmp(only, entry->name) == 0)) tests[n++] = make_test(file, entry);
    }
    if (n > 0) status = _cmocka_run_group_tests(name, tests, n, group.set_up, group.tear_down);
    for (size_t i = 0; i < file->n; i++) {
        const test_entry *entry = file->at[i];
        if (entry->kind != TEST_RUNS || (only != NULL && strcmp(only, entry->name) != 0)) continue;
        status |= entry->program();
        n++;
    }
    if (n == 0) fprintf(stderr, "no test %s in %s\n", only == NULL ? "" : only, name);
    free(tests);
    return n == 0 ? 2 : status;
}

/* The status by which ctest knows that a test was skipped. */
enum { SKIPPED = 77 };

int main(int argc, char **argv)
{
    test_file file = { 0 };
    pd_error err;
    int status;

    if (pd_cpu_check(&err) != PD_OK) {
        fprintf(stderr, "%s\n", err.text);
        return err.code == PD_UNAVAILABLE ? SKIPPED : 2;
    }
    cmocka_set_test_filter(getenv("CMOCKA_TEST_FILTER")); /* '*reconnect*': tests whose name matches the pattern */
    if (argc == 2 || argc == 3) file = collect(argv[1]);
    if (file.n == 0) return list_files(argv[0]);
    may_start_threads = file.has_threads || strstr(file.at[0]->file, "/unit/") == NULL;
    status = run(argv[1], &file, argc == 3 ? argv[2] : NULL);
    free(file.at);
    return status;
}
