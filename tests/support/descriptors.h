/* descriptors.h - file descriptors of the test's process: counts them, makes new ones fail, and makes some to pass. */
#ifndef DESCRIPTORS_H
#define DESCRIPTORS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Returns how many descriptors a process has open; pid 0: this one. */
int descriptors_open(pid_t pid);
/* Returns how many descriptors of a process refer to a segment of shared memory (segment.h). */
int descriptors_of_segments(pid_t pid);
/* Makes every call that needs a new descriptor fail with EMFILE, until descriptors_allow. */
void descriptors_forbid(void);
void descriptors_allow(void);

/* Returns a memfd of `bytes` bytes with these seals (F_SEAL_SHRINK …). `flags`: of memfd_create, beside
 * MFD_ALLOW_SEALING. -1: the machine has no such memory. */
int memfd_with(unsigned flags, uint64_t bytes, int seals);
/* Returns a memfd as a peer passes it: full and sealed, with byte i of it = (uint8_t)(i * 7 + seed). */
int memfd_sealed(uint64_t bytes, uint8_t seed);
/* Returns whether both descriptors refer to the same file. */
bool same_file(int a, int b);

#endif
