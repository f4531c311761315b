/* merged_list.c - merges the lists that the daemons of a cluster send into one list. */
#include "merged_list.h"

#include <stdlib.h>
#include <string.h>

#include "grow.h"
#include "result.h"

void pd_merged_list_keep(void *arg, const Paramd__ListReply *page)
{
    pd_merged_list *list = arg;
    size_t bytes = paramd__list_reply__get_packed_size(page);
    uint8_t *packed = malloc(bytes + 1);
    Paramd__ListReply *copy = NULL;

    if (packed != NULL) copy = paramd__list_reply__unpack(NULL, paramd__list_reply__pack(page, packed), packed);
    free(packed);
    if (copy == NULL || pd_grow((void **)&list->pages, &list->room, list->n + 1, sizeof(void *)) != PD_OK) {
        if (copy != NULL) paramd__list_reply__free_unpacked(copy, NULL);
        list->failed = true;
        return;
    }
    list->pages[list->n++] = copy;
}

void pd_merged_list_free(pd_merged_list *list)
{
    for (size_t i = 0; i < list->n; i++) paramd__list_reply__free_unpacked(list->pages[i], NULL);
    free(list->pages);
    *list = (pd_merged_list){ 0 };
}

#define ADD(field) (to->field += from->field)
#define LEAST(field) (to->field = from->field < to->field ? from->field : to->field)
#define MOST(field) (to->field = from->field > to->field ? from->field : to->field)

/* Replaces a text of an unpacked message, which the message owns. If memory is missing, the old text stays. */
static void set_text(char **text, const char *value)
{
    char *copy = strdup(value);

    if (copy == NULL) return;
    if (*text != protobuf_c_empty_string) free(*text);
    *text = copy;
}

/* Adds a text to a list of texts such as "1,3; 2", unless the list is equal to it. */
static void join(char **list, const char *more)
{
    char *both = NULL;

    if (more[0] == '\0' || strcmp(*list, more) == 0) return;
    if ((*list)[0] != '\0' && asprintf(&both, "%s; %s", *list, more) < 0) return;
    set_text(list, both != NULL ? both : more);
    free(both);
}

/* Returns the place of a word in a list from good to bad; 0 for a word that is not in it. */
static size_t badness(const char *const *words, const char *word)
{
    for (size_t i = 0; words[i] != NULL; i++)
        if (strcmp(words[i], word) == 0) return i;
    return 0;
}

static void worst(char **state, const char *other, const char *const *words)
{
    if (badness(words, other) > badness(words, *state)) set_text(state, other);
}

static void fold_counts(Paramd__JobInfo *to, const Paramd__JobInfo *from)
{
    ADD(params), ADD(elements), ADD(weight_bytes), ADD(state_bytes), ADD(held_bytes), ADD(committed_bytes);
    ADD(contributions), ADD(steps), ADD(skipped), ADD(refused), ADD(duplicates), ADD(refused_steps), ADD(replayed);
    ADD(roots_due), ADD(roots_adopted), ADD(roots_failed), ADD(roots_unused), ADD(roots_failing);
    ADD(bytes_in), ADD(bytes_out), ADD(checkpoint_bytes);
    MOST(root_waits), MOST(root_age), MOST(clipped_steps), MOST(outlier_steps), MOST(gradient_norm);
}

/* Merges what jobs say about their time. A step of a job that steps as a whole ends with its slowest shard. */
static void fold_times(Paramd__JobInfo *to, const Paramd__JobInfo *from)
{
    LEAST(steps_per_second);
    MOST(waits_ms), MOST(timed_steps);
    MOST(waiting_seconds), MOST(summing_seconds), MOST(stepping_seconds), MOST(publishing_seconds);
}

static void fold_job(void *entry, const void *other)
{
    static const char *const states[] = { "running", "gathering", "lingering", "over", NULL };
    Paramd__JobInfo *to = entry;
    const Paramd__JobInfo *from = other;

    fold_counts(to, from);
    fold_times(to, from);
    LEAST(step_least), MOST(step_most), LEAST(connected), MOST(world_size);
    LEAST(durable_step), LEAST(mirrored_step), MOST(checkpoint_age_ms);
    if (from->loss_step > to->loss_step) {
        to->loss = from->loss;
        to->loss_step = from->loss_step;
    }
    worst(&to->state, from->state, states);
    join(&to->waits_for, from->waits_for);
    join(&to->checkpoint_error, from->checkpoint_error);
    if (to->optimizer[0] == '\0') set_text(&to->optimizer, from->optimizer);
}

static void fold_worker(void *entry, const void *other)
{
    static const char *const states[] = { "connected", "left", "absent", "lost", NULL };
    Paramd__WorkerInfo *to = entry;
    const Paramd__WorkerInfo *from = other;

    LEAST(step), ADD(contributions), ADD(held_bytes), ADD(times_last), ADD(timed_steps), ADD(late_seconds);
    worst(&to->state, from->state, states);
    if (to->label[0] == '\0') set_text(&to->label, from->label);
}

static void fold_round(void *entry, const void *other)
{
    static const char *const states[] = { "idle", "stepping", "grace", "open", NULL };
    Paramd__RoundInfo *to = entry;
    const Paramd__RoundInfo *from = other;

    LEAST(step), LEAST(whole), LEAST(fixed), LEAST(members), MOST(since_ms), MOST(left_ms), MOST(epoch);
    MOST(grace_waits);
    worst(&to->state, from->state, states);
    join(&to->waits_for, from->waits_for);
    join(&to->missing, from->missing);
}

/* Members are those of the first shard: the entries of other shards are dropped. */
static void keep_first(void *entry, const void *other)
{
    (void)entry, (void)other;
}

static int by_job(const void *left, const void *right)
{
    const Paramd__JobInfo *a = left, *b = right;

    return strcmp(a->name, b->name);
}

