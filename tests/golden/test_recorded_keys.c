/* Tests that every key under which the recorded runs keep optimizer state, state/TTTT/NAME/FIELD, names a slot of its
 * parameter. */
#include "test.h"
#include "golden.h"
#include "state_keys.h"

enum { MOST = 512 };

static int ascending(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Finds the parameters of a run: those that have weights at its beginning. Returns their number. */
static size_t find_names(const pd_safetensors *file, const char **names)
{
    size_t n, found = 0;
    const pd_st_tensor *tensors = pd_safetensors_tensors(file, &n);

    for (size_t i = 0; i < n; i++) {
        if (strncmp(tensors[i].name, "param/0000/", 11) != 0) continue;
        assert_true(found < MOST);
        names[found++] = tensors[i].name + 11;
    }
    qsort(names, found, sizeof *names, ascending);
    return found;
}

/* Checks a key that was read from the name state/TTTT/NAME/FIELD. `text` is NAME/FIELD. NAME is the longest
 * parameter name with which the text begins. */
static void assert_of(const pd_state_key *key, const char *text, const char *const *names)
{
    const char *name = names[key->param], *field = text + strlen(name) + 1, *dot;

    assert_int_equal(strncmp(text, name, strlen(name)), 0);
    assert_true(text[strlen(name)] == '/');
    if (key->kind == PD_KEY_COUNT) {
        assert_string_equal(field, "step");
        return;
    }
    dot = strncmp(field, "block_", 6) == 0 ? strchr(field, '.') : NULL;
    assert_true((dot != NULL) == (key->block >= 0));
    if (dot != NULL) field = dot + 1;
    assert_int_equal(strncmp(field, key->slot, strlen(key->slot)), 0);
    assert_true(field[strlen(key->slot)] == '\0' || strchr("./", field[strlen(key->slot)]) != NULL);
    if (key->number >= 0) assert_int_equal(atoi(field + strlen(key->slot) + 1), key->number);
}

static void names_slots_of_its_parameters(void **state)
{
    const char *names[MOST];
    size_t bytes, n, n_names;
    void *at = golden_read(*state, &bytes);
    pd_safetensors *file;
    const pd_st_tensor *tensors;
    pd_error err;

    if (pd_safetensors_read(&file, at, bytes, &err) != PD_OK) fail_msg("%s", err.text);
    tensors = pd_safetensors_tensors(file, &n);
    n_names = find_names(file, names);
    for (size_t i = 0; i < n; i++) {
        pd_state_key key;
        if (strncmp(tensors[i].name, "state/", 6) != 0) continue;
        pd_state_key_read(&key, tensors[i].name, names, n_names);
        if (key.kind != PD_KEY_PART && key.kind != PD_KEY_COMPANION && key.kind != PD_KEY_COUNT)
            fail_msg("%s: %s is unknown", (const char *)*state, tensors[i].name);
        assert_of(&key, tensors[i].name + strlen("state/0000/"), names);
    }
    pd_safetensors_free(file);
    free(at);
}

TEST_PROGRAM(all_recorded_runs)
{
    static const char *const systems[] = { "google_shampoo", "meta_shampoo", "t5x_adafactor", "distributed_kron",
                                           "ademamix",       "mars",         "muon_torch",    "muon_keller",
                                           "schedule_free",  "gpa" };
    int failed = 0;

    for (size_t s = 0; s < sizeof systems / sizeof *systems; s++)
        failed += golden_folder(systems[s], names_slots_of_its_parameters, NULL, NULL);
    return failed;
}
