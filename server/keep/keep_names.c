/* keep_names.c - makes and reads the names of directories and files in a state directory. */
#include "keep_names.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "hash.h"

enum { MOST_OF_NAME = 180, DIGITS = 20 };

const char *const pd_keep_files[PD_KEEP_FILES] = {
    [PD_KEEP_WEIGHTS] = "weights.safetensors",
    [PD_KEEP_STATE] = "state.bin",
    [PD_KEEP_NOTES] = "notes.bin",
};

static const struct {
    const char *prefix, *suffix;
} kinds[PD_STEP_NONE] = {
    [PD_STEP_CURRENT] = { "step-", "" },
    [PD_STEP_OLD] = { "step-", ".old" },
    [PD_STEP_TEMPORARY] = { "tmp-", "" },
    [PD_STEP_ASIDE] = { "aside-", "" },
};

static bool is_plain(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
}

/* Writes a name with %XX for all but plain bytes. Returns the number of bytes written; `most` is the largest. */
static size_t encode(char *out, size_t most, const char *name)
{
    size_t n = 0;

    for (; *name != '\0'; name++) {
        bool plain = is_plain(*name);
        if (n + (plain ? 1 : 3) > most) break;
        if (plain)
            out[n++] = *name;
        else
            n += (size_t)snprintf(out + n, 4, "%%%02X", (unsigned)(uint8_t)*name);
    }
    out[n] = '\0';
    return n;
}

void pd_keep_job_name(char out[PD_KEEP_NAME], const char *job, uint64_t creator)
{
    char plain[3 * PD_KEEP_NAME + 4];
    size_t n = encode(plain, sizeof plain - 4, job);

    if (n <= MOST_OF_NAME)
        snprintf(out, PD_KEEP_NAME, "%.180s-%016" PRIx64, plain, creator);
    else
        snprintf(out, PD_KEEP_NAME, "%.180s~%016" PRIx64 "-%016" PRIx64, plain, (uint64_t)XXH3_64bits(job, strlen(job)),
                 creator);
}

void pd_keep_step_name(char out[PD_KEEP_NAME], pd_step_kind kind, uint64_t step)
{
    snprintf(out, PD_KEEP_NAME, "%s%020" PRIu64 "%s", kinds[kind].prefix, step, kinds[kind].suffix);
}

/* Reads 20 digits. Returns false if there are none, or if they are no step: steps are below 2^63. */
static bool parse_digits(const char *at, uint64_t *step)
{
    uint64_t value = 0;

    for (int i = 0; i < DIGITS; i++) {
        if (at[i] < '0' || at[i] > '9' || value > INT64_MAX / 10) return false;
        value = 10 * value + (uint64_t)(at[i] - '0');
    }
    *step = value;
    return value <= INT64_MAX;
}

void pd_keep_old_name(char out[PD_KEEP_NAME], uint64_t step, int number)
{
    pd_keep_step_name(out, PD_STEP_OLD, step);
    if (number > 1) snprintf(out + strlen(out), PD_KEEP_NAME - strlen(out), ".%d", number);
}

/* Returns whether this is ".old.N", with N from 2 to PD_KEEP_OLDS. */
static bool is_another_old(const char *suffix)
{
    size_t n = strlen(kinds[PD_STEP_OLD].suffix);

    return strncmp(suffix, kinds[PD_STEP_OLD].suffix, n) == 0 && suffix[n] == '.' && suffix[n + 1] >= '2' &&
           suffix[n + 1] <= '0' + PD_KEEP_OLDS && suffix[n + 2] == '\0';
}

pd_step_kind pd_keep_step_parse(const char *name, uint64_t *step)
{
    for (pd_step_kind kind = 0; kind < PD_STEP_NONE; kind++) {
        size_t n = strlen(kinds[kind].prefix);
        if (strncmp(name, kinds[kind].prefix, n) != 0 || strlen(name) < n + DIGITS) continue;
        if (!parse_digits(name + n, step)) continue;
        if (strcmp(name + n + DIGITS, kinds[kind].suffix) == 0) return kind;
        if (kind == PD_STEP_ASIDE && name[n + DIGITS] == '.') return kind;
        if (kind == PD_STEP_OLD && is_another_old(name + n + DIGITS)) return kind;
    }
    return PD_STEP_NONE;
}

void pd_keep_segment_name(char out[PD_KEEP_NAME], pd_segment_kind kind, uint64_t number, uint64_t step)
{
    int n = snprintf(out, PD_KEEP_NAME, "segment-%020" PRIu64, number);

    if (kind == PD_SEGMENT_UP_TO) snprintf(out + n, PD_KEEP_NAME - (size_t)n, ".to-%020" PRIu64, step);
}

/* Returns what follows a prefix and 20 digits, whose value it tells; NULL: the text is another. */
static const char *parse_part(const char *text, const char *prefix, uint64_t *value)
{
    size_t n = strlen(prefix);

    if (strncmp(text, prefix, n) != 0 || strlen(text) < n + DIGITS || !parse_digits(text + n, value)) return NULL;
    return text + n + DIGITS;
}

pd_segment_kind pd_keep_segment_parse(const char *name, uint64_t *number, uint64_t *step)
{
    const char *rest = parse_part(name, "segment-", number);

    *step = UINT64_MAX;
    if (rest == NULL) return PD_SEGMENT_NONE;
    if (rest[0] == '\0') return PD_SEGMENT_WHOLE;
    rest = parse_part(rest, ".to-", step);
    return rest != NULL && rest[0] == '\0' ? PD_SEGMENT_UP_TO : PD_SEGMENT_NONE;
}

void pd_keep_join(char out[PD_KEEP_PATH], const char *path, const char *name)
{
    int n = snprintf(out, PD_KEEP_PATH, "%s/%s", path, name);
    assert(n > 0 && n < PD_KEEP_PATH);
    (void)n;
}

int pd_keep_check_root(const char *root, pd_error *err)
{
    if (root[0] != '\0' && strlen(root) <= PD_KEEP_ROOT) return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT, "state directory %.100s: expected a path of 1 to %d bytes", root,
                   PD_KEEP_ROOT);
}
