/* glob.c - compiles globs to automata, and runs these on names.
 *
 * The prefix of a glob, its first bytes that are neither *, ? nor a set, is compared with the name directly. The rest
 * of the glob becomes a nondeterministic automaton. State i is possible if the first i elements of the rest (bytes, ?
 * and sets, but not *) match the bytes of the name that were read so far. The possible states are a set of bits, and
 * one step computes the set after the next byte of the name. If a * follows the first i elements, state i stays
 * possible after any byte. */
#include "glob.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Estimates of the time of a comparison in ns: START_NS for the call; PREFIX_NS for each byte that is compared with the
 * prefix; for each byte that the automaton reads, BYTE_NS, and WORD_NS for each word of the set of states. */
#define START_NS 10.0
#define PREFIX_NS 0.2
#define BYTE_NS 1.0
#define WORD_NS 1.2

enum { BYTES = 256 }; /* number of values of a byte */

/* A compiled glob, followed in the same allocation by the memory that its members point to. */
struct pd_glob {
    size_t n_prefix; /* number of bytes of `prefix`, with which a name must begin */
    size_t n;        /* number of elements of the rest of the glob */
    size_t words;    /* number of 64-bit words of a set of the states 0 to n; 0: the rest is empty */
    size_t classes;  /* number of classes of bytes */
    size_t bytes;    /* size of the compiled glob, in bytes */
    char *prefix;
    uint64_t *states;   /* set of the states that are possible now, during a comparison */
    uint64_t *stays;    /* set of the states that stay possible after any byte, because a * follows */
    uint64_t *steps;    /* from steps[class * words] on: set of the states from which a byte of this class leads to
                         * the next state */
    uint8_t class_of[]; /* class of each byte value; bytes of one class match the same elements. BYTES long if words
                         * > 0, otherwise absent */
};

/* An element of a glob: a byte, a ? (ANY) or a set; or a *, which does not count as an element. */
typedef struct element {
    enum { BYTE, ANY, SET, STAR } kind;
    uint8_t byte;
    uint64_t set[4]; /* bit c: byte c is in the set */
} element;

static void add_range(uint64_t set[4], unsigned first, unsigned last)
{
    for (unsigned c = first; c <= last; c++) set[c / 64] |= (uint64_t)1 << c % 64;
}

/* Reads a set like [a-z]. `at` points after the '['. Returns a pointer after the closing ']', or NULL if there is none:
 * then the '[' is an ordinary byte. */
static const uint8_t *read_set(element *out, const uint8_t *at)
{
    bool negated = *at == '!' || *at == '^';
    const uint8_t *first = at += negated;

    *out = (element){ .kind = SET };
    for (; *at != '\0' && (*at != ']' || at == first); at++) {
        if (at[1] == '-' && at[2] != ']' && at[2] != '\0') {
            add_range(out->set, at[0], at[2]);
            at += 2;
        } else {
            add_range(out->set, *at, *at);
        }
    }
    for (int i = 0; negated && i < 4; i++) out->set[i] = ~out->set[i];
    return *at == ']' ? at + 1 : NULL;
}

/* Reads the element, or the *, at `at`, which is not the end of the glob. Returns a pointer after it. */
static const uint8_t *read_element(element *out, const uint8_t *at)
{
    const uint8_t *end = *at == '[' ? read_set(out, at + 1) : NULL;

    if (end != NULL) return end;
    *out = (element){ .kind = *at == '*' ? STAR : *at == '?' ? ANY : BYTE };
    if (*at == '\\' && at[1] != '\0') at++;
    out->byte = *at;
    return at + 1;
}

/* A division of all byte values into classes. Bytes of one class match the same elements of a glob. */
typedef struct classes {
    uint8_t of[BYTES];    /* class of each byte */
    unsigned size[BYTES]; /* number of bytes in each class */
    size_t n;             /* number of classes */
} classes;

