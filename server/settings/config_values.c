/* config_values.c - reads the values of configuration keys according to their types. */
#include "config_values.h"

#include "store.h"
#include "text.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool read_count(const char *text, uint64_t *out)
{
    char *end;

    errno = 0;
    *out = strtoull(text, &end, 10);
    return isdigit((unsigned char)text[0]) && errno == 0 && *end == '\0';
}

static bool read_ms(const char *text, uint64_t *out)
{
    double seconds;

    if (!pd_duration_read(text, false, &seconds) || seconds > 1e12) return false;
    *out = (uint64_t)(seconds * 1000 + 0.5);
    return true;
}

typedef struct form {
    bool (*read)(const char *text, uint64_t *out);
    const char *example, *unit;
} form;

static const form forms[] = {
    [PD_KEY_COUNT] = { read_count, "a whole number", "" },
    [PD_KEY_BYTES] = { pd_bytes_read, "a size like 64KiB, 256M or 1G", " bytes" },
    [PD_KEY_TIME] = { read_ms, "a duration like 500ms, 30s, 5m, 1h or 1d", " ms" },
};

static int set_number(pd_config *config, const pd_key *key, const char *value, pd_error *err)
{
    uint64_t *out = (uint64_t *)(void *)((char *)config + key->offset), number = 0;
    const form *f = &forms[key->type];

    if (key->automatic && strcmp(value, "auto") == 0) {
        *out = 0;
        return PD_OK;
    }
    if (!f->read(value, &number))
        return pd_fail(err, PD_INVALID_ARGUMENT, "%s.%s = %s: expected %s%s", key->section, key->name, value,
                       f->example, key->automatic ? ", or auto" : "");
    if (number < key->least || number > key->most)
        return pd_fail(err, PD_OUT_OF_RANGE, "%s.%s = %s: expected %llu to %llu%s", key->section, key->name, value,
                       (unsigned long long)key->least, (unsigned long long)key->most, f->unit);
    *out = number;
    return PD_OK;
}

/* Returns the index of the text `value` in a list of choices such as "text|logfmt|json", or -1 if it is not there. */
static int choice_index(const char *choices, const char *value)
{
    size_t length = strlen(value);
    int index = 0;

    for (const char *at = choices; at != NULL; at = strchr(at, '|'), index++) {
        if (*at == '|') at++;
        if (strncmp(at, value, length) == 0 && length > 0 && (at[length] == '|' || at[length] == '\0')) return index;
    }
    return -1;
}

static int set_choice(pd_config *config, const pd_key *key, const char *value, pd_error *err)
{
    int index = choice_index(key->choices, value);

    if (index < 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "%s.%s = %s: expected one of %s", key->section, key->name, value,
                       key->choices);
    *(uint64_t *)(void *)((char *)config + key->offset) = (uint64_t)index;
    return PD_OK;
}

static int set_flag(pd_config *config, const pd_key *key, const char *value, pd_error *err)
{
    int index = choice_index("no|false|0|off|yes|true|1|on", value);

    if (index < 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "%s.%s = %s: expected yes or no", key->section, key->name, value);
    *(bool *)((char *)config + key->offset) = index >= 4;
    return PD_OK;
}

int pd_config_replace(char **text, const char *value, pd_error *err)
{
    char *copy = strdup(value);

    if (copy == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    free(*text);
    *text = copy;
    return PD_OK;
}

int pd_config_set_value(pd_config *config, const pd_key *key, const char *value, pd_error *err)
{
    int rc;

    switch (key->type) {
    case PD_KEY_TEXT: return pd_config_replace((char **)(void *)((char *)config + key->offset), value, err);
    case PD_KEY_YES_NO: return set_flag(config, key, value, err);
    case PD_KEY_ONE_OF: return set_choice(config, key, value, err);
    case PD_KEY_COUNT:
    case PD_KEY_BYTES:
    case PD_KEY_TIME: return set_number(config, key, value, err);
    case PD_KEY_JOB: break;
    }
    if ((rc = pd_job_key_check(key->name, value, err)) != PD_OK) return rc;
    return pd_config_replace(&config->job[key->offset].value, value, err);
}
