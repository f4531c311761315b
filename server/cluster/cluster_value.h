/* cluster_value.h - what a daemon registers of itself with the engine: the value of its key, as JSON. Values from the
 * engine are not trusted. Pure functions. */
#ifndef PD_CLUSTER_VALUE_H
#define PD_CLUSTER_VALUE_H

#include "cluster_table.h"
#include "engine.h"

/* A value, decoded. */
typedef struct pd_cluster_value {
    char url[PD_CLUSTER_URL], http[PD_CLUSTER_URL]; /* "": none */
    uint64_t life;
    uint64_t process; /* number of the process that has registered it */
    uint32_t shards;  /* number of shards of the cluster */
} pd_cluster_value;

/* Writes a value as text, of PD_ENGINE_VALUE bytes. PD_INVALID_ARGUMENT: it does not fit; PD_NO_MEMORY. */
int pd_cluster_value_write(char *out, const pd_cluster_value *value, pd_error *err);
/* Reads a value. PD_DATA_LOSS: it is not JSON, or a member is absent or wrong; the error names it. */
int pd_cluster_value_read(pd_cluster_value *out, const char *text, pd_error *err);

#endif
