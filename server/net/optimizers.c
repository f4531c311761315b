/* optimizers.c - answers an Optimizers request with the optimizers of the server, in pages. A daemon packs each
 * optimizer once, so that its answers are copies of bytes. */
#include "optimizers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Most bytes of the tag and length of an optimizer in a reply. */
enum { FIELD_BYTES = 12 };

static const char *const type_names[] = {
    [PD_REAL] = "real", [PD_INT] = "int", [PD_FLAG] = "flag", [PD_CHOICE] = "choice", [PD_TEXT] = "text"
};

typedef struct hyper_entry {
    Paramd__Hyper message;
    char preset[64];
} hyper_entry;

typedef struct row_entry {
    Paramd__Optimizer message;
    Paramd__Hyper *list[PD_MAX_HYPERS];
    hyper_entry hypers[PD_MAX_HYPERS];
} row_entry;

static void fill_hyper(hyper_entry *to, const pd_hypers *defaults, const pd_hyper *from, int index)
{
    paramd__hyper__init(&to->message);
    to->message.name = (char *)from->name;
    to->message.type = (char *)type_names[from->type];
    to->message.preset = (char *)pd_hypers_text(defaults, index, to->preset, sizeof to->preset);
    to->message.least = from->least;
    to->message.most = from->type == PD_TEXT ? PD_MAX_TEXT : from->most;
    if (from->choices != NULL) to->message.choices = (char *)from->choices;
    to->message.help = (char *)from->help;
    to->message.per_step = from->per_step;
}

/* Makes the message that describes one optimizer and its hyperparameters. Returns NULL if out of memory. */
static row_entry *new_entry(const pd_optimizer_ops *row)
{
    row_entry *to = calloc(1, sizeof *to);
    pd_hypers defaults;
    size_t n;
    const pd_hyper *hypers = pd_optimizer_hypers(row, &n);

    if (to == NULL) return NULL;
    pd_hypers_init(&defaults, row);
    paramd__optimizer__init(&to->message);
    to->message.name = (char *)pd_optimizer_name(row);
    to->message.about = (char *)pd_optimizer_about(row);
    to->message.hypers = to->list;
    to->message.n_hypers = n;
    for (size_t i = 0; i < n; i++) {
        fill_hyper(&to->hypers[i], &defaults, &hypers[i], (int)i);
        to->list[i] = &to->hypers[i].message;
    }
    return to;
}

static int no_such_optimizer(pd_optimizer_at *at, const char *name, pd_error *err)
{
    char list[300] = "";
    const pd_optimizer_ops *row;

    for (size_t i = 0; (row = at(i)) != NULL; i++) {
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", i > 0 ? ", " : "", pd_optimizer_name(row));
    }
    return pd_fail(err, PD_NOT_FOUND, "there is no optimizer %.64s; there are: %s", name, list);
}

/* Finds the optimizers that a request asks for: those with indices from *first to *end - 1. PD_NOT_FOUND: no optimizer
 * has that name. */
static int find_rows(pd_optimizer_at *at, const char *name, size_t *first, size_t *end, pd_error *err)
{
    size_t n = 0, i;

    while (at(n) != NULL) n++;
    *end = n;
    if (*first > n) *first = n;
    if (name[0] == '\0') return PD_OK;
    for (i = 0; i < n && strcmp(pd_optimizer_name(at(i)), name) != 0; i++)
        ;
    *first = i;
    *end = i + 1;
    return i < n ? PD_OK : no_such_optimizer(at, name, err);
}

/* Writes a length in protobuf's format, 7 bits per byte. Returns the number of written bytes. */
static size_t put_length(uint8_t *to, size_t length)
{
    size_t n = 0;

    for (; length > 0x7f; length >>= 7) to[n++] = (uint8_t)(0x80 | (length & 0x7f));
    to[n++] = (uint8_t)length;
    return n;
}

/* Returns how many bytes an optimizer takes in a reply, without its tag. */
static size_t field_bytes(const row_entry *entry)
{
    uint8_t length[FIELD_BYTES];
    size_t bytes = protobuf_c_message_get_packed_size(&entry->message.base);

    return put_length(length, bytes) + bytes;
}

/* Adds the bytes of an optimizer, and 1 for its tag, to *page_bytes, the bytes of a reply so far. Returns false if the
 * optimizer does not fit into the reply. The first one always does. */
static bool add_to_page(size_t *page_bytes, size_t bytes)
{
    bool first = *page_bytes == 0;

    *page_bytes += 1 + bytes;
    return first || *page_bytes <= PD_OPTIMIZERS_BYTES;
}

