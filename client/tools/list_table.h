/* list_table.h - prints a list that the daemon sends, such as its jobs, as a table or as JSON. Each list is
 * described by a table of columns. */
#ifndef PD_LIST_TABLE_H
#define PD_LIST_TABLE_H

#include <jansson.h>

#include "ask_all.h"
#include "text_table.h"

/* A column of a list's table. */
typedef struct pd_column pd_column;
struct pd_column {
    /* Title of the column, in the form of pd_table_new. With a '+' before it, the column is printed only with -o
     * wide. */
    const char *title;
    /* Name of the field that the cell shows, in the entry's message in paramd.proto. NULL: the cell shows several
     * fields. */
    const char *field;
    /* Writes a cell of the column; `entry` is the message of the row. */
    void (*cell)(pd_table *table, const pd_column *column, const void *entry);
};

/* A list that a daemon sends, and how to print it. */
typedef struct pd_list {
    unsigned what;            /* kind of list, as the field ListRequest.what asks for it */
    const char *name;         /* name of the field of ListReply that has the list, and key of the list in JSON */
    const char *none;         /* text to print if the list is empty */
    const pd_column *columns; /* the columns of the table; the last row is empty */
    /* each entry lies on one shard of a cluster: with several daemons, a column and a field in JSON say on which */
    bool placed;
} pd_list;

/* Functions that write a table cell with the value of a single field. */
void pd_cell_text(pd_table *table, const pd_column *column, const void *entry);
void pd_cell_text_or_dash(pd_table *table, const pd_column *column, const void *entry);
void pd_cell_number(pd_table *table, const pd_column *column, const void *entry);
void pd_cell_count(pd_table *table, const pd_column *column, const void *entry); /* such as "1,048,576" */
void pd_cell_bytes(pd_table *table, const pd_column *column, const void *entry);
void pd_cell_shape(pd_table *table, const pd_column *column, const void *entry);
/* Writes a number such as "1.2e-06"; "-" if the number is 0, which means that it is not known. */
void pd_cell_power(pd_table *table, const pd_column *column, const void *entry);
/* Writes a number such as "1.23"; "-" if the number is 0, which means that it is not known. */
void pd_cell_decimal(pd_table *table, const pd_column *column, const void *entry);

/* Returns the value of the column's field, which is a double. */
double pd_column_number(const pd_column *column, const void *entry);

/* Entries of a list (jobs, for example) that are collected for printing. */
typedef struct pd_list_output {
    const pd_list *list;
    const pd_line *line; /* command line, whose options choose table or JSON */
    pd_table *table;     /* the entries as a table; NULL: they are printed as JSON, or memory is missing */
    json_t *json;
    size_t n; /* number of entries */
} pd_list_output;

pd_list_output pd_list_begin(const pd_list *list, const pd_line *line);
void pd_list_add(pd_list_output *out, const ProtobufCMessage *entry);
/* Adds all entries of a page of the daemon's list to the output; `arg` is the pd_list_output. */
pd_page_user pd_list_add_page;
/* Ends the output: prints the collected entries if `rc` is PD_OK, otherwise the error, and frees the output.
 * Returns an exit status. */
int pd_list_end(pd_list_output *out, int rc, const pd_error *err);

/* Checks that at least one parameter of the job matches the pattern. PD_NOT_FOUND: none matches. */
int pd_list_check_match(pd_cluster *cluster, const char *job, const char *pattern, pd_error *err);
/* Fetches all pages of a list from the daemon, or from all daemons of a cluster, and calls `use` with each. The first
 * argument of the command line is the job, the second a pattern of parameter names. PD_NOT_FOUND: no parameter matches
 * the pattern. */
int pd_list_fetch(const pd_line *line, unsigned what, pd_page_user *use, void *arg, pd_error *err);

#endif
