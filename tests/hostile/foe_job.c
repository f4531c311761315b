/* foe_job.c - packs the frames of a hostile client's job. */
#include "foe_job.h"

enum { UNDER_WAY = 16, DECLARE_BYTES = 60 * 1024, DIGITS = 10 };

static void *room(size_t n, size_t size)
{
    void *at = calloc(n + 1, size);

    if (at == NULL) {
        fprintf(stderr, "hostile client: no memory\n");
        _Exit(1);
    }
    return at;
}

static size_t count(const char *const *texts)
{
    size_t n = 0;

    while (texts != NULL && texts[n] != NULL) n++;
    return n;
}

foe_frame foe_pack_hello(const foe_hello *hello)
{
    static const char *const plain[] = { "* sgd lr=0.1", NULL };
    const char *const *rules = hello->rules != NULL ? hello->rules : plain;
    Paramd__HelloRequest request = PARAMD__HELLO_REQUEST__INIT;
    Paramd__Option options[FOE_MOST_OPTIONS], *list[FOE_MOST_OPTIONS];

    request.protocol = PD_PROTOCOL_VERSION;
    request.job = (char *)hello->job;
    request.rank = hello->rank;
    request.world_size = hello->world;
    request.nonce = hello->nonce;
    request.shards = hello->shards;
    request.label = (char *)"mallory";
    request.shares = hello->shares;
    request.resume = hello->anew ? 2 : 0;
    request.options = list;
    if (hello->job[0] != '\0') {
        request.rules = (char **)rules;
        request.n_rules = count(rules);
        request.n_options = count(hello->options) / 2;
    }
    for (size_t i = 0; i < request.n_options; i++) {
        options[i] = (Paramd__Option)PARAMD__OPTION__INIT;
        options[i].name = (char *)hello->options[2 * i];
        options[i].value = (char *)hello->options[2 * i + 1];
        list[i] = &options[i];
    }
    return foe_pack(PD_HELLO, &request.base, 0);
}

bool foe_join(foe *f, foe_side *side, const foe_hello *hello)
{
    foe_frame frame = foe_pack_hello(hello);
    int code;

    foe_connect(f, side);
    code = foe_call(f, &frame);
    f->out = NULL;
    foe_frame_free(&frame);
    if (code != PD_OK) foe_close(f);
    return code == PD_OK;
}

void foe_name(char out[FOE_NAME_BYTES + 1], uint32_t i)
{
    memset(out, 'a', FOE_NAME_BYTES);
    snprintf(out + FOE_NAME_BYTES - DIGITS, DIGITS + 1, "%0*u", DIGITS, i);
}

/* Packs the parameters from `first` on, as many as fit into a frame. Returns how many. */
static uint32_t pack_declare(foe_frame *out, const foe_set *set, uint32_t first)
{
    enum { MOST = DECLARE_BYTES / FOE_NAME_BYTES };
    static char names[MOST][FOE_NAME_BYTES + 1];
    static Paramd__Parameter at[MOST], *list[MOST];
    Paramd__DeclareRequest request = PARAMD__DECLARE_REQUEST__INIT;
    uint64_t elements = set->elements;
    uint32_t n = set->n - first < MOST ? set->n - first : MOST;

    for (uint32_t i = 0; i < n; i++) {
        foe_name(names[i], first + i);
        at[i] = (Paramd__Parameter)PARAMD__PARAMETER__INIT;
        at[i].name = names[i];
        at[i].shape = &elements;
        at[i].n_shape = 1;
        list[i] = &at[i];
    }
    request.parameters = list;
    request.n_parameters = n;
    request.last = first + n == set->n;
    *out = foe_pack(PD_DECLARE, &request.base, 0);
    return n;
}

void foe_set_make(foe_set *set, uint32_t n, uint64_t elements)
{
    *set = (foe_set){ .n = n, .elements = elements, .declares = room(n, sizeof *set->declares) };
    for (uint32_t first = 0; first < n;) first += pack_declare(&set->declares[set->n_declares++], set, first);
}

void foe_set_free(foe_set *set)
{
    foe_frames_free(set->declares, set->n_declares);
    *set = (foe_set){ 0 };
}

int foe_declare(foe *f, const foe_set *set)
{
    return foe_send_all(f, set->declares, set->n_declares, SIZE_MAX);
}

static size_t pieces_in(const foe_set *set, uint32_t first)
{
    return set->n - first < FOE_IN_A_FRAME ? set->n - first : FOE_IN_A_FRAME;
}

