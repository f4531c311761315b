/* name_hash.h - the keyed hash of names: a peer that does not know the key cannot choose names that collide in a hash
 * table and so make it slow. Pure. */
#ifndef PD_NAME_HASH_H
#define PD_NAME_HASH_H

#include <stddef.h>
#include <stdint.h>

/* Returns the hash of a name of n bytes. `key` is the secret key of the server, pd_store_config.hash_key. */
unsigned pd_name_hash(const uint64_t key[2], const char *name, size_t n);

#endif
