/* hash.h - XXH3 as the library computes it fastest on the CPU at hand. Include this in place of <xxhash.h>.
 *
 * The plain functions of libxxhash are compiled for any x86-64, and hash 8 GB/s. Those of its second header choose the
 * loops for AVX2 or AVX-512 when the program runs, and hash 40 GB/s. The hashes are the same. */
#ifndef PD_HASH_H
#define PD_HASH_H

#include <xxhash.h>
#ifdef PD_HASH_DISPATCH /* the library has these functions: CMakeLists.txt tries them */
#include <xxh_x86dispatch.h>
#endif

#endif