/* Splits each class that has bytes inside and outside of the set into two classes. */
static void divide(classes *c, const uint64_t set[4])
{
    unsigned inside[BYTES] = { 0 };
    int to[BYTES];

    for (unsigned b = 0; b < BYTES; b++) inside[c->of[b]] += set[b / 64] >> b % 64 & 1;
    for (size_t k = 0, n = c->n; k < n; k++) {
        to[k] = -1;
        if (inside[k] == 0 || inside[k] == c->size[k]) continue;
        to[k] = (int)c->n++;
        c->size[to[k]] = inside[k];
        c->size[k] -= inside[k];
    }
    for (unsigned b = 0; b < BYTES; b++)
        if ((set[b / 64] >> b % 64 & 1) != 0 && to[c->of[b]] >= 0) c->of[b] = (uint8_t)to[c->of[b]];
}

/* Does what `divide` does, for a set that contains only `byte`. */
static void single_out(classes *c, uint8_t byte)
{
    if (c->size[c->of[byte]] == 1) return;
    c->size[c->of[byte]]--;
    c->size[c->n] = 1;
    c->of[byte] = (uint8_t)c->n++;
}

/* Finds the classes of bytes for the rest of a glob, and counts its elements (*n) and stars (*stars). */
static void classify(classes *c, const uint8_t *rest, size_t *n, size_t *stars)
{
    element e;

    *c = (classes){ .size = { BYTES }, .n = 1 };
    *n = *stars = 0;
    while (*rest != '\0') {
        rest = read_element(&e, rest);
        if (e.kind == SET) divide(c, e.set);
        if (e.kind == BYTE) single_out(c, e.byte);
        if (e.kind == STAR)
            ++*stars;
        else
            ++*n;
    }
}

/* Copies the prefix of a glob, and sets *n to its length. Returns the rest of the glob. */
static const uint8_t *read_prefix(const uint8_t *text, char *prefix, size_t *n)
{
    element e;

    for (*n = 0; *text != '\0'; prefix[(*n)++] = (char)e.byte) {
        const uint8_t *next = read_element(&e, text);
        if (e.kind != BYTE) break;
        text = next;
    }
    return text;
}

static void set_bit(uint64_t *set, size_t bit)
{
    set[bit / 64] |= (uint64_t)1 << bit % 64;
}

/* Adds `state` to the set in `steps` of each class whose bytes match the element e, which leads from `state` to state +
 * 1. some[k] is a byte of class k. */
static void fill_element(const element *e, size_t state, const classes *c, const uint8_t *some, uint64_t *steps,
                         size_t words)
{
    if (e->kind == BYTE) {
        set_bit(steps + c->of[e->byte] * words, state);
        return;
    }
    for (size_t k = 0; k < c->n; k++)
        if (e->kind == ANY || (e->set[some[k] / 64] >> some[k] % 64 & 1) != 0) set_bit(steps + k * words, state);
}

static void fill(pd_glob *glob, const uint8_t *rest, const classes *c)
{
    uint8_t some[BYTES];
    size_t state = 0;
    element e;

    memcpy(glob->class_of, c->of, sizeof c->of);
    for (unsigned b = 0; b < BYTES; b++) some[c->of[b]] = (uint8_t)b;
    while (*rest != '\0') {
        rest = read_element(&e, rest);
        if (e.kind == STAR)
            set_bit(glob->stays, state);
        else
            fill_element(&e, state++, c, some, glob->steps, glob->words);
    }
}

/* Sets the pointers of a compiled glob into its memory, which follows the struct. */
static void lay_out(pd_glob *glob)
{
    glob->states = (uint64_t *)(void *)(glob->class_of + (glob->words > 0 ? BYTES : 0));
    glob->stays = glob->states + glob->words;
    glob->steps = glob->stays + glob->words;
    glob->prefix = (char *)(glob->steps + glob->classes * glob->words);
}

