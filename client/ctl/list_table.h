/* list_table.h - a list of a daemon, printed as a table or as JSON. A list is one table of columns. */
#ifndef PD_LIST_TABLE_H
#define PD_LIST_TABLE_H

#include <jansson.h>

#include "command_line.h"
#include "connection.h"
#include "format.h"

typedef struct pd_column pd_column;
struct pd_column {
    const char *title;                  /* as pd_table_new takes it: '>' aligns to the right */
    const char *field;                  /* of the entry, as paramd.proto names it; NULL: `cell` reads several */
    void      (*cell)(pd_table *table, const pd_column *column, const void *entry);     /* a message */
};

typedef struct pd_list {
    unsigned         what;              /* ListRequest.what */
    const char      *name;              /* the field of ListReply, and the key in JSON */
    const char      *none;              /* printed where there are no entries */
    const pd_column *columns;           /* the last one is empty */
} pd_list;

/* Cells of one field. */
void pd_cell_text(pd_table *table, const pd_column *column, const void *entry);
void pd_cell_text_or_dash(pd_table *table, const pd_column *column, const void *entry);
void pd_cell_number(pd_table *table, const pd_column *column, const void *entry);
void pd_cell_count(pd_table *table, const pd_column *column, const void *entry);    /* with separators */
void pd_cell_bytes(pd_table *table, const pd_column *column, const void *entry);
void pd_cell_shape(pd_table *table, const pd_column *column, const void *entry);
void pd_cell_power(pd_table *table, const pd_column *column, const void *entry);    /* 1.2e-06; 0: not known */
void pd_cell_decimal(pd_table *table, const pd_column *column, const void *entry);  /* 1.23; 0: not known */

/* Entries on their way to stdout. */
typedef struct pd_list_output {
    const pd_list *list;
    bool           as_json;
    pd_table      *table;               /* one of them is used; NULL: out of memory */
    json_t        *json;
} pd_list_output;

pd_list_output pd_list_begin(const pd_list *list, bool json);
void pd_list_add(pd_list_output *out, const ProtobufCMessage *entry);
/* Adds a page of a list; `arg` is the output. */
pd_page_user pd_list_add_page;
/* Prints the entries if `rc` is PD_OK, else the error. Ends the output. Returns an exit status. */
int  pd_list_end(pd_list_output *out, int rc, const pd_error *err);

/* Asks for all pages of a list of the job in the line's first argument, for parameters that match the second. */
int  pd_list_fetch(const pd_line *line, unsigned what, pd_page_user *use, void *arg, pd_error *err);

#endif
