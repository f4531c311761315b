#include "copy.h"

#include <stdint.h>
#include <string.h>

#include "clones.h"

enum { VECTOR = 32, STEP = 4 };

typedef uint8_t vector __attribute__((vector_size(VECTOR), aligned(1), may_alias));

/* Copies `steps` times STEP vectors. Without the barrier the compiler would call memcpy. */
PD_CLONES(void, copy_steps, (uint8_t *restrict to, const uint8_t *restrict from, size_t steps), (to, from, steps))
{
    for (; steps > 0; steps--, to += STEP * VECTOR, from += STEP * VECTOR) {
        const vector *in = (const vector *)from;
        vector *out = (vector *)to, a = in[0], b = in[1], c = in[2], d = in[3];
        out[0] = a, out[1] = b, out[2] = c, out[3] = d;
        __asm__ volatile("" : : : "memory");
    }
}

void pd_copy_bytes(void *to, const void *from, size_t n)
{
    size_t whole = n / (STEP * VECTOR) * (STEP * VECTOR);

    copy_steps(to, from, whole / (STEP * VECTOR));
    if (n > whole) memcpy((uint8_t *)to + whole, (const uint8_t *)from + whole, n - whole);
}