/* Compiles a glob that consists of the prefix, of n_prefix bytes, and of `rest`. */
static pd_glob *compile(const char *prefix, size_t n_prefix, const uint8_t *rest)
{
    classes c;
    size_t n, stars, words, bytes;
    pd_glob *glob;

    classify(&c, rest, &n, &stars);
    words = n + stars > 0 ? n / 64 + 1 : 0;
    bytes = sizeof *glob + (words > 0 ? BYTES : 0) + (c.n + 2) * words * sizeof(uint64_t) + n_prefix + 1;
    if ((glob = calloc(1, bytes)) == NULL) return NULL;
    *glob = (pd_glob){ .n_prefix = n_prefix, .n = n, .words = words, .classes = c.n, .bytes = bytes };
    lay_out(glob);
    memcpy(glob->prefix, prefix, n_prefix);
    if (words > 0) fill(glob, rest, &c);
    return glob;
}

pd_glob *pd_glob_new(const char *text)
{
    char *prefix = malloc(strlen(text) + 1);
    pd_glob *glob;
    const uint8_t *rest;
    size_t n;

    if (prefix == NULL) return NULL;
    rest = read_prefix((const uint8_t *)text, prefix, &n);
    glob = compile(prefix, n, rest);
    free(prefix);
    return glob;
}

pd_glob *pd_glob_copy(const pd_glob *from)
{
    pd_glob *glob = malloc(from->bytes);

    if (glob == NULL) return NULL;
    memcpy(glob, from, from->bytes);
    lay_out(glob);
    return glob;
}

void pd_glob_free(pd_glob *glob)
{
    free(glob);
}

/* Runs the automaton on `at`, the name after the prefix. For globs whose sets of states are one word. Returns whether
 * the name matches. */
static bool run_one(const pd_glob *glob, const uint8_t *at)
{
    uint64_t states = 1, stays = glob->stays[0], last = (uint64_t)1 << glob->n;

    for (; *at != '\0' && states != 0; at++) {
        if ((states & stays & last) != 0) return true;
        states = (states & stays) | (states & glob->steps[glob->class_of[*at]]) << 1;
    }
    return (states & last) != 0;
}

/* Computes the possible states after one more byte of the name. Returns whether any state is still possible. */
static bool step(pd_glob *glob, uint8_t byte)
{
    const uint64_t *steps = glob->steps + glob->class_of[byte] * glob->words;
    uint64_t carry = 0, any = 0;

    for (size_t w = 0; w < glob->words; w++) {
        uint64_t goes = glob->states[w] & steps[w];
        glob->states[w] = (glob->states[w] & glob->stays[w]) | goes << 1 | carry;
        carry = goes >> 63;
        any |= glob->states[w];
    }
    return any != 0;
}

static bool run(pd_glob *glob, const uint8_t *at)
{
    size_t w = glob->n / 64;
    uint64_t last = (uint64_t)1 << glob->n % 64;

    memset(glob->states, 0, glob->words * sizeof *glob->states);
    glob->states[0] = 1;
    for (; *at != '\0'; at++) {
        if ((glob->states[w] & glob->stays[w] & last) != 0) return true;
        if (!step(glob, *at)) return false;
    }
    return (glob->states[w] & last) != 0;
}

bool pd_glob_match(pd_glob *glob, const char *name)
{
    const uint8_t *rest = (const uint8_t *)name + glob->n_prefix;

    if (strncmp(glob->prefix, name, glob->n_prefix) != 0) return false;
    if (glob->words == 0) return *rest == '\0';
    return glob->words == 1 ? run_one(glob, rest) : run(glob, rest);
}

double pd_glob_ns(const pd_glob *glob, size_t length)
{
    double byte_ns = glob->words > 0 ? BYTE_NS + WORD_NS * (double)glob->words : PREFIX_NS;

    return START_NS + byte_ns * (double)length;
}

size_t pd_glob_bytes(const pd_glob *glob)
{
    return glob->bytes;
}
