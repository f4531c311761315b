/* hash.h - XXH3 as the library computes it fastest on the CPU at hand. Include this in place of <xxhash.h>.
 *
 * The plain functions of libxxhash are compiled for any x86-64, and hash 8 GB/s. The functions of its second header
 * choose loops for AVX2 or AVX-512 when the program runs, and hash 40 GB/s. Both compute the same hashes. */
#ifndef PD_HASH_H
#define PD_HASH_H

#include <xxhash.h>
#ifdef PD_HASH_DISPATCH /* defined by CMakeLists.txt if the library has the second header */
#include <xxh_x86dispatch.h>
#endif

#endif