/* Adds descriptions of optimizers to the reply until its frame is full. */
static int fill(Paramd__OptimizersReply *reply, pd_optimizer_at *at, size_t first, size_t end)
{
    size_t bytes = 0;

    for (size_t i = first; i < end; i++) {
        row_entry *entry = new_entry(at(i));
        if (entry == NULL) return PD_NO_MEMORY;
        if (!add_to_page(&bytes, field_bytes(entry))) {
            free(entry);
            reply->next = (uint32_t)i;
            return PD_OK;
        }
        reply->optimizers[reply->n_optimizers++] = &entry->message;
    }
    return PD_OK;
}

int pd_optimizers_page(Paramd__OptimizersReply **out, pd_optimizer_at *at, uint32_t start, const char *name,
                       pd_error *err)
{
    Paramd__OptimizersReply *reply;
    size_t first = start, end;
    int rc = find_rows(at, name, &first, &end, err);

    if (rc != PD_OK) return rc;
    if ((reply = malloc(sizeof *reply)) == NULL) goto no_memory;
    paramd__optimizers_reply__init(reply);
    if ((reply->optimizers = calloc(end - first + 1, sizeof *reply->optimizers)) == NULL) goto no_memory;
    if (fill(reply, at, first, end) != PD_OK) goto no_memory;
    *out = reply;
    return PD_OK;

no_memory:
    pd_optimizers_free(reply);
    return pd_fail(err, PD_NO_MEMORY, "out of memory, try again later");
}

void pd_optimizers_free(Paramd__OptimizersReply *reply)
{
    if (reply == NULL) return;
    for (size_t i = 0; i < reply->n_optimizers; i++)
        /* Each message is the first member of a row_entry, so freeing the message frees the whole row_entry. */
        free(reply->optimizers[i]);
    free(reply->optimizers);
    free(reply);
}

/* All optimizers, packed as fields of a reply. protobuf-c copies unknown fields of a message as they are, so a reply
 * refers to a range of this array. */
struct pd_packed_optimizers {
    pd_optimizer_at *at;
    size_t n;
    ProtobufCMessageUnknownField fields[];
};

/* Packs an optimizer's description as the field `optimizers` of a reply: its length, then the message. */
static int pack(ProtobufCMessageUnknownField *to, const row_entry *entry)
{
    static const ProtobufCMessageDescriptor *const reply = &paramd__optimizers_reply__descriptor;

    to->tag = protobuf_c_message_descriptor_get_field_by_name(reply, "optimizers")->id;
    to->wire_type = PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED;
    to->len = field_bytes(entry);
    if ((to->data = malloc(to->len)) == NULL) return PD_NO_MEMORY;
    protobuf_c_message_pack(&entry->message.base,
                            to->data + put_length(to->data, protobuf_c_message_get_packed_size(&entry->message.base)));
    return PD_OK;
}

pd_packed_optimizers *pd_optimizers_pack(pd_optimizer_at *at)
{
    pd_packed_optimizers *packed;
    size_t n = 0;

    while (at(n) != NULL) n++;
    if ((packed = calloc(1, sizeof *packed + n * sizeof packed->fields[0])) == NULL) return NULL;
    packed->at = at;
    for (; packed->n < n; packed->n++) {
        row_entry *entry = new_entry(at(packed->n));
        int rc = entry != NULL ? pack(&packed->fields[packed->n], entry) : PD_NO_MEMORY;
        free(entry);
        if (rc == PD_OK) continue;
        pd_packed_optimizers_free(packed);
        return NULL;
    }
    return packed;
}

void pd_packed_optimizers_free(pd_packed_optimizers *packed)
{
    if (packed == NULL) return;
    for (size_t i = 0; i < packed->n; i++) free(packed->fields[i].data);
    free(packed);
}

int pd_optimizers_packed_page(Paramd__OptimizersReply *reply, pd_packed_optimizers *packed, uint32_t start,
                              const char *name, pd_error *err)
{
    size_t first = start, end, i, bytes = 0;
    int rc = find_rows(packed->at, name, &first, &end, err);

    if (rc != PD_OK) return rc;
    for (i = first; i < end && add_to_page(&bytes, packed->fields[i].len); i++)
        ;
    paramd__optimizers_reply__init(reply);
    reply->base.unknown_fields = &packed->fields[first];
    reply->base.n_unknown_fields = (unsigned)(i - first);
    reply->next = i < end ? (uint32_t)i : 0;
    return PD_OK;
}