static int by_worker(const void *left, const void *right)
{
    const Paramd__WorkerInfo *a = left, *b = right;

    return (a->rank > b->rank) - (a->rank < b->rank);
}

static int by_round(const void *left, const void *right)
{
    const Paramd__RoundInfo *a = left, *b = right;
    int order = strcmp(a->job, b->job);

    return order != 0 ? order : (a->fragment > b->fragment) - (a->fragment < b->fragment);
}

static int by_member(const void *left, const void *right)
{
    const Paramd__MemberInfo *a = left, *b = right;

    return (a->rank > b->rank) - (a->rank < b->rank);
}

static int by_param(const void *left, const void *right)
{
    const Paramd__ParamInfo *a = left, *b = right;

    return strverscmp(a->name, b->name);
}

static int by_root(const void *left, const void *right)
{
    const Paramd__RootInfo *a = left, *b = right;

    return strverscmp(a->param, b->param);
}

static int by_setting(const void *left, const void *right)
{
    const Paramd__SettingInfo *a = left, *b = right;

    return strverscmp(a->param, b->param);
}

static int by_state(const void *left, const void *right)
{
    const Paramd__StateInfo *a = left, *b = right;

    return strverscmp(a->param, b->param);
}

/* How lists of one kind are merged. */
typedef struct kind {
    unsigned what;
    const char *field; /* name of the list's field in ListReply */
    int (*compare)(const void *left, const void *right);
    /* Merges the entry `other` into an entry that compares as equal. NULL: entries lie on one shard each. */
    void (*fold)(void *entry, const void *other);
} kind;

static const kind kinds[] = {
    { PARAMD__LIST_KIND__LIST_JOBS, "jobs", by_job, fold_job },
    { PARAMD__LIST_KIND__LIST_WORKERS, "workers", by_worker, fold_worker },
    { PARAMD__LIST_KIND__LIST_ROUNDS, "rounds", by_round, fold_round },
    { PARAMD__LIST_KIND__LIST_MEMBERS, "members", by_member, keep_first },
    { PARAMD__LIST_KIND__LIST_PARAMS, "params", by_param, NULL },
    { PARAMD__LIST_KIND__LIST_ROOTS, "roots", by_root, NULL },
    { PARAMD__LIST_KIND__LIST_SETTINGS, "settings", by_setting, NULL },
    { PARAMD__LIST_KIND__LIST_STATE, "state", by_state, NULL },
};

static const kind *kind_of(unsigned what)
{
    const kind *k = kinds;

    while (k->what != what) k++;
    return k;
}

/* An entry of a list, the shard that sent it, and its place among all entries. */
typedef struct entry {
    ProtobufCMessage *message;
    uint32_t shard;
    size_t place;
} entry;

static int compare_entries(const void *left, const void *right, void *arg)
{
    const entry *a = left, *b = right;
    const kind *k = arg;
    int order = k->compare(a->message, b->message);

    return order != 0 ? order : (a->place > b->place) - (a->place < b->place);
}

/* Returns the address of the field of a page that has the list: an array of entries. */
static ProtobufCMessage ***field_of(Paramd__ListReply *page, const ProtobufCFieldDescriptor *field)
{
    return (ProtobufCMessage ***)(void *)((char *)page + field->offset);
}

static size_t *count_of(Paramd__ListReply *page, const ProtobufCFieldDescriptor *field)
{
    return (size_t *)(void *)((char *)page + field->quantifier_offset);
}

/* Lists the entries of all pages. Returns NULL if out of memory. */
static entry *gather(const pd_merged_list *lists, size_t n, const ProtobufCFieldDescriptor *field, size_t *n_entries)
{
    size_t all = 0, at = 0;
    entry *entries;

    for (size_t s = 0; s < n; s++)
        for (size_t p = 0; p < lists[s].n; p++) all += *count_of(lists[s].pages[p], field);
    if ((entries = calloc(all + 1, sizeof *entries)) == NULL) return NULL;
    for (size_t s = 0; s < n; s++)
        for (size_t p = 0; p < lists[s].n; p++)
            for (size_t i = 0; i < *count_of(lists[s].pages[p], field); i++, at++)
                entries[at] = (entry){ (*field_of(lists[s].pages[p], field))[i], (uint32_t)s, at };
    *n_entries = all;
    return entries;
}

/* Merges entries that compare as equal into the first one of them. Returns the number of entries that are left. */
static size_t fold(entry *entries, size_t n, const kind *k)
{
    size_t kept = 0;

    for (size_t i = 0; i < n; i++) {
        if (kept > 0 && k->compare(entries[kept - 1].message, entries[i].message) == 0)
            k->fold(entries[kept - 1].message, entries[i].message);
        else
            entries[kept++] = entries[i];
    }
    return kept;
}

int pd_merged_lists_use(pd_merged_list *lists, size_t n, unsigned what, uint32_t *shard, pd_page_user *use, void *arg,
                        pd_error *err)
{
    const kind *k = kind_of(what);
    Paramd__ListReply page = PARAMD__LIST_REPLY__INIT;
    const ProtobufCFieldDescriptor *field = pd_message_field(&page.base, k->field);
    size_t n_entries;
    entry *entries = gather(lists, n, field, &n_entries);

    if (entries == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    if (n_entries > 0) qsort_r(entries, n_entries, sizeof *entries, compare_entries, (void *)k);
    if (k->fold != NULL) n_entries = fold(entries, n_entries, k);
    *count_of(&page, field) = 1;
    for (size_t i = 0; i < n_entries; i++) {
        *shard = entries[i].shard;
        *field_of(&page, field) = &entries[i].message;
        use(arg, &page);
    }
    free(entries);
    return PD_OK;
}
