/* format.h - tables and numbers for people at a terminal. */
#ifndef PD_FORMAT_H
#define PD_FORMAT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "paramd/error.h"

#define PD_CELL 48              /* room for any number as text */

/* "1.2 GiB", "512 B". Returns `text`. */
char *pd_bytes_text(char text[PD_CELL], uint64_t bytes);
/* "1,048,576" */
char *pd_count_text(char text[PD_CELL], uint64_t count);
/* "850 ms", "3 min 12 s", "2 d 4 h" */
char *pd_duration_text(char text[PD_CELL], uint64_t ms);

/* "3.2 Gflop": so many floating-point operations */
char *pd_flops_text(char text[PD_CELL], double flops);

/* Prints a line. Characters that cannot be printed show as '?', newlines included: quoted text may come from a peer. */
void  pd_print_line(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Prints JSON of one or more lines. Characters that cannot be printed become escapes, so the values stay the same. */
void  pd_print_json(FILE *out, const char *json);

/* A table is filled row by row and printed when all widths are known. */
typedef struct pd_table pd_table;

/* `titles`: one a column, separated by '|'; '>' before a title aligns its column to the right. NULL: out of memory. */
pd_table *pd_table_new(const char *titles);
/* Adds the next cell. Characters that cannot be printed show as '?'. Lack of memory is reported by pd_table_print. */
void      pd_table_cell(pd_table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Adds a line over all columns. Its width counts for no column. */
void      pd_table_line(pd_table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Prints titles and rows, or `none` if there are no rows, and frees the table. PD_NO_MEMORY: prints only that. */
int       pd_table_print(pd_table *table, FILE *out, const char *none);
void      pd_table_free(pd_table *table);       /* accepts NULL */

#endif
