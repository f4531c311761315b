/* wal_copy.h - copies of entries of a log, as a disk would return them. */
#ifndef LOGGED_COPY_H
#define LOGGED_COPY_H

#include "wal_record.h"

/* Returns a copy of an entry, whose aggregates lie in memory of its own. NULL: out of memory. */
pd_wal_record *logged_copy(const pd_wal_record *record);

#endif
