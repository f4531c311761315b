/* text_table.h - tables for people at a terminal. A table is filled row by row, and printed when all widths are
 * known. */
#ifndef PD_TEXT_TABLE_H
#define PD_TEXT_TABLE_H

#include <stdbool.h>
#include <stdio.h>

#include "paramd/error.h"

typedef struct pd_table pd_table;

/* Makes a table. `titles` are the titles of the columns, separated by '|'. NULL: out of memory. A sign before a
 * title sets the layout of its column:
 *   '>'  aligns cells to the right
 *   '~'  cuts the middle out of long cells if a line exceeds the limit
 *   '&'  wraps cells; only for the last column */
pd_table *pd_table_new(const char *titles);
/* Sets how many characters a line of the table may have; 0: any number. Accepts NULL. */
void pd_table_limit(pd_table *table, int limit);
/* Returns the default limit for the lines of a list: the width of the terminal; 100 characters elsewhere. */
int pd_table_default_limit(void);
/* Adds the next cell of the row. Unprintable characters show as '?'. If memory is missing, pd_table_print reports
 * it later. */
void pd_table_cell(pd_table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Adds a cell as pd_table_cell does if the value is known, and "-" otherwise. */
void pd_table_cell_if(pd_table *table, bool known, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Makes the cell that was added last red on a terminal with colours. */
void pd_table_alarm(pd_table *table);
/* Adds a line of text that spans all columns of the table and does not change their widths. */
void pd_table_line(pd_table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Prints the titles and rows of the table, or the text `none` if there are no rows, and frees the table.
 * PD_NO_MEMORY: the table is incomplete; only an error is printed. */
int pd_table_print(pd_table *table, FILE *out, const char *none);
void pd_table_free(pd_table *table); /* accepts NULL */

/* Returns whether colours may be printed: `out` is stdout, it is a terminal other than "dumb", and NO_COLOR is not
 * set. */
bool pd_shows_colour(FILE *out);

#endif