static size_t frames_of(const foe_set *set)
{
    return (set->n + FOE_IN_A_FRAME - 1) / FOE_IN_A_FRAME;
}

/* Fills the pieces of a frame. Returns the bytes of its payload. */
static size_t fill_pieces(Paramd__Piece *at, Paramd__Piece **list, const foe_set *set, uint32_t first, bool absent)
{
    size_t n = pieces_in(set, first), bytes = (size_t)set->elements * sizeof(float);
    size_t each = (bytes + PD_PAYLOAD_ALIGN - 1) / PD_PAYLOAD_ALIGN * PD_PAYLOAD_ALIGN;

    for (size_t i = 0; i < n; i++) {
        at[i] = (Paramd__Piece)PARAMD__PIECE__INIT;
        at[i].handle = first + (uint32_t)i;
        at[i].dtype = 1;
        at[i].absent = absent;
        at[i].count = absent ? 0 : set->elements;
        at[i].offset = absent ? 0 : i * each;
        list[i] = &at[i];
    }
    return absent ? 0 : n * each;
}

size_t foe_init_frames(foe_frame **out, const foe_set *set)
{
    Paramd__Piece at[FOE_IN_A_FRAME], *list[FOE_IN_A_FRAME];
    size_t n = frames_of(set);

    *out = room(n, sizeof **out);
    for (size_t k = 0; k < n; k++) {
        Paramd__InitRequest request = PARAMD__INIT_REQUEST__INIT;
        uint32_t first = (uint32_t)k * FOE_IN_A_FRAME;
        size_t bytes = fill_pieces(at, list, set, first, false);
        request.pieces = list;
        request.n_pieces = pieces_in(set, first);
        (*out)[k] = foe_pack(PD_INIT, &request.base, bytes);
    }
    return n;
}

size_t foe_push_frames(foe_frame **out, const foe_set *set, unsigned method, uint64_t step, bool absent, bool last)
{
    Paramd__Piece at[FOE_IN_A_FRAME], *list[FOE_IN_A_FRAME];
    size_t n = frames_of(set);

    *out = room(n, sizeof **out);
    for (size_t k = 0; k < n; k++) {
        Paramd__PushRequest request = PARAMD__PUSH_REQUEST__INIT;
        uint32_t first = (uint32_t)k * FOE_IN_A_FRAME;
        size_t bytes = fill_pieces(at, list, set, first, absent);
        request.step = step;
        request.mark = UINT64_MAX;
        request.last = last && k + 1 == n;
        request.pieces = list;
        request.n_pieces = pieces_in(set, first);
        (*out)[k] = foe_pack(method, &request.base, bytes);
    }
    return n;
}

size_t foe_pull_frames(foe_frame **out, const foe_set *set, uint64_t min_step)
{
    Paramd__Want at[FOE_IN_A_FRAME], *list[FOE_IN_A_FRAME];
    size_t n = frames_of(set);

    *out = room(n, sizeof **out);
    for (size_t k = 0; k < n; k++) {
        Paramd__PullRequest request = PARAMD__PULL_REQUEST__INIT;
        uint32_t first = (uint32_t)k * FOE_IN_A_FRAME;
        for (size_t i = 0; i < pieces_in(set, first); i++) {
            at[i] = (Paramd__Want)PARAMD__WANT__INIT;
            at[i].handle = first + (uint32_t)i;
            at[i].count = set->elements;
            list[i] = &at[i];
        }
        request.min_step = min_step;
        request.form = k % 2; /* every other frame wants the weights to evaluate with */
        request.wants = list;
        request.n_wants = pieces_in(set, first);
        (*out)[k] = foe_pack(PD_PULL, &request.base, 0);
    }
    return n;
}

foe_frame foe_pack_last(uint64_t step)
{
    Paramd__PushRequest request = PARAMD__PUSH_REQUEST__INIT;

    request.step = step;
    request.mark = UINT64_MAX; /* all refusals so far have been read */
    request.last = true;
    return foe_pack(PD_PUSH, &request.base, 0);
}

bool foe_begin(foe *f, foe_side *side, const foe_hello *hello, const foe_set *set)
{
    foe_frame *frames;
    size_t n;
    int code;

    if (!foe_join(f, side, hello)) return false;
    if ((code = foe_declare(f, set)) == PD_OK && hello->rank == 0) {
        n = foe_init_frames(&frames, set);
        code = foe_send_all(f, frames, n, UNDER_WAY);
        foe_frames_free(frames, n);
    }
    return code == PD_OK;
}
