/* most_shards.h - a limit that client and server share. */
#ifndef PD_MOST_SHARDS_H
#define PD_MOST_SHARDS_H

enum { PD_MAX_SHARDS = 64 }; /* most shards of a cluster */

#endif
