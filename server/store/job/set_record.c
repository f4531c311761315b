/* set_record.c - writes and reads an operator's command that sets values as bytes, with one table of fields for both
 * directions. */
#include "set_record.h"

#include "archive.h"

#include <stdlib.h>

/* Most parameters of a job, by what a record may name. */
enum { MOST_PARAMS = 1 << 24, MOST_VALUE = 4096 };

static const pd_field command_fields[] = { PD_FIELD_IN(pd_set_record, pattern, 0, PD_NAME_MAX),
                                           PD_FIELD_IN(pd_set_record, by, 0, MOST_VALUE),
                                           PD_FIELD(pd_set_record, from_step),
                                           { 0 } };
static const pd_table command_table = { "set", sizeof(pd_set_record), command_fields };

static const pd_field option_fields[] = { PD_FIELD_IN(pd_option, name, 0, MOST_VALUE),
                                          PD_FIELD_IN(pd_option, value, 0, MOST_VALUE),
                                          { 0 } };
static const pd_table option_table = { "option", sizeof(pd_option), option_fields };

typedef struct pd_next_step {
    uint64_t step;
} pd_next_step;
static const pd_field next_fields[] = { PD_FIELD_IN(pd_next_step, step, 1, INT64_MAX), { 0 } };
static const pd_table next_table = { "next step", sizeof(pd_next_step), next_fields };

static void visit(pd_archive *archive, pd_set_record *record)
{
    pd_archive_enter(archive, "set");
    pd_archive_fields(archive, &command_table, record);
    record->options = pd_archive_list(archive, &option_table, record->options, &record->n_options, PD_MAX_OPTIONS);
    record->next = pd_archive_list(archive, &next_table, record->next, &record->n_next, MOST_PARAMS);
    pd_archive_leave(archive);
}

int pd_set_record_write(const pd_set_record *record, uint8_t **bytes, size_t *n, pd_error *err)
{
    pd_set_record copy = *record;
    pd_archive archive;

    pd_archive_begin_write(&archive);
    visit(&archive, &copy);
    return pd_archive_end(&archive, bytes, n, err);
}

/* Checks that no text is left out. */
static bool is_whole(const pd_set_record *record)
{
    for (size_t i = 0; i < record->n_options; i++)
        if (record->options[i].name == NULL || record->options[i].value == NULL) return false;
    return record->pattern != NULL && record->by != NULL && record->n_options > 0 && record->n_next > 0;
}

int pd_set_record_read(pd_set_record *record, const uint8_t *bytes, size_t n, pd_error *err)
{
    pd_archive archive;
    int rc;

    *record = (pd_set_record){ 0 };
    pd_archive_begin_read(&archive, bytes, n);
    visit(&archive, record);
    rc = pd_archive_end(&archive, NULL, NULL, err);
    if (rc != PD_OK || is_whole(record)) return rc;
    return pd_fail(err, PD_DATA_LOSS, "a command that sets values has no pattern, operator, value or parameter");
}

void pd_set_record_free(pd_set_record *record)
{
    for (size_t i = 0; i < record->n_options; i++) {
        free(record->options[i].name);
        free(record->options[i].value);
    }
    free(record->options);
    free(record->next);
    free(record->pattern);
    free(record->by);
    *record = (pd_set_record){ 0 };
}
