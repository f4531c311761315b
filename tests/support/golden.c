/* golden.c - finds and reads recorded files in the two folders that hold them. */
#include "golden.h"

#include <dirent.h>

#include "test.h"

static void give_up(const char *what)
{
    fprintf(stderr, "golden file: %s\n", what);
    abort();
}

static void *read_all(FILE *in, size_t *n)
{
    long length = -1;
    void *bytes;

    if (fseek(in, 0, SEEK_END) != 0 || (length = ftell(in)) < 0) give_up("cannot be read");
    rewind(in);
    if ((bytes = malloc((size_t)length + 1)) == NULL || fread(bytes, 1, (size_t)length, in) != (size_t)length)
        give_up("cannot be read");
    *n = (size_t)length;
    return bytes;
}

void *golden_read(const char *path, size_t *bytes)
{
    FILE *in = fopen(path, "rb");
    void *at;

    if (in == NULL) give_up("cannot be opened");
    at = read_all(in, bytes);
    fclose(in);
    return at;
}

/* the committed selection of traces; all recorded runs, if that folder exists */
static const char *const folders[] = { PD_SOURCE_DIR "/tests/golden/traces", PD_SOURCE_DIR "/../shared/golden" };
enum { FOLDERS = sizeof folders / sizeof *folders };

const char *golden_path(const char *name)
{
    static char path[1024];

    for (int i = 0; i < FOLDERS; i++) {
        snprintf(path, sizeof path, "%s/%s", folders[i], name);
        if (access(path, R_OK) == 0) return path;
    }
    fprintf(stderr, "there is no %s\n", name);
    give_up("is missing");
    return NULL;
}

json_t *golden_table(const char *name)
{
    json_t *table = json_load_file(golden_path(name), 0, NULL);

    if (table == NULL) give_up("is no JSON");
    return table;
}

void golden_open(golden_file *file, const char *name)
{
    size_t n;
    pd_error err;

    file->bytes = golden_read(golden_path(name), &n);
    if (pd_safetensors_read(&file->tensors, file->bytes, n, &err) != PD_OK) give_up(err.text);
    file->config = json_loads(pd_safetensors_meta(file->tensors, "config"), 0, NULL);
    if (!json_is_array(golden_cases(file))) give_up("metadata has no config.cases");
}

void golden_close(golden_file *file)
{
    json_decref(file->config);
    pd_safetensors_free(file->tensors);
    free(file->bytes);
}

const pd_st_tensor *golden_find(const golden_file *file, const char *format, ...)
{
    char name[128];
    va_list args;

    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    return pd_safetensors_find(file->tensors, name);
}

const void *golden_data(const golden_file *file, const pd_st_tensor *tensor)
{
    return pd_safetensors_data(file->tensors, tensor);
}

float *golden_floats(const golden_file *file, const pd_st_tensor *tensor)
{
    float *at;

    if (tensor == NULL || tensor->dtype != PD_ST_F32) give_up("a tensor of float32 is missing");
    if ((at = malloc(tensor->bytes + sizeof *at)) == NULL) give_up("no memory");
    memcpy(at, golden_data(file, tensor), tensor->bytes);
    return at;
}

json_t *golden_cases(const golden_file *file)
{
    return json_object_get(file->config, "cases");
}

int64_t golden_int(const json_t *entry, const char *key)
{
    return json_integer_value(json_object_get(entry, key));
}

double golden_real(const json_t *entry, const char *key)
{
    return json_number_value(json_object_get(entry, key));
}

static int safetensors_only(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name);
    return length > 12 && strcmp(entry->d_name + length - 12, ".safetensors") == 0;
}

static bool listed(const golden_list *list, const char *name)
{
    for (int i = 0; i < list->n; i++)
        if (strcmp(strrchr(list->path[i], '/') + 1, name) == 0) return true;
    return false;
}

static void list_folder(golden_list *list, const char *folder, const char *system)
{
    char path[512];
    struct dirent **entries;
    int found;

    snprintf(path, sizeof path, "%s/%s", folder, system);
    if ((found = scandir(path, &entries, safetensors_only, alphasort)) < 0) return;
    for (int i = 0; i < found; i++) {
        if (!listed(list, entries[i]->d_name)) {
            if (list->n == GOLDEN_MOST) give_up("there are more than GOLDEN_MOST");
            snprintf(list->path[list->n++], sizeof list->path[0], "%s/%s", path, entries[i]->d_name);
        }
        free(entries[i]);
    }
    free(entries);
}

void golden_list_of(golden_list *list, const char *system)
{
    list->n = 0;
    for (int i = 0; i < FOLDERS; i++) list_folder(list, folders[i], system);
}

int golden_folder(const char *system, void (*judge)(void **state), int (*setup)(void **state),
                  int (*teardown)(void **state))
{
    static golden_list list;
    struct CMUnitTest tests[GOLDEN_MOST];

    golden_list_of(&list, system);
    if (list.n == 0) give_up("there is no trace of the system");
    for (int i = 0; i < list.n; i++)
        tests[i] = (struct CMUnitTest){ .name = list.path[i], .test_func = judge, .initial_state = list.path[i] };
    return _cmocka_run_group_tests(system, tests, (size_t)list.n, setup, teardown);
}
