/* archived.c - an object with a field of every kind, and the function that visits its fields, for tests of archives. */
#include "archived.h"

#include <stdlib.h>

static const pd_field point_fields[] = { PD_FIELD(archived_point, x),
                                         PD_FIELD_IN(archived_point, label, 0, 100),
                                         { 0 } };
static const pd_table point_table = { "point", sizeof(archived_point), point_fields };

static const pd_field fields[] = {
    PD_FIELD(archived, flag),  PD_FIELD(archived, small),  PD_FIELD_IN(archived, level, -3, 5),
    PD_FIELD(archived, large), PD_FIELD(archived, single), PD_FIELD(archived, wide),
    PD_FIELD(archived, name),  PD_FIELD(archived, text),   { 0 }
};
static const pd_table table = { "thing", sizeof(archived), fields };

void archived_visit(pd_archive *archive, archived *thing)
{
    pd_archive_enter(archive, "thing");
    pd_archive_fields(archive, &table, thing);
    thing->points = pd_archive_list(archive, &point_table, thing->points, &thing->n_points, ARCHIVED_MOST);
    pd_archive_leave(archive);
}

int archived_write(archived *thing, uint8_t **image, size_t *n, pd_error *err)
{
    pd_archive archive;

    pd_archive_begin_write(&archive);
    archived_visit(&archive, thing);
    return pd_archive_end(&archive, image, n, err);
}

int archived_read(archived *thing, const uint8_t *image, size_t n, pd_error *err)
{
    pd_archive archive;

    *thing = (archived){ 0 };
    pd_archive_begin_read(&archive, image, n);
    archived_visit(&archive, thing);
    return pd_archive_end(&archive, NULL, NULL, err);
}

void archived_free(archived *thing)
{
    for (size_t i = 0; i < thing->n_points; i++) free(thing->points[i].label);
    free(thing->points);
    free(thing->text);
}
